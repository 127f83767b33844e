# SPDX-License-Identifier: Apache-2.0
"""Is the library that is used the one that belongs to this package?

Why this file exists: a library of another checkout, a build that is older than its sources, or a
second copy in the process all load and mostly work. Here every such doubt is one named check.
Nothing is trusted before it is read: the file's header before it is loaded, the ABI version before
another function is called, and all of that before a device is counted.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Iterator
from ctypes import byref, sizeof
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _abi, elf, mapped
from ._library import FILE_NAMES, Library, checkout, file_of, installed, named_file, places
from ._version import __version__
from .errors import RdnaarError
from .records import BuildInfo, DeviceInfo
from .source_digest import source_digest

DIGEST_FILE = "source_digest"
"""In the folder of a wheel's library: the digest of the sources that the wheel was made from."""

# Without these load() refuses a library, whatever its devices.
_TO_LOAD = frozenset(("file", "loads", "ABI", "functions", "struct sizes", "backend"))


@dataclass(frozen=True)
class Check:
    """`detail` says what was seen; of a failed check also what was expected and what to do."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Provenance:
    """All checks of one library. After some failures nothing further can be asked of a library,
    and the checks that would ask are not in the list."""

    path: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def failed(self) -> list[str]:
        return [check.name for check in self.checks if not check.ok]


def inspect(backend: str = "auto", path: str | os.PathLike[str] | None = None) -> Provenance:
    """Check the library that load(backend, path) would take, whether it can be loaded or not."""
    named = named_file(path)
    result = None
    for candidate in [named] if named else _candidates(backend):
        result = _examine(candidate, backend)
        # As load() does: of several the first one with a device, or one that is broken.
        if "devices" not in result.failed or _TO_LOAD & set(result.failed):
            break
    if result is None:
        names = FILE_NAMES.values() if backend == "auto" else (FILE_NAMES[backend],)
        detail = (
            f"{' or '.join(names)} is neither in this package nor on the system: build it with "
            "`make host`, or set RDNAAR_LIBRARY to its path"
        )
        return Provenance("", (Check("file", False, detail),))
    return result


def inspect_loaded(library: Library) -> Provenance:
    """Check a library that this process uses already."""
    return _examine(library.path, "auto", library.c)


def _candidates(backend: str) -> Iterator[str]:
    for name in FILE_NAMES if backend == "auto" else (backend,):
        place = next(places(FILE_NAMES[name]), None)
        if place:
            yield place


class _Refuted(Exception):
    """What a check found wrong."""


def _check(name: str, examine: Callable[..., str], *args: Any) -> Check:
    try:
        return Check(name, True, examine(*args))
    except (_Refuted, RdnaarError) as error:
        return Check(name, False, str(error))


def _examine(path: str, backend: str, cdll: ctypes.CDLL | None = None) -> Provenance:
    checks = []
    if os.sep in path:  # a bare name is looked up by the dynamic linker
        checks.append(_check("file", _file, path))
    if cdll is None and all(check.ok for check in checks):
        checks.append(_check("loads", _loads, path))
        cdll = ctypes.CDLL(path) if checks[-1].ok else None
    if cdll is not None:
        path = path if os.sep in path else file_of(cdll, path)
        checks += _examine_loaded(path, backend, cdll)
    checks.append(_check("HIP runtime", _one_hip_runtime))
    return Provenance(path, tuple(checks))


def _examine_loaded(path: str, backend: str, cdll: ctypes.CDLL) -> Iterator[Check]:
    _abi.bind_present(cdll)
    abi = _check("ABI", _abi_version, cdll)
    yield abi
    build = _build_info(cdll) if abi.ok else None
    if abi.ok:  # of a library of another ABI nothing else is known
        functions = _check("functions", _functions, cdll)
        yield functions
        if hasattr(cdll, "rdnaar_sizeof"):
            yield _check("struct sizes", _struct_sizes, cdll)
        if build:
            yield _check("release", _release, build)
            yield _check("backend", _backend, build, backend)
            yield _check("source digest", _digest, build, path)
        if build and functions.ok:
            yield _check("devices", _devices, cdll, build)
    yield _check("mapped file", _mapped, path, cdll, FILE_NAMES.get(build.backend if build else ""))


def _build_info(cdll: ctypes.CDLL) -> BuildInfo | None:
    if not hasattr(cdll, "rdnaar_build_info"):
        return None
    raw = _abi.BuildInfo(struct_size=sizeof(_abi.BuildInfo))
    cdll.rdnaar_build_info(byref(raw))
    return BuildInfo.of(raw)


# ---- The file ----------------------------------------------------------------------------------


def _file(path: str) -> str:
    problem = elf.refusal(path)
    if problem:
        raise _Refuted(
            f"{path}: {problem}. Build it with `make host`, install the package again, or set "
            "RDNAAR_LIBRARY to the library's path"
        )
    return path


def _loads(path: str) -> str:
    try:
        cdll = ctypes.CDLL(path)
    except (OSError, ValueError) as error:  # ValueError: the path is not UTF-8
        raise _Refuted(f"the dynamic linker refuses it: {error}") from None
    if not hasattr(cdll, "rdnaar_abi_version"):
        raise _Refuted(f"{path} loads, but is not a libhiprdnaar: it has no rdnaar_abi_version")
    return "yes"


def _mapped(path: str, cdll: ctypes.CDLL, usual_name: str | None) -> str:
    address = ctypes.cast(cdll.rdnaar_abi_version, ctypes.c_void_p).value or 0
    file = mapped.file_at(address)
    if file is None:
        raise _Refuted(f"no file is mapped at the library's functions, {address:#x}")
    everything = mapped.mapped_files()
    if not file.is_at(path):
        if any(other.is_at(path) for other in everything):
            raise _Refuted(f"{path} is mapped, but its functions come from {file.path}")
        # The dynamic linker goes by name: it gives the file that was loaded first under this one.
        where = "removed since" if file.deleted else f"now at {file.path}"
        raise _Refuted(
            f"{path} was replaced after this process had loaded it (the mapped file is {where}): "
            "restart the process"
        )
    # libhiprdnaar.so.1 is a libhiprdnaar.so too.
    copies = {f for f in everything if usual_name and f"{f.name}.".startswith(f"{usual_name}.")}
    return _only(copies | {file}, f"library ({usual_name})")


def _one_hip_runtime() -> str:
    runtimes = {f for f in mapped.mapped_files() if f.name.startswith("libamdhip64.so")}
    return _only(runtimes, "HIP runtime") if runtimes else "none is mapped"


def _only(files: Iterable[mapped.MappedFile], what: str) -> str:
    paths = sorted(f"{file.path} (deleted)" if file.deleted else file.path for file in files)
    if len(paths) > 1:
        raise _Refuted(
            f"this process has {len(paths)} copies of the {what}, {' and '.join(paths)}: make all "
            "its libraries use one (see LD_LIBRARY_PATH; wheels may bring their own)"
        )
    return paths[0]


# ---- What it offers ----------------------------------------------------------------------------


def _abi_version(cdll: ctypes.CDLL) -> str:
    version = cdll.rdnaar_abi_version()
    theirs, ours = (version >> 16, version & 0xFFFF), (_abi.ABI_MAJOR, _abi.ABI_MINOR)
    # A newer minor only adds.
    if theirs[0] != ours[0] or theirs < ours:
        raise _Refuted(
            f"the library has ABI {theirs[0]}.{theirs[1]}, {_age(theirs, ours)} than the "
            f"{ours[0]}.{ours[1]} of this package: use both of one release"
        )
    return f"{theirs[0]}.{theirs[1]}"


def _functions(cdll: ctypes.CDLL) -> str:
    lacking = _abi.missing(cdll)
    if lacking:
        raise _Refuted(
            f"{len(lacking)} of {len(_abi.FUNCTIONS)} are missing: {', '.join(lacking)}; rebuild "
            "the library from the sources of this package"
        )
    return f"all {len(_abi.FUNCTIONS)}"


def _struct_sizes(cdll: ctypes.CDLL) -> str:
    grown = cdll.rdnaar_abi_version() & 0xFFFF > _abi.ABI_MINOR
    wrong = []
    for which, (name, struct) in _abi.STRUCTS.items():
        theirs, ours = cdll.rdnaar_sizeof(which), sizeof(struct)
        # Fields are only ever appended, and only by a newer minor version.
        if theirs < ours or (theirs > ours and not grown):
            wrong.append(f"{name} has {theirs} bytes, not {ours}")
    if wrong:
        raise _Refuted(f"{'; '.join(wrong)}: library and package are of different releases")
    return f"all {len(_abi.STRUCTS)}"


def _backend(build: BuildInfo, wanted: str) -> str:
    if wanted not in ("auto", build.backend):
        raise _Refuted(
            f"it is a {build.backend} library, asked for was {wanted}: leave the backend at auto, "
            "or name another library (RDNAAR_LIBRARY)"
        )
    return build.backend


# ---- Where it comes from -----------------------------------------------------------------------


def _release(build: BuildInfo) -> str:
    if build.version != __version__:
        age = _age(_numbers(build.version), _numbers(__version__))
        raise _Refuted(
            f"the library is release {build.version}, {age} than this package, {__version__}: "
            "install the package of that release, or rebuild the library from these sources"
        )
    return build.version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _age(theirs: tuple[int, ...], ours: tuple[int, ...]) -> str:
    return "newer" if theirs > ours else "older" if theirs < ours else "other"


def _digest(build: BuildInfo, path: str) -> str:
    root = checkout()
    if root:
        wanted, whose = source_digest(root / "libhiprdnaar"), f"{root / 'libhiprdnaar'} has"
    else:
        wanted, whose = _recorded_digest(), "this package was made from"
    if not build.source_digest:
        raise _Refuted(f"the library does not know its own; {whose} {wanted}")
    if build.source_digest != wanted:
        stale = root and (root / "build") in Path(os.path.realpath(path)).parents
        reason = "the sources have changed since it was built" if stale else "other sources"
        raise _Refuted(
            f"the library was built from {build.source_digest}, {whose} {wanted}: {reason}"
            f"{_revision(build)}; run `make {build.backend}`, or use the library of this package"
        )
    return wanted


def _recorded_digest() -> str:
    try:
        return (installed() / DIGEST_FILE).read_text(encoding="ascii").strip()
    except OSError as error:
        raise _Refuted(
            f"nothing to compare with: no sources beside this package, and {error}; install it "
            "again with pip"
        ) from None


def _revision(build: BuildInfo) -> str:
    return f" (git revision {build.git_revision})" if build.git_revision else ""


# ---- What it was built for ---------------------------------------------------------------------


def _devices(cdll: ctypes.CDLL, build: BuildInfo) -> str:
    library = Library(cdll._name)
    found = library.devices()
    if not found:
        raise _Refuted(f"none that it can use: {library.why_no_device()}")
    if build.backend == "host":
        return f"CPU, built for {build.targets}"  # baseline code is always there
    targets = build.targets.split()
    without = [device for device in found if not _has_code(device.architecture, targets)]
    if without:
        raise _Refuted(
            f"no code for {', '.join(map(_described, without))}: it was built for {build.targets}; "
            f"rebuild it with `make {build.backend}` for that architecture"
        )
    return f"{', '.join(map(_described, found))}; built for {build.targets}"


def _described(device: DeviceInfo) -> str:
    return f"device {device.index} ({device.architecture or 'unknown architecture'})"


def _has_code(architecture: str, targets: list[str]) -> bool:
    """Whether code for one of `targets` runs on `architecture`; an unknown one may be served."""
    name = architecture.partition(":")[0]  # gfx90a:sramecc+:xnack-
    if not name.startswith("sm_"):
        return not name or name in targets
    major, minor = _capability(name)
    for target in targets:
        t_major, t_minor = _capability(target)
        if target.startswith("compute_"):  # PTX: compiled by the driver, for anything newer
            if (t_major, t_minor) <= (major, minor):
                return True
        elif t_major == major and t_minor <= minor:
            return True
    return False


def _capability(name: str) -> tuple[int, int]:
    digits = int(re.sub(r"\D", "", name) or 0)
    return digits // 10, digits % 10
