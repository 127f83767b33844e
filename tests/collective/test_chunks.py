# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatter and all-gather: every count, alignment and world, in and out of place."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

import pyrdnaar
from pyrdnaar import reference
from pyrdnaar.dtypes import DTYPES

from .raw import ALGOS, DTYPE_NAMES, GUARD, GUARD_BYTES, OPS, WORLDS, Array, Rank

# Around vectors, one and several pieces (oneshot's staging is 128 KiB on the host, 1 MiB on GPUs).
COUNTS = (1, 2, 7, 31, 257, 4099, 32768, 33001)
LARGE = 700001


def _moved(
    rank: Rank,
    x: Array,
    out_elements: int,
    offset: int,
    together: tuple[int, int] | None,
    call: Callable[[int, int], None],
) -> Array:
    """call(in_ptr, out_ptr); the output, once the bytes around it have been looked at.

    `together`: where input and output begin in one buffer, in elements; None: two buffers.
    """
    item = x.dtype.itemsize
    start = GUARD_BYTES + offset * item
    in_at = start + (together[0] if together else 0) * item
    out_at = start + (together[1] if together else 3) * item
    nbytes = out_elements * item
    image = np.full(max(in_at + x.nbytes, out_at + nbytes) + GUARD_BYTES, GUARD, np.uint8)
    blank = image.copy()
    image[in_at : in_at + x.nbytes] = x.view(np.uint8)
    rank.input.write(image, stream=rank.stream)
    rank.output.write(blank, stream=rank.stream)
    target = rank.input if together else rank.output
    call(rank.input.ptr + in_at, target.ptr + out_at)
    seen = target.read(np.empty_like(image), stream=rank.stream)
    result = seen[out_at : out_at + nbytes].copy().view(x.dtype)
    around = image if together else blank
    around[out_at : out_at + nbytes] = 0
    seen[out_at : out_at + nbytes] = 0
    assert np.array_equal(seen, around), "memory around the output was touched"
    return result


def _both(rank: Rank, count: int, dtype: str, op: str, seed: int, in_place: bool) -> None:
    world, me = rank.world, rank.rank
    inputs = [reference.contribution(r, count * world, dtype, seed) for r in range(world)]
    wanted = reference.expected(inputs, op)
    offset = (seed + me) % 8
    part = _moved(
        rank,
        inputs[me],
        count,
        offset,
        (0, me * count) if in_place else None,
        lambda i, o: rank.comm.reduce_scatter_ptr(i, o, count, dtype, op, rank.stream),
    )
    assert reference.wrong_elements(part, wanted[me * count : (me + 1) * count]) == 0
    whole = _moved(
        rank,
        part,
        count * world,
        offset,
        (me * count, 0) if in_place else None,
        lambda i, o: rank.comm.all_gather_ptr(i, o, count, dtype, rank.stream),
    )
    assert reference.wrong_elements(whole, wanted) == 0


def _counts(exchange: pyrdnaar.Exchange, dtype: str) -> None:
    with Rank(exchange, 1 << 21) as rank:
        for turn, count in enumerate(COUNTS):
            if count * rank.world > 1 << 18:
                continue
            for in_place in (False, True):
                _both(rank, count, dtype, OPS[turn % len(OPS)], turn, in_place)


@pytest.mark.parametrize("world", WORLDS)
def test_counts_and_alignments(world: int) -> None:
    for dtype in DTYPE_NAMES if world < 4 else DTYPE_NAMES[world % 3 : world % 3 + 1]:
        pyrdnaar.run_threads(_counts, world, dtype, timeout=120)


def _large(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 8 << 20) as rank:
        _both(rank, LARGE, "fp32", "sum", 3, in_place=False)
        _both(rank, LARGE, "bf16", "sum", 4, in_place=True)


def test_many_pieces() -> None:
    pyrdnaar.run_threads(_large, 2, timeout=120)


def _mixed(exchange: pyrdnaar.Exchange) -> None:
    """All collectives in turn without a pause: they share counters, and two of them slots."""
    with Rank(exchange, 1 << 20) as rank:
        generator = np.random.default_rng(7)
        for turn in range(60):
            kind = int(generator.integers(4))
            count = int(generator.integers(1, 40000)) if turn % 4 else 40000
            if kind < 3:
                rank.check(rank.inputs(count, "fp16", turn), "fp16", algo=ALGOS[kind])
            else:
                _both(rank, count // rank.world + 1, "fp16", "sum", turn, in_place=False)


@pytest.mark.parametrize("world", [2, 3, 5])
def test_mixed_with_all_reduces(world: int) -> None:
    pyrdnaar.run_threads(_mixed, world, timeout=120)


def _queued(exchange: pyrdnaar.Exchange) -> None:
    """A rank is calls ahead of the others, on one buffer after the other."""
    with Rank(exchange, 1 << 20) as rank:
        count, turns = 3000, 40
        inputs = [
            [reference.contribution(r, count, "fp32", turn) for turn in range(turns)]
            for r in range(rank.world)
        ]
        item = 4
        for turn in range(turns):
            rank.input.write(inputs[rank.rank][turn], offset=turn % 2 * 16384, stream=rank.stream)
            rank.comm.all_gather_ptr(
                rank.input.ptr + turn % 2 * 16384,
                rank.output.ptr + turn % 4 * 131072,
                count,
                "fp32",
                rank.stream,
            )
            if turn % 4 == 3:
                for back in range(4):
                    seen = rank.output.read(
                        np.empty(count * rank.world, np.float32),
                        offset=back * 131072,
                        stream=rank.stream,
                    )
                    wanted = np.concatenate([x[turn - 3 + back] for x in inputs])
                    assert np.array_equal(seen, wanted), (turn, back, item)


def test_queued_calls() -> None:
    pyrdnaar.run_threads(_queued, 3, timeout=120)


def _refused(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 1 << 16, max_bytes=4096) as rank:
        comm, at = rank.comm, rank.input.ptr
        # The larger of the two buffers counts.
        with pytest.raises(pyrdnaar.TooLarge, match="for each rank, but max_bytes is 4096"):
            comm.all_gather_ptr(at, rank.output.ptr, 513, "fp32", rank.stream)
        with pytest.raises(pyrdnaar.TooLarge, match="max_bytes is 4096"):
            comm.reduce_scatter_ptr(at, rank.output.ptr, 513, "fp32", "sum", rank.stream)
        for shift in (4, 32):  # neither apart nor in place
            other = (1 - rank.rank) * 64 * 4 + shift
            with pytest.raises(pyrdnaar.InvalidArgument, match="overlap"):
                comm.reduce_scatter_ptr(at, at + other, 64, "fp32", "sum", rank.stream)
            with pytest.raises(pyrdnaar.InvalidArgument, match="overlap"):
                comm.all_gather_ptr(at + other, at, 64, "fp32", rank.stream)
        with pytest.raises(pyrdnaar.InvalidArgument, match="aligned"):
            comm.all_gather_ptr(at + 1, rank.output.ptr, 4, "fp32", rank.stream)
        comm.all_gather_ptr(at, rank.output.ptr, 0, "fp32", rank.stream)
        _both(rank, 512, "fp32", "sum", 0, in_place=False)


def test_what_is_refused_is_refused_before_anything_is_touched() -> None:
    pyrdnaar.run_threads(_refused, 2, timeout=60)


def _mismatch(exchange: pyrdnaar.Exchange) -> str:
    """One rank gathers, the other reduces: both find out, and neither keeps a result."""
    with Rank(exchange, 1 << 16, timeout_ms=2000, warmup_timeout_ms=2000) as rank:
        rank.input.write(np.ones(256, np.float32), stream=rank.stream)
        if rank.rank:
            rank.comm.all_gather_ptr(rank.input.ptr, rank.output.ptr, 64, "fp32", rank.stream)
        else:
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 64, "fp32", algo="oneshot", stream=rank.stream
            )
        nan = rank.output.read(np.zeros(64 << rank.rank, np.float32), stream=rank.stream)
        assert np.isnan(nan).all()
        record = rank.comm.abort_record()
        assert record is not None
        exchange.all_gather(b"")
        return str(record)


def test_another_collective_is_a_mismatch() -> None:
    texts = pyrdnaar.run_threads(_mismatch, 2, timeout=60)
    text = next(t for t in texts if t.startswith("mismatch"))
    assert "64 x fp32 sum all_gather" in text
    assert "64 x fp32 sum oneshot" in text


def _absent(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 1 << 16, timeout_ms=300, warmup_timeout_ms=300) as rank:
        if rank.rank == 0:
            calls: tuple[Callable[[int, int], None], ...] = (
                lambda i, o: rank.comm.reduce_scatter_ptr(i, o, 64, "bf16", "sum", rank.stream),
                lambda i, o: rank.comm.all_gather_ptr(i, o, 64, "bf16", rank.stream),
            )
            start = time.monotonic()
            calls[rank.world % 2](rank.input.ptr, rank.output.ptr)
            rank.stream.sync()
            assert time.monotonic() - start < 2
            with pytest.raises(pyrdnaar.AbortError, match=r"peer [12], call 0"):
                rank.comm.check()
            for call in calls:
                with pytest.raises(pyrdnaar.AbortError):
                    call(rank.input.ptr, rank.output.ptr)
            seen = rank.output.read(np.zeros(64, DTYPES["bf16"].numpy), stream=rank.stream)
            assert np.isnan(seen.astype(np.float32)).all()
        exchange.all_gather(b"")


@pytest.mark.parametrize("world", [2, 3])  # one for each of the two calls
def test_an_absent_peer_is_a_timeout(world: int) -> None:
    pyrdnaar.run_threads(_absent, world, timeout=60)
