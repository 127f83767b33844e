# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import pyrdnaar
from pyrdnaar import _abi
from pyrdnaar.exchange import LAUNCHERS

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "libhiprdnaar" / "include" / "rdnaar.h"
HOST_LIBRARY = ROOT / "build" / "lib" / "libhiprdnaar_host.so"


def _has_torch() -> bool:
    # tests/torch is a namespace package of the same name: only a part of the real one tells.
    try:
        return importlib.util.find_spec("torch.distributed") is not None
    except ModuleNotFoundError:
        return False


HAS_TORCH = _has_torch()

# torch/test_torch_is_here.py says so, and fails where CI is set.
collect_ignore_glob = [] if HAS_TORCH else ["torch/test_[!t]*.py", "torch/test_torch_e*.py"]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """No setting of the caller's shell reaches a test, except which library to test, and nothing is
    written into the caller's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    launcher = {name for rank, size, _ in LAUNCHERS for name in (rank, size)}
    for name in list(os.environ):
        ours = name.startswith(("RDNAAR_", "VLLM_RDNA_AR")) and name != "RDNAAR_LIBRARY"
        if ours or name in launcher:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def lib() -> pyrdnaar.Library:
    """The host library: the one RDNAAR_LIBRARY names, or the checkout's."""
    if "RDNAAR_LIBRARY" not in os.environ and not HOST_LIBRARY.exists():
        pytest.fail(f"{HOST_LIBRARY} is missing: run `make host` first")
    return pyrdnaar.load("host")


@pytest.fixture(autouse=True)
def _no_marker_left(cache: Path) -> Iterator[None]:
    """An abort of one test must not disable the next: adapters write the marker by default."""
    yield
    (cache / "pyrdnaar" / "wedge.json").unlink(missing_ok=True)


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


@pytest.fixture
def compile_c(tmp_path: Path) -> Callable[..., Path]:
    """Compile a C text: compile_c(name, source, *flags) gives the path of the result."""

    def compile_(name: str, source: str, *flags: str) -> Path:
        file = tmp_path / f"{name}.c"
        file.write_text(source)
        target = tmp_path / name
        command = ["cc", "-std=c99", "-Wall", "-Werror", f"-I{HEADER.parent}", str(file)]
        subprocess.run([*command, "-o", str(target), *flags], check=True, timeout=60)
        return target

    return compile_


@pytest.fixture
def shim(
    lib: pyrdnaar.Library, compile_c: Callable[..., Path], tmp_path: Path
) -> Callable[[str], Path]:
    """shim(source): a library that has all of `lib`'s functions, except those of the C text."""

    def shim_(source: str) -> Path:
        # The dynamic linker looks for `lib` under its soname.
        soname = tmp_path / f"{HOST_LIBRARY.name}.{_abi.ABI_MAJOR}"
        if not soname.exists():
            soname.symlink_to(lib.path)
        flags = ("-shared", "-fPIC", "-Wl,--no-as-needed", lib.path, f"-Wl,-rpath,{tmp_path}")
        source = f"#define _GNU_SOURCE\n#include <rdnaar.h>\n{source}"
        return compile_c(f"shim{len(list(tmp_path.iterdir()))}.so", source, *flags, "-ldl")

    return shim_


@pytest.fixture
def descriptors() -> Iterator[None]:
    """The test must leave as many open file descriptors as it found."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    after = {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
    assert len(after) <= len(before), sorted(after - before)
