# SPDX-License-Identifier: Apache-2.0
"""Two sides against each other: what they are, that they differ, and what may be said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyrdnaar import ab
from pyrdnaar.errors import InvalidArgument

# ---- Sides -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "variables", "options"),
    [
        ("", {}, ()),
        ("RDNAAR_ALGO=ll", {"RDNAAR_ALGO": "ll"}, ()),
        (
            "A=1 B='two words' --algo ll -o=max",
            {"A": "1", "B": "two words"},
            ("--algo", "ll", "-o=max"),
        ),
        ("A= --x y=z", {"A": ""}, ("--x", "y=z")),
        ("A=--algo=ll", {"A": "--algo=ll"}, ()),
    ],
)
def test_a_side_is_variables_and_options(
    text: str, variables: dict[str, str], options: tuple[str, ...]
) -> None:
    assert ab.side("A", text) == ab.Side("A", variables, options)


@pytest.mark.parametrize(
    ("text", "said"), [("'", "is not a command line"), ("ll", "'ll' is neither")]
)
def test_what_is_no_side(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=f"side B: .*{said}"):
        ab.side("B", text)


# ---- The verdict -------------------------------------------------------------------------------


def _runs(median: float, spread: float, seed: int, runs: int = 10) -> list[dict[str, float]]:
    noise = np.random.default_rng(seed).normal(1, spread, (runs, 2))
    return [{"1024": median * a, "4096": 4 * median * b} for a, b in noise]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (0.8, "faster"),
        (1.25, "slower"),
        (1.0, "no difference beyond the spread"),
    ],
)
def test_verdicts(change: float, verdict: str) -> None:
    verdicts = ab.compare(_runs(10, 0.02, 1), _runs(10 * change, 0.02, 2))
    assert [v.shape for v in verdicts] == ["1024", "4096", "all"]
    for v in verdicts:
        assert v.text == verdict
        assert v.low <= v.ratio <= v.high
        assert v.low == pytest.approx(1 / change, rel=0.06)


def test_sides_that_are_the_same_are_seldom_called_different() -> None:
    wrong = sum(
        v.text != "no difference beyond the spread"
        for seed in range(100)
        for v in ab.compare(_runs(10, 0.05, 2 * seed), _runs(10, 0.05, 2 * seed + 1))[:1]
    )
    assert wrong <= 10  # of 100, where 5 are expected


def test_too_few_runs_and_other_shapes_are_refused() -> None:
    good = _runs(10, 0.02, 1)
    with pytest.raises(InvalidArgument, match="side B has 2 runs, 5 are needed"):
        ab.compare(good, good[:2])
    with pytest.raises(ab.SideFailed, match="side B measured"):
        ab.compare(good, [{"1024": 1.0}] * 5)
    with pytest.raises(ab.SideFailed, match="nothing was measured"):
        ab.compare([{}] * 5, [{}] * 5)


# ---- In effect ---------------------------------------------------------------------------------


def _data(**changes: Any) -> ab.Data:
    plan = {"algo": changes.pop("algo", "ll"), "blocks": 1}
    case = {"provider": "rdnaar", "in_place": False, "time_us": 5.0}
    return {
        "library": {"source_digest": changes.pop("digest", "a" * 64)},
        "settings": {"pace": 0, **changes},
        "rows": [{"bytes": 64, "dtype": "fp32", "op": "sum", "plan": plan, "cases": [case]}],
    }


def test_what_two_runs_differed_in() -> None:
    assert ab.differences(_data(), _data()) == []
    assert ab.differences(_data(), _data(pace=3)) == ["pace: 0 | 3"]
    assert ab.differences(_data(), _data(algo="oneshot")) == ["64 bytes, algo: ll | oneshot"]
    assert ab.differences(_data(), _data(digest="b" * 64)) == [f"library: {'a' * 12} | {'b' * 12}"]


def test_times_are_ours_out_of_place() -> None:
    assert ab.times(_data()) == {"64 fp32 sum": 5.0}
