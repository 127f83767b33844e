# SPDX-License-Identifier: Apache-2.0
"""The exchanges: what they carry, what they refuse, and that they never wait without bound."""

from __future__ import annotations

import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyrdnaar import (
    ConfigError,
    ExchangeError,
    MpiExchange,
    PipeExchange,
    TcpExchange,
    ThreadExchange,
    rendezvous,
)
from pyrdnaar import exchange as module
from pyrdnaar.exchange import launched

MESSAGES = [b"", b"one", bytes(range(256)) * 300, b"\0"]


def _at_once(functions: list[Callable[[], object]]) -> list[object]:
    """Results or exceptions of functions that run side by side."""
    with ThreadPoolExecutor(len(functions)) as pool:
        futures = [pool.submit(function) for function in functions]
        return [f.exception(60) or f.result(60) for f in futures]


def _pipes(world_size: int, timeout: float = 10.0) -> list[PipeExchange]:
    sockets = PipeExchange.sockets(world_size)
    return [PipeExchange(r, world_size, s, timeout) for r, s in enumerate(sockets)]


def _close(exchanges: list[PipeExchange]) -> None:
    for exchange in exchanges:
        exchange.close()


@pytest.mark.usefixtures("descriptors")
def test_every_rank_gets_all_messages_in_rank_order() -> None:
    threads = ThreadExchange.group(4)
    pipes = _pipes(4)
    for group in (threads, pipes):
        for _ in range(3):
            results = _at_once(
                [lambda e=e: e.all_gather(MESSAGES[e.rank]) for e in group]  # type: ignore[misc]
            )
            assert results == [MESSAGES] * 4
    _close(pipes)


@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.usefixtures("descriptors")
def test_a_lost_rank_is_named_to_all(lost: int) -> None:
    pipes = _pipes(4)
    pipes[lost].close()
    rest = [e for e in pipes if e.rank != lost]
    start = time.monotonic()
    results = _at_once([lambda e=e: e.all_gather(b"") for e in rest])  # type: ignore[misc]
    assert time.monotonic() - start < 5
    for result in results:
        assert isinstance(result, ExchangeError)
        assert result.rank == lost
        assert str(result) == f"rank {lost} has closed its connection"
    _close(rest)


@pytest.mark.usefixtures("descriptors")
def test_a_rank_that_comes_late_hears_who_was_lost() -> None:
    """Rank 0 has noticed the loss, said so and gone before rank 2 sends anything."""
    pipes = _pipes(3)
    pipes[1].close()
    with pytest.raises(ExchangeError, match="rank 1 has closed its connection"):
        pipes[0].all_gather(b"")
    pipes[0].close()
    with pytest.raises(ExchangeError, match="rank 1 has closed its connection") as caught:
        pipes[2].all_gather(b"late")
    assert caught.value.rank == 1
    pipes[2].close()


def test_a_silent_rank_is_named_within_the_bound() -> None:
    pipes = _pipes(3, timeout=0.5)
    start = time.monotonic()
    results = _at_once([lambda e=e: e.all_gather(b"") for e in pipes[:2]])  # type: ignore[misc]
    assert 0.4 < time.monotonic() - start < 5
    for result in results:
        assert isinstance(result, ExchangeError)
        assert result.rank == 2
        assert "ranks [2] sent nothing within 0.5 s" in str(result)
    _close(pipes)


def test_a_silent_thread_ends_the_others() -> None:
    group = ThreadExchange.group(3, timeout=0.3)
    results = _at_once([lambda e=e: e.all_gather(b"") for e in group[:2]])  # type: ignore[misc]
    assert all(isinstance(result, ExchangeError) for result in results)


def test_a_message_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MESSAGE", 10)
    (only,) = _pipes(1)
    with pytest.raises(ExchangeError, match="message of 11 bytes, the limit is 10"):
        only.all_gather(b"x" * 11)


def test_an_announced_length_is_not_believed() -> None:
    (hub_socket,), (other,) = PipeExchange.sockets(2)
    with PipeExchange(0, 2, [hub_socket], 5) as hub, other:
        other.sendall(struct.pack("<I", 2**32 - 1) + b"D")
        with pytest.raises(ExchangeError, match="rank 1 announces 4294967295 bytes"):
            hub.all_gather(b"")


@pytest.mark.parametrize("packed", [b"", struct.pack("<II", 1, 5) + b"abc"])
def test_an_answer_that_does_not_add_up(packed: bytes) -> None:
    (hub,), (mine,) = PipeExchange.sockets(2)
    with PipeExchange(1, 2, [mine], 5) as exchange, hub:
        hub.sendall(struct.pack("<I", len(packed)) + b"D" + packed)
        with pytest.raises(ExchangeError, match="rank 0 sent an answer"):
            exchange.all_gather(b"")


# ---- TCP ---------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The variables of a launcher, on ports that are free now, and a private token folder."""
    tmp_path.chmod(0o700)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return {
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(min(port, 65000)),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }


def _join(job: dict[str, str], rank: int, timeout: float = 20, **more: str) -> TcpExchange:
    return TcpExchange.from_env({**job, "RANK": str(rank), **more}, timeout)


def _meet(job: dict[str, str], ranks: int = 3, timeout: float = 20) -> list[object]:
    return _at_once([lambda r=r: _join(job, r, timeout) for r in range(ranks)])  # type: ignore[misc]


@pytest.mark.parametrize("more", [{}, {"RDNAAR_SECRET": "of the job"}])
@pytest.mark.usefixtures("descriptors")
def test_tcp_ranks_meet_and_gather(
    job: dict[str, str], tmp_path: Path, more: dict[str, str]
) -> None:
    exchanges = _meet({**job, **more})
    assert all(isinstance(e, TcpExchange) for e in exchanges), exchanges
    results = _at_once(
        [lambda e=e: e.all_gather(MESSAGES[e.rank]) for e in exchanges]  # type: ignore[misc, attr-defined]
    )
    assert results == [MESSAGES[:3]] * 3
    assert list(tmp_path.iterdir()) == []  # the token is gone
    for exchange in exchanges:
        assert isinstance(exchange, TcpExchange)
        exchange.close()


def test_tcp_with_the_launchers_port_taken(job: dict[str, str]) -> None:
    port = int(job["MASTER_PORT"])
    # The store of the launcher, and a stranger on the next port that says nothing.
    with (
        socket.create_server(("127.0.0.1", port)),
        socket.create_server(("127.0.0.1", port + 1)) as stranger,
    ):
        heard: list[bytes] = []

        def listen() -> None:
            stranger.settimeout(10)
            sock, _ = stranger.accept()
            with sock:
                sock.settimeout(rendezvous.HANDSHAKE_SECONDS + 3)
                heard.append(sock.recv(100))

        thread = threading.Thread(target=listen)
        thread.start()
        exchanges = _meet({**job, "WORLD_SIZE": "2"}, 2)
        thread.join(20)
    assert all(isinstance(e, TcpExchange) for e in exchanges), exchanges
    assert heard == [b""]  # nothing was said to somebody who has not shown the magic
    for exchange in exchanges:
        assert isinstance(exchange, TcpExchange)
        exchange.close()


def test_tcp_another_secret_does_not_join(job: dict[str, str]) -> None:
    job |= {"WORLD_SIZE": "2", "RDNAAR_PORT": job["MASTER_PORT"]}
    results = _at_once(
        [
            lambda: _join(job, 0, 2.0, RDNAAR_SECRET="a"),
            lambda: _join(job, 1, 1.0, RDNAAR_SECRET="b"),
        ]
    )
    hub, other = results
    assert isinstance(hub, ExchangeError)
    assert "ranks [1] did not connect in time" in str(hub)
    assert isinstance(other, ExchangeError)
    assert "cannot reach rank 0" in str(other)


def test_tcp_strangers_do_not_join(job: dict[str, str]) -> None:
    """Connections that close, babble, or replay rank 0's own bytes are dropped."""
    job |= {"WORLD_SIZE": "2", "RDNAAR_PORT": job["MASTER_PORT"], "RDNAAR_SECRET": "s"}
    address = ("127.0.0.1", int(job["MASTER_PORT"]))

    def stranger(babble: bytes | None) -> bytes:
        deadline = time.monotonic() + 10
        while True:
            try:
                sock = socket.create_connection(address, 5)
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        with sock:
            hello = sock.recv(100)
            assert hello.startswith(rendezvous.MAGIC)
            proof = struct.pack("<II", 1, 2) + hello[8:] + bytes(32)
            try:
                sock.sendall(proof if babble is None else babble)
                sock.shutdown(socket.SHUT_WR)
                return sock.recv(100)
            except OSError:  # closed with our bytes unread
                return b""

    with ThreadPoolExecutor(1) as pool:
        hub = pool.submit(_join, job, 0, 20)
        assert [stranger(babble) for babble in (b"", b"GET / HTTP/1.0\r\n\r\n" * 9, None)] == [
            b""
        ] * 3
        with _join(job, 1) as other, hub.result(20) as first:
            results = _at_once([lambda: first.all_gather(b"a"), lambda: other.all_gather(b"b")])
    assert results == [[b"a", b"b"]] * 2


def test_tcp_rank_0_must_prove_itself(job: dict[str, str]) -> None:
    """A process that took rank 0's port and does not know the secret is not talked to."""
    with socket.create_server(("127.0.0.1", int(job["MASTER_PORT"]))) as impostor:

        def serve() -> None:
            impostor.settimeout(1.5)
            try:
                while True:
                    sock, _ = impostor.accept()
                    with sock:
                        sock.sendall(rendezvous.MAGIC + bytes(32))
                        sock.recv(1000)
                        sock.sendall(bytes(32))
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        more = {"RDNAAR_PORT": job["MASTER_PORT"], "RDNAAR_SECRET": "s"}
        with pytest.raises(ExchangeError, match="does not know the secret of this job"):
            _join(job, 1, 1.0, **more)
    thread.join(20)


def test_tcp_two_processes_with_one_rank(job: dict[str, str]) -> None:
    job |= {"RDNAAR_SECRET": "s"}
    results = _at_once(
        [lambda: _join(job, 0, 10), lambda: _join(job, 1, 3), lambda: _join(job, 1, 3)]
    )
    assert isinstance(results[0], ExchangeError)
    assert str(results[0]) == "two processes say that they are rank 1"
    for result in results[1:]:
        if isinstance(result, TcpExchange):  # it had joined before the second one came
            result.close()


def test_tcp_needs_its_variables() -> None:
    with pytest.raises(ConfigError, match="no launcher's variables are set: RANK and WORLD_SIZE"):
        TcpExchange.from_env({})
    with pytest.raises(ConfigError, match="MASTER_PORT='' is not a port"):
        TcpExchange.from_env({"RANK": "0", "WORLD_SIZE": "2"})


def test_tcp_one_rank_needs_nobody() -> None:
    with TcpExchange.from_env({"RANK": "0", "WORLD_SIZE": "1"}) as exchange:
        assert exchange.all_gather(b"x") == [b"x"]


def test_a_token_folder_that_others_can_enter_is_refused(
    job: dict[str, str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(ExchangeError, match="not a folder that this user alone can enter"):
        _join(job, 0)


def test_the_token_is_private_and_new_for_each_job(job: dict[str, str], tmp_path: Path) -> None:
    tokens = []
    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            hub = pool.submit(_join, job, 0, 2.0)
            deadline = time.monotonic() + 5
            while not (files := list(tmp_path.glob("*.token"))):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
            tokens.append(files[0].read_text())
            with pytest.raises(ExchangeError, match=r"ranks \[1, 2\] did not connect"):
                hub.result(20)
        assert list(tmp_path.iterdir()) == []
    assert len(set(tokens)) == 2
    assert all(len(token) == 64 for token in tokens)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2, "torchrun")),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (0, 4, "mpiexec")),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4, "mpiexec")),
        ({"RANK": "1"}, None),
    ],
)
def test_launchers(environ: dict[str, str], wanted: tuple[int, int, str] | None) -> None:
    assert launched(environ) == wanted


@pytest.mark.parametrize("rank", ["2", "-1", "x"])
def test_nonsense_from_a_launcher(rank: str) -> None:
    with pytest.raises(ConfigError, match=f"RANK='{rank}'.*are not a rank"):
        launched({"RANK": rank, "WORLD_SIZE": "2"})


# ---- MPI ---------------------------------------------------------------------------------------


class _FakeMpi:
    """The two buffer calls of an mpi4py communicator, over a ThreadExchange."""

    def __init__(self, exchange: ThreadExchange) -> None:
        self._exchange = exchange

    def Get_rank(self) -> int:  # noqa: N802
        return self._exchange.rank

    def Get_size(self) -> int:  # noqa: N802
        return self._exchange.world_size

    def Allgather(self, send, receive) -> None:  # type: ignore[no-untyped-def] # noqa: N802
        parts = self._exchange.all_gather(send.tobytes())
        receive[:] = [int.from_bytes(part, "little") for part in parts]

    def Allgatherv(self, send, receive) -> None:  # type: ignore[no-untyped-def] # noqa: N802
        buffer, sizes = receive
        parts = self._exchange.all_gather(send.tobytes())
        assert [len(part) for part in parts] == sizes
        buffer[:] = list(b"".join(parts))


def test_mpi_exchange() -> None:
    group = [MpiExchange(_FakeMpi(exchange)) for exchange in ThreadExchange.group(4)]
    results = _at_once([lambda e=e: e.all_gather(MESSAGES[e.rank]) for e in group])  # type: ignore[misc]
    assert results == [MESSAGES] * 4
