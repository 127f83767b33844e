# SPDX-License-Identifier: Apache-2.0
"""The element types: one table for names, numpy types and the codes of rdnaar.h."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from . import _abi
from .errors import InvalidArgument


class ElementType(NamedTuple):
    name: str
    code: int
    numpy: np.dtype[Any]
    bits: np.dtype[Any]
    """The unsigned integer of the same width, to look at bits."""


DTYPES: dict[str, ElementType] = {
    "fp16": ElementType("fp16", _abi.Dtype.FP16.value, np.dtype(np.float16), np.dtype(np.uint16)),
    "bf16": ElementType(
        "bf16", _abi.Dtype.BF16.value, np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16)
    ),
    "fp32": ElementType("fp32", _abi.Dtype.FP32.value, np.dtype(np.float32), np.dtype(np.uint32)),
}

# By numpy dtype, as the hot path needs it. A byte-swapped dtype is another key, so it is refused.
CODES: dict[np.dtype[Any], int] = {e.numpy: e.code for e in DTYPES.values()}

DTYPE_NAMES: dict[np.dtype[Any], str] = {e.numpy: e.name for e in DTYPES.values()}

OPS: dict[str, int] = {op.name.lower(): op.value for op in _abi.Op}

# What may be asked for: the others are only ever reported.
ALGOS: dict[str, int] = {a.name.lower(): a.value for a in _abi.Algo if a < _abi.Algo.COPY}

PROBE_KINDS: dict[str, int] = {kind.name.lower(): kind.value for kind in _abi.ProbeKind}


def code(table: dict[str, int], kind: str, word: str) -> int:
    """The code of `word`, or an InvalidArgument that lists what there is."""
    try:
        return table[word]
    except (KeyError, TypeError):
        raise InvalidArgument(f"{kind} {word!r} is not one of {', '.join(table)}") from None


def element_type(name: str) -> ElementType:
    try:
        return DTYPES[name]
    except (KeyError, TypeError):
        raise InvalidArgument(f"dtype {name!r} is not one of {', '.join(DTYPES)}") from None
