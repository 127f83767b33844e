# SPDX-License-Identifier: Apache-2.0
"""Run a command's work on all ranks, whoever starts them: we, torchrun or mpiexec."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from .._abi import MAX_WORLD
from ..exchange import Exchange, Launch, MpiExchange, TcpExchange, launched
from ..ranks import run_ranks, run_threads

# What a rank reports is made of JSON types, since it may travel between processes.
Report = dict[str, Any]
Work = Callable[..., Report]


class Group(NamedTuple):
    """How the ranks are started: by us in `by` "processes" or "threads", or by a launcher."""

    world_size: int
    by: str
    launch: Launch | None

    @property
    def speaks(self) -> bool:
        """Whether this process prints: of a launcher's ranks only one does."""
        return self.launch is None or self.launch.rank == 0

    def run(self, work: Work, *args: Any) -> list[Report]:
        """work(exchange, *args) on every rank; every process gets all reports, in rank order."""
        if self.launch is None:
            run = run_threads if self.by == "threads" else run_ranks
            return run(work, self.world_size, *args, timeout=24 * 3600.0)
        exchange = self._exchange()
        mine = json.dumps(work(exchange, *args)).encode()
        return [json.loads(report) for report in exchange.all_gather(mine)]

    def _exchange(self) -> Exchange:
        if self.by == "mpiexec":
            try:
                from mpi4py import MPI
            except ImportError:
                pass  # mpi4py is optional, and TCP serves as well
            else:
                return MpiExchange(MPI.COMM_WORLD)
        return TcpExchange.from_env()


def group(ranks: int | None, default: int, *, threads: bool = False) -> Group:
    """The group that -n and the launcher's variables ask for."""
    launch = launched(os.environ)
    if launch is None:
        return Group(ranks or default, "threads" if threads else "processes", None)
    if launch.world_size > MAX_WORLD:
        raise click.UsageError(
            f"{launch.by} has started {launch.world_size} ranks, at most {MAX_WORLD} can be a group"
        )
    if ranks not in (None, launch.world_size):
        raise click.UsageError(
            f"-n {ranks}, but {launch.by} has started {launch.world_size} ranks: leave -n out"
        )
    if threads:
        raise click.UsageError(f"--threads, but {launch.by} has started ranks as processes")
    return Group(launch.world_size, launch.by, launch)
