# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a group become communicators together: three steps, each ended by a vote.

    1 agree     library found, ABI, source digest, backend and configuration are the same
    2 export    every rank has allocated its slab; the handles travel with the votes
    3 register  every rank has opened its peers' slabs

In each step a rank does its part, catches whatever goes wrong, and gathers everybody's outcome.
So no rank is left waiting for one that has failed, and since all ranks judge the same list in the
same way, they come to the same verdict. Provenance is settled before a device is touched.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from ctypes import byref, c_void_p, create_string_buffer, sizeof
from typing import Any, NamedTuple

from . import _abi
from ._library import Library, load
from ._version import __version__
from .config import Config
from .dtypes import ALGOS
from .errors import Disabled, ExchangeError, InvalidArgument, RdnaarError
from .exchange import Exchange

Facts = dict[str, Any]


class Started(NamedTuple):
    library: Library
    config: Config
    comm: int
    device: int


def start(
    rank: int,
    world_size: int,
    exchange: Exchange,
    backend: str,
    device: int | None,
    config: Config | None,
    slab_memory: str = "auto",
) -> Started:
    """This rank's ready communicator, or the same Disabled on every rank."""
    found: dict[str, Any] = {}

    def agree() -> Facts:
        _check_place(rank, world_size, exchange)
        found["config"] = settings = config or Config.from_env()
        if not settings.enable:
            raise RdnaarError("switched off: enable is False (RDNAAR_ENABLE=0)")
        if settings.hip_runtime:
            os.environ["RDNAAR_HIP_RUNTIME"] = settings.hip_runtime  # the library reads it there
        wanted = backend if backend != "auto" else settings.backend
        found["library"] = library = load(wanted, settings.library)
        info = library.build_info()
        return {
            "pyrdnaar": __version__,
            "ABI": info.abi_version >> 16,
            "source digest": info.source_digest,
            "backend": info.backend,
            **settings.shared(),
            "group": secrets.token_hex(16),
        }

    facts = _vote(exchange, agree)
    _require_same(facts)
    library: Library = found["library"]
    settings: Config = found["config"]
    if device is None:
        device = rank % max(1, library.device_count())
    raw = _raw_config(library, settings, rank, world_size, device, bytes.fromhex(facts[0]["group"]))
    raw.memory = _abi.Memory[slab_memory.upper()]
    comm = c_void_p()

    def export() -> Facts:
        library.check(library.c.rdnaar_init(byref(raw), byref(comm)))
        blob = create_string_buffer(_abi.BLOB_BYTES)
        library.check(library.c.rdnaar_export_buffers(comm, blob, _abi.BLOB_BYTES), comm.value)
        return {"blob": blob.raw.hex()}

    def register() -> Facts:
        library.check(library.c.rdnaar_register_buffers(comm, blobs, world_size), comm.value)
        return {}

    try:
        exported = _vote(exchange, export)
        blobs = b"".join(bytes.fromhex(facts["blob"]) for facts in exported)
        _vote(exchange, register)
    except BaseException:
        library.c.rdnaar_destroy(comm)  # NULL is fine
        raise
    assert comm.value is not None
    return Started(library, settings, comm.value, device)


def _check_place(rank: int, world_size: int, exchange: Exchange) -> None:
    if not 1 <= world_size <= _abi.MAX_WORLD:
        raise InvalidArgument(f"world_size = {world_size} is not 1 to {_abi.MAX_WORLD}")
    if (rank, world_size) != (exchange.rank, exchange.world_size):
        raise InvalidArgument(
            f"rank {rank} of {world_size} has the exchange of rank {exchange.rank} "
            f"of {exchange.world_size}"
        )


def _vote(exchange: Exchange, step: Callable[[], Facts]) -> list[Facts]:
    """Do this rank's part, then learn everybody's outcome: all facts, or Disabled."""
    failure: Exception | None = None
    try:
        ballot: Facts = {"facts": step()}
    except Exception as error:
        failure = error
        ballot = {
            "reason": str(error) if isinstance(error, RdnaarError) else repr(error),
            "exit_code": error.exit_code if isinstance(error, RdnaarError) else 1,
        }
    try:
        ballots = [json.loads(raw) for raw in exchange.all_gather(json.dumps(ballot).encode())]
    except ExchangeError as error:
        raise Disabled(str(error), error.rank) from (failure or error)
    for rank, ballot in enumerate(ballots):
        if "reason" in ballot:
            raise Disabled(ballot["reason"], rank, ballot["exit_code"]) from failure
    return [ballot["facts"] for ballot in ballots]


def _require_same(facts: list[Facts]) -> None:
    """All ranks see the same list, so all of them raise the same Disabled, or none does."""
    for rank, theirs in enumerate(facts):
        for name, value in facts[0].items():
            if name != "group" and theirs.get(name) != value:
                raise Disabled(
                    f"{name} is {theirs.get(name)!r}, on rank 0 it is {value!r}: all ranks must "
                    "agree",
                    rank,
                )


def _raw_config(
    library: Library,
    config: Config,
    rank: int,
    world_size: int,
    device: int,
    group_id: bytes,
) -> _abi.Config:
    raw = _abi.Config()
    library.check(library.c.rdnaar_config_init(byref(raw), sizeof(raw)))
    raw.rank = rank
    raw.world = world_size
    raw.device = device
    raw.transport = _abi.Transport[config.transport.upper()]
    raw.algo = ALGOS[config.algo]
    raw.blocks = config.blocks
    raw.pace = config.pace
    raw.max_bytes = config.max_bytes
    raw.ll_max_bytes = _or_auto(config.ll_max_bytes)
    raw.oneshot_max_bytes = _or_auto(config.oneshot_max_bytes)
    raw.timeout_ms = config.timeout_ms
    raw.warmup_timeout_ms = config.warmup_timeout_ms
    raw.late_ms = config.late_ms
    raw.debug = config.debug
    raw.group_id = (type(raw.group_id))(*group_id)
    return raw


def _or_auto(threshold: int | None) -> int:
    return _abi.AUTO if threshold is None else threshold
