# SPDX-License-Identifier: Apache-2.0
"""Greedy outputs are the same in every repeat, and the same as in an earlier run.

One request at a time: what else runs on a server changes the shapes of its matrix products, and
with them roundings, whatever all-reduces them. All prompts are asked before any is asked again.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from itertools import zip_longest
from typing import Any

from . import prompts
from .chat import Reply
from .settings import Settings
from .transport import shortened
from .work import Job, Outcome, Setup, WrongAnswer, run

TOKENS = 128
# Of an output, in the report: enough to show where two runs part.
KEPT_CHARACTERS = 4000


def check(setup: Setup, earlier: list[dict[str, str]] | None) -> Outcome:
    asked = prompts.greedy(setup.settings.seed)
    repeats = setup.settings.repeats
    jobs: list[Job[str]] = [
        (f"prompt {number}, repeat {repeat}", partial(_output, setup, prompt))
        for repeat in range(1, repeats + 1)
        for number, prompt in enumerate(asked, 1)
    ]
    results = run(jobs, 1, setup)
    outcome = Outcome(failures=results.failures)
    outputs = []
    for index, prompt in enumerate(asked):
        same = results.values[index :: len(asked)]
        outcome.failures += _differences(index + 1, same)
        outputs.append(_record(prompt, same[0]))
    outcome.data = {"outputs": outputs}
    outcome.summary = f"{len(asked)} prompts, {repeats} times each: identical"
    if earlier:
        outcome.failures += _against(earlier, outputs)
        outcome.summary += ", and identical to the baseline"
    return outcome


def earlier(data: Any, settings: Settings) -> list[dict[str, str]]:
    """The outputs in a report's data of this check. ValueError if they cannot be compared with."""
    outputs = data.get("outputs")
    texts = ("prompt", "output", "text")
    if not isinstance(outputs, list) or not all(
        isinstance(output, dict) and all(isinstance(output.get(name), str) for name in texts)
        for output in outputs
    ):
        raise ValueError("it does not have the output of every prompt")
    asked = [digest(prompt) for prompt in prompts.greedy(settings.seed)]
    if [output["prompt"] for output in outputs] != asked:
        raise ValueError("its prompts are others: another version or --seed made them")
    return outputs


def digest(text: str) -> str:
    # A server may send half of a surrogate pair, which UTF-8 proper does not have.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _output(setup: Setup, prompt: str) -> str:
    """All of a reply that must not change, as one text. To be cut off at TOKENS is fine here."""
    reply = setup.chat.complete([{"role": "user", "content": prompt}], TOKENS)
    if reply.finish not in ("stop", "length"):
        raise WrongAnswer(f"finish_reason is {shortened(reply.finish)}, not 'stop' or 'length'")
    if not reply.content and not reply.reasoning:
        raise WrongAnswer("an empty output")
    return _as_text(reply)


def _as_text(reply: Reply) -> str:
    parts = [reply.reasoning, reply.content, reply.finish]
    return json.dumps(parts, ensure_ascii=False)


def _record(prompt: str, output: str | None) -> dict[str, Any]:
    record: dict[str, Any] = {"prompt": digest(prompt), "output": None, "text": ""}
    if output is not None:
        record |= {"output": digest(output), "text": output[:KEPT_CHARACTERS]}
    return record


def _differences(number: int, outputs: list[str | None]) -> list[str]:
    first = outputs[0]
    return [
        f"prompt {number}: repeat {repeat} differs from repeat 1 {_where(first, other)}"
        for repeat, other in enumerate(outputs[1:], 2)
        if first is not None and other is not None and other != first
    ]


def _against(earlier: list[dict[str, str]], outputs: list[dict[str, Any]]) -> list[str]:
    return [
        f"prompt {number} differs from the baseline {_where(old['text'], new['text'])}"
        for number, (old, new) in enumerate(zip(earlier, outputs, strict=True), 1)
        if new["output"] is not None and new["output"] != old["output"]
    ]


def _where(old: str, new: str) -> str:
    for at, (one, other) in enumerate(zip_longest(old, new)):
        if one != other:
            before, after = shortened(old[at : at + 20]), shortened(new[at : at + 20])
            return f"at character {at}: {after} instead of {before}"
    return f"beyond character {min(len(old), len(new))}"
