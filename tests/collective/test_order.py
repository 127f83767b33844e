# SPDX-License-Identifier: Apache-2.0
"""Calls that are queued, interleaved, delayed, made from several threads or on several groups."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack
from typing import Any

import numpy as np

import pyrdnaar
from pyrdnaar import reference
from pyrdnaar.dtypes import element_type

from .raw import ALGOS, BACKEND, DTYPE_NAMES, Rank, config

SIZES = (1, 5, 64, 1000, 1024, 1025, 2048, 20000, 32768, 32769, 70000)


def _queued(exchange: pyrdnaar.Exchange) -> None:
    """Inputs that change in one buffer, sizes across every threshold, no waiting between."""
    draw = random.Random(3)  # the same on all ranks
    room = 4 * max(SIZES)
    with Rank(exchange, room) as rank:
        calls = [
            (draw.choice(SIZES), draw.choice(DTYPE_NAMES), draw.choice(("auto", *ALGOS)))
            for _ in range(96)
        ]
        calls = [c for c in calls if rank.comm.can_use(c[0], c[1], algo=c[2])[0]]
        library, device = rank.comm.library, rank.comm.device
        copy = library.c.rdnaar_copy
        with (
            pyrdnaar.DeviceBuffer(library, room * len(calls), device) as sources,
            pyrdnaar.DeviceBuffer(library, room * len(calls), device) as targets,
        ):
            inputs = [rank.inputs(c[0], c[1], seed) for seed, c in enumerate(calls)]
            for index, arrays in enumerate(inputs):
                sources.write(arrays[rank.rank], room * index, stream=rank.stream)
            exchange.all_gather(b"written")
            for index, (count, dtype, algo) in enumerate(calls):
                nbytes, at = inputs[index][0].nbytes, room * index
                stream = rank.stream.handle
                library.check(copy(rank.input.ptr, sources.ptr + at, nbytes, stream))
                rank.comm.all_reduce_ptr(
                    rank.input.ptr, rank.output.ptr, count, dtype, algo=algo, stream=rank.stream
                )
                library.check(copy(targets.ptr + at, rank.output.ptr, nbytes, stream))
            rank.stream.sync()
            for index, arrays in enumerate(inputs):
                seen = targets.read(np.empty_like(arrays[0]), room * index, stream=rank.stream)
                assert reference.wrong_elements(seen, reference.expected(arrays, "sum")) == 0
            exchange.all_gather(b"read")


def test_queued_calls() -> None:
    pyrdnaar.run_threads(_queued, 2, timeout=120)
    pyrdnaar.run_threads(_queued, 5, timeout=120)


def test_queued_calls_of_processes() -> None:
    pyrdnaar.run_ranks(_queued, 3, timeout=120)


def _overwritten(exchange: pyrdnaar.Exchange) -> None:
    """A rank overwrites its input right after the call while another is late."""
    with Rank(exchange, 1 << 20) as rank:
        for turn in range(12):
            algo = ALGOS[turn % 3]
            count = (100, 5000, 60000)[turn % 3 if turn % 2 else 0]
            inputs = rank.inputs(count, "fp32", turn)
            rank.input.write(inputs[rank.rank], stream=rank.stream)
            if rank.rank == turn % rank.world:
                time.sleep(0.03)
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, count, "fp32", algo=algo, stream=rank.stream
            )
            rank.input.write(np.full(count, 1e30, np.float32), stream=rank.stream)
            seen = rank.output.read(np.empty(count, np.float32), stream=rank.stream)
            assert reference.wrong_elements(seen, reference.expected(inputs, "sum")) == 0


def test_input_overwritten_after_the_call() -> None:
    pyrdnaar.run_threads(_overwritten, 3, timeout=60)


def _random_delays(exchange: pyrdnaar.Exchange) -> None:
    draw, own = random.Random(11), random.Random(exchange.rank)
    with Rank(exchange, 4 * max(SIZES)) as rank:
        for seed in range(150):
            count, dtype = draw.choice(SIZES), draw.choice(DTYPE_NAMES)
            algo = draw.choice(("auto", *ALGOS))
            if not rank.comm.can_use(count, dtype, algo=algo)[0]:
                continue
            if own.random() < 0.2:
                time.sleep(own.random() * 0.005)
            rank.check(rank.inputs(count, dtype, seed), dtype, algo=algo)


def test_random_sizes_and_delays() -> None:
    for world in (2, 4, 7):
        pyrdnaar.run_threads(_random_delays, world, timeout=120)


def _two_threads(exchange: pyrdnaar.Exchange) -> None:
    """Two threads and two streams on one communicator: all ranks make the same calls, in whatever
    order, so every result is right; the order does not show, since all calls are alike."""
    with Rank(exchange, 4096) as rank, ExitStack() as stack:
        inputs = rank.inputs(500, "fp32", 1)
        wanted = reference.expected(inputs, "sum")
        rank.input.write(inputs[rank.rank], stream=rank.stream)
        library, device = rank.comm.library, rank.comm.device
        # What allocates or frees may wait for kernels, so it is done before and after.
        streams = [stack.enter_context(rank.comm.stream()) for _ in range(2)]
        outs = [stack.enter_context(pyrdnaar.DeviceBuffer(library, 4096, device)) for _ in streams]
        errors: list[BaseException] = []

        def work(stream: pyrdnaar.Stream, out: pyrdnaar.DeviceBuffer) -> None:
            try:
                for _ in range(50):
                    rank.comm.all_reduce_ptr(rank.input.ptr, out.ptr, 500, "fp32", stream=stream)
                seen = out.read(np.empty(500, np.float32), stream=stream)
                assert reference.wrong_elements(seen, wanted) == 0
            except BaseException as error:
                errors.append(error)

        exchange.all_gather(b"ready")
        threads = [
            threading.Thread(target=work, args=pair) for pair in zip(streams, outs, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        exchange.all_gather(b"done")
        if errors:
            raise errors[0]


def test_two_threads_on_one_communicator() -> None:
    pyrdnaar.run_threads(_two_threads, 2, timeout=120)


def _two_threads_one_stream(exchange: pyrdnaar.Exchange) -> None:
    """A call gets its place in the order and in the stream in one step, or the stream stops."""
    with Rank(exchange, 64) as rank:
        data = rank.input.ptr
        rank.input.write(np.ones(1, np.float32), stream=rank.stream)

        def work() -> None:
            for _ in range(3000):
                rank.comm.all_reduce_ptr(data, data, 1, "fp32", "max", stream=rank.stream)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rank.comm.check()
        assert rank.input.read(np.zeros(1, np.float32), stream=rank.stream)[0] == 1


def test_two_threads_on_one_stream() -> None:
    pyrdnaar.run_threads(_two_threads_one_stream, 2, timeout=60)


def _many_groups(exchange: pyrdnaar.Exchange, groups: int) -> None:
    ranks = [Rank(exchange, 4096) for _ in range(groups)]
    try:
        for seed in range(40):
            rank = ranks[seed * 7 % groups]
            rank.check(rank.inputs(97 + seed, "bf16", seed), "bf16", algo=ALGOS[seed % 3])
    finally:
        for rank in ranks:
            rank.__exit__(None)


def test_many_communicators_interleaved() -> None:
    pyrdnaar.run_threads(_many_groups, 3, 2, timeout=60)
    pyrdnaar.run_threads(_many_groups, 2, 16, timeout=60)


def _sub_groups(exchange: pyrdnaar.Exchange, pairs: dict[str, Any]) -> None:
    """Groups {0,1},{2,3} beside {0,2},{1,3}, made at different times."""
    me = exchange.rank
    row, column = pairs["rows"][me], pairs["columns"][me]
    if me in (1, 2):
        time.sleep(0.05)
    with Rank(row, 4096) as first:
        first.check(first.inputs(100, "fp16", me // 2), "fp16")
        if me == 3:
            time.sleep(0.05)
        with Rank(column, 4096) as second:
            for seed in range(20):
                first.check(first.inputs(50, "fp16", 10 * seed + me // 2), "fp16")
                second.check(second.inputs(70, "fp32", 10 * seed + 100 + me % 2), "fp32")


def test_overlapping_groups() -> None:
    def pair(a: int, b: int, into: dict[int, Any]) -> None:
        into[a], into[b] = pyrdnaar.ThreadExchange.group(2)

    pairs: dict[str, dict[int, Any]] = {"rows": {}, "columns": {}}
    pair(0, 1, pairs["rows"])
    pair(2, 3, pairs["rows"])
    pair(0, 2, pairs["columns"])
    pair(1, 3, pairs["columns"])
    pyrdnaar.run_threads(_sub_groups, 4, pairs, timeout=60)


def _retained(exchange: pyrdnaar.Exchange) -> None:
    """A result that is kept is not changed by later calls, nor by closing."""
    comm = pyrdnaar.Communicator(
        exchange.rank, exchange.world_size, exchange, backend=BACKEND, config=config()
    )
    kept = []
    with comm:
        for turn in range(6):
            x = np.full(3000, exchange.rank + turn, element_type("fp32").numpy)
            kept.append(comm.all_reduce(x))
    base = sum(range(exchange.world_size))
    for turn, result in enumerate(kept):
        assert (result == base + turn * exchange.world_size).all()


def test_retained_results() -> None:
    if BACKEND == "host":  # numpy arrays are host memory
        pyrdnaar.run_threads(_retained, 3)
    else:
        _retained_on_device()


def _device_results(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096) as rank:
        library = rank.comm.library
        outs = [pyrdnaar.DeviceBuffer(library, 4096, rank.comm.device) for _ in range(6)]
        exchange.all_gather(b"")
        for turn, out in enumerate(outs):
            rank.input.write(np.full(500, turn, np.float32), stream=rank.stream)
            rank.comm.all_reduce_ptr(rank.input.ptr, out.ptr, 500, "fp32", stream=rank.stream)
        for turn, out in enumerate(outs):
            seen = out.read(np.empty(500, np.float32), stream=rank.stream)
            assert (seen == turn * rank.world).all()
        exchange.all_gather(b"")
        for out in outs:
            out.close()


def _retained_on_device() -> None:
    pyrdnaar.run_threads(_device_results, 3)
