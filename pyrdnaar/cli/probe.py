# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar probe`: devices, links, and what stores, loads and flags over them really do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import click

from .. import probing
from ..communicator import Communicator
from ..config import Config
from ..exchange import Exchange
from ..links import link_of
from .group import Report, group
from .options import (
    backend_option,
    configuration,
    json_option,
    ranks_option,
    threads_option,
    write_json,
)
from .progress import Progress


@click.command()
@ranks_option(2)
@backend_option
@threads_option
@json_option
def probe(ranks: int | None, backend: str, threads: bool, json_path: str | None) -> None:
    """Measure memory and links on raw device memory, with the accesses of the algorithms.

    For every ordered pair of ranks: store rate and load rate by width, one-way latency, whether
    payload ever arrives after its flag, and whether a running kernel sees a peer's store.
    """
    ranks_of = group(ranks, 2, threads=threads)
    config = replace(configuration(), prove="never")  # this does
    reports = ranks_of.run(_work, backend, config)
    rows = reports[0]["rows"]
    bad = [row for row in rows if not row["ok"]]
    verdict = _verdict(rows, bad)
    if ranks_of.speaks:
        data: dict[str, Any] = {
            "ok": not bad,
            "library": reports[0]["library"],
            "backend": reports[0]["backend"],
            "ranks": [report["device"] for report in reports],
            "rows": rows,
            "verdict": verdict,
        }
        if not write_json(json_path, data):
            _print(data)
    if bad:
        raise click.exceptions.Exit(1)


def _work(exchange: Exchange, backend: str, config: Config) -> Report:
    rank, world_size = exchange.rank, exchange.world_size
    progress: Progress | None = None

    def show(done: int, total: int) -> None:
        nonlocal progress
        progress = progress or Progress(total if rank == 0 else 0)
        progress.show(done)

    with Communicator(rank, world_size, exchange, backend, config=config) as comm:
        rows = probing.run(comm, exchange, show)
        if progress:
            progress.clear()
        device = comm.library.device(comm.device)
        with Communicator(
            rank, world_size, exchange, backend, config=config, slab_memory="ordinary"
        ) as ordinary:
            rows += probing.run_ordinary(ordinary, exchange)
        devices = [int(raw) for raw in exchange.all_gather(str(comm.device).encode())]
        access = [comm.library.peer_access(comm.device, other) for other in devices]
        link = link_of(device.pci_bus_id)
        return {
            "library": comm.library.path,
            "backend": comm.library.backend,
            "device": {
                **asdict(device),
                "link": asdict(link) if link else None,
                "peer_access": access,
            },
            "rows": rows,
        }


# ---- The tables --------------------------------------------------------------------------------


def _of(rows: Iterable[dict[str, Any]], kind: str, width: int | None = None) -> list[float]:
    """The figures of a kind between different ranks."""
    return [
        row["gb_s" if width else "one_way_us"]
        for row in rows
        if row["kind"] == kind and row["ok"] and row["from"] != row["to"]
        if width in (None, row.get("width"))
    ]


def _verdict(rows: list[dict[str, Any]], bad: list[dict[str, Any]]) -> str:
    """Sentences with the arithmetic behind them."""
    if bad:
        first = bad[0]
        what = first.get("reason") or f"{first['stale']} stale vectors behind a flag"
        return (
            f"{len(bad)} probes failed, first {first['kind']} from rank {first['from']} to "
            f"{first['to']}: {what}. Do not use peer memory here."
        )
    store, load = min(_of(rows, "store", 16)), min(_of(rows, "load", 16))
    narrow = min(_of(rows, "store", 4))
    hop = max(_of(rows, "latency"))
    wire = 64 * 1024 / store / 1000
    return (
        f"Slowest pair: stores {store:.2f} GB/s, loads {load:.2f} GB/s "
        f"({'push' if store >= load else 'pull'} is {max(store, load) / min(store, load):.1f} x "
        f"faster), 4-byte stores {narrow:.2f} GB/s. A message of 64 KiB takes {wire:.1f} us on the "
        f"wire and {hop:.2f} us one way: {wire + hop:.1f} us at best. Order and visibility held."
    )


def _print(data: dict[str, Any]) -> None:
    click.echo(f"{data['backend']} library {data['library']}")
    click.echo(f"{'rank':>4} {'architecture':>12} {'PCI bus id':>12}  {'reaches':>16}  link")
    for rank, device in enumerate(data["ranks"]):
        link = device["link"]
        text = f"{link['gt_s']:g} GT/s x{link['width']}" if link else "not told by /sys"
        reaches = " ".join(str(r) for r, can in enumerate(device["peer_access"]) if can)
        click.echo(
            f"{rank:>4} {device['architecture']:>12} {device['pci_bus_id'] or '-':>12}  "
            f"{reaches:>16}  {text}"
        )
    head = " ".join(f"{f'{kind} {w}':>9}" for kind in ("store", "load") for w in probing.WIDTHS)
    click.echo("GB/s by bytes per access; from == to: the own slab")
    click.echo(f"{'from':>4} {'to':>4} {head} {'one way us':>10} {'stale':>6} {'seen us':>8}")
    world = len(data["ranks"])
    for source in range(world):
        for target in range(world):
            cells = [row for row in data["rows"] if (row["from"], row["to"]) == (source, target)]
            click.echo(f"{source:>4} {target:>4} {_cells(cells)}")
    ordinary = [row["seen"] for row in data["rows"] if row["kind"] == "visible-ordinary"]
    click.echo(
        f"ordinary memory: a running kernel saw the peer's store on {sum(ordinary)} of "
        f"{len(ordinary)} pairs"
    )
    click.echo(data["verdict"])


def _cells(rows: list[dict[str, Any]]) -> str:
    by = {(row["kind"], row.get("width")): row for row in rows}
    text = []
    for kind in ("store", "load"):
        for width in probing.WIDTHS:
            text.append(_cell(by.get((kind, width)), "gb_s", 9))
    text.append(_cell(by.get(("latency", None)), "one_way_us", 10))
    text.append(_cell(by.get(("order", None)), "stale", 6))
    text.append(_cell(by.get(("visible", None)), "seen_after_us", 8))
    return " ".join(text)


def _cell(row: dict[str, Any] | None, field: str, width: int) -> str:
    if row is None:
        return f"{'-':>{width}}"
    if field not in row:
        return f"{'FAILED':>{width}}"
    value = row[field]
    return f"{value:>{width}.2f}" if isinstance(value, float) else f"{value:>{width}}"
