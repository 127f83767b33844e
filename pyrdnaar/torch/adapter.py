# SPDX-License-Identifier: Apache-2.0
"""RdnaAllReduce: the all-reduce of a torch process group, with the group's own behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .. import wedge
from ..communicator import Communicator
from ..config import Config
from ..errors import Disabled, InvalidArgument, RdnaarError, StateError, Unsupported
from ..records import AbortRecord
from . import ops
from .exchange import TorchExchange

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("pyrdnaar")

DTYPES: dict[torch.dtype, str] = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
}

REDUCE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    # gloo has no average: the sum is divided.
    "avg": dist.ReduceOp.SUM,
}

Fallback = Callable[[torch.Tensor, str], torch.Tensor]


class RdnaAllReduce:
    """All-reduce of the tensors on `device` over the ranks of `group`.

    Making one is a collective of the group. If it cannot work, or RDNAAR_ENABLE is not set, every
    rank is `disabled` with the same `reason`, and all_reduce() is `fallback`: the group's own, or
    the given function of a tensor and an op that returns a new tensor. With RDNAAR_STRICT=1 that
    is an error instead. `config` None: the environment's, where an adapter is off until asked for.

    Which of the two a call takes follows from its element count, dtype and op alone, so that no
    rank chooses another than its peers. What may differ between ranks must not count: a tensor
    with gaps in its memory is copied first, on the rank that has it.

    Elements are combined in storage order, as torch.distributed does: all ranks pass the same
    order of axes, and the result has it too.

    Calls run on the current stream. They can be captured in graphs, allocate through torch alone
    and never synchronise; so memory needs no other care than with any operator of torch.
    """

    def __init__(
        self,
        group: Any = None,
        device: Any = "cpu",
        config: Config | None = None,
        fallback: Fallback | None = None,
        enable_default: bool = False,
    ) -> None:
        """`enable_default`: what counts where the environment is asked and does not say."""
        self.group = dist.group.WORLD if group is None else group
        self.device = _with_index(device)
        self.disabled = True
        self.reason = ""
        self.name = ops.register(self)
        """By which torch.ops.pyrdnaar.all_reduce finds this object."""
        self._config = config
        self._enable_default = enable_default
        self._fallback = fallback or self._reduce_by_group
        self._comm: Communicator | None = None
        self._exchange = TorchExchange(self.group)
        try:
            self._start()
        except Disabled as error:
            self.reason = str(error)
            if self._strict:
                raise
            log = logger.warning if self._asked and self._exchange.rank == 0 else logger.debug
            log("the group's own all-reduce is used: %s", self.reason)

    def _start(self) -> None:
        exchange = self._exchange
        backend = _backend_of(self.device)
        self._comm = Communicator(
            exchange.rank,
            exchange.world_size,
            exchange,
            backend,
            self.device.index,
            lambda: self._settings(backend),
        )
        # The same question comes again and again, of a few shapes.
        self._can_use = lru_cache(maxsize=4096)(self._comm.can_use)
        self.disabled = False

    def _settings(self, backend: str) -> Config:
        """Read inside the start-up's first vote: a bad value on one rank holds up no other."""
        if self._config is None:
            self._config = Config.from_env(enable_default=self._enable_default)
        config = self._config
        if config.backend not in ("auto", backend):
            raise RdnaarError(
                f"backend {config.backend!r} is configured (RDNAAR_BACKEND), tensors on "
                f"{self.device} need {backend!r}"
            )
        return replace(config, wedge_file=str(wedge.path_of(config)))

    # ---- Reducing ------------------------------------------------------------------------------

    def should_use(self, x: torch.Tensor, op: str = "sum") -> bool:
        """Whether all_reduce(x, op) runs here, not in the fallback. The same on every rank."""
        return self._refusal(x, op) == ""

    def takes(self, x: torch.Tensor, op: str = "sum") -> bool:
        """should_use(), or an error where the fallback is forbidden."""
        refusal = self._refusal(x, op)
        if refusal and self.closed:
            raise StateError("this adapter is closed")
        if refusal and self._strict:
            raise Unsupported(f"{refusal}; RDNAAR_STRICT=1 forbids the group's own all-reduce")
        return not refusal

    def all_reduce(self, x: torch.Tensor, op: str = "sum") -> torch.Tensor:
        """Combine the ranks' `x` by "sum", "max", "min" or "avg"; the result is a new tensor.

        Traced by torch.compile, or where a gradient is wanted, it is torch.ops.pyrdnaar.all_reduce.
        """
        if torch.compiler.is_compiling() or (x.requires_grad and torch.is_grad_enabled()):
            return torch.ops.pyrdnaar.all_reduce(x, self.name, op)
        return self.reduce_new(x, op)

    def reduce_new(self, x: torch.Tensor, op: str = "sum") -> torch.Tensor:
        """all_reduce() as the operator runs it: without a graph of gradients."""
        if not self.takes(x, op):
            return self._fallback(x, op)
        out = torch.empty_like(x)
        self._run(x if fills_one_span(x) else out.copy_(x), out, op)
        return out

    def all_reduce_(self, x: torch.Tensor, op: str = "sum") -> torch.Tensor:
        """The same in place; returns `x`. It has no gradient."""
        if not self.takes(x, op):
            return x.copy_(self._fallback(x, op))
        if fills_one_span(x):
            self._run(x, x, op)
            # Autograd does not see the stores: a backward that has kept x must not use it.
            torch.autograd.graph.increment_version(x)
            return x
        dense = torch.empty_like(x).copy_(x)
        self._run(dense, dense, op)
        return x.copy_(dense)

    # ---- The two halves, of contiguous tensors; for HierarchicalAllReduce -----------------------

    def reduce_scatter(self, x: torch.Tensor, out: torch.Tensor, op: str = "sum") -> None:
        """`x` has one chunk of the size of `out` for each rank; `out` gets this rank's."""
        self._running().reduce_scatter_ptr(
            x.data_ptr(), out.data_ptr(), out.numel(), DTYPES[x.dtype], op, self._stream()
        )

    def all_gather(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """`out` gets every rank's `x`, one after the other."""
        self._running().all_gather_ptr(
            x.data_ptr(), out.data_ptr(), x.numel(), DTYPES[x.dtype], self._stream()
        )

    @property
    def max_bytes(self) -> int:
        """The largest message."""
        return self._running().config.max_bytes

    def _running(self) -> Communicator:
        if self._comm is None:
            raise StateError(f"this adapter is disabled: {self.reason}")
        return self._comm

    def _stream(self) -> int:
        cuda = self.device.type == "cuda"
        return torch.cuda.current_stream(self.device).cuda_stream if cuda else 0

    def _run(self, source: torch.Tensor, target: torch.Tensor, op: str) -> None:
        self._running().all_reduce_ptr(
            source.data_ptr(),
            target.data_ptr(),
            source.numel(),
            DTYPES[source.dtype],
            op,
            stream=self._stream(),
        )

    def _refusal(self, x: torch.Tensor, op: str) -> str:
        """Why such a call is the fallback's; "" if it is not. A pure function, see above."""
        if self.disabled:
            return self.reason
        if op not in REDUCE_OPS:
            return f"op {op!r} is not one of {', '.join(REDUCE_OPS)}"
        if x.dtype not in DTYPES or x.layout is not torch.strided:
            return f"dtype {x.dtype} is not one of {', '.join(map(str, DTYPES))} in a dense tensor"
        if x.device != self.device:
            elsewhere = f"x is on {x.device}, this adapter is for {self.device}"
            if x.device.type == self.device.type:
                # Left to the fallback this rank would wait there for peers that are here.
                raise InvalidArgument(elsewhere)
            return elsewhere
        usable, why = self._can_use(x.numel(), DTYPES[x.dtype], op)
        return "" if usable else why

    def _reduce_by_group(self, x: torch.Tensor, op: str) -> torch.Tensor:
        if op not in REDUCE_OPS:
            raise InvalidArgument(f"op {op!r} is not one of {', '.join(REDUCE_OPS)}")
        out = x.detach().clone()
        dist.all_reduce(out, REDUCE_OPS[op], group=self.group)
        return out.div_(self._exchange.world_size) if op == "avg" else out

    # ---- Failure -------------------------------------------------------------------------------

    def timed_out(self) -> bool:
        """Whether the communicator has been aborted. Never waits."""
        return self.abort_record() is not None

    def abort_record(self) -> AbortRecord | None:
        """Why it has been aborted; None while it has not, and when disabled."""
        return None if self._comm is None or self._comm.closed else self._comm.abort_record()

    def check(self) -> None:
        """Raise AbortError, and leave the wedge marker, if it has been aborted. Never waits.

        For every step of a server: a graph's launches tell nothing, and what an aborted call
        leaves is NaN. Ranks of an aborted group do not go on with the fallback, since each of
        them would begin at another call.
        """
        if not self.disabled:
            self._running().check()

    def abort(self, reason: str) -> None:
        """Give up: the peers' waits end with an AbortError."""
        self._running().abort(reason)

    @property
    def _strict(self) -> bool:
        return self._config is not None and self._config.strict

    @property
    def _asked(self) -> bool:
        return self._config is None or self._config.enable

    # ---- End of life ---------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._comm is not None and self._comm.closed

    def close(self) -> None:
        """Release everything. Local and bounded; again does nothing."""
        if self._comm is not None and not self._comm.closed:
            self.disabled, self.reason = True, "closed"
            self._comm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fills_one_span(x: torch.Tensor) -> bool:
    """Whether the elements fill one span of memory, in any order of the axes, as they are."""
    if x.is_neg():  # the signs in memory are not those of the elements
        return False
    # empty_like() keeps the strides of such a tensor, and of no other.
    return x.is_contiguous() or x.stride() == torch.empty_like(x, device="meta").stride()


def _with_index(device: Any) -> torch.device:
    """As tensors say it: "cuda" alone means the current one; the CPU has no index."""
    device = torch.device(device)
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise InvalidArgument(f"device {device} is neither a CPU nor a CUDA or ROCm GPU")
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())


def _backend_of(device: torch.device) -> str:
    if device.type == "cpu":
        return "host"
    return "hip" if torch.version.hip else "cuda"
