# SPDX-License-Identifier: Apache-2.0
"""What the server is asked: plain English, made from a seed, the same on every machine."""

from __future__ import annotations

import random

_NOUNS = (
    "amber anchor basket beacon birch bridge candle canyon cedar copper coral crystal delta ember "
    "falcon feather garden granite harbor hazel island ivory juniper kestrel lantern maple marble "
    "meadow mirror orchard pebble pepper prairie quartz raven river saddle silver spruce summit "
    "thistle timber tunnel valley velvet walnut willow window"
)
_VERBS = "follows crosses covers borders carries guards mirrors passes joins shades"
_SUBJECTS = (
    "how a lighthouse keeper spends the first day of winter",
    "why rivers bend on their way to the sea",
    "how bread is made, from the field to the table",
    "what a city would look like without any cars",
    "how a clockmaker repairs an old tower clock",
    "why the sky has other colours at sunset than at noon",
    "how to plan a garden that blooms from spring to autumn",
    "what sailors of old had to know about the stars",
)
_WORDS = _NOUNS.split()
_ITEMS = ("apples", "coins", "letters", "marbles", "stamps", "shells")


def source(seed: int, purpose: str) -> random.Random:
    """Independent of every other purpose's. (Random takes texts through SHA-512.)"""
    return random.Random(f"{purpose}/{seed}")


def code(rng: random.Random) -> str:
    """A name that no model knows and that is easy to copy: kestrel-amber-4821."""
    first, second = rng.sample(_WORDS, 2)
    return f"{first}-{second}-{rng.randrange(1000, 10000)}"


def codes(rng: random.Random, count: int) -> list[str]:
    """All different, so that it is known whose a code is."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[code(rng)] = None
    return list(found)


def greedy(seed: int) -> list[str]:
    """Prompts with long answers: the longer, the more chances for a first difference."""
    rng = source(seed, "greedy")
    first, second = rng.sample(_SUBJECTS, 2)
    have, give, find = rng.randrange(200, 400), rng.randrange(20, 90), rng.randrange(20, 90)
    item = rng.choice(_ITEMS)
    words = rng.sample(_WORDS, 16)
    listed = ", ".join(words[4:])
    return [
        f"Explain {first}, and mention {words[0]} and {words[1]}. Write at least four paragraphs.",
        f"Write a short story about {second}. It ends with {words[2]} and {words[3]}.",
        f"I have {have} {item}, give away {give}, and find {find} more. How many {item} do I have? "
        "Explain every step.",
        f"Sort these words, then write one sentence about each of them: {listed}.",
    ]


def filler(rng: random.Random, characters: int) -> list[str]:
    """Sentences that say nothing, of about so many characters together."""
    verbs = _VERBS.split()
    sentences: list[str] = []
    length = 0
    while length < characters:
        one, two, three = (rng.choice(_WORDS) for _ in range(3))
        sentences.append(f"The {one} {rng.choice(verbs)} the {two} near the {three}.")
        length += len(sentences[-1]) + 1
    return sentences


def haystack(rng: random.Random, characters: int, depth: int, vault: int, phrase: str) -> str:
    """A text with one sentence that matters, `depth` per cent into it, and a question for it."""
    sentences = filler(rng, characters)
    sentences.insert(
        len(sentences) * depth // 100, f"The pass phrase of vault {vault} is {phrase}."
    )
    return (
        "Read this text, a question follows.\n\n"
        + " ".join(sentences)
        + f"\n\nWhat is the pass phrase of vault {vault}? Answer with the pass phrase alone."
    )


def timing(characters: int) -> str:
    """A prompt that no cache of the server knows: it begins with a number of its own, which no seed
    gives. Else the second run of the same seed would look faster than the first."""
    rng = random.SystemRandom()
    text = " ".join(filler(rng, characters))
    return (
        f"Text number {rng.randrange(10**9, 10**10)}: {text}\n\n"
        "Write a long story that has all of these things in it, at least twenty paragraphs."
    )
