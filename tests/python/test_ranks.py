# SPDX-License-Identifier: Apache-2.0
"""run_ranks() and run_threads(): results, failures, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from pyrdnaar import ExchangeError, PipeExchange, RankError, ThreadExchange, run_ranks, run_threads

AnyExchange = PipeExchange | ThreadExchange


def _square(exchange: AnyExchange, offset: int) -> tuple[int, int, list[bytes]]:
    gathered = exchange.all_gather(bytes([exchange.rank]) * exchange.rank)
    return exchange.rank**2 + offset, exchange.world_size, gathered


def _fail(exchange: AnyExchange, failing: int) -> None:
    if exchange.rank == failing:
        raise KeyError("planted")
    exchange.all_gather(b"")


def _fail_oddly(exchange: AnyExchange) -> None:
    class Odd(Exception):
        """Local classes cannot be pickled."""

    raise Odd("planted")


def _die(exchange: AnyExchange) -> None:
    if exchange.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    exchange.all_gather(b"")


def _exit(exchange: AnyExchange) -> None:
    os._exit(7)


def _sleep(exchange: AnyExchange, stubborn: bool) -> None:
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if exchange.rank == 1:
        time.sleep(60)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_threads_give_results_in_rank_order(world_size: int) -> None:
    _check_results(run_threads(_square, world_size, 10, timeout=30), world_size)


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.usefixtures("descriptors")
def test_processes_give_results_in_rank_order(world_size: int) -> None:
    _check_results(run_ranks(_square, world_size, 10, timeout=60), world_size)
    assert multiprocessing.active_children() == []


def _check_results(results: list[tuple[int, int, list[bytes]]], world_size: int) -> None:
    gathered = [bytes([rank]) * rank for rank in range(world_size)]
    assert results == [(rank**2 + 10, world_size, gathered) for rank in range(world_size)]


@pytest.mark.parametrize("run", [run_ranks, run_threads])
@pytest.mark.parametrize("failing", [0, 2])
def test_an_exception_comes_with_rank_and_traceback(
    run: Callable[..., object], failing: int
) -> None:
    start = time.monotonic()
    with pytest.raises(KeyError, match="planted") as caught:
        run(_fail, 3, failing, timeout=60)
    cause = caught.value.__cause__
    assert isinstance(cause, RankError)
    assert cause.rank == failing
    assert "in _fail" in str(cause)
    assert time.monotonic() - start < 30
    assert multiprocessing.active_children() == []


def test_an_exception_that_cannot_be_pickled() -> None:
    with pytest.raises(RankError, match=r"rank 0 failed:(.|\n)*Odd: planted") as caught:
        run_ranks(_fail_oddly, 1, timeout=60)
    assert caught.value.rank == 0


@pytest.mark.usefixtures("descriptors")
def test_a_killed_rank_is_noticed() -> None:
    start = time.monotonic()
    with pytest.raises(RankError, match=r"rank 1 failed:\nkilled by signal 9 \(SIGKILL\)"):
        run_ranks(_die, 3, timeout=60)
    assert time.monotonic() - start < 30
    assert multiprocessing.active_children() == []


def test_a_rank_that_just_exits() -> None:
    with pytest.raises(RankError, match="ended without a result, exit code 7"):
        run_ranks(_exit, 1, timeout=60)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_rank_that_does_not_end_is_ended(stubborn: bool) -> None:
    with pytest.raises(RankError, match=r"ranks \[1\] have not finished after 3 s"):
        run_ranks(_sleep, 2, stubborn, timeout=3)
    assert multiprocessing.active_children() == []


def test_a_thread_that_does_not_end_is_named() -> None:
    release = threading.Event()

    def wait(exchange: ThreadExchange) -> None:
        if exchange.rank == 1:
            release.wait(30)

    with pytest.raises(RankError, match=r"ranks \[1\] have not finished"):
        run_threads(wait, 2, timeout=0.2)
    release.set()


def test_the_others_learn_which_rank_failed() -> None:
    seen: dict[int, ExchangeError] = {}

    def work(exchange: ThreadExchange) -> None:
        if exchange.rank == 1:
            raise ValueError("planted")
        try:
            exchange.all_gather(b"")
        except ExchangeError as error:
            seen[exchange.rank] = error
            raise

    with pytest.raises(ValueError, match="planted"):
        run_threads(work, 3, timeout=30)
    assert sorted(seen) == [0, 2]
