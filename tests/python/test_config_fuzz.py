# SPDX-License-Identifier: Apache-2.0
"""Any environment gives a Config or a ConfigError, never another exception."""

from __future__ import annotations

import string
import warnings
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrdnaar import Config, ConfigError, ConfigWarning
from pyrdnaar.config import VARIABLES, effective, parse_size, unread

KNOWN = sorted({name for v in VARIABLES for name in (v.name, v.fork) if name})
# Bytes that are no UTF-8 come out of os.environ as lone surrogates.
TEXT = st.text(st.characters(exclude_characters="\0"), max_size=40)
NAMES = st.one_of(
    st.sampled_from(KNOWN),
    st.builds(str.__add__, st.sampled_from(["RDNAAR_", "VLLM_RDNA_AR"]), TEXT),
    TEXT,
)
ALMOST_RIGHT = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(string.digits + "KMGkmg +-_.", max_size=12),
    st.sampled_from(["auto", "AUTO", "1stage", "copy", "on", "off", "9" * 5000, "9" * 4000 + "G"]),
)
ENVIRONMENTS = st.dictionaries(NAMES, ALMOST_RIGHT | TEXT, max_size=6)


@settings(max_examples=500, deadline=None)
@given(ENVIRONMENTS)
def test_any_environment(environ: dict[str, str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config = Config.from_env(environ)
        except ConfigError as error:
            refusal = str(error)
        else:
            refusal = ""
    if refusal:
        # It names one of the variables that are set.
        assert any(name in refusal for name in environ)
        return
    assert all(issubclass(warning.category, ConfigWarning) for warning in caught)
    assert len(caught) == len(unread(environ))
    # What was read is what a Config accepts by itself, and what `pyrdnaar env` shows.
    shown = {s.field: s.value for s in effective(environ) if s.field}
    assert Config(**shown) == config


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(KNOWN), ALMOST_RIGHT)
def test_one_variable(name: str, raw: str) -> None:
    with suppress(ConfigError):
        Config.from_env({name: raw})


@settings(max_examples=500, deadline=None)
@given(ALMOST_RIGHT | TEXT)
def test_any_size(raw: str) -> None:
    try:
        size = parse_size(raw)
    except ValueError:
        return
    assert size >= 0
    assert raw.rstrip("KMGkmg").isdigit()


@given(st.integers(0, 1 << 40), st.sampled_from(["", "K", "M", "G"]))
def test_sizes_mean_what_they_say(number: int, unit: str) -> None:
    assert (
        parse_size(f"{number}{unit}") == number * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[unit]
    )
    with pytest.raises(ValueError, match="not a size"):
        parse_size(f"-{number}{unit}")
