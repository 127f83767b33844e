# SPDX-License-Identifier: Apache-2.0
"""The test of the test: known faults of this field, built into the kernels for gfx1030, are caught.

Each patch of mutants/ is applied to a copy of the sources, the library is built from it, and the
workload runs on three simulated V620 until it fails: in both memory models, with seeds 1, 2, ...
The sources as they are pass with every seed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import LONG, ROOT, Tables, run, simulated

MUTANTS = sorted((Path(__file__).parent / "mutants").glob("*.patch"))
SEEDS = 20 if LONG else 3  # of each model, within which a mutant must be caught in one of them
ORIGINAL_SEEDS = 100 if LONG else 6
WORLD, BOUND_MS = 3, 12000
TITLE = f"mutants: first of {SEEDS} seeds that catches it, and how"

# One kernel of each algorithm does all the work here; the others are there, and empty.
REDUCED = r"""
#define EMPTY(algo, dtype, op, w)                                                       \
    RDNAAR_KERNEL(kMaxThreads) rdnaar_##algo##_##dtype##_##op##_w##w(                    \
        RDNAAR_KERNEL_PARAMETER Call, RDNAAR_KERNEL_PARAMETER GridShape) {}
#define EMPTY_WORLDS(algo, dtype, op) EMPTY(algo, dtype, op, 2) EMPTY(algo, dtype, op, 8)
#define EMPTY_ALL(algo, dtype, op) EMPTY_WORLDS(algo, dtype, op) EMPTY(algo, dtype, op, 4)
#define REDUCED(algo, kAlgo)                                                            \
    KERNEL(algo, kAlgo, fp32, Fp32, add, kOpAdd, 4) EMPTY_WORLDS(algo, fp32, add)        \
    EMPTY_ALL(algo, fp32, max) EMPTY_ALL(algo, fp16, add) EMPTY_ALL(algo, fp16, max)     \
    EMPTY_ALL(algo, bf16, add) EMPTY_ALL(algo, bf16, max)
"""

Build = Callable[[Path | None], Path]


def reduce_kernels(folder: Path) -> None:
    path = folder / "libhiprdnaar/src/device/kernels.cu"
    text, count = re.subn(r"^BY_DTYPE\(", "REDUCED(", path.read_text(), flags=re.MULTILINE)
    assert count == 3
    path.write_text(text.replace("#define KERNEL(", REDUCED + "\n#define KERNEL(", 1))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """build(patch): the library made from the sources with that patch, as a path."""

    def build_(patch: Path | None) -> Path:
        folder = tmp_path_factory.mktemp("sources")
        # With the objects that exist, and their times: what a patch leaves alone is not built.
        keep = shutil.ignore_patterns(
            "lib", "sim", "*.co", "*.bundle", "*-asan*", "*-tsan*", "nvcc*"
        )
        for name in ("libhiprdnaar", "mk", "tools", "Makefile", "build"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=keep)
            else:
                shutil.copy2(source, folder / name)
        if patch is not None:
            command = ["git", "apply", "--whitespace=nowarn", str(patch)]
            applied = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False
            )
            assert applied.returncode == 0, (
                f"{patch.name} fits the sources no more: {applied.stderr}"
            )
        reduce_kernels(folder)
        made = subprocess.run(
            ["make", "-j2", "hip", "ARCHS=gfx1030"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        return folder / "build" / "lib" / "libhiprdnaar.so"

    return build_


def outcome(library: Path, memory: str, seed: int) -> str:
    environment = simulated("V620", WORLD, memory, seed, RDNAAR_LIBRARY=str(library))
    result = run(["-m", "tests.sim.workload", str(WORLD), str(BOUND_MS)], environment)
    text = result.stdout.strip() or result.stderr.strip() or f"status {result.returncode}"
    assert (result.returncode == 0) == (text == "right"), result
    return text.splitlines()[-1]


def test_original_is_never_caught(build: Build, tables: Tables) -> None:
    library = build(None)
    for seed in range(1, ORIGINAL_SEEDS + 1):
        for memory in ("strong", "weak"):
            assert outcome(library, memory, seed) == "right", (memory, seed)
    tables.add(TITLE, f"{'original':24} right with {ORIGINAL_SEEDS} seeds in both models")


@pytest.mark.parametrize("patch", MUTANTS, ids=lambda patch: patch.stem)
def test_mutant_is_caught(patch: Path, build: Build, tables: Tables) -> None:
    library = build(patch)
    caught = {}
    for memory in ("strong", "weak"):
        for seed in range(1, SEEDS + 1):
            text = outcome(library, memory, seed)
            if text != "right":
                caught[memory] = f"seed {seed}, {re.sub(r'^.*(?:Error|Mismatch): ', '', text)[:44]}"
                break
    row = " | ".join(f"{m}: {caught.get(m, 'not caught'):54}" for m in ("strong", "weak"))
    tables.add(TITLE, f"{patch.stem:24} {row}".rstrip())
    assert caught, f"{patch.stem} is not caught: {patch.read_text().splitlines()[0]}"
