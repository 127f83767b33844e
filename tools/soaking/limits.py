# SPDX-License-Identifier: Apache-2.0
"""Messages just below, at and just above every limit, with the limit at every power of two.

Ranks are threads, so that a result of megabytes is computed once for all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import pyrdnaar
from pyrdnaar import reference
from pyrdnaar.arrays import Array
from pyrdnaar.dtypes import ALGOS

from .calls import BOUND_MS
from .footprint import footprint, growth
from .material import Call, Material, draw
from .tally import Tally

FIRST, LAST = 4 << 10, 32 << 20
LIMITS = tuple(1 << shift for shift in range(FIRST.bit_length() - 1, LAST.bit_length()))
FIELDS = ("ll_max_bytes", "oneshot_max_bytes", "max_bytes")

Progress = Callable[[int], None]


class Case(NamedTuple):
    field: str
    limit: int

    def config(self) -> pyrdnaar.Config:
        fields: dict[str, Any] = {"max_bytes": 2 * LAST, self.field: self.limit, "prove": "never"}
        if self.field == "oneshot_max_bytes":
            fields["ll_max_bytes"] = 0  # so that auto passes from oneshot to twoshot there
        return dataclasses.replace(
            pyrdnaar.Config(), timeout_ms=BOUND_MS, warmup_timeout_ms=BOUND_MS, **fields
        )

    def sizes(self) -> tuple[int, ...]:
        return (self.limit - 4, self.limit, self.limit + 4)


def sweep(world: int, limits: Sequence[int], seed: int, progress: Progress) -> Tally:
    cases = [Case(field, limit) for field in FIELDS for limit in limits]
    tally = Tally(
        f"limits {limits[0] >> 10} KiB to {limits[-1] >> 10} KiB, W = {world}",
        "calls",
        len(cases) * len(ALGOS) * 3,
    )
    start = time.monotonic()
    material = Material(limits[-1] + 4, seed)
    # Once before the count begins: buffers of the allocator come into being.
    pyrdnaar.run_threads(_work, 2, cases[0], material, seed, timeout=600)
    before = footprint()
    for case in cases:
        try:
            reports = pyrdnaar.run_threads(_work, world, case, material, seed, timeout=600)
        except pyrdnaar.RdnaarError as error:
            hung = "not finished" in str(error) or "timeout" in str(error)
            tally.note("hangs" if hung else "crashes", f"W = {world}, {case}: {error}")
            continue
        tally.executed += min(done for done, _ in reports)
        for rank, (_, problems) in enumerate(reports):
            for text in problems:
                tally.note("wrong", f"W = {world}, rank {rank}, {case}, {text}")
        progress(tally.executed)
    _expected.cache_clear()
    for text in growth(before, footprint()):
        tally.note("leaks", text)
    tally.seconds = time.monotonic() - start
    return tally


def _work(
    exchange: pyrdnaar.Exchange, case: Case, material: Material, seed: int
) -> tuple[int, list[str]]:
    done, problems = 0, []
    with pyrdnaar.Communicator(
        exchange.rank, exchange.world_size, exchange, "host", config=case.config()
    ) as comm:
        for call in _calls(case, comm.world_size, seed):
            problem = _checked(comm, call, material)
            if problem:
                problems.append(f"{call}: {problem}")
            done += 1
        exchange.all_gather(b"")
    return done, problems


def _calls(case: Case, world: int, seed: int) -> Iterator[Call]:
    rng = np.random.default_rng((seed, world, case.limit, FIELDS.index(case.field)))
    for nbytes in case.sizes():
        for algo in ALGOS:
            drawn = draw(rng, world)
            element = 4 if drawn.dtype == "fp32" else 2
            yield dataclasses.replace(drawn, algo=algo, count=nbytes // element)


def _checked(comm: pyrdnaar.Communicator, call: Call, material: Material) -> str:
    """What is wrong with the call, or ""."""
    x = material.inputs(call)[comm.rank]
    out = np.empty_like(x)
    reference.poison(out)
    too_large = x.nbytes > comm.config.max_bytes
    try:
        comm.all_reduce(x, out, call.op, call.algo)
    except pyrdnaar.TooLarge:
        return "" if too_large else "refused as too large"
    if too_large:
        return f"{x.nbytes} bytes were taken, the limit is {comm.config.max_bytes}"
    wrong = reference.wrong_elements(out, _expected(material, call))
    return f"{wrong} wrong elements" if wrong else ""


@functools.lru_cache(maxsize=4)
def _expected(material: Material, call: Call) -> Array:
    return material.expected(call)
