# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar selftest`: the library's own test, on all ranks, with one verdict."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import click

from ..communicator import Communicator
from ..config import Config
from ..errors import SelfTestError
from ..exchange import Exchange
from .group import Report, group
from .options import (
    backend_option,
    configuration,
    json_option,
    ranks_option,
    size,
    threads_option,
    write_json,
)


@click.command()
@ranks_option(2)
@backend_option
@click.option("-e", "--end", type=size, default="0", help="Largest message [default: the limit].")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Of the test data.")
@click.option(
    "--floor",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    metavar="MB/S",
    help="A pair of ranks with slower stores fails [default: the library's].",
)
@threads_option
@json_option
def selftest(
    ranks: int | None,
    backend: str,
    end: int,
    seed: int,
    floor: int,
    threads: bool,
    json_path: str | None,
) -> None:
    """Prove every algorithm, type and operation on this machine."""
    ranks_of = group(ranks, 2, threads=threads)
    config = configuration()
    config = replace(config, max_bytes=max(config.max_bytes, end), prove="never")  # this does
    reports = ranks_of.run(_work, backend, config, end, seed, floor)
    reason = reports[0]["reason"]
    data: dict[str, Any] = {"ok": not reason, "library": reports[0]["library"], "ranks": reports}
    if ranks_of.speaks and not write_json(json_path, data):
        click.echo(f"{'rank':>4} {'cases':>8} {'wrong':>8} {'ms':>10} {'slowest':>16}")
        for rank, report in enumerate(reports):
            click.echo(
                f"{rank:>4} {report['cases']:>8} {report['wrong']:>8} "
                f"{report['elapsed_us'] / 1000:>10.1f} {_slowest(report):>16}"
            )
        if not reason:
            click.echo(f"passed on {len(reports)} ranks with {reports[0]['library']}")
    if reason:
        raise click.ClickException(f"self test failed: {reason}")


def _slowest(report: Report) -> str:
    """Of the links from this rank: to whom, and its rate of stores."""
    if not report["slowest_mb_s"]:
        return "-"
    return f"to {report['slowest_target']}: {report['slowest_mb_s']} MB/s"


def _work(
    exchange: Exchange, backend: str, config: Config, end: int, seed: int, floor: int
) -> Report:
    rank, world_size = exchange.rank, exchange.world_size
    with Communicator(rank, world_size, exchange, backend, config=config) as comm:
        reason = ""
        try:
            report = comm.self_test(max_bytes=end, seed=seed, floor_mb_s=floor)
        except SelfTestError as error:
            report, reason = error.report, str(error)  # the same reason on every rank
        return {"library": comm.library.path, "reason": reason, **asdict(report)}
