# SPDX-License-Identifier: Apache-2.0
"""Injected faults: steps of the start that fail, links that lie, a runtime that refuses a call.

They need a library of its own (`make host FAULTS=1`), which the normal one shows no trace of.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import pyrdnaar
from pyrdnaar import startup, wedge
from pyrdnaar._library import FILE_NAMES

from .raw import ALGOS, BACKEND, Rank, config

ROOT = Path(__file__).resolve().parent.parent.parent
FAULTY = ROOT / "build" / "host-g++-faults" / FILE_NAMES[BACKEND]
NORMAL = ROOT / "build" / "lib" / FILE_NAMES[BACKEND]


def _missing(path: Path) -> NoReturn:
    refuse = pytest.fail if "CI" in os.environ else pytest.skip
    refuse(f"{path} is missing: run `make {BACKEND} FAULTS=1`")


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """fault("corrupt,rank=1,peer=0") for the communicators made after it; "" ends it."""
    if not FAULTY.exists():
        _missing(FAULTY)
    return lambda spec: monkeypatch.setenv("RDNAAR_FAULT", spec)


def _faulty(**changes: Any) -> dict[str, Any]:
    return {"library": str(FAULTY), "timeout_ms": 2000, "warmup_timeout_ms": 2000} | changes


def test_the_normal_library_has_no_trace_of_faults() -> None:
    if not NORMAL.exists():
        _missing(NORMAL)
    words = (b"RDNAAR_FAULT", b"injected fault", b"Injection", b"FaultyLane", b"faults/")
    raw = NORMAL.read_bytes()
    assert [word for word in words if word in raw] == []
    if FAULTY.exists():  # the test would see them
        raw = FAULTY.read_bytes()
        assert all(word in raw for word in words[:2])


# ---- Start-up ----------------------------------------------------------------------------------


def _refused(world: int, **changes: Any) -> list[pyrdnaar.Disabled]:
    """Every rank's error, after each has shown that a second try with a good library works."""

    def work(exchange: pyrdnaar.Exchange) -> pyrdnaar.Disabled:
        start = time.monotonic()
        settings = config(**_faulty(**changes))
        with pytest.raises(pyrdnaar.Disabled) as caught:
            pyrdnaar.Communicator(
                exchange.rank, world, exchange, backend=BACKEND, config=settings
            ).close()
        assert time.monotonic() - start < 30
        return caught.value

    return pyrdnaar.run_threads(work, world, timeout=120)


@pytest.mark.parametrize("point", ["init", "export", "register"])
@pytest.mark.parametrize("odd", [0, 2])
def test_a_failing_step_disables_all(fault: Callable[[str], None], point: str, odd: int) -> None:
    fault(f"{point},rank={odd}")
    errors = _refused(3)
    assert {(str(e), e.rank) for e in errors} == {(str(errors[0]), odd)}
    assert f"injected fault at {point}" in errors[0].reason
    fault("")
    _works(3)


def _works(world: int, **changes: Any) -> list[tuple[str, str]]:
    """What every rank's communicator says of its transport, once it has reduced something."""

    def work(exchange: pyrdnaar.Exchange) -> tuple[str, str]:
        with Rank(exchange, 1 << 18, **_faulty(**changes)) as rank:
            for algo in ALGOS:
                rank.check(rank.inputs(30000, "fp32", 1), "fp32", algo=algo)
            return rank.comm.transport, rank.comm.fallback

    return pyrdnaar.run_threads(work, world, timeout=120)


@pytest.mark.parametrize("kind", ["corrupt", "drop"])
@pytest.mark.parametrize("pair", [(1, 0), (0, 1), (2, 1)])
def test_a_lying_link_is_found_and_named(
    fault: Callable[[str], None], kind: str, pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the transport that is asked for: an error on all ranks that names the pair."""
    monkeypatch.setattr(startup, "PROVING_MS", 1000)
    source, target = pair
    fault(f"{kind},rank={source},peer={target}")
    errors = _refused(3, prove="always", transport="host")
    assert len({(str(e), e.rank) for e in errors}) == 1
    if kind == "corrupt":
        assert errors[0].rank == target
        assert f"data from rank {source} to rank {target} comes wrong" in errors[0].reason
        assert "expected 0x" in errors[0].reason
        assert "wrong elements; first: ll fp16" in errors[0].reason
    else:
        # The target waits for the source, and moments later the others for the target: whose bound
        # is noticed first is chance, but each names the one it waits for.
        waits = f"timeout on rank {target}, peer {source}", f", peer {target}, call"
        assert any(text in errors[0].reason for text in waits), errors[0].reason
    fault("")
    _works(3, prove="always")


def test_a_slow_link_is_right_and_noted(fault: Callable[[str], None]) -> None:
    fault("stall,rank=1,peer=0")

    def work(exchange: pyrdnaar.Exchange) -> int:
        with Rank(exchange, 4096, **_faulty(late_ms=100)) as rank:
            for algo in ALGOS:
                rank.check(rank.inputs(64, "bf16", 0), "bf16", algo=algo)
            late = rank.comm.late_record()
            return late.count if late and late.peer == 1 else 0

    counts = pyrdnaar.run_threads(work, 2, timeout=60)
    assert counts[0] >= 3
    assert counts[1] <= 3  # it waits for nobody but the gather of a rank that was late itself


@pytest.mark.skipif(BACKEND == "host", reason="the host library has one transport")
@pytest.mark.parametrize("kind", ["corrupt", "drop"])
def test_broken_peer_memory_is_replaced_by_host_memory(
    fault: Callable[[str], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "PROVING_MS", 1000)
    fault(f"{kind},rank=1,peer=0,transport=p2p")
    for transport, fallback in _works(2, prove="always", transport="auto"):
        assert transport == "host"
        assert any(text in fallback for text in ("rank 1 to rank 0", "rank 0, peer 1")), fallback
    errors = _refused(2, prove="always", transport="p2p")  # forcing the failed path is an error
    assert len({(str(e), e.rank) for e in errors}) == 1


# ---- A call that the runtime refuses -----------------------------------------------------------


def _refusal(exchange: pyrdnaar.Exchange, algo: str) -> str:
    """Call 2 of rank 1 does not start: no rank may take its next call for it."""
    with Rank(exchange, 4096, **_faulty()) as rank:
        for turn in range(2):
            rank.check(rank.inputs(64, "fp32", turn), "fp32", algo=algo)

        def call() -> None:
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 64, "fp32", algo=algo, stream=rank.stream
            )
            rank.stream.sync()

        rank.input.write(np.ones(64, np.float32), stream=rank.stream)
        exchange.all_gather(b"")  # the others have seen their last results
        if rank.rank == 1:
            with pytest.raises(pyrdnaar.RdnaarError, match="injected fault at launch"):
                call()
        else:
            call()
            seen = rank.output.read(np.zeros(64, np.float32), stream=rank.stream)
            assert np.isnan(seen).all()
        with pytest.raises(pyrdnaar.AbortError):
            call()
        record = rank.comm.abort_record()
        assert record is not None
        exchange.all_gather(b"")
        return f"{record.reason} {record.peer}"


@pytest.mark.parametrize("algo", ALGOS)
def test_a_refused_call_aborts_all(fault: Callable[[str], None], algo: str) -> None:
    fault("launch,rank=1,call=2")
    records = pyrdnaar.run_threads(_refusal, 3, algo, timeout=60)
    assert records[1] == "runtime -1"
    # A peer learns it from rank 1, or from the other that has.
    assert records[0] in ("peer_aborted 1", "peer_aborted 2")
    assert records[2] in ("peer_aborted 1", "peer_aborted 0")


def test_a_refused_call_leaves_a_marker(fault: Callable[[str], None], tmp_path: Path) -> None:
    """On the rank whose call was refused, though that error is not the abort."""
    path = tmp_path / "wedge.json"
    fault("launch,rank=1")

    def work(exchange: pyrdnaar.Exchange) -> None:
        with Rank(exchange, 64, **_faulty(wedge_file=str(path))) as rank:
            if rank.rank == 1:
                with pytest.raises(pyrdnaar.RdnaarError, match="injected fault at launch"):
                    rank.comm.all_reduce_ptr(
                        rank.input.ptr, rank.output.ptr, 4, "fp32", stream=rank.stream
                    )

    pyrdnaar.run_threads(work, 2, timeout=60)
    data = wedge.read(path)
    assert data is not None
    assert data["record"]["reason"] == "runtime"


def test_faults_that_are_not_understood_are_refused(fault: Callable[[str], None]) -> None:
    for spec in ("corrupt,rank=x", "corrupt,who=1", "drop,transport=tcp"):
        fault(spec)
        errors = _refused(2)
        assert "RDNAAR_FAULT" in errors[0].reason


# ---- The verdict file --------------------------------------------------------------------------


def test_a_verdict_is_remembered_until_its_key_changes(
    fault: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(startup, "PROVING_MS", 1000)
    fault("")
    _works(2, prove="auto")
    (verdict,) = (tmp_path / "pyrdnaar").glob("proof-*.json")
    assert verdict.stat().st_mode & 0o777 == 0o600
    fault("corrupt,rank=0,peer=1,call=100000")  # proving would not find it either
    _works(2, prove="auto")
    fault("corrupt,rank=0,peer=1")
    # Remembered: not proven again, so the calls themselves show the fault.
    with pytest.raises(AssertionError):
        _works(2, prove="auto")
    changed = dataclasses.asdict(config())["max_bytes"] // 2
    assert "data from rank 0 to rank 1" in _refused(2, prove="auto", max_bytes=changed)[0].reason
    assert len(list((tmp_path / "pyrdnaar").glob("proof-*.json"))) == 1, "a failure is not kept"
    for damage in (b"", b"{", b"[]", b'{"key": {}}', b"x" * (2 << 20), b"\xff\xfe"):
        verdict.write_bytes(damage)
        assert "data from rank 0 to rank 1" in _refused(2, prove="auto")[0].reason
    fault("")
    _works(2, prove="auto")
    assert b'"key"' in verdict.read_bytes(), "a damaged file is written anew"


def test_a_cache_that_cannot_be_written_is_done_without(
    fault: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "file"
    place.write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    fault("")
    _works(2, prove="auto")
    _works(2, prove="auto")
