# SPDX-License-Identifier: Apache-2.0
"""A rank that is absent, late, makes another call or gives up: bounded, named, never silent."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import pyrdnaar

from .raw import ALGOS, Rank

BOUND_MS = 400


def _absent(exchange: pyrdnaar.Exchange, algo: str, queued: int) -> None:
    with Rank(exchange, 4096, timeout_ms=BOUND_MS) as rank:
        rank.check(rank.inputs(64, "fp32", 0), "fp32", algo=algo)  # past the warm-up bound
        if rank.rank == 0:
            exchange.all_gather(b"absent")  # until the others have given up
            return
        rank.input.write(np.ones(64, np.float32), stream=rank.stream)
        start = time.monotonic()
        for _ in range(queued):
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 64, "fp32", algo=algo, stream=rank.stream
            )
        rank.stream.sync()
        took = time.monotonic() - start
        # One bound for all the queued calls, and some room for a machine of two cores.
        assert took < BOUND_MS / 1000 * 1.2 + 0.3, took
        seen = rank.output.read(np.zeros(64, np.float32), stream=rank.stream)
        assert np.isnan(seen).all()
        record = rank.comm.abort_record()
        assert record is not None
        if record.reason == "timeout":
            assert record.peer == 0
            assert record.waited_ms >= BOUND_MS
            assert took >= BOUND_MS / 1000, took
            assert record.epoch == 1
        else:  # another rank had begun a little sooner, gave up and said so
            assert record.reason == "peer_aborted"
            assert record.peer > 0
        start = time.monotonic()
        with pytest.raises(pyrdnaar.AbortError):
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 64, "fp32", stream=rank.stream
            )
        assert time.monotonic() - start < BOUND_MS / 1000 / 2, "a second bound is not waited"
        with pytest.raises(pyrdnaar.AbortError):
            rank.comm.check()
        exchange.all_gather(b"gave up")


@pytest.mark.parametrize("algo", ALGOS)
def test_absent_peer_is_a_timeout(algo: str) -> None:
    pyrdnaar.run_threads(_absent, 2, algo, 1, timeout=60)
    pyrdnaar.run_threads(_absent, 3, algo, 100, timeout=60)


def _late(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096, timeout_ms=5000, warmup_timeout_ms=5000, late_ms=100) as rank:
        inputs = rank.inputs(200, "bf16", 0)
        rank.check(inputs, "bf16")
        assert rank.comm.late_record() is None
        for turn, algo in enumerate(ALGOS, 1):
            if rank.rank == 1:
                time.sleep(0.4)
            rank.check(inputs, "bf16", algo=algo)
            record = rank.comm.late_record()
            if rank.rank == 0:
                assert record is not None
                assert record.peer == 1
                assert record.count == turn
                assert 250 <= record.waited_ms < 5000
        rank.comm.check()


def test_late_peer_is_noted_and_right() -> None:
    pyrdnaar.run_threads(_late, 2, timeout=60)


def _warm_up(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096, timeout_ms=200, warmup_timeout_ms=10000) as rank:
        if rank.rank == 1:
            time.sleep(0.8)
        rank.check(rank.inputs(64, "fp32", 0), "fp32")


def test_first_call_has_the_warm_up_bound() -> None:
    pyrdnaar.run_threads(_warm_up, 2, timeout=60)


def _mismatch(exchange: pyrdnaar.Exchange, base: str, other: dict[str, Any]) -> None:
    with Rank(exchange, 1 << 16, timeout_ms=BOUND_MS, warmup_timeout_ms=BOUND_MS) as rank:
        call: dict[str, Any] = {"count": 64, "dtype": "fp16", "op": "sum", "algo": base}
        if rank.rank == 1:
            call |= other
        guard = np.full(1 << 15, 0x11, np.uint8)
        rank.output.write(guard, stream=rank.stream)
        rank.input.write(np.ones(1 << 14, np.float16), stream=rank.stream)
        nbytes = call["count"] * (4 if call["dtype"] == "fp32" else 2)
        rank.comm.all_reduce_ptr(
            rank.input.ptr,
            rank.output.ptr,
            call["count"],
            call["dtype"],
            call["op"],
            call["algo"],
            rank.stream,
        )
        rank.stream.sync()
        record = rank.comm.abort_record()
        assert record is not None
        assert record.reason in ("mismatch", "peer_aborted", "timeout"), record
        seen = rank.output.read(np.empty_like(guard), stream=rank.stream)
        assert np.array_equal(seen[nbytes:], guard[nbytes:]), "memory behind the output was touched"
        result = seen[:nbytes].view(np.float32 if call["dtype"] == "fp32" else np.float16)
        assert np.isnan(result).all()
        assert b"mismatch" in exchange.all_gather(record.reason.encode())


@pytest.mark.parametrize(
    "other",
    [
        {"count": 65},
        {"count": 4096},
        {"dtype": "bf16"},
        {"dtype": "fp32"},
        {"op": "max"},
        {"op": "avg"},
        {"algo": "ll"},
        {"algo": "twoshot"},
        {"count": 20000, "algo": "twoshot"},
    ],
    ids=str,
)
def test_different_calls_are_a_mismatch(other: dict[str, Any]) -> None:
    for base in ALGOS:
        if other.get("algo") != base:
            pyrdnaar.run_threads(_mismatch, 2, base, other, timeout=60)
            pyrdnaar.run_threads(_mismatch, 3, base, other, timeout=60)


def test_mismatch_says_what_both_ranks_called() -> None:
    def run(exchange: pyrdnaar.Exchange) -> str:
        with Rank(exchange, 4096, timeout_ms=BOUND_MS, warmup_timeout_ms=BOUND_MS) as rank:
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 10 + rank.rank, "fp32", stream=rank.stream
            )
            rank.stream.sync()
            record = rank.comm.abort_record()
            assert record is not None
            return str(record)

    texts = pyrdnaar.run_threads(run, 2, timeout=60)
    text = next(t for t in texts if "mismatch" in t.lower())
    assert "10 x fp32" in text, text
    assert "11 x fp32" in text, text


def _one_more(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096, timeout_ms=BOUND_MS) as rank:
        rank.check(rank.inputs(64, "fp32", 0), "fp32")
        if rank.rank == 1:
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 64, "fp32", stream=rank.stream
            )
            rank.stream.sync()
            record = rank.comm.abort_record()
            assert record is not None
            assert record.reason == "timeout"
            assert record.peer == 0
        exchange.all_gather(b"")


def test_one_call_more_is_a_timeout() -> None:
    pyrdnaar.run_threads(_one_more, 2, timeout=60)


def _user_abort(exchange: pyrdnaar.Exchange) -> None:
    with Rank(exchange, 4096, warmup_timeout_ms=60000) as rank:
        if rank.rank == 0:
            time.sleep(0.1)
            rank.comm.abort("had enough")
            record = rank.comm.abort_record()
            assert record is not None
            assert record.reason == "user"
        else:
            start = time.monotonic()
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 64, "fp32", stream=rank.stream
            )
            rank.stream.sync()
            assert time.monotonic() - start < 5
            record = rank.comm.abort_record()
            assert record is not None
            assert record.reason == "peer_aborted"
        exchange.all_gather(b"")


def test_abort_reaches_the_peers() -> None:
    pyrdnaar.run_threads(_user_abort, 4, timeout=60)


def _told(exchange: pyrdnaar.Exchange) -> None:
    """Rank 0 does not come; rank 2 comes a second after rank 1; both give up together."""
    with Rank(exchange, 4096, timeout_ms=2000, warmup_timeout_ms=2000) as rank:
        if rank.rank > 0:
            time.sleep(rank.rank - 1)
            start = time.monotonic()
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 64, "fp32", stream=rank.stream
            )
            rank.stream.sync()
            took = time.monotonic() - start
            record = rank.comm.abort_record()
            assert record is not None
            if rank.rank == 2:
                assert (record.reason, record.peer) == ("peer_aborted", 1)
                assert took < 1.7, took
        exchange.all_gather(b"")


def test_timeout_reaches_the_peers() -> None:
    pyrdnaar.run_threads(_told, 3, timeout=60)


def _aborted_before(exchange: pyrdnaar.Exchange, algo: str) -> None:
    """Rank 0 gives up in a call for which it has sent all its data."""
    with Rank(exchange, 4096) as rank:
        if rank.rank == 1:
            exchange.all_gather(b"")
            rank.input.write(np.ones(64, np.float32), stream=rank.stream)
        rank.comm.all_reduce_ptr(
            rank.input.ptr, rank.output.ptr, 64, "fp32", algo=algo, stream=rank.stream
        )
        if rank.rank == 0:
            time.sleep(0.2)
            rank.comm.abort("had enough")
            exchange.all_gather(b"")
        rank.stream.sync()
        assert np.isnan(rank.output.read(np.zeros(64, np.float32), stream=rank.stream)).all()
        exchange.all_gather(b"")


@pytest.mark.parametrize("algo", ALGOS)
def test_no_call_completes_after_an_abort(algo: str) -> None:
    pyrdnaar.run_threads(_aborted_before, 2, algo, timeout=60)


def _again(exchange: pyrdnaar.Exchange) -> None:
    """The ranks of a dead communicator make a new one."""
    with Rank(exchange, 4096, timeout_ms=200, warmup_timeout_ms=200) as rank:
        if rank.rank:
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, 64, "fp32", stream=rank.stream
            )
            rank.stream.sync()
            assert rank.comm.abort_record() is not None
        exchange.all_gather(b"")
    with Rank(exchange, 4096) as rank:
        rank.check(rank.inputs(64, "fp32", 0), "fp32")


def test_new_communicator_after_an_abort() -> None:
    pyrdnaar.run_threads(_again, 3, timeout=60)


def _destroy_during_calls(exchange: pyrdnaar.Exchange) -> None:
    comm_rank = Rank(exchange, 4096, warmup_timeout_ms=600000)
    if comm_rank.rank == 1:
        for _ in range(5):
            comm_rank.comm.all_reduce_ptr(
                comm_rank.input.ptr, comm_rank.output.ptr, 64, "fp32", stream=comm_rank.stream
            )
        start = time.monotonic()
        comm_rank.comm.close()  # nobody comes: bounded all the same
        assert time.monotonic() - start < 5
    exchange.all_gather(b"")
    comm_rank.__exit__(None)


def test_destroy_during_calls_is_bounded() -> None:
    pyrdnaar.run_threads(_destroy_during_calls, 2, timeout=60)
