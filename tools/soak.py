# SPDX-License-Identifier: Apache-2.0
"""Hours of use in minutes: random calls, kills, failed starts, malformed input, every limit.

    python tools/soak.py [--short] [--only SECTION]... [--json [PATH]] [--write]

Prints one line for each load; ends with 0 only if nothing hung, was wrong, leaked or crashed, and
as much was run as was meant to be. On the host library: no GPU is needed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import click
from soaking import calls, group, kills, limits, malformed, report, startup
from soaking.tally import Tally

from pyrdnaar.cli.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = ("calls", "kills", "startup", "malformed", "limits", "fuzzed")
WORLDS = (2, 3, 4, 5, 6, 7, 8)


class Size(NamedTuple):
    """How much of each load."""

    calls: int
    kills: int
    startup: int
    malformed: int
    worlds: tuple[int, ...]
    limits: tuple[int, ...]


FULL = Size(10_000, 200, 200, 1_000, WORLDS, limits.LIMITS)
SHORT = Size(200, 6, 8, 1_000, (2, 3, 8), (4 << 10, 128 << 10, 1 << 20))


def _sections(size: Size, seed: int) -> dict[str, Callable[[], Iterator[Tally]]]:
    def run_calls() -> Iterator[Tally]:
        for world in size.worlds:
            progress = Progress(size.calls)
            yield calls.soak_calls(world, size.calls, seed, progress.show)
            progress.clear()

    def run_kills() -> Iterator[Tally]:
        progress = Progress(size.kills)
        yield kills.soak_kills(size.kills, seed, progress.show)
        progress.clear()

    def run_startup() -> Iterator[Tally]:
        progress = Progress(size.startup)
        yield from startup.soak_startup(size.startup, seed, progress.show)
        progress.clear()

    def run_malformed() -> Iterator[Tally]:
        yield from malformed.soak_malformed(size.malformed, seed)

    def run_limits() -> Iterator[Tally]:
        progress = Progress(len(size.worlds) * len(size.limits) * 36)
        yield limits.sweep(size.worlds, size.limits, seed, progress.show)
        progress.clear()

    return {
        "calls": run_calls,
        "kills": run_kills,
        "startup": run_startup,
        "malformed": run_malformed,
        "limits": run_limits,
        "fuzzed": lambda: _fuzzed(size is FULL),
    }


def _fuzzed(required: bool) -> Iterator[Tally]:
    """What `make fuzz` has run, from the logs that it left."""
    for name in ("blob", "config"):
        tally = Tally(f"libFuzzer, {name}", "inputs", 1000)
        log = next((ROOT / "build").glob(f"fuzz-*/{name}.log"), None)
        if log:
            text = log.read_text(errors="replace")
            tally.executed = int(_number(r"number_of_executed_units: (\d+)", text))
            tally.seconds = _number(r"Done \d+ runs in (\d+)", text)
            if list(log.parent.glob(f"found/{name}-*")):
                tally.note("crashes", f"see {log} and the folder found/ beside it")
        if log or required:
            yield tally


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return float(found[1]) if found else 0.0


@click.command()
@click.option("--short", is_flag=True, help="A minute of everything.")
@click.option("--only", multiple=True, type=click.Choice(SECTIONS), help="Not all sections.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout instead of the table.")
@click.option("--write", is_flag=True, help="Put the table into docs/reliability.md (full form).")
def main(short: bool, only: tuple[str, ...], seed: int, as_json: bool, write: bool) -> None:
    """Load the library with everything that can go wrong, and count what did."""
    if write and (short or only):
        raise click.UsageError("--write is for the full form: leave --short and --only out")
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="soak-cache") as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # what was proven before is proven anew
        ok = _run(short, only, seed, as_json, write)
    sys.exit(0 if ok else 1)


def _run(short: bool, only: tuple[str, ...], seed: int, as_json: bool, write: bool) -> bool:
    group.prepare()
    if not as_json:
        click.echo(report.head())
    tallies = []
    for name, run in _sections(SHORT if short else FULL, seed).items():
        if only and name not in only:
            continue
        for tally in run():
            tallies.append(tally)
            if not as_json:
                click.echo(report.row(tally))
            for problem in tally.problems:
                click.echo(f"  {problem}", err=True)
    ok = bool(tallies) and all(tally.ok for tally in tallies)
    if as_json:
        click.echo(json.dumps({"ok": ok, "loads": [asdict(tally) for tally in tallies]}, indent=2))
    if write:
        report.write(ROOT / "docs" / "reliability.md", report.markdown(tallies, "make soak"))
    return ok


if __name__ == "__main__":
    main()
