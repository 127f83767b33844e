# SPDX-License-Identifier: Apache-2.0
"""The report of an earlier run, to compare with. It is a file from anywhere: what does not fit is
refused before the server is asked anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument
from ..files import read_json
from .settings import Settings

FORMAT = "pyrdnaar-qualify/1"
# Runs that differ in one of these have asked different things.
SAME = ("model", "seed", "extra")

Reader = Callable[[Any, Settings], Any]


def load(path: Path, settings: Settings, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """What each check of `readers` finds about itself in the report."""
    try:
        report = read_json(path)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--baseline: {error}") from None
    if report.get("format") != FORMAT:
        raise InvalidArgument(f"--baseline: {path} is no report of {FORMAT}")
    _require_same(path, report.get("settings"), asdict(settings))
    return {name: _read(path, report, name, settings, reader) for name, reader in readers.items()}


def _require_same(path: Path, earlier: Any, now: dict[str, Any]) -> None:
    for name in SAME:
        value = earlier.get(name) if isinstance(earlier, dict) else None
        if value != now[name]:
            raise InvalidArgument(
                f"--baseline: {path} is of another {name}, {value!r} and not {now[name]!r}"
            )


def _read(path: Path, report: dict[str, Any], name: str, settings: Settings, reader: Reader) -> Any:
    try:
        data = report["checks"][name]["data"]
        if not isinstance(data, dict):
            raise ValueError("it holds no data")
        return reader(data, settings)
    except (KeyError, TypeError):
        reason = "it did not run"
    except ValueError as error:
        reason = str(error)
    raise InvalidArgument(
        f"--baseline: {path} has nothing to compare {name} with: {reason}; --skip {name} goes on "
        "without"
    )
