# SPDX-License-Identifier: Apache-2.0
"""Calls recorded once and launched many times, with new inputs and other calls between."""

from __future__ import annotations

import random

import numpy as np
import pytest

import pyrdnaar
from pyrdnaar import reference
from pyrdnaar.dtypes import element_type

from .raw import ALGOS, DTYPE_NAMES, Array, Rank

LAUNCHES = 1000


def _expect(rank: Rank, inputs: list[Array], target: pyrdnaar.DeviceBuffer) -> None:
    seen = target.read(np.empty_like(inputs[0]), stream=rank.stream)
    assert reference.wrong_elements(seen, reference.expected(inputs, "sum")) == 0


def _many_launches(exchange: pyrdnaar.Exchange, algo: str, calls: int) -> None:
    """`calls` reductions of one message, each of the result of the one before."""
    count = 777
    with Rank(exchange, 4096) as rank:
        pointers = [rank.input.ptr, rank.output.ptr]
        with rank.stream.capture() as graph:
            for call in range(calls):
                rank.comm.all_reduce_ptr(
                    pointers[call % 2], pointers[(call + 1) % 2], count, "fp32",
                    op="sum" if call == 0 else "avg", algo=algo, stream=rank.stream,
                )  # fmt: skip
        last = rank.output if calls % 2 else rank.input
        library = rank.comm.library
        for launch in range(LAUNCHES):
            inputs = [np.full(count, launch % 50 + r, np.float32) for r in range(rank.world)]
            library.check(
                library.c.rdnaar_copy(
                    rank.input.ptr, inputs[rank.rank].ctypes.data, count * 4, rank.stream.handle
                )
            )
            graph.launch(rank.stream)
            # Checking every launch would synchronise every launch.
            if launch % 37 == 0 or launch == LAUNCHES - 1:
                _expect(rank, inputs, last)
            else:
                rank.stream.keep(inputs)
        graph.close()


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("calls", [1, 2, 5])
def test_captured_once_launched_often(algo: str, calls: int) -> None:
    pyrdnaar.run_threads(_many_launches, 2, algo, calls, timeout=120)


def _mixed(exchange: pyrdnaar.Exchange) -> None:
    """Two graphs, eager calls between them, and sizes across the thresholds."""
    draw = random.Random(5)
    with Rank(exchange, 300_000) as rank:
        graphs = []
        for count, dtype, algo in ((100, "bf16", "ll"), (60_000, "fp32", "twoshot")):
            with rank.stream.capture() as graph:
                rank.comm.all_reduce_ptr(
                    rank.input.ptr, rank.output.ptr, count, dtype, algo=algo, stream=rank.stream
                )
            graphs.append((graph, count, dtype))
        for turn in range(120):
            choice = draw.randrange(4)
            if choice < 2:
                graph, count, dtype = graphs[choice]
                inputs = rank.inputs(count, dtype, turn)
                rank.input.write(inputs[rank.rank], stream=rank.stream)
                graph.launch(rank.stream)
                _expect(rank, inputs, rank.output)
            else:
                dtype = draw.choice(DTYPE_NAMES)
                inputs = rank.inputs(draw.choice((1, 999, 20_000)), dtype, turn)
                rank.check(inputs, dtype, algo=draw.choice(("auto", "oneshot", "twoshot")))
        for graph, _, _ in graphs:
            graph.close()


@pytest.mark.parametrize("world", [2, 3])
def test_two_graphs_and_eager_calls(world: int) -> None:
    pyrdnaar.run_threads(_mixed, world, timeout=120)


def _forty(exchange: pyrdnaar.Exchange) -> None:
    """Forty calls in a graph, as a model of forty layers has: different sizes, dtypes, places."""
    draw = random.Random(9)
    with Rank(exchange, 1 << 20) as rank:
        calls = []
        for index in range(40):
            dtype = draw.choice(DTYPE_NAMES)
            count = draw.choice((3, 500, 5000))
            offset = index * 24_000
            calls.append((dtype, count, offset, rank.inputs(count, dtype, index)))
        for _, _, offset, inputs in calls:
            rank.input.write(inputs[rank.rank], offset, stream=rank.stream)
        with rank.stream.capture() as graph:
            for index, (dtype, count, offset, _) in enumerate(calls):
                rank.comm.all_reduce_ptr(
                    rank.input.ptr + offset, rank.output.ptr + offset, count, dtype,
                    algo=("auto", *ALGOS)[index % 4], stream=rank.stream,
                )  # fmt: skip
        for _ in range(20):
            graph.launch(rank.stream)
        for dtype, count, offset, inputs in calls:
            seen = rank.output.read(
                np.empty(count, element_type(dtype).numpy), offset, stream=rank.stream
            )
            assert reference.wrong_elements(seen, reference.expected(inputs, "sum")) == 0
        graph.close()


def test_forty_calls_in_a_graph() -> None:
    pyrdnaar.run_threads(_forty, 2, timeout=120)


def _failed_capture(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096, max_bytes=1024) as rank:
        capture = rank.stream.capture()
        with pytest.raises(pyrdnaar.TooLarge), capture:
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 10_000, "fp32", stream=rank.stream
            )
        rank.check(rank.inputs(100, "fp32", 0), "fp32")  # stream and communicator are usable
        with rank.stream.capture() as graph:
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 50, "fp32", stream=rank.stream
            )
        inputs = rank.inputs(50, "fp32", 1)
        rank.input.write(inputs[rank.rank], stream=rank.stream)
        graph.launch(rank.stream)
        _expect(rank, inputs, rank.output)
        graph.close()


def test_exception_during_capture() -> None:
    pyrdnaar.run_threads(_failed_capture, 2, timeout=60)
