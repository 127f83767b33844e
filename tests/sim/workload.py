# SPDX-License-Identifier: Apache-2.0
"""A few calls of every algorithm, made to hit what goes wrong in this field. A program.

    python -m tests.sim.workload WORLD TIMEOUT_MS

Ranks are threads, each on a simulated device of its own. Calls are queued without waiting, three of
each kind in turn so that both halves of every slot are used and the first again; then a graph is
launched with new inputs. Prints "right", or what was wrong, and ends with 0 or 1.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np

import pyrdnaar
from pyrdnaar import reference

# Elements: more than a block, not a multiple of anything; twoshot deals fewer vectors to a block.
CALLS = (("oneshot", 6001), ("ll", 2999), ("twoshot", 14003))
REPEATS = 3
LAUNCHES = 3
SENTINEL = 0xFFFFFFFF  # of ll: a NaN that its slots hold when they are empty

Array = np.ndarray[Any, Any]


def contribution(rank: int, count: int, seed: int) -> Array:
    x = reference.contribution(rank, count, "fp32", seed)
    if rank == 1:
        x[seed % count :: 997].view(np.uint32)[:] = SENTINEL
    return x


def check(name: str, seen: Array, world: int, count: int, seed: int) -> None:
    wanted = reference.expected([contribution(r, count, seed) for r in range(world)], "sum")
    wrong = reference.wrong_elements(seen, wanted)
    if wrong:
        raise AssertionError(f"{name}: {wrong} of {count} elements wrong")


def work(exchange: pyrdnaar.Exchange, timeout_ms: int) -> None:
    rank, world = exchange.rank, exchange.world_size
    config = dataclasses.replace(
        pyrdnaar.Config(),
        timeout_ms=timeout_ms,
        warmup_timeout_ms=timeout_ms,
        blocks=8,
        max_bytes=1 << 20,
        transport="p2p",
    )
    with pyrdnaar.Communicator(
        rank, world, exchange, backend="hip", device=rank, config=config
    ) as comm:
        stream = comm.stream()
        calls = [
            (algo, count, 10 * index + repeat)
            for index, (algo, count) in enumerate(CALLS)
            for repeat in range(REPEATS)
        ]
        buffers = [
            [pyrdnaar.DeviceBuffer(comm.library, 4 * count, comm.device) for _ in range(2)]
            for _, count, _ in calls
        ]
        for (_, count, seed), (source, target) in zip(calls, buffers, strict=True):
            source.write(contribution(rank, count, seed), stream=stream)
            target.write(np.zeros(count, np.float32), stream=stream)
        exchange.all_gather(b"ready")
        for (algo, count, _), (source, target) in zip(calls, buffers, strict=True):
            comm.all_reduce_ptr(source.ptr, target.ptr, count, "fp32", algo=algo, stream=stream)
        stream.sync()
        comm.check()
        for (algo, count, seed), (_, target) in zip(calls, buffers, strict=True):
            seen = target.read(np.empty(count, np.float32), stream=stream)
            check(algo, seen, world, count, seed)
        replay(comm, exchange, stream, *buffers[0])
        stream.close()
        exchange.all_gather(b"done")
        for pair in buffers:
            for buffer in pair:
                buffer.close()


def replay(
    comm: pyrdnaar.Communicator,
    exchange: pyrdnaar.Exchange,
    stream: Any,
    source: pyrdnaar.DeviceBuffer,
    target: pyrdnaar.DeviceBuffer,
) -> None:
    """A graph with an odd number of calls."""
    rank, world, count = exchange.rank, exchange.world_size, 700
    with stream.capture() as graph:
        comm.all_reduce_ptr(source.ptr, target.ptr, count, "fp32", algo="ll", stream=stream)
    for launch in range(LAUNCHES):
        source.write(contribution(rank, count, 1000 + launch), stream=stream)
        graph.launch(stream)
        seen = target.read(np.empty(count, np.float32), stream=stream)
        comm.check()
        check(f"launch {launch} of a graph", seen, world, count, 1000 + launch)
    graph.close()


def main() -> int:
    world, timeout_ms = map(int, sys.argv[1:])
    try:
        pyrdnaar.run_threads(work, world, timeout_ms, timeout=300)
    except Exception as error:  # whatever it is, it is what a user would see
        print(f"{type(error).__name__}: {error}".splitlines()[0])
        return 1
    print("right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
