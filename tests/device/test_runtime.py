# SPDX-License-Identifier: Apache-2.0
"""Which GPU runtime the library takes, and what it says when there is none that it can use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

StandIn = Callable[..., Path]
Run = Callable[..., str]

# Makes a machine without a HIP runtime: nothing of that name can be loaded.
NO_RUNTIME = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *path, int flags) {
    void *(*real)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
    const int hidden = path && (strstr(path, "libamdhip64") || strstr(path, "libcuda"));
    return real(hidden ? "/nowhere/libnone.so" : path, flags);
}
"""


@pytest.fixture
def without_runtime(tmp_path: Path) -> str:
    source, target = tmp_path / "hide.c", tmp_path / "hide.so"
    source.write_text(NO_RUNTIME)
    command = ["cc", "-shared", "-fPIC", str(source), "-o", str(target), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return str(target)


@pytest.mark.parametrize("name", ["hip_library", "cuda_library"])
def test_a_machine_without_a_runtime(
    name: str, request: pytest.FixtureRequest, in_new_process: Run, without_runtime: str
) -> None:
    library = request.getfixturevalue(name)
    text = (
        "print(library.build_info().targets, [library.build_info().runtime])\n"
        "print(library.device_count())\n"
        "init(library)"
    )
    lines = in_new_process(library, text, LD_PRELOAD=without_runtime).splitlines()
    assert lines[0].endswith("['']")
    assert lines[1] == "0"
    what = "HIP runtime" if name == "hip_library" else "CUDA driver"
    assert lines[2].startswith(f"no {what} on this machine")
    assert lines[2].endswith("(E_NO_RUNTIME)")


def test_build_info_loads_no_runtime(
    hip_library: Path, in_new_process: Run, stand_in: StandIn
) -> None:
    text = (
        "print([library.build_info().runtime], 'libamdhip64' in open('/proc/self/maps').read())\n"
        "library.device_count()\n"
        "print(library.build_info().runtime)"
    )
    runtime = stand_in("runtime")
    lines = in_new_process(hip_library, text, RDNAAR_HIP_RUNTIME=str(runtime)).splitlines()
    assert lines == ["[''] False", f"HIP 6.3.42134 ({runtime})"]


def test_a_runtime_in_the_process_comes_first(
    hip_library: Path, in_new_process: Run, stand_in: StandIn
) -> None:
    mapped, named = stand_in("mapped"), stand_in("named")
    text = (
        f"ctypes.CDLL({str(mapped)!r})\nlibrary.device_count()\nprint(library.build_info().runtime)"
    )
    output = in_new_process(hip_library, text, RDNAAR_HIP_RUNTIME=str(named))
    assert output == f"HIP 6.3.42134 ({mapped})"


def test_two_runtimes_in_the_process(
    hip_library: Path, in_new_process: Run, stand_in: StandIn
) -> None:
    first, second = stand_in("first"), stand_in("second")
    text = f"for path in {[str(first), str(second)]}: ctypes.CDLL(path)\nlibrary.device_count()"
    output = in_new_process(hip_library, text)
    assert "two copies of the HIP runtime" in output
    assert str(first) in output
    assert str(second) in output
    assert output.endswith("(E_NO_RUNTIME)")


def test_a_second_runtime_that_comes_later(
    hip_library: Path, in_new_process: Run, stand_in: StandIn
) -> None:
    first, second = stand_in("first"), stand_in("second")
    text = (
        f"print(library.device_count())\nctypes.CDLL({str(second)!r})\ninit(library, transport=1)"
    )
    lines = in_new_process(hip_library, text, RDNAAR_HIP_RUNTIME=str(first)).splitlines()
    assert lines[0] == "1"
    assert "two copies of the HIP runtime" in lines[1]


def test_a_named_runtime_that_is_not_there(hip_library: Path, in_new_process: Run) -> None:
    path = "/nowhere/libamdhip64.so"
    output = in_new_process(hip_library, "library.device_count()", RDNAAR_HIP_RUNTIME=path)
    assert output.startswith(f"RDNAAR_HIP_RUNTIME is {path}, which cannot be loaded")


def test_a_runtime_that_lacks_a_function(
    hip_library: Path, in_new_process: Run, stand_in: StandIn
) -> None:
    runtime = stand_in("old", without=("hipExtMallocWithFlags",))
    output = in_new_process(hip_library, "library.device_count()", RDNAAR_HIP_RUNTIME=str(runtime))
    assert output.startswith("the HIP runtime has no function hipExtMallocWithFlags")
    assert output.endswith("(E_NO_RUNTIME)")


def test_a_runtime_without_uncached_memory(
    hip_library: Path, in_new_process: Run, stand_in: StandIn
) -> None:
    refuse = "int hipExtMallocWithFlags(void **p, size_t n, unsigned flags) { return 1; }"
    runtime = stand_in("old", refuse)
    text = "print(library.device(0).uncached)\ninit(library, transport=1)"
    lines = in_new_process(hip_library, text, RDNAAR_HIP_RUNTIME=str(runtime)).splitlines()
    assert lines[0] in ("0", "False")
    assert "cannot allocate uncached device memory" in lines[1]
    assert str(runtime) in lines[1]
    assert lines[1].endswith("(E_NO_RUNTIME)")


def test_a_runtime_that_finds_no_gpu(
    hip_library: Path, in_new_process: Run, stand_in: StandIn
) -> None:
    runtime = stand_in("empty", "int hipGetDeviceCount(int *count) { return 100; }")
    text = "print(library.device_count())\ninit(library)"
    lines = in_new_process(hip_library, text, RDNAAR_HIP_RUNTIME=str(runtime)).splitlines()
    assert lines[0] == "0"
    assert "finds no GPU" in lines[1]
    assert lines[1].endswith("(E_NO_DEVICE)")


def test_a_gpu_without_kernels(hip_library: Path, in_new_process: Run, stand_in: StandIn) -> None:
    runtime = stand_in("other", "int hipModuleLoadData(void **m, const void *i) { return 209; }")
    text = "print(library.build_info().targets)\ninit(library)"
    lines = in_new_process(hip_library, text, RDNAAR_HIP_RUNTIME=str(runtime)).splitlines()
    assert "device 0 (Stand-in) can run" in lines[1]
    assert f"it was built for {lines[0].replace('(', '').strip()}" in lines[1].replace(",", "")
    assert lines[1].endswith("(E_UNSUPPORTED)")


def test_the_whole_way_to_a_communicator(
    hip_library: Path, in_new_process: Run, stand_in: StandIn
) -> None:
    text = (
        "comm = init(library, transport=1)\n"
        "print(library.c.rdnaar_destroy(comm), library.device(0).pci_bus_id)"
    )
    runtime = stand_in("runtime")
    assert in_new_process(hip_library, text, RDNAAR_HIP_RUNTIME=str(runtime)) == "0 0000:03:00.0"


@pytest.mark.parametrize(
    ("changes", "without", "said"),
    [
        (None, (), "cannot be loaded"),
        ("", ("hipExtMallocWithFlags",), "has no function hipExtMallocWithFlags"),
        ("int hipGetDeviceCount(int *count) { return 100; }", (), "finds no GPU"),
        ("int hipModuleLoadData(void **m, const void *i) { return 209; }", (), "was built for"),
    ],
    ids=["no runtime", "too old", "no GPU", "another architecture"],
)
def test_the_command_line_says_what_is_missing(
    hip_library: Path, stand_in: StandIn, changes: str | None, without: tuple[str, ...], said: str
) -> None:
    runtime = "/nowhere.so" if changes is None else stand_in("runtime", changes, without)
    result = subprocess.run(
        [sys.executable, "-m", "pyrdnaar", "selftest", "--threads", "--backend", "hip"],
        env={**os.environ, "RDNAAR_HIP_RUNTIME": str(runtime), "RDNAAR_SHARE_DEVICE": "1"},
        cwd=hip_library.parent.parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3, result
    assert said in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
