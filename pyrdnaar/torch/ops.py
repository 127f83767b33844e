# SPDX-License-Identifier: Apache-2.0
"""torch.ops.pyrdnaar.all_reduce(x, group, op): the all-reduce as an operator of torch.

It returns a new tensor, so that compilers may treat it as any pure function. `group` is the `name`
of an RdnaAllReduce: a graph can hold a string, not an object.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from ..errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from .adapter import RdnaAllReduce

_adapters: WeakValueDictionary[str, RdnaAllReduce] = WeakValueDictionary()
_numbers = itertools.count()


def register(adapter: RdnaAllReduce) -> str:
    """Give the adapter its name, which is the same from run to run of the same program."""
    name = f"rdnaar:{next(_numbers)}"
    _adapters[name] = adapter
    return name


def _adapter(name: str) -> RdnaAllReduce:
    adapter = _adapters.get(name)
    if adapter is None:
        known = ", ".join(sorted(_adapters)) or "none"
        raise InvalidArgument(
            f"group {name!r} is no RdnaAllReduce of this process ({known}): keep a reference to it "
            "as long as there are calls and graphs that name it"
        )
    return adapter


def _all_reduce(x: torch.Tensor, group: str, op: str = "sum") -> torch.Tensor:
    return _adapter(group).reduce_new(x, op)


def _all_reduce_fake(x: torch.Tensor, group: str, op: str = "sum") -> torch.Tensor:
    return torch.empty_like(x)


def _save(ctx: Any, inputs: tuple[torch.Tensor, str, str], output: torch.Tensor) -> None:
    _, ctx.group, ctx.op = inputs


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    # Every rank's loss depends on every rank's x: d(sum of all losses)/dx is the sum of the grads,
    # for the average the average.
    if ctx.op not in ("sum", "avg"):
        raise Unsupported(f"all_reduce with op {ctx.op!r} has no gradient: only sum and avg do")
    return torch.ops.pyrdnaar.all_reduce(grad, ctx.group, ctx.op), None, None


_library = torch.library.Library("pyrdnaar", "DEF")
_library.define(
    "all_reduce(Tensor x, str group, str op='sum') -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)
_library.impl("all_reduce", _all_reduce, "CompositeExplicitAutograd")
torch.library.register_fake("pyrdnaar::all_reduce", _all_reduce_fake, lib=_library)
torch.library.register_autograd(
    "pyrdnaar::all_reduce", _backward, setup_context=_save, lib=_library
)
