# SPDX-License-Identifier: Apache-2.0
"""Every count, alignment, world size, dtype and algorithm gives the right bits and touches nothing
else."""

from __future__ import annotations

import numpy as np
import pytest

import pyrdnaar

from .raw import ALGOS, BACKEND, DTYPE_NAMES, OPS, WORLDS, Rank, same_on_all_ranks

PRIMES = (509, 1021, 2039, 4093, 8191)


def _small_counts(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 8191 * 4) as rank:
        for seed, count in enumerate((*range(1, 258), *PRIMES)):
            # Cycle through the combinations: every algorithm meets every count within three steps
            # of the inner loop, and every dtype in turn.
            dtype = DTYPE_NAMES[seed % 3]
            inputs = rank.inputs(count, dtype, seed)
            for algo in ALGOS:
                rank.check(
                    inputs,
                    dtype,
                    algo=algo,
                    in_offset=(seed + 5 * rank.rank) % 16,
                    out_offset=(seed * 7 + 3 * rank.rank) % 16,
                )


@pytest.mark.parametrize("world", WORLDS)
def test_counts_and_alignments(world: int) -> None:
    pyrdnaar.run_threads(_small_counts, world, timeout=120)


def _offsets(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 300 * 4) as rank:
        for dtype in DTYPE_NAMES:
            inputs = rank.inputs(131, dtype, 1)
            for offset in range(16):
                for algo in ALGOS:
                    rank.check(inputs, dtype, algo=algo, in_offset=offset, out_offset=15 - offset)
                    rank.check(inputs, dtype, algo=algo, in_offset=offset, in_place=True)


@pytest.mark.parametrize("world", [2, 3])
def test_all_element_offsets(world: int) -> None:
    pyrdnaar.run_threads(_offsets, world, timeout=120)


def _limits(exchange: pyrdnaar.Exchange) -> None:
    """Around every size at which the number of pieces or the algorithm changes."""
    largest = 5 << 18
    with Rank(exchange, largest + 64) as rank:
        piece = 128 << 10
        around = (2048, 4096, piece // 2, piece, 2 * piece, 3 * piece, largest)
        for seed, nbytes in enumerate(n + d for n in around for d in (-4, 0, 4, 64)):
            if nbytes > largest:
                continue
            dtype = DTYPE_NAMES[seed % 3]
            inputs = rank.inputs(nbytes // (4 if dtype == "fp32" else 2), dtype, seed)
            for algo in ("auto", *ALGOS):
                if rank.comm.can_use(inputs[0].size, dtype, algo=algo)[0]:
                    rank.check(inputs, dtype, algo=algo, out_offset=rank.rank % 3)
                else:
                    assert BACKEND != "host"
                    assert algo == "ll"


@pytest.mark.parametrize("world", WORLDS)
def test_sizes_around_limits(world: int) -> None:
    pyrdnaar.run_threads(_limits, world, timeout=120)


def _ops(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096 * 4) as rank:
        for seed, count in enumerate((1, 7, 333, 4096)):
            for dtype in DTYPE_NAMES:
                inputs = rank.inputs(count, dtype, seed)
                for op in OPS:
                    for algo in ALGOS:
                        rank.check(inputs, dtype, op, algo=algo)


@pytest.mark.parametrize("world", WORLDS)
def test_operations(world: int) -> None:
    pyrdnaar.run_threads(_ops, world, timeout=120)


def _same_row(exchange: pyrdnaar.Exchange) -> None:
    """A row of 64 elements gives the same bits at any place in a message of any size."""
    row = 64
    with Rank(exchange, (1 << 20) + 64) as rank:
        for dtype in DTYPE_NAMES:
            rows = rank.inputs(row, dtype, 77)
            wanted = rank.check(rows, dtype)
            for copies in (1, 3, 50, 700, 4000):
                for algo in ALGOS:
                    if not rank.comm.can_use(row * copies, dtype, algo=algo)[0]:
                        continue
                    message = np.tile(rows[rank.rank], copies)
                    seen = rank.reduce(message, dtype, algo=algo)
                    assert np.array_equal(
                        seen.view(np.uint8), np.tile(wanted, copies).view(np.uint8)
                    )
            for _ in range(100):
                assert rank.reduce(rows[rank.rank], dtype).tobytes() == wanted.tobytes()
            same_on_all_ranks(exchange, wanted)


def test_same_row_same_bits() -> None:
    pyrdnaar.run_threads(_same_row, 4, timeout=120)


def _single(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096) as rank:
        x = rank.inputs(333, "bf16", 0)[0]
        assert rank.comm.plan(333, "bf16").algo == "copy"
        for op in OPS:
            assert rank.reduce(x, "bf16", op).tobytes() == x.tobytes()
            assert rank.reduce(x, "bf16", op, in_place=True).tobytes() == x.tobytes()


def test_world_of_one_is_a_copy() -> None:
    pyrdnaar.run_threads(_single, 1)


def _nothing(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 64) as rank:
        rank.comm.all_reduce_ptr(0, 0, 0, "fp32", stream=rank.stream)
        rank.check(rank.inputs(3, "fp32", 0), "fp32")


def test_count_zero_is_fine() -> None:
    pyrdnaar.run_threads(_nothing, 2)


def _refused(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096, max_bytes=1024) as rank:
        comm, base = rank.comm, rank.input.ptr
        untouched = np.full(4096, 0x3C, np.uint8)
        rank.input.write(untouched, stream=rank.stream)
        with pytest.raises(pyrdnaar.TooLarge, match=r"257 elements.*max_bytes is 1024"):
            comm.all_reduce_ptr(base, base, 257, "fp32", stream=rank.stream)
        with pytest.raises(pyrdnaar.InvalidArgument, match="overlap"):
            comm.all_reduce_ptr(base, base + 4, 16, "fp32", stream=rank.stream)
        with pytest.raises(pyrdnaar.InvalidArgument, match="aligned"):
            comm.all_reduce_ptr(base + 2, base + 1024, 16, "fp32", stream=rank.stream)
        with pytest.raises(pyrdnaar.InvalidArgument, match="out is NULL"):
            comm.all_reduce_ptr(base, 0, 16, "fp32", stream=rank.stream)
        seen = rank.input.read(np.empty_like(untouched), stream=rank.stream)
        assert np.array_equal(seen, untouched)
        rank.check(rank.inputs(256, "fp32", 0), "fp32")  # exactly the limit


def test_bad_calls_touch_nothing() -> None:
    pyrdnaar.run_threads(_refused, 2)
