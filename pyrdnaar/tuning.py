# SPDX-License-Identifier: Apache-2.0
"""Settings that were measured on this machine, and the file that keeps them.

Whoever has measured writes it, by choose() and write(); every start reads. The file has an entry
for each group that was tuned: its key says on which devices, with which driver and library, over
which transport and between how many ranks. An entry holds for that very key and gives only what the
configuration leaves open, so a setting that somebody has made always counts. Rank 0's file speaks
for all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from .config import Config
from .errors import ConfigError
from .files import cache_folder, read_json, timestamp, write_json
from .records import BuildInfo

Key = dict[str, Any]

# More groups than one machine has; the oldest entries go first.
MAX_ENTRIES = 64
# What is not faster by this share of the time is not called faster: as much as the spread between
# runs of one setting.
LEAST_GAIN = 0.03


@dataclass(frozen=True)
class Tuned:
    """What tuning decides. The defaults leave everything to the library."""

    ll_max_bytes: int | None = None
    oneshot_max_bytes: int | None = None
    blocks: int = 0
    pace: int = 0


def key_of(build: BuildInfo, devices: list[str], transport: str) -> Key:
    """`devices` names each rank's, in rank order."""
    return {
        "backend": build.backend,
        "library": build.source_digest,
        "compiler": build.compiler,
        "runtime": build.runtime,
        "devices": devices,
        "transport": transport,
    }


def path_of(config: Config) -> Path:
    """The file's place: as configured, or in the cache folder."""
    return Path(config.tune_file) if config.tune_file else cache_folder() / "tune.json"


# ---- The file ----------------------------------------------------------------------------------


def read(path: Path, key: Key) -> tuple[Tuned, str]:
    """The entry of `key`, and a word on where it is from, or why there is none. Never raises."""
    try:
        entries = _entries(path)
        entry = next((e for e in entries if e["key"] == key), None)
        if entry is None:
            return Tuned(), f"{path} has no entry for this group"
        tuned = _checked(entry["settings"])
    except FileNotFoundError:
        return Tuned(), ""
    except (OSError, ValueError) as error:
        return Tuned(), f"{path} is not used: {error}"
    return tuned, f"{path}, {entry['when']}"


def write(path: Path, key: Key, tuned: Tuned, measured: list[dict[str, Any]]) -> None:
    """Put the entry of `key` in the file; entries of other keys stay. OSError if it cannot be."""
    try:
        others = [e for e in _entries(path) if e["key"] != key]
    except (FileNotFoundError, ValueError):
        others = []  # what no start can read is of no use
    entry = {"key": key, "when": timestamp(), "settings": asdict(tuned), "measured": measured}
    write_json(path, {"entries": [*others, entry][-MAX_ENTRIES:]})


def _entries(path: Path) -> list[dict[str, Any]]:
    entries = read_json(path).get("entries")
    if not isinstance(entries, list):
        raise ValueError('it has no list "entries"')
    for number, entry in enumerate(entries):
        if not (
            isinstance(entry, dict)
            and isinstance(entry.get("key"), dict)
            and isinstance(entry.get("when"), str)
            and isinstance(entry.get("settings"), dict)
        ):
            raise ValueError(f"entry {number} has no key, when and settings")
    return entries


def _checked(settings: Mapping[str, Any]) -> Tuned:
    try:
        tuned = Tuned(**settings)
        replace(Config(), **asdict(tuned))
    except TypeError:
        raise ValueError(f"its settings are {', '.join(map(repr, settings))}") from None
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return tuned


# ---- Use ---------------------------------------------------------------------------------------


def leaves_open(config: Config) -> bool:
    """Whether there is anything that a tuned value could fill."""
    return config != apply(config, Tuned(ll_max_bytes=1, oneshot_max_bytes=1, blocks=1, pace=1))


def apply(config: Config, tuned: Tuned) -> Config:
    """`config` with tuned values where it has none of its own."""
    default = Config()
    return replace(
        config,
        **{
            name: value
            for name, value in asdict(tuned).items()
            if getattr(config, name) == getattr(default, name)
        },
    )


# ---- The choice --------------------------------------------------------------------------------


class Timing(NamedTuple):
    """One candidate on one size: the median of the slowest rank."""

    blocks: int
    pace: int
    algo: str
    nbytes: int
    time_us: float


class Choice(NamedTuple):
    tuned: Tuned
    gain: float
    """By how much shorter than with the defaults, as a share: the mean over the sizes."""


def choose(timings: Iterable[Timing], by_default: Mapping[int, str]) -> Choice:
    """The settings under which the sizes take the least time, each size counting the same.

    `by_default` has the algorithm that the library takes by itself for each size. The defaults
    stay unless something is faster by LEAST_GAIN.
    """
    times = {(t.blocks, t.pace, t.algo, t.nbytes): t.time_us for t in timings}
    sizes = sorted(by_default)
    best, best_score = Tuned(), _score(times, 0, 0, [by_default[size] for size in sizes], sizes)
    default_score = best_score
    for blocks, pace in sorted({(b, p) for b, p, _, _ in times}):
        for lls in range(len(sizes) + 1):
            for oneshots in range(lls, len(sizes) + 1):
                algos = [
                    "ll" if i < lls else "oneshot" if i < oneshots else "twoshot"
                    for i in range(len(sizes))
                ]
                score = _score(times, blocks, pace, algos, sizes)
                if score < best_score:
                    limits = [sizes[n - 1] if n else 0 for n in (lls, oneshots)]
                    best, best_score = Tuned(limits[0], limits[1], blocks, pace), score
    gain = 1 - math.exp(best_score - default_score)
    return Choice(best, gain) if gain >= LEAST_GAIN else Choice(Tuned(), 0.0)


def _score(
    times: Mapping[tuple[int, int, str, int], float],
    blocks: int,
    pace: int,
    algos: list[str],
    sizes: list[int],
) -> float:
    """The mean logarithm of the times; infinite where something was not measured."""
    try:
        logs = [
            math.log(times[blocks, pace, algo, size])
            for algo, size in zip(algos, sizes, strict=True)
        ]
    except KeyError:
        return math.inf
    return sum(logs) / len(logs)
