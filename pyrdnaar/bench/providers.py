# SPDX-License-Identifier: Apache-2.0
"""Who can do an all-reduce: this library by algorithm, and others to compare it with.

A provider makes calls on the memory of a ground (grounds.py).
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ..arrays import Array
from ..communicator import Communicator
from ..dtypes import element_type
from ..exchange import Exchange
from ..memory import DeviceBuffer

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
    exact = False

    def algo(self, shape: Shape) -> str:
        """Which algorithm runs, as far as the provider's library tells; else ""."""
        return ""

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

    def algo(self, shape: Shape) -> str:
        return self._comm.plan(shape.count, shape.dtype, shape.op, self._algo).algo


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

    def call(self, x: DeviceBuffer, out: DeviceBuffer, shape: Shape) -> Call:
        return partial(
            self._comm.all_reduce_ptr,
            x.ptr,
            out.ptr,
            shape.count,
            shape.dtype,
            shape.op,
            self._algo,
            self._stream,
        )


# ---- Others ------------------------------------------------------------------------------------


class Mpi(Provider):
    """MPI_Allreduce on buffers, through mpi4py."""

    name = "mpi"

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._ops = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}

    def call(self, x: Array, out: Array, shape: Shape) -> Call:
        source = self._mpi.IN_PLACE if out is x else x
        return partial(self._mpi.COMM_WORLD.Allreduce, source, out, self._ops[shape.op])


class Gloo(Provider):
    """torch.distributed on CPU tensors. It reduces in place only, so `x` is copied first."""

    name = "gloo"

    def __init__(self, exchange: Exchange) -> None:
        import torch
        import torch.distributed

        self._torch = torch
        self._folder = tempfile.mkdtemp(prefix="pyrdnaar-") if exchange.rank == 0 else ""
        folder = exchange.all_gather(self._folder.encode())[0].decode()
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store",
            rank=exchange.rank,
            world_size=exchange.world_size,
        )
        kinds = torch.distributed.ReduceOp
        self._ops = {"sum": kinds.SUM, "max": kinds.MAX, "min": kinds.MIN}

    def call(self, x: Array, out: Array, shape: Shape) -> Call:
        source, target = self._torch.from_numpy(x), self._torch.from_numpy(out)
        reduce = partial(self._torch.distributed.all_reduce, target, self._ops[shape.op])
        if out is x:
            return reduce

        def copy_and_reduce() -> None:
            target.copy_(source)
            reduce()

        return copy_and_reduce

    def close(self) -> None:
        self._torch.distributed.destroy_process_group()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


# ---- The table of the others -------------------------------------------------------------------


class Peer(NamedTuple):
    """Somebody to compare numpy arrays with: by which module, and what it can reduce."""

    module: str
    install: str
    dtypes: tuple[str, ...]
    ops: tuple[str, ...] = ("sum", "max", "min")


PEERS = {
    "mpi": Peer("mpi4py.MPI", "an MPI library and pip install 'pyrdnaar[mpi]'", ("fp32",)),
    "gloo": Peer("torch.distributed", "pip install 'pyrdnaar[torch]'", ("fp16", "fp32")),
}


def misuse(name: str, by: str, graph: bool, dtypes: Iterable[str], op: str) -> str:
    """Why it makes no sense to ask for the peer `name`, whatever is installed; "" if it does.

    `by` is who starts the ranks, see the command line's group.
    """
    if name not in PEERS:
        return f"{name!r} is not one of {', '.join(PEERS)}"
    peer = PEERS[name]
    if name == "mpi" and by != "mpiexec":
        return "mpi needs ranks started by mpiexec, for example `mpiexec -n 2 pyrdnaar bench`"
    if by == "threads":
        return f"{name} needs ranks in processes of their own, not --threads"
    if graph:
        return f"{name} on the host cannot be recorded in a graph"
    if op not in peer.ops or not set(dtypes) <= set(peer.dtypes):
        return f"{name} has {', '.join(peer.ops)} of {', '.join(peer.dtypes)} only"
    return ""


def missing(name: str) -> str:
    """What the peer `name` lacks in this environment, and how to get it; "" if nothing."""
    peer = PEERS[name]
    try:
        importlib.import_module(peer.module)
    except ImportError as error:
        return f"{name} needs the Python module {peer.module} ({error}): {peer.install}"
    return ""
