# SPDX-License-Identifier: Apache-2.0
"""The files that are mapped into this process, as the kernel knows them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_DELETED = " (deleted)"


@dataclass(frozen=True)
class MappedFile:
    """`path` is where the file was when it was mapped; `deleted`: no longer, it was replaced."""

    path: str
    device: int
    inode: int
    deleted: bool

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def is_at(self, path: str) -> bool:
        """Whether the file that is at `path` now is this one."""
        if self.deleted:
            return False
        try:
            now = os.stat(path)
        except OSError:
            return False
        if now.st_dev != self.device:
            # Some file systems (overlayfs, btrfs) show two device numbers for one file.
            return os.path.realpath(path) == os.path.realpath(self.path)
        return now.st_ino == self.inode


def mapped_files() -> list[MappedFile]:
    """Every file once."""
    return list(dict.fromkeys(file for _, _, file in _mappings()))


def file_at(address: int) -> MappedFile | None:
    """The file whose mapping holds `address`."""
    for start, end, file in _mappings():
        if start <= address < end:
            return file
    return None


def _mappings() -> list[tuple[int, int, MappedFile]]:
    found = []
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        # address permissions offset device inode path
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        start, end = (int(part, 16) for part in fields[0].split("-"))
        major, minor = (int(part, 16) for part in fields[3].split(":"))
        path = fields[5]
        deleted = path.endswith(_DELETED)
        file = MappedFile(
            path.removesuffix(_DELETED), os.makedev(major, minor), int(fields[4]), deleted
        )
        found.append((start, end, file))
    return found
