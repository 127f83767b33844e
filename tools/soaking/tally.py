# SPDX-License-Identifier: Apache-2.0
"""What was run, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

FAULTS = ("hangs", "wrong", "leaks", "crashes")
KEPT = 20  # problems whose text is kept; all are counted


@dataclass
class Tally:
    """One row of the report. `executed` counts what really ran; fewer than `planned` is a failure.

    hangs: what did not end within its bound. wrong: results, verdicts and errors other than those
    that are right. leaks: what was left behind. crashes: processes that died, unexpected errors.
    """

    name: str
    unit: str
    planned: int
    executed: int = 0
    hangs: int = 0
    wrong: int = 0
    leaks: int = 0
    crashes: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def note(self, fault: str, text: str) -> None:
        """Count one of FAULTS."""
        setattr(self, fault, getattr(self, fault) + 1)
        if len(self.problems) < KEPT:
            self.problems.append(f"{fault}: {text}")

    @property
    def ok(self) -> bool:
        return self.executed >= self.planned and not any(getattr(self, f) for f in FAULTS)
