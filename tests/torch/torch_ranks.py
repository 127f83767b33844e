# SPDX-License-Identifier: Apache-2.0
"""Ranks with a torch process group, as threads or as processes, and tensors to reduce."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import pyrdnaar
from pyrdnaar import reference

BOUND = datetime.timedelta(seconds=60)

# Bounds that a loaded machine keeps. "never": that start-up is proven is tested elsewhere.
ON = pyrdnaar.Config(timeout_ms=60_000, warmup_timeout_ms=60_000, prove="never")

TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def on_threads(work: Callable[[Any], Any], world: int = 2) -> list[Any]:
    """work(group) in threads, each with a gloo group of its own that torch does not know of."""
    store = dist.HashStore()

    def rank(exchange: pyrdnaar.ThreadExchange) -> Any:
        return work(dist.ProcessGroupGloo(store, exchange.rank, world, BOUND))

    return pyrdnaar.run_threads(rank, world, timeout=120)


def in_processes(
    work: Callable[..., Any], world: int, folder: Path, *args: Any, backend: str = "gloo"
) -> list[Any]:
    """work(*args) in processes that have initialised torch.distributed."""
    return pyrdnaar.run_ranks(
        _process, world, work, f"file://{folder}/store", args, backend, timeout=300
    )


def _process(
    exchange: pyrdnaar.Exchange, work: Callable[..., Any], url: str, args: Any, backend: str
) -> Any:
    torch.set_num_threads(1)
    if torch.cuda.is_available() and torch.cuda.device_count() > exchange.rank:
        torch.cuda.set_device(exchange.rank)
    dist.init_process_group(
        backend,
        init_method=url,
        rank=exchange.rank,
        world_size=exchange.world_size,
        timeout=BOUND,
    )
    result = work(*args)
    # Not in a finally block: a failed rank must not wait for its peers here.
    dist.destroy_process_group()
    return result


def inputs(world: int, count: int, dtype: str, seed: int = 0) -> list[torch.Tensor]:
    """What each rank contributes."""
    return [tensor(reference.contribution(rank, count, dtype, seed)) for rank in range(world)]


def expected(contributions: list[torch.Tensor], op: str = "sum") -> torch.Tensor:
    """Their combination in rank order, rounded once: from numpy."""
    return tensor(reference.expected([array(x) for x in contributions], op))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    bits = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.cpu().view(bits), b.cpu().view(bits))


def tensor(x: Any) -> torch.Tensor:
    if x.dtype.itemsize == 2 and x.dtype != np.float16:  # bf16, which torch does not take
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def array(x: torch.Tensor) -> Any:
    if x.dtype == torch.bfloat16:
        bf16 = pyrdnaar.dtypes.DTYPES["bf16"].numpy
        return x.view(torch.int16).numpy().view(bf16)
    return x.numpy()
