# SPDX-License-Identifier: Apache-2.0
"""Groups of processes that may be killed: started in milliseconds, watched one by one.

A fork server that has imported everything, but loaded no library, makes the ranks.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

from pyrdnaar import PipeExchange

# Ending takes milliseconds; this much later it is a hang, on two busy cores too.
END_SECONDS = 10.0

Work = Callable[..., None]


def prepare() -> None:
    """Start the fork server."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a server with threads must not fork
    # The server does not take over sys.path, and of the main module only what that imports.
    tools = Path(__file__).resolve().parent.parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tools), str(tools.parent)])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyrdnaar.cli", "soaking.kills", "soaking.startup"])
    process = context.Process(target=_nothing)
    process.start()
    process.join()


def _nothing() -> None:
    pass


class Group:
    """work(exchange, say, *args) in `world` processes; say(x) sends x to this process."""

    def __init__(self, world: int, work: Work, *args: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        sockets = PipeExchange.sockets(world)
        self.processes: list[BaseProcess] = []
        self._said: list[Connection] = []
        for rank in range(world):
            receiver, sender = context.Pipe(duplex=False)
            arguments = (rank, world, sockets[rank], sender, work, args)
            process = context.Process(target=_member, args=arguments, daemon=True)
            process.start()
            self.processes.append(process)
            self._said.append(receiver)
            sender.close()
            for sock in sockets[rank]:
                sock.close()

    def hear(self, rank: int, seconds: float) -> Any:
        """The next thing that a rank says; None if it says nothing, or has ended."""
        connection = self._said[rank]
        try:
            return connection.recv() if connection.poll(seconds) else None
        except (EOFError, ConnectionError):
            return None

    def kill(self, rank: int) -> None:
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def exit_code(self, rank: int) -> int | None:
        """None: it does not end by itself."""
        self.processes[rank].join(END_SECONDS)
        return self.processes[rank].exitcode

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
            process.close()
        for connection in self._said:
            connection.close()


def _member(
    rank: int, world: int, sockets: list[Any], sender: Connection, work: Work, args: tuple[Any, ...]
) -> None:
    def say(thing: Any) -> None:
        sender.send((time.monotonic(), thing))

    with PipeExchange(rank, world, sockets, timeout=30.0) as exchange:
        work(exchange, say, *args)
