# SPDX-License-Identifier: Apache-2.0
"""Who can do an all-reduce of numpy arrays, for measurements side by side."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from .arrays import Array
from .communicator import Communicator
from .exchange import Exchange

Call = Callable[[], object]


class Provider(Protocol):
    """One way to reduce. `exact` ones promise the bits of the rank-order reference."""

    name: str
    exact: bool

    def call(self, x: Array, out: Array, op: str) -> Call:
        """A function that reduces `x` into `out`; `out` may be `x`."""
        ...

    def close(self) -> None: ...


class Method:
    """Communicator.all_reduce(), as a program calls it."""

    name = "rdnaar"
    exact = True

    def __init__(self, comm: Communicator, algo: str) -> None:
        self._comm = comm
        self._algo = algo

    def call(self, x: Array, out: Array, op: str) -> Call:
        return partial(self._comm.all_reduce, x, out, op, self._algo)

    def close(self) -> None:
        """The communicator is its maker's."""


class Prepared(Method):
    """Communicator.prepare(): hardly more than the call of the C function."""

    name = "prepared"

    def call(self, x: Array, out: Array, op: str) -> Call:
        return self._comm.prepare(x, out, op, self._algo)


class Mpi:
    """MPI_Allreduce on buffers, through mpi4py."""

    name = "mpi"
    exact = False

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._ops = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}

    def call(self, x: Array, out: Array, op: str) -> Call:
        source = self._mpi.IN_PLACE if out is x else x
        return partial(self._mpi.COMM_WORLD.Allreduce, source, out, self._ops[op])

    def close(self) -> None:
        """mpi4py finalizes MPI at exit."""


class Gloo:
    """torch.distributed on CPU tensors. It reduces in place only, so `x` is copied first."""

    name = "gloo"
    exact = False

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
        reduce_op = torch.distributed.ReduceOp
        self._ops = {"sum": reduce_op.SUM, "max": reduce_op.MAX, "min": reduce_op.MIN}

    def call(self, x: Array, out: Array, op: str) -> Call:
        source, target = self._torch.from_numpy(x), self._torch.from_numpy(out)
        reduce = partial(self._torch.distributed.all_reduce, target, self._ops[op])
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


class Peer(NamedTuple):
    """Somebody to compare with: the module it needs, and what it can reduce."""

    module: str
    dtypes: tuple[str, ...]
    ops: tuple[str, ...] = ("sum", "max", "min")


PEERS = {
    "mpi": Peer("mpi4py.MPI", ("fp32",)),
    "gloo": Peer("torch.distributed", ("fp16", "fp32")),
}


def refusal(name: str, by: str, dtypes: Iterable[str], op: str) -> str:
    """Why the peer `name` cannot be measured in ranks started by `by`; "" if it can."""
    if name not in PEERS:
        return f"{name!r} is not one of {', '.join(PEERS)}"
    module, its_dtypes, its_ops = PEERS[name]
    if name == "mpi" and by != "mpiexec":
        return "mpi needs ranks started by mpiexec, for example `mpiexec -n 2 pyrdnaar bench`"
    if by == "threads":
        return f"{name} needs ranks in processes of their own, not --threads"
    if op not in its_ops or not set(dtypes) <= set(its_dtypes):
        return f"{name} has {', '.join(its_ops)} of {', '.join(its_dtypes)} only"
    try:
        importlib.import_module(module)
    except ImportError as error:
        return f"{name} needs the Python module {module}: {error}"
    return ""


def peer(name: str, exchange: Exchange) -> Provider:
    """The peer `name`, made on all ranks together."""
    return Mpi() if name == "mpi" else Gloo(exchange)
