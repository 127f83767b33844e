# SPDX-License-Identifier: Apache-2.0
"""Chat completions, streamed or not, as one kind of reply. Every field that is used is checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .sse import events
from .transport import Body, Client, RequestError, parse_json

MAX_TOOL_CALLS = 64
# Servers name it differently, or do not separate it from the content.
REASONING = ("reasoning_content", "reasoning")

# What a request consists of here, so that nothing else may set it.
OURS = frozenset(
    (
        *("model", "messages", "temperature", "seed", "n", "max_tokens"),
        *("stream", "stream_options", "tools", "tool_choice"),
    )
)

Message = dict[str, Any]


@dataclass(frozen=True)
class ToolCall:
    id: str
    name: str
    arguments: str

    def as_json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True)
class Reply:
    """`first_s` and `last_s` are the seconds from the request to the first and last piece of
    output; without a stream there is one piece. Token counts are None if the server gives none."""

    content: str | None
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish: str
    prompt_tokens: int | None
    completion_tokens: int | None
    pieces: int
    first_s: float
    last_s: float

    def message(self) -> Message:
        """For the history of the chat. Beside tool calls, a content of null is the rule."""
        message: Message = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [call.as_json() for call in self.tool_calls]
        return message


class Chat:
    """Makes requests for one model, always greedy."""

    def __init__(self, client: Client, model: str, seed: int, extra: dict[str, Any]) -> None:
        self._client = client
        self._common = {"model": model, "temperature": 0, "seed": seed, **extra}

    def complete(
        self,
        messages: list[Message],
        max_tokens: int,
        *,
        stream: bool = False,
        tools: list[dict[str, Any]] | None = None,
    ) -> Reply:
        body = {**self._common, "messages": messages, "max_tokens": max_tokens, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        if tools:
            body |= {"tools": tools, "tool_choice": "auto"}
        with self._client.request("POST", "/chat/completions", body) as reply:
            assembly = _Assembly(reply)
            for raw in events(reply) if stream else [b"".join(reply.pieces())]:
                assembly.add(raw, "delta" if stream else "message")
        return assembly.reply(self._client, max_tokens)


@dataclass
class _PartialCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class _Assembly:
    """Puts a reply together from its pieces; one without a stream is a single piece."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _PartialCall] = {}
        self._finish = ""
        self._usage: dict[str, Any] = {}
        self._times: list[float] = []

    def add(self, raw: bytes, part: str) -> None:
        data = parse_json(raw, self._body.quoted)
        if isinstance(data, dict) and data.get("error"):
            text = self._body.quoted(raw.decode(errors="replace"))
            raise RequestError(f"an error in place of a reply: {text}")
        self._usage = _member(data, "usage", dict, optional=True) or self._usage
        choices = _member(data, "choices", list)
        if not choices:
            return  # the usage at the end of a stream
        choice = choices[0]
        self._add_output(_member(choice, part, dict), streamed=part == "delta")
        self._finish = _member(choice, "finish_reason", str, optional=True) or self._finish

    def _add_output(self, output: dict[str, Any], *, streamed: bool) -> None:
        content = _member(output, "content", str, optional=True)
        thoughts = [_member(output, name, str, optional=True) for name in REASONING]
        reasoning = next(filter(None, thoughts), None)
        calls = _member(output, "tool_calls", list, optional=True) or []
        self._content += [content] if content is not None else []
        self._reasoning += [reasoning] if reasoning else []
        for position, call in enumerate(calls):
            self._add_call(_member(call, "index", int) if streamed else position, call)
        if content or reasoning or calls:
            self._times.append(self._body.seconds())

    def _add_call(self, index: int, call: dict[str, Any]) -> None:
        if not 0 <= index < MAX_TOOL_CALLS:
            raise RequestError(f"malformed reply: a tool call with the index {index}")
        partial = self._calls.setdefault(index, _PartialCall())
        function = _member(call, "function", dict)
        partial.id = _once(partial.id, _member(call, "id", str, optional=True))
        partial.name = _once(partial.name, _member(function, "name", str, optional=True))
        partial.arguments.append(_member(function, "arguments", str, optional=True) or "")

    def reply(self, client: Client, max_tokens: int) -> Reply:
        if not self._finish:
            raise RequestError("the reply broke off: it has no finish_reason")
        tokens = _member(self._usage, "completion_tokens", int, optional=True)
        if tokens is not None and tokens > max_tokens:
            raise RequestError(f"the reply has {tokens} tokens, max_tokens is {max_tokens}")
        redact = client.redact
        return Reply(
            content=redact("".join(self._content)) if self._content else None,
            reasoning=redact("".join(self._reasoning)),
            tool_calls=tuple(
                ToolCall(redact(call.id), redact(call.name), redact("".join(call.arguments)))
                for _, call in sorted(self._calls.items())
            ),
            finish=redact(self._finish),
            prompt_tokens=_member(self._usage, "prompt_tokens", int, optional=True),
            completion_tokens=tokens,
            pieces=len(self._times),
            first_s=self._times[0] if self._times else 0.0,
            last_s=self._times[-1] if self._times else 0.0,
        )


def _once(known: str, new: str | None) -> str:
    """Streams give a name with the first piece of a call, some repeat it; it never changes."""
    if known and new and new != known:
        raise RequestError("malformed reply: a tool call changes its id or name in the stream")
    return known or new or ""


_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a truth value",
    type(None): "missing or null",
}


def _member(data: Any, name: str, kind: type, *, optional: bool = False) -> Any:
    """data[name], if it is of that kind. Optional ones may be missing or null."""
    if not isinstance(data, dict):
        raise RequestError(f"malformed reply: {_NAMES[type(data)]} where {name} should be inside")
    value = data.get(name)
    if type(value) is not kind and not (optional and value is None):
        raise RequestError(f"malformed reply: {name} is {_NAMES[type(value)]}")
    return value
