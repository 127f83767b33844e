# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a torch process group talk to each other during start-up."""

from __future__ import annotations

import datetime
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from ..errors import ExchangeError
from ..exchange import DEFAULT_TIMEOUT, MAX_MESSAGE


class TorchExchange:
    """all_gather of bytes over a process group, in CPU memory.

    A group without a CPU side (NCCL or RCCL alone) gets a gloo group of the same ranks beside it,
    once, which torch.distributed destroys with all others. Every wait is bounded by `timeout`
    seconds. Which rank is missing torch does not tell: the `rank` of the ExchangeError is -1.
    """

    def __init__(self, group: Any, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._timeout = datetime.timedelta(seconds=timeout)
        self._group = group if _has_cpu_side(group) else _gloo_beside(group, self._timeout)
        self.rank = int(group.rank())
        self.world_size = int(group.size())

    def all_gather(self, data: bytes) -> list[bytes]:
        if len(data) > MAX_MESSAGE:
            raise ExchangeError(f"message of {len(data)} bytes, the limit is {MAX_MESSAGE}")
        sizes = [int(size) for size in self._gather(torch.tensor([len(data)]))]
        if max(sizes) > MAX_MESSAGE:
            rank = sizes.index(max(sizes))
            raise ExchangeError(
                f"rank {rank} announces {max(sizes)} bytes, the limit is {MAX_MESSAGE}", rank
            )
        # A collective moves as many bytes from each rank; one more, since none is not allowed.
        padded = bytearray(max(sizes) + 1)
        padded[: len(data)] = data
        parts = self._gather(torch.frombuffer(padded, dtype=torch.uint8))
        return [part[:size].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]

    def _gather(self, mine: torch.Tensor) -> list[torch.Tensor]:
        everybodys = [torch.empty_like(mine) for _ in range(self.world_size)]
        try:
            self._group.allgather([everybodys], [mine]).wait(self._timeout)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise ExchangeError(f"the ranks' process group has failed: {reason}") from None
        return everybodys


def _has_cpu_side(group: Any) -> bool:
    """Whether the group moves CPU tensors. A bare backend (no group) that is asked is gloo."""
    if not isinstance(group, dist.ProcessGroup):
        return True
    return "cpu:" in dist.get_backend_config(group)


# torch names such a group after its ranks: one made anew after the first was destroyed would find
# the first one's addresses in the store.
_beside: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _gloo_beside(group: Any, timeout: datetime.timedelta) -> Any:
    if group not in _beside:
        # Only the members come here: ranks outside of the group do not take part.
        _beside[group] = dist.new_group(
            dist.get_process_group_ranks(group),
            timeout=timeout,
            backend="gloo",
            use_local_synchronization=True,
        )
    return _beside[group]
