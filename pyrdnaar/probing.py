# SPDX-License-Identifier: Apache-2.0
"""The probe: what the memory and the links of a group can do, measured on raw device memory.

Every rank walks through the same list of probes; those that have a part in one make it, and all
wait for its end before the next begins, so that one measurement does not disturb another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from .communicator import Communicator
from .errors import RdnaarError
from .exchange import Exchange
from .memory import Stream

WIDTHS = (4, 8, 16)  # bytes that a thread moves at a time

# Bytes that a rate is measured over: enough to make the start of a kernel not count.
RATE_BYTES = 64 << 20
ROUND_TRIPS = 2000
ORDER_ROUNDS = 1000
ORDER_BYTES = 16 << 10


class Step(NamedTuple):
    kind: str
    source: int
    target: int
    width: int = 16
    iterations: int = 1
    nbytes: int = 0
    timeout_ms: int = 5000

    @property
    def both(self) -> bool:
        """Whether the target takes part."""
        return self.kind not in ("store", "load")


def steps(world_size: int, room: int) -> Iterator[Step]:
    """The probes of a group; `room` is the payload of a slab in bytes."""
    turns = max(1, min(RATE_BYTES // room, 65535))
    for source in range(world_size):
        for target in range(world_size):
            for width in WIDTHS:
                yield Step("store", source, target, width, turns)
                yield Step("load", source, target, width, turns)
            if source != target:
                yield Step("latency", source, target, iterations=ROUND_TRIPS)
                yield Step(
                    "order", source, target, iterations=ORDER_ROUNDS, nbytes=min(ORDER_BYTES, room)
                )
                yield Step("visible", source, target)


def run(
    comm: Communicator, exchange: Exchange, progress: Callable[[int, int], None]
) -> list[dict[str, Any]]:
    """All probes of the group; every rank gets all rows. Calls progress(done, total) as it goes."""
    with comm.stream() as stream:
        # One turn over a rank's own slab tells how large its payload is; the same on all ranks.
        first = comm.probe("store", comm.rank, comm.rank, session=1, stream=stream)
        plan = list(steps(comm.world_size, first.nbytes))
        rows = []
        for done, step in enumerate(plan):
            progress(done, len(plan))
            outcomes = exchange.all_gather(_outcome(comm, step, done + 2, stream).encode())
            rows.append(_row(step, [json.loads(raw) for raw in outcomes]))
    return rows


def run_ordinary(comm: Communicator, exchange: Exchange) -> list[dict[str, Any]]:
    """Whether a running kernel sees a peer's store to ordinary memory: `comm` has slabs of it.

    It need not: what is seen is a fact about the machine, not a failure.
    """
    rows = []
    pairs = [(a, b) for a in range(comm.world_size) for b in range(comm.world_size) if a != b]
    with comm.stream() as stream:
        for session, (source, target) in enumerate(pairs, 1):
            step = Step("visible", source, target, timeout_ms=200)
            outcomes = exchange.all_gather(_outcome(comm, step, session, stream).encode())
            seen = json.loads(outcomes[target])
            rows.append(
                {
                    "kind": "visible-ordinary",
                    "from": source,
                    "to": target,
                    "ok": "error" not in seen,
                    "seen": seen.get("timed_out") is False,
                }
            )
    return rows


def _outcome(comm: Communicator, step: Step, session: int, stream: Stream) -> str:
    """What this rank measured, as JSON; {} if it has no part in the step."""
    if comm.rank != step.source and not (step.both and comm.rank == step.target):
        return "{}"
    try:
        result = comm.probe(
            step.kind,
            step.source,
            step.target,
            session=session,
            width=step.width,
            iterations=step.iterations,
            nbytes=step.nbytes,
            timeout_ms=step.timeout_ms,
            stream=stream,
        )
    except RdnaarError as error:
        return json.dumps({"error": str(error)})
    return json.dumps(asdict(result))


def _row(step: Step, outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": step.kind, "from": step.source, "to": step.target, "ok": True}
    for rank, outcome in enumerate(outcomes):
        if outcome.get("error") or outcome.get("timed_out"):
            reason = outcome.get("error", "the other side, or its store, was not seen in time")
            return row | {"ok": False, "reason": f"rank {rank}: {reason}"}
    source, target = outcomes[step.source], outcomes[step.target]
    if not step.both:
        row |= {"width": step.width, "nbytes": source["nbytes"]}
        return row | {"gb_s": source["nbytes"] / source["microseconds"] / 1000}
    if step.kind == "latency":
        return row | {"one_way_us": source["microseconds"] / 2}
    if step.kind == "order":
        stale = target["wrong"]
        return row | {"rounds": step.iterations, "stale": stale, "ok": stale == 0}
    return row | {"seen_after_us": target["microseconds"]}
