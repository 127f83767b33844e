# SPDX-License-Identifier: Apache-2.0
"""Measure all-reduces of numpy arrays, and prove every shape that is measured.

A case is one provider on one shape, out of place or in place. The cases of a shape take turns,
sample by sample, so that what disturbs the machine disturbs all of them. A sample is a run of
calls long enough for the clock, between ranks that have just been aligned; what counts is the
slowest rank of each sample, and the median over the samples.

Before and after its samples a case is checked: fresh inputs, an output full of poison, and a
comparison with the reference, which numpy computes alone. So a library that does nothing, or does
nothing any more, cannot be measured.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arrays import Array
from .dtypes import element_type
from .exchange import Exchange
from .providers import Call, Provider
from .reference import contribution, expected, poison, wrong_elements

# A sample lasts at least this long, so that reading the clock (50 ns) and the skew between ranks
# that leave the alignment (about 1 us) do not matter.
SAMPLE_SECONDS = 100e-6
MAX_CALLS = 1000


@dataclass(frozen=True)
class Shape:
    count: int
    dtype: str
    op: str

    @property
    def nbytes(self) -> int:
        return self.count * element_type(self.dtype).numpy.itemsize


@dataclass
class Case:
    """One provider, in or out of place. `samples_us` are this rank's, per call."""

    provider: Provider
    in_place: bool
    x: Array
    out: Array
    call: Call
    calls_per_sample: int = 1
    wrong: int = 0
    samples_us: list[float] = field(default_factory=list)


def measure(
    exchange: Exchange,
    align: Call,
    providers: list[Provider],
    shape: Shape,
    warmup: int,
    iterations: int,
    seed: int,
) -> list[dict[str, Any]]:
    """This rank's results for one shape; collective over all ranks."""
    data = _Data(exchange, shape, seed)
    cases = [_case(p, shape, in_place) for p in providers for in_place in (False, True)]
    for case in cases:
        case.wrong += data.check(case)
        data.ready(case)
        for _ in range(warmup):
            case.call()
    _choose_calls(exchange, align, cases)
    # A garbage collection inside a sample would be taken for the library's time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(iterations):
            for case in cases:
                seconds = _sample(align, case.call, case.calls_per_sample)
                case.samples_us.append(seconds / case.calls_per_sample * 1e6)
    finally:
        if collecting:
            gc.enable()
    for case in cases:
        case.wrong += data.check_timed(case)
    data.renew()
    for case in cases:
        case.wrong += data.check(case)
    return [
        {
            "provider": case.provider.name,
            "in_place": case.in_place,
            "wrong": case.wrong,
            "calls_per_sample": case.calls_per_sample,
            "samples_us": case.samples_us,
        }
        for case in cases
    ]


def _case(provider: Provider, shape: Shape, in_place: bool) -> Case:
    x = np.zeros(shape.count, element_type(shape.dtype).numpy)
    out = x if in_place else np.zeros_like(x)
    return Case(provider, in_place, x, out, provider.call(x, out, shape.op))


class _Data:
    """The inputs of a shape, and what must come out."""

    def __init__(self, exchange: Exchange, shape: Shape, seed: int) -> None:
        self._rank, self._world = exchange.rank, exchange.world_size
        self._shape = shape
        self._seed = seed
        self._make()

    def renew(self) -> None:
        self._seed += 1
        self._make()

    def _make(self) -> None:
        shape = self._shape
        inputs = [contribution(r, shape.count, shape.dtype, self._seed) for r in range(self._world)]
        self._mine = inputs[self._rank]
        self._expected = expected(inputs, shape.op)
        # What another order of addition, or rounding after each, may differ by.
        epsilon = 2.0 ** -{"fp32": 23, "fp16": 10, "bf16": 7}[shape.dtype]
        magnitude = sum(np.abs(x.astype(np.float32)) for x in inputs)
        self._tolerance = np.asarray(magnitude) * np.float32(epsilon * self._world)

    def ready(self, case: Case) -> None:
        """Inputs in place, and an output that nobody has written yet."""
        if not case.in_place:
            poison(case.out)
        case.x[:] = self._mine

    def check(self, case: Case) -> int:
        """One call on these inputs; the number of wrong elements."""
        self.ready(case)
        case.call()
        return self._count_wrong(case)

    def check_timed(self, case: Case) -> int:
        """What the timed calls have left. In place they have reduced their own results."""
        return 0 if case.in_place else self._count_wrong(case)

    def _count_wrong(self, case: Case) -> int:
        if case.provider.exact:
            return wrong_elements(case.out, self._expected)
        difference = np.abs(case.out.astype(np.float32) - self._expected.astype(np.float32))
        return int(np.count_nonzero(~(difference <= self._tolerance)))


def _choose_calls(exchange: Exchange, align: Call, cases: list[Case]) -> None:
    """How many calls make a sample: the same number on all ranks, from the slowest of them."""
    mine = [min(_sample(align, case.call, 1) for _ in range(3)) for case in cases]
    everyone = [json.loads(raw) for raw in exchange.all_gather(json.dumps(mine).encode())]
    for case, seconds in zip(cases, zip(*everyone, strict=True), strict=True):
        case.calls_per_sample = max(1, min(MAX_CALLS, math.ceil(SAMPLE_SECONDS / max(seconds))))


def _sample(align: Call, call: Call, calls: int) -> float:
    clock: Callable[[], float] = time.perf_counter
    rounds = range(calls)
    align()
    start = clock()
    for _ in rounds:
        call()
    return clock() - start


def summary(shape: Shape, reports: list[dict[str, Any]]) -> dict[str, Any]:
    """One case of all ranks: the slowest rank of each sample, median and 99th percentile."""
    slowest = [max(samples) for samples in zip(*(r["samples_us"] for r in reports), strict=True)]
    median = statistics.median(slowest)
    world_size = len(reports)
    algbw = shape.nbytes / median / 1e3  # bytes per microsecond are MB/s
    return {
        "provider": reports[0]["provider"],
        "in_place": reports[0]["in_place"],
        "wrong": sum(report["wrong"] for report in reports),
        "time_us": median,
        "p99_us": float(np.percentile(slowest, 99)),
        "algbw_gb_s": algbw,
        "busbw_gb_s": algbw * 2 * (world_size - 1) / world_size,
        "calls_per_sample": reports[0]["calls_per_sample"],
        "samples_us": [report["samples_us"] for report in reports],
    }
