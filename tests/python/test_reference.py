# SPDX-License-Identifier: Apache-2.0
"""The reference that everything is compared with, against Python's own arithmetic."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrdnaar.dtypes import DTYPES
from pyrdnaar.reference import contribution, expected, poison, wrong_elements

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _fp32(value: float) -> float:
    """Rounded to the nearest fp32 by C's conversion."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


@given(st.lists(FLOATS, min_size=1, max_size=8))
def test_fp32_sums_are_added_in_rank_order(values: list[float]) -> None:
    total = values[0]
    for value in values[1:]:
        total = _fp32(total + value)  # a double holds the sum of two fp32 closely enough
    seen = expected([np.array([v], np.float32) for v in values], "sum")
    assert wrong_elements(seen, np.array([total], np.float32)) == 0


@given(st.lists(st.integers(-(2**10), 2**10), min_size=2, max_size=8))
def test_bf16_is_rounded_once_to_nearest_even(values: list[int]) -> None:
    inputs = [np.array([v], np.float32).astype(DTYPES["bf16"].numpy) for v in values]
    exact = sum(Fraction(float(x[0])) for x in inputs)
    seen = Fraction(float(expected(inputs, "sum")[0]))
    if exact == 0:
        assert seen == 0
        return
    exponent = math.floor(math.log2(abs(exact)))
    ulp = Fraction(2) ** (exponent - 7)
    assert seen == round(exact / ulp) * ulp  # round() takes ties to even


def test_signs_of_zero_and_nan() -> None:
    zeros = [np.array([-0.0, 0.0, -0.0], np.float32), np.array([-0.0, -0.0, 0.0], np.float32)]
    assert list(np.signbit(expected(zeros, "sum"))) == [True, False, False]
    assert list(np.signbit(expected(zeros, "max"))) == [True, False, False]
    assert list(np.signbit(expected(zeros, "min"))) == [True, True, True]
    with_nan = [np.array([1, np.nan], np.float32), np.array([np.nan, 2], np.float32)]
    for op in ("sum", "max", "min", "avg"):
        assert np.isnan(expected(with_nan, op)).all()
    assert expected([np.array([3], np.float32)] * 3, "avg")[0] == 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_elements_looks_at_bits(dtype: str) -> None:
    kind = DTYPES[dtype].numpy
    x = np.array([0.0, 1.0, np.nan, np.inf]).astype(kind)
    assert wrong_elements(x, x.copy()) == 0
    assert wrong_elements(x, np.array([-0.0, 1.0, np.nan, np.inf]).astype(kind)) == 1
    assert wrong_elements(x, np.array([0.0, 1.0, 1.0, -np.inf]).astype(kind)) == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_no_result(dtype: str) -> None:
    x = contribution(0, 1000, dtype, 0)
    poison(x)
    assert np.isfinite(x.astype(np.float32)).all()
    assert (
        wrong_elements(x, expected([contribution(r, 1000, dtype, 1) for r in range(8)], "sum"))
        == 1000
    )


def test_contributions_can_be_predicted_and_differ() -> None:
    seen = [contribution(rank, 50, "fp32", seed) for rank in range(2) for seed in range(2)]
    assert len({x.tobytes() for x in seen}) == 4
    assert (contribution(1, 50, "fp32", 1) == seen[3]).all()
