# SPDX-License-Identifier: Apache-2.0
"""Two ways to run the benchmark against each other: is one of them faster?

A side is what is put in front of `pyrdnaar bench`: variables and options. The sides take turns in
processes of their own, A B B A, so that what drifts on a machine meets both. Each run gives one
time for each shape: its median. What is compared are those of all runs, since the spread between
runs is what a single run cannot show. The interval is that of a bootstrap: runs are drawn again and
again, with replacement, and the ratio of the medians taken.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .errors import InvalidArgument, RdnaarError

Data = dict[str, Any]

DRAWS = 10_000
CONFIDENCE = 0.95
# Fewer say nothing about the spread.
LEAST_RUNS = 5


# ---- Sides -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    name: str
    variables: Mapping[str, str]
    options: tuple[str, ...]


def side(name: str, text: str) -> Side:
    """Of words like a shell's: NAME=VALUE until the first that is none, then bench's options."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidArgument(f"side {name}: {text!r} is not a command line: {error}") from None
    variables = {}
    while words and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[0], re.DOTALL)):
        variables[match[1]] = match[2]
        words.pop(0)
    if words and not words[0].startswith("-"):
        raise InvalidArgument(
            f"side {name}: {words[0]!r} is neither NAME=VALUE nor an option of bench"
        )
    return Side(name, variables, tuple(words))


class SideFailed(RdnaarError):
    """A run of one side has failed; so there is nothing to compare. Its exit code becomes ours."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(side: Side, common: Sequence[str]) -> Data:
    """One run of the benchmark: what `bench --json -` says."""
    command = [sys.executable, "-m", "pyrdnaar", "bench", *common, *side.options, "--json", "-"]
    result = subprocess.run(
        command, env={**os.environ, **side.variables}, capture_output=True, text=True
    )
    if result.returncode != 0:
        last = result.stderr.strip().splitlines()[-1:] or ["nothing on stderr"]
        message = f"side {side.name} ended with {result.returncode}: {last[0]}"
        raise SideFailed(message, result.returncode if result.returncode > 0 else 1)
    try:
        data: Data = json.loads(result.stdout)
    except ValueError as error:
        raise SideFailed(f"side {side.name} printed no JSON: {error}") from None
    return data


# ---- What a run has done -----------------------------------------------------------------------


def in_effect(data: Data) -> Data:
    """What a run read back from the library and the communicator, rather than what it was told."""
    return {
        "library": data["library"]["source_digest"],
        "settings": data["settings"],
        "plans": [row["plan"] for row in data["rows"]],
    }


def differences(a: Data, b: Data) -> list[str]:
    """In what two runs differed, a line each; none: they did the same."""
    one, other = in_effect(a), in_effect(b)
    lines = []
    if one["library"] != other["library"]:
        lines.append(f"library: {one['library'][:12]} | {other['library'][:12]}")
    names = sorted({*one["settings"], *other["settings"]})
    lines += [
        f"{name}: {one['settings'].get(name)} | {other['settings'].get(name)}"
        for name in names
        if one["settings"].get(name) != other["settings"].get(name)
    ]
    for row, left, right in zip(a["rows"], one["plans"], other["plans"], strict=False):
        lines += [
            f"{row['bytes']} bytes, {field}: {left[field]} | {right.get(field)}"
            for field in left
            if left[field] != right.get(field)
        ]
    return lines


def times(data: Data) -> dict[str, float]:
    """The median of each shape, in microseconds."""
    return {
        f"{row['bytes']} {row['dtype']} {row['op']}": case["time_us"]
        for row in data["rows"]
        for case in row["cases"]
        if case["provider"].split(":")[0] == "rdnaar" and not case["in_place"]
    }


# ---- The verdict -------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """`ratio` is the time of A over that of B, with the interval that it lies in."""

    shape: str
    a_us: float
    b_us: float
    ratio: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """Of B, which is what was changed."""
        if self.low > 1:
            return "faster"
        if self.high < 1:
            return "slower"
        return "no difference beyond the spread"


def compare(a: Sequence[Mapping[str, float]], b: Sequence[Mapping[str, float]]) -> list[Verdict]:
    """For each shape, and for all of them together (the geometric mean) at the end."""
    shapes = list(a[0])
    for name, runs in (("A", a), ("B", b)):
        if len(runs) < LEAST_RUNS:
            raise InvalidArgument(f"side {name} has {len(runs)} runs, {LEAST_RUNS} are needed")
        for times_of in runs:
            if list(times_of) != shapes:
                raise SideFailed(f"side {name} measured {list(times_of)}, not {shapes}")
    if not shapes:
        raise SideFailed("nothing was measured")
    left, right = (np.array([[run[s] for s in shapes] for run in runs]) for runs in (a, b))
    draws = np.random.default_rng(1)
    drawn = [
        np.median(side[draws.integers(len(side), size=(DRAWS, len(side)))], axis=1)
        for side in (left, right)
    ]
    ratios = drawn[0] / drawn[1]
    medians = np.median(left, axis=0), np.median(right, axis=0)
    verdicts = [
        _verdict(shape, medians[0][i], medians[1][i], ratios[:, i])
        for i, shape in enumerate(shapes)
    ]
    if len(shapes) > 1:
        means = [float(np.exp(np.log(side).mean())) for side in medians]
        all_of_them = np.exp(np.log(ratios).mean(axis=1))
        verdicts.append(_verdict("all", means[0], means[1], all_of_them))
    return verdicts


def _verdict(shape: str, a_us: float, b_us: float, ratios: Any) -> Verdict:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Verdict(shape, float(a_us), float(b_us), float(a_us / b_us), float(low), float(high))
