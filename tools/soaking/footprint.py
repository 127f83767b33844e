# SPDX-License-Identifier: Apache-2.0
"""What a process holds, and what lies around: to be compared before and after."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

# What allocators keep for the next time, although they were asked to give it back: one of the
# largest arrays (32 MiB), and some.
MIB_SLACK = 48


def footprint() -> dict[str, int]:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    maps = Path("/proc/self/maps").read_text(errors="replace")
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mapped slabs": maps.count("memfd:rdnaar"),
        "MiB": int(status.split("VmRSS:")[1].split()[0]) // 1024,
    }


def growth(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """One text for each thing that has grown."""
    grown = []
    for name, old in before.items():
        slack = MIB_SLACK if name == "MiB" else 0
        if after[name] > old + slack:
            grown.append(f"{name}: {old} before, {after[name]} after")
    return grown


def names() -> set[str]:
    """Shared memory and sockets that have a name, where such things lie."""
    found = set()
    for folder in ("/dev/shm", "/run/shm"):
        if os.path.isdir(folder):
            found |= {f"{folder}/{name}" for name in os.listdir(folder) if "rdnaar" in name}
    return found
