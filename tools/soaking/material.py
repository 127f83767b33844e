# SPDX-License-Identifier: Apache-2.0
"""Random calls, their inputs, and what must come out.

All ranks draw the same calls from the same seed. The inputs are windows of one pool of random
numbers, another window for each rank, so that every rank can compute every result at little cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyrdnaar import reference
from pyrdnaar.arrays import Array
from pyrdnaar.dtypes import ALGOS, DTYPES, OPS

WINDOWS = 1 << 12  # different places for a rank's input in the pool


@dataclass(frozen=True)
class Call:
    dtype: str
    op: str
    algo: str
    count: int
    starts: tuple[int, ...]
    """Of each rank's window."""

    def __str__(self) -> str:
        return f"{self.count} x {self.dtype} {self.op} {self.algo}"


class Material:
    """Inputs for calls of up to `max_bytes`."""

    def __init__(self, max_bytes: int, seed: int) -> None:
        values = np.random.default_rng(seed).standard_normal(
            max_bytes // 2 + WINDOWS, dtype=np.float32
        )
        self._pools = {
            name: (values if element.numpy == np.float32 else values.astype(element.numpy))
            for name, element in DTYPES.items()
        }

    def inputs(self, call: Call) -> list[Array]:
        pool = self._pools[call.dtype]
        return [pool[start : start + call.count] for start in call.starts]

    def expected(self, call: Call) -> Array:
        return reference.expected(self.inputs(call), call.op)


def draw(rng: np.random.Generator, world: int, count: int | None = None) -> Call:
    """A call of random kind; small for the most part, unless `count` is given."""
    return Call(
        dtype=str(rng.choice(list(DTYPES))),
        op=str(rng.choice(list(OPS))),
        algo=str(rng.choice(list(ALGOS))),
        count=_count(rng) if count is None else count,
        starts=tuple(int(start) for start in rng.integers(0, WINDOWS, world)),
    )


def _count(rng: np.random.Generator) -> int:
    """Up to 4 KiB elements nine times out of ten, to a megabyte for most of the rest."""
    largest = rng.choice(
        [1 << 8, 1 << 12, 1 << 15, 1 << 18, 1 << 20], p=[0.5, 0.4, 0.08, 0.018, 0.002]
    )
    return int(np.exp(rng.uniform(0.0, np.log(float(largest)))))


def misaligned(x: Array, elements: int) -> Array:
    """A copy of `x` that begins that many elements behind a boundary."""
    room = np.empty(x.size + elements, x.dtype)
    room[elements:] = x
    return room[elements:]
