# SPDX-License-Identifier: Apache-2.0
"""Measured settings: what is chosen, what a file may do, and what a start makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pyrdnaar import (
    Communicator,
    Config,
    Exchange,
    ThreadExchange,
    files,
    load,
    run_threads,
    tuning,
)
from pyrdnaar.tuning import Timing, Tuned

KEY: tuning.Key = {"backend": "host", "devices": ["cpu", "cpu"]}
SOME = Tuned(ll_max_bytes=4096, oneshot_max_bytes=65536, blocks=7, pace=3)


# ---- The choice --------------------------------------------------------------------------------

SIZES = [1024, 4096, 16384, 65536]
BY_DEFAULT = dict.fromkeys(SIZES, "twoshot")


def _timings(time: Callable[[int, int, str, int], float]) -> list[Timing]:
    return [
        Timing(blocks, pace, algo, size, time(blocks, pace, algo, size))
        for blocks in (0, 4)
        for pace in (0, 9)
        for algo in ("ll", "oneshot", "twoshot")
        for size in SIZES
    ]


def test_thresholds_lie_where_another_algorithm_becomes_faster() -> None:
    def time(blocks: int, pace: int, algo: str, size: int) -> float:
        start, each = {"ll": (1, 4), "oneshot": (3, 1), "twoshot": (9, 0.5)}[algo]
        return start + each * size / 4096 + blocks + pace

    choice = tuning.choose(_timings(time), BY_DEFAULT)
    # Crossings by that line: ll and oneshot at 2730 bytes, oneshot and twoshot at 49152.
    assert choice.tuned == Tuned(1024, 16384)
    assert choice.gain > 0.1


def test_blocks_and_pace_are_chosen_where_they_help() -> None:
    def time(blocks: int, pace: int, *_: object) -> float:
        return 10 - (blocks == 4) - (pace == 9)

    tuned = tuning.choose(_timings(time), BY_DEFAULT).tuned
    assert (tuned.blocks, tuned.pace) == (4, 9)


def test_what_is_hardly_faster_leaves_the_defaults() -> None:
    def time(gain: float) -> Callable[[int, int, str, int], float]:
        return lambda blocks, pace, algo, size: 10.0 * (1 - gain * (blocks == 4))

    assert tuning.choose(_timings(time(0.02)), BY_DEFAULT) == tuning.Choice(Tuned(), 0.0)
    choice = tuning.choose(_timings(time(0.05)), BY_DEFAULT)
    assert choice.tuned.blocks == 4
    assert choice.gain == pytest.approx(0.05)


def test_what_was_refused_is_not_chosen() -> None:
    timings = _timings(lambda blocks, pace, algo, size: 1.0 if algo == "ll" else 5.0)
    some = [t for t in timings if not (t.algo == "ll" and t.nbytes > 4096)]
    assert tuning.choose(some, BY_DEFAULT).tuned.ll_max_bytes == 4096


# ---- The file ----------------------------------------------------------------------------------


def test_an_entry_holds_for_its_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tune.json"
    other = {**KEY, "devices": ["cpu"] * 3}
    tuning.write(path, KEY, SOME, [{"bytes": 4096}])
    assert path.stat().st_mode & 0o777 == 0o600
    assert tuning.read(path, KEY)[0] == SOME
    assert tuning.read(path, other) == (Tuned(), f"{path} has no entry for this group")
    tuning.write(path, other, Tuned(blocks=1), [])
    tuning.write(path, KEY, Tuned(blocks=2), [])
    assert tuning.read(path, KEY)[0].blocks == 2
    assert tuning.read(path, other)[0].blocks == 1
    assert len(json.loads(path.read_text())["entries"]) == 2


def test_a_file_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "tune.json"
    for number in range(tuning.MAX_ENTRIES + 3):
        tuning.write(path, {"number": number}, SOME, [])
    assert [tuning.read(path, {"number": n})[0] == SOME for n in (2, 3)] == [False, True]


def test_no_file_is_nothing_to_talk_about(tmp_path: Path) -> None:
    assert tuning.read(tmp_path / "none", KEY) == (Tuned(), "")


DAMAGE: list[tuple[Any, str]] = [
    ([], "holds no JSON object"),
    ({}, 'it has no list "entries"'),
    ({"entries": [1]}, "entry 0 has no key, when and settings"),
    ({"entries": [{"key": KEY, "when": "", "settings": {"blocks": 10**6}}]}, "blocks = 1000000"),
    ({"entries": [{"key": KEY, "when": "", "settings": {"blocks": True}}]}, "blocks = True"),
    ({"entries": [{"key": KEY, "when": "", "settings": {"rank": 1}}]}, "its settings are 'rank'"),
]


@pytest.mark.parametrize(("data", "said"), DAMAGE)
def test_a_damaged_file_is_not_used_and_is_replaced(tmp_path: Path, data: Any, said: str) -> None:
    path = tmp_path / "tune.json"
    path.write_text(json.dumps(data))
    tuned, origin = tuning.read(path, KEY)
    assert tuned == Tuned()
    assert said in origin
    tuning.write(path, KEY, SOME, [])
    assert tuning.read(path, KEY)[0] == SOME


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
NAMES = st.sampled_from([*asdict(SOME), "algo", "rank"])
ALMOST_RIGHT = st.fixed_dictionaries(
    {
        "entries": st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.just(KEY) | JSON,
                    "when": st.just("now") | JSON,
                    "settings": st.dictionaries(NAMES, st.integers(-1, 5000) | JSON) | JSON,
                }
            ),
            max_size=3,
        )
    }
)


@hypothesis_settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=200) | (ALMOST_RIGHT | JSON).map(lambda d: json.dumps(d).encode()))
def test_any_file_gives_settings_that_a_config_accepts(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-tune.json"
    path.write_bytes(raw)
    tuned, origin = tuning.read(path, KEY)
    assert origin
    config = tuning.apply(Config(), tuned)
    assert config == replace(Config(), **asdict(tuned))


# ---- A start -----------------------------------------------------------------------------------


def test_what_was_set_counts_more_than_what_was_tuned() -> None:
    mine = Config(ll_max_bytes=0, blocks=9)
    applied = tuning.apply(mine, SOME)
    assert applied == replace(mine, oneshot_max_bytes=65536, pace=3)
    assert tuning.leaves_open(mine)
    assert not tuning.leaves_open(replace(applied, pace=1))


def _start(exchange: Exchange, paths: list[Path], **settings: Any) -> tuple[Config, str, list[str]]:
    config = Config(tune_file=str(paths[exchange.rank]), prove="never", **settings)
    with Communicator(exchange.rank, exchange.world_size, exchange, "host", config=config) as comm:
        assert comm.all_reduce(np.ones(5, np.float32))[0] == exchange.world_size
        algos = [comm.plan(n // 4, "fp32").algo for n in (4096, 8192, 65536, 131072)]
        return comm.config, comm.tuning, algos


@pytest.mark.usefixtures("lib")
def test_rank_0s_file_counts_for_all(tmp_path: Path) -> None:
    key = tuning.key_of(load("host").build_info(), _devices(2), "auto")
    paths = [tmp_path / "0.json", tmp_path / "1.json"]
    tuning.write(paths[0], key, SOME, [])
    tuning.write(paths[1], key, Tuned(blocks=1), [])

    def work(exchange: ThreadExchange) -> tuple[Config, str, list[str]]:
        return _start(exchange, paths)

    for rank, (config, origin, algos) in enumerate(run_threads(work, 2)):
        assert tuning.apply(Config(tune_file=str(paths[rank]), prove="never"), SOME) == config
        assert origin.startswith(f"{paths[0]}, ")
        assert algos == ["ll", "oneshot", "oneshot", "twoshot"]


@pytest.mark.usefixtures("lib")
@pytest.mark.parametrize("content", [None, b"{", b"x" * (files.MAX_BYTES + 1)])
def test_a_start_does_without(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tune.json"
    if content is not None:
        path.write_bytes(content)

    def work(exchange: ThreadExchange) -> tuple[Config, str, list[str]]:
        return _start(exchange, [path] * 2)

    for config, origin, _ in run_threads(work, 2):
        assert config == Config(tune_file=str(path), prove="never")
        assert (f"{path} is not used" in origin) == (content is not None)


def _devices(world_size: int) -> list[str]:
    info = load("host").device(0)
    return [f"{info.architecture} {info.pci_bus_id}".strip()] * world_size
