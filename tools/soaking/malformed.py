# SPDX-License-Identifier: Apache-2.0
"""Malformed blobs and configurations through the C ABI: refused with a reason, no trace left.

In a process of its own, since a library that trusts them would crash it.
"""

from __future__ import annotations

import ctypes
import time
from ctypes import byref, c_void_p, create_string_buffer, sizeof
from typing import Any

import numpy as np

import pyrdnaar
from pyrdnaar import _abi

from .footprint import footprint, growth
from .tally import Tally

BLOB = _abi.BLOB_BYTES
SUM_AT = BLOB - 8  # the checksum is the last word


def soak_malformed(count: int, seed: int) -> list[Tally]:
    return [
        _run(Tally(f"malformed {name}", name, count), work, seed)
        for name, work in (("blobs", _blobs), ("configs", _configs))
    ]


def _run(tally: Tally, work: Any, seed: int) -> Tally:
    start = time.monotonic()
    try:
        (report,) = pyrdnaar.run_ranks(work, 1, tally.planned, seed, timeout=600.0)
    except pyrdnaar.RdnaarError as error:
        hung = "not finished" in str(error)
        tally.note("hangs" if hung else "crashes", f"seed {seed}: {error}")
    else:
        tally.executed = report["executed"]
        for fault, text in report["problems"]:
            tally.note(fault, f"seed {seed}, {text}")
    tally.seconds = time.monotonic() - start
    return tally


# ---- Blobs -------------------------------------------------------------------------------------


def _blobs(_: pyrdnaar.Exchange, count: int, seed: int) -> dict[str, Any]:
    lib = pyrdnaar.load("host")
    rng = np.random.default_rng(seed)
    comms = [_init(lib, rank) for rank in range(2)]
    genuine = b"".join(_export(lib, comm) for comm in comms)
    problems = []
    before = footprint()
    for turn in range(count):
        # The blob of the other rank, spoiled; every second one with a checksum that fits.
        spoiled = _spoil(rng, bytearray(genuine[BLOB:]))
        if turn % 2:
            spoiled[SUM_AT:] = _fnv1a(bytes(spoiled[:SUM_AT])).to_bytes(8, "little")
        status = lib.c.rdnaar_register_buffers(comms[0], genuine[:BLOB] + bytes(spoiled), 2)
        if status == 0:
            problems.append(("wrong", f"blob {turn} was accepted"))
            break
        if not lib.c.rdnaar_last_error(comms[0]):
            problems.append(("wrong", f"blob {turn} was refused without a reason"))
    problems += [("leaks", text) for text in growth(before, footprint())]
    if lib.c.rdnaar_register_buffers(comms[0], genuine, 2) != 0:
        problems.append(("wrong", "the genuine blobs are refused after all that"))
    for comm in comms:
        lib.check(lib.c.rdnaar_destroy(comm))
    return {"executed": turn + 1, "problems": problems}


def _init(lib: pyrdnaar.Library, rank: int) -> c_void_p:
    config = _abi.Config()
    lib.check(lib.c.rdnaar_config_init(byref(config), sizeof(config)))
    config.rank, config.world, config.max_bytes = rank, 2, 4096
    config.group_id = (ctypes.c_uint8 * 16)(*range(1, 17))
    comm = c_void_p()
    lib.check(lib.c.rdnaar_init(byref(config), byref(comm)))
    return comm


def _export(lib: pyrdnaar.Library, comm: c_void_p) -> bytes:
    blob = create_string_buffer(BLOB)
    lib.check(lib.c.rdnaar_export_buffers(comm, blob, BLOB), comm.value)
    return blob.raw


def _spoil(rng: np.random.Generator, blob: bytearray) -> bytearray:
    """One to eight changed bytes before the checksum, or other bytes from some place on."""
    if rng.random() < 0.2:
        at = int(rng.integers(SUM_AT))
        blob[at:SUM_AT] = rng.bytes(SUM_AT - at)
        return blob
    for _ in range(int(rng.integers(1, 9))):
        blob[int(rng.integers(SUM_AT))] ^= int(rng.integers(1, 256))
    return blob


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


# ---- Configurations ----------------------------------------------------------------------------


def _configs(_: pyrdnaar.Exchange, count: int, seed: int) -> dict[str, Any]:
    lib = pyrdnaar.load("host")
    rng = np.random.default_rng(seed)
    problems = []
    before = footprint()
    for turn in range(count):
        config = _spoiled_config(lib, rng)
        comm = c_void_p(1)
        status = lib.c.rdnaar_init(byref(config), byref(comm))
        if status == 0:
            problems.append(("wrong", f"config {turn} was accepted: {_fields(config)}"))
            lib.check(lib.c.rdnaar_destroy(comm))
        elif comm.value is not None or not lib.c.rdnaar_last_error(None):
            problems.append(("wrong", f"config {turn}: status {status} without a reason"))
    problems += [("leaks", text) for text in growth(before, footprint())]
    return {"executed": count, "problems": problems}


# Fields of which some values are refused, and the smallest and largest that are accepted.
_RANGES = {
    "struct_size": (8, 2**32 - 1),
    "rank": (0, 1),
    "world": (2, _abi.MAX_WORLD),  # rank is 1
    "device": (-1, 0),
    "transport": (0, max(_abi.Transport)),
    "algo": (0, _abi.Algo.TWOSHOT),
    "blocks": (0, _abi.MAX_BLOCKS),
    "pace": (0, 1000),
    "max_bytes": (1, _abi.MAX_BYTES_LIMIT),
    "timeout_ms": (1, 86_400_000),
    "warmup_timeout_ms": (1, 86_400_000),
    "late_ms": (0, 86_400_000),
    "memory": (0, max(_abi.Memory)),
}


def _spoiled_config(lib: pyrdnaar.Library, rng: np.random.Generator) -> _abi.Config:
    """Right but for one field, which is out of its range, and others that are random in theirs."""
    config = _abi.Config()
    lib.check(lib.c.rdnaar_config_init(byref(config), sizeof(config)))
    config.rank, config.world, config.max_bytes = 1, 2, 4096
    name = str(rng.choice(list(_RANGES)))
    low, high = _RANGES[name]
    setattr(config, name, _outside(rng, low, high, 8 * sizeof(_type_of(name)), name == "device"))
    return config


def _outside(rng: np.random.Generator, low: int, high: int, bits: int, signed: bool) -> int:
    first, last = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    below, above = max(low - first, 0), max(last - high, 0)
    if below and (not above or rng.random() < 0.5):
        return low - 1 - _spread(rng, below)
    return high + 1 + _spread(rng, above)


def _spread(rng: np.random.Generator, room: int) -> int:
    """0 to room - 1: often the nearest, sometimes far."""
    return 0 if rng.random() < 0.3 else int(rng.random() * min(room, 1 << 40)) % room


def _type_of(name: str) -> Any:
    return dict(_abi.Config._fields_)[name]  # type: ignore[arg-type]


def _fields(config: _abi.Config) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _RANGES}
