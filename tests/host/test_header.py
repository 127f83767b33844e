# SPDX-License-Identifier: Apache-2.0
"""The header alone, the exported symbols, and the library's dependencies."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import pyrdnaar

HEADER = Path(__file__).resolve().parents[2] / "libhiprdnaar" / "include" / "rdnaar.h"


@pytest.mark.parametrize(
    "command",
    [
        ["gcc", "-x", "c", "-std=c99", "-pedantic"],
        ["g++", "-x", "c++", "-std=c++17", "-pedantic"],
    ],
    ids=["C99", "C++17"],
)
def test_header_compiles_alone(command: list[str]) -> None:
    flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run([*command, *flags, str(HEADER)], check=True, timeout=60)


def test_exports_are_the_functions_of_the_header(lib: pyrdnaar.Library) -> None:
    declared = set(re.findall(r"^RDNAAR_API [^;(]*?(rdnaar_\w+)\(", HEADER.read_text(), re.M))
    assert len(declared) >= 29
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", lib.path],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    symbols = {line.split()[0].split("@")[0] for line in listing.splitlines()}
    # The version node RDNAAR_1 is listed as an absolute symbol.
    assert symbols - {"RDNAAR_1"} == declared


def test_library_needs_the_c_library_only(lib: pyrdnaar.Library) -> None:
    listing = subprocess.run(
        ["readelf", "-d", lib.path], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", listing))
    assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    assert re.search(r"SONAME.*\[libhiprdnaar_host\.so\.1\]", listing)
