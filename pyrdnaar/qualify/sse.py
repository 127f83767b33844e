# SPDX-License-Identifier: Apache-2.0
"""Server-sent events, as far as chat completions use them. What is not one is an error."""

from __future__ import annotations

from collections.abc import Iterator

from .transport import Body, RequestError

DONE = b"[DONE]"
MAX_LINE_BYTES = 1 << 20
_IGNORED = (b"event", b"id", b"retry")


def events(body: Body) -> Iterator[bytes]:
    """The data of each event, up to [DONE], without which a stream has broken off."""
    if body.media_type != "text/event-stream":
        raise RequestError(f"no stream: the reply is {body.quoted(body.media_type)}")
    data: list[bytes] = []
    for line in _lines(body):
        if line:
            data += _data(line, body)
            continue
        event = b"\n".join(data)
        data.clear()
        if event == DONE:
            return
        if event:
            yield event
    raise RequestError("the stream broke off: it ended without [DONE]")


def _data(line: bytes, body: Body) -> list[bytes]:
    """What a line adds to its event. A field that the standard does not know may be skipped by its
    rules, but here it is a line that was torn or mixed up."""
    name, _, value = line.partition(b":")
    if name == b"data":
        return [value.removeprefix(b" ")]
    if name and name not in _IGNORED:
        text = body.quoted(line.decode(errors="replace"))
        raise RequestError(f"the stream is broken: {text} is no line of an event")
    return []


def _lines(body: Body) -> Iterator[bytes]:
    rest = b""
    for piece in body.pieces():
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise RequestError(f"a line of the stream has over {MAX_LINE_BYTES >> 20} MiB")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest
