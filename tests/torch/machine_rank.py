# SPDX-License-Identifier: Apache-2.0
"""One rank of a group over several machines: a program that test_hierarchical.py starts, each
machine in a network of its own. It prints what it saw as JSON lines."""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

import pyrdnaar
from pyrdnaar import RdnaarError
from pyrdnaar.torch import HierarchicalAllReduce, RdnaAllReduce

# Of a cut cable; and of the start, when ranks that share a few cores load torch at their own pace.
BOUND = datetime.timedelta(seconds=8)
START = datetime.timedelta(seconds=120)
CONFIG = pyrdnaar.Config(
    timeout_ms=20_000, warmup_timeout_ms=30_000, prove="never", max_bytes=64 * 1024
)
# Elements: below, at and above the pieces of 64 KiB, and what does not divide by 2 or 3 ranks.
COUNTS = (1, 2, 5, 6, 1000, 16_384, 16_386, 70_001)


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def groups(machines: int, per_machine: int) -> tuple[Any, Any]:
    """The ranks of this machine, and those in this rank's place on each machine."""
    rank = dist.get_rank()
    inside = [
        dist.new_group([m * per_machine + i for i in range(per_machine)], timeout=START)
        for m in range(machines)
    ]
    between = [
        dist.new_group([m * per_machine + i for m in range(machines)], timeout=BOUND)
        for i in range(per_machine)
    ]
    return inside[rank // per_machine], between[rank % per_machine]


def integers(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Sums of these are exact in every dtype and order."""
    return ((torch.arange(count) * (rank + 1)) % 17).to(dtype)


def check_sums(reduce: HierarchicalAllReduce, world: int) -> int:
    wrong = 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for count in COUNTS:
            whole = [integers(rank, count, dtype) for rank in range(world)]
            for op, wanted in (
                ("sum", sum(whole)),
                ("max", torch.stack(whole).amax(0)),
                ("min", torch.stack(whole).amin(0)),
            ):
                y = reduce.all_reduce(whole[dist.get_rank()], op)
                wrong += int((y != wanted).sum())
        whole = [integers(rank, 60, dtype).view(5, 12).t()[::2] for rank in range(world)]
        y = reduce.all_reduce(whole[dist.get_rank()])
        wrong += int((y != sum(whole)).sum())
    return wrong


def main() -> None:
    machines, per_machine = int(os.environ["MACHINES"]), int(os.environ["PER_MACHINE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=START)
    inside, between = groups(machines, per_machine)
    intra = RdnaAllReduce(inside, "cpu", CONFIG)
    reduce = HierarchicalAllReduce(intra, between)
    say(disabled=reduce.disabled, reason=reduce.reason)
    say(wrong=check_sums(reduce, machines * per_machine))
    say(looping=True)
    error, last = "", time.monotonic()
    x = torch.ones(5000)
    while time.monotonic() < last + 60 and not error:
        last = time.monotonic()
        try:
            reduce.all_reduce(x)
        except RdnaarError as failure:
            error = f"{type(failure).__name__}: {failure}"
    say(error=error, seconds=time.monotonic() - last)
    # The network is gone, and with it what a regular end would talk over.
    os._exit(0)


if __name__ == "__main__":
    main()
