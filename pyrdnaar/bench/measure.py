# SPDX-License-Identifier: Apache-2.0
"""Measure all-reduces side by side, and prove every shape that is measured.

A case is one provider on one shape, out of place or in place. The cases of a shape take turns,
sample by sample, so that what disturbs the machine disturbs all of them. A sample is a run of
calls between ranks that have just been aligned, on the device where there is one; what counts is
the slowest rank of each sample, and the median over the samples.

A case is checked before its samples, by what its last sample leaves, and afterwards with other
inputs: an output full of poison, and a comparison with the reference, which numpy computes alone.
So what does nothing, or does nothing any more, cannot be measured.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import Array
from ..dtypes import element_type
from ..errors import InvalidArgument
from ..exchange import Exchange
from ..reference import contribution, expected, poison, wrong_elements
from .grounds import Ground
from .providers import Call, Provider, Shape

# On the host a sample lasts at least this long, so that reading the clock (50 ns) and the skew
# between ranks that leave the alignment (about 1 us) do not matter.
SAMPLE_SECONDS = 100e-6
MAX_CALLS = 1000

# Calls of a sample on a device, unless told otherwise: events have a resolution of about 1 us.
DEVICE_CALLS = 20

# Ranks that leave small all-reduces are aligned. On a device many of them hide the time in which
# the host enqueues what comes next.
ALIGNING_CALLS = 20
ALIGNING = Shape(256, "fp32", "sum")


@dataclass(frozen=True)
class Effort:
    """`calls` is the collectives of a sample; 0: DEVICE_CALLS, or on the host by the clock."""

    warmup: int = 10
    iterations: int = 50
    calls: int = 0


@dataclass
class Case:
    """One provider, in or out of place. `run` is `unit` calls; `samples_us` are of one call."""

    provider: Provider
    in_place: bool
    x: Any
    out: Any
    run: Call
    unit: int
    runs: int = 1
    wrong: int = 0
    samples_us: list[float] = field(default_factory=list)


def measure(
    exchange: Exchange,
    ground: Ground,
    aligner: Provider,
    providers: list[Provider],
    shape: Shape,
    effort: Effort,
    seed: int,
) -> list[dict[str, Any]]:
    """This rank's results for one shape; collective over all ranks. Then `ground` is cleared.

    `aligner` brings the ranks together before a sample. The even `seed` and the next number make
    the inputs.
    """
    _require_different(providers, shape)
    with ExitStack() as stack:
        stack.callback(ground.clear)
        data = _Data(exchange, ground, shape, seed)
        align = _aligning(ground, aligner)
        unit = (effort.calls or DEVICE_CALLS) if ground.on_device else 1
        cases = [_case(ground, p, shape, in_place, unit) for p in providers for in_place in (0, 1)]
        for case in cases:
            data.check(case)
            for _ in range(effort.warmup):
                case.run()
        if not ground.on_device:
            _choose_runs(exchange, ground, align, cases, effort.calls)
        _take_samples(ground, align, cases, effort.iterations, data)
        data.renew()
        for case in cases:
            data.check(case)
        return [
            {
                "provider": case.provider.name,
                "algo": case.provider.algo(shape),
                "in_place": case.in_place,
                "wrong": case.wrong,
                "calls_per_sample": case.unit * case.runs,
                "samples_us": case.samples_us,
            }
            for case in cases
        ]


def _take_samples(
    ground: Ground, align: Call, cases: list[Case], iterations: int, data: _Data
) -> None:
    """In turns; the last sample of each case begins with fresh inputs, and is checked."""
    # A garbage collection inside a sample would be taken for the library's time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for iteration in range(iterations):
            for case in cases:
                last = iteration == iterations - 1
                if last:
                    data.ready(case)
                calls = case.unit * case.runs
                seconds = ground.seconds(align, case.run, case.runs)
                case.samples_us.append(seconds / calls * 1e6)
                if last:
                    case.wrong += data.wrong(case, calls)
    finally:
        if collecting:
            gc.enable()


def _require_different(providers: list[Provider], shape: Shape) -> None:
    names = [(provider.name, provider.algo(shape)) for provider in providers]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"{' '.join(name).strip()} would be measured against itself")


def _aligning(ground: Ground, aligner: Provider) -> Call:
    zeros = np.zeros(ALIGNING.count, np.float32)
    x, out = ground.memory(zeros), ground.memory(zeros)
    call = aligner.call(x, out, ALIGNING)
    return ground.repeated(call, ALIGNING_CALLS if ground.on_device else 1)


def _case(ground: Ground, provider: Provider, shape: Shape, in_place: int, unit: int) -> Case:
    like = np.zeros(shape.count, element_type(shape.dtype).numpy)
    if in_place:
        x = out = ground.memory(like)
    else:
        x, out = ground.memory(like), ground.memory(like)
    run = ground.repeated(provider.call(x, out, shape), unit)
    return Case(provider, bool(in_place), x, out, run, unit)


class _Data:
    """The inputs of a shape, and what must come out."""

    def __init__(self, exchange: Exchange, ground: Ground, shape: Shape, seed: int) -> None:
        self._rank, self._world = exchange.rank, exchange.world_size
        self._ground = ground
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
        self._after = {1: expected(inputs, shape.op)}
        self._magnitude = np.asarray(sum(np.abs(x.astype(np.float32)) for x in inputs))
        self._seen = np.empty_like(self._mine)
        self._poison = np.empty_like(self._mine)
        poison(self._poison)

    def ready(self, case: Case) -> None:
        """Inputs in place, and an output that nobody has written yet."""
        self._ground.write(case.out, self._poison)
        self._ground.write(case.x, self._mine)

    def check(self, case: Case) -> None:
        """One run from fresh inputs."""
        self.ready(case)
        case.run()
        case.wrong += self.wrong(case, case.unit)

    def wrong(self, case: Case, calls: int) -> int:
        """The number of wrong elements that `calls` calls have left since ready()."""
        self._ground.read(case.out, self._seen)
        # Out of place each call does the same; in place it reduces the result of the one before.
        reductions = calls if case.in_place else 1
        wanted = self._result_after(reductions)
        if case.provider.exact:
            return wrong_elements(self._seen, wanted)
        return _far_apart(self._seen, wanted, *self._tolerance(reductions))

    def _result_after(self, reductions: int) -> Array:
        """What reducing the ranks' equal results again and again gives."""
        if reductions not in self._after:
            result = self._after[1]
            for _ in range(reductions - 1):
                previous, result = result, expected([result] * self._world, self._shape.op)
                if wrong_elements(result, previous) == 0:
                    break  # so it stays: a maximum, or infinities
            self._after[reductions] = result
        return self._after[reductions]

    def _tolerance(self, reductions: int) -> tuple[Array, float]:
        """What another order of addition, or rounding after each, may differ by; and relatively."""
        bits = {"fp32": 23, "fp16": 10, "bf16": 7}[self._shape.dtype]
        relative = 2.0**-bits * self._world * reductions
        with np.errstate(over="ignore"):
            growth = np.float64(self._world if self._shape.op == "sum" else 1) ** (reductions - 1)
        return self._magnitude.astype(np.float64) * relative * growth, relative


def _far_apart(seen: Array, wanted: Array, tolerance: Array, relative: float) -> int:
    """How many elements differ by more than that. Both may have overflowed, or be about to."""
    limit = float(np.finfo(np.float32).max if wanted.dtype != np.float16 else 65504)
    limit *= max(0.5, 1 - relative)
    x, y = seen.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = np.abs(x - y) <= tolerance
    overflow = (np.abs(x) >= limit) & (np.sign(x) == np.sign(y))
    return int(np.count_nonzero(~np.where(np.abs(y) >= limit, overflow, close)))


def _choose_runs(
    exchange: Exchange, ground: Ground, align: Call, cases: list[Case], calls: int
) -> None:
    """How many calls make a sample: the same number on all ranks, from the slowest of them."""
    mine = [min(ground.seconds(align, case.run, 1) for _ in range(3)) for case in cases]
    everyone = [json.loads(raw) for raw in exchange.all_gather(json.dumps(mine).encode())]
    for case, seconds in zip(cases, zip(*everyone, strict=True), strict=True):
        by_clock = max(1, min(MAX_CALLS, math.ceil(SAMPLE_SECONDS / max(seconds))))
        case.runs = calls or by_clock


def summary(shape: Shape, reports: list[dict[str, Any]]) -> dict[str, Any]:
    """One case of all ranks: the slowest rank of each sample, median and 99th percentile."""
    slowest = [max(samples) for samples in zip(*(r["samples_us"] for r in reports), strict=True)]
    median = statistics.median(slowest)
    world_size = len(reports)
    algbw = shape.nbytes / median / 1e3  # bytes per microsecond are MB/s
    first = reports[0]
    return {
        "provider": first["provider"],
        "algo": first["algo"],
        "in_place": first["in_place"],
        "wrong": sum(report["wrong"] for report in reports),
        "time_us": median,
        "p99_us": float(np.percentile(slowest, 99)),
        "algbw_gb_s": algbw,
        "busbw_gb_s": algbw * 2 * (world_size - 1) / world_size,
        "calls_per_sample": first["calls_per_sample"],
        "samples_us": [report["samples_us"] for report in reports],
    }
