# SPDX-License-Identifier: Apache-2.0
"""One rank with raw device memory, for tests that run unchanged on every backend.

All work of a rank goes through a stream of its own: on a GPU that several ranks share, a null
stream would make them wait for each other.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

import pyrdnaar
from pyrdnaar import reference
from pyrdnaar.dtypes import DTYPES

Array = np.ndarray[Any, Any]

BACKEND = os.environ.get("PYRDNAAR_TEST_BACKEND", "host")
TRANSPORT = os.environ.get("PYRDNAAR_TEST_TRANSPORT", "auto")
ALGOS = ("ll", "oneshot", "twoshot")
DTYPE_NAMES = tuple(DTYPES)
OPS = ("sum", "max", "min", "avg")
WORLDS = (2, 3, 4, 5, 6, 7, 8)

GUARD_BYTES = 64
GUARD = 0xA7


# Ranks that share a GPU have to fit on it together: a rank whose blocks find no room because its
# peers' blocks wait for them would never start.
BLOCKS = 0 if BACKEND == "host" else 8

# Bounds that a loaded machine keeps but that do not hold up a failing test. GPUs are not shared.
TIMEOUT_MS = 60000 if BACKEND == "host" else 10000


def config(**changes: Any) -> pyrdnaar.Config:
    """The settings of the tests, with changes."""
    settings: dict[str, Any] = {
        "timeout_ms": TIMEOUT_MS,
        "warmup_timeout_ms": TIMEOUT_MS,
        "blocks": BLOCKS,
        "transport": TRANSPORT,
        "share_device": BACKEND != "host",
        "prove": "never",  # the start of each group is not what is tested here
        **changes,
    }
    return dataclasses.replace(pyrdnaar.Config(), **settings)


class Rank:
    """A communicator, a stream, and an input and an output buffer of `nbytes`."""

    def __init__(self, exchange: pyrdnaar.Exchange, nbytes: int, **changes: Any) -> None:
        self.exchange = exchange
        self.rank, self.world = exchange.rank, exchange.world_size
        self.comm = pyrdnaar.Communicator(
            self.rank, self.world, exchange, backend=BACKEND, config=config(**changes)
        )
        library = self.comm.library
        self.stream = self.comm.stream()
        room = nbytes + 2 * GUARD_BYTES + 64
        self.input = pyrdnaar.DeviceBuffer(library, room, self.comm.device)
        self.output = pyrdnaar.DeviceBuffer(library, room, self.comm.device)
        # Allocating may wait for the kernels of ranks on the same GPU, which would wait for us.
        exchange.all_gather(b"allocated")

    def __enter__(self) -> Rank:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.comm.abort("the test failed")
        self.stream.close()
        self.comm.close()
        self.exchange.all_gather(b"closed") if kind is None else None
        self.input.close()
        self.output.close()

    def inputs(self, count: int, dtype: str, seed: int) -> list[Array]:
        return [reference.contribution(r, count, dtype, seed) for r in range(self.world)]

    def reduce(
        self,
        x: Array,
        dtype: str,
        op: str = "sum",
        algo: str = "auto",
        in_offset: int = 0,
        out_offset: int = 0,
        in_place: bool = False,
    ) -> Array:
        """Reduce x at the given element offsets; check the memory around and the input."""
        element = x.dtype.itemsize
        start = GUARD_BYTES + in_offset * element
        target = self.input if in_place else self.output
        out_start = start if in_place else GUARD_BYTES + out_offset * element
        guarded_in, guarded_out = self._guarded(x, start), self._guarded(x, out_start)
        reference.poison(guarded_out[out_start : out_start + x.nbytes].view(x.dtype))
        if not in_place:
            self.output.write(guarded_out, stream=self.stream)
        self.input.write(guarded_in, stream=self.stream)
        self.comm.all_reduce_ptr(
            self.input.ptr + start,
            target.ptr + out_start,
            x.size,
            dtype,
            op,
            algo,
            self.stream,
        )
        seen = target.read(np.empty_like(guarded_out), stream=self.stream)
        result = seen[out_start : out_start + x.nbytes].copy().view(x.dtype)
        seen[out_start : out_start + x.nbytes] = 0
        guarded_out[out_start : out_start + x.nbytes] = 0
        assert np.array_equal(seen, guarded_out), "memory around the output was touched"
        if not in_place:
            after = self.input.read(np.empty_like(guarded_in), stream=self.stream)
            assert np.array_equal(after, guarded_in), "the input or memory around it was touched"
        return result

    def check(self, inputs: list[Array], dtype: str, op: str = "sum", **how: Any) -> Array:
        """Reduce this rank's input and compare every bit with numpy in rank order."""
        seen = self.reduce(inputs[self.rank], dtype, op, **how)
        wanted = reference.expected(inputs, op)
        wrong = reference.wrong_elements(seen, wanted)
        assert wrong == 0, (
            f"{wrong} of {seen.size} elements wrong: {dtype} {op} {how}, first at "
            f"{np.flatnonzero(seen.view(np.uint8) != wanted.view(np.uint8))[0] // seen.itemsize}"
        )
        return seen

    @staticmethod
    def _guarded(x: Array, start: int) -> Array:
        room = np.full(start + x.nbytes + GUARD_BYTES, GUARD, np.uint8)
        room[start : start + x.nbytes] = x.reshape(-1).view(np.uint8)
        return room


def same_on_all_ranks(exchange: pyrdnaar.Exchange, result: Array) -> None:
    """Every rank has the same bits, those of NaN included."""
    results = exchange.all_gather(result.tobytes())
    assert all(r == results[0] for r in results), "ranks have different bits"
