# SPDX-License-Identifier: Apache-2.0
"""A right server passes every check; each fault is caught by the checks of its name."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from pyrdnaar.qualify.report import CHECKS

from .stand_in import StandIn

Qualify = Callable[..., Result]


def _report(result: Result) -> dict[str, Any]:
    data = json.loads(result.stdout)
    assert data["ok"] == all(check["ok"] for check in data["checks"].values())
    return dict(data["checks"])


def test_a_right_server_passes(server: StandIn, qualify: Qualify) -> None:
    server.meet = 4
    checks = _report(qualify("--json", "--timeout", "60"))
    assert list(checks) == list(CHECKS)
    assert all(check["ok"] for check in checks.values())
    assert server.most_at_once == 4, "the chats did not meet"
    streamed = {request["stream"] for request in server.requests if "tools" in request}
    assert streamed == {True, False}
    asked = server.requests
    assert all(request["temperature"] == 0 for request in asked)
    # Greedy 4 x 2, tools 4 chats x 2 rounds x 2, needle 2 x 3, speed 5 and its warm-up.
    assert len(asked) == 8 + 16 + 6 + 6
    history = max((r["messages"] for r in asked), key=len)
    roles = [message["role"] for message in history]
    assert roles == ["system", *["user", "assistant", "tool", "assistant"] * 2][:-1]
    call = next(message for message in history if message.get("tool_calls"))
    assert call["content"] is None
    result = history[history.index(call) + 1]
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]


ALL = ("greedy", "tools", "needle", "speed")

# What the server does wrong, which checks must fail, and what the first of them must say.
FAULTS = [
    ("nondeterministic", ["greedy"], r"prompt 1: repeat 2 differs from repeat 1 at character \d"),
    ("wrong tool", ["tools"], r"round 1, .*the tool 'set_alarm' was called, not 'get_reading'"),
    ("wrong argument", ["tools"], r'the arguments are .*"sensor": "\d+".* not .*"sensor": \d+'),
    ("broken arguments", ["tools"], "arguments that are no JSON"),
    ("no tool call", ["tools"], "finish_reason is 'stop', not 'tool_calls'"),
    ("wrong finish", ["tools"], "finish_reason is 'stop', not 'tool_calls'"),
    ("two calls", ["tools"], "2 tool calls instead of one"),
    ("cross talk", ["tools"], r"cross talk: the answer has '\w+-\w+-\d+' of chat \d"),
    ("lost result", ["tools"], r"the answer is without '\w+-\w+-\d+': 'The reading is gone.'"),
    ("lost needle", ["needle"], r"1024 characters, depth 0 %: the answer is without .*not know"),
    ("length", ["tools", "needle"], "finish_reason is length: cut off"),
    ("no content", ALL, "an empty output"),
    ("500", ALL, "prompt 1, repeat 1: HTTP 500: .*CUDA error"),
    ("redirect", ALL, "HTTP 307"),
    ("garbage", ALL, "the reply is no HTTP, or broke off: .*BadStatusLine.*SSH-2.0"),
    ("reset", ALL, "the connection failed|the reply is no HTTP, or broke off"),
    ("malformed JSON", ["greedy", "tools", "needle"], "the reply is not JSON: '{choices: "),
    ("deep JSON", ["greedy", "tools", "needle"], "the reply is not JSON"),
    ("choices null", ["greedy", "tools", "needle"], "choices is missing or null"),
    ("too many tokens", ["greedy", "tools", "needle"], "the reply has 129 tokens, max_tokens is"),
    ("broken off", ["greedy", "tools", "needle"], "the reply broke off, 10 bytes before its end"),
    ("endless", ALL, "the reply does not end: over 4 MiB"),
    ("broken SSE", ["tools", "speed"], "the stream is broken: .* is no line of an event"),
    ("torn event", ["tools", "speed"], "the reply is not JSON"),
    ("error in stream", ["tools", "speed"], "an error in place of a reply: .*engine is dead"),
    ("stops in the middle", ["tools", "speed"], "broke off"),
    ("no finish", ["tools", "speed"], "the reply broke off: it has no finish_reason"),
    ("no DONE", ["tools", "speed"], r"the stream broke off: it ended without \[DONE\]"),
    ("no stream", ["tools", "speed"], "no stream: the reply is 'application/json'"),
]


@pytest.mark.parametrize(("fault", "caught_by", "said"), FAULTS, ids=[f[0] for f in FAULTS])
def test_faults_are_caught(
    server: StandIn, qualify: Qualify, fault: str, caught_by: list[str], said: str
) -> None:
    server.fault = fault
    result = qualify("--json", exit_code=1)
    checks = _report(result)
    assert [name for name, check in checks.items() if not check["ok"]] == list(caught_by)
    assert re.search(said, checks[caught_by[0]]["reason"]), checks[caught_by[0]]["failures"]
    assert result.stderr == f"Error: failed: {', '.join(caught_by)}\n"


@pytest.mark.parametrize("fault", ["content empty", "no list"])
def test_what_is_legal_passes(server: StandIn, qualify: Qualify, fault: str) -> None:
    server.fault = fault
    qualify()


@pytest.mark.parametrize("fault", ["stall", "drip"])
def test_a_server_that_hangs_costs_one_timeout_a_check(
    server: StandIn, qualify: Qualify, fault: str
) -> None:
    server.fault = fault
    start = time.monotonic()
    checks = _report(qualify("--json", "--timeout", "0.5", exit_code=1))
    assert time.monotonic() - start < 20
    for name, check in checks.items():
        assert "timeout: the reply did not end within 0.5 s" in check["reason"], name
        assert check["seconds"] < 4  # not a timeout for each request


def test_a_stream_that_is_held_back_has_no_rate(server: StandIn, qualify: Qualify) -> None:
    server.fault = "held back"
    assert "100 tokens came in 1 pieces" in qualify("--only", "speed", exit_code=1).stdout
    server.fault = "no content"
    assert "too few for a rate" in qualify("--only", "speed", exit_code=1).stdout


def test_half_a_surrogate_pair_is_a_text_like_any_other(server: StandIn, qualify: Qualify) -> None:
    server.fault = "surrogate"
    qualify("--only", "greedy")
    result = qualify("--only", "needle", exit_code=1)
    assert r"'\ud800'" in result.stdout
