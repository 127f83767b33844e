# SPDX-License-Identifier: Apache-2.0
"""Where the data of a measurement lies, and whose clock counts.

All that is measured side by side stands on one ground: numpy arrays and the host's clock, or device
memory with the library's own streams, events and graphs. What runs there is ordered: one call after
the other.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..arrays import Array
from ..communicator import Communicator
from ..memory import DeviceBuffer, Event
from .providers import Call


class Ground(Protocol):
    on_device: bool

    def memory(self, like: Array) -> Any:
        """Room for the bytes of an array, in the form that providers take here."""
        ...

    def write(self, memory: Any, x: Array) -> None: ...

    def read(self, memory: Any, out: Array) -> None:
        """What lies there once all calls so far are done."""
        ...

    def repeated(self, call: Call, times: int) -> Call:
        """One call that is `times` calls: a graph, where this ground has them."""
        ...

    def seconds(self, align: Call, run: Call, times: int) -> float:
        """`align`, which brings the ranks together, then the time of `times` runs."""
        ...

    def clear(self) -> None:
        """Give back all memory and recordings that were made here."""
        ...

    def close(self) -> None: ...


def _loop(call: Call, times: int) -> Call:
    if times == 1:
        return call

    def loop() -> None:
        for _ in range(times):
            call()

    return loop


class HostArrays:
    """Numpy arrays, calls that are complete on return, the host's clock."""

    on_device = False

    def memory(self, like: Array) -> Array:
        return np.zeros_like(like)

    def write(self, memory: Array, x: Array) -> None:
        memory[:] = x

    def read(self, memory: Array, out: Array) -> None:
        out[:] = memory

    def repeated(self, call: Call, times: int) -> Call:
        return _loop(call, times)

    def seconds(self, align: Call, run: Call, times: int) -> float:
        clock, rounds = time.perf_counter, range(times)
        align()
        start = clock()
        for _ in rounds:
            run()
        return clock() - start

    def clear(self) -> None:
        """Arrays are collected."""

    def close(self) -> None:
        """Nothing is held."""


class LibraryDevice:
    """Device memory, a stream, events and graphs of the library itself, on any backend."""

    on_device = True

    def __init__(self, comm: Communicator, graphs: bool) -> None:
        self._comm = comm
        self._graphs = graphs
        with ExitStack() as stack:
            self.stream = stack.enter_context(comm.stream())
            self._start = stack.enter_context(Event(comm.library, comm.device))
            self._stop = stack.enter_context(Event(comm.library, comm.device))
            self._resources = stack.pop_all()
        self._made = ExitStack()

    def memory(self, like: Array) -> DeviceBuffer:
        buffer = DeviceBuffer(self._comm.library, max(1, like.nbytes), self._comm.device)
        return self._made.enter_context(buffer)

    def write(self, memory: DeviceBuffer, x: Array) -> None:
        memory.write(x, stream=self.stream)

    def read(self, memory: DeviceBuffer, out: Array) -> None:
        memory.read(out, stream=self.stream)

    def repeated(self, call: Call, times: int) -> Call:
        call()  # what is loaded at first use must not be in the recording
        if not self._graphs:
            return _loop(call, times)
        self.stream.sync()
        with self.stream.capture() as graph:
            _loop(call, times)()
        self._made.enter_context(graph)
        return partial(graph.launch, self.stream)

    def seconds(self, align: Call, run: Call, times: int) -> float:
        align()
        self._start.record(self.stream)
        for _ in range(times):
            run()
        self._stop.record(self.stream)
        self.stream.sync()
        return self._stop.elapsed_us(self._start) / 1e6

    def clear(self) -> None:
        self.stream.sync()
        self._made.close()  # an ExitStack can be filled again

    def close(self) -> None:
        self._made.close()
        self._resources.close()
