# SPDX-License-Identifier: Apache-2.0
"""What an all-reduce must give, computed with numpy alone: inputs and results to compare with."""

from __future__ import annotations

import numpy as np

from .arrays import Array
from .dtypes import DTYPES, ElementType, element_type


def contribution(rank: int, count: int, dtype: str, seed: int) -> Array:
    """The input of `rank`: every rank can compute everyone's, and each seed gives new data."""
    values = np.random.default_rng((seed, rank)).standard_normal(count, np.float32)
    return values.astype(element_type(dtype).numpy)


def expected(inputs: list[Array], op: str) -> Array:
    """`inputs` combined in rank order in fp32, rounded once to their own type."""
    result = inputs[0].astype(np.float32)
    with np.errstate(all="ignore"):  # infinities and NaN are data here
        for other in inputs[1:]:
            value = other.astype(np.float32)
            if op == "max":
                result = _maximum(result, value)
            elif op == "min":
                result = -_maximum(-result, -value)
            else:
                result = result + value
        if op == "avg":
            result = result / np.float32(len(inputs))
        return result.astype(inputs[0].dtype)


def _maximum(a: Array, b: Array) -> Array:
    """IEEE 754-2019 maximum: a NaN wins, and -0 is below +0."""
    return np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b))


def wrong_elements(seen: Array, wanted: Array) -> int:
    """How many elements differ in any bit. Any NaN is as good as another."""
    bits = _element_type(seen).bits
    differ = seen.reshape(-1).view(bits) != wanted.reshape(-1).view(bits)
    both_nan = np.isnan(seen.reshape(-1)) & np.isnan(wanted.reshape(-1))
    return int(np.count_nonzero(differ & ~both_nan))


def poison(x: Array) -> None:
    """Fill with a pattern that is no result, so that what nobody wrote is seen as wrong."""
    bits = _element_type(x).bits
    # A finite, odd value: a NaN would pass where NaN is expected.
    x.reshape(-1).view(bits)[:] = 0x5A5A5A5A & np.iinfo(bits).max


def _element_type(x: Array) -> ElementType:
    return next(e for e in DTYPES.values() if e.numpy == x.dtype)
