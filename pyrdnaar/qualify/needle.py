# SPDX-License-Identifier: Apache-2.0
"""A sentence is found again in texts of several lengths, at several depths of each."""

from __future__ import annotations

from functools import partial
from typing import Any

from . import prompts
from .transport import shortened
from .work import Job, Outcome, Setup, WrongAnswer, answer_of, run


def check(setup: Setup, _: object) -> Outcome:
    settings = setup.settings
    cells = [(length, depth) for length in settings.contexts for depth in settings.depths]
    rng = prompts.source(settings.seed, "needle")
    phrases = prompts.codes(rng, len(cells))
    vaults = rng.sample(range(1000, 10000), len(cells))
    jobs: list[Job[dict[str, Any]]] = []
    for (length, depth), vault, phrase in zip(cells, vaults, phrases, strict=True):
        text = prompts.haystack(rng, length, depth, vault, phrase)
        label = f"{length} characters, depth {depth} %"
        jobs.append((label, partial(_find, setup, text, phrase, {"at": [length, depth]})))
    results = run(jobs, min(settings.concurrency, len(jobs)), setup)
    return Outcome(
        f"found in all of {len(cells)} texts, up to {max(settings.contexts)} characters",
        results.failures,
        {"cells": results.good},
    )


def _find(setup: Setup, text: str, phrase: str, record: dict[str, Any]) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    reply = setup.chat.complete(messages, setup.settings.max_tokens)
    answer = answer_of(reply)
    if phrase not in answer:
        raise WrongAnswer(f"the answer is without {phrase!r}: {shortened(answer)}")
    return {**record, "prompt_tokens": reply.prompt_tokens}
