# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for a GPU runtime: libraries of its name with functions that do next to nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))  # scripts, not a package
LIBRARIES = ROOT / "build" / "lib"
DEVICE = ROOT / "libhiprdnaar" / "src" / "device"

# What a stand-in does better than to return 0: enough for rdnaar_init() to come to the slab.
USUAL = r"""
#include <stdlib.h>
#include <string.h>
int hipGetDeviceCount(int *count) { *count = 1; return 0; }
int hipGetDevice(int *device) { *device = 0; return 0; }
int hipDeviceGetName(char *name, int size, int device) { strcpy(name, "Stand-in"); return 0; }
int hipDeviceGetPCIBusId(char *to, int size, int device) { strcpy(to, "0000:03:00.0"); return 0; }
int hipRuntimeGetVersion(int *version) { *version = 60342134; return 0; }
const char *hipGetErrorName(int error) { return error == 1 ? "hipErrorInvalidValue" : "hipError"; }
const char *hipGetErrorString(int error) { return "stand-in"; }
int hipHostMalloc(void **ptr, size_t size, unsigned flags) { return !(*ptr = calloc(1, size)); }
int hipHostGetDevicePointer(void **to, void *from, unsigned flags) { *to = from; return 0; }
int hipMalloc(void **ptr, size_t size) { return !(*ptr = calloc(1, size)); }
int hipExtMallocWithFlags(void **ptr, size_t size, unsigned f) { return !(*ptr = calloc(1, size)); }
int hipFree(void *ptr) { free(ptr); return 0; }
"""


def hip_symbols() -> list[str]:
    """All functions that the library takes from a HIP runtime."""
    table = re.findall(r"X\(\w+, (hip\w+), cu\w+", (DEVICE / "gpu_api.h").read_text())
    source = (DEVICE / "platform_hip.cpp").read_text()
    own = re.findall(r"X\(\w+, (hip\w+),", source)
    own += re.findall(r'find\(runtime, .*"(hip\w+)"', source)
    assert len(table) >= 40
    assert len(own) >= 9
    return table + own


@pytest.fixture(scope="session")
def hip_library() -> Path:
    return _library("libhiprdnaar.so", "make hip")


@pytest.fixture(scope="session")
def cuda_library() -> Path:
    return _library("libhiprdnaar_cuda.so", "make cuda")


def _library(name: str, command: str) -> Path:
    path = LIBRARIES / name
    if not path.exists():
        # A machine may lack the compilers; one that tests every change may not.
        refuse = pytest.fail if "CI" in os.environ else pytest.skip
        refuse(f"{path} is missing: run `{command}`")
    return path


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[..., Path]:
    """stand_in(folder, changes="", without=()): a libamdhip64.so.

    `changes` is C text with functions that take the place of the usual ones.
    """

    def build(folder: str, changes: str = "", without: tuple[str, ...] = ()) -> Path:
        place = tmp_path / folder
        place.mkdir()
        changed = set(re.findall(r"(hip\w+)\(", changes))
        usual = "\n".join(
            line
            for line in USUAL.splitlines()
            if not (match := re.search(r"(hip\w+)\(", line))
            or match[1] not in changed | set(without)
        )
        defined = changed | set(re.findall(r"(hip\w+)\(", usual)) | set(without)
        rest = "\n".join(f"int {name}() {{ return 0; }}" for name in set(hip_symbols()) - defined)
        source = place / "stand_in.c"
        source.write_text(f"{usual}\n{changes}\n{rest}\n")
        target = place / "libamdhip64.so"
        command = ["cc", "-shared", "-fPIC", "-w", str(source), "-o", str(target)]
        subprocess.run(command, check=True, timeout=60)
        return target

    return build


@pytest.fixture
def in_new_process() -> Callable[..., str]:
    """Run Python text with `library` loaded; what it prints comes back. Errors are printed."""

    def run(library: Path, text: str, **environment: str) -> str:
        program = (
            "import ctypes, sys\n"
            "import pyrdnaar\n"
            "from pyrdnaar import _abi\n"
            "from pyrdnaar._library import Library\n"
            "def init(library, **fields):\n"
            "    config = _abi.Config()\n"
            "    library.check(library.c.rdnaar_config_init(config, ctypes.sizeof(config)))\n"
            "    config.world = 2\n"
            "    for name, value in fields.items(): setattr(config, name, value)\n"
            "    comm = ctypes.c_void_p()\n"
            "    library.check(library.c.rdnaar_init(config, ctypes.byref(comm)))\n"
            "    return comm\n"
            "try:\n"
            f"    library = Library({str(library)!r})\n"
            + "".join(f"    {line}\n" for line in text.splitlines())
            + "except pyrdnaar.RdnaarError as error:\n"
            "    print(error)\n"
        )
        env = {k: v for k, v in os.environ.items() if not k.startswith("RDNAAR_")}
        env.update(environment)
        result = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=env,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return result.stdout.strip()

    return run
