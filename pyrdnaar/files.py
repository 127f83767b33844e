# SPDX-License-Identifier: Apache-2.0
"""Small files that outlive a process: JSON, written whole or not at all, for this user alone."""

from __future__ import annotations

import datetime
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import platformdirs

# None of our files comes near it; whatever lies in a file's place must not fill the memory.
MAX_BYTES = 1 << 20


def cache_folder() -> Path:
    """Where files go that may be lost: $XDG_CACHE_HOME/pyrdnaar, usually ~/.cache/pyrdnaar."""
    return Path(platformdirs.user_cache_dir("pyrdnaar"))


def timestamp() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write `data`, mode 0600. A reader, or another writer at the same time, sees a whole file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, sort_keys=True)
            file.write("\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file. OSError if it cannot be read, ValueError if it is none."""
    # O_NONBLOCK: the name may lead to a pipe, which must not hold us up.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is not a file")
        with open(descriptor, "rb", closefd=False) as file:
            raw = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES} bytes")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds no JSON object")
    return data
