# SPDX-License-Identifier: Apache-2.0
"""Communicator: one rank's end of a group that reduces tensors together."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from ctypes import byref, c_uint64, c_void_p, sizeof
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _abi, failure, selftest, startup, wedge
from ._abi import SelfTestLevel, Status
from .arrays import DATA_OFFSET, FAST_TYPE, Array, reducible, writable_like
from .config import Config
from .dtypes import ALGOS, CODES, DTYPE_NAMES, OPS, PROBE_KINDS, code, element_type
from .errors import InvalidArgument, RdnaarError, SelfTestError, StateError
from .exchange import Exchange
from .memory import Stream
from .records import AbortRecord, LateRecord, Plan, ProbeResult, SelfTestReport

if TYPE_CHECKING:
    from typing_extensions import Self

# For the hot path, as module globals: one look-up each. `_count` makes the argument of a count
# once; sizes repeat. `_pointer` makes a c_void_p that *is* the data field of an array's header.
_count = lru_cache(maxsize=1024)(c_uint64.from_param)
_pointer = c_void_p.from_address
_empty_like = np.empty_like

logger = logging.getLogger("pyrdnaar")

CLOSED = "this communicator is closed"


class Communicator:
    """One rank of a group of `world_size` processes or threads of one machine.

    Making one is a collective: every rank of the group does it at the same time, and `exchange`
    carries what they have to tell each other. `device` None means rank
    modulo the number of devices. Each step of the start-up ends in a vote; if any rank
    fails, every rank gets the same Disabled error, which names that rank and its reason.

    `transport` says where the slabs lie, "p2p" (device memory) or "host", and `fallback` why they
    are in host memory, if device memory was tried and did not work. `config` has the settings in
    effect, and `tuning` says from which tune file some of them are, or why none is.

    The reducing methods are collectives too: every rank makes the same calls in the same order.
    A `with` block that is left by an exception aborts the communicator, so that no peer waits.
    Several threads may use one communicator, except that none may be in a call when it is closed.
    """

    __slots__ = (
        "__weakref__",
        "_call",
        "_comm",
        "_exchange",
        "_handle",
        "_is_aborted",
        "_pid",
        "config",
        "device",
        "fallback",
        "library",
        "rank",
        "transport",
        "tuning",
        "world_size",
    )

    def __init__(
        self,
        rank: int,
        world_size: int,
        exchange: Exchange,
        backend: str = "auto",
        device: int | None = None,
        config: Config | Callable[[], Config] | None = None,
        slab_memory: str = "auto",
    ) -> None:
        """`config` as a function is called inside the first vote, so that its failure is every
        rank's. `slab_memory` "ordinary" is for the probe alone, see rdnaar_memory."""
        self._comm: int | None = None
        started = startup.start(rank, world_size, exchange, backend, device, config, slab_memory)
        self.rank = rank
        self.world_size = world_size
        self.library = started.library
        self.config = started.config
        self.device = started.device
        self.transport = started.transport
        self.fallback = started.fallback
        self.tuning = started.tuning
        self._exchange = exchange
        self._pid = os.getpid()
        self._comm = started.comm
        # The hot path's function has no argtypes: converting eight Python numbers by them costs
        # more than a small all-reduce. Its arguments are ready-made C values instead, and small
        # enumerators, which are C ints by default.
        self._handle = c_void_p.from_param(started.comm)
        self._call: Callable[..., int] = self.library.c["rdnaar_all_reduce"]
        self._is_aborted: Callable[..., int] = self.library.c["rdnaar_is_aborted"]
        if self.library.backend != "host":
            self._call = _not_on_a_device

    # ---- Reducing ------------------------------------------------------------------------------

    def all_reduce(
        self,
        x: Array,
        out: Array | None = None,
        op: str = "sum",
        algo: str = "auto",
        stream: Stream | int = 0,
    ) -> Array:
        """Combine the ranks' `x` element by element; every rank gets the same bits.

        The result is a new array, or `out` if given, which may be `x` itself. An array may have
        any dense layout: it is reduced in storage order, so all ranks must pass the same layout,
        and the result has it too. The result is complete on return, unless `stream` is given:
        then it is once the stream has been synchronised.
        """
        # The common case in as few steps as possible; everything else, errors included, below.
        if type(x) is FAST_TYPE and x.flags.c_contiguous and not stream:
            try:
                dtype = CODES[x.dtype]
                op_code = OPS[op]
                algo_code = ALGOS[algo]
            except (KeyError, TypeError):
                return self._all_reduce(x, out, op, algo, stream)
            if out is None:
                out = _empty_like(x)
            elif (
                out is not x
                and (type(out) is not FAST_TYPE or out.dtype is not x.dtype or out.shape != x.shape)
            ) or not out.flags.carray:  # C-contiguous, aligned and writable
                return self._all_reduce(x, out, op, algo, stream)
            status = self._call(
                self._handle,
                _pointer(id(x) + DATA_OFFSET),
                _pointer(id(out) + DATA_OFFSET),
                _count(x.size),
                dtype,
                op_code,
                algo_code,
                None,
            )
            if status:
                raise self._error(status)
            return out
        return self._all_reduce(x, out, op, algo, stream)

    def _all_reduce(self, x: Any, out: Any, op: str, algo: str, stream: Stream | int) -> Array:
        self._require_host()
        source = reducible("x", x)
        # order "K" gives a dense array the same strides.
        result = np.empty_like(source) if out is None else out
        target = writable_like(result, source)
        self._reduce(
            source.ctypes.data,
            target.ctypes.data,
            source.size,
            CODES[source.dtype],
            op,
            algo,
            stream,
        )
        if isinstance(stream, Stream):
            stream.keep(source, target)
        return result

    def all_reduce_ptr(
        self,
        in_ptr: Any,
        out_ptr: Any,
        count: int,
        dtype: str,
        op: str = "sum",
        algo: str = "auto",
        stream: Any = 0,
    ) -> None:
        """The same on raw memory: `count` elements of `dtype` ("fp16", "bf16", "fp32").

        A pointer is an address, or an object that stands for one: of hip-python, or any with
        `__cuda_array_interface__` or `__int__`. A stream likewise: a Stream, or the runtime's own.

        The memory must stay valid until `stream` has passed the call; with stream 0 on the host
        library, until it returns.
        """
        _require_count(count)
        self._reduce(in_ptr, out_ptr, count, element_type(dtype).code, op, algo, stream)

    def _reduce(
        self,
        in_ptr: Any,
        out_ptr: Any,
        count: int,
        dtype: int,
        op: str,
        algo: str,
        stream: Any,
    ) -> None:
        op_code, algo_code = code(OPS, "op", op), code(ALGOS, "algo", algo)
        self._submit(
            self.library.c.rdnaar_all_reduce,
            in_ptr,
            out_ptr,
            (count, dtype, op_code, algo_code),
            stream,
        )

    def _submit(
        self,
        function: Callable[..., int],
        in_ptr: Any,
        out_ptr: Any,
        what: tuple[int, ...],
        stream: Any,
    ) -> None:
        """Call a collective of rdnaar.h; `what` is all between its buffers and its stream."""
        status = function(self._open(), _address(in_ptr), _address(out_ptr), *what, int(stream))
        if status:
            raise self._error(status)

    def prepare(
        self, x: Array, out: Array | None = None, op: str = "sum", algo: str = "auto"
    ) -> Callable[[], Array]:
        """The call all_reduce(x, out, op, algo) with all its checks done once.

        Each call of the returned function reduces the present contents of `x` into the same
        output, which it returns. It holds references to both arrays; they must not be resized.
        """
        self._require_host()
        source = reducible("x", x)
        result = np.empty_like(source) if out is None else out
        target = writable_like(result, source)
        self._open()
        # An argument made by from_param() is passed on as it is.
        arguments = (
            self._handle,
            c_void_p.from_param(source.ctypes.data),
            c_void_p.from_param(target.ctypes.data),
            c_uint64.from_param(source.size),
            CODES[source.dtype],
            code(OPS, "op", op),
            code(ALGOS, "algo", algo),
            None,
        )

        def call(_keeps_alive: Array = source) -> Array:
            status = self._call(*arguments)
            if status:
                raise self._error(status)
            return result

        return call

    # ---- The two halves of an all-reduce -------------------------------------------------------

    def reduce_scatter(
        self,
        x: Array,
        out: Array | None = None,
        op: str = "sum",
        stream: Stream | int = 0,
    ) -> Array:
        """Combine the ranks' `x`, and keep one part of the result on each rank.

        `x` is C-contiguous; its first dimension is cut in world_size equal parts, of which rank r
        gets the r-th, as a new array or in `out`. `out` may be that very part of `x`.
        """
        self._require_host()
        rows = x.shape[0] if x.ndim else 0
        if not x.ndim or rows % self.world_size:
            raise InvalidArgument(
                f"x has shape {x.shape}: its first dimension must be a multiple of "
                f"world_size = {self.world_size}"
            )
        shape = (rows // self.world_size, *x.shape[1:])
        source, target = _in_and_out(x, out, shape)
        self.reduce_scatter_ptr(
            source.ctypes.data,
            target.ctypes.data,
            target.size,
            DTYPE_NAMES[source.dtype],
            op,
            stream,
        )
        if isinstance(stream, Stream):
            stream.keep(source, target)
        return target

    def all_gather(self, x: Array, out: Array | None = None, stream: Stream | int = 0) -> Array:
        """The ranks' `x` one after the other along the first dimension, on every rank.

        `x` is C-contiguous and has the same shape on all ranks. `x` may be its very part of `out`.
        """
        self._require_host()
        if not x.ndim:
            raise InvalidArgument("x has no dimension along which it could be gathered")
        source, target = _in_and_out(x, out, (x.shape[0] * self.world_size, *x.shape[1:]))
        self.all_gather_ptr(
            source.ctypes.data, target.ctypes.data, source.size, DTYPE_NAMES[source.dtype], stream
        )
        if isinstance(stream, Stream):
            stream.keep(source, target)
        return target

    def reduce_scatter_ptr(
        self,
        in_ptr: Any,
        out_ptr: Any,
        count: int,
        dtype: str,
        op: str = "sum",
        stream: Any = 0,
    ) -> None:
        """On raw memory, as all_reduce_ptr(): world_size * count elements in, `count` out."""
        _require_count(count)
        self._submit(
            self.library.c.rdnaar_reduce_scatter,
            in_ptr,
            out_ptr,
            (count, element_type(dtype).code, code(OPS, "op", op)),
            stream,
        )

    def all_gather_ptr(
        self, in_ptr: Any, out_ptr: Any, count: int, dtype: str, stream: Any = 0
    ) -> None:
        """On raw memory, as all_reduce_ptr(): `count` elements in, world_size * count out."""
        _require_count(count)
        self._submit(
            self.library.c.rdnaar_all_gather,
            in_ptr,
            out_ptr,
            (count, element_type(dtype).code),
            stream,
        )

    def _require_host(self) -> None:
        if self._call is _not_on_a_device:
            self._call()

    # ---- Asking --------------------------------------------------------------------------------

    def plan(self, count: int, dtype: str, op: str = "sum", algo: str = "auto") -> Plan:
        """What a call would do, or why it would be refused. The same on every rank."""
        _require_count(count)
        plan = _abi.Plan(struct_size=sizeof(_abi.Plan))
        status = self.library.c.rdnaar_plan(
            self._open(),
            count,
            element_type(dtype).code,
            code(OPS, "op", op),
            code(ALGOS, "algo", algo),
            byref(plan),
        )
        if status != plan.status:
            raise self._error(status)
        return Plan.of(plan)

    def can_use(
        self, count: int, dtype: str, op: str = "sum", algo: str = "auto"
    ) -> tuple[bool, str]:
        """Whether such a call would be accepted, and why not."""
        plan = self.plan(count, dtype, op, algo)
        return plan.status == "ok", plan.reason

    def stream(self) -> Stream:
        """A new stream, to be used with `with`."""
        return Stream(self.library, self.device)

    # ---- Failure -------------------------------------------------------------------------------

    def self_test(
        self, max_bytes: int = 0, seed: int = 0, repeats: int = 0, floor_mb_s: int = 0
    ) -> SelfTestReport:
        """Collective: prove the library on this machine, and agree on the verdict.

        Returns this rank's report. If any rank found a wrong element, or a pair of ranks whose
        stores pass slower than the floor, every rank raises the same SelfTestError. Zeros mean the
        library's defaults.
        """
        reason, comm = "", self._open()
        try:
            report = selftest.run(
                self.library,
                comm,
                self.device,
                SelfTestLevel.FULL,
                seed=seed,
                max_bytes=max_bytes,
                repeats=repeats,
                floor_mb_s=floor_mb_s,
            )
        except SelfTestError as error:
            report, reason = error.report, str(error)
        except RdnaarError as error:
            report, reason = SelfTestReport.of(_abi.SelfTestReport(source=-1)), str(error)
            self._mark()
        verdicts = self._exchange.all_gather(reason.encode())
        for rank, verdict in enumerate(verdicts):
            if verdict:
                reason = f"rank {rank}: {verdict.decode('utf-8', 'replace')}"
                raise SelfTestError(reason, report)
        return report

    def probe(
        self,
        kind: str,
        source: int,
        target: int,
        *,
        session: int,
        width: int = 16,
        iterations: int = 1,
        nbytes: int = 0,
        timeout_ms: int = 5000,
        stream: Stream | int = 0,
    ) -> ProbeResult:
        """Measure the link from rank `source` to rank `target`; see rdnaar_probe().

        "store" and "load" are called by `source` alone, "latency", "order" and "visible" by both
        at the same time. `session` must grow from probe to probe and be the same on both sides.
        """
        settings = _abi.ProbeConfig(
            struct_size=sizeof(_abi.ProbeConfig),
            kind=code(PROBE_KINDS, "kind", kind),
            source=source,
            target=target,
            width=width,
            iterations=iterations,
            nbytes=nbytes,
            session=session,
            timeout_ms=timeout_ms,
        )
        raw = _abi.ProbeResult(struct_size=sizeof(_abi.ProbeResult))
        status = self.library.c.rdnaar_probe(self._open(), byref(settings), byref(raw), int(stream))
        if status:
            raise self._error(status)
        return ProbeResult.of(raw)

    def check(self) -> None:
        """Raise AbortError if the communicator has been aborted. Never waits.

        Cheap enough for every step: well under a microsecond while all is well.
        """
        if self._is_aborted(self._handle):
            raise self._error(Status.E_ABORTED)

    def abort_record(self) -> AbortRecord | None:
        """Why the communicator was aborted; None while it was not. Never waits."""
        return failure.abort_record(self.library, self._open())

    def late_record(self) -> LateRecord | None:
        """The last wait that took longer than late_ms; None while there was none. Never waits."""
        raw = _abi.LateRecord(struct_size=sizeof(_abi.LateRecord))
        self.library.check(self.library.c.rdnaar_late_record(self._open(), byref(raw)))
        return LateRecord.of(raw) if raw.count else None

    def abort(self, reason: str = "") -> None:
        """Give up: this communicator is dead, and the peers' waits end with an AbortError."""
        self.library.check(
            self.library.c.rdnaar_abort(self._open(), reason.encode() or None), self._comm
        )

    def _error(self, status: int) -> RdnaarError:
        error = failure.error_of(self.library, self._open(), status)
        self._mark()
        return error

    def _mark(self) -> None:
        """Leave the wedge marker, if there is an abort to write down.

        Also where the error is the cause of the abort: a call that the runtime refused.
        """
        if self.config.wedge_file and (record := self.abort_record()):
            wedge.write(wedge.path_of(self.config), record)

    # ---- End of life ---------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._comm is None

    def close(self) -> None:
        """Release everything. Local; peers may close earlier or later. Again does nothing.

        Bounded, see rdnaar_destroy(). What has to be kept, because calls hang in a stream or a peer
        on another device still has this rank's memory open, is a warning of the logger "pyrdnaar".
        """
        comm = self._disown()
        if comm is None:
            return
        status = self.library.c.rdnaar_destroy(comm)
        if status == Status.E_BUSY:
            logger.warning("rank %d: %s", self.rank, self.library.error(status))
        else:
            self.library.check(status)

    def _disown(self) -> int | None:
        """The handle to destroy. Afterwards every method raises."""
        comm, self._comm = self._comm, None
        if comm is None:
            return None
        self._call = self._is_aborted = _closed
        # A forked child has a copy of this object, but the group is its parent's.
        return comm if self._pid == os.getpid() else None

    def _open(self) -> int:
        if self._comm is None:
            raise StateError(CLOSED)
        return self._comm

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self.closed:
            # This rank will not take part any more: the peers must not wait for it.
            self.abort(f"left by {error!r}")
        self.close()

    def __del__(self) -> None:
        comm = self._disown()
        if comm is None:
            return
        warnings.warn(
            f"rank {self.rank}: a communicator was not closed",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        self.library.c.rdnaar_destroy_now(comm)

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.library.backend
        return f"<Communicator rank {self.rank} of {self.world_size}, {state}>"


def _in_and_out(x: Array, out: Array | None, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Both C-contiguous, of one of our types, the output of the given shape."""
    source = reducible("x", x)
    target = np.empty(shape, source.dtype) if out is None else out
    for name, array in (("x", source), ("out", target)):
        if not array.flags.c_contiguous:
            raise InvalidArgument(f"{name} has strides {array.strides}: it must be C-contiguous")
    if target.shape != shape or target.dtype != source.dtype or not target.flags.writeable:
        raise InvalidArgument(
            f"out must be a writable array of shape {shape} and type {source.dtype}, it has "
            f"{target.shape} and {target.dtype}"
        )
    return source, target


def _require_count(count: int) -> None:
    if count < 0:
        raise InvalidArgument(f"count = {count} is negative")


def _address(pointer: Any) -> int:
    """The address that `pointer` is or stands for."""
    interface = getattr(pointer, "__cuda_array_interface__", None)
    return int(pointer if interface is None else interface["data"][0])


def _not_on_a_device(*_: object) -> int:
    raise InvalidArgument(
        "numpy arrays lie in host memory, which this library's device does not reduce: pass device "
        "pointers to all_reduce_ptr() (see pyrdnaar.DeviceBuffer)"
    )


def _closed(*_: object) -> int:
    raise StateError(CLOSED)
