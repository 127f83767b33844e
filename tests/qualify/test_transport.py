# SPDX-License-Identifier: Apache-2.0
"""Replies byte by byte: what is read, what is refused, and how much is kept of it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from pyrdnaar.errors import InvalidArgument
from pyrdnaar.qualify.chat import Chat, Reply
from pyrdnaar.qualify.sse import events
from pyrdnaar.qualify.transport import MAX_REPLY_BYTES, Client, RequestError, parse_base_url

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
FLOOD_BYTES = 256 << 20


def _read_request(connection: socket.socket) -> None:
    """Read the whole of a request: to close with some of it unread resets the connection."""
    with connection.makefile("rb") as stream:
        stream.readline()  # the request's first line
        headers = http.client.parse_headers(stream)
        stream.read(int(headers.get("Content-Length", 0)))


@contextmanager
def _answering(start: bytes, flood: bytes = b"") -> Iterator[str]:
    """A server that answers one request with `start`, and then `flood` over and over."""

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # the client has seen enough
            connection.settimeout(20)
            _read_request(connection)
            connection.sendall(start)
            for _ in range(FLOOD_BYTES // len(flood) if flood else 0):
                connection.sendall(flood)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        thread.join(30)
        assert not thread.is_alive()


def _events(start: bytes, flood: bytes = b"") -> list[bytes]:
    with (
        _answering(start, flood) as url,
        Client(url, timeout_s=20).request("POST", "/x", {}) as body,
    ):
        return list(events(body))


def _complete(*chunks: dict[str, Any]) -> Reply:
    lines = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    with _answering(STREAM + lines + b"data: [DONE]\n\n") as url:
        chat = Chat(Client(url, timeout_s=20), "m", 0, {})
        return chat.complete([{"role": "user", "content": "x"}], 16, stream=True)


# ---- Events ------------------------------------------------------------------------------------


def test_events_in_all_their_spellings() -> None:
    raw = b": hello\n\nevent: x\nid: 1\nretry: 3\ndata: one\r\n\r\ndata:two\ndata: lines\n\n\n"
    assert _events(STREAM + raw + b"data: [DONE]\n\ndata: never read") == [b"one", b"two\nlines"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"data: one\n\n", "ended without"),
        (b"data: [DONE]", "ended without"),
        (b"", "ended without"),
        (b"dat", "'dat' is no line of an event"),
        (b'error: {"message": "\x1b[2J"}\n', r"'error: .*\\x1b\[2J"),
    ],
)
def test_streams_that_break(raw: bytes, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        _events(STREAM + raw)


FLOODS = [
    ("one line", STREAM + b"data: ", b"x" * 65536, "a line of the stream has over 1 MiB"),
    ("comments", STREAM, b": ping\n\n" * 8192, "does not end"),
    ("events", STREAM, b"data: x\n\n" * 8192, "does not end"),
    ("headers", b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 8192, "HTTPException.*headers"),
    ("a header", b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65536, "LineTooLong"),
    ("a status", b"", b"H" * 65536, "LineTooLong"),
    ("an error", b"HTTP/1.1 500 No\r\n\r\n", b"z" * 65536, "HTTP 500: 'zzz"),
    ("chunks", STREAM[:-2] + b"Transfer-Encoding: chunked\r\n\r\n", b"z" * 65536, "broke off"),
]


@pytest.mark.parametrize(
    ("start", "flood", "said"), [f[1:] for f in FLOODS], ids=[f[0] for f in FLOODS]
)
def test_a_flood_does_not_fill_the_memory(start: bytes, flood: bytes, said: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match=said) as caught:
            _events(start, flood)
        assert tracemalloc.get_traced_memory()[1] < 2 * MAX_REPLY_BYTES
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000


# ---- Replies -----------------------------------------------------------------------------------


def _delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def _call(index: Any, function: Any, **others: Any) -> dict[str, Any]:
    return _delta(tool_calls=[{"index": index, "function": function, **others}])


def test_a_reply_from_its_pieces() -> None:
    reply = _complete(
        _delta(role="assistant", content=None),
        _delta(reasoning="hm"),
        _delta(reasoning_content="m"),
        _call(1, {"name": "b", "arguments": None}, id="2"),
        _call(0, {"name": "a"}, id="1"),
        _call(0, {"arguments": '{"x"', "name": "a"}, id="1"),
        _call(0, {"arguments": ": 1}"}),
        _delta("tool_calls"),
        {"choices": [], "usage": {"completion_tokens": 7, "prompt_tokens": None}},
    )
    assert (reply.content, reply.reasoning, reply.finish) == (None, "hmm", "tool_calls")
    calls = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    assert calls == [("1", "a", '{"x": 1}'), ("2", "b", "")]
    assert (reply.completion_tokens, reply.prompt_tokens, reply.pieces) == (7, None, 6)
    assert 0 < reply.first_s <= reply.last_s


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        ([], "a list where usage should be inside"),
        ({}, "choices is missing or null"),
        ({"choices": {}}, "choices is an object"),
        ({"choices": [7]}, "an integer where delta should be inside"),
        ({"choices": [{}]}, "delta is missing or null"),
        (_delta(content=[]), "content is a list"),
        (_delta(finish=True), "finish_reason is a truth value"),  # type: ignore[arg-type]
        (_delta(tool_calls="x"), "tool_calls is a string"),
        (_call(None, {}), "index is missing or null"),
        (_call(True, {}), "index is a truth value"),
        (_call(-1, {}), "a tool call with the index -1"),
        (_call(10**9, {}), "a tool call with the index 1000000000"),
        (_call(0, None), "function is missing or null"),
        (_call(0, {"arguments": {}}), "arguments is an object"),
        ({"choices": [], "usage": {"completion_tokens": 1.5}}, "completion_tokens is a number"),
        ({"error": "out of memory"}, "an error in place of a reply"),
    ],
)
def test_malformed_replies(chunk: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        _complete(chunk, _delta("stop", content="x"))


def test_a_call_that_changes_its_name() -> None:
    with pytest.raises(RequestError, match="changes its id or name"):
        _complete(_call(0, {"name": "a"}), _call(0, {"name": "b"}))


# ---- Keys and addresses ------------------------------------------------------------------------


def test_what_the_server_says_is_shown_without_the_key() -> None:
    key = "0123456789abcdef"
    client = Client("http://host", key)
    assert client.quoted(f"no {key}\n") == r"'no (key)\n'"
    # A key that the cut would split is taken out first.
    assert "0123" not in client.quoted("x" * 190 + key)
    assert Client("http://host", "EMPTY").quoted("EMPTY") == "'EMPTY'"


@pytest.mark.parametrize("text", ["", "http://", "http://:80", "http://h:0", "http://h/\x00", "h"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="base URL"):
        parse_base_url(text)


def test_a_closed_client_makes_no_request(descriptors: None) -> None:
    client = Client("http://127.0.0.1:9")
    client.close()
    actions: list[Callable[[], object]] = [
        lambda: client.pause(60),
        lambda: client.request("GET", "/").__enter__(),
    ]
    for action in actions:
        with pytest.raises(RequestError, match="interrupted"):
            action()
