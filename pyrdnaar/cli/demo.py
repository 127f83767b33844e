# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar demo`: reduce real data on a few ranks and check every element with numpy."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import click
import numpy as np

from ..communicator import Communicator
from ..config import Config
from ..dtypes import ALGOS, DTYPES
from ..exchange import Exchange
from ..memory import Staged
from ..reference import contribution, expected, poison, wrong_elements
from .group import Report, group
from .options import (
    backend_option,
    configuration,
    json_option,
    ranks_option,
    threads_option,
    write_json,
)

# One element, an odd number that fits no vector, and sizes on both sides of the thresholds.
COUNTS = (1, 1_023, 20_000, 300_000)


@click.command()
@ranks_option(4)
@backend_option
@threads_option
@json_option
def demo(ranks: int | None, backend: str, threads: bool, json_path: str | None) -> None:
    """Sum arrays of every type with every algorithm, and check every element."""
    ranks_of = group(ranks, 4, threads=threads)
    config = replace(configuration(), prove="never")  # this does
    reports = ranks_of.run(_work, backend, config)
    rows = [
        {**row, "wrong": sum(report["rows"][index]["wrong"] for report in reports)}
        for index, row in enumerate(reports[0]["rows"])
    ]
    wrong = sum(row["wrong"] for row in rows)
    checked = len(reports) * sum(row["elements"] for row in rows)
    if ranks_of.speaks:
        head: dict[str, Any] = {k: v for k, v in reports[0].items() if k != "rows"}
        head |= {"ok": wrong == 0, "ranks": len(reports), "started_by": ranks_of.by}
        if not write_json(json_path, {**head, "checked": checked, "rows": rows}):
            _print(head, rows)
            verdict = "all right" if wrong == 0 else f"{wrong} WRONG"
            click.echo(f"{checked} elements checked against numpy: {verdict}")
    if wrong:
        raise click.exceptions.Exit(1)


def _print(head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    click.echo(
        f"{head['ranks']} ranks ({head['started_by']}) on {head['backend']}: {head['device']}"
    )
    click.echo(f"library {head['library']}, {head['version']}, {head['digest'][:12]}")
    click.echo(f"{'type':>6} {'algo':>8} {'elements':>10} {'wrong':>8}")
    for row in rows:
        click.echo(f"{row['dtype']:>6} {row['algo']:>8} {row['elements']:>10} {row['wrong']:>8}")


def _work(exchange: Exchange, backend: str, config: Config) -> Report:
    rank, world_size = exchange.rank, exchange.world_size
    rows = []
    with (
        Communicator(rank, world_size, exchange, backend, config=config) as comm,
        Staged(comm, max(COUNTS) * 4) as staged,
    ):
        # numpy arrays are host memory: a device gets copies.
        on_host = comm.library.backend == "host"
        reduce = comm.all_reduce if on_host else staged.all_reduce
        for dtype, algo in itertools.product(DTYPES, ALGOS):
            wrong = elements = 0
            for seed, count in enumerate(COUNTS):
                if not comm.can_use(count, dtype, algo=algo)[0]:
                    continue  # ll of a GPU is for small messages
                inputs = [contribution(r, count, dtype, seed) for r in range(world_size)]
                out = np.empty_like(inputs[rank])
                poison(out)
                reduce(inputs[rank], out, algo=algo)
                wrong += wrong_elements(out, expected(inputs, "sum"))
                elements += count
            rows.append({"dtype": dtype, "algo": algo, "elements": elements, "wrong": wrong})
        build = comm.library.build_info()
        devices = comm.library.devices()
        return {
            "rows": rows,
            "library": comm.library.path,
            "version": build.version,
            "digest": build.source_digest,
            "backend": build.backend,
            "device": ", ".join(sorted({f"{d.architecture} {d.name}".strip() for d in devices})),
        }
