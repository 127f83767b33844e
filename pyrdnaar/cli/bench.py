# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar bench`: latency and bandwidth by message size, in the columns of nccl-tests.

Every timed shape is verified, see measure.py: one wrong element, or nothing timed, is exit code 1.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import numpy as np

from .._version import __version__
from ..bench import measure
from ..bench.grounds import Ground, HostArrays, LibraryDevice
from ..bench.providers import (
    PEERS,
    Gloo,
    Method,
    Mpi,
    OnDevice,
    Prepared,
    Provider,
    Shape,
    missing,
    misuse,
)
from ..communicator import Communicator
from ..config import Config, effective
from ..dtypes import ALGOS, DTYPES, OPS, element_type
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
from .progress import Progress


@click.command()
@ranks_option(2)
@backend_option
@click.option("-b", "--begin", type=size, default="1K", show_default=True, help="First size.")
@click.option("-e", "--end", type=size, default="16M", show_default=True, help="Last size.")
@click.option("-f", "--factor", type=click.IntRange(2), default=4, show_default=True)
@click.option(
    "-d",
    "--dtype",
    "dtypes",
    type=click.Choice(list(DTYPES)),
    multiple=True,
    default=("fp32",),
    show_default=True,
    help="May be given several times.",
)
@click.option("-o", "--op", type=click.Choice(list(OPS)), default="sum", show_default=True)
@click.option("--algo", type=click.Choice(list(ALGOS)), default="auto", show_default=True)
@click.option(
    "-w", "--warmup", type=click.IntRange(1), default=10, show_default=True, help="Calls before."
)
@click.option(
    "-i", "--iterations", type=click.IntRange(1), default=50, show_default=True, help="Samples."
)
@click.option(
    "--compare",
    metavar="NAMES",
    default="",
    help=f"Measure these beside it, in the same run: {', '.join(PEERS)}, separated by commas.",
)
@click.option("--graph", is_flag=True, help="Record the calls of a sample in a graph.")
@click.option(
    "-c",
    "--calls",
    type=click.IntRange(1),
    help=f"Calls of a sample [default: {measure.DEVICE_CALLS} on devices and in graphs, else by "
    "the clock].",
)
@threads_option
@json_option
def bench(
    ranks: int | None,
    backend: str,
    begin: int,
    end: int,
    factor: int,
    dtypes: tuple[str, ...],
    op: str,
    algo: str,
    warmup: int,
    iterations: int,
    compare: str,
    graph: bool,
    calls: int | None,
    threads: bool,
    json_path: str | None,
) -> None:
    """Measure all-reduce by size, and verify every shape.

    On numpy arrays time is a call of Communicator.all_reduce(), and call the same through
    prepare(); on devices and in graphs time is the device's. All are medians of the samples'
    slowest ranks. algbw is bytes / time, and busbw = algbw * 2(n-1)/n.
    """
    if not 0 < begin <= end:
        raise click.UsageError(f"sizes from {begin} to {end} are none")
    ranks_of = group(ranks, 2, threads=threads)
    peers = _peers(compare, ranks_of.by, graph, dtypes, op)
    config = configuration()
    config = replace(config, max_bytes=max(config.max_bytes, end))
    shapes = [
        Shape(max(1, nbytes // element_type(dtype).numpy.itemsize), dtype, op)
        for dtype in dtypes
        for nbytes in _sizes(begin, end, factor)
    ]
    reports = ranks_of.run(
        _work, backend, config, shapes, algo, peers, warmup, iterations, graph, calls or 0
    )
    rows = [_row(shape, index, reports) for index, shape in enumerate(shapes)]
    timed = [case for row in rows for case in row["cases"]]
    wrong = sum(case["wrong"] for case in timed)
    if ranks_of.speaks:
        data = {
            "ok": bool(timed) and wrong == 0,
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "pyrdnaar": __version__,
            "ranks": ranks_of.world_size,
            "started_by": ranks_of.by,
            "algo": algo,
            "warmup": warmup,
            "iterations": iterations,
            "graph": graph,
            "library": reports[0]["library"],
            "settings": reports[0]["settings"],
            "machine": _machine(),
            "environment": {s.name: s.value for s in effective(os.environ) if s.field},
            "rows": rows,
        }
        if not write_json(json_path, data):
            _print(data, peers)
    if wrong or not timed:
        reason = f"{wrong} wrong elements" if timed else "nothing was timed"
        raise click.ClickException(reason)


def _peers(names: str, by: str, graph: bool, dtypes: tuple[str, ...], op: str) -> list[str]:
    peers = [name.strip() for name in names.split(",") if name.strip()]
    for name in peers:
        reason = misuse(name, by, graph, dtypes, op) or missing(name)
        if reason:
            raise click.UsageError(f"--compare: {reason}")
    return peers


def _sizes(begin: int, end: int, factor: int) -> list[int]:
    sizes = []
    while begin <= end:
        sizes.append(begin)
        begin *= factor
    return sizes


def _work(
    exchange: Exchange,
    backend: str,
    config: Config,
    shapes: list[Shape],
    algo: str,
    peers: list[str],
    warmup: int,
    iterations: int,
    graph: bool,
    calls: int,
) -> Report:
    rank, world_size = exchange.rank, exchange.world_size
    with ExitStack() as stack:
        comm = stack.enter_context(Communicator(rank, world_size, exchange, backend, config=config))
        effort = measure.Effort(warmup, iterations, calls)
        ground: Ground
        providers: list[Provider]
        if graph or comm.library.backend != "host":
            ground = LibraryDevice(comm, graph)
            providers = [OnDevice(comm, algo, ground.stream)]
        else:
            ground = HostArrays()
            providers = [Method(comm, algo), Prepared(comm, algo)]
        stack.callback(ground.close)
        aligner = providers[-1]
        for name in peers:
            if ground.on_device:
                raise click.UsageError(f"--compare: {name} reduces numpy arrays only")
            provider = Mpi() if name == "mpi" else Gloo(exchange)
            stack.callback(provider.close)
            providers.append(provider)
        progress = Progress(len(shapes) if rank == 0 else 0)
        plans, cases = [], []
        for seed, shape in enumerate(shapes):
            progress.show(seed)
            plan = comm.plan(shape.count, shape.dtype, shape.op, algo)
            plans.append(asdict(plan))
            cases.append(
                measure.measure(exchange, ground, aligner, providers, shape, effort, 2 * seed)
                if plan.status == "ok"
                else []
            )
        progress.clear()
        library = {"path": comm.library.path, **asdict(comm.library.build_info())}
        settings = comm.config.shared()
        return {"library": library, "settings": settings, "plans": plans, "cases": cases}


def _row(shape: Shape, index: int, reports: list[Report]) -> dict[str, Any]:
    """One shape over all ranks."""
    per_case = zip(*(report["cases"][index] for report in reports), strict=True)
    return {
        "bytes": shape.nbytes,
        **asdict(shape),
        "plan": reports[0]["plans"][index],
        "cases": [measure.summary(shape, list(case)) for case in per_case],
    }


def _machine() -> dict[str, Any]:
    return {
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


# ---- The table ---------------------------------------------------------------------------------

_HALF = {"time": "(us)", "call": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)", "#wrong": ""}
_COMPARED = {**_HALF, "ratio": ""}


def _print(data: dict[str, Any], peers: list[str]) -> None:
    library, machine = data["library"], data["machine"]
    click.echo(f"# {data['ranks']} ranks ({data['started_by']})")
    click.echo(
        f"# {library['backend']} library {library['path']}, {library['version']}, "
        f"{library['source_digest'][:12]}"
    )
    click.echo(f"# {machine['cpu']}, {machine['cpus']} CPUs; Python {machine['python']}")
    names = ["rdnaar", *peers]
    half = _COMPARED if peers else _HALF
    left = f"{'size':>11} {'count':>11} {'type':>5} {'redop':>5} {'algo':>7}"
    left += f" {'who':>7}" * bool(peers)
    titles, units = _columns(half), _columns(half.values())
    places = " ".join(f"{place:^{len(titles)}}" for place in ("out of place", "in place"))
    click.echo(f"#{'':{len(left)}} {places}".rstrip())
    click.echo(f"#{left} {titles} {titles}")
    click.echo(f"#{'(B)':>11}{'':{len(left) - 11}} {units} {units}".rstrip())
    for row in data["rows"]:
        for name in names:
            click.echo(_line(row, name, bool(peers)))
    click.echo(f"# verified: {'every shape' if data['ok'] else 'NO'}")
    if peers:
        click.echo("# ratio: time over that of rdnaar; over 1, rdnaar is faster")


def _line(row: dict[str, Any], name: str, compared: bool) -> str:
    plan = row["plan"]
    line = f" {row['bytes']:>11} {row['count']:>11} {row['dtype']:>5} {row['op']:>5} "
    line += f"{plan['algo']:>7}" if name == "rdnaar" else f"{'-':>7}"
    if compared:
        line += f" {name:>7}"
    if not row["cases"]:
        return f"{line} not run: {plan['reason']}"
    for in_place in (False, True):
        cases = {
            c["provider"].partition(":")[0]: c for c in row["cases"] if c["in_place"] == in_place
        }
        case = cases[name]
        call, wrong = "-", case["wrong"]
        if name == "rdnaar" and "prepared" in cases:
            call = _number(cases["prepared"]["time_us"])
            wrong += cases["prepared"]["wrong"]
        cells = [_number(case["time_us"]), call]
        cells += [f"{case['algbw_gb_s']:.2f}", f"{case['busbw_gb_s']:.2f}", str(wrong)]
        if compared:
            cells.append(f"{case['time_us'] / cases['rdnaar']['time_us']:.2f}")
        line += " " + _columns(cells)
    return line


def _columns(cells: Iterable[str]) -> str:
    widths = (8, 8, 7, 7, 6, 5)
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False))


def _number(microseconds: float) -> str:
    return f"{microseconds:.2f}" if microseconds < 100 else f"{microseconds:.0f}"
