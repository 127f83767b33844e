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

import offload_bundle
import pytest
from rdna_code import CodeObject

from .conftest import LONG, ROOT, Tables, run, simulated

MUTANTS = sorted((Path(__file__).parent / "mutants").glob("*.patch"))
SEEDS = 20 if LONG else 3  # of each model, within which a mutant must be caught in one of them
ORIGINAL_SEEDS = 100 if LONG else 6
WORLD, BOUND_MS = 3, 12000
TITLE = f"mutants: the first of {SEEDS} seeds that catches each"

# One kernel of each collective does all the work here; the others are there, and empty.
REDUCED = r"""
#define EMPTY(algo, dtype, op, w)                                                       \
    RDNAAR_KERNEL(kMaxThreads) rdnaar_##algo##_##dtype##_##op##_w##w(                    \
        RDNAAR_KERNEL_PARAMETER Call, RDNAAR_KERNEL_PARAMETER GridShape) {}
#define EMPTY_WORLDS(algo, dtype, op) EMPTY(algo, dtype, op, 2) EMPTY(algo, dtype, op, 8)
#define EMPTY_ALL(algo, dtype, op) EMPTY_WORLDS(algo, dtype, op) EMPTY(algo, dtype, op, 4)
#define ONE_WORLD(algo, kAlgo)                                                          \
    KERNEL(algo, kAlgo, fp32, Fp32, add, kOpAdd, 4) EMPTY_WORLDS(algo, fp32, add)
#define REDUCED(algo, kAlgo)                                                            \
    ONE_WORLD(algo, kAlgo) EMPTY_ALL(algo, fp32, max) EMPTY_ALL(algo, fp16, add)         \
    EMPTY_ALL(algo, fp16, max) EMPTY_ALL(algo, bf16, add) EMPTY_ALL(algo, bf16, max)
"""
# Lines of kernels.cu, how many there are, and what becomes of them.
REDUCTIONS = (
    (r"^BY_DTYPE\(", 4, "REDUCED("),
    (r"^BY_WORLD\((\w+), \w+, (fp16|bf16), .*\)$", 2, r"EMPTY_ALL(\1, \2, add)"),
    (r"^BY_WORLD\((\w+), (\w+), fp32, .*\)$", 1, r"ONE_WORLD(\1, \2)"),
)

Build = Callable[[Path | None], Path]


def reduce_kernels(folder: Path) -> None:
    path = folder / "libhiprdnaar/src/device/kernels.cu"
    text = path.read_text()
    for pattern, wanted, replacement in REDUCTIONS:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        assert count == wanted, f"{pattern} is in {count} lines of {path.name}, not in {wanted}"
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


def code(library: Path) -> list[tuple[str, str]]:
    """The instructions of all kernels."""
    (content,) = offload_bundle.code_objects(library).values()
    return [(i.name, i.operands) for k in CodeObject(content).kernels() for i in k.instructions]


@pytest.fixture(scope="module")
def original(build: Build) -> Path:
    return build(None)


def outcome(library: Path, memory: str, seed: int) -> str:
    environment = simulated("V620", WORLD, memory, seed, RDNAAR_LIBRARY=str(library))
    result = run(["-m", "tests.sim.workload", str(WORLD), str(BOUND_MS)], environment)
    text = result.stdout.strip() or result.stderr.strip() or f"status {result.returncode}"
    assert (result.returncode == 0) == (text == "right"), result
    assert "Disabled" not in text, f"it did not even start: {text}"
    return text.splitlines()[-1]


def test_original_is_never_caught(original: Path) -> None:
    for seed in range(1, ORIGINAL_SEEDS + 1):
        for memory in ("strong", "weak"):
            assert outcome(original, memory, seed) == "right", (memory, seed)


@pytest.mark.parametrize("patch", MUTANTS, ids=lambda patch: patch.stem)
def test_mutant_is_caught(patch: Path, build: Build, original: Path, tables: Tables) -> None:
    library, fault = build(patch), patch.read_text().splitlines()[0]
    assert code(library) != code(original), f"{patch.name} changes no instruction"
    caught = {"strong": "-", "weak": "-"}
    for memory in caught:
        for seed in range(1, SEEDS + 1):
            text = outcome(library, memory, seed)
            if text != "right":
                caught[memory] = f"seed {seed}"
                print(f"{memory}, seed {seed}: {text}")
                break
    tables.add(TITLE, f"| `{patch.stem}` | {fault} | {caught['strong']} | {caught['weak']} |")
    assert set(caught.values()) != {"-"}, f"not caught: {fault}"
