# SPDX-License-Identifier: Apache-2.0
"""Finding, loading and refusing libraries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pyrdnaar
from pyrdnaar import InvalidArgument, LibraryError, _abi, _library, provenance

SHARED = ("-shared", "-fPIC")


def test_importing_loads_nothing() -> None:
    code = (
        "import pyrdnaar, pyrdnaar.cli\n"
        "assert 'libhiprdnaar' not in open('/proc/self/maps').read()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_host_library(lib: pyrdnaar.Library) -> None:
    info = lib.build_info()
    assert info.backend == lib.backend == "host"
    assert info.abi_version == lib.abi_version
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", info.version)
    assert re.fullmatch(r"[0-9a-f]{64}|", info.source_digest)
    assert info.targets
    assert info.compiler
    devices = lib.devices()
    assert [device.index for device in devices] == list(range(len(devices)))
    assert devices[0].memory_bytes > 0
    assert os.path.isabs(lib.path)
    assert "libhiprdnaar" in repr(lib)
    assert pyrdnaar.available("host") == (True, f"host library {lib.path}")


def test_a_device_that_is_not_there(lib: pyrdnaar.Library) -> None:
    status = lib.c.rdnaar_device_info(1000, _abi.ctypes.byref(_abi.DeviceInfo(struct_size=208)))
    with pytest.raises(pyrdnaar.RdnaarError, match="1000"):
        lib.check(status)


def test_where_the_library_is_looked_for(
    lib: pyrdnaar.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = shutil.copy(lib.path, tmp_path / "given.so")
    named = shutil.copy(lib.path, tmp_path / "named.so")
    package, checkout = tmp_path / "checkout" / "pyrdnaar", tmp_path / "checkout"
    name = _library.FILE_NAMES["host"]
    monkeypatch.setattr(_library, "_HERE", package)
    for folder in (package / "lib", checkout / "build" / "lib"):
        folder.mkdir(parents=True)
        shutil.copy(lib.path, folder / name)

    monkeypatch.setenv("RDNAAR_LIBRARY", str(named))
    assert pyrdnaar.load("host", given).path == str(given)
    assert pyrdnaar.load("host").path == str(named)
    monkeypatch.delenv("RDNAAR_LIBRARY")
    assert pyrdnaar.load("host").path == str(package / "lib" / name)
    (package / "lib" / name).unlink()
    # build/lib beside an installed package is somebody else's.
    ok, reason = pyrdnaar.available("host")
    assert (ok, name in reason, "make host" in reason) == (False, True, True)
    header = checkout / "libhiprdnaar" / "include" / "rdnaar.h"
    header.parent.mkdir(parents=True)
    header.touch()
    assert pyrdnaar.load("host").path == str(checkout / "build" / "lib" / name)


def test_the_system_is_searched_last(lib: pyrdnaar.Library, tmp_path: Path) -> None:
    name = _library.FILE_NAMES["host"]
    shutil.copy(lib.path, tmp_path / name)
    code = (
        "import pathlib, pyrdnaar, pyrdnaar._library as l; l._HERE = pathlib.Path('/nowhere/x')\n"
        "print(pyrdnaar.load('host').path)"
    )
    environ = {k: v for k, v in os.environ.items() if k != "RDNAAR_LIBRARY"}
    environ["LD_LIBRARY_PATH"] = str(tmp_path)
    command = [sys.executable, "-c", code]
    output = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    assert output.stdout.strip() == str(tmp_path / name)


def test_a_file_that_is_not_there_or_not_a_library(tmp_path: Path) -> None:
    for path in (tmp_path / "none.so", tmp_path / "text.so"):
        (tmp_path / "text.so").write_text("not a library")
        with pytest.raises(LibraryError, match=f"cannot load {path}.*make host") as caught:
            pyrdnaar.load(path=path)
        assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff.so"), "zero\0.so"])
def test_names_that_the_linker_cannot_take(
    lib: pyrdnaar.Library, tmp_path: Path, name: str
) -> None:
    path = str(tmp_path / name)
    with pytest.raises(LibraryError, match="cannot load"):
        pyrdnaar.load(path=path)
    assert provenance.inspect(path=path).failed == ["file"]
    if "\0" not in name:
        shutil.copy(lib.path, path)
        assert pyrdnaar.load(path=path).path == path


def test_another_backend_than_asked_for(lib: pyrdnaar.Library) -> None:
    with pytest.raises(LibraryError, match="is a host library, asked for was hip"):
        pyrdnaar.load("hip", lib.path)
    with pytest.raises(InvalidArgument, match="'gpu' is not one of auto, hip, cuda, host"):
        pyrdnaar.load("gpu")


def test_a_library_of_another_kind(compile_c: Callable[..., Path]) -> None:
    library = compile_c("other.so", "int other(void) { return 0; }", *SHARED)
    with pytest.raises(LibraryError, match="is not a libhiprdnaar"):
        pyrdnaar.load(path=library)


def test_another_abi_is_refused_before_anything_else(compile_c: Callable[..., Path]) -> None:
    """A library with nothing but its version: no other function may be needed to refuse it."""
    library = compile_c("next.so", "int rdnaar_abi_version(void) { return 2 << 16 | 3; }", *SHARED)
    with pytest.raises(LibraryError, match=r"has ABI 2\.3, this package needs 1\.x.*Build it"):
        pyrdnaar.load(path=library)


@pytest.mark.parametrize(("devices", "taken"), [(0, "host"), (1, "hip")])
def test_auto_takes_a_gpu_library_only_with_a_device(
    lib: pyrdnaar.Library,
    shim: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    devices: int,
    taken: str,
) -> None:
    gpu = shim(
        "#include <dlfcn.h>\n#include <string.h>\n"
        "rdnaar_status rdnaar_build_info(rdnaar_build_info_t *info) {\n"
        "  rdnaar_status (*real)(rdnaar_build_info_t *);\n"
        '  *(void **)&real = dlsym(RTLD_NEXT, "rdnaar_build_info");\n'
        "  rdnaar_status status = real(info);\n"
        '  strcpy(info->backend, "hip");\n'
        "  return status; }\n"
        "rdnaar_status rdnaar_device_count(uint32_t *count) {\n"
        f"  *count = {devices}; return RDNAAR_OK; }}\n"
    )
    folder = tmp_path / "package" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(gpu, folder / _library.FILE_NAMES["hip"])
    shutil.copy(lib.path, folder / _library.FILE_NAMES["host"])
    monkeypatch.setattr(_library, "_HERE", tmp_path / "package")
    monkeypatch.delenv("RDNAAR_LIBRARY", raising=False)
    assert pyrdnaar.load().backend == taken
    assert pyrdnaar.available("hip")[0] == (taken == "hip")
    shutil.copy(lib.path, folder / _library.FILE_NAMES["cuda"])
    with pytest.raises(LibraryError, match="is a host library, not cuda"):
        pyrdnaar.load("cuda")


@pytest.mark.parametrize(("size", "fits"), [(0, False), (119, False), (1 << 12, True)])
def test_struct_sizes_are_checked(shim: Callable[[str], Path], size: int, fits: bool) -> None:
    """A struct may have grown at its end; it may not be smaller than this package knows it."""
    library = shim(f"uint32_t rdnaar_sizeof(uint32_t which) {{ (void)which; return {size}; }}")
    if fits:
        assert pyrdnaar.load(path=library).backend == "host"
        return
    with pytest.raises(LibraryError, match=f"rdnaar_build_info_t has {size} bytes"):
        pyrdnaar.load(path=library)


def test_a_library_without_devices(shim: Callable[[str], Path]) -> None:
    library = shim(
        "rdnaar_status rdnaar_device_count(uint32_t *count) { *count = 0; return RDNAAR_OK; }"
    )
    with pytest.raises(pyrdnaar.NoDevice, match="finds no device"):
        pyrdnaar.load(path=library)
