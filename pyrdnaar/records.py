# SPDX-License-Identifier: Apache-2.0
"""What the library reports, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from . import _abi
from ._abi import Algo, Dtype, Op, Phase, Reason, Status, text


@dataclass(frozen=True)
class BuildInfo:
    """How a library was built."""

    version: str
    abi_version: int
    source_digest: str
    git_revision: str
    backend: str
    targets: str
    compiler: str
    runtime: str

    @classmethod
    def of(cls, raw: _abi.BuildInfo) -> BuildInfo:
        return cls(
            version=text(raw.version),
            abi_version=raw.abi_version,
            source_digest=text(raw.source_digest),
            git_revision=text(raw.git_revision),
            backend=text(raw.backend),
            targets=text(raw.targets),
            compiler=text(raw.compiler),
            runtime=text(raw.runtime),
        )


@dataclass(frozen=True)
class DeviceInfo:
    index: int
    architecture: str
    name: str
    pci_bus_id: str
    memory_bytes: int
    compute_units: int
    integrated: bool
    uncached: bool

    @classmethod
    def of(cls, raw: _abi.DeviceInfo) -> DeviceInfo:
        return cls(
            index=raw.index,
            architecture=text(raw.architecture),
            name=text(raw.name),
            pci_bus_id=text(raw.pci_bus_id),
            memory_bytes=raw.memory_bytes,
            compute_units=raw.compute_units,
            integrated=bool(raw.integrated),
            uncached=bool(raw.uncached),
        )


@dataclass(frozen=True)
class Plan:
    """What a call would do. `reason` says why it would be refused; "" when `status` is "ok"."""

    status: str
    algo: str
    blocks: int
    threads: int
    pieces: int
    bytes_sent: int
    limit_bytes: int
    reason: str

    @classmethod
    def of(cls, raw: _abi.Plan) -> Plan:
        return cls(
            status=name(Status, raw.status),
            algo=name(Algo, raw.algo),
            blocks=raw.blocks,
            threads=raw.threads,
            pieces=raw.pieces,
            bytes_sent=raw.bytes_sent,
            limit_bytes=raw.limit_bytes,
            reason=text(raw.reason),
        )


@dataclass(frozen=True)
class AbortRecord:
    """Who gave up waiting for whom, and where. `peer` is -1 when there is none."""

    reason: str
    phase: str
    peer: int
    rank: int
    block: int
    algo: str
    epoch: int
    waited_ms: int
    expected: int
    seen: int

    @classmethod
    def of(cls, raw: _abi.AbortRecord) -> AbortRecord:
        return cls(
            reason=name(Reason, raw.reason),
            phase=name(Phase, raw.phase),
            peer=raw.peer,
            rank=raw.rank,
            block=raw.block,
            algo=name(Algo, raw.algo),
            epoch=raw.epoch,
            waited_ms=raw.waited_ms,
            expected=raw.expected,
            seen=raw.seen,
        )

    def __str__(self) -> str:
        peer = f"peer {self.peer}" if self.peer >= 0 else "no peer"
        what = f"{self.reason} on rank {self.rank}, {peer}, call {self.epoch} ({self.algo})"
        if self.reason == "mismatch":
            calls = signature(self.expected), signature(self.seen)
            return f"{what}: this rank called {calls[0]}, the peer {calls[1]}"
        return f"{what}, phase {self.phase}, waited {self.waited_ms} ms"


@dataclass(frozen=True)
class LateRecord:
    """Waits that took longer than late_ms: how many so far, and the last of them."""

    count: int
    peer: int
    phase: str
    epoch: int
    waited_ms: int

    @classmethod
    def of(cls, raw: _abi.LateRecord) -> LateRecord:
        return cls(
            count=raw.count,
            peer=raw.peer,
            phase=name(Phase, raw.phase),
            epoch=raw.epoch,
            waited_ms=raw.waited_ms,
        )


@dataclass(frozen=True)
class SelfTestReport:
    """This rank's verdict, and its first wrong element if `wrong` is not 0."""

    cases: int
    wrong: int
    algo: str
    dtype: str
    op: str
    repeat: int
    count: int
    index: int
    expected_bits: int
    seen_bits: int
    elapsed_us: int
    text: str
    source: int
    """The rank whose data came wrong to this one; -1 if that is not known."""
    slow: int
    """Pairs with this rank as source that were below the floor."""
    slowest_target: int
    slowest_mb_s: int
    """0: not measured."""

    @classmethod
    def of(cls, raw: _abi.SelfTestReport) -> SelfTestReport:
        return cls(
            cases=raw.cases,
            wrong=raw.wrong,
            algo=name(Algo, raw.algo),
            dtype=name(Dtype, raw.dtype),
            op=name(Op, raw.op),
            repeat=raw.repeat,
            count=raw.count,
            index=raw.index,
            expected_bits=raw.expected_bits,
            seen_bits=raw.seen_bits,
            elapsed_us=raw.elapsed_us,
            text=text(raw.text),
            source=raw.source,
            slow=raw.slow,
            slowest_target=raw.slowest_target,
            slowest_mb_s=raw.slowest_mb_s,
        )


@dataclass(frozen=True)
class ProbeResult:
    """What a probe measured; which fields count depends on its kind, see rdnaar_probe_result."""

    timed_out: bool
    nbytes: int
    wrong: int
    microseconds: float

    @classmethod
    def of(cls, raw: _abi.ProbeResult) -> ProbeResult:
        return cls(
            timed_out=bool(raw.timed_out),
            nbytes=raw.nbytes,
            wrong=raw.wrong,
            microseconds=raw.microseconds,
        )


def name(enum: type[IntEnum], value: int) -> str:
    """The name Python uses for an enumerator: RDNAAR_ALGO_LL is "ll".

    A library of a later minor version may know more of them: those keep their number.
    """
    try:
        return enum(value).name.lower()
    except ValueError:
        return str(value)


def signature(word: int) -> str:
    """The signature of a call, see rdnaar_abort_record_t: "1024 x fp16 sum ll"."""
    count, dtype, op, algo = word & (1 << 40) - 1, word >> 40 & 255, word >> 48 & 255, word >> 56
    return f"{count} x {name(Dtype, dtype)} {name(Op, op)} {name(Algo, algo)}"
