# SPDX-License-Identifier: Apache-2.0
"""Which arrays are accepted, and where their data lies."""

from __future__ import annotations

import itertools
from ctypes import c_void_p

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrdnaar import InvalidArgument, arrays
from pyrdnaar.arrays import is_dense, reducible, writable_like


def test_the_data_pointer_is_read_from_the_array_header() -> None:
    assert arrays.FAST_TYPE is np.ndarray, "CPython: the fast path must be in use"
    base = np.zeros((6, 7), np.float32)
    frozen = np.frombuffer(bytes(12), np.float32)
    for x in (base, base[2:], base.T, base[:0], base[3, 2:], frozen, np.array(1.0), base[::-1]):
        pointer = c_void_p.from_address(id(x) + arrays.DATA_OFFSET)
        assert pointer.value == x.ctypes.data


@given(
    shape=st.lists(st.integers(1, 4), max_size=4),
    seed=st.randoms(use_true_random=False),
)
def test_every_permutation_of_a_dense_array_is_dense(shape: list[int], seed: object) -> None:
    x = np.zeros(shape, np.float32)
    for axes in itertools.permutations(range(x.ndim)):
        permuted = x.transpose(axes)
        assert is_dense(permuted)
        like = np.empty_like(reducible("x", permuted))
        assert writable_like(like, permuted) is not None
        assert like.shape == permuted.shape


@given(
    shape=st.lists(st.integers(2, 5), min_size=1, max_size=4),
    data=st.data(),
)
def test_an_array_with_gaps_or_repeats_is_not_dense(shape: list[int], data: st.DataObject) -> None:
    x = np.zeros(shape, np.float16)
    axis = data.draw(st.integers(0, x.ndim - 1))
    step = (slice(None),) * axis
    kinds = [np.broadcast_to(x[..., None], (*shape, 2)), np.flip(x, axis)]
    if axis > 0 or shape[axis] > 2:
        # Every second of the first axis of two elements is still one span.
        kinds.append(x[(*step, slice(None, None, 2))])
    for y in kinds:
        addresses = _addresses(y)
        span = addresses == list(range(addresses[0], addresses[0] + 2 * len(addresses), 2))
        forward = all(stride >= 0 for n, stride in zip(y.shape, y.strides, strict=True) if n > 1)
        assert is_dense(y) == (span and forward)


def _addresses(x: np.ndarray) -> list[int]:  # type: ignore[type-arg]
    """Of every element, sorted."""
    indices = np.ndindex(*x.shape)
    return sorted(sum(i * s for i, s in zip(index, x.strides, strict=True)) for index in indices)


BASE = np.zeros((4, 6), np.float32)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ([1.0, 2.0], "x is a list, not a numpy array"),
        (np.zeros(3), r"x has dtype float64, not one of fp16 \(float16\), bf16 \(bfloat16\)"),
        (np.zeros(3, np.int32), "x has dtype int32"),
        (np.zeros(3, ">f4"), "x has dtype >f4"),
        (BASE[:, ::2], r"x of shape \(4, 3\) and strides \(24, 8\) is not dense"),
        (BASE[:, :5], "is not dense"),
        (BASE[::-1], "is not dense"),
        (np.broadcast_to(np.float32(1), (3, 3)), "is not dense"),
        (np.ma.masked_array(BASE, False), "masked array"),
    ],
)
def test_refused_inputs(x: object, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        reducible("x", x)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (np.zeros((6, 4), np.float32), r"out has dtype float32 and shape \(6, 4\)"),
        (np.zeros((4, 6), np.float16), "out has dtype float16"),
        (np.zeros((6, 4), np.float32).T, "must have the same layout"),
        (np.zeros((4, 12), np.float32)[:, ::2], "out of shape .* is not dense"),
        (np.broadcast_to(BASE, BASE.shape), "out is read-only"),
        (None, "out is a NoneType"),
    ],
)
def test_refused_outputs(out: object, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        writable_like(out, BASE)


def test_accepted_arrays() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
        for x in (np.zeros(5, dtype), np.zeros((), dtype), np.zeros((0, 3), dtype)):
            assert reducible("x", x) is not None
    matrix = np.zeros((2, 2), np.float32).view(np.memmap)
    assert type(reducible("x", matrix)) is np.ndarray
    # Strides of axes of length 1 mean nothing.
    one = np.zeros((3, 1), np.float32)
    assert writable_like(np.zeros((1, 3), np.float32).T, one) is not None
