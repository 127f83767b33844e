# SPDX-License-Identifier: Apache-2.0
"""Hours of use in minutes: random calls, kills, failed starts, malformed input, every limit.

    python tools/soak.py [--short] [--only LOAD]... [--jobs N] [--json [PATH]] [--write]

Prints one line for each load; ends with 0 only if nothing hung, was wrong, leaked or crashed, and
as much was run as was meant to be. On the host library: no GPU is needed. Loads are independent:
--jobs runs so many at a time, each in a process of its own, on a machine that has the processors.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
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


def _loads(size: Size, seed: int) -> dict[str, Callable[[], Iterator[Tally]]]:
    """By name; those of a section are called SECTION or SECTION/PART."""
    loads: dict[str, Callable[[], Iterator[Tally]]] = {}

    def add(name: str, total: int, run: Callable[[Callable[[int], None]], Tally]) -> None:
        def with_progress() -> Iterator[Tally]:
            progress = Progress(total)
            yield run(progress.show)
            progress.clear()

        loads[name] = with_progress

    for w in size.worlds:
        add(f"calls/{w}", size.calls, partial(_calls, w, size, seed))
    add("kills", size.kills, lambda show: kills.soak_kills(size.kills, seed, show))
    for number, kind in enumerate(startup.kinds()):
        add(f"startup/{number}", size.startup, partial(_startup, kind, size, seed))
    loads["malformed"] = lambda: iter(malformed.soak_malformed(size.malformed, seed))
    for w in size.worlds:
        add(f"limits/{w}", len(size.limits) * 36, partial(_limits, w, size, seed))
    loads["fuzzed"] = lambda: _fuzzed(size is FULL)
    return loads


def _calls(world: int, size: Size, seed: int, show: Callable[[int], None]) -> Tally:
    return calls.soak_calls(world, size.calls, seed, show)


def _startup(kind: str, size: Size, seed: int, show: Callable[[int], None]) -> Tally:
    return startup.soak_startup(kind, size.startup, seed, show)


def _limits(world: int, size: Size, seed: int, show: Callable[[int], None]) -> Tally:
    return limits.sweep(world, size.limits, seed, show)


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


def _in_process(name: str, short: bool, seed: int) -> list[Tally]:
    """One load in a process of its own."""
    command = [sys.executable, __file__, "--only", name, "--seed", str(seed), "--json"]
    result = subprocess.run(
        [*command, *["--short"] * short], capture_output=True, text=True, check=False
    )
    try:
        return [Tally(**load) for load in json.loads(result.stdout)["loads"]]
    except (ValueError, KeyError):
        tally = Tally(name, "", 1)
        tally.note("crashes", f"exit code {result.returncode}: {result.stderr[-500:]}")
        return [tally]


@click.command()
@click.option("--short", is_flag=True, help="A minute of everything.")
@click.option("--only", multiple=True, metavar="LOAD", help=f"Not all: {', '.join(SECTIONS)}.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=1, help="Loads at a time.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout instead of the table.")
@click.option("--write", is_flag=True, help="Put the table into docs/reliability.md (full form).")
def main(
    short: bool, only: tuple[str, ...], seed: int, jobs: int, as_json: bool, write: bool
) -> None:
    """Load the library with everything that can go wrong, and count what did."""
    if write and (short or only):
        raise click.UsageError("--write is for the full form: leave --short and --only out")
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="soak-cache") as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # what was proven before is proven anew
        group.prepare()
        tallies = list(_run(short, only, seed, jobs, as_json))
    ok = bool(tallies) and all(tally.ok for tally in tallies)
    if as_json:
        click.echo(json.dumps({"ok": ok, "loads": [asdict(tally) for tally in tallies]}, indent=2))
    if write:
        report.write(ROOT / "docs" / "reliability.md", report.markdown(tallies, "make soak"))
    sys.exit(0 if ok else 1)


def _run(short: bool, only: tuple[str, ...], seed: int, jobs: int, quiet: bool) -> Iterator[Tally]:
    loads = _loads(SHORT if short else FULL, seed)
    names = [name for name in loads if not only or {name, name.split("/")[0]} & set(only)]
    if not names:
        raise click.UsageError(f"no load of the name {', '.join(only)}")
    if not quiet:
        click.echo(report.head())
    with ThreadPoolExecutor(jobs) as pool:
        alone = (loads[name]() for name in names)
        apart = pool.map(lambda name: _in_process(name, short, seed), names) if jobs > 1 else alone
        for tallies in apart:
            for tally in tallies:
                if not quiet:
                    click.echo(report.row(tally))
                for problem in tally.problems:
                    click.echo(f"  {problem}", err=True)
                yield tally


if __name__ == "__main__":
    main()
