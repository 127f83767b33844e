# SPDX-License-Identifier: Apache-2.0
"""HTTP to a server that is not trusted to answer, to end, or to stay small.

Each request has its own connection and is made once: a retry would hide what this is to find. The
time of a whole request is bounded, and so is what is read of a reply.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .._version import __version__
from ..errors import InvalidArgument, RdnaarError

# The largest honest reply is some hundred events of some hundred bytes.
MAX_REPLY_BYTES = 4 << 20
READ_BYTES = 64 << 10
ERROR_TEXT_BYTES = 2048
QUOTED_CHARACTERS = 200
# Shorter ones are placeholders ("EMPTY"); hiding them would only garble messages.
SECRET_CHARACTERS = 8


class RequestError(RdnaarError):
    """A request got no usable reply. The message says what came instead."""


class StatusError(RequestError):
    """The reply is an HTTP error."""

    def __init__(self, message: str, http_status: int) -> None:
        super().__init__(message)
        self.http_status = http_status


def parse_base_url(text: str) -> SplitResult:
    """The address that /chat/completions is appended to, checked. Passwords are never shown."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise InvalidArgument(f"the base URL is none: {error}") from None
    if "@" in url.netloc:
        raise InvalidArgument("the base URL holds a user or password: use --api-key")
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise InvalidArgument(f"{text!r} is no base URL like http://127.0.0.1:8000/v1")
    if url.query or url.fragment:
        raise InvalidArgument(f"the base URL {text!r} has a query or fragment")
    if not all("!" <= character <= "~" for character in text):
        raise InvalidArgument(f"the base URL {text!r} has spaces, or characters beyond ASCII")
    return url


class Client:
    """One server. Threads may make requests at the same time."""

    def __init__(self, base_url: str, key: str = "", timeout_s: float = 120) -> None:
        if not all("!" <= character <= "~" for character in key):
            raise InvalidArgument("the API key has spaces, or characters that no header can carry")
        self._url = parse_base_url(base_url)
        self._path = self._url.path.rstrip("/")
        self._key = key
        self.timeout_s = timeout_s
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        self._closed = threading.Event()
        self._deadlines: set[_Deadline] = set()

    def close(self) -> None:
        """End the requests that other threads are in; there will be no more."""
        self._closed.set()
        for deadline in list(self._deadlines):
            deadline.expire()

    def pause(self, seconds: float) -> None:
        """Sleep, until close() at most."""
        if self._closed.wait(seconds):
            raise RequestError("interrupted")

    def redact(self, text: str) -> str:
        """`text` of the server without the API key, which it may have sent back."""
        return text.replace(self._key, "(key)") if len(self._key) >= SECRET_CHARACTERS else text

    def quoted(self, text: str) -> str:
        """`text` of the server for a message: no key, no control characters, not endless."""
        return shortened(self.redact(text))

    @contextmanager
    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float = 0
    ) -> Iterator[Body]:
        """The reply, while its connection is open. RequestError for all that is no success."""
        seconds = timeout_s or self.timeout_s
        connection = self._connection(seconds)
        with _Deadline(seconds) as deadline:
            self._deadlines.add(deadline)
            try:
                self.pause(0)
                connection.connect()
                deadline.watch(connection.sock)
                yield self._send(connection, method, path, body, deadline)
            except (OSError, HTTPException) as error:
                deadline.check()
                raise RequestError(self._why(error, seconds)) from None
            finally:
                self._deadlines.discard(deadline)
                connection.close()

    def _connection(self, seconds: float) -> HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._tls:
            return HTTPSConnection(host, port, timeout=seconds, context=self._tls)
        return HTTPConnection(host, port, timeout=seconds)

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        deadline: _Deadline,
    ) -> Body:
        headers = {"Connection": "close", "User-Agent": f"pyrdnaar/{__version__}"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        raw = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            raw = json.dumps(body).encode()
        start = time.perf_counter()
        connection.request(method, self._path + path, raw, headers)
        response = connection.getresponse()
        deadline.adopt(response)
        if response.status != 200:
            raise self._status_error(response)
        return Body(response, deadline, self.quoted, start)

    def _why(self, error: Exception, seconds: float) -> str:
        if isinstance(error, TimeoutError):
            return _too_late(seconds)
        if isinstance(error, OSError):
            return f"the connection failed: {error}"
        # Their texts may hold what the server sent.
        text = self.quoted(f"{type(error).__name__}: {error}")
        return f"the reply is no HTTP, or broke off: {text}"

    def _status_error(self, response: HTTPResponse) -> StatusError:
        raw = b""
        with suppress(OSError, HTTPException):  # the status is what counts
            raw = response.read(ERROR_TEXT_BYTES)
        text = self.quoted(raw.decode(errors="replace"))
        return StatusError(f"HTTP {response.status}: {text}", response.status)


class Body:
    """The body of a reply, as it comes."""

    def __init__(
        self,
        response: HTTPResponse,
        deadline: _Deadline,
        quoted: Callable[[str], str],
        start: float,
    ) -> None:
        self._response = response
        self._deadline = deadline
        self.quoted = quoted
        self._start = start

    def seconds(self) -> float:
        """Since the request was sent, over a connection that was open by then."""
        return time.perf_counter() - self._start

    @property
    def media_type(self) -> str:
        return self._response.headers.get_content_type()

    def pieces(self) -> Iterator[bytes]:
        """The bytes, in pieces as they arrive."""
        total = 0
        while piece := self._response.read1(READ_BYTES):
            total += len(piece)
            if total > MAX_REPLY_BYTES:
                raise RequestError(f"the reply does not end: over {MAX_REPLY_BYTES >> 20} MiB")
            yield piece
        # A connection that was cut off looks like one that has ended.
        self._deadline.check()
        if self._response.length:
            raise RequestError(f"the reply broke off, {self._response.length} bytes before its end")

    def json(self) -> Any:
        return parse_json(b"".join(self.pieces()), self.quoted)


def parse_json(raw: bytes, quoted: Callable[[str], str]) -> Any:
    try:
        return json.loads(raw.decode())
    except (ValueError, RecursionError):
        text = quoted(raw.decode(errors="replace"))
        raise RequestError(f"the reply is not JSON: {text}") from None


class _Deadline:
    """Cuts a connection off when its time is up.

    The timeout of a socket bounds each read: a server that sends a byte now and then would keep a
    request for ever.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._expired = False
        self._socket: socket.socket | None = None
        self._response: HTTPResponse | None = None
        self._timer = threading.Timer(seconds, self.expire)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._response:
            self._response.close()

    def watch(self, connected: socket.socket) -> None:
        # http.client forgets the socket of a connection that will close, so we remember it.
        with self._lock:
            self._socket = connected
            expired = self._expired
        if expired:
            self.expire()

    def adopt(self, response: HTTPResponse) -> None:
        """It holds the socket from now on, and is closed at the end."""
        self._response = response

    def expire(self) -> None:
        with self._lock:
            self._expired = True
            if self._socket:
                with suppress(OSError):  # it has been closed
                    # Not SSLSocket's own, which takes the object away that a reader is using.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def check(self) -> None:
        if self._expired:
            raise RequestError(_too_late(self._seconds))


def _too_late(seconds: float) -> str:
    return f"timeout: the reply did not end within {seconds:g} s"


def shortened(text: str) -> str:
    """One line of printable characters, with a bound."""
    cut = text[:QUOTED_CHARACTERS]
    return repr(cut) + ("..." if len(text) > len(cut) else "")
