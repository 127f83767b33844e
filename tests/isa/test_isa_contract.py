# SPDX-License-Identifier: Apache-2.0
"""The contract on the machine code, and that each of its rules can be broken.

A mutant is a copy of the sources with one fault put in, compiled for a target of each family; the
rule that names the fault must be the one that complains.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import isa_contract
import offload_bundle
import pytest
from rdna_code import CodeObject, find_objdump

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "libhiprdnaar"
LIBRARY = ROOT / "build" / "lib" / "libhiprdnaar.so"
COMPILER = shutil.which(os.environ.get("DEVICE_CXX", "clang++-19"))
TARGETS = ("gfx1030", "gfx1100", "gfx1201")
LANE = "src/device/lane_amd.h"

# A machine may lack the tools; one that tests every change (CI) may not.
MAY_SKIP = "CI" not in os.environ

pytestmark = pytest.mark.skipif(
    MAY_SKIP and find_objdump() is None,
    reason="llvm-objdump is missing: on Debian, apt install llvm-19",
)
needs_compiler = pytest.mark.skipif(
    MAY_SKIP and COMPILER is None,
    reason="no compiler for AMD GPUs: on Debian, apt install clang-19 lld-19",
)


def test_library_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    if MAY_SKIP and not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is missing: run `make hip`")
    command = [sys.executable, str(ROOT / "tools" / "isa_contract.py"), str(LIBRARY)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    with capsys.disabled():
        print("\n" + result.stdout)
    assert result.returncode == 0, result.stderr


def test_bundle_gives_back_what_it_was_given() -> None:
    objects = {"gfx1030": b"a" * 5000, "gfx1201": b"b"}
    bundle = offload_bundle.pack(objects)
    assert dict(offload_bundle.unpack(bundle)) == objects
    assert bundle.index(b"a" * 5000) % 4096 == 0


@pytest.mark.skipif(shutil.which("clang-offload-bundler-19") is None, reason="no such tool here")
def test_bundle_is_that_of_clang(tmp_path: Path) -> None:
    bundle = tmp_path / "kernels.bundle"
    bundle.write_bytes(offload_bundle.pack({"gfx1030": b"a" * 5000, "gfx1201": b"b"}))
    command = ["clang-offload-bundler-19", "--list", "--type=o", f"--input={bundle}"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert set(output.split()) >= {
        "hipv4-amdgcn-amd-amdhsa--gfx1030",
        "hipv4-amdgcn-amd-amdhsa--gfx1201",
    }


# ---- Mutants -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    fault: str
    complaint: str  # what a complaint of the contract must begin with
    edits: tuple[tuple[str, str, str], ...] = ()  # file, pattern, replacement
    flags: tuple[str, ...] = ()
    targets: tuple[str, ...] = TARGETS


NO_DRAIN = (
    (LANE, r"(void drain_stores\(\) \{).*?\n\}", r"\1}"),
    (LANE, r"__builtin_amdgcn_fence\(__ATOMIC_RELEASE, \"workgroup\"\);", ""),
)
MUTANTS = (
    Mutant(
        "stores to peers of 4 bytes",
        "wide: payload moves in less",
        (
            (
                LANE,
                r"buffer_store\(v, (.*?)\);",
                r"for (int w = 0; w < 4; w++) "
                r'{ store4(v[w], \1); asm volatile("s_nop 0" ::: "memory"); }',
            ),
            (
                LANE,
                r"int32_t\(offset\), first_lane\(slot\), kStoreSystem",
                "int32_t(offset) + 4 * w, first_lane(slot), kStoreSystem",
            ),
            (
                LANE,
                r"// Said again",
                "__attribute__((device)) void store4(uint32_t, Descriptor, int32_t, int32_t, "
                'int32_t) __asm("llvm.amdgcn.raw.buffer.store.i32");\n// Said again',
            ),
        ),
    ),
    Mutant(
        "payload loads that may hit a cache",
        "bypass: a payload load",
        ((LANE, r"first_lane\(slot\), kBypassCaches", "first_lane(slot), 0"),),
    ),
    Mutant(
        "flag polls that may hit a cache",
        "bypass: a poll",
        (
            (
                LANE,
                r"(load_word_acquire_system.*?)__HIP_MEMORY_SCOPE_SYSTEM",
                r"\1__HIP_MEMORY_SCOPE_WAVEFRONT",
            ),
        ),
    ),
    Mutant(
        "stores of device scope",
        "bypass: a payload store",
        ((LANE, r"kStoreSystem = 3 << 3", "kStoreSystem = 2 << 3"),),
        targets=("gfx1201",),
    ),
    # On gfx11 and gfx12 clang waits for stores before any barrier, on gfx10 it does not.
    Mutant("no drain", "drain: a wave comes to the barrier", NO_DRAIN, targets=("gfx1030",)),
    Mutant(
        "flag before the block has met",
        "drain: a flag may overtake payload of another wave",
        (("src/protocol/flags.h", r"(lane\.drain\(\);\s*)lane\.barrier\(\);", r"\1"),),
    ),
    Mutant(
        "flag before the drain",
        "drain: a flag may overtake payload of its wave",
        (
            ("src/protocol/flags.h", r"lane\.drain\(\);\s*lane\.barrier\(\);", ""),
            (LANE, r"(store_word_release_system.*?)__ATOMIC_RELEASE", r"\1__ATOMIC_RELAXED"),
        ),
    ),
    Mutant(
        "a clock of cycles",
        "clock: ",
        (
            (
                LANE,
                r"return __builtin_amdgcn_s_(memrealtime\(\)|sendmsg_rtnl\(0x83\))",
                "return __builtin_readcyclecounter()",
            ),
        ),
    ),
    Mutant("CU mode", "modes: CU mode", flags=("-mcumode",)),
    Mutant(
        "subnormals flushed",
        "modes: subnormals",
        flags=("-fgpu-flush-denormals-to-zero",),
    ),
    Mutant(
        "registers spilled",
        "scratch: ",
        (
            (
                LANE,
                r"amdgpu_flat_work_group_size\(1, threads\)",
                "amdgpu_flat_work_group_size(1, threads), amdgpu_num_vgpr(24)",
            ),
        ),
    ),
    Mutant(
        "a hidden argument",
        "arguments: ",
        (
            (
                LANE,
                r"return __builtin_amdgcn_workgroup_id_x\(\);",
                "return __builtin_amdgcn_workgroup_id_x() + *(const uint32_t *)(const "
                "__attribute__((address_space(4))) uint32_t *)__builtin_amdgcn_implicitarg_ptr();",
            ),
        ),
    ),
)


@pytest.fixture(scope="module")
def compile_kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CodeObject]:
    """Compile one kernel of each algorithm from a copy of the sources: compile(target, mutant)."""

    def compile_(target: str, mutant: Mutant | None = None) -> CodeObject:
        folder = tmp_path_factory.mktemp("sources")
        shutil.copytree(SOURCES / "src", folder / "src")
        kernels = folder / "src" / "device" / "kernels.cu"
        text, count = re.subn(
            r"BY_DTYPE\((\w+), (\w+)\)",
            r"KERNEL(\1, \2, fp16, Fp16, add, kOpAdd, 4)",
            kernels.read_text(),
        )
        assert count == 4
        # The fifth folds nothing, and is there by dtype.
        text, count = re.subn(
            r"BY_WORLD\(allgather, (\w+), fp16, .*\)",
            r"KERNEL(allgather, \1, fp16, Fp16, add, kOpAdd, 4)",
            text,
        )
        assert count == 1
        text, count = re.subn(r"^BY_WORLD\(allgather, .*\)$", "", text, flags=re.MULTILINE)
        assert count == 2
        kernels.write_text(text)
        for name, pattern, replacement in mutant.edits if mutant else ():
            path = folder / name
            text, count = re.subn(pattern, replacement, path.read_text(), flags=re.DOTALL)
            assert count > 0, f"{pattern} is not in {name} any more"
            path.write_text(text)
        return CodeObject(_compile(folder, kernels, target, mutant.flags if mutant else ()))

    return compile_


def _compile(folder: Path, source: Path, target: str, flags: tuple[str, ...]) -> bytes:
    makefile = (ROOT / "mk" / "device.mk").read_text()
    match = re.search(r"^HIP_FLAGS := (.*?[^\\])$", makefile, flags=re.MULTILINE | re.DOTALL)
    assert match is not None
    assert COMPILER is not None
    result = folder / "kernels.co"
    usual = [f for f in match[1].replace("\\\n", " ").split() if f != "-Werror"]
    command = [COMPILER, *usual, f"--offload-arch={target}", *flags, "-c", str(source)]
    subprocess.run([*command, "-o", str(result)], check=True, timeout=300, capture_output=True)
    return result.read_bytes()


def complaints(code: CodeObject, target: str) -> list[str]:
    gfx = isa_contract.family(target)
    return [text for kernel in code.kernels() for text in isa_contract.violations(kernel, gfx)]


@needs_compiler
@pytest.mark.parametrize("target", TARGETS)
def test_sources_keep_the_contract(compile_kernels: Callable[..., CodeObject], target: str) -> None:
    assert complaints(compile_kernels(target), target) == []


@needs_compiler
@pytest.mark.parametrize(
    ("mutant", "target"),
    [
        pytest.param(mutant, target, id=f"{mutant.fault}-{target}")
        for mutant in MUTANTS
        for target in mutant.targets
    ],
)
def test_mutant_is_caught(
    compile_kernels: Callable[..., CodeObject], mutant: Mutant, target: str
) -> None:
    found = complaints(compile_kernels(target, mutant), target)
    assert any(text.startswith(mutant.complaint) for text in found), found
