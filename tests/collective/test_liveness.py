# SPDX-License-Identifier: Apache-2.0
"""A peer that dies, a runtime that refuses a call, handles that go away in any order."""

from __future__ import annotations

import logging
import os
import signal
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyrdnaar

from .raw import ALGOS, BACKEND, Rank

BOUND_MS = 5000


def _death(exchange: pyrdnaar.Exchange, algo: str, calls: int) -> dict[str, Any]:
    """Rank 1 dies; the others wait for it in a call, and are told long before their bound."""
    rank = Rank(exchange, 4096, timeout_ms=BOUND_MS, warmup_timeout_ms=BOUND_MS)
    for turn in range(calls):
        rank.check(rank.inputs(64, "fp32", turn), "fp32", algo=algo)
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    rank.comm.all_reduce_ptr(
        rank.input.ptr, rank.output.ptr, 64, "fp32", algo=algo, stream=rank.stream
    )
    rank.stream.sync()
    took = time.monotonic() - start
    seen = rank.output.read(np.zeros(64, np.float32), stream=rank.stream)
    assert np.isnan(seen).all()
    record = rank.comm.abort_record()
    assert record is not None
    with pytest.raises(pyrdnaar.AbortError) as caught:
        rank.comm.check()
    assert caught.value.record == record
    start = time.monotonic()
    rank.stream.close()
    rank.comm.close()
    assert time.monotonic() - start < 1, "a dead peer is not waited for"
    return {"reason": record.reason, "peer": record.peer, "took": took}


def _survivors(world: int, algo: str, calls: int, folder: Path) -> list[dict[str, Any]]:
    with pytest.raises(pyrdnaar.RankError, match="rank 1 failed:\nkilled by signal 9"):
        pyrdnaar.run_ranks(_keep, world, str(folder), algo, calls, timeout=60)
    return [eval(path.read_text()) for path in sorted(folder.iterdir())]


def _keep(exchange: pyrdnaar.Exchange, folder: str, algo: str, calls: int) -> None:
    try:
        said = repr(_death(exchange, algo, calls))
    except BaseException:
        # run_ranks() tells of the killed rank alone.
        said = repr({"failed": traceback.format_exc()})
    Path(folder, str(exchange.rank)).write_text(said)


@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize("algo", ALGOS)
def test_a_killed_peer_is_named_at_once(algo: str, calls: int, tmp_path: Path) -> None:
    results = _survivors(3, algo, calls, tmp_path)
    assert len(results) == 2
    for result in results:
        assert "failed" not in result, result["failed"]
        assert result["took"] < 1, result
        # Whoever sees it first; the other may learn it from a call that was told.
        assert result["reason"] in ("peer_dead", "peer_aborted"), result
    assert {"peer_dead"} <= {r["reason"] for r in results}
    assert all(r["peer"] == 1 for r in results if r["reason"] == "peer_dead")


def _idle(exchange: pyrdnaar.Exchange, folder: str) -> None:
    rank = Rank(exchange, 4096)
    rank.check(rank.inputs(64, "fp32", 0), "fp32")
    exchange.all_gather(b"reduced")
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    end = time.monotonic() + 1
    while rank.comm.abort_record() is None and time.monotonic() < end:
        time.sleep(0.001)
    record = rank.comm.abort_record()
    assert record is not None, "no call was made, and the death was noticed all the same"
    assert (record.reason, record.peer, record.phase) == ("peer_dead", 1, "none")
    with pytest.raises(pyrdnaar.AbortError, match="peer_dead on rank 0, peer 1"):
        rank.comm.all_reduce_ptr(rank.input.ptr, rank.output.ptr, 64, "fp32", stream=rank.stream)
    Path(folder, "seen").touch()


def test_a_killed_peer_is_noticed_between_calls(tmp_path: Path) -> None:
    with pytest.raises(pyrdnaar.RankError, match="killed by signal 9"):
        pyrdnaar.run_ranks(_idle, 2, str(tmp_path), timeout=60)
    assert (tmp_path / "seen").exists()


def _leaves_first(exchange: pyrdnaar.Exchange) -> None:
    """A process that has closed its communicator may end: that is no death."""
    with Rank(exchange, 4096) as rank:
        rank.check(rank.inputs(64, "fp32", 0), "fp32")
        if rank.rank == 0:
            time.sleep(1.0)  # the others have closed and ended by now
            rank.comm.check()
            assert rank.comm.abort_record() is None
            rank.exchange = _Alone()
        else:
            rank.comm.close()
            rank.exchange = _Alone()


def _forgets(exchange: pyrdnaar.Exchange, folder: str) -> None:
    """Rank 0 lets go of a communicator without waiting, while a call waits for rank 1."""
    rank = Rank(exchange, 4096, timeout_ms=60000)
    rank.check(rank.inputs(64, "fp32", 0), "fp32")
    if rank.rank == 0:
        rank.comm.all_reduce_ptr(rank.input.ptr, rank.output.ptr, 64, "fp32", stream=rank.stream)
        status = rank.comm.library.c.rdnaar_destroy_now(rank.comm._disown())
        assert status == pyrdnaar._abi.Status.E_BUSY
    exchange.all_gather(b"")
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    rank.stream.sync()
    assert time.monotonic() - start < 10, "the death was not noticed any more"
    Path(folder, "ended").touch()


def test_a_death_ends_calls_whose_communicator_was_let_go_of(tmp_path: Path) -> None:
    with pytest.raises(pyrdnaar.RankError, match="rank 1 failed:\nkilled by signal 9"):
        pyrdnaar.run_ranks(_forgets, 2, str(tmp_path), timeout=100)
    assert (tmp_path / "ended").exists()


class _Alone:
    """In the place of an exchange whose other ends are gone."""

    def all_gather(self, data: bytes) -> list[bytes]:
        return [data]


def test_a_peer_that_closed_may_end() -> None:
    pyrdnaar.run_ranks(_leaves_first, 3, timeout=60)


def _early(exchange: pyrdnaar.Exchange) -> None:
    """Rank 0 destroys its communicator long before the others do."""
    rank = Rank(exchange, 4096)
    rank.check(rank.inputs(64, "fp32", 0), "fp32")
    exchange.all_gather(b"")
    if rank.rank == 0:
        notes: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: notes.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("pyrdnaar").addHandler(handler)
        start = time.monotonic()
        rank.stream.close()
        rank.comm.close()
        took = time.monotonic() - start
        # Device memory must outlast the peers' mappings; host memory does so by itself.
        if rank.comm.transport == "p2p":
            assert 2 <= took < 5, took
            assert any("still has this rank's memory open" in note for note in notes), notes
        else:
            assert took < 1, took
            assert notes == []
    exchange.all_gather(b"")
    rank.comm.close()


def test_closing_long_before_the_peers_is_bounded() -> None:
    pyrdnaar.run_ranks(_early, 2, timeout=60)


@pytest.mark.skipif(BACKEND == "host", reason="CPU ranks share the device anyway")
def test_two_ranks_on_one_gpu_must_be_asked_for() -> None:
    def work(exchange: pyrdnaar.Exchange) -> str:
        with pytest.raises(pyrdnaar.Disabled) as caught:
            Rank(exchange, 64, share_device=False).comm.close()
        return str(caught.value)

    # More ranks than any machine of the tests has GPUs.
    messages = pyrdnaar.run_threads(work, 8, timeout=60)
    if len(set(messages)) == 1 and "RDNAAR_SHARE_DEVICE" not in messages[0]:
        pytest.skip("this machine has a GPU for every rank")
    assert len(set(messages)) == 1
    assert "is that of rank 0 too" in messages[0]


@pytest.mark.skipif("RDNAAR_LIBRARY" in os.environ, reason="that library may not be made for speed")
def test_a_check_costs_less_than_a_microsecond() -> None:
    """By the shortest of many: what a busy machine adds is not the check's."""

    def work(exchange: pyrdnaar.Exchange) -> float:
        with Rank(exchange, 4096) as rank:
            best = 1.0
            for _ in range(200):
                start = time.perf_counter()
                for _ in range(20):
                    rank.comm.check()
                best = min(best, (time.perf_counter() - start) / 20)
            return best

    assert max(pyrdnaar.run_threads(work, 2, timeout=60)) < 1e-6


def _cycle(exchange: pyrdnaar.Exchange, turn: int, order: int) -> None:
    """Made, used, and closed in an order of its own."""
    rank = Rank(exchange, 4096)
    rank.check(rank.inputs(turn % 100 + 1, "bf16", turn), "bf16", algo=ALGOS[turn % 3])
    exchange.all_gather(b"")
    time.sleep((rank.rank + order) % exchange.world_size * 0.002)
    start = time.monotonic()
    rank.stream.close()
    rank.comm.close()
    assert time.monotonic() - start < 4
    rank.input.close()
    rank.output.close()


def _footprint() -> dict[str, int]:
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "maps of ours": Path("/proc/self/maps").read_text(errors="replace").count("memfd:rdnaar"),
    }


def _cycles(exchange: pyrdnaar.Exchange, turns: int) -> tuple[dict[str, int], dict[str, int]]:
    for turn in range(5):
        _cycle(exchange, turn, turn)  # what is loaded once
    exchange.all_gather(b"")
    before = _footprint()
    for turn in range(turns):
        _cycle(exchange, turn, turn)
    exchange.all_gather(b"")
    time.sleep(0.2)  # a thread that has been joined is in /proc for a moment longer
    return before, _footprint()


# On GPUs a cycle allocates and frees device memory that other ranks use: fewer show as much.
TURNS = 200 if BACKEND == "host" else 40


def test_cycles_in_any_order_leave_nothing() -> None:
    for before, after in pyrdnaar.run_ranks(_cycles, 3, TURNS, timeout=300):
        assert all(after[name] <= before[name] for name in before), (before, after)
