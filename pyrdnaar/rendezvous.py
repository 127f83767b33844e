# SPDX-License-Identifier: Apache-2.0
"""How processes of one job find each other over TCP, and prove that they belong together.

Ports. torchrun's own store listens on MASTER_PORT, so rank 0 takes the first port it can bind of
MASTER_PORT + 1 .. + 16, and the other ranks try those in turn until one proves to be their rank 0.
RDNAAR_PORT names one port instead.

Secret. All ranks know a secret: RDNAAR_SECRET, or a token that rank 0 draws at random and leaves
in a file which only this user can read. A group never spans machines or users, so what such a file
proves, being a process of this user on this machine, is what a peer has to prove. A token derived
from the port or the user name would prove nothing, since anybody can compute it. The file's name is
made of what the launcher gave all ranks; it is removed once all ranks have arrived.

Handshake, on each connection. Rank 0 speaks first, so a rank that meets a foreign service sends it
nothing:

    rank 0 -> rank r    magic, nonce0
    rank r -> rank 0    r, world size, nonce, HMAC(secret, "join" r world nonce0 nonce)
    rank 0 -> rank r    HMAC(secret, "lead" r world nonce0 nonce)

Both sides prove the secret without showing it, and neither proof can be used for the other side or
another connection.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .config import setting
from .errors import ConfigError, ExchangeError

MAGIC = b"rdnaar1\0"
NONCE_BYTES = 32
PORT_TRIES = 16

# Bound of one handshake. A healthy one takes a millisecond; a silent or foreign client must not
# keep rank 0 from the others for long.
HANDSHAKE_SECONDS = 2.0
RETRY_SECONDS = 0.05


def meet(
    rank: int, world_size: int, environ: Mapping[str, str], timeout: float
) -> list[socket.socket]:
    """Connected, proven sockets: at rank 0 those of ranks 1, 2, ...; elsewhere that of rank 0."""
    if world_size == 1:
        return []
    deadline = time.monotonic() + timeout
    address = environ.get("MASTER_ADDR", "127.0.0.1")
    ports = _ports(environ)
    secret = setting("RDNAAR_SECRET", environ)
    token_file = None if secret else _token_folder(environ) / _job_name(world_size, environ)
    if rank > 0:
        return [_join(rank, world_size, address, ports, secret, token_file, deadline)]
    with _token(secret, token_file) as key, _listen(address, ports) as listener:
        return _gather(world_size, listener, key, deadline)


def _ports(environ: Mapping[str, str]) -> range:
    port = setting("RDNAAR_PORT", environ)
    if port:
        return range(port, port + 1)
    try:
        master = int(environ["MASTER_PORT"])
    except (KeyError, ValueError):
        raise ConfigError(
            f"MASTER_PORT={environ.get('MASTER_PORT', '')!r} is not a port: set MASTER_PORT or "
            "RDNAAR_PORT to the same number in all ranks"
        ) from None
    return range(master + 1, min(master + 1 + PORT_TRIES, 65536))


# ---- Secret ------------------------------------------------------------------------------------


def _token_folder(environ: Mapping[str, str]) -> Path:
    """A folder that only this user can enter."""
    folder = Path(environ.get("XDG_RUNTIME_DIR", ""))
    if not (folder.is_absolute() and folder.is_dir()):
        folder = Path(tempfile.gettempdir()) / f"pyrdnaar-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise ExchangeError(
            f"{folder} is not a folder that this user alone can enter: remove it, or set "
            "RDNAAR_SECRET to the same text in all ranks"
        )
    return folder


def _job_name(world_size: int, environ: Mapping[str, str]) -> str:
    names = ("MASTER_ADDR", "MASTER_PORT", "RDNAAR_PORT", "TORCHELASTIC_RUN_ID")
    text = "\0".join([str(world_size), *(environ.get(name, "") for name in names)])
    return f"pyrdnaar-{hashlib.sha256(text.encode()).hexdigest()[:24]}.token"


@contextmanager
def _token(secret: str | None, token_file: Path | None) -> Iterator[bytes]:
    """Rank 0's key: the given secret, or a new token that lies in `token_file` meanwhile."""
    if token_file is None:
        yield str(secret).encode()
        return
    token = secrets.token_hex(32)
    fresh = token_file.with_suffix(f".{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token)
    fresh.replace(token_file)  # at once: no rank reads half a token, or an older job's
    try:
        yield token.encode()
    finally:
        token_file.unlink(missing_ok=True)


# ---- Rank 0 ------------------------------------------------------------------------------------


def _listen(address: str, ports: range) -> socket.socket:
    problem: OSError | None = None
    for port in ports:
        try:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((address, port), family=family)
        except OSError as error:
            problem = error
    raise ExchangeError(
        f"rank 0 can listen on no port of {address}:{ports.start} to {ports.stop - 1}: {problem}. "
        "Set RDNAAR_PORT to a free port in all ranks",
        0,
    )


def _gather(
    world_size: int, listener: socket.socket, key: bytes, deadline: float
) -> list[socket.socket]:
    joined: dict[int, socket.socket] = {}
    try:
        while len(joined) < world_size - 1:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                missing = sorted(set(range(1, world_size)) - set(joined))
                raise ExchangeError(
                    f"ranks {missing} did not connect in time: not started, in a container with "
                    "another network or file system, or with another RDNAAR_SECRET",
                    missing[0],
                ) from None
            rank = _admit(sock, world_size, key)
            if rank is None:
                sock.close()
            elif rank in joined:
                sock.close()
                raise ExchangeError(f"two processes say that they are rank {rank}", rank)
            else:
                joined[rank] = sock
    except BaseException:
        for sock in joined.values():
            sock.close()
        raise
    return [joined[rank] for rank in range(1, world_size)]


def _admit(sock: socket.socket, world_size: int, key: bytes) -> int | None:
    """The rank that has proven itself on `sock`; None for a stranger."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    nonce0 = secrets.token_bytes(NONCE_BYTES)
    try:
        sock.settimeout(HANDSHAKE_SECONDS)
        sock.sendall(MAGIC + nonce0)
        said = _receive(sock, 8 + NONCE_BYTES + 32, deadline)
        rank, world = struct.unpack("<II", said[:8])
        proven = said[: 8 + NONCE_BYTES]
        if not hmac.compare_digest(said[8 + NONCE_BYTES :], _proof(key, b"join", nonce0, proven)):
            return None
        if world != world_size or not 0 < rank < world_size:
            return None
        sock.sendall(_proof(key, b"lead", nonce0, proven))
    except OSError:
        return None
    _no_delay(sock)
    return int(rank)


# ---- The other ranks ---------------------------------------------------------------------------


def _join(
    rank: int,
    world_size: int,
    address: str,
    ports: range,
    secret: str | None,
    token_file: Path | None,
    deadline: float,
) -> socket.socket:
    problem = "nothing listens there"
    while True:
        for port in ports:
            # Read again each time: the file may still be missing, or an older job's.
            try:
                key = token_file.read_bytes() if token_file else str(secret).encode()
            except OSError:
                problem = f"rank 0 has left no token in {token_file}"
                break
            try:
                sock = _prove(rank, world_size, (address, port), key)
            except OSError as error:
                problem = str(error)
                continue
            if sock is not None:
                return sock
            problem = f"the process on port {port} does not know the secret of this job"
        if time.monotonic() > deadline:
            raise ExchangeError(
                f"rank {rank} cannot reach rank 0 at {address}:{ports.start} to "
                f"{ports.stop - 1}: {problem}",
                0,
            )
        time.sleep(RETRY_SECONDS)


def _prove(
    rank: int, world_size: int, address: tuple[str, int], key: bytes
) -> socket.socket | None:
    """A connection to the rank 0 of this job; None when somebody else answers."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    sock = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
    try:
        said = _receive(sock, len(MAGIC) + NONCE_BYTES, deadline)
        if said[: len(MAGIC)] == MAGIC:
            nonce0 = said[len(MAGIC) :]
            mine = struct.pack("<II", rank, world_size) + secrets.token_bytes(NONCE_BYTES)
            sock.sendall(mine + _proof(key, b"join", nonce0, mine))
            answer = _receive(sock, 32, deadline)
            if hmac.compare_digest(answer, _proof(key, b"lead", nonce0, mine)):
                _no_delay(sock)
                return sock
    except OSError:
        sock.close()
        raise
    sock.close()
    return None


# ---- Both --------------------------------------------------------------------------------------


def _proof(key: bytes, role: bytes, nonce0: bytes, said: bytes) -> bytes:
    return hmac.digest(key, role + nonce0 + said, "sha256")


def _receive(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the connection was closed during the handshake")
        data += part
    return data


def _no_delay(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
