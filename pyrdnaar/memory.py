# SPDX-License-Identifier: Apache-2.0
"""Streams, events and raw device memory, the same on every backend.

On the host library memory is ordinary memory and a stream is a thread that works beside the caller.
Each object owns a handle of the library: use them with `with`, or call close().
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ctypes import byref, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ._library import Library
from .arrays import Array
from .dtypes import DTYPES
from .errors import InvalidArgument, StateError

if TYPE_CHECKING:
    from typing_extensions import Self

    from .communicator import Communicator


class _Handle:
    """Owner of one handle: created by the constructor, released once by close()."""

    _release: ClassVar[str]

    def __init__(self, library: Library) -> None:
        self._library = library
        self._value: int | None = None
        self._pid = os.getpid()

    def _create(self, function: str, *args: Any) -> None:
        handle = c_void_p()
        self._library.check(getattr(self._library.c, function)(*args, byref(handle)))
        self._value = handle.value

    def _open(self) -> int:
        if self._value is None:
            raise StateError(f"this {type(self).__name__} is closed")
        return self._value

    def close(self) -> None:
        """Release the handle. Closing again does nothing."""
        value, self._value = self._value, None
        # A forked child has a copy of this object, but not the thread that a stream is.
        if value is not None and self._pid == os.getpid():
            self._library.check(getattr(self._library.c, self._release)(value))

    def __del__(self) -> None:
        # Releasing may wait for work, or pull memory from under it: not for a finalizer.
        if getattr(self, "_value", None) is not None:
            warnings.warn(
                f"{type(self).__name__} was not closed: it is kept until the process ends",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Stream(_Handle):
    """Runs what it is given in order, beside the caller. Pass it as `stream=`, or its `handle`.

    Arrays given to a call on a Stream object are kept alive until the next sync() or close(). A
    call that gets the bare handle leaves that to its caller.
    """

    _release = "rdnaar_stream_destroy"

    def __init__(self, library: Library, device: int = -1) -> None:
        super().__init__(library)
        self._create("rdnaar_stream_create", device)
        self._kept: list[Any] = []

    @property
    def handle(self) -> int:
        return self._open()

    def __int__(self) -> int:
        return self._open()

    def keep(self, *objects: Any) -> None:
        """Hold references until the work given so far is known to be done."""
        self._kept.append(objects)

    def sync(self) -> None:
        """Wait until all work given so far is done."""
        kept = len(self._kept)
        self._library.check(self._library.c.rdnaar_stream_sync(self._open()))
        del self._kept[:kept]

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """Record what the stream is given in the block, instead of running it."""
        graph = Graph(self._library)  # has its handle once the recording has ended
        self._library.check(self._library.c.rdnaar_graph_begin(self._open()))
        try:
            yield graph
        except BaseException:
            # The recording may be of no use, but it has to end for the stream to be used again.
            handle = c_void_p()
            self._library.c.rdnaar_graph_end(self._open(), byref(handle))
            self._library.c.rdnaar_graph_destroy(handle)
            raise
        graph._create("rdnaar_graph_end", self._open())

    def close(self) -> None:
        super().close()  # the library finishes the stream's work first
        self._kept.clear()


class Graph(_Handle):
    """Work recorded from a stream, to be launched as often as you like.

        with stream.capture() as graph:
            comm.all_reduce_ptr(..., stream=stream)
        graph.launch(stream)

    Communicators and buffers must outlive the graph; each launch reads the buffers anew.
    """

    _release = "rdnaar_graph_destroy"

    def launch(self, stream: Stream) -> None:
        """Run the recorded work behind what `stream` has been given."""
        self._library.check(self._library.c.rdnaar_graph_launch(self._open(), stream.handle))


class Event(_Handle):
    """A point of a stream, and the time when the stream passed it."""

    _release = "rdnaar_event_destroy"

    def __init__(self, library: Library, device: int = -1) -> None:
        super().__init__(library)
        self._create("rdnaar_event_create", device)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the point behind the work that `stream` has been given so far."""
        handle = stream.handle if stream else None
        self._library.check(self._library.c.rdnaar_event_record(self._open(), handle))

    def sync(self) -> None:
        """Wait until the stream has passed the point."""
        self._library.check(self._library.c.rdnaar_event_sync(self._open()))

    def elapsed_us(self, start: Event) -> float:
        """Microseconds from `start` to this event."""
        result = ctypes.c_double()
        self._library.check(
            self._library.c.rdnaar_event_elapsed_us(start._open(), self._open(), byref(result))
        )
        return result.value


class DeviceBuffer(_Handle):
    """`nbytes` of memory of a device.

    Copies come after what their stream was given before, and are complete when they return.
    """

    _release = "rdnaar_free"

    def __init__(self, library: Library, nbytes: int, device: int = -1) -> None:
        if nbytes < 1:
            raise InvalidArgument(f"nbytes = {nbytes} is not at least 1")
        super().__init__(library)
        self._create("rdnaar_malloc", device, nbytes)
        self.nbytes = nbytes

    @property
    def ptr(self) -> int:
        """The address on the device."""
        return self._open()

    def write(self, x: Array, offset: int = 0, stream: Stream | None = None) -> None:
        """Copy the C-contiguous array `x` to `offset` bytes from the start."""
        _require_contiguous("x", x)
        self._copy(self._at(offset, x.nbytes), x.ctypes.data, x.nbytes, stream)

    def read(self, out: Array, offset: int = 0, stream: Stream | None = None) -> Array:
        """Copy `offset` bytes from the start onwards into the C-contiguous `out`; returns it."""
        _require_contiguous("out", out)
        if not out.flags.writeable:
            raise InvalidArgument("out is read-only")
        self._copy(out.ctypes.data, self._at(offset, out.nbytes), out.nbytes, stream)
        return out

    def _at(self, offset: int, nbytes: int) -> int:
        if offset < 0 or offset + nbytes > self.nbytes:
            raise InvalidArgument(
                f"bytes {offset} to {offset + nbytes} are not inside a buffer of {self.nbytes}"
            )
        return self.ptr + offset

    def _copy(self, target: int, source: int, nbytes: int, stream: Stream | None) -> None:
        if nbytes == 0:
            return
        handle = stream.handle if stream else None
        self._library.check(self._library.c.rdnaar_copy(target, source, nbytes, handle))
        self._library.check(self._library.c.rdnaar_stream_sync(handle))


class Staged:
    """Reduces numpy arrays on any backend, through buffers of the device: for checks, not speed."""

    def __init__(self, comm: Communicator, nbytes: int) -> None:
        """For arrays of up to `nbytes` bytes."""
        self._comm = comm
        with ExitStack() as stack:
            self._stream = stack.enter_context(comm.stream())
            self._in = stack.enter_context(DeviceBuffer(comm.library, nbytes, comm.device))
            self._out = stack.enter_context(DeviceBuffer(comm.library, nbytes, comm.device))
            self._resources = stack.pop_all()

    def all_reduce(self, x: Array, out: Array, op: str = "sum", algo: str = "auto") -> None:
        dtype = next(name for name, kind in DTYPES.items() if kind.numpy == x.dtype)
        self._in.write(x, stream=self._stream)
        self._out.write(out, stream=self._stream)
        self._comm.all_reduce_ptr(
            self._in.ptr, self._out.ptr, x.size, dtype, op, algo, self._stream
        )
        self._out.read(out, stream=self._stream)

    def close(self) -> None:
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_contiguous(name: str, x: Array) -> None:
    if not isinstance(x, np.ndarray) or not x.flags.c_contiguous:
        raise InvalidArgument(f"{name} is not a C-contiguous numpy array")
