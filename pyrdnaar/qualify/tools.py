# SPDX-License-Identifier: Apache-2.0
"""Chats at the same time that call tools: each gets its own results, and no other chat's.

Every name and value in a chat is its own, so an answer of another chat is recognised. The tools
take different times, so that requests of all kinds meet on the server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import prompts
from .chat import Message, Reply, ToolCall
from .transport import shortened
from .work import Job, Outcome, Setup, WrongAnswer, answer_of, require_finish, run

ROUNDS = 2


def _tool(name: str, does: str, **parameters: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in parameters.items()},
        "required": list(parameters),
    }
    return {
        "type": "function",
        "function": {"name": name, "description": does, "parameters": schema},
    }


WANTED = "get_reading"
OFFERED = [
    _tool("list_sensors", "List the sensors of a station.", station="string"),
    _tool(WANTED, "Get the reading of a sensor.", station="string", sensor="integer"),
    _tool("set_alarm", "Set the alarm of a sensor.", station="string", sensor="integer"),
]
SYSTEM = (
    "You read sensors by means of tools. Call one tool at a time, and copy names and readings "
    "exactly as they are."
)


@dataclass(frozen=True)
class Round:
    station: str
    sensor: int
    reading: str
    seconds: float
    stream: bool

    @property
    def question(self) -> str:
        return (
            f"Call {WANTED} for station {self.station} and sensor {self.sensor}. Then tell me the "
            "reading that it returned."
        )

    @property
    def arguments(self) -> dict[str, Any]:
        return {"station": self.station, "sensor": self.sensor}


def check(setup: Setup, _: object) -> Outcome:
    chats = plan(setup.settings.seed, setup.settings.concurrency, setup.settings.tool_seconds)
    jobs: list[Job[int]] = [
        (f"chat {number}", partial(_converse, setup, chats, number - 1))
        for number in range(1, len(chats) + 1)
    ]
    results = run(jobs, len(jobs), setup)
    return Outcome(
        f"{len(chats)} chats at the same time, {ROUNDS} tool calls each: exact",
        results.failures,
        {"chats": len(chats), "rounds": ROUNDS, "good": len(results.good)},
    )


def plan(seed: int, count: int, tool_seconds: float) -> list[list[Round]]:
    """The rounds of each chat. Neighbours differ in what is streamed, and tools in their time."""
    rng = prompts.source(seed, "tools")
    total = count * ROUNDS
    names = prompts.codes(rng, 2 * total)
    turns = rng.sample(range(total), total)
    rounds = [
        Round(
            station=names[2 * at],
            sensor=rng.randrange(1, 1000),
            reading=names[2 * at + 1],
            seconds=tool_seconds * turns[at] / max(1, total - 1),
            stream=(at // ROUNDS + at % ROUNDS) % 2 == 0,
        )
        for at in range(total)
    ]
    return [rounds[at : at + ROUNDS] for at in range(0, total, ROUNDS)]


def _converse(setup: Setup, chats: list[list[Round]], mine: int) -> int:
    """One chat, all of its rounds in one history."""
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    foreign = {
        name: number
        for number, rounds in enumerate(chats, 1)
        for round_ in rounds
        for name in (round_.station, round_.reading)
        if number != mine + 1
    }
    for turn, round_ in enumerate(chats[mine], 1):
        where = f"round {turn}, {'streamed' if round_.stream else 'not streamed'}"
        try:
            _round(setup, messages, round_, foreign)
        except WrongAnswer as error:
            raise WrongAnswer(f"{where}: {error}") from None
    return mine


def _round(setup: Setup, messages: list[Message], round_: Round, foreign: dict[str, int]) -> None:
    def ask(message: Message) -> Reply:
        messages.append(message)
        tokens = setup.settings.max_tokens
        reply = setup.chat.complete(messages, tokens, stream=round_.stream, tools=OFFERED)
        messages.append(reply.message())
        return reply

    call = _call_of(ask({"role": "user", "content": round_.question}), round_, foreign)
    setup.client.pause(round_.seconds)
    result = json.dumps({"reading": round_.reading})
    reply = ask({"role": "tool", "tool_call_id": call.id, "content": result})
    text = answer_of(reply)
    _require_none_of(foreign, text, "the answer")
    if round_.reading not in text:
        raise WrongAnswer(f"the answer is without {round_.reading!r}: {shortened(text)}")


def _call_of(reply: Reply, round_: Round, foreign: dict[str, int]) -> ToolCall:
    """The one call that has been asked for, exact."""
    if not reply.tool_calls:
        require_finish(reply, "tool_calls")
        raise WrongAnswer("tool_calls are missing")
    for call in reply.tool_calls:
        _require_none_of(foreign, call.arguments, "the call")
    require_finish(reply, "tool_calls")
    if len(reply.tool_calls) != 1:
        raise WrongAnswer(f"{len(reply.tool_calls)} tool calls instead of one")
    call = reply.tool_calls[0]
    if call.name != WANTED:
        raise WrongAnswer(f"the tool {shortened(call.name)} was called, not {WANTED!r}")
    if not call.id:
        raise WrongAnswer("a tool call without an id")
    _require_arguments(call.arguments, round_.arguments)
    return call


def _require_arguments(text: str, expected: dict[str, Any]) -> None:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongAnswer(f"arguments that are no JSON: {shortened(text)}") from None
    # As text: to Python 7, 7.0 and even True for 1 are equal.
    if json.dumps(arguments, sort_keys=True) != json.dumps(expected, sort_keys=True):
        raise WrongAnswer(f"the arguments are {shortened(text)}, not {json.dumps(expected)}")


def _require_none_of(foreign: dict[str, int], text: str, what: str) -> None:
    for name, number in foreign.items():
        if name in text:
            raise WrongAnswer(f"cross talk: {what} has {name!r} of chat {number}")
