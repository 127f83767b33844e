# SPDX-License-Identifier: Apache-2.0
"""The digest of a source folder: sha256 over every file's path and content.

The build writes it into the library, so that a library and the sources it claims to come from can
be compared. Only names and contents count, not times, owners or the folder's place.

The Makefile runs this file by itself, before the package is installed: it needs nothing but Python.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def source_digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{content}  {path.relative_to(folder).as_posix()}\n".encode())
    return total.hexdigest()


if __name__ == "__main__":
    print(source_digest(Path(sys.argv[1])))
