# SPDX-License-Identifier: Apache-2.0
"""Time to first token and rate of decoding, one request at a time, against those of an earlier run.

A figure counts as another only if the medians differ by more than the spread: both runs' distances
between quartiles together, and at least SPREAD_FLOOR, which a restart of the same server may give.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any, TypeGuard

from . import prompts
from .settings import Settings
from .work import Job, Outcome, Setup, WrongAnswer, run

TOKENS = 128
PROMPT_CHARACTERS = 2000
# A rate over fewer tokens says nothing.
MIN_TOKENS = 16
SPREAD_FLOOR = 0.05
MIN_SAMPLES, MAX_SAMPLES = 3, 1000
PLAUSIBLE = 1e12  # JSON has whole numbers that are no float

# Each figure: its title, its unit, and whether more is better.
FIGURES = {
    "first_token_ms": ("first token", "ms", False),
    "decode_tokens_s": ("decode", "tokens/s", True),
}


def check(setup: Setup, earlier: dict[str, list[float]] | None) -> Outcome:
    jobs: list[Job[dict[str, float]]] = [
        # The first one is for the server to wake up.
        (f"sample {number}" if number else "warm-up", partial(_sample, setup))
        for number in range(setup.settings.samples + 1)
    ]
    results = run(jobs, 1, setup)
    samples = [sample for sample in results.values[1:] if sample is not None]
    outcome = Outcome(failures=results.failures)
    if outcome.failures:
        return outcome
    texts = []
    for name, (title, unit, _) in FIGURES.items():
        values = [sample[name] for sample in samples]
        figure = summary(values)
        outcome.data[name] = {**figure, "samples": values}
        text = f"{title} {figure['median']:.4g} {unit} ({figure['q1']:.4g} to {figure['q3']:.4g})"
        if earlier:
            verdict, slower = compare(name, earlier[name], values)
            outcome.data[name]["verdict"] = verdict
            outcome.failures += [f"{title}: {verdict}"] if slower else []
            text += f", {verdict}"
        texts.append(text)
    outcome.summary = "; ".join(texts)
    return outcome


def earlier(data: Any, _: Settings) -> dict[str, list[float]]:
    """The samples in a report's data of this check. ValueError if they cannot be compared with."""
    found: dict[str, list[float]] = {}
    for name in FIGURES:
        figure = data.get(name)
        samples = figure.get("samples") if isinstance(figure, dict) else None
        if not _plausible(samples):
            raise ValueError(f"it has no samples of {name}")
        found[name] = samples
    return found


def _plausible(samples: Any) -> TypeGuard[list[float]]:
    return (
        isinstance(samples, list)
        and MIN_SAMPLES <= len(samples) <= MAX_SAMPLES
        and all(type(value) in (int, float) and 0 < value < PLAUSIBLE for value in samples)
    )


def _sample(setup: Setup) -> dict[str, float]:
    messages = [{"role": "user", "content": prompts.timing(PROMPT_CHARACTERS)}]
    reply = setup.chat.complete(messages, TOKENS, stream=True)
    # Pieces are what can be counted if the server counts no tokens; usually they are the same.
    tokens = reply.completion_tokens or reply.pieces
    if tokens < MIN_TOKENS:
        raise WrongAnswer(f"{tokens} tokens are too few for a rate, at least {MIN_TOKENS}")
    if reply.pieces < MIN_TOKENS or reply.last_s <= reply.first_s:
        raise WrongAnswer(
            f"{tokens} tokens came in {reply.pieces} pieces: something on the way holds the stream"
        )
    return {
        "first_token_ms": reply.first_s * 1e3,
        "decode_tokens_s": (tokens - 1) / (reply.last_s - reply.first_s),
    }


def summary(values: list[float]) -> dict[str, float]:
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "q1": q1, "q3": q3, "min": min(values), "max": max(values)}


def compare(name: str, old: list[float], new: list[float]) -> tuple[str, bool]:
    """What to say of two runs, and whether the new one is worse."""
    before, after = summary(old), summary(new)
    spread = before["q3"] - before["q1"] + after["q3"] - after["q1"]
    spread = max(spread, SPREAD_FLOOR * before["median"])
    difference = after["median"] - before["median"]
    text = f"{before['median']:.4g} in the baseline"
    if abs(difference) <= spread:
        return f"{text}: no difference outside of the spread", False
    _, unit, more_is_better = FIGURES[name]
    worse = (difference < 0) == more_is_better
    ratio = after["median"] / before["median"]
    verdict = f"{text}, now {after['median']:.4g} {unit}: {'SLOWER' if worse else 'faster'}"
    return f"{verdict}, x {ratio:.2f}", worse
