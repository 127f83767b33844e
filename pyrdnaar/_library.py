# SPDX-License-Identifier: Apache-2.0
"""Find, load and check a libhiprdnaar. Nothing is loaded before load() or available() is called."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import byref, sizeof
from pathlib import Path

from . import _abi, elf
from ._abi import text
from .config import setting
from .errors import BY_STATUS, InvalidArgument, LibraryError, NoDevice, RdnaarError
from .records import BuildInfo, DeviceInfo

FILE_NAMES = {
    "hip": "libhiprdnaar.so",
    "cuda": "libhiprdnaar_cuda.so",
    "host": "libhiprdnaar_host.so",
}
BACKENDS = ("auto", *FILE_NAMES)

_HERE = Path(__file__).resolve().parent


class Library:
    """A loaded libhiprdnaar that fits this package.

    `c` is the ctypes library with every function of rdnaar.h bound. One Library can serve any
    number of communicators and threads.
    """

    def __init__(self, path: str) -> None:
        # A bare name is looked up by the dynamic linker, and not in the current directory.
        damage = elf.refusal(path) if os.sep in path and os.path.isfile(path) else ""
        if damage:
            raise LibraryError(f"cannot load {path}: {damage}. {_remedy()}")
        try:
            self.c = ctypes.CDLL(path)
        except (OSError, ValueError) as error:  # ValueError: the path has a zero, or is not UTF-8
            raise LibraryError(f"cannot load {path}: {error}. {_remedy()}") from None
        self.path = file_of(self.c, path)
        self.abi_version = self._checked_abi()
        self.backend = self.build_info().backend

    def __repr__(self) -> str:
        return f"<Library {self.backend} {self.path}>"

    def _checked_abi(self) -> int:
        # The version comes first and alone: of a library with another major nothing else is known.
        try:
            self.c.rdnaar_abi_version.restype = ctypes.c_uint32
            version: int = self.c.rdnaar_abi_version()
        except AttributeError:
            raise LibraryError(f"{self.path} is not a libhiprdnaar. {_remedy()}") from None
        if version >> 16 != _abi.ABI_MAJOR:
            raise LibraryError(
                f"{self.path} has ABI {version >> 16}.{version & 0xFFFF}, this package needs "
                f"{_abi.ABI_MAJOR}.x: library and package are of different releases. {_remedy()}"
            )
        _abi.bind(self.c)
        for which, (name, struct) in _abi.STRUCTS.items():
            size = self.c.rdnaar_sizeof(which)
            # A later minor version may append fields; the library copies the smaller size.
            if size < sizeof(struct):
                raise LibraryError(
                    f"{self.path}: {name} has {size} bytes, this package expects "
                    f"{sizeof(struct)}: library and package are of different releases. {_remedy()}"
                )
        return version

    def build_info(self) -> BuildInfo:
        info = _abi.BuildInfo(struct_size=sizeof(_abi.BuildInfo))
        self.check(self.c.rdnaar_build_info(byref(info)))
        return BuildInfo.of(info)

    def device_count(self) -> int:
        count = ctypes.c_uint32()
        self.check(self.c.rdnaar_device_count(byref(count)))
        return count.value

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(self.device(index) for index in range(self.device_count()))

    def device(self, index: int) -> DeviceInfo:
        info = _abi.DeviceInfo(struct_size=sizeof(_abi.DeviceInfo))
        self.check(self.c.rdnaar_device_info(index, byref(info)))
        return DeviceInfo.of(info)

    def why_no_device(self) -> str:
        """The reason for a device_count() of 0: any use of a device tells it."""
        stream = ctypes.c_void_p()
        status = self.c.rdnaar_stream_create(-1, byref(stream))
        self.c.rdnaar_stream_destroy(stream)  # NULL is fine
        return str(self.error(status)) if status else "it counts none"

    def peer_access(self, source: int, target: int) -> bool:
        """Whether device `source` can reach the memory of device `target`."""
        access = ctypes.c_uint32()
        self.check(self.c.rdnaar_peer_access(source, target, byref(access)))
        return bool(access.value)

    def status_name(self, status: int) -> str:
        """ "E_TOO_LARGE" for 2; "E_UNKNOWN" for a code the library does not know."""
        return text(self.c.rdnaar_status_name(status))

    def check(self, status: int, comm: int | None = None) -> None:
        """Raise the exception for `status` unless it is 0, with the library's last error text."""
        if status:
            raise self.error(status, comm)

    def error(self, status: int, comm: int | None = None) -> RdnaarError:
        reason = text(self.c.rdnaar_last_error(comm)) or text(self.c.rdnaar_status_string(status))
        error = BY_STATUS.get(status, RdnaarError)
        return error(f"{reason} ({self.status_name(status)})", status)


def load(backend: str = "auto", path: str | os.PathLike[str] | None = None) -> Library:
    """Load the library of `backend`.

    Looked for in this order: `path`, the file that RDNAAR_LIBRARY names, inside this package, a
    source checkout's build/lib, the system. The first two are final: if that file does not fit,
    no other is tried. "auto" takes a GPU library that finds a device, otherwise the host library.
    """
    if backend not in BACKENDS:
        raise InvalidArgument(f"backend {backend!r} is not one of {', '.join(BACKENDS)}")
    named = named_file(path)
    if named:
        library = Library(named)
        if backend not in ("auto", library.backend):
            raise LibraryError(
                f"{named} is a {library.backend} library, asked for was {backend}: leave the "
                "backend at auto, or name another library (RDNAAR_LIBRARY)."
            )
        _require_device(library)
        return library
    refusals = []
    for candidate in FILE_NAMES if backend == "auto" else (backend,):
        try:
            return _load_backend(candidate)
        except _AbsentError as absent:
            refusals.append(str(absent))
        except NoDevice as no_device:
            if backend != "auto":
                raise
            refusals.append(str(no_device))
    raise LibraryError(f"no library: {'; '.join(refusals)}. {_remedy()}")


def available(backend: str = "auto") -> tuple[bool, str]:
    """Whether load(backend) would succeed, and with which library, or why not."""
    try:
        library = load(backend)
    except InvalidArgument:
        raise
    except RdnaarError as error:
        return False, str(error)
    return True, f"{library.backend} library {library.path}"


class _AbsentError(LibraryError):
    """No file of that name anywhere: for "auto" a reason to go on; a broken file is not."""


def _load_backend(backend: str) -> Library:
    name = FILE_NAMES[backend]
    place = next(places(name), None)
    if place is None:
        raise _AbsentError(f"{name} is neither in this package nor on the system")
    library = Library(place)
    if library.backend != backend:
        raise LibraryError(f"{place} is a {library.backend} library, not {backend}.")
    _require_device(library)
    return library


def named_file(path: str | os.PathLike[str] | None) -> str | None:
    """The file that the caller or RDNAAR_LIBRARY names; None: search."""
    if path is not None:
        return os.fspath(path)
    named: str | None = setting("RDNAAR_LIBRARY", os.environ)
    return named


def checkout() -> Path | None:
    """The source checkout that this package lies in; None for an installed one."""
    root = _HERE.parent
    return root if (root / "libhiprdnaar" / "include" / "rdnaar.h").exists() else None


def installed() -> Path:
    """The folder of this package where a wheel has its library."""
    return _HERE / "lib"


def places(name: str) -> Iterator[str]:
    """Where a library of that file name is, best first: paths, or the name for the system's."""
    inside = [installed()]
    root = checkout()
    if root:
        inside.append(root / "build" / "lib")
    for folder in inside:
        if (folder / name).exists():
            yield str(folder / name)
    try:
        ctypes.CDLL(name)
    except OSError as error:
        # Only "no such file" means absent; a file that is there and does not load is an error.
        if str(error).startswith(f"{name}: cannot open shared object file"):
            return
    yield name


class _DlInfo(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def file_of(cdll: ctypes.CDLL, path: str) -> str:
    """The file a library was loaded from: of a bare name only the dynamic linker knows it."""
    info = _DlInfo()
    symbol = getattr(cdll, "rdnaar_abi_version", None)
    if symbol is None or not ctypes.CDLL(None).dladdr(symbol, byref(info)):
        return path
    return os.fsdecode(info.file)


def _require_device(library: Library) -> None:
    if library.device_count() == 0:
        raise NoDevice(
            f"{library.path} finds no device that it can use: {library.why_no_device()}."
        )


def _remedy() -> str:
    return (
        "Build it with `make host` in the source checkout, install the package again, or set "
        "RDNAAR_LIBRARY to the library's path."
    )
