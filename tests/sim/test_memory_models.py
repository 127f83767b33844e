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

LAUNCHES = 1000 if LONG else 100
LAUNCHES_IN_VAIN = 5  # that poll until they give up
COMPILER = shutil.which(os.environ.get("DEVICE_CXX", "clang++-19"))

RIGHT, GOOD_WRITER, GOOD_READER = "right", "write_and_wait", "read_past_caches"
# Writer, reader, and what the fault is; seen in the weak model, never in the strong one.
PAIRS = (
    (GOOD_WRITER, GOOD_READER, RIGHT),
    (GOOD_WRITER, "read_after_invalidate", RIGHT),
    (GOOD_WRITER, "read_and_invalidate", RIGHT),
    ("write_without_wait", GOOD_READER, "the flag overtakes its payload"),
    ("block_writes_and_waits", GOOD_READER, RIGHT),
    ("block_writes_without_wait", GOOD_READER, "the flag overtakes payload of another wave"),
    (GOOD_WRITER, "read_from_cache", "a load hits a line that was there before"),
    (GOOD_WRITER, "read_past_one_cache", "one of the bits of a load is missing"),
    (GOOD_WRITER, "read_after_invalidate_l0", "the L1 is not invalidated"),
    (GOOD_WRITER, "read_without_wait", "a register is used before the load has come back"),
    ("write_twice", "read_and_answer", RIGHT),
    ("write_twice", "read_and_answer_early", "a flag overtakes the loads before it"),
    ("write_8_often", "read_8_often", RIGHT),
    ("write_16_often", "read_16_often", "16 bytes arrive in parts"),
    ("idle", "read_scalar", RIGHT),
    ("idle", "read_scalar_without_wait", "a scalar register is used before its load has come back"),
    ("idle", "block_shares", RIGHT),
    ("idle", "block_shares_without_wait", "the barrier overtakes a store to LDS"),
)
PAIRS_BEFORE_GFX12 = (
    (GOOD_WRITER, "read_streaming", "a hint is taken for the bit that bypasses caches"),
    (GOOD_WRITER, "read_after_invalidate_l1", "the L0 is not invalidated"),
)
PAIRS_GFX12 = (
    ("write_back", GOOD_READER, RIGHT),
    ("write_back_from_unit", GOOD_READER, RIGHT),
    ("write_without_write_back", GOOD_READER, "a store of device scope stays in the L2"),
    ("write_back_to_device", GOOD_READER, "likewise, after a write-back of device scope"),
    ("write_back_without_wait", GOOD_READER, "the flag overtakes the write-back"),
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
    code: Path,
    target: str,
    memory: str,
    pairs: list[tuple[str, str]],
    kind: str = "uncached",
    launches: int = LAUNCHES,
) -> list[int]:
    names = [name for pair in pairs for name in pair]
    environment = simulated(MODELS[target], 2, memory, 1)
    result = run(["-m", "tests.sim.litmus", str(code), str(launches), kind, *names], environment)
    assert result.returncode == 0, result.stderr
    return [int(line.split()[-1]) for line in result.stdout.splitlines()]


def has_gfx12(target: str) -> bool:
    return target.startswith("gfx12")


@pytest.mark.parametrize("target", MODELS)
def test_every_rule_can_be_broken(target: str, bundle: Callable[[str], Path]) -> None:
    rules = PAIRS + (PAIRS_GFX12 if has_gfx12(target) else PAIRS_BEFORE_GFX12)
    code, pairs = bundle(target), [(writer, reader) for writer, reader, _ in rules]
    assert wrong_launches(code, target, "strong", pairs) == [0] * len(pairs)
    seen = wrong_launches(code, target, "weak", pairs)
    surprises = [
        f"{writer}, {reader} ({fault}): {wrong} of {LAUNCHES}"
        for (writer, reader, fault), wrong in zip(rules, seen, strict=True)
        if (wrong == 0) != (fault == RIGHT)
    ]
    assert surprises == []


@pytest.mark.parametrize("target", MODELS)
def test_ordinary_memory_hides_a_peers_stores(target: str, bundle: Callable[[str], Path]) -> None:
    pairs = [(GOOD_WRITER, GOOD_READER), (GOOD_WRITER, "read_and_invalidate")]
    code = bundle(target)
    strong, weak = (
        wrong_launches(code, target, memory, pairs, "ordinary", LAUNCHES_IN_VAIN)
        for memory in ("strong", "weak")
    )
    assert strong == [0, 0]
    polled, invalidated = weak
    assert polled > 0
    # Only gfx12 has an instruction that drops lines of the L2.
    assert (invalidated == 0) == has_gfx12(target)
