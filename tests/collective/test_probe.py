# SPDX-License-Identifier: Apache-2.0
"""The probe measures what it says, on any backend, and leaves the communicator in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyrdnaar
from pyrdnaar import probing, reference

from .raw import ALGOS, BACKEND, Rank, config


def _all(exchange: pyrdnaar.Exchange) -> list[dict[str, Any]]:
    with Rank(exchange, 4096, max_bytes=256 << 10) as rank:
        rank.check(rank.inputs(500, "fp32", 0), "fp32")
        rows = probing.run(rank.comm, exchange, lambda done, total: None)
        # Payload regions have been written all over; no later call relies on what is in them.
        for seed in range(6):
            rank.check(rank.inputs(900, "bf16", seed), "bf16", algo=ALGOS[seed % 3])
        return rows


@pytest.mark.parametrize("world", [2, 3])
def test_every_pair_is_measured(world: int) -> None:
    reports = pyrdnaar.run_threads(_all, world, timeout=120)
    assert all(report == reports[0] for report in reports)
    rows = reports[0]
    assert all(row["ok"] for row in rows), [row for row in rows if not row["ok"]]
    pairs = {(a, b) for a in range(world) for b in range(world)}
    for kind in ("store", "load"):
        for width in probing.WIDTHS:
            of_kind = [r for r in rows if r["kind"] == kind and r["width"] == width]
            assert {(r["from"], r["to"]) for r in of_kind} == pairs
            assert all(0 < r["gb_s"] < 1e5 for r in of_kind)
    for kind, field in (("latency", "one_way_us"), ("visible", "seen_after_us")):
        of_kind = [r for r in rows if r["kind"] == kind]
        assert {(r["from"], r["to"]) for r in of_kind} == {(a, b) for a, b in pairs if a != b}
        assert all(r[field] > 0 for r in of_kind)
    assert all(r["stale"] == 0 for r in rows if r["kind"] == "order")


def _ordinary(exchange: pyrdnaar.Exchange) -> list[dict[str, Any]]:
    with pyrdnaar.Communicator(
        exchange.rank, 2, exchange, BACKEND, config=config(), slab_memory="ordinary"
    ) as comm:
        assert comm.library.peer_access(comm.device, comm.device)
        with pytest.raises(pyrdnaar.InvalidArgument, match="there are"):
            comm.library.peer_access(0, 99)
        return probing.run_ordinary(comm, exchange)


def test_ordinary_memory_is_looked_at_too() -> None:
    rows = pyrdnaar.run_threads(_ordinary, 2, timeout=60)[0]
    assert [(r["from"], r["to"], r["ok"]) for r in rows] == [(0, 1, True), (1, 0, True)]
    if BACKEND in ("host", "cuda"):  # coherent: a store is seen
        assert all(r["seen"] for r in rows)


class Pointer:
    """An address as hip-python hands it out."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __int__(self) -> int:
        return self._address


class DeviceArray(Pointer):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self._address, False)}

    def __int__(self) -> int:
        raise TypeError("an array is no number")


def _foreign(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096) as rank:
        inputs = rank.inputs(100, "fp32", 0)
        rank.input.write(inputs[rank.rank], stream=rank.stream)
        rank.comm.all_reduce_ptr(
            DeviceArray(rank.input.ptr),
            Pointer(rank.output.ptr),
            100,
            "fp32",
            stream=Pointer(rank.stream.handle),
        )
        seen = rank.output.read(np.empty(100, np.float32), stream=rank.stream)
        assert reference.wrong_elements(seen, reference.expected(inputs, "sum")) == 0


def test_pointers_and_streams_of_other_libraries() -> None:
    pyrdnaar.run_threads(_foreign, 2, timeout=60)


def _alone(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096) as rank:
        if rank.rank == 0:
            for kind in ("latency", "order", "visible"):
                result = rank.comm.probe(
                    kind, 0, 1, session=1, timeout_ms=50, nbytes=64, stream=rank.stream
                )
                assert result.timed_out, kind
        exchange.all_gather(b"")


def test_absent_side_is_a_time_out() -> None:
    pyrdnaar.run_threads(_alone, 2, timeout=60)


def _bad(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096) as rank:
        me, other = rank.rank, 1 - rank.rank
        probe = rank.comm.probe
        for text, kind, pair, how in (
            ("width is 5", "store", (me, other), {"width": 5}),
            ("iterations is 0", "store", (me, other), {"iterations": 0}),
            ("not a multiple of 64", "load", (me, other), {"nbytes": 65}),
            ("nbytes is", "store", (me, other), {"nbytes": 1 << 40}),
            ("target is 7", "store", (me, 7), {}),
            ("makes this probe", "store", (other, me), {}),
            ("takes two", "latency", (me, me), {}),
            ("timeout_ms is 0", "order", (me, other), {"timeout_ms": 0}),
            ("kind 'x' is not one of store", "x", (me, other), {}),
        ):
            with pytest.raises(pyrdnaar.InvalidArgument, match=text):
                probe(kind, *pair, session=1, **how)


def test_bad_arguments_are_named() -> None:
    pyrdnaar.run_threads(_bad, 2, timeout=60)


def test_backend_is_the_one_asked_for() -> None:
    assert pyrdnaar.load(BACKEND).backend == BACKEND
