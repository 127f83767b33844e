# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a group become communicators together: steps that each end in a vote.

    1 agree     library found, ABI, source digest, backend and configuration are the same
    2 place     every rank has a device, of its own on GPUs
    3 tune      what was measured on this machine fills what the configuration leaves open
    4 export    every rank has allocated its slab; the handles travel with the votes
    5 register  every rank has opened its peers' slabs
    6 prove     the quick self test has passed on every rank

In each step a rank does its part, catches whatever goes wrong, and gathers everybody's outcome.
So no rank is left waiting for one that has failed, and since all ranks judge the same list in the
same way, they come to the same verdict. Provenance is settled before a device is touched.

What is proven is a communicator of its own with short bounds; then steps 4 and 5 make the one that
is kept. Where the transport is left open and peer memory was taken, a failure in steps 5 and 6
leads to a second attempt with slabs in host memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from ctypes import byref, c_uint32, c_void_p, create_string_buffer, sizeof
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from . import _abi, proof, selftest, tuning, wedge
from ._abi import SelfTestLevel
from ._library import Library, load
from ._version import __version__
from .config import Config
from .dtypes import ALGOS
from .errors import (
    AbortError,
    Disabled,
    ExchangeError,
    InvalidArgument,
    NoDevice,
    RdnaarError,
    SelfTestError,
)
from .exchange import Exchange
from .links import isolation_of

Facts = dict[str, Any]

# Bound of a wait while the links are proven. All ranks begin together, with kernels loaded; the
# slowest that was seen is 8 ranks on two busy cores.
PROVING_MS = 20_000


class Started(NamedTuple):
    library: Library
    config: Config
    comm: int
    device: int
    transport: str
    """Where the slabs lie: "p2p", "host"; "auto" in a group of one."""
    fallback: str
    """Why not in device memory, if that was tried."""
    tuning: str
    """Where measured settings are from, or why there are none; "" if nobody has tuned."""


class _Group(NamedTuple):
    """What steps 1 to 3 have settled."""

    exchange: Exchange
    library: Library
    config: Config
    device: int
    devices: list[str]
    """Of every rank: architecture and PCI bus id."""
    isolation: list[str]
    """What /sys says about who may bend or stop stores between them."""
    memory: str
    tuning: str = ""


def start(
    rank: int,
    world_size: int,
    exchange: Exchange,
    backend: str,
    device: int | None,
    config: Config | Callable[[], Config] | None,
    slab_memory: str = "auto",
) -> Started:
    """This rank's ready communicator, or the same Disabled on every rank."""
    library, settings = _agree(rank, world_size, exchange, backend, config, slab_memory)
    group = _tune(_place(exchange, library, settings, device, slab_memory))
    try:
        return _attempt(group, settings.transport)
    except _LinkFailed as failed:
        if settings.transport != "auto":
            raise failed.disabled from failed.__cause__
        first = failed.disabled
    try:
        return _attempt(group, "host")._replace(fallback=str(first))
    except _LinkFailed as failed:
        raise Disabled(
            f"{failed.disabled.reason}; over peer memory before that: {first}",
            failed.disabled.rank,
            failed.disabled.exit_code,
        ) from failed.__cause__


class _LinkFailed(Exception):
    """Peer memory was taken, and could not be opened or did not carry what was sent."""

    def __init__(self, disabled: Disabled) -> None:
        super().__init__(str(disabled))
        self.disabled = disabled


# ---- 1 agree, 2 place, 3 tune ------------------------------------------------------------------


def _agree(
    rank: int,
    world_size: int,
    exchange: Exchange,
    backend: str,
    config: Config | Callable[[], Config] | None,
    memory: str,
) -> tuple[Library, Config]:
    found: dict[str, Any] = {}

    def agree() -> Facts:
        _check_place(rank, world_size, exchange)
        found["config"] = settings = config() if callable(config) else config or Config.from_env()
        if not settings.enable:
            raise RdnaarError("switched off: enable is False (RDNAAR_ENABLE=0)")
        if settings.wedge_file:
            wedge.require_none(wedge.path_of(settings))
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
            "slab_memory": memory,
            **settings.shared(),
        }

    _require_same(_vote(exchange, agree))
    return found["library"], found["config"]


def _place(
    exchange: Exchange, library: Library, config: Config, device: int | None, memory: str
) -> _Group:
    found: dict[str, int] = {}

    def place() -> Facts:
        found["device"] = index = _choose(library, exchange.rank) if device is None else device
        info = library.device(index)
        isolation = isolation_of(info.pci_bus_id)
        return {
            "device": f"{info.architecture} {info.pci_bus_id}".strip(),
            "pci": info.pci_bus_id,
            "isolation": f"{info.pci_bus_id}: {isolation}" if isolation else "",
        }

    facts = _vote(exchange, place)
    first: dict[str, int] = {}
    for rank, fact in enumerate(facts):
        other = first.setdefault(fact["pci"], rank)
        if fact["pci"] and other != rank and not config.share_device:
            raise Disabled(
                f"its GPU {fact['pci']} is that of rank {other} too: give each rank one of its "
                "own, or allow it by RDNAAR_SHARE_DEVICE=1 (for tests: they take turns)",
                rank,
                exit_code=3,
            )
    devices = [fact["device"] for fact in facts]
    isolation = sorted({fact["isolation"] for fact in facts} - {""})
    return _Group(exchange, library, config, found["device"], devices, isolation, memory)


def _choose(library: Library, rank: int) -> int:
    """By rank, among the devices that do not share the host's memory."""
    if library.backend == "host":
        return 0
    discrete = [d.index for d in library.devices() if not d.integrated]
    if not discrete:
        raise NoDevice("all GPUs here are integrated ones: to use one, name it (device=...)")
    return discrete[rank % len(discrete)]


def _check_place(rank: int, world_size: int, exchange: Exchange) -> None:
    if not 1 <= world_size <= _abi.MAX_WORLD:
        raise InvalidArgument(f"world_size = {world_size} is not 1 to {_abi.MAX_WORLD}")
    if (rank, world_size) != (exchange.rank, exchange.world_size):
        raise InvalidArgument(
            f"rank {rank} of {world_size} has the exchange of rank {exchange.rank} "
            f"of {exchange.world_size}"
        )


def _tune(group: _Group) -> _Group:
    """Rank 0's file speaks for all, so that they cannot differ."""
    config = group.config
    if group.exchange.world_size == 1 or not tuning.leaves_open(config):
        return group

    def read() -> Facts:
        if group.exchange.rank != 0:
            return {}
        key = tuning.key_of(group.library.build_info(), group.devices, config.transport)
        tuned, origin = tuning.read(tuning.path_of(config), key)
        return {"settings": asdict(tuned), "origin": origin}

    fact = _vote(group.exchange, read)[0]
    tuned = tuning.Tuned(**fact["settings"])
    return group._replace(config=tuning.apply(config, tuned), tuning=fact["origin"])


# ---- 4 export, 5 register, 6 prove -------------------------------------------------------------


def _attempt(group: _Group, transport: str) -> Started:
    """A communicator over one transport. _LinkFailed if that is where the fault may lie."""
    key = proof.key_of(group.library.build_info(), group.devices, transport, group.config)
    if group.exchange.world_size > 1 and _must_prove(group, key):
        bounds = min(PROVING_MS, group.config.timeout_ms)
        # A pace of its own would only make the test long.
        short = replace(group.config, timeout_ms=bounds, warmup_timeout_ms=bounds, pace=0)
        comm, used = _connect(group._replace(config=short), transport)
        try:
            _prove(group, comm, used, key)
        finally:
            group.library.c.rdnaar_destroy(comm)
    comm, used = _connect(group, transport)
    return Started(group.library, group.config, comm, group.device, used, "", group.tuning)


def _must_prove(group: _Group, key: proof.Key) -> bool:
    if group.config.prove != "auto" or group.memory != "auto":
        return group.config.prove == "always"
    facts = _vote(group.exchange, lambda: {"proven": proof.is_remembered(key)})
    return not all(fact["proven"] for fact in facts)


def _connect(group: _Group, transport: str) -> tuple[int, str]:
    """A communicator that all ranks have, and where its slabs lie."""
    exchange, library = group.exchange, group.library
    comm = c_void_p()

    def export() -> Facts:
        raw = _raw_config(group, transport)
        raw.group_id = (type(raw.group_id))(*bytes.fromhex(ids[0]["group"]))
        library.check(library.c.rdnaar_init(byref(raw), byref(comm)))
        blob = create_string_buffer(_abi.BLOB_BYTES)
        library.check(library.c.rdnaar_export_buffers(comm, blob, _abi.BLOB_BYTES), comm.value)
        used = c_uint32()
        library.check(library.c.rdnaar_transport_used(comm, byref(used)), comm.value)
        return {"blob": blob.raw.hex(), "transport": _abi.Transport(used.value).name.lower()}

    def register() -> Facts:
        blobs = b"".join(bytes.fromhex(fact["blob"]) for fact in exported)
        library.check(
            library.c.rdnaar_register_buffers(comm, blobs, exchange.world_size), comm.value
        )
        return {}

    try:
        ids = _vote(exchange, lambda: {"group": secrets.token_hex(16)})
        exported = _vote(exchange, export)
        used = _common_transport(exported)
        with _blaming_links(group, used):
            _vote(exchange, register)
    except BaseException:
        library.c.rdnaar_destroy(comm)  # NULL is fine
        raise
    assert comm.value is not None
    return comm.value, used


def _common_transport(facts: list[Facts]) -> str:
    """Ranks may differ: a group uses peer memory as soon as one of them offers it."""
    used = {fact["transport"] for fact in facts}
    return "p2p" if "p2p" in used else used.pop()


@contextlib.contextmanager
def _blaming_links(group: _Group, transport: str) -> Iterator[None]:
    try:
        yield
    except Disabled as error:
        # Ranks that cannot talk any more cannot try another transport together.
        if transport != "p2p" or isinstance(error.__context__, ExchangeError):
            raise
        if group.isolation:
            reason = f"{error.reason} ({'; '.join(group.isolation)})"
            error = Disabled(reason, error.rank, error.exit_code)
        raise _LinkFailed(error) from error.__cause__


def _prove(group: _Group, comm: int, transport: str, key: proof.Key) -> None:
    seed = _vote(group.exchange, lambda: {"seed": secrets.randbits(16)})[0]["seed"]

    def prove() -> Facts:
        try:
            report = selftest.run(group.library, comm, group.device, SelfTestLevel.QUICK, seed=seed)
        except SelfTestError:
            raise
        except Exception as error:
            # This rank has left the test: the others must not wait for it.
            group.library.c.rdnaar_abort(comm, repr(error).encode())
            raise
        return {"to": report.slowest_target, "MB/s": report.slowest_mb_s}

    with _blaming_links(group, transport):
        slowest = _vote(group.exchange, prove)
    if group.exchange.rank == 0:
        proof.remember(key, [{"from": r, **fact} for r, fact in enumerate(slowest)])


# ---- Votes -------------------------------------------------------------------------------------


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
            "remote": _remoteness(error),
        }
    try:
        ballots = [json.loads(raw) for raw in exchange.all_gather(json.dumps(ballot).encode())]
    except ExchangeError as error:
        raise Disabled(str(error), error.rank) from (failure or error)
    failed = [rank for rank, ballot in enumerate(ballots) if "reason" in ballot]
    if failed:
        rank = min(failed, key=lambda rank: (*ballots[rank]["remote"], rank))
        raise Disabled(ballots[rank]["reason"], rank, ballots[rank]["exit_code"]) from failure
    return [ballot["facts"] for ballot in ballots]


def _remoteness(error: Exception) -> tuple[int, int]:
    """How far a rank is from the cause of its failure: the nearest one speaks for all.

    Of ranks that waited in vain the one in the earliest call is nearest: who waits in a later call
    waits for a rank that is stuck.
    """
    if isinstance(error, AbortError) and error.record:
        return (2 if error.record.reason == "peer_aborted" else 1), error.record.epoch
    if isinstance(error, SelfTestError):
        return (0 if error.report.source >= 0 or error.report.wrong == 0 else 1), 0
    return 0, 0


def _require_same(facts: list[Facts]) -> None:
    """All ranks see the same list, so all of them raise the same Disabled, or none does."""
    for rank, theirs in enumerate(facts):
        for name, value in facts[0].items():
            if theirs.get(name) != value:
                raise Disabled(
                    f"{name} is {theirs.get(name)!r}, on rank 0 it is {value!r}: all ranks must "
                    "agree",
                    rank,
                )


def _raw_config(group: _Group, transport: str) -> _abi.Config:
    config, raw = group.config, _abi.Config()
    group.library.check(group.library.c.rdnaar_config_init(byref(raw), sizeof(raw)))
    raw.rank = group.exchange.rank
    raw.world = group.exchange.world_size
    raw.device = group.device
    raw.memory = _abi.Memory[group.memory.upper()]
    raw.transport = _abi.Transport[transport.upper()]
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
    return raw


def _or_auto(threshold: int | None) -> int:
    return _abi.AUTO if threshold is None else threshold
