# SPDX-License-Identifier: Apache-2.0
"""TorchExchange: bytes of any length over a process group, bounded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch_ranks import in_processes, on_threads

import pyrdnaar
from pyrdnaar import ExchangeError
from pyrdnaar.torch import TorchExchange

MESSAGES = [b"", b"\x00\xff" * 5000, b"three"]


def _rounds(group: Any) -> list[list[bytes]]:
    exchange = TorchExchange(group)
    assert (exchange.rank, exchange.world_size) == (group.rank(), group.size())
    return [exchange.all_gather(MESSAGES[(exchange.rank + i) % 3]) for i in range(3)]


WANTED = [[MESSAGES[(rank + i) % 3] for rank in range(3)] for i in range(3)]


def test_messages_of_different_lengths() -> None:
    assert on_threads(_rounds, 3) == [WANTED] * 3


def _of_a_group_that_torch_knows() -> Any:
    return _rounds(dist.group.WORLD)


def test_over_a_registered_group(tmp_path: Path) -> None:
    assert in_processes(_of_a_group_that_torch_knows, 3, tmp_path) == [WANTED] * 3


def _with_a_group_beside() -> Any:
    # Told by its backends, a group of "cuda:gloo" moves no CPU tensors.
    on_gpus = dist.new_group(backend="cuda:gloo")
    first = _rounds(on_gpus)
    return first, _rounds(on_gpus) == first


def test_a_group_without_a_cpu_side_gets_one(tmp_path: Path) -> None:
    assert in_processes(_with_a_group_beside, 3, tmp_path) == [(WANTED, True)] * 3


def _communicates() -> tuple[int, int]:
    group = dist.group.WORLD
    with pyrdnaar.Communicator(group.rank(), group.size(), TorchExchange(group), "host") as comm:
        return comm.rank, comm.world_size


def test_a_communicator_over_it(lib: pyrdnaar.Library, tmp_path: Path) -> None:
    assert in_processes(_communicates, 2, tmp_path) == [(0, 2), (1, 2)]


def test_a_rank_that_does_not_come() -> None:
    def work(group: Any) -> float:
        TorchExchange(group).all_gather(b"")  # ranks connect in it, each in its time
        exchange = TorchExchange(group, timeout=0.5)
        start = time.monotonic()
        if exchange.rank == 0:
            with pytest.raises(ExchangeError, match="process group has failed"):
                exchange.all_gather(b"x")
        return time.monotonic() - start

    assert on_threads(work)[0] < 20


def test_a_message_over_the_limit() -> None:
    def work(group: Any) -> None:
        with pytest.raises(ExchangeError, match=r"16777217 bytes, the limit is 16777216"):
            TorchExchange(group).all_gather(bytes(2**24 + 1))

    on_threads(work, 1)
