# SPDX-License-Identifier: Apache-2.0
"""Programs on simulated GPUs. These tests take minutes: `make test-sim` runs them, pytest alone
does not."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SIMULATOR = ROOT / "build" / "sim" / "libamdhip64.so.6"
LIBRARY = ROOT / "build" / "lib" / "libhiprdnaar.so"
MODELS = {"gfx1030": "V620", "gfx1100": "7900XTX", "gfx1201": "R9700"}
# A longer run: all seeds, all tests of the collective in both memory models.
LONG = os.environ.get("RDNASIM_TEST") == "long"

for folder in ("tools", "tools/rdnasim"):
    sys.path.insert(0, str(ROOT / folder))  # scripts, not packages

collect_ignore_glob = [] if "RDNASIM_TEST" in os.environ else ["test_*.py"]


def simulated(
    model: str, devices: int, memory: str = "strong", seed: int = 0, **more: str
) -> dict[str, str]:
    """The environment of a program on a simulated machine."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RDNASIM_", "RDNAAR_"))}
    return {
        **kept,
        "LD_LIBRARY_PATH": str(SIMULATOR.parent),
        "RDNASIM_DEVICES": ",".join([model] * devices),
        "RDNASIM_MEMORY": memory,
        "RDNASIM_SEED": str(seed),
        "PYTHONPATH": str(ROOT),
        "RDNASIM_CACHE": str(SIMULATOR.parent / "cache"),
        **more,
    }


def run(
    arguments: list[str], environment: dict[str, str], timeout: float = 300, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """A Python program; what it printed is part of the failure if it takes too long."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@dataclass
class Tables:
    """Lines to print when all tests have run, under their titles."""

    lines: dict[str, list[str]] = field(default_factory=dict)

    def add(self, title: str, line: str) -> None:
        self.lines.setdefault(title, []).append(line)


TABLES = Tables()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for title, lines in TABLES.lines.items():
        terminalreporter.write_sep("=", title)
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tables() -> Tables:
    return TABLES


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    for path, command in ((SIMULATOR, "make sim"), (LIBRARY, 'make hip ARCHS="gfx1030 ..."')):
        if not path.exists():
            pytest.fail(f"{path} is missing: run `{command}`")
