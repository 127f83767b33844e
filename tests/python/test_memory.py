# SPDX-License-Identifier: Apache-2.0
"""Streams, events and device buffers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import pyrdnaar
from pyrdnaar import DeviceBuffer, Event, InvalidArgument, StateError, Stream


def test_a_buffer_keeps_what_is_written(lib: pyrdnaar.Library) -> None:
    x = np.arange(100, dtype=np.int16)
    with DeviceBuffer(lib, 300) as buffer:
        assert buffer.ptr % 64 == 0
        buffer.write(x)
        buffer.write(x[:50], offset=200)
        seen = buffer.read(np.empty(150, np.int16))
        assert (seen == np.concatenate([x, x[:50]])).all()
        assert (buffer.read(np.empty(10, np.int16), offset=4) == x[2:12]).all()
        assert buffer.read(np.empty(0, np.int8)).size == 0


def test_a_stream_without_a_thread_leaves_the_signals(lib: pyrdnaar.Library) -> None:
    """Its thread is made with all signals blocked; a failure must not leave the caller so."""
    program = (
        "import resource, signal, sys, pyrdnaar\n"
        "lib = pyrdnaar.load('host', sys.argv[1])\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20), -1))  # less than a stack\n"
        "try:\n"
        "    pyrdnaar.Stream(lib)\n"
        "except pyrdnaar.RdnaarError:\n"
        "    print(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))\n"
    )
    command = [sys.executable, "-c", program, lib.path]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n"


def test_a_buffer_refuses_what_does_not_fit(lib: pyrdnaar.Library) -> None:
    x = np.zeros(10, np.int8)
    frozen = np.zeros(10, np.int8)
    frozen.flags.writeable = False
    with DeviceBuffer(lib, 10) as buffer:
        for call in (
            lambda: buffer.write(x, 1),
            lambda: buffer.write(x, -1),
            lambda: buffer.read(np.zeros(11, np.int8)),
        ):
            with pytest.raises(InvalidArgument, match="not inside a buffer of 10"):
                call()
        with pytest.raises(InvalidArgument, match="not a C-contiguous"):
            buffer.write(x[::2])
        with pytest.raises(InvalidArgument, match="read-only"):
            buffer.read(frozen)
    with pytest.raises(InvalidArgument, match="nbytes = 0"):
        DeviceBuffer(lib, 0)
    with pytest.raises(pyrdnaar.RdnaarError):
        DeviceBuffer(lib, 1 << 62)


def test_events_tell_the_time_between(lib: pyrdnaar.Library) -> None:
    with Stream(lib) as stream, Event(lib) as start, Event(lib) as stop:
        assert int(stream) == stream.handle != 0
        start.record(stream)
        stop.record(stream)
        stop.sync()
        stream.sync()
        assert 0 <= stop.elapsed_us(start) < 10e6


@pytest.mark.parametrize("kind", [Stream, Event])
def test_closed_handles_say_so(lib: pyrdnaar.Library, kind: type[Stream] | type[Event]) -> None:
    handle = kind(lib)
    handle.close()
    handle.close()
    with pytest.raises(StateError, match=f"this {kind.__name__} is closed"):
        handle.sync()


def test_a_forgotten_handle_warns(lib: pyrdnaar.Library) -> None:
    with pytest.warns(ResourceWarning, match="Event was not closed"):
        Event(lib)


def test_a_forked_child_does_not_wait_for_its_parents_stream(
    lib: pyrdnaar.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(lib)
    handle = stream.handle
    with monkeypatch.context() as child:
        # What a child of fork() has: a copy of the object, in a process with another id.
        child.setattr("os.getpid", lambda: -1)
        stream.close()
    lib.check(lib.c.rdnaar_stream_destroy(handle))  # it is still there
