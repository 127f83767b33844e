# SPDX-License-Identifier: Apache-2.0
"""numpy arrays: which can be reduced, and where their data lies."""

from __future__ import annotations

import sys
from ctypes import c_void_p
from typing import Any

import numpy as np

from .dtypes import CODES, DTYPES
from .errors import InvalidArgument

Array = np.ndarray[Any, Any]


def _fast_offset() -> int | None:
    """Where an array object keeps its data pointer, in bytes from id(array); None: not known.

    `x.ctypes.data` and `x.__array_interface__` build several objects and take longer than a small
    all-reduce. The pointer is the first field of PyArrayObject after the object header: that is
    part of numpy's C ABI, which every compiled extension relies on. It is proven here on two
    arrays all the same, and not used on an interpreter whose id() is not an address.
    """
    if sys.implementation.name != "cpython":
        return None
    offset = object.__basicsize__
    samples = (np.zeros(3, np.float32), np.zeros((2, 2), np.float16)[1:])
    for x in samples:
        if c_void_p.from_address(id(x) + offset).value != x.ctypes.data:
            return None
    return offset


_OFFSET = _fast_offset()
DATA_OFFSET: int = _OFFSET or 0

# Arrays of exactly this type take the fast path; where it is not available, no array does.
FAST_TYPE: type = np.ndarray if _OFFSET else type(None)


def reducible(name: str, x: Any) -> Array:
    """`x` as a plain array that can be reduced in storage order, or an InvalidArgument."""
    if not isinstance(x, np.ndarray):
        raise InvalidArgument(f"{name} is a {type(x).__name__}, not a numpy array")
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidArgument(f"{name} is a masked array, whose mask would be ignored")
    if x.dtype not in CODES:
        raise InvalidArgument(
            f"{name} has dtype {x.dtype.str if x.dtype.isnative is False else x.dtype}, not one "
            f"of {', '.join(f'{e.name} ({e.numpy.name})' for e in DTYPES.values())}"
        )
    if not is_dense(x):
        raise InvalidArgument(
            f"{name} of shape {x.shape} and strides {x.strides} is not dense: its elements do not "
            "fill one span of memory. Pass a copy, numpy.ascontiguousarray(x)"
        )
    return x.view(np.ndarray)


def is_dense(x: Array) -> bool:
    """Whether the elements fill one span of memory without gaps, in any order of the axes."""
    if x.flags.c_contiguous or x.flags.f_contiguous:
        return True
    # Outermost axis first: contiguous then means dense. Negative strides never are.
    axes = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    return bool(x.transpose(axes).flags.c_contiguous)


def writable_like(out: Any, x: Array) -> Array:
    """`out` as a plain array that can take the result of reducing `x`, or an InvalidArgument."""
    plain = reducible("out", out)
    if plain.dtype != x.dtype or plain.shape != x.shape:
        raise InvalidArgument(
            f"out has dtype {plain.dtype} and shape {plain.shape}, "
            f"x has dtype {x.dtype} and shape {x.shape}"
        )
    if _layout(plain) != _layout(x):
        raise InvalidArgument(
            f"out has strides {plain.strides}, x has {x.strides}: the elements are reduced in "
            "storage order, so both must have the same layout"
        )
    if not plain.flags.writeable:
        raise InvalidArgument("out is read-only")
    return plain


def _layout(x: Array) -> list[tuple[int, int]]:
    """Axis lengths and strides that matter: an axis of length 1 has none."""
    if x.size == 0:
        return []
    return [(n, stride) for n, stride in zip(x.shape, x.strides, strict=True) if n != 1]
