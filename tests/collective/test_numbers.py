# SPDX-License-Identifier: Apache-2.0
"""Rounding, NaN, infinities, signed zeros, subnormals, and values like the protocol's own."""

from __future__ import annotations

import numpy as np
import pytest

import pyrdnaar
from pyrdnaar import reference
from pyrdnaar.dtypes import element_type

from .raw import ALGOS, DTYPE_NAMES, OPS, WORLDS, Array, Rank, same_on_all_ranks

# Bit patterns with the edges of each format, among them the sentinel of `ll` (all ones) and what it
# is replaced by.
BITS_16 = (
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x007F, 0x0080, 0x7BFF, 0xFBFF, 0x7F7F, 0xFF7F,
    0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x7C01, 0x7E00, 0x7FC0, 0x7FFF, 0xFFFF, 0xFFC0, 0x3C00, 0xBC00,
    0x3F80, 0xBF80, 0x3555, 0x3EAB,
)  # fmt: skip
BITS_32 = (
    0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
    0xFF800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFC00000, 0x3F800000, 0xBF800000,
    0xFFFF7FFF, 0x33800000,
)  # fmt: skip


def edge_values(dtype: str, rank: int, world: int) -> Array:
    """For two ranks: all pairs of edge patterns. For more: the later ranks repeat them, shifted."""
    kind = element_type(dtype)
    bits = np.array(BITS_32 if dtype == "fp32" else BITS_16, kind.bits)
    n = bits.size
    if rank == 0:
        return np.repeat(bits, n).view(kind.numpy)
    return np.roll(np.tile(bits, n), rank - 1).view(kind.numpy)


def _edges(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096) as rank:
        for dtype in DTYPE_NAMES:
            inputs = [edge_values(dtype, r, rank.world) for r in range(rank.world)]
            for op in OPS:
                results = []
                for algo in ALGOS:
                    for _ in range(3):  # both halves, and the first again
                        results.append(rank.check(inputs, dtype, op, algo=algo))
                # NaN included: the same bits from every algorithm and on every rank.
                assert all(r.tobytes() == results[0].tobytes() for r in results)
                same_on_all_ranks(exchange, results[0])


@pytest.mark.parametrize("world", WORLDS)
def test_edge_values(world: int) -> None:
    pyrdnaar.run_threads(_edges, world, timeout=120)


def _all_halves(exchange: pyrdnaar.Exchange) -> None:
    """Every 16-bit pattern of both formats, plus a tie: conversions are right to the bit."""
    with Rank(exchange, 65536 * 2) as rank:
        for dtype in ("fp16", "bf16"):
            every = np.arange(65536, dtype=np.uint16)
            for shift in (0, 1, 17, 0x0F01):
                inputs = [
                    np.roll(every, shift * r).view(element_type(dtype).numpy)
                    for r in range(rank.world)
                ]
                rank.check(inputs, dtype, "avg" if shift == 17 else "sum")


def test_every_16_bit_pattern() -> None:
    pyrdnaar.run_threads(_all_halves, 2, timeout=120)
    pyrdnaar.run_threads(_all_halves, 3, timeout=120)


def _rank_order(exchange: pyrdnaar.Exchange) -> None:
    """2^24 + 1 + 1 is 2^24 in rank order, 2^24 + 2 in another: the order is 0, 1, 2, ..."""
    with Rank(exchange, 64) as rank:
        for big in range(rank.world):
            value = float(1 << 24) if rank.rank == big else 1.0
            total = np.float32(0)
            for r in range(rank.world):
                total = np.float32(total + np.float32(float(1 << 24) if r == big else 1.0))
            for algo in ALGOS:
                seen = rank.reduce(np.full(5, value, np.float32), "fp32", algo=algo)
                assert (seen == total).all(), (big, algo, seen, total)


@pytest.mark.parametrize("world", WORLDS)
def test_contributions_are_added_in_rank_order(world: int) -> None:
    pyrdnaar.run_threads(_rank_order, world)


def _zeros(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 512) as rank:
        for dtype in DTYPE_NAMES:
            negative = np.full(33, -0.0, element_type(dtype).numpy)
            for algo in ALGOS:
                for op in OPS:
                    assert np.signbit(rank.reduce(negative, dtype, op, algo=algo)).all()
                mixed = negative if rank.rank else -negative
                assert not np.signbit(rank.reduce(mixed, dtype, algo=algo)).any()


@pytest.mark.parametrize("world", [2, 5])
def test_signed_zeros(world: int) -> None:
    pyrdnaar.run_threads(_zeros, world)


def _old_nan(exchange: pyrdnaar.Exchange) -> None:
    """After messages full of NaN, no NaN appears in a result of numbers."""
    with Rank(exchange, 1 << 20) as rank:
        for algo in ALGOS:
            for dtype in DTYPE_NAMES:
                nan = np.full(16000, np.nan, element_type(dtype).numpy)
                all_ones = np.full(16000, -1, np.int32 if dtype == "fp32" else np.int16)
                for _ in range(2):
                    assert np.isnan(rank.reduce(nan, dtype, algo=algo)).all()
                    ones = all_ones.view(element_type(dtype).numpy)
                    assert np.isnan(rank.reduce(ones, dtype, algo=algo)).all()
                for count in (1, 100, 16000):
                    rank.check(rank.inputs(count, dtype, count), dtype, algo=algo)


def test_nan_in_scratch_never_leaks() -> None:
    pyrdnaar.run_threads(_old_nan, 3, timeout=120)


def _one_nan(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096) as rank:
        for dtype in DTYPE_NAMES:
            for culprit in range(rank.world):
                inputs = rank.inputs(100, dtype, culprit)
                inputs[culprit][37] = np.nan
                for op in OPS:
                    seen = rank.check(inputs, dtype, op)
                    assert np.isnan(seen[37])
                    assert np.isnan(seen).sum() == 1


def test_nan_of_one_rank_stays_in_its_element() -> None:
    pyrdnaar.run_threads(_one_nan, 4)


def test_reference_agrees_with_float64_for_two_ranks() -> None:
    """The reference that all tests use, checked: of two 16-bit numbers, fp32 addition and one
    rounding give what float64 addition gives."""
    for dtype in ("fp16", "bf16"):
        inputs = [reference.contribution(r, 100000, dtype, 5) for r in range(2)]
        exact = inputs[0].astype(np.float64) + inputs[1].astype(np.float64)
        rounded = exact.astype(np.float32).astype(inputs[0].dtype)
        assert reference.wrong_elements(reference.expected(inputs, "sum"), rounded) == 0
