# SPDX-License-Identifier: Apache-2.0
"""All-reduce over several machines: this library inside each, torch.distributed between them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from ..errors import AbortError, Disabled, InvalidArgument, RdnaarError
from .adapter import DTYPES, REDUCE_OPS, RdnaAllReduce, fills_one_span
from .exchange import TorchExchange


class HierarchicalAllReduce:
    """Reduce-scatter over `intra`, all-reduce over `inter_group`, all-gather over `intra`.

    `intra` is the adapter of this machine's ranks. `inter_group` has one rank of each machine,
    those of the same rank inside; its backend does what crosses the network, whatever it is. With
    W ranks a machine each of them sends a W-th of the message to other machines.

    Making one is a collective of all ranks of all machines. If any machine's `intra` is disabled,
    all ranks are `disabled` with the same `reason`, and all_reduce() raises it.

    A rank whose network fails aborts its machine's group, so that no rank of it waits for long; the
    other machines' ranks run into the bound of their `inter_group`. So give that group a timeout.

    Between machines sums are rounded to the tensor's dtype by the other engine, in its order:
    ranks of one machine have the same bits always, all ranks if that engine gives all its ranks
    the same.
    """

    def __init__(self, intra: RdnaAllReduce, inter_group: Any) -> None:
        self.intra = intra
        self.inter_group = inter_group
        self.world_size: int = intra.group.size() * inter_group.size()
        self.reason = self._agree()
        self.disabled = bool(self.reason)

    def _agree(self) -> str:
        """Why not, alike on all ranks: first among the same ranks of all machines, then inside."""
        group = self.intra.group
        mine = {"reason": self.intra.reason, "rank": group.rank(), "size": group.size()}
        machines = [
            json.loads(raw)
            for raw in TorchExchange(self.inter_group).all_gather(json.dumps(mine).encode())
        ]
        reason = ""
        for number, machine in enumerate(machines):
            if machine["reason"]:
                reason = f"machine {number}: {machine['reason']}"
            elif (machine["rank"], machine["size"]) != (mine["rank"], mine["size"]):
                reason = (
                    f"rank {mine['rank']} of {mine['size']} of machine 0 is grouped with rank "
                    f"{machine['rank']} of {machine['size']} of machine {number}"
                )
            if reason:
                break
        reasons = TorchExchange(group).all_gather(reason.encode())
        return next((raw.decode() for raw in reasons if raw), "")

    def all_reduce(self, x: torch.Tensor, op: str = "sum") -> torch.Tensor:
        """Combine all ranks' `x`; a new tensor. Of any size: large ones pass in pieces."""
        if self.disabled:
            raise Disabled(self.reason, -1)
        if op not in REDUCE_OPS or x.dtype not in DTYPES or x.device != self.intra.device:
            raise InvalidArgument(
                f"op {op!r} of {x.dtype} on {x.device}: this takes {', '.join(REDUCE_OPS)} of "
                f"{', '.join(map(str, DTYPES))} on {self.intra.device}"
            )
        out = torch.empty_like(x)
        if not fills_one_span(x):
            x = out.copy_(x)
        source, target = _flat(x), _flat(out)
        step = self._piece(x.element_size())
        for start in range(0, x.numel(), step):
            self._reduce(source[start : start + step], target[start : start + step], op)
        return out

    def _piece(self, element_size: int) -> int:
        """Elements that pass at once: a multiple of the ranks inside, and at least one each."""
        ranks = self.intra.group.size()
        return max(self.intra.max_bytes // element_size // ranks, 1) * ranks

    def _reduce(self, x: torch.Tensor, out: torch.Tensor, op: str) -> None:
        ranks = self.intra.group.size()
        count = -(-x.numel() // ranks)
        whole = x.numel() == count * ranks
        # What is padded is reduced too, and dropped.
        padded = x if whole else torch.nn.functional.pad(x, (0, count * ranks - x.numel()))
        gathered = out if whole else torch.empty_like(padded)
        part = x.new_empty(count)
        self.intra.reduce_scatter(padded, part, op)
        with self._freeing_this_machine():
            dist.all_reduce(part, REDUCE_OPS[op], group=self.inter_group)
            if op == "avg":
                part.div_(self.inter_group.size())
        self.intra.all_gather(part, gathered)
        if not whole:
            out.copy_(gathered[: x.numel()])

    @contextlib.contextmanager
    def _freeing_this_machine(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            reason = f"between machines: {str(error).strip().splitlines()[0]}"
            with contextlib.suppress(AbortError):
                self.intra.abort(reason)
            raise RdnaarError(reason) from error

    def check(self) -> None:
        """RdnaAllReduce.check() of this machine's ranks."""
        self.intra.check()


def _flat(x: torch.Tensor) -> torch.Tensor:
    """The elements in storage order, of a tensor that fills one span."""
    return x.as_strided((x.numel(),), (1,))
