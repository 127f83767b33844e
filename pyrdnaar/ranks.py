# SPDX-License-Identifier: Apache-2.0
"""Run a function as the ranks of a group: in processes (run_ranks) or in threads (run_threads)."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, TypeVar

from .errors import AbortError, Disabled, ExchangeError, RankError
from .exchange import PipeExchange, ThreadExchange

T = TypeVar("T")

DEFAULT_TIMEOUT = 600.0

# Once a rank has failed, the others learn it from their exchange or run into a bounded wait of
# their own. Those that are still there after this many seconds are ended.
GRACE_SECONDS = 5.0


class _Failure(NamedTuple):
    """A rank's exception, if it could be brought here, and its traceback."""

    error: BaseException | None
    text: str


def run_ranks(
    fn: Callable[..., T],
    world_size: int,
    *args: Any,
    timeout: float = DEFAULT_TIMEOUT,
) -> list[T]:
    """fn(exchange, *args) in `world_size` new processes; the results in rank order.

    The processes are spawned, never forked: `fn`, `args` and the results are pickled, and a script
    that calls this needs `if __name__ == "__main__":`. The first failure is raised here, with the
    rank's traceback as its cause; a killed process, or one still running after `timeout` seconds,
    is a RankError. No process is left when this returns.
    """
    context = multiprocessing.get_context("spawn")
    sockets = PipeExchange.sockets(world_size)
    processes: list[BaseProcess] = []
    results: list[Connection] = []
    try:
        for rank in range(world_size):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank_process,
                args=(rank, world_size, sockets[rank], sender, fn, args),
                name=f"pyrdnaar rank {rank}",
                daemon=True,
            )
            process.start()
            processes.append(process)
            results.append(receiver)
            # Only the child may hold these ends, so that its death closes them.
            sender.close()
            for sock in sockets[rank]:
                sock.close()
        return _collect(processes, results, timeout)
    finally:
        _end(processes)
        for connection in results:
            connection.close()
        for rank_sockets in sockets:
            for sock in rank_sockets:
                sock.close()


def _rank_process(
    rank: int,
    world_size: int,
    sockets: list[socket.socket],
    sender: Connection,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    try:
        with PipeExchange(rank, world_size, sockets) as exchange:
            message = (True, pickle.dumps(fn(exchange, *args)), "")
    except BaseException as error:
        message = (False, _pickled(error), "".join(traceback.format_exception(error)))
    sender.send_bytes(pickle.dumps(message))
    sender.close()


def _pickled(error: BaseException) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:
        return b""


def _collect(processes: list[BaseProcess], results: list[Connection], timeout: float) -> list[Any]:
    deadline = time.monotonic() + timeout
    waiting = dict(zip(results, range(len(results)), strict=True))
    done: dict[int, Any] = {}
    failures: dict[int, _Failure] = {}
    while waiting:
        ready = wait(list(waiting), max(deadline - time.monotonic(), 0.0))
        if not ready:
            break
        for connection in ready:
            assert isinstance(connection, Connection)
            rank = waiting.pop(connection)
            try:
                ok, value = _received(connection.recv_bytes())
            except EOFError:
                ok, value = False, _Failure(None, _how_it_ended(processes[rank]))
            if ok:
                done[rank] = value
                continue
            failures[rank] = value
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
    if failures:
        _raise_first(failures)
    if waiting:
        raise RankError(
            f"ranks {sorted(waiting.values())} have not finished after {timeout:g} s",
            min(waiting.values()),
        )
    return [done[rank] for rank in range(len(results))]


def _received(message: bytes) -> tuple[bool, Any]:
    """(True, result) or (False, _Failure). What the rank could pickle may not be known here."""
    ok, payload, text = pickle.loads(message)
    try:
        value = pickle.loads(payload) if payload else None
    except Exception as error:
        return False, _Failure(None, text or f"its result cannot be unpickled: {error!r}")
    return (True, value) if ok else (False, _Failure(value, text))


def _how_it_ended(process: BaseProcess) -> str:
    process.join(GRACE_SECONDS)
    code = process.exitcode
    if code is not None and code < 0:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended without a result, exit code {code}"


def _raise_first(failures: dict[int, _Failure]) -> None:
    """Raise the failure that explains the others.

    A rank that has lost a peer fails too, with one of three errors that name it. So a failure of
    another kind is the cause; dicts keep the order in which the failures came.
    """
    consequences = (ExchangeError, Disabled, AbortError)
    rank = next(
        (rank for rank, f in failures.items() if not isinstance(f.error, consequences)),
        next(iter(failures)),
    )
    failure = failures[rank]
    cause = RankError(f"rank {rank} failed:", rank, failure.text)
    if failure.error is None:
        raise cause
    raise failure.error from cause


def _end(processes: list[BaseProcess]) -> None:
    """Join every process; those that do not end by themselves are terminated, then killed."""
    stages: tuple[tuple[Callable[[BaseProcess], None] | None, float], ...] = (
        (None, 0.5),
        (BaseProcess.terminate, 2.0),
        (BaseProcess.kill, 5.0),
    )
    for action, seconds in stages:
        alive = [process for process in processes if process.is_alive()]
        for process in alive:
            if action:
                action(process)
        deadline = time.monotonic() + seconds
        for process in alive:
            process.join(max(deadline - time.monotonic(), 0.0))
    for process in processes:
        if not process.is_alive():
            process.close()


def run_threads(
    fn: Callable[..., T],
    world_size: int,
    *args: Any,
    timeout: float = DEFAULT_TIMEOUT,
) -> list[T]:
    """fn(exchange, *args) in `world_size` threads of this process; the results in rank order.

    Failures are raised as run_ranks() does. A thread cannot be ended: one that is still running
    after `timeout` seconds is named in a RankError and left behind as a daemon.
    """
    results: dict[int, T] = {}
    failures: dict[int, _Failure] = {}

    def rank_thread(exchange: ThreadExchange) -> None:
        try:
            results[exchange.rank] = fn(exchange, *args)
        except BaseException as error:
            failures[exchange.rank] = _Failure(error, "".join(traceback.format_exception(error)))
            exchange.close()

    threads = [
        threading.Thread(target=rank_thread, args=(e,), name=f"pyrdnaar rank {e.rank}", daemon=True)
        for e in ThreadExchange.group(world_size)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        while thread.is_alive() and time.monotonic() < deadline:
            if failures:
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            thread.join(min(0.1, max(deadline - time.monotonic(), 0.0)))
    if failures:
        _raise_first(dict(failures))
    running = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if running:
        raise RankError(f"ranks {running} have not finished after {timeout:g} s", running[0])
    return [results[rank] for rank in range(world_size)]
