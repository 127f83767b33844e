# SPDX-License-Identifier: Apache-2.0
"""All checks of a server, in order, and one report of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from .._version import __version__
from ..files import timestamp
from . import baseline, greedy, needle, speed, tools
from .settings import Settings
from .work import MAX_FAILURES, Outcome, Setup


class Check(NamedTuple):
    run: Callable[[Setup, Any], Outcome]
    # Finds what to compare with in an earlier report; None: nothing is compared.
    reader: baseline.Reader | None = None


CHECKS = {
    "greedy": Check(greedy.check, greedy.earlier),
    "tools": Check(tools.check),
    "needle": Check(needle.check),
    "speed": Check(speed.check, speed.earlier),
}

Said = Callable[[str, dict[str, Any]], None]


def read_baseline(path: Path, settings: Settings, names: Iterable[str]) -> dict[str, Any]:
    """What the named checks are to be compared with."""
    readers = {name: CHECKS[name].reader for name in names}
    return baseline.load(path, settings, {n: reader for n, reader in readers.items() if reader})


def run(setup: Setup, names: Iterable[str], earlier: dict[str, Any], said: Said) -> dict[str, Any]:
    """Run the named checks; `said` hears of each when it is done."""
    checks: dict[str, dict[str, Any]] = {}
    for name in names:
        start = time.monotonic()
        outcome = CHECKS[name].run(setup, earlier.get(name))
        checks[name] = {
            "ok": not outcome.failures,
            "reason": outcome.reason,
            "failures": outcome.failures[:MAX_FAILURES],
            "failed": len(outcome.failures),
            "seconds": round(time.monotonic() - start, 3),
            "compared": name in earlier,
            "data": outcome.data,
        }
        said(name, checks[name])
    return {
        "format": baseline.FORMAT,
        "ok": all(check["ok"] for check in checks.values()),
        "time": timestamp(),
        "pyrdnaar": __version__,
        "settings": asdict(setup.settings),
        "checks": checks,
    }
