# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a group talk to each other during start-up and votes: all_gather of bytes.

Between processes an exchange is a star: rank 0 collects one message of each rank and sends the list
back. Every wait is bounded (but for MPI's own), nothing received is unpickled, and when one rank is
lost the others are told which.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from . import rendezvous
from .errors import ConfigError, ExchangeError

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_MESSAGE = 1 << 24
"""Bytes of one rank's message, at most: a broken length must not make anyone allocate memory."""

DEFAULT_TIMEOUT = 300.0
"""Seconds to wait for the slowest rank: peers may load libraries and frameworks first."""


class Exchange(Protocol):
    """What a Communicator needs of the outside world."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def all_gather(self, data: bytes) -> list[bytes]:
        """Every rank's `data`, in rank order. Every rank must call it."""
        ...


class _Channel:
    """Frames over a connected stream socket: 4 bytes of length, 1 byte of kind, the payload."""

    DATA, FAILURE = b"D", b"F"

    def __init__(self, sock: socket.socket, peer: int) -> None:
        self.sock = sock
        self.peer = peer

    def send(self, payload: bytes, deadline: float, kind: bytes = DATA) -> None:
        try:
            self.sock.settimeout(_left(deadline))
            self.sock.sendall(struct.pack("<I", len(payload)) + kind + payload)
        except TimeoutError:
            raise ExchangeError(f"rank {self.peer} takes no message in time", self.peer) from None
        except OSError as error:
            raise self._gone(error) from None

    def receive(self, deadline: float, limit: int = MAX_MESSAGE) -> bytes:
        header = self._exactly(5, deadline)
        size, kind = struct.unpack("<I", header[:4])[0], header[4:]
        if size > limit:
            raise ExchangeError(
                f"rank {self.peer} announces {size} bytes, the limit is {limit}", self.peer
            )
        payload = self._exactly(size, deadline)
        if kind == self.FAILURE:
            rank = struct.unpack("<i", payload[:4])[0]
            raise ExchangeError(payload[4:].decode("utf-8", "replace"), rank)
        return payload

    def _exactly(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                self.sock.settimeout(_left(deadline))
                part = self.sock.recv(min(size - len(data), 1 << 20))
            except TimeoutError:
                raise ExchangeError(
                    f"rank {self.peer} did not answer within the time limit", self.peer
                ) from None
            except OSError as error:
                raise self._gone(error) from None
            if not part:
                raise self._gone(None)
            data += part
        return bytes(data)

    def _gone(self, error: OSError | None) -> ExchangeError:
        # Which of them a closed connection gives depends on the moment: ranks that lose the same
        # peer must say the same.
        closed = error is None or isinstance(error, (BrokenPipeError, ConnectionResetError))
        how = "has closed its connection" if closed else f"is gone: {error}"
        return ExchangeError(f"rank {self.peer} {how}", self.peer)

    def raise_last_words(self) -> None:
        """Raise what the peer reported before it closed the connection: it may be read still."""
        self.receive(time.monotonic(), limit=1 << 16)


def _left(deadline: float) -> float:
    # 0 would make the socket non-blocking, which fails with another error than a timeout.
    return max(deadline - time.monotonic(), 0.001)


class _SocketExchange:
    """The star over sockets: rank 0 has one channel to each other rank, they have one to rank 0."""

    def __init__(
        self, rank: int, world_size: int, sockets: Sequence[socket.socket], timeout: float
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.timeout = timeout
        peers = range(1, world_size) if rank == 0 else (0,) * len(sockets)
        self._channels = [_Channel(s, peer) for s, peer in zip(sockets, peers, strict=True)]

    def all_gather(self, data: bytes) -> list[bytes]:
        if len(data) > MAX_MESSAGE:
            raise ExchangeError(f"message of {len(data)} bytes, the limit is {MAX_MESSAGE}")
        deadline = time.monotonic() + self.timeout
        if self.rank == 0:
            return self._collect(data, deadline)
        channel = self._channels[0]
        try:
            channel.send(data, deadline)
        except ExchangeError:
            # Another rank may be the cause: rank 0 has said so before it left.
            channel.raise_last_words()
            raise
        # Rank 0 may wait its whole bound for the last rank before it answers.
        packed = channel.receive(deadline + self.timeout, _packed_limit(self.world_size))
        return _unpack(packed, self.world_size)

    def _collect(self, data: bytes, deadline: float) -> list[bytes]:
        parts = {0: data}
        waiting = {channel.sock: channel for channel in self._channels}
        try:
            while waiting:
                # Whoever is ready first, so that a lost rank is seen while others are just slow.
                ready = wait(list(waiting), _left(deadline))
                if not ready:
                    missing = sorted(channel.peer for channel in waiting.values())
                    raise ExchangeError(
                        f"ranks {missing} sent nothing within {self.timeout:g} s", missing[0]
                    )
                for sock in ready:
                    assert isinstance(sock, socket.socket)
                    channel = waiting.pop(sock)
                    parts[channel.peer] = channel.receive(deadline)
            gathered = [parts[rank] for rank in range(self.world_size)]
            packed = _pack(gathered)
            for channel in self._channels:
                channel.send(packed, deadline)
        except ExchangeError as error:
            self._tell_all(error)
            raise
        return gathered

    def _tell_all(self, error: ExchangeError) -> None:
        note = struct.pack("<i", error.rank) + str(error).encode()
        for channel in self._channels:
            try:
                channel.send(note, time.monotonic() + 1.0, _Channel.FAILURE)
            except ExchangeError:
                continue  # that one is the rank that failed, or it failed too

    def close(self) -> None:
        """Close the connections: ranks that still wait get an error at once."""
        for channel in self._channels:
            channel.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _pack(parts: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(parts)}I", *map(len, parts)) + b"".join(parts)


def _packed_limit(world_size: int) -> int:
    return world_size * (MAX_MESSAGE + 4)


def _unpack(packed: bytes, world_size: int) -> list[bytes]:
    head = 4 * world_size
    if len(packed) < head:
        raise ExchangeError("rank 0 sent an answer that is too short", 0)
    sizes = struct.unpack(f"<{world_size}I", packed[:head])
    if head + sum(sizes) != len(packed):
        raise ExchangeError("rank 0 sent an answer whose lengths do not add up", 0)
    parts, at = [], head
    for size in sizes:
        parts.append(packed[at : at + size])
        at += size
    return parts


class PipeExchange(_SocketExchange):
    """Between processes that were started together, over socket pairs they inherit."""

    @classmethod
    def sockets(cls, world_size: int) -> list[list[socket.socket]]:
        """For each rank the sockets that its PipeExchange is made of."""
        pairs = [socket.socketpair() for _ in range(world_size - 1)]
        return [[hub for hub, _ in pairs], *([other] for _, other in pairs)]

    def __init__(
        self,
        rank: int,
        world_size: int,
        sockets: Sequence[socket.socket],
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        super().__init__(rank, world_size, sockets, timeout)


class TcpExchange(_SocketExchange):
    """Between processes that a launcher started, over authenticated TCP; see rendezvous.py."""

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> TcpExchange:
        """Meet the other ranks that the launcher's variables describe.

        Rank and world size come from RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK and
        _SIZE (Open MPI) or PMI_RANK and PMI_SIZE (MPICH). Rank 0 listens at MASTER_ADDR, default
        127.0.0.1, on RDNAAR_PORT, or on the first free port above MASTER_PORT.
        """
        environ = os.environ if environ is None else environ
        launch = launched(environ)
        if launch is None:
            names = " or ".join(f"{rank} and {size}" for rank, size, _ in LAUNCHERS)
            raise ConfigError(f"no launcher's variables are set: {names}")
        sockets = rendezvous.meet(launch.rank, launch.world_size, environ, timeout)
        return cls(launch.rank, launch.world_size, sockets, timeout)


class Launch(NamedTuple):
    """What a launcher says of this process. `by` is "torchrun" or "mpiexec"."""

    rank: int
    world_size: int
    by: str


LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "torchrun"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpiexec"),
    ("PMI_RANK", "PMI_SIZE", "mpiexec"),
)


def launched(environ: Mapping[str, str]) -> Launch | None:
    """Rank and world size as a launcher set them, or None outside of one."""
    for rank_name, size_name, by in LAUNCHERS:
        if rank_name in environ and size_name in environ:
            try:
                rank, size = int(environ[rank_name]), int(environ[size_name])
            except ValueError:
                rank, size = -1, 0
            if not 0 <= rank < size:
                raise ConfigError(
                    f"{rank_name}={environ[rank_name]!r} and {size_name}={environ[size_name]!r} "
                    "are not a rank and a world size"
                )
            return Launch(rank, size, by)
    return None


class ThreadExchange:
    """Between threads of one process, each of which is a rank."""

    @classmethod
    def group(cls, world_size: int, timeout: float = DEFAULT_TIMEOUT) -> list[ThreadExchange]:
        """One exchange for each rank."""
        slots: list[bytes] = [b""] * world_size
        barrier = threading.Barrier(world_size)
        return [cls(rank, slots, barrier, timeout) for rank in range(world_size)]

    def __init__(
        self, rank: int, slots: list[bytes], barrier: threading.Barrier, timeout: float
    ) -> None:
        self.rank = rank
        self.world_size = len(slots)
        self.timeout = timeout
        self._slots = slots
        self._barrier = barrier

    def all_gather(self, data: bytes) -> list[bytes]:
        self._slots[self.rank] = bytes(data)
        self._wait()
        parts = list(self._slots)
        self._wait()  # all have read: the slots may be written again
        return parts

    def _wait(self) -> None:
        try:
            self._barrier.wait(self.timeout)
        except threading.BrokenBarrierError:
            raise ExchangeError("another rank has failed or did not come in time") from None

    def close(self) -> None:
        """Give up: ranks that still wait get an error at once."""
        self._barrier.abort()


class MpiExchange:
    """Over an mpi4py communicator, which the caller keeps. MPI itself bounds no wait."""

    def __init__(self, comm: Any) -> None:
        self.rank = int(comm.Get_rank())
        self.world_size = int(comm.Get_size())
        self._comm = comm

    def all_gather(self, data: bytes) -> list[bytes]:
        # The upper-case calls move buffers; the lower-case ones would pickle.
        sizes = np.empty(self.world_size, np.int64)
        self._comm.Allgather(np.array([len(data)], np.int64), sizes)
        gathered = np.empty(int(sizes.sum()), np.uint8)
        self._comm.Allgatherv(np.frombuffer(data, np.uint8), [gathered, sizes.tolist()])
        ends = np.cumsum(sizes).tolist()
        return [
            gathered[end - size : end].tobytes()
            for end, size in zip(ends, sizes.tolist(), strict=True)
        ]
