# SPDX-License-Identifier: Apache-2.0
"""The protocol's source survives the explorer, and each planted fault is caught.

Minutes of work on all processors, so `make test-explorer` runs it, not `make test`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SOURCES = (Path("libhiprdnaar/src/protocol"), Path("tests/explorer"))
FAULTS = sorted((HERE / "faults").glob("*.patch"))

EXPLORER = os.environ.get("EXPLORER")
SECONDS = int(os.environ.get("EXPLORER_SECONDS", "180"))
SEED = os.environ.get("EXPLORER_SEED", "1")
JOBS = int(os.environ.get("EXPLORER_JOBS", "2"))
CXX = os.environ.get("CXX", "g++")

# A planted fault must be caught within these; most are within a hundred schedules.
HUNT = ("--seconds", "200", "--schedules", "200000", "--per-scenario", "20", "--seed", "1")

pytestmark = pytest.mark.skipif(EXPLORER is None, reason="takes minutes: make test-explorer")


def explore(binary: str | Path, *arguments: str, timeout: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary), *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_every_pair_of_algorithms_to_the_end() -> None:
    assert EXPLORER is not None
    result = explore(EXPLORER, "exhaust", timeout=600)
    print(result.stdout)
    assert result.returncode == 0
    pairs = re.findall(
        r"^(\w+) (\w+) (?:drained stores|cumulative release) {2,}", result.stdout, re.M
    )
    algos = ("ll", "oneshot", "twoshot", "reduce_scatter", "all_gather")
    assert sorted(pairs) == sorted(2 * [(a, b) for a in algos for b in algos])
    assert "complete: " in result.stdout


def test_the_protocol_survives() -> None:
    assert EXPLORER is not None
    arguments = ("--seconds", str(SECONDS), "--seed", SEED, "--jobs", str(JOBS))
    result = explore(EXPLORER, "explore", *arguments, timeout=SECONDS + 120)
    print(result.stdout)
    assert result.returncode == 0
    match = re.search(r"^(\d+) schedules of (\d+) scenarios", result.stdout, re.M)
    assert match is not None
    assert int(match[1]) > 100 * SECONDS, "so slow that it shows nothing"


# ---- Planted faults --------------------------------------------------------------------------


@dataclass
class Hunt:
    fault: str
    output: str
    binary: Path

    @property
    def caught(self) -> re.Match[str] | None:
        return re.search(r"^caught by (\w+) after (\d+) schedules$", self.output, re.M)


def plant(patch: Path, folder: Path) -> Path:
    """A copy of the sources with the fault in it, compiled."""
    for source in SOURCES:
        shutil.copytree(ROOT / source, folder / source)
    subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True, timeout=60)
    one = folder / "all.cpp"
    files = sorted((folder / "tests" / "explorer").glob("*.cpp"))
    one.write_text("".join(f'#include "{file}"\n' for file in files))
    flags = ("-std=c++17", "-O0", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-DEXPLORER_QUICK")
    binary = folder / "explorer"
    command = [CXX, *flags, "-Wno-maybe-uninitialized", "-o", str(binary), str(one)]
    subprocess.run(command, check=True, timeout=300)
    return binary


def hunt(patch: Path, folder: Path) -> Hunt | Exception:
    try:
        binary = plant(patch, folder)
        named = re.search(r"^run: (.*)$", patch.read_text(), re.M)
        arguments = named[1].split() if named else ["explore"]
        if arguments[0] == "explore":
            arguments.extend(HUNT)
        result = explore(binary, *arguments, timeout=400)
        return Hunt(patch.stem, result.stdout + result.stderr, binary)
    except (OSError, subprocess.SubprocessError) as error:
        return error


@pytest.fixture(scope="module")
def hunts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Hunt | Exception]]:
    folder = tmp_path_factory.mktemp("faults")
    with ThreadPoolExecutor(JOBS) as pool:
        found = pool.map(lambda patch: hunt(patch, folder / patch.stem), FAULTS)
        yield {patch.stem: result for patch, result in zip(FAULTS, found, strict=True)}


@pytest.mark.parametrize("fault", [patch.stem for patch in FAULTS])
def test_planted_fault_is_caught(hunts: dict[str, Hunt | Exception], fault: str) -> None:
    result = hunts[fault]
    if isinstance(result, Exception):
        raise result
    assert result.caught is not None, result.output
    assert re.search(r"^FAILED \w+: ", result.output, re.M)


def test_a_failing_schedule_replays(hunts: dict[str, Hunt | Exception]) -> None:
    """By its id alone: the same failure, the same trace."""
    result = hunts["gather_aliases_scatter"]
    assert isinstance(result, Hunt)
    match = re.search(r"^replay: explorer replay (\w+:\d+)$", result.output, re.M)
    assert match is not None
    report = result.output[result.output.index("FAILED ") :]
    again = explore(result.binary, "replay", match[1], timeout=60)
    assert again.returncode == 1
    assert again.stdout == report[: len(again.stdout)]
    assert EXPLORER is not None
    assert explore(EXPLORER, "replay", match[1], timeout=60).returncode == 0


def test_table(hunts: dict[str, Hunt | Exception]) -> None:
    """Prints the table of docs/protocol.md, which must have a line for every fault."""
    text = (ROOT / "docs" / "protocol.md").read_text()
    lines = []
    for patch in FAULTS:
        result = hunts[patch.stem]
        assert isinstance(result, Hunt)
        assert result.caught is not None
        reason = patch.read_text().splitlines()[0]
        lines.append(f"| {patch.stem} | {reason} | {result.caught[1]} | {result.caught[2]} |")
    print("", *lines, sep="\n")
    for patch in FAULTS:
        assert f"| {patch.stem} |" in text, f"docs/protocol.md has no line for {patch.stem}"
