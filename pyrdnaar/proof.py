# SPDX-License-Identifier: Apache-2.0
"""The proof that the links of a group carry what is sent, and the file that remembers it.

Proving is the library's quick self test on the very slabs, kernels and pairs of ranks that will be
used. Its verdict holds as long as nothing that it depends on changes: the devices, their runtime
and driver, the kernel, this boot, the library, and the settings. All that is the key; another key
is another file. Failures are never remembered: they are measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from . import tuning
from .config import Config
from .files import cache_folder, read_json, timestamp, write_json
from .records import BuildInfo

Key = dict[str, Any]

# Settings that change nothing about what passes over a link.
_NOT_PROVEN = {
    "backend",
    "enable",
    "late_ms",
    "pace",
    "prove",
    "share_device",
    "strict",
    "timeout_ms",
    "warmup_timeout_ms",
}


def key_of(build: BuildInfo, devices: list[str], transport: str, config: Config) -> Key:
    """`devices` names each rank's, in rank order."""
    return {
        **tuning.key_of(build, devices, transport),
        "targets": build.targets,
        "kernel": os.uname().release,
        "boot": _boot_id(),
        "settings": {k: v for k, v in config.shared().items() if k not in _NOT_PROVEN},
    }


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def file_of(key: Key) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return cache_folder() / f"proof-{digest[:32]}.json"


def is_remembered(key: Key) -> bool:
    """Whether this very key was proven. A file that says anything else does not count."""
    try:
        return bool(read_json(file_of(key)).get("key") == json.loads(json.dumps(key)))
    except (OSError, ValueError):
        return False


def remember(key: Key, slowest: list[dict[str, Any]]) -> None:
    """Write the verdict. Without a place to write to, the next start proves again."""
    with contextlib.suppress(OSError):
        write_json(file_of(key), {"key": key, "when": timestamp(), "slowest pairs": slowest})
