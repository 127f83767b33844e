# SPDX-License-Identifier: Apache-2.0
"""Faults during start-up: every rank gets the same Disabled in bounded time, and can try again."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pyrdnaar
from pyrdnaar import reference

from .footprint import footprint, growth, names
from .group import Group
from .tally import Tally

BOUND_SECONDS = 10.0
MAX_BYTES = 1 << 16
FAULT_LIBRARY = Path("build/host-g++-faults/libhiprdnaar_host.so")

Progress = Callable[[int], None]


class Outcome(NamedTuple):
    """What one rank saw. `rank` and `reason` are those of Disabled; "" if there was none."""

    rank: int
    reason: str
    seconds: float
    again: bool
    """The second try worked."""


@dataclass(frozen=True)
class Fault:
    """A way to fail, and what all ranks must get: a reason with one of `said`, and rank `odd`."""

    odd: int | None
    """None: whichever rank notices first."""
    said: tuple[str, ...]
    of_odd: dict[str, Any] = field(default_factory=dict)
    """Settings of that rank alone."""
    of_all: dict[str, Any] = field(default_factory=dict)
    wrap: Callable[[pyrdnaar.Exchange], pyrdnaar.Exchange] | None = None
    """Of that rank's exchange."""
    injected: str = ""
    """For RDNAAR_FAULT."""


KILLED = "a rank is killed at an exchange"


def kinds() -> list[str]:
    """The names of what soak_startup() can do."""
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        return [*_kinds(Path(folder)), KILLED]


def soak_startup(kind: str, attempts: int, seed: int, progress: Progress) -> Tally:
    tally = Tally(f"start-up: {kind}", "attempts", attempts)
    rng = np.random.default_rng((seed, *kind.encode()))
    if kind == KILLED:
        _killed(tally, attempts, rng, progress)
        return tally
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        _in_threads(tally, attempts, rng, _kinds(Path(folder))[kind], progress)
    return tally


# ---- Kinds of faults ---------------------------------------------------------------------------

Maker = Callable[[np.random.Generator, int], Fault]


def _kinds(folder: Path) -> dict[str, Maker]:
    library = Path(pyrdnaar.load("host").path)
    short = folder / "short.so"
    short.write_bytes(library.read_bytes()[:100_000])
    text = folder / "text.so"
    text.write_text("no library")
    other = folder / "other.so"
    digest = pyrdnaar.load("host").build_info().source_digest.encode()
    other.write_bytes(library.read_bytes().replace(digest, b"f" * len(digest)))
    bad = [str(folder / "none.so"), str(short), str(text)]

    def bad_library(rng: np.random.Generator, world: int) -> Fault:
        path = str(rng.choice(bad))
        return Fault(int(rng.integers(world)), (f"cannot load {path}",), {"library": path})

    def other_library(rng: np.random.Generator, world: int) -> Fault:
        odd = int(rng.integers(1, world))
        return Fault(odd, (f"source digest is '{'f' * 64}'",), {"library": str(other)})

    kinds: dict[str, Maker] = {
        "a library that cannot be loaded": bad_library,
        "a library from other sources": other_library,
        "another configuration": _other_configuration,
        "a damaged handle blob": _damaged_blob,
    }
    for point in ("init", "export", "register"):
        kinds[f"injected failure of {point}"] = _injected(point)
    return kinds | {"a link that changes data": _corrupt, "a link that loses flags": _drop}


def _other_configuration(rng: np.random.Generator, world: int) -> Fault:
    others = {
        "max_bytes": 4096,
        "blocks": 7,
        "timeout_ms": 77,
        "late_ms": 5,
        "algo": "ll",
        "pace": 1,
    }
    name = str(rng.choice(list(others)))
    # Rank 0 is what the others are compared with.
    odd = int(rng.integers(1, world))
    return Fault(odd, (f"{name} is {others[name]!r}, on rank 0",), {name: others[name]})


def _damaged_blob(rng: np.random.Generator, world: int) -> Fault:
    odd = int(rng.integers(world))
    source, digit = int(rng.integers(world)), int(rng.integers(2 * 512))
    return Fault(odd, ("blob",), wrap=lambda exchange: _Damaging(exchange, source, digit))


def _injected(point: str) -> Maker:
    def make(rng: np.random.Generator, world: int) -> Fault:
        odd = int(rng.integers(world))
        prove = str(rng.choice(["auto", "always", "never"]))
        return Fault(
            odd,
            (f"injected fault at {point}",),
            of_all={"library": str(FAULT_LIBRARY), "prove": prove},
            injected=f"{point},rank={odd}",
        )

    return make


def _corrupt(rng: np.random.Generator, world: int) -> Fault:
    source, target = map(int, rng.choice(world, 2, replace=False))
    said = f"data from rank {source} to rank {target} comes wrong"
    return _broken_link("corrupt", source, target, target, (said,), 20_000)


def _drop(rng: np.random.Generator, world: int) -> Fault:
    source, target = map(int, rng.choice(world, 2, replace=False))
    # The target waits for the source, and moments later the others for the target.
    said = (f"timeout on rank {target}, peer {source}", f", peer {target}, call")
    return _broken_link("drop", source, target, None, said, 1_000)


def _broken_link(
    kind: str, source: int, target: int, odd: int | None, said: tuple[str, ...], bound_ms: int
) -> Fault:
    return Fault(
        odd,
        said,
        of_all={
            "library": str(FAULT_LIBRARY),
            "prove": "always",
            "transport": "host",
            "timeout_ms": bound_ms,
        },
        injected=f"{kind},rank={source},peer={target}",
    )


class _Damaging:
    """An exchange that changes one hex digit of rank `source`'s blob on the way to this rank."""

    def __init__(self, inner: pyrdnaar.Exchange, source: int, digit: int) -> None:
        self.rank, self.world_size = inner.rank, inner.world_size
        self._inner, self._source, self._digit = inner, source, digit

    def all_gather(self, data: bytes) -> list[bytes]:
        parts = self._inner.all_gather(data)
        ballot = json.loads(parts[self._source] or b"{}")
        blob = ballot.get("facts", {}).get("blob", "")
        if blob:
            flipped = f"{int(blob[self._digit], 16) ^ 4:x}"
            ballot["facts"]["blob"] = blob[: self._digit] + flipped + blob[self._digit + 1 :]
            parts[self._source] = json.dumps(ballot).encode()
        return parts


# ---- Ranks as threads --------------------------------------------------------------------------


def _in_threads(
    tally: Tally, attempts: int, rng: np.random.Generator, make: Maker, progress: Progress
) -> None:
    start = time.monotonic()
    before = None
    for turn in range(attempts):
        world = 2 + turn % 3
        fault = make(rng, world)
        if fault.injected and not FAULT_LIBRARY.exists():
            tally.note("crashes", f"{FAULT_LIBRARY} is missing: run `make host FAULTS=1`")
            break
        os.environ["RDNAAR_FAULT"] = fault.injected
        try:
            outcomes = pyrdnaar.run_threads(_attempt, world, fault, timeout=60.0)
        except pyrdnaar.RdnaarError as error:
            hung = "not finished" in str(error)
            tally.note("hangs" if hung else "crashes", f"W = {world}, {fault}: {error}")
            continue
        finally:
            os.environ.pop("RDNAAR_FAULT", None)
        _judge(tally, outcomes, fault.odd, fault.said, f"W = {world}, {fault}")
        tally.executed += 1
        progress(tally.executed)
        before = before or footprint()  # the first time may load things
    for text in growth(before, footprint()) if before else ():
        tally.note("leaks", text)
    tally.seconds = time.monotonic() - start


def _judge(
    tally: Tally, outcomes: list[Outcome], odd: int | None, said: tuple[str, ...], where: str
) -> None:
    verdicts = {(outcome.rank, outcome.reason) for outcome in outcomes}
    if len(verdicts) != 1:
        tally.note("wrong", f"{where}: ranks got different verdicts: {verdicts}")
    for rank, outcome in enumerate(outcomes):
        named = odd in (None, outcome.rank) and any(text in outcome.reason for text in said)
        if not named:
            tally.note("wrong", f"{where}: rank {rank} got {outcome.rank}, {outcome.reason!r}")
        if outcome.seconds > BOUND_SECONDS:
            tally.note("hangs", f"{where}: rank {rank} took {outcome.seconds:.1f} s")
        if not outcome.again:
            tally.note("wrong", f"{where}: rank {rank}: the second try failed")


def _attempt(exchange: pyrdnaar.Exchange, fault: Fault) -> Outcome:
    own = exchange.rank == fault.odd
    through = fault.wrap(exchange) if own and fault.wrap else exchange
    outcome = _try(through, _config(**(fault.of_all | (fault.of_odd if own else {}))))
    exchange.all_gather(b"")  # the environment is common to all threads: all are through
    if exchange.rank == 0:
        os.environ["RDNAAR_FAULT"] = ""
    exchange.all_gather(b"")
    return outcome._replace(again=_works(exchange, _config(**fault.of_all)))


# ---- In the ranks ------------------------------------------------------------------------------


def _config(**fields: Any) -> pyrdnaar.Config:
    return dataclasses.replace(pyrdnaar.Config(), **({"max_bytes": MAX_BYTES} | fields))


def _try(exchange: pyrdnaar.Exchange, config: pyrdnaar.Config) -> Outcome:
    start = time.monotonic()
    try:
        with pyrdnaar.Communicator(
            exchange.rank, exchange.world_size, exchange, "host", config=config
        ):
            return Outcome(-1, "", time.monotonic() - start, False)
    except pyrdnaar.Disabled as error:
        return Outcome(error.rank, error.reason, time.monotonic() - start, False)


def _works(exchange: pyrdnaar.Exchange, config: pyrdnaar.Config) -> bool:
    world = exchange.world_size
    inputs = [reference.contribution(rank, 1000, "bf16", 0) for rank in range(world)]
    with pyrdnaar.Communicator(exchange.rank, world, exchange, "host", config=config) as comm:
        seen = comm.all_reduce(inputs[comm.rank])
        return reference.wrong_elements(seen, reference.expected(inputs, "sum")) == 0


# ---- Ranks that are killed ---------------------------------------------------------------------


class _Deadly:
    """An exchange at whose step number `step` this rank is killed."""

    def __init__(self, inner: pyrdnaar.Exchange, step: int) -> None:
        self.rank, self.world_size = inner.rank, inner.world_size
        self._inner, self._left = inner, step

    def all_gather(self, data: bytes) -> list[bytes]:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return self._inner.all_gather(data)


class _Counting:
    """An exchange that counts its steps."""

    def __init__(self, inner: pyrdnaar.Exchange) -> None:
        self.rank, self.world_size = inner.rank, inner.world_size
        self._inner, self.steps = inner, 0

    def all_gather(self, data: bytes) -> list[bytes]:
        self.steps += 1
        return self._inner.all_gather(data)


def _count_steps(exchange: pyrdnaar.Exchange) -> int:
    counting = _Counting(exchange)
    _try(counting, _config(prove="always"))
    return counting.steps


def _killed(tally: Tally, attempts: int, rng: np.random.Generator, progress: Progress) -> None:
    start = time.monotonic()
    steps = pyrdnaar.run_threads(_count_steps, 2)[0]
    before, before_names = footprint(), names()
    for turn in range(attempts):
        world = 2 + turn % 3
        odd, step = int(rng.integers(world)), turn % steps
        where = f"W = {world}, rank {odd} killed at exchange {step}"
        with Group(world, _member, odd, step) as group:
            others = [rank for rank in range(world) if rank != odd]
            outcomes = []
            for rank in others:
                heard = group.hear(rank, 60.0)
                if heard is None:
                    tally.note("hangs", f"{where}: rank {rank} says nothing")
                    continue
                outcomes.append(heard[1])
                if group.exit_code(rank) != 0:
                    tally.note("crashes", f"{where}: rank {rank} ends by {group.exit_code(rank)}")
            _judge(tally, outcomes, odd, (f"rank {odd} has closed its connection",), where)
        with Group(world, _fresh) as group:
            for rank in range(world):
                heard = group.hear(rank, 60.0)
                if heard is None or heard[1] is not True:
                    tally.note("wrong", f"{where}: after it rank {rank} cannot start: {heard}")
        tally.executed += 1
        progress(tally.executed)
    for text in growth(before, footprint()):
        tally.note("leaks", text)
    for name in names() - before_names:
        tally.note("leaks", f"{name} is left")
    tally.seconds = time.monotonic() - start


def _member(exchange: pyrdnaar.Exchange, say: Callable[[Any], None], odd: int, step: int) -> None:
    through = _Deadly(exchange, step) if exchange.rank == odd else exchange
    # A second try is made by a new group: of this one a rank is gone.
    say(_try(through, _config(prove="always"))._replace(again=True))


def _fresh(exchange: pyrdnaar.Exchange, say: Callable[[Any], None]) -> None:
    say(_works(exchange, _config()))
