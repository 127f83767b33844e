# SPDX-License-Identifier: Apache-2.0
"""When two runs count as different."""

from __future__ import annotations

import pytest

from pyrdnaar.qualify.speed import compare

STEADY = [100.0, 100.0, 100.0, 100.0, 100.0]
WIDE = [80.0, 90.0, 100.0, 110.0, 120.0]  # quartiles 90 and 110


def _moved(samples: list[float], by: float) -> list[float]:
    return [value + by for value in samples]


@pytest.mark.parametrize(
    ("old", "by", "outside"),
    [
        (STEADY, 0, False),
        (STEADY, 5, False),  # the floor of 5 per cent
        (STEADY, 5.1, True),
        (STEADY, -5.1, True),
        (WIDE, 40, False),  # both distances between quartiles together
        (WIDE, 40.1, True),
        (WIDE, -40.1, True),
    ],
)
def test_only_what_lies_outside_of_the_spread(old: list[float], by: float, outside: bool) -> None:
    for name, more_is_better in (("first_token_ms", False), ("decode_tokens_s", True)):
        text, worse = compare(name, old, _moved(old, by))
        assert worse == (outside and (by < 0) == more_is_better)
        assert ("no difference outside of the spread" in text) == (not outside)
        assert ("SLOWER" in text) == worse
        assert ("faster" in text) == (outside and not worse)


def test_one_outlier_is_no_difference() -> None:
    old, new = [*STEADY, 100.0], [*STEADY, 5000.0]
    assert compare("first_token_ms", old, new)[1] is False
