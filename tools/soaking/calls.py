# SPDX-License-Identifier: Apache-2.0
"""Random calls with random delays: every element of every result is compared with numpy."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyrdnaar
from pyrdnaar import reference
from pyrdnaar.arrays import Array

from .footprint import footprint, growth
from .material import Call, Material, draw, misaligned
from .tally import Tally

MAX_BYTES = 4 << 20
WARM_UP_CALLS = 50
BATCH = 1000  # calls of one communicator
# Far beyond what any of these calls takes on two busy cores: a wait that long is a hang.
BOUND_MS = 60_000

Progress = Callable[[int], None]


def soak_calls(world: int, calls: int, seed: int, progress: Progress) -> Tally:
    """`calls` calls of `world` ranks: half with ranks as threads, half as processes."""
    tally = Tally(f"random calls, W = {world}", "calls", calls)
    start = time.monotonic()
    pyrdnaar.run_threads(_work, world, WARM_UP_CALLS, seed, "threads", timeout=120.0)
    before = footprint()
    for by, share in (("threads", calls // 2), ("processes", calls - calls // 2)):
        # Processes live longer: starting them costs more than a thousand calls.
        batch = BATCH if by == "threads" else 5 * BATCH
        for first in range(0, share, batch):
            _run_batch(tally, by, world, min(batch, share - first), seed + first)
            progress(tally.executed)
    for text in growth(before, footprint()):
        tally.note("leaks", f"in the parent, {text}")
    tally.seconds = time.monotonic() - start
    return tally


def _run_batch(tally: Tally, by: str, world: int, calls: int, seed: int) -> None:
    run = pyrdnaar.run_threads if by == "threads" else pyrdnaar.run_ranks
    timeout = 120.0 + calls * 0.25
    try:
        reports = run(_work, world, calls, seed, by, timeout=timeout)
    except pyrdnaar.RdnaarError as error:
        hung = "not finished" in str(error) or "timeout" in str(error)
        tally.note("hangs" if hung else "crashes", f"{by}, seed {seed}: {error}")
        return
    tally.executed += min(report["executed"] for report in reports)
    for report in reports:
        for fault, text in report["problems"]:
            tally.note(fault, f"{by}, seed {seed}, {text}")


def _work(exchange: pyrdnaar.Exchange, calls: int, seed: int, by: str) -> dict[str, Any]:
    """One rank's batch. A process also compares what it holds; of threads the parent does."""
    settings = dataclasses.replace(
        pyrdnaar.Config(),
        max_bytes=MAX_BYTES,
        timeout_ms=BOUND_MS,
        warmup_timeout_ms=BOUND_MS,
        late_ms=BOUND_MS,
    )
    material = Material(MAX_BYTES, seed)
    problems: list[tuple[str, str]] = []
    with (
        pyrdnaar.Communicator(
            exchange.rank, exchange.world_size, exchange, "host", config=settings
        ) as comm,
        comm.stream() as stream,
    ):
        caller = Caller(comm, stream, material, seed, problems)
        done = caller.run(min(WARM_UP_CALLS, calls))
        before = footprint()
        done += caller.run(calls - done)
        if by == "processes":
            problems += [("leaks", f"rank {comm.rank}, {t}") for t in growth(before, footprint())]
        exchange.all_gather(b"")  # nobody goes while a peer still works
    return {"executed": done, "problems": problems}


class Caller:
    """One rank's side of the random calls."""

    def __init__(
        self,
        comm: pyrdnaar.Communicator,
        stream: pyrdnaar.Stream,
        material: Material,
        seed: int,
        problems: list[tuple[str, str]],
    ) -> None:
        self._comm, self._stream, self._material = comm, stream, material
        self._common = np.random.default_rng((seed, 0))  # the same on all ranks
        self._own = np.random.default_rng((seed, 1 + comm.rank))
        self._problems = problems

    def run(self, calls: int) -> int:
        """So many calls, one by one or several in a stream."""
        done = 0
        while done < calls:
            queued = int(self._common.choice([0, 1, 2, 7], p=[0.6, 0.1, 0.2, 0.1]))
            batch = [
                draw(self._common, self._comm.world_size)
                for _ in range(min(max(queued, 1), calls - done))
            ]
            self._reduce(batch, self._stream if queued else 0)
            done += len(batch)
        return done

    def _reduce(self, batch: list[Call], stream: pyrdnaar.Stream | int) -> None:
        results = []
        for call in batch:
            self._pause()
            results.append(self._one(call, stream))
        if isinstance(stream, pyrdnaar.Stream):
            stream.sync()
        self._comm.check()
        for call, seen in zip(batch, results, strict=True):
            wrong = reference.wrong_elements(seen, self._material.expected(call))
            if wrong:
                text = f"rank {self._comm.rank}, {call}: {wrong} wrong elements"
                self._problems.append(("wrong", text))

    def _one(self, call: Call, stream: pyrdnaar.Stream | int) -> Array:
        """Out of place, into `out`, or in place, at any alignment: each rank as it likes."""
        x = self._material.inputs(call)[self._comm.rank]
        if self._own.random() < 0.7:
            x = misaligned(x, int(self._own.integers(0, 16)))
        way = self._own.integers(3)
        out = None
        if way == 1:
            out = misaligned(x, int(self._own.integers(0, 16)))
            reference.poison(out)
        elif way == 2:
            out = x = misaligned(x, int(self._own.integers(0, 16)))
        return self._comm.all_reduce(x, out, call.op, call.algo, stream)

    def _pause(self) -> None:
        """A delay in one of ten calls of a rank, some longer than any spinning."""
        dice = self._own.random()
        if dice < 0.1:
            time.sleep(float(self._own.exponential(0.0003)))
        elif dice < 0.105:
            time.sleep(float(self._own.uniform(0.0, 0.02)))
