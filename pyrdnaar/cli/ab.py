# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar ab`: is the benchmark faster with these settings, or that library?"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import click

from .. import ab as sides
from ..exchange import launched
from .options import json_option, write_json
from .progress import Progress


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--a", "text_a", default="", help="Side A, for example RDNAAR_BLOCKS=8.")
@click.option("--b", "text_b", default="", help="Side B, for example '--algo oneshot'.")
@click.option(
    "--runs",
    type=click.IntRange(sides.LEAST_RUNS),
    default=10,
    show_default=True,
    help="Of each side.",
)
@json_option
@click.argument("bench_options", nargs=-1, type=click.UNPROCESSED)
def ab(
    text_a: str, text_b: str, runs: int, json_path: str | None, bench_options: tuple[str, ...]
) -> None:
    """Compare two settings, or two libraries (RDNAAR_LIBRARY=PATH), by alternating runs of bench.

    A side is variables and options of bench, as one would write them in a shell. BENCH_OPTIONS are
    those of both sides, like -n 4 -b 1K -e 64K.

    The sides must differ in what the runs read back from the library: settings that change nothing
    are an error. "faster" and "slower" are said of B, and only if the 95 % interval of the ratio
    leaves 1 out.
    """
    if launched(os.environ):
        raise click.UsageError("ab starts the ranks of its runs itself: call it without a launcher")
    pair = sides.side("A", text_a), sides.side("B", text_b)
    data: tuple[list[sides.Data], list[sides.Data]] = ([], [])
    progress = Progress(2 * runs)
    for turn in range(2 * runs):
        progress.show(turn)
        which = (turn + 1) // 2 % 2  # A B B A A B B A
        data[which].append(sides.run(pair[which], bench_options))
        if turn == 1:
            _require_difference(data[0][0], data[1][0])
    progress.clear()
    times = [[sides.times(run) for run in side] for side in data]
    verdicts = sides.compare(*times)
    differences = sides.differences(data[0][0], data[1][0])
    report = {
        "sides": [asdict(side) for side in pair],
        "bench_options": list(bench_options),
        "differences": differences,
        "times_us": times,
        "verdicts": [{**v._asdict(), "verdict": v.text} for v in verdicts],
    }
    if not write_json(json_path, report):
        _print(report, runs)


def _require_difference(a: sides.Data, b: sides.Data) -> None:
    if not sides.differences(a, b):
        raise click.UsageError(
            "the sides do not differ in effect: same library, same settings, same plans"
        )


def _print(report: dict[str, Any], runs: int) -> None:
    for side in report["sides"]:
        words = [f"{name}={value}" for name, value in side["variables"].items()]
        click.echo(f"# {side['name']}: {' '.join([*words, *side['options']]) or '(as it is)'}")
    for line in report["differences"]:
        click.echo(f"# A | B: {line}")
    click.echo(f"# {runs} runs of each side; medians; A/B over 1: B is faster; 95 % interval")
    click.echo(f"# {'shape':>20} {'A (us)':>9} {'B (us)':>9} {'A/B':>6} {'interval':>15}  B is")
    for v in report["verdicts"]:
        interval = f"{v['low']:.3f} - {v['high']:.3f}"
        click.echo(
            f"  {v['shape']:>20} {v['a_us']:9.2f} {v['b_us']:9.2f} {v['ratio']:6.3f} "
            f"{interval:>15}  {v['verdict']}"
        )
