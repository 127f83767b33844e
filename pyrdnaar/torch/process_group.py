# SPDX-License-Identifier: Apache-2.0
"""A process group whose all_reduce is routed here, message by message.

    group = pyrdnaar.torch.routed(group)      # an existing group, whose backend stays behind it
    dist.init_process_group("rdnaar")         # or as the backend of a whole program

Everything that takes a group works with it: torch.distributed.all_reduce(), functional collectives,
DistributedDataParallel. All other collectives, and all_reduce() of what is not eligible, are those
of the group's own backend.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..config import Config
from ..errors import StateError
from .adapter import RdnaAllReduce

BACKEND = "rdnaar"

# Of a ProcessGroup: what is passed on as it is.
_PASSED_ON = (
    "_allgather_base",
    "_end_coalescing",
    "_reduce_scatter_base",
    "_start_coalescing",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)

# A bare backend, other than a group, knows some of them by their older names alone.
_OLDER_NAMES = {
    "all_gather_single": "_allgather_base",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
}


@dataclass(frozen=True)
class Options:
    """The `pg_options` of a group with backend "rdnaar"."""

    group: Any = None
    """Whose backend stays behind it. None: gloo for CPU tensors, NCCL or RCCL for those on GPUs."""
    config: Config | None = None
    """None: the environment's, where an adapter is off until asked for."""


def routed(group: Any = None, config: Config | None = None) -> Any:
    """A new group of the same ranks, whose all_reduce calls are routed. A collective of `group`."""
    group = dist.group.WORLD if group is None else group
    ranks = dist.get_process_group_ranks(group)
    order = {} if ranks == sorted(ranks) else {"sort_ranks": False}
    return dist.new_group(
        ranks,
        backend=BACKEND,
        pg_options=Options(group, config),
        use_local_synchronization=True,
        **order,
    )


class RoutedGroup(dist.ProcessGroup):
    """Use routed(), or the backend's name: torch.distributed has to know about its groups.

    The adapter of a kind of device is made by its first all_reduce() that could be eligible, which
    all ranks call together. Make one before a graph is captured.
    """

    def __init__(self, behind: dict[str, Any], rank: int, size: int, config: Config | None) -> None:
        """`behind`: by type of device, the group or backend that does everything else."""
        super().__init__(rank, size)
        self._behind = behind
        self._config = config
        self._adapters: dict[str, RdnaAllReduce] = {}
        self._name = self._description = ""

    # A group whose backends torch made itself keeps its name and description there.

    def getBackendName(self) -> str:  # noqa: N802
        return BACKEND

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._description = description

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        opts = dist.AllreduceOptions() if opts is None else opts
        x, op = tensors[0], _name_of(opts.reduceOp)
        if len(tensors) == 1:
            adapter = self._adapter(x)
            if adapter.takes(x, op):
                return _Done(adapter.all_reduce_(x.detach(), op))
        return self._behind[x.device.type].allreduce(tensors, opts)

    def _adapter(self, x: torch.Tensor) -> RdnaAllReduce:
        kind = x.device.type
        adapter = self._adapters.get(kind)
        if adapter is None:
            if kind == "cuda" and torch.cuda.is_current_stream_capturing():
                raise StateError(
                    "the first all_reduce of a group makes its communicator, which cannot be "
                    "captured in a graph: make one call before the capture"
                )
            # The CPU's is who the ranks talk through; of its own fallback no use is made here.
            adapter = RdnaAllReduce(self._behind["cpu"], x.device, self._config)
            self._adapters[kind] = adapter
        return adapter

    def check(self) -> None:
        """RdnaAllReduce.check() of this group."""
        for adapter in self._adapters.values():
            adapter.check()

    def shutdown(self) -> None:
        """What torch.distributed.destroy_process_group() calls."""
        for adapter in self._adapters.values():
            adapter.close()


class _Done(dist.Work):
    """Work that was given to the current stream, or has been done."""

    def __init__(self, result: torch.Tensor) -> None:
        super().__init__()
        self._result = result
        self._event: Any = None
        if result.is_cuda:
            self._event = torch.cuda.current_stream(result.device).record_event()

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """As for NCCL: the present stream waits, not the caller."""
        if self._event is not None:
            torch.cuda.current_stream(self._result.device).wait_event(self._event)
        return True

    def is_completed(self) -> bool:
        return self._event is None or self._event.query()

    def is_success(self) -> bool:
        return True

    def result(self) -> list[torch.Tensor]:
        return [self._result]

    def get_future(self) -> Any:
        devices = [self._result.device] if self._result.is_cuda else []
        future: Any = torch.futures.Future(devices=devices)
        future.set_result([self._result])
        return future


def _name_of(reduce_op: Any) -> str:
    for name in ("sum", "max", "min", "avg"):
        if reduce_op == getattr(dist.ReduceOp, name.upper()):
            return name
    return str(reduce_op)


def _passing_on(name: str) -> Callable[..., Any]:
    def call(self: RoutedGroup, *args: Any, **kwargs: Any) -> Any:
        behind = self._behind[_device_type(args)]
        known = name if hasattr(behind, name) else _OLDER_NAMES.get(name, name)
        return getattr(behind, known)(*args, **kwargs)

    call.__name__ = name
    return call


def _device_type(args: Any) -> str:
    """Of the first tensor in nested lists of arguments; without one (a barrier) the CPU's."""
    for argument in args:
        if isinstance(argument, torch.device):
            return argument.type
        if isinstance(argument, torch.Tensor):
            return argument.device.type
        if isinstance(argument, list | tuple) and argument:
            return _device_type(argument)
    return "cpu"


for _name in _PASSED_ON:
    setattr(RoutedGroup, _name, _passing_on(_name))


def _create(backend: Any, options: Options | None) -> RoutedGroup:
    options = options or Options()
    rank, size = backend.group_rank, backend.group_size
    if options.group is not None:
        behind = {"cpu": options.group, "cuda": options.group}
    else:
        behind = _default_backends(backend)
    return RoutedGroup(behind, rank, size, options.config)


def _default_backends(backend: Any) -> dict[str, Any]:
    rank, size = backend.group_rank, backend.group_size
    gloo = dist.ProcessGroupGloo(
        dist.PrefixStore("gloo/", backend.store), rank, size, timeout=backend.timeout
    )
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return {"cpu": gloo, "cuda": gloo}
    settings = dist.ProcessGroupNCCL.Options()
    nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl/", backend.store), rank, size, settings)
    return {"cpu": gloo, "cuda": nccl}


dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])
