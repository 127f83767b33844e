# SPDX-License-Identifier: Apache-2.0
"""Why a file cannot be a shared library of this process, read from its ELF header.

dlopen() trusts the header: of a file that was cut short it maps pages that are not there, and the
process dies by SIGBUS at the first touch. And what it says of a library for another machine names
no machine.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, NamedTuple

# The e_machine values that someone may have at hand; others are shown as numbers.
MACHINES = {
    3: "i386",
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC 64",
    22: "S390",
    40: "ARM",
    62: "x86-64",
    183: "AArch64",
    190: "an NVIDIA GPU",
    224: "an AMD GPU",
    243: "RISC-V",
    258: "LoongArch",
}
_SHARED_OBJECT = 3
_LOADED_SEGMENT = 1


class _Kind(NamedTuple):
    """What a process and its libraries must have in common."""

    bits: int
    order: str
    machine: int

    def __str__(self) -> str:
        name = MACHINES.get(self.machine, f"ELF machine {self.machine}")
        return f"{name} ({self.bits} bits, {self.order}-endian)"


def refusal(path: str | os.PathLike[str]) -> str:
    """Why `path` must not be loaded: damaged, or for another machine. "" where nothing is seen."""
    try:
        with open(path, "rb") as file:
            return _refusal(file)
    except OSError as error:
        return error.strerror or str(error)
    except struct.error:
        return "it ends within its ELF header: it is truncated"
    except ValueError as error:  # a zero in the path
        return str(error)


def _refusal(file: BinaryIO) -> str:
    ident = file.read(16)
    if len(ident) < 16:
        return f"it has {len(ident)} bytes: it is truncated"
    if ident[:4] != b"\x7fELF":
        return "it is not an ELF file, as every shared library is"
    theirs, ours = _kind(file, ident), _own_kind()
    if theirs != ours:
        return f"wrong architecture: it is for {theirs}, this process is {ours}"
    order = "<" if ours.order == "little" else ">"
    size = os.fstat(file.fileno()).st_size
    end = _end(file, order, ours.bits)
    if end > size:
        return f"it has {size} bytes of at least {end}: it is truncated"
    file.seek(16)
    if _unpack(file, order + "H")[0] != _SHARED_OBJECT:
        return "it is an ELF file, but not a shared library"
    return ""


def _kind(file: BinaryIO, ident: bytes) -> _Kind:
    bits = {1: 32, 2: 64}.get(ident[4], 0)
    order = {1: "little", 2: "big"}.get(ident[5], "unknown")
    file.seek(18)
    (machine,) = _unpack(file, ">H" if order == "big" else "<H")
    return _Kind(bits, order, machine)


def _own_kind() -> _Kind:
    with open("/proc/self/exe", "rb") as file:
        return _kind(file, file.read(16))


def _end(file: BinaryIO, order: str, bits: int) -> int:
    """Where the last loaded segment and the table of sections end: no shorter file is whole."""
    file.seek(32 if bits == 64 else 28)
    segments, sections = _unpack(file, order + ("2Q" if bits == 64 else "2I"))
    file.seek(54 if bits == 64 else 42)
    segment_size, segment_count, section_size, section_count = _unpack(file, order + "4H")
    end = segments + segment_size * segment_count
    if sections:
        end = max(end, sections + section_size * section_count)
    for index in range(segment_count):
        file.seek(segments + index * segment_size)
        if bits == 64:
            kind, _, offset, _, _, nbytes = _unpack(file, order + "2I4Q")
        else:
            kind, offset, _, _, nbytes = _unpack(file, order + "5I")
        if kind == _LOADED_SEGMENT:
            end = max(end, offset + nbytes)
    return int(end)


def _unpack(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
