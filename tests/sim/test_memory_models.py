# SPDX-License-Identifier: Apache-2.0
"""Each rule of the weak model can be broken, and a program that keeps it never fails.

The programs are compiled for each family, with its own instructions, and run on two devices.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import offload_bundle
import pytest

from .conftest import LONG, MODELS, ROOT, run, simulated

LAUNCHES = 200 if LONG else 25
COMPILER = shutil.which(os.environ.get("DEVICE_CXX", "clang++-19"))

RIGHT, GOOD_WRITER, GOOD_READER = "right", "write_and_wait", "read_past_caches"
# Writer, reader, and what the fault is; seen in the weak model, never in the strong one.
PAIRS = (
    (GOOD_WRITER, GOOD_READER, RIGHT),
    (GOOD_WRITER, "read_after_invalidate", RIGHT),
    ("write_without_wait", GOOD_READER, "the flag overtakes its payload"),
    (GOOD_WRITER, "read_from_cache", "a load hits a line that was there before"),
    (GOOD_WRITER, "read_without_wait", "a register is used before the load has come back"),
    ("write_often", "read_often", "16 bytes arrive in parts"),
)
PAIRS_GFX12 = (
    ("write_back", GOOD_READER, RIGHT),
    ("write_without_write_back", GOOD_READER, "a store of device scope stays in the L2"),
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """bundle(target): the programs, compiled."""

    def compile_(target: str) -> Path:
        assert COMPILER is not None, (
            "no compiler for AMD GPUs: on Debian, apt install clang-19 lld-19"
        )
        makefile = (ROOT / "mk" / "device.mk").read_text()
        flags = re.search(r"^HIP_FLAGS := (.*?[^\\])$", makefile, flags=re.MULTILINE | re.DOTALL)
        assert flags is not None
        folder = tmp_path_factory.mktemp("litmus")
        source, result = Path(__file__).parent / "litmus.cu", folder / "litmus.co"
        command = [COMPILER, *flags[1].replace("\\\n", " ").split(), f"--offload-arch={target}"]
        subprocess.run([*command, "-c", str(source), "-o", str(result)], check=True, timeout=120)
        path = folder / "litmus.bundle"
        path.write_bytes(offload_bundle.pack({target: result.read_bytes()}))
        return path

    return compile_


def wrong_launches(
    code: Path, target: str, memory: str, kind: str, pairs: list[tuple[str, str]]
) -> list[int]:
    names = [name for pair in pairs for name in pair]
    environment = simulated(MODELS[target], 2, memory, 1)
    result = run(["-m", "tests.sim.litmus", str(code), str(LAUNCHES), kind, *names], environment)
    assert result.returncode == 0, result.stderr
    return [int(line.split()[-1]) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("target", MODELS)
def test_every_rule_can_be_broken(target: str, bundle: Callable[[str], Path]) -> None:
    rules = PAIRS + (PAIRS_GFX12 if target.startswith("gfx12") else ())
    code, pairs = bundle(target), [(writer, reader) for writer, reader, _ in rules]
    assert wrong_launches(code, target, "strong", "uncached", pairs) == [0] * len(pairs)
    seen = wrong_launches(code, target, "weak", "uncached", pairs)
    for (writer, reader, fault), wrong in zip(rules, seen, strict=True):
        assert (wrong == 0) == (fault == RIGHT), (
            f"{writer}, {reader} ({fault}): {wrong} of {LAUNCHES}"
        )


@pytest.mark.parametrize("target", MODELS)
def test_ordinary_memory_hides_a_peers_stores(target: str, bundle: Callable[[str], Path]) -> None:
    pair = [(GOOD_WRITER, GOOD_READER)]
    code = bundle(target)
    assert wrong_launches(code, target, "strong", "ordinary", pair) == [0]
    assert wrong_launches(code, target, "weak", "ordinary", pair)[0] > 0
