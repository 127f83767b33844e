# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar info --strict`: a library that is not the one of this package fails the right check.

Each case runs in a process of its own: what a process has loaded once stays.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import ROOT

import pyrdnaar
from pyrdnaar import _abi, elf, provenance
from pyrdnaar._library import FILE_NAMES

NAME = FILE_NAMES["host"]
CHANGED_INFO = (
    "#include <dlfcn.h>\n#include <string.h>\n"
    "rdnaar_status rdnaar_build_info(rdnaar_build_info_t *info) {{\n"
    "  rdnaar_status (*real)(rdnaar_build_info_t *);\n"
    '  *(void **)&real = dlsym(RTLD_NEXT, "rdnaar_build_info");\n'
    "  rdnaar_status status = real(info);\n"
    '  strcpy(info->{field}, "{value}");\n'
    "  return status; }}\n"
)


class Verdict(NamedTuple):
    exit_code: int
    data: dict[str, Any]
    stderr: str

    @property
    def failed(self) -> list[str]:
        return [c["name"] for c in self.data["provenance"]["checks"] if not c["ok"]]

    @property
    def failed_of_shim(self) -> list[str]:
        """A shim brings the library that it changes into the process as a second copy."""
        assert self.failed[-1] == "mapped file"
        return self.failed[:-1]

    def detail(self, name: str) -> str:
        checks = {c["name"]: c["detail"] for c in self.data["provenance"]["checks"]}
        return str(checks[name])


def strict(library: str | Path, *args: str, cwd: Path = ROOT, **environ: str) -> Verdict:
    """What a process in `cwd` says, whose package is the one there."""
    command = [sys.executable, "-m", "pyrdnaar", "info", "--strict", "--json", *args]
    env = {**os.environ, **environ, "PYTHONPATH": str(cwd)}
    if library:
        env["RDNAAR_LIBRARY"] = str(library)
    else:
        env.pop("RDNAAR_LIBRARY", None)
    result = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout, result.stderr
    assert "Traceback" not in result.stderr
    return Verdict(result.returncode, json.loads(result.stdout), result.stderr)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package alone, as pip installs it."""
    ignore = shutil.ignore_patterns("lib", "__pycache__")
    shutil.copytree(ROOT / "pyrdnaar", tmp_path / "copy" / "pyrdnaar", ignore=ignore)
    return tmp_path / "copy"


@pytest.fixture
def other_checkout(package: Path) -> Path:
    """A checkout with sources of its own, in which nothing has been built."""
    shutil.copytree(ROOT / "libhiprdnaar", package / "libhiprdnaar")
    changed = package / "libhiprdnaar" / "rdnaar.map"
    changed.write_text(changed.read_text() + "# changed\n")
    return package


# ---- The right library -------------------------------------------------------------------------


def test_the_right_library_passes(lib: pyrdnaar.Library) -> None:
    verdict = strict(lib.path)
    assert (verdict.exit_code, verdict.failed, verdict.stderr) == (0, [], "")
    assert verdict.data["path"] == lib.path
    assert verdict.data["provenance"]["ok"] is True
    names = {c["name"] for c in verdict.data["provenance"]["checks"]}
    assert names >= {
        "file", "loads", "mapped file", "ABI", "functions", "struct sizes", "release", "backend",
        "source digest", "devices", "HIP runtime",
    }  # fmt: skip
    assert verdict.detail("mapped file") == os.path.realpath(lib.path)


def test_the_table_for_people(lib: pyrdnaar.Library) -> None:
    command = [sys.executable, "-m", "pyrdnaar", "info"]
    env = {**os.environ, "RDNAAR_LIBRARY": lib.path}
    plain = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert plain.stdout.splitlines()[-1] == "provenance     all 10 checks passed"
    command.append("--strict")
    listed = subprocess.run(
        command, env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert "  ok      source digest  " in listed.stdout


def test_plain_info_only_mentions_a_failure(other_checkout: Path, lib: pyrdnaar.Library) -> None:
    command = [sys.executable, "-m", "pyrdnaar", "info"]
    env = {**os.environ, "RDNAAR_LIBRARY": lib.path, "PYTHONPATH": str(other_checkout)}
    result = subprocess.run(
        command, cwd=other_checkout, env=env, capture_output=True, text=True, check=True, timeout=60
    )
    last = result.stdout.splitlines()[-1]
    assert "FAILED: source digest; `pyrdnaar info --strict` says why" in last


# ---- The file ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 3, 40, 4096, 100_000, -1])
def test_a_truncated_file(lib: pyrdnaar.Library, tmp_path: Path, size: int) -> None:
    whole = Path(lib.path).read_bytes()
    short = tmp_path / NAME
    short.write_bytes(whole[:size])
    verdict = strict(short)
    assert (verdict.exit_code, verdict.failed) == (1, ["file"])
    assert f"{short}: " in verdict.detail("file")
    assert "truncated" in verdict.detail("file")
    # load() must not be killed by SIGBUS either.
    with pytest.raises(pyrdnaar.LibraryError, match=rf"cannot load {short}: .*truncated"):
        pyrdnaar.load(path=short)


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (18, b"\xb7\x00", "for AArch64 (64 bits, little-endian), this process is "),
        (18, b"\xe0\x00", "for an AMD GPU"),
        (18, b"\x39\x05", "for ELF machine 1337"),
        (4, b"\x01", "32 bits"),
        (5, b"\x02", "big-endian"),
    ],
)
def test_a_library_for_another_architecture(
    lib: pyrdnaar.Library, tmp_path: Path, at: int, value: bytes, said: str
) -> None:
    raw = bytearray(Path(lib.path).read_bytes())
    raw[at : at + len(value)] = value
    foreign = tmp_path / NAME
    foreign.write_bytes(raw)
    verdict = strict(foreign)
    assert (verdict.exit_code, verdict.failed) == (1, ["file"])
    assert "wrong architecture" in verdict.detail("file")
    assert said in verdict.detail("file")


def test_files_that_are_no_libraries(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library" * 10)
    assert "not an ELF file" in elf.refusal(tmp_path / "text.so")
    assert elf.refusal(tmp_path / "none.so") == "No such file or directory"
    assert elf.refusal(tmp_path) == "Is a directory"
    raw = bytearray(Path("/proc/self/exe").read_bytes())
    raw[16:18] = b"\x01\x00"
    (tmp_path / "object.so").write_bytes(raw)
    assert "not a shared library" in elf.refusal(tmp_path / "object.so")


def test_no_library_at_all(package: Path) -> None:
    verdict = strict("/nowhere/lib.so")
    assert (verdict.exit_code, verdict.failed) == (1, ["file"])
    assert "No such file" in verdict.detail("file")
    verdict = strict("", "--backend", "host", cwd=package)
    assert (verdict.exit_code, verdict.failed) == (1, ["file"])
    assert f"{NAME} is neither in this package nor on the system" in verdict.detail("file")


def test_a_library_that_is_something_else(compile_c: Callable[..., Path]) -> None:
    other = compile_c("other.so", "int other(void) { return 0; }", "-shared", "-fPIC")
    verdict = strict(other)
    assert (verdict.exit_code, verdict.failed) == (1, ["loads"])
    needs = "extern int nobody_has_this(void); int other(void) { return nobody_has_this(); }"
    verdict = strict(compile_c("needs.so", needs, "-shared", "-fPIC", "-Wl,-z,now"))
    assert (verdict.exit_code, verdict.failed) == (1, ["loads"])
    assert "nobody_has_this" in verdict.detail("loads")


# ---- What it offers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("major", "minor", "age"),
    [
        (_abi.ABI_MAJOR + 1, 0, "newer"),
        (_abi.ABI_MAJOR - 1, 9, "older"),
        (_abi.ABI_MAJOR, _abi.ABI_MINOR - 1, "older"),
    ],
)
def test_another_abi(shim: Callable[[str], Path], major: int, minor: int, age: str) -> None:
    verdict = strict(shim(f"uint32_t rdnaar_abi_version(void) {{ return {major << 16 | minor}; }}"))
    assert (verdict.exit_code, verdict.failed) == (1, ["ABI"])
    assert f"has ABI {major}.{minor}, {age} than" in verdict.detail("ABI")


def test_a_newer_minor_abi_fits(shim: Callable[[str], Path]) -> None:
    newer = _abi.ABI_MAJOR << 16 | _abi.ABI_MINOR + 1
    verdict = strict(
        shim(
            f"uint32_t rdnaar_abi_version(void) {{ return {newer}; }}\n"
            "uint32_t rdnaar_sizeof(uint32_t which) { (void)which; return 4096; }"
        )
    )
    assert verdict.failed_of_shim == []


def test_missing_functions_are_named(compile_c: Callable[..., Path]) -> None:
    version = (
        f"int rdnaar_abi_version(void) {{ return {_abi.ABI_MAJOR << 16 | _abi.ABI_MINOR}; }}\n"
    )
    lacking = ("rdnaar_abi_version", "rdnaar_probe", "rdnaar_sizeof", "rdnaar_build_info")
    have = [f.name for f in _abi.FUNCTIONS if f.name not in lacking]
    stubs = "".join(f"int {name}(void) {{ return 0; }}\n" for name in have)
    verdict = strict(compile_c("partial.so", version + stubs, "-shared", "-fPIC"))
    assert (verdict.exit_code, verdict.failed) == (1, ["functions"])
    wanted = "are missing: rdnaar_build_info, rdnaar_sizeof, rdnaar_probe;"
    assert f"3 of {len(_abi.FUNCTIONS)} {wanted}" in verdict.detail("functions")


@pytest.mark.parametrize("change", [-4, 8])
def test_structs_of_another_size(shim: Callable[[str], Path], change: int) -> None:
    size = ctypes.sizeof(_abi.Config)
    verdict = strict(
        shim(
            "#include <dlfcn.h>\n"
            "uint32_t rdnaar_sizeof(uint32_t which) {\n"
            "  uint32_t (*real)(uint32_t);\n"
            '  *(void **)&real = dlsym(RTLD_NEXT, "rdnaar_sizeof");\n'
            f"  return real(which) + (which == RDNAAR_STRUCT_CONFIG ? {change} : 0); }}"
        )
    )
    assert verdict.exit_code == 1
    assert "struct sizes" in verdict.failed
    detail = verdict.detail("struct sizes")
    assert f"rdnaar_config has {size + change} bytes, not {size}" in detail


def test_another_backend_than_asked_for(lib: pyrdnaar.Library) -> None:
    verdict = strict(lib.path, "--backend", "hip")
    assert (verdict.exit_code, verdict.failed) == (1, ["backend"])
    assert "it is a host library, asked for was hip" in verdict.detail("backend")


# ---- Where it comes from -----------------------------------------------------------------------


@pytest.mark.parametrize(("version", "age"), [("999.0.0", "newer"), ("0.0.9", "older")])
def test_another_release(shim: Callable[[str], Path], version: str, age: str) -> None:
    verdict = strict(shim(CHANGED_INFO.format(field="version", value=version)))
    assert (verdict.exit_code, verdict.failed_of_shim) == (1, ["release"])
    assert f"release {version}, {age} than this package, {pyrdnaar.__version__}" in (
        verdict.detail("release")
    )


def test_a_library_from_another_checkout(lib: pyrdnaar.Library, other_checkout: Path) -> None:
    verdict = strict(lib.path, cwd=other_checkout)
    assert (verdict.exit_code, verdict.failed) == (1, ["source digest"])
    detail = verdict.detail("source digest")
    assert lib.build_info().source_digest in detail
    assert f"{other_checkout / 'libhiprdnaar'} has " in detail
    assert "other sources" in detail
    assert "make host" in detail


def test_a_build_older_than_its_sources(lib: pyrdnaar.Library, other_checkout: Path) -> None:
    (other_checkout / "build" / "lib").mkdir(parents=True)
    shutil.copy(lib.path, other_checkout / "build" / "lib")
    verdict = strict("", "--backend", "host", cwd=other_checkout)
    assert (verdict.exit_code, verdict.failed) == (1, ["source digest"])
    assert "the sources have changed since it was built" in verdict.detail("source digest")


def test_a_library_that_does_not_know_its_sources(shim: Callable[[str], Path]) -> None:
    verdict = strict(shim(CHANGED_INFO.format(field="source_digest", value="")))
    assert verdict.failed_of_shim == ["source digest"]
    assert "does not know its own" in verdict.detail("source digest")


def test_an_installed_package(lib: pyrdnaar.Library, package: Path) -> None:
    """Without sources the wheel's own record is what a library is compared with."""
    folder = package / "pyrdnaar" / "lib"
    folder.mkdir()
    shutil.copy(lib.path, folder)
    record = folder / provenance.DIGEST_FILE
    verdict = strict("", "--backend", "host", cwd=package)
    assert (verdict.exit_code, verdict.failed) == (1, ["source digest"])
    assert "nothing to compare with" in verdict.detail("source digest")
    record.write_text(lib.build_info().source_digest + "\n")
    verdict = strict("", "--backend", "host", cwd=package)
    assert (verdict.exit_code, verdict.failed) == (0, [])
    record.write_text("0" * 64)
    verdict = strict("", "--backend", "host", cwd=package)
    assert verdict.failed == ["source digest"]
    assert f"this package was made from {'0' * 64}" in verdict.detail("source digest")


# ---- What is mapped ----------------------------------------------------------------------------


def _in_new_process(text: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", text],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return result.stdout


SHOW = (
    "checks = provenance.inspect_loaded(library).checks\n"
    "print([c.name for c in checks if not c.ok])\n"
    "print(next(c.detail for c in checks if c.name == 'mapped file'))\n"
)
LOAD = "import os, shutil, pyrdnaar\nfrom pyrdnaar import provenance\nlibrary = pyrdnaar.load("


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("os.replace(library.path + '.new', library.path)", "removed since"),
        ("os.rename(library.path, library.path + '.old')\n"
         "os.rename(library.path + '.new', library.path)", "now at {path}.old"),
    ],
)  # fmt: skip
def test_a_file_replaced_after_loading(
    lib: pyrdnaar.Library, tmp_path: Path, change: str, where: str
) -> None:
    path = tmp_path / NAME
    shutil.copy(lib.path, path)
    shutil.copy(lib.path, f"{path}.new")
    failed, detail = _in_new_process(f"{LOAD}path={str(path)!r})\n{change}\n{SHOW}").splitlines()
    assert failed == "['mapped file']"
    assert f"{path} was replaced after this process had loaded it" in detail
    assert where.format(path=path) in detail


def test_functions_of_another_file(lib: pyrdnaar.Library, shim: Callable[[str], Path]) -> None:
    wrapper = shim("")
    verdict = strict(wrapper)
    assert (verdict.exit_code, verdict.failed) == (1, ["mapped file"])
    real = os.path.realpath(lib.path)
    assert verdict.detail("mapped file").endswith(f"its functions come from {real}")


def test_a_removed_file(lib: pyrdnaar.Library, tmp_path: Path) -> None:
    path = shutil.copy(lib.path, tmp_path / NAME)
    text = f"{LOAD}path={str(path)!r})\nos.remove(library.path)\n{SHOW}"
    assert _in_new_process(text).startswith("['file', 'mapped file']\n")


def test_two_copies_in_the_process(lib: pyrdnaar.Library, tmp_path: Path) -> None:
    second = shutil.copy(lib.path, tmp_path / NAME)
    text = f"{LOAD}path={lib.path!r})\npyrdnaar.load(path={str(second)!r})\n{SHOW}"
    failed, detail = _in_new_process(text).splitlines()
    assert failed == "['mapped file']"
    assert "2 copies" in detail
    assert str(second) in detail
    assert os.path.realpath(lib.path) in detail


def test_two_hip_runtimes(
    lib: pyrdnaar.Library, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    runtimes = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        built = compile_c("runtime.so", "int hipInit(unsigned f) { return (int)f; }", "-shared")
        runtimes.append(shutil.move(built, tmp_path / folder / "libamdhip64.so.6"))
    one, two = map(str, runtimes)
    verdict = strict(lib.path, LD_PRELOAD=one)
    assert (verdict.exit_code, verdict.detail("HIP runtime")) == (0, one)
    verdict = strict(lib.path, LD_PRELOAD=f"{one}:{two}")
    assert (verdict.exit_code, verdict.failed) == (1, ["HIP runtime"])
    assert "2 copies of the HIP runtime" in verdict.detail("HIP runtime")
    assert one in verdict.detail("HIP runtime")
    assert two in verdict.detail("HIP runtime")


# ---- What it was built for ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "targets", "has"),
    [
        ("gfx1030", "gfx1030 gfx1100", True),
        ("gfx1031", "gfx1030 gfx1100", False),
        ("gfx90a:sramecc+:xnack-", "gfx90a", True),
        ("", "gfx1030", True),
        ("sm_90", "sm_90 compute_90", True),
        ("sm_89", "sm_80", True),
        ("sm_80", "sm_86", False),
        ("sm_90", "sm_80", False),
        ("sm_100", "sm_90 compute_90", True),
        ("sm_86", "sm_90 compute_90", False),
    ],
)
def test_which_devices_have_code(architecture: str, targets: str, has: bool) -> None:
    assert provenance._has_code(architecture, targets.split()) is has


def _stand_in(shim: Callable[[str], Path], device: str, count: int) -> Path:
    return shim(
        CHANGED_INFO.format(field="backend", value="hip").replace(
            "  return status;", '  strcpy(info->targets, "gfx1030 gfx1100"); return status;'
        )
        + f"rdnaar_status rdnaar_device_count(uint32_t *n) {{ *n = {count}; return RDNAAR_OK; }}\n"
        "rdnaar_status rdnaar_device_info(uint32_t index, rdnaar_device_info_t *info) {\n"
        "  (void)index; memset((char *)info + 8, 0, info->struct_size - 8);\n"
        f'  strcpy(info->architecture, "{device}"); return RDNAAR_OK; }}\n'
    )


def test_a_gpu_without_code(shim: Callable[[str], Path]) -> None:
    verdict = strict(_stand_in(shim, "gfx906", 2))
    assert (verdict.exit_code, verdict.failed_of_shim) == (1, ["devices"])
    assert "no code for device 0 (gfx906)" in verdict.detail("devices")
    assert "built for gfx1030 gfx1100" in verdict.detail("devices")
    assert strict(_stand_in(shim, "gfx1100", 1)).failed_of_shim == []
    verdict = strict(_stand_in(shim, "gfx1100", 0))
    assert (verdict.exit_code, verdict.failed_of_shim) == (1, ["devices"])
    assert "none that it can use" in verdict.detail("devices")
