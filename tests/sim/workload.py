# SPDX-License-Identifier: Apache-2.0
"""A few calls of every collective, made to hit what goes wrong in this field. A program.

    python -m tests.sim.workload WORLD TIMEOUT_MS

Ranks are threads, each on a simulated device of its own. Calls are queued without waiting, three of
each kind in turn so that both halves of every slot are used and the first again; then a graph is
launched with new inputs. Prints "right", or what was wrong, and ends with 0 or 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pyrdnaar
from pyrdnaar import reference

BLOCKS = 8
REPEATS = 3
LAUNCHES = 3
SENTINEL = 0xFFFFFFFF  # of ll: a NaN that its slots hold when they are empty

Array = np.ndarray[Any, Any]


def contribution(rank: int, count: int, seed: int) -> Array:
    x = reference.contribution(rank, count, "fp32", seed)
    if rank == 1:
        x[seed % count :: 997].view(np.uint32)[:] = SENTINEL
    return x


@dataclass(frozen=True)
class Call:
    """One collective: an all-reduce by algorithm, or another."""

    name: str
    count: int
    seed: int = 0

    def input(self, rank: int, world: int) -> Array:
        count = self.count * (world if self.name == "reduce_scatter" else 1)
        return contribution(rank, count, self.seed)

    def output(self, rank: int, world: int) -> Array:
        inputs = [self.input(r, world) for r in range(world)]
        if self.name == "all_gather":
            return np.concatenate(inputs)
        result = reference.expected(inputs, "sum")
        if self.name == "reduce_scatter":
            return result[rank * self.count :][: self.count]
        return result

    def submit(
        self,
        comm: pyrdnaar.Communicator,
        source: pyrdnaar.DeviceBuffer,
        target: pyrdnaar.DeviceBuffer,
        stream: pyrdnaar.Stream,
    ) -> None:
        arguments = (source.ptr, target.ptr, self.count, "fp32")
        if self.name == "all_gather":
            comm.all_gather_ptr(*arguments, stream=stream)
        elif self.name == "reduce_scatter":
            comm.reduce_scatter_ptr(*arguments, stream=stream)
        else:
            comm.all_reduce_ptr(*arguments, algo=self.name, stream=stream)


# More than a block has threads, not a multiple of anything; twoshot deals fewer vectors to a block.
CALLS = (
    Call("oneshot", 6001),
    Call("ll", 2999),
    Call("twoshot", 14003),
    Call("reduce_scatter", 2003),
    Call("all_gather", 3001),
)


def check(name: str, seen: Array, wanted: Array) -> None:
    wrong = reference.wrong_elements(seen, wanted)
    if wrong:
        raise AssertionError(f"{name}: {wrong} of {wanted.size} elements wrong")


def connect(exchange: pyrdnaar.Exchange, timeout_ms: int, blocks: int) -> pyrdnaar.Communicator:
    """On the device of the rank's number. Not proven: most kernels of a mutant are empty."""
    config = replace(
        pyrdnaar.Config(),
        timeout_ms=timeout_ms,
        warmup_timeout_ms=timeout_ms,
        blocks=blocks,
        max_bytes=1 << 20,
        transport="p2p",
        prove="never",
    )
    rank, world = exchange.rank, exchange.world_size
    return pyrdnaar.Communicator(rank, world, exchange, backend="hip", device=rank, config=config)


def work(exchange: pyrdnaar.Exchange, timeout_ms: int) -> None:
    rank, world = exchange.rank, exchange.world_size
    with connect(exchange, timeout_ms, BLOCKS) as comm:
        stream = comm.stream()
        calls = [
            replace(call, seed=10 * index + repeat)
            for index, call in enumerate(CALLS)
            for repeat in range(REPEATS)
        ]
        inputs = [call.input(rank, world) for call in calls]
        outputs = [call.output(rank, world) for call in calls]
        buffers = [
            [pyrdnaar.DeviceBuffer(comm.library, x.nbytes, comm.device) for x in pair]
            for pair in zip(inputs, outputs, strict=True)
        ]
        for x, y, (source, target) in zip(inputs, outputs, buffers, strict=True):
            source.write(x, stream=stream)
            target.write(np.zeros_like(y), stream=stream)
        exchange.all_gather(b"ready")
        for call, (source, target) in zip(calls, buffers, strict=True):
            call.submit(comm, source, target, stream)
        stream.sync()
        comm.check()
        for call, wanted, (_, target) in zip(calls, outputs, buffers, strict=True):
            check(call.name, target.read(np.empty_like(wanted), stream=stream), wanted)
        replay(comm, exchange, stream, *buffers[0])
        stream.close()
        exchange.all_gather(b"done")
        for pair in buffers:
            for buffer in pair:
                buffer.close()


def replay(
    comm: pyrdnaar.Communicator,
    exchange: pyrdnaar.Exchange,
    stream: pyrdnaar.Stream,
    source: pyrdnaar.DeviceBuffer,
    target: pyrdnaar.DeviceBuffer,
) -> None:
    """A graph with an odd number of calls, launched with new inputs."""
    rank, world, captured = exchange.rank, exchange.world_size, Call("ll", 700)
    with stream.capture() as graph:
        captured.submit(comm, source, target, stream)
    for launch in range(LAUNCHES):
        call = replace(captured, seed=1000 + launch)
        source.write(call.input(rank, world), stream=stream)
        graph.launch(stream)
        wanted = call.output(rank, world)
        seen = target.read(np.empty_like(wanted), stream=stream)
        comm.check()
        check(f"launch {launch} of a graph", seen, wanted)
    graph.close()


def print_outcome(run: Callable[[], object]) -> int:
    try:
        run()
    except Exception as error:  # whatever it is, it is what a user would see
        print(f"{type(error).__name__}: {error}".splitlines()[0])
        return 1
    print("right")
    return 0


def main() -> int:
    world, timeout_ms = map(int, sys.argv[1:])
    return print_outcome(lambda: pyrdnaar.run_threads(work, world, timeout_ms, timeout=300))


if __name__ == "__main__":
    sys.exit(main())
