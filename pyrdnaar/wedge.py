# SPDX-License-Identifier: Apache-2.0
"""The wedge marker: a file that says that this machine's links or devices did not do their work.

A program that goes on with another all-reduce after an abort would run into the same bound at its
next start, and the one after. So the abort is written down, and a start that finds the file stays
disabled and says why, until a person has looked and removed it (`pyrdnaar wedge clear`).

Only reasons that lie in the machine are written down: a peer that did not come in time, a runtime
that refused a call. A killed peer or different calls are over with the processes.
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .config import Config
from .errors import RdnaarError
from .files import cache_folder, read_json, timestamp, write_json
from .records import AbortRecord

REASONS = ("timeout", "runtime")


class Wedged(RdnaarError):
    """A marker was found. The message has the record and the remedy."""


def path_of(config: Config) -> Path:
    """The marker's place: as configured, or in the cache folder."""
    return Path(config.wedge_file) if config.wedge_file else cache_folder() / "wedge.json"


def write(path: Path, record: AbortRecord) -> bool:
    """Write the marker, if the reason is one that lies in the machine. False: it is not, or there
    is no place to write to, which must not hide the abort itself."""
    if record.reason not in REASONS:
        return False
    data = {
        "summary": str(record),
        "record": asdict(record),
        "when": timestamp(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    try:
        write_json(path, data)
    except OSError:
        return False
    return True


def read(path: Path) -> dict[str, Any] | None:
    """What the marker says; None without one. A file that cannot be understood is a marker too."""
    try:
        return read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return {"summary": f"the marker cannot be read: {error}"}


def require_none(path: Path) -> None:
    """Raise Wedged if there is a marker."""
    data = read(path)
    if data is not None:
        raise Wedged(
            f"an earlier run was aborted: {data.get('summary', 'no summary')} "
            f"({data.get('when', 'at an unknown time')}); look into it, then remove {path} or run "
            "`pyrdnaar wedge clear`"
        )


def clear(path: Path) -> bool:
    """Remove the marker; False if there was none."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
