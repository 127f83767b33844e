# SPDX-License-Identifier: Apache-2.0
"""What the finished GPU libraries are, read from the files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import offload_bundle
import pytest

from .conftest import ROOT

HEADER = ROOT / "libhiprdnaar" / "include" / "rdnaar.h"
LIBRARIES = ("hip_library", "cuda_library")


@pytest.mark.parametrize("name", LIBRARIES)
def test_no_dependency_on_a_gpu_runtime(name: str, request: pytest.FixtureRequest) -> None:
    library = request.getfixturevalue(name)
    output = subprocess.run(
        ["readelf", "-dW", str(library)], check=True, capture_output=True, text=True
    ).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output)
    assert needed
    assert all(re.match(r"(libc|libm|libdl|libpthread|ld-linux.*)\.so", n) for n in needed), needed
    assert f"[{library.name}.1]" in output  # soname


@pytest.mark.parametrize("name", LIBRARIES)
def test_exports_are_those_of_the_header(name: str, request: pytest.FixtureRequest) -> None:
    library = request.getfixturevalue(name)
    output = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True
    ).stdout
    exported = set(re.findall(r" T (\w+)", output))
    declared = set(re.findall(r"^RDNAAR_API .*?(rdnaar_\w+)\(", HEADER.read_text(), re.MULTILINE))
    assert exported == declared
    assert not re.findall(r" [DBW] \w", output)


def test_targets_are_read_from_the_library(
    hip_library: Path, in_new_process: Callable[..., str]
) -> None:
    targets = list(offload_bundle.code_objects(hip_library))
    output = in_new_process(hip_library, "print(library.build_info().targets)")
    assert re.findall(r"gfx\w+", output) == targets


def test_cuda_targets(cuda_library: Path, in_new_process: Callable[..., str]) -> None:
    output = in_new_process(cuda_library, "print(library.build_info().targets)")
    assert re.findall(r"(?:sm|compute)_\d+", output)
