# SPDX-License-Identifier: Apache-2.0
"""The result as a table: for people, and for docs/reliability.md."""

from __future__ import annotations

import platform
import re
from datetime import datetime, timezone
from pathlib import Path

import pyrdnaar

from .tally import FAULTS, Tally

BEGIN, END = "<!-- soak: begin, written by `make soak` -->", "<!-- soak: end -->"


def head() -> str:
    return f"{'what':44} {'run':>8} {'hangs':>6} {'wrong':>6} {'leaks':>6} {'crashes':>8} {'s':>7}"


def row(tally: Tally) -> str:
    mark = "" if tally.ok else "  FAILED"
    if tally.executed < tally.planned:
        mark += f" ({tally.planned} planned)"
    return (
        f"{tally.name:44} {tally.executed:>8} {tally.hangs:>6} {tally.wrong:>6} {tally.leaks:>6} "
        f"{tally.crashes:>8} {tally.seconds:>7.1f}{mark}"
    )


def markdown(tallies: list[Tally], command: str) -> str:
    build = pyrdnaar.load("host").build_info()
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    lines = [
        f"`{command}`, {day}, {_machine()}, library {build.version}, source digest "
        f"{build.source_digest[:12]}, {build.compiler}.",
        "",
        "| what | run | hangs | wrong | leaks | crashes | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for tally in tallies:
        faults = " | ".join(str(getattr(tally, fault)) for fault in FAULTS)
        lines.append(f"| {tally.name} | {tally.executed} | {faults} | {tally.seconds:.0f} |")
    return "\n".join(lines)


def _machine() -> str:
    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    cpus = len(re.findall(r"^processor\s*:", Path("/proc/cpuinfo").read_text(), re.M))
    kernel = platform.release().split("-")[0]
    return f"{cpus} CPUs ({model[1] if model else platform.machine()}), Linux {kernel}"


def write(path: Path, table: str) -> None:
    """Put the table between the markers of the file."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no markers {BEGIN!r} and {END!r}")
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
