# SPDX-License-Identifier: Apache-2.0
"""Pack code objects of AMD GPUs into an offload bundle, and read one, alone or inside a library.

The format is clang's (clang-offload-bundler), which the HIP runtime loads: a magic text, the number
of entries, for each its offset, size and name, then the code objects. The options of that tool are
not the same in all clangs; the format is.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
HOST = "host-x86_64-unknown-linux-gnu-"  # an entry without code: the runtime passes over it
PREFIX = "hipv4-amdgcn-amd-amdhsa--"
ALIGNMENT = 4096  # as clang aligns them: a runtime may map an object from its pages


def pack(objects: dict[str, bytes]) -> bytes:
    """A bundle of {target: code object}."""
    names = [HOST, *(PREFIX + target for target in objects)]
    contents = [b"", *objects.values()]
    position = len(MAGIC) + 8 + sum(24 + len(name) for name in names)
    header, body = MAGIC + struct.pack("<Q", len(names)), b""
    start = position
    for name, content in zip(names, contents, strict=True):
        if content:
            padding = -position % ALIGNMENT
            body += b"\0" * padding
            position += padding
        header += struct.pack("<QQQ", position, len(content), len(name)) + name.encode()
        body += content
        position += len(content)
    assert len(header) == start
    return header + body


def unpack(bundle: bytes) -> Iterator[tuple[str, bytes]]:
    """The (target, code object) of a bundle."""
    (count,) = struct.unpack_from("<Q", bundle, len(MAGIC))
    at = len(MAGIC) + 8
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        name = bundle[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if name.startswith(PREFIX):
            yield name.removeprefix(PREFIX), bundle[offset : offset + size]


def section(elf: bytes, wanted: str) -> bytes:
    """The contents of a section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    count, names_index = struct.unpack_from("<HH", elf, 60)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + 64 * i) for i in range(count)]
    names = headers[names_index][4]
    for name, _, _, _, offset, size, *_ in headers:
        end = elf.index(b"\0", names + name)
        if elf[names + name : end].decode() == wanted:
            return elf[offset : offset + size]
    raise ValueError(f"no section {wanted}")


def code_objects(path: Path) -> dict[str, bytes]:
    """{target: code object} of a bundle or of a library that holds one."""
    content = path.read_bytes()
    if content.startswith(b"\x7fELF"):
        content = section(content, ".hip_fatbin")
    if not content.startswith(MAGIC):
        raise ValueError(f"{path} holds no offload bundle")
    return dict(unpack(content))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="make BUNDLE of files named *.TARGET.co")
    packing.add_argument("bundle", type=Path)
    packing.add_argument("objects", type=Path, nargs="+")
    listing = commands.add_parser("list", help="print the targets in a bundle or library")
    listing.add_argument("file", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "list":
        print(*code_objects(arguments.file))
        return 0
    objects = {path.suffixes[-2][1:]: path.read_bytes() for path in arguments.objects}
    arguments.bundle.write_bytes(pack(objects))
    return 0


if __name__ == "__main__":
    sys.exit(main())
