# SPDX-License-Identifier: Apache-2.0
"""A rank is killed in the midst of calls: the others say so, end, and can start again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyrdnaar
from pyrdnaar import reference

from .footprint import footprint, growth, names
from .group import Group
from .material import Material, draw
from .tally import Tally

MAX_BYTES = 1 << 18
BOUND_MS = 2000
# From the kill to the last survivor's error: the bound, a fifth more, and time to be scheduled.
LATEST_SECONDS = BOUND_MS / 1000 * 1.2 + 1.0
START_SECONDS = 60.0
WORLDS = (2, 3, 4)

Progress = Callable[[int], None]


def soak_kills(kills: int, seed: int, progress: Progress) -> Tally:
    tally = Tally("kills at random moments", "kills", kills)
    start = time.monotonic()
    rng = np.random.default_rng(seed)
    _restart(tally, 2, seed)  # the fork server and this process load what they need
    before, before_names = footprint(), names()
    for turn in range(kills):
        world = WORLDS[turn % len(WORLDS)]
        _kill_one(
            tally, world, int(rng.integers(world)), float(rng.uniform(0.0, 0.05)), seed + turn
        )
        _restart(tally, world, seed + turn)
        progress(tally.executed)
    for text in growth(before, footprint()):
        tally.note("leaks", f"in the parent, {text}")
    for name in names() - before_names:
        tally.note("leaks", f"{name} is left")
    tally.seconds = time.monotonic() - start
    return tally


def _kill_one(tally: Tally, world: int, victim: int, delay: float, seed: int) -> None:
    where = f"W = {world}, rank {victim} killed after {delay * 1000:.1f} ms, seed {seed}"
    with Group(world, _until_error, seed) as group:
        started = [group.hear(rank, START_SECONDS) for rank in range(world)]
        if None in started:
            tally.note("hangs", f"{where}: ranks do not start: {started}")
            return
        time.sleep(delay)
        group.kill(victim)
        killed = time.monotonic()
        survivors = [rank for rank in range(world) if rank != victim]
        peers = [_judge(tally, group, rank, killed, where) for rank in survivors]
        if victim not in peers:
            tally.note("wrong", f"{where}: the survivors name {peers}")
        if group.exit_code(victim) != -9:
            tally.note("crashes", f"{where}: it ended by {group.exit_code(victim)}")
        tally.executed += 1


def _judge(tally: Tally, group: Group, rank: int, killed: float, where: str) -> int:
    """The peer that a survivor names; -1: none."""
    heard = group.hear(rank, LATEST_SECONDS + 5.0)
    if heard is None:
        tally.note("hangs", f"{where}: rank {rank} has not given up")
        return -1
    when, (reason, peer, wrong) = heard
    if when - killed > LATEST_SECONDS:
        tally.note("hangs", f"{where}: rank {rank} gave up after {when - killed:.2f} s")
    if wrong:
        tally.note("wrong", f"{where}: rank {rank} had {wrong} wrong elements")
    if reason not in ("peer_dead", "timeout", "peer_aborted") or peer < 0:
        tally.note("wrong", f"{where}: rank {rank} says {reason}, peer {peer}")
    code = group.exit_code(rank)
    if code is None:
        tally.note("hangs", f"{where}: rank {rank} does not end")
    elif code != 0:
        tally.note("crashes", f"{where}: rank {rank} ends by {code}")
    return int(peer)


def _restart(tally: Tally, world: int, seed: int) -> None:
    """A new group at once, from the same place."""
    with Group(world, _three_calls, seed) as group:
        for rank in range(world):
            heard = group.hear(rank, START_SECONDS)
            if heard is None or heard[1] != 0:
                tally.note("wrong", f"W = {world}, seed {seed}: after it rank {rank} has {heard}")
            if group.exit_code(rank) != 0:
                tally.note("crashes", f"W = {world}, seed {seed}: rank {rank} of the new group")


# ---- In the ranks ------------------------------------------------------------------------------


class _Calls:
    """Random calls, each checked; `wrong` counts elements."""

    def __init__(self, comm: pyrdnaar.Communicator, seed: int) -> None:
        self._comm = comm
        self._material = Material(MAX_BYTES, seed)
        self._rng = np.random.default_rng(seed)
        self.wrong = 0

    def one(self) -> None:
        largest = int(self._rng.choice([100, 5_000, MAX_BYTES // 4], p=[0.6, 0.3, 0.1]))
        count = int(self._rng.integers(1, largest))
        call = draw(self._rng, self._comm.world_size, count)
        x = self._material.inputs(call)[self._comm.rank]
        seen = self._comm.all_reduce(x, op=call.op, algo=call.algo)
        self.wrong += reference.wrong_elements(seen, self._material.expected(call))


def _communicator(exchange: pyrdnaar.Exchange) -> pyrdnaar.Communicator:
    config = dataclasses.replace(
        pyrdnaar.Config(), max_bytes=MAX_BYTES, timeout_ms=BOUND_MS, warmup_timeout_ms=30_000
    )
    return pyrdnaar.Communicator(
        exchange.rank, exchange.world_size, exchange, "host", config=config
    )


def _until_error(exchange: pyrdnaar.Exchange, say: Callable[[Any], None], seed: int) -> None:
    with _communicator(exchange) as comm:
        calls = _Calls(comm, seed)
        calls.one()
        exchange.all_gather(b"")
        say("running")
        try:
            while True:
                calls.one()
        except pyrdnaar.AbortError:
            record = _record(comm)
            say((record.reason, record.peer, calls.wrong))


def _record(comm: pyrdnaar.Communicator) -> pyrdnaar.AbortRecord:
    """It is there a moment after the error."""
    for _ in range(100):
        record = comm.abort_record()
        if record:
            return record
        time.sleep(0.01)
    raise RuntimeError("aborted, but without a record")


def _three_calls(exchange: pyrdnaar.Exchange, say: Callable[[Any], None], seed: int) -> None:
    with _communicator(exchange) as comm:
        calls = _Calls(comm, seed)
        for _ in range(3):
            calls.one()
        exchange.all_gather(b"")
        say(calls.wrong)
