# SPDX-License-Identifier: Apache-2.0
"""A progress line on stderr, for people: only on a terminal, and only once it takes a while."""

from __future__ import annotations

import sys
import time

PATIENCE_SECONDS = 2.0


class Progress:
    """`total` steps; 0 makes it silent."""

    def __init__(self, total: int) -> None:
        self._total = total if sys.stderr.isatty() else 0
        self._start = time.monotonic()
        self._shown = False

    def show(self, done: int) -> None:
        if self._total and time.monotonic() - self._start > PATIENCE_SECONDS:
            bar = "#" * (30 * done // self._total)
            sys.stderr.write(f"\r[{bar:30}] {done}/{self._total}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
