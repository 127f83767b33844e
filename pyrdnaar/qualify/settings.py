# SPDX-License-Identifier: Apache-2.0
"""What a run is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Settings:
    model: str
    seed: int = 0
    concurrency: int = 8
    repeats: int = 3  # of each greedy prompt
    samples: int = 8  # of the times
    max_tokens: int = 512  # of answers that are to end by themselves
    contexts: tuple[int, ...] = (4 << 10, 12 << 10, 24 << 10)  # characters
    depths: tuple[int, ...] = (0, 50, 100)  # per cent
    tool_seconds: float = 1.0  # the slowest tool
    extra: dict[str, Any] = field(default_factory=dict)  # added to every request
