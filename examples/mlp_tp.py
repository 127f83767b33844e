# SPDX-License-Identifier: Apache-2.0
"""Train a tensor-parallel MLP of two layers, with torch's own all-reduce and with this one.

    torchrun --nproc-per-node 4 examples/mlp_tp.py

The first layer is cut by columns, the second by rows: each rank holds a share of the hidden units,
and the sum of the ranks' outputs is the output of the whole. Every rank computes the same loss, so
ranks can only stay together if each gets the same bits. On a machine with a GPU for each rank it
runs there, otherwise on CPUs.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

import pyrdnaar
from pyrdnaar.torch import RdnaAllReduce

IN, HIDDEN, OUT, BATCH, STEPS = 64, 512, 8, 128, 30

Reduce = Callable[[torch.Tensor], torch.Tensor]


class SumOverRanks(torch.autograd.Function):
    """torch's own all-reduce, with the gradient that torch.ops.pyrdnaar.all_reduce has built in."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    backward = forward  # the sum's gradient is the sum


class ParallelMlp(torch.nn.Module):
    def __init__(self, rank: int, world: int, reduce: Reduce) -> None:
        super().__init__()
        torch.manual_seed(0)  # all ranks make the whole and keep their share
        share = slice(rank * HIDDEN // world, (rank + 1) * HIDDEN // world)
        self.first = torch.nn.Parameter(torch.randn(IN, HIDDEN)[:, share] / IN**0.5)
        self.second = torch.nn.Parameter(torch.randn(HIDDEN, OUT)[share] / HIDDEN**0.5)
        self.reduce = reduce

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.reduce(torch.relu(x @ self.first) @ self.second)


def train(reduce: Reduce, device: torch.device) -> torch.Tensor:
    """The loss of every step."""
    world = dist.get_world_size()
    model = ParallelMlp(dist.get_rank(), world, reduce).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(1)
    x = torch.randn(BATCH, IN).to(device)
    wanted = torch.sin(x[:, :OUT])
    losses = []
    for _ in range(STEPS):
        loss = (model(x) - wanted).square().mean()
        optimizer.zero_grad()
        # Each of `world` equal losses sends its gradient to all ranks.
        (loss / world).backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


def alike(losses: torch.Tensor) -> bool:
    """Whether all ranks have the same bits. Every rank gets the same answer."""
    everybodys: list[bytes | None] = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, losses.numpy().tobytes())
    return len(set(everybodys)) == 1


def main() -> int:
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    on_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", local) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo")
    # strict: an error, where it would fall back to torch's own.
    config = dataclasses.replace(pyrdnaar.Config.from_env(), strict=True)
    ok = True
    with RdnaAllReduce(None, device, config) as adapter:
        for name, reduce in (
            ("nccl" if on_gpus else "gloo", SumOverRanks.apply),
            ("pyrdnaar", adapter.all_reduce),
        ):
            losses = train(reduce, device)
            same = alike(losses)
            ok = ok and same and bool(losses[-1] < losses[0] / 2)
            if rank == 0:
                print(
                    f"{name:>8} on {device.type}: loss {losses[0]:.6f} -> {losses[-1]:.6f} in "
                    f"{STEPS} steps, {'the same bits' if same else 'DIFFERENT'} on "
                    f"{dist.get_world_size()} ranks"
                )
    dist.destroy_process_group()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
