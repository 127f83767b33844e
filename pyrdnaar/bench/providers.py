# SPDX-License-Identifier: Apache-2.0
"""Who can do an all-reduce: this library by algorithm, and others to compare it with.

A provider makes calls on the memory of a ground (grounds.py). Several may share a name: variants,
of which the better one counts.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..arrays import Array
from ..communicator import Communicator
from ..dtypes import element_type
from ..errors import RdnaarError
from ..exchange import Exchange
from ..records import Plan

if TYPE_CHECKING:
    from .grounds import Ground

Call = Callable[[], object]


@dataclass(frozen=True)
class Shape:
    count: int
    dtype: str
    op: str

    @property
    def nbytes(self) -> int:
        return self.count * element_type(self.dtype).numpy.itemsize


class Provider(ABC):
    """One way to reduce. `exact` ones promise the bits of the rank-order reference."""

    name: str
    version = ""
    exact = False

    def refusal(self, shape: Shape) -> str:
        """Why this shape is not measured; "" if it is. The same on every rank."""
        return ""

    def algo(self, shape: Shape) -> str:
        """Which algorithm runs, as far as the provider's library tells; else ""."""
        return ""

    def memory(self, ground: Ground, like: Array, role: str) -> Any:
        """Memory for an array: "x", the input, "out", the output, or "both" in place."""
        return ground.memory(like)

    @abstractmethod
    def call(self, x: Any, out: Any, shape: Shape) -> Call:
        """A function that reduces `x` into `out`; `out` may be `x`."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        pass


# ---- This library ------------------------------------------------------------------------------


class _Ours(Provider):
    exact = True

    def __init__(self, comm: Communicator, algo: str, prefix: str = "rdnaar") -> None:
        self._comm = comm
        self._algo = algo
        self.name = prefix if algo == "auto" else f"{prefix}:{algo}"
        self.version = comm.library.build_info().version

    def refusal(self, shape: Shape) -> str:
        return self._plan(shape).reason

    def algo(self, shape: Shape) -> str:
        return self._plan(shape).algo

    def _plan(self, shape: Shape) -> Plan:
        return self._comm.plan(shape.count, shape.dtype, shape.op, self._algo)


class Method(_Ours):
    """Communicator.all_reduce() of numpy arrays, as a program calls it."""

    def call(self, x: Array, out: Array, shape: Shape) -> Call:
        return partial(self._comm.all_reduce, x, out, shape.op, self._algo)


class Prepared(_Ours):
    """Communicator.prepare(): hardly more than the call of the C function."""

    def __init__(self, comm: Communicator, algo: str) -> None:
        super().__init__(comm, algo, "prepared")

    def call(self, x: Array, out: Array, shape: Shape) -> Call:
        return self._comm.prepare(x, out, shape.op, self._algo)


class OnDevice(_Ours):
    """Communicator.all_reduce_ptr() on device memory and a stream."""

    def __init__(self, comm: Communicator, algo: str, stream: Any) -> None:
        super().__init__(comm, algo)
        self._stream = stream

    def call(self, x: Any, out: Any, shape: Shape) -> Call:
        return partial(
            self._comm.all_reduce_ptr,
            _address(x),
            _address(out),
            shape.count,
            shape.dtype,
            shape.op,
            self._algo,
            self._stream,
        )


def _address(memory: Any) -> int:
    """Of a DeviceBuffer or of a tensor."""
    return int(memory.ptr if hasattr(memory, "ptr") else memory.data_ptr())


# ---- Others ------------------------------------------------------------------------------------


class Mpi(Provider):
    """MPI_Allreduce on buffers, through mpi4py."""

    name = "mpi"

    def __init__(self) -> None:
        from mpi4py import MPI

        self.version = MPI.Get_library_version().splitlines()[0].replace("\t", " ").strip()
        self._mpi = MPI
        self._ops = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}

    def call(self, x: Array, out: Array, shape: Shape) -> Call:
        source = self._mpi.IN_PLACE if out is x else x
        return partial(self._mpi.COMM_WORLD.Allreduce, source, out, self._ops[shape.op])


class TorchGroup:
    """The default process group of torch.distributed, for as long as providers need it."""

    def __init__(self, exchange: Exchange, backend: str) -> None:
        import torch
        import torch.distributed

        self.torch = torch
        self._folder = tempfile.mkdtemp(prefix="pyrdnaar-") if exchange.rank == 0 else ""
        folder = exchange.all_gather(self._folder.encode())[0].decode()
        torch.distributed.init_process_group(
            backend,
            init_method=f"file://{folder}/store",
            rank=exchange.rank,
            world_size=exchange.world_size,
        )

    def close(self) -> None:
        self.torch.distributed.destroy_process_group()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


class TorchReduce(Provider):
    """torch.distributed.all_reduce(). It reduces in place only, so `x` is copied first."""

    def __init__(self, name: str, group: TorchGroup) -> None:
        self.name = name
        self._torch = group.torch
        self.version = f"torch {group.torch.__version__}"
        if name != "gloo":
            nccl = ".".join(map(str, group.torch.cuda.nccl.version()))
            self.version = f"{name} {nccl}, {self.version}"
        kinds = self._torch.distributed.ReduceOp
        self._ops = {"sum": kinds.SUM, "max": kinds.MAX, "min": kinds.MIN, "avg": kinds.AVG}

    def call(self, x: Any, out: Any, shape: Shape) -> Call:
        source, target = self._tensor(x), self._tensor(out)
        reduce = partial(self._torch.distributed.all_reduce, target, self._ops[shape.op])
        return reduce if out is x else _after_copy(target, source, reduce)

    def _tensor(self, memory: Any) -> Any:
        return memory if self._torch.is_tensor(memory) else self._torch.from_numpy(memory)


class Symmetric(Provider):
    """Torch's symmetric memory: one kernel, "oneshot" or "twoshot", over memory of its own.

    The one-shot kernel writes elsewhere and the two-shot kernel in place: the other place costs
    a copy.
    """

    name = "symm"

    def __init__(self, algo: str, group: TorchGroup, device: int, max_bytes: int) -> None:
        import torch.distributed._symmetric_memory as symmetric

        torch = group.torch
        self._torch, self._algo = torch, algo
        self.version = f"torch {torch.__version__}"
        self._world = torch.distributed.get_world_size()
        self._group = torch.distributed.group.WORLD.group_name
        self._memory = {}
        for role in ("x", "out", "both"):
            whole = symmetric.empty(max_bytes, dtype=torch.uint8, device=f"cuda:{device}")
            symmetric.rendezvous(whole, self._group)
            self._memory[role] = whole

    def refusal(self, shape: Shape) -> str:
        unit = 16 * self._world
        return f"it takes multiples of {unit} bytes" if shape.nbytes % unit else ""

    def algo(self, shape: Shape) -> str:
        return self._algo

    def memory(self, ground: Ground, like: Array, role: str) -> Any:
        kind = getattr(self._torch, like.dtype.name)
        return self._memory[role][: like.nbytes].view(kind)

    def call(self, x: Any, out: Any, shape: Shape) -> Call:
        ops, group = self._torch.ops.symm_mem, self._group
        if self._algo == "oneshot":
            if out is not x:
                return partial(ops.one_shot_all_reduce_out, x, "sum", group, out)
            return lambda: x.copy_(ops.one_shot_all_reduce(x, "sum", group))
        reduce = partial(ops.two_shot_all_reduce_, out, "sum", group)
        return reduce if out is x else _after_copy(out, x, reduce)

    def close(self) -> None:
        self._memory.clear()


def _after_copy(target: Any, source: Any, reduce: Call) -> Call:
    def copy_and_reduce() -> None:
        target.copy_(source)
        reduce()

    return copy_and_reduce


# ---- The table of the others -------------------------------------------------------------------


class Peer(NamedTuple):
    """Somebody to compare with: where, by which module, and what it can reduce."""

    backends: tuple[str, ...]
    module: str
    install: str
    dtypes: tuple[str, ...]
    ops: tuple[str, ...]


_TORCH = "pip install 'pyrdnaar[torch]'"
PEERS = {
    "mpi": Peer(
        ("host",),
        "mpi4py.MPI",
        "an MPI library and pip install 'pyrdnaar[mpi]'",
        ("fp32",),
        ("sum", "max", "min"),
    ),
    "gloo": Peer(("host",), "torch.distributed", _TORCH, ("fp16", "fp32"), ("sum", "max", "min")),
    "nccl": Peer(
        ("cuda",),
        "torch.distributed",
        f"{_TORCH}, of a build for CUDA",
        ("fp16", "bf16", "fp32"),
        ("sum", "max", "min", "avg"),
    ),
    "rccl": Peer(
        ("hip",),
        "torch.distributed",
        f"{_TORCH}, of a build for ROCm",
        ("fp16", "bf16", "fp32"),
        ("sum", "max", "min", "avg"),
    ),
    "symm": Peer(
        ("cuda", "hip"),
        "torch.distributed._symmetric_memory",
        f"{_TORCH}, of a build for the GPU",
        ("bf16", "fp32"),
        ("sum",),
    ),
}


class Unavailable(RdnaarError):
    """A provider cannot run on this machine."""

    exit_code = 3


def misuse(name: str, by: str, backend: str, graph: bool, dtypes: Iterable[str], op: str) -> str:
    """Why it makes no sense to ask for the peer `name`, whatever is installed; "" if it does.

    `by` is who starts the ranks, see the command line's group.
    """
    if name not in PEERS:
        return f"{name!r} is not one of {', '.join(PEERS)}"
    peer = PEERS[name]
    if backend not in peer.backends:
        return f"{name} reduces on {' and '.join(peer.backends)}, the backend is {backend}"
    if name == "mpi" and by != "mpiexec":
        return "mpi needs ranks started by mpiexec, for example `mpiexec -n 2 pyrdnaar bench`"
    if by == "threads":
        return f"{name} needs ranks in processes of their own, not --threads"
    if graph and backend == "host":
        return f"{name} on the host cannot be recorded in a graph"
    if op not in peer.ops or not set(dtypes) <= set(peer.dtypes):
        return f"{name} has {', '.join(peer.ops)} of {', '.join(peer.dtypes)} only"
    return ""


def missing(name: str, backend: str) -> str:
    """What the peer `name` lacks in this environment, and how to get it; "" if nothing."""
    peer = PEERS[name]
    try:
        importlib.import_module(peer.module)
    except ImportError as error:
        return f"{name} needs the Python module {peer.module} ({error}): {peer.install}"
    if backend == "host":
        return ""
    import torch

    built_for = "hip" if torch.version.hip else "cuda" if torch.version.cuda else "the CPU"
    if built_for != backend or not torch.cuda.is_available():
        return (
            f"{name} needs a torch that sees the GPUs ({torch.__version__} is built for "
            f"{built_for}): {peer.install}"
        )
    return ""
