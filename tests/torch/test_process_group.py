# SPDX-License-Identifier: Apache-2.0
"""Process groups whose all_reduce is routed: by whom a call is done, results, all other calls."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch_ranks import ON, expected, in_processes, inputs, same_bits

import pyrdnaar
from pyrdnaar import Config, Unsupported
from pyrdnaar.torch import RdnaAllReduce, routed

pytestmark = pytest.mark.usefixtures("lib")


class _Counted:
    """Counts what adapters reduce: only so can a result tell by whom it was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        original = RdnaAllReduce.all_reduce_

        def counted(adapter: RdnaAllReduce, x: torch.Tensor, op: str = "sum") -> torch.Tensor:
            self.calls += 1
            return original(adapter, x, op)

        monkeypatch.setattr(RdnaAllReduce, "all_reduce_", counted)


def _per_message(world: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        counted = _Counted(monkeypatch)
        group = routed(None, dataclasses.replace(ON, max_bytes=4096))
        rank = dist.get_rank()
        assert (dist.get_rank(group), dist.get_world_size(group)) == (rank, world)
        assert dist.get_backend(group) == "rdnaar"
        for dtype in ("fp16", "bf16", "fp32"):
            for op in ("sum", "max", "min", "avg"):
                contributions = inputs(world, 500, dtype)
                x = contributions[rank].clone()
                work = dist.all_reduce(x, getattr(dist.ReduceOp, op.upper()), group, async_op=True)
                assert work.wait()
                assert work.is_completed()
                assert same_bits(x, expected(contributions, op))
        assert counted.calls == 12
        for x in (
            torch.ones(1025),
            torch.ones(3, dtype=torch.int64),
            torch.ones(3, dtype=torch.float64),
        ):
            dist.all_reduce(x, group=group)
            assert torch.equal(x, torch.full_like(x, world))
        x = torch.full((3,), 2.0)
        dist.all_reduce(x, dist.ReduceOp.PRODUCT, group)
        assert torch.equal(x, torch.full((3,), 2.0**world))
        assert counted.calls == 12
        group.check()
        dist.destroy_process_group(group)


def test_each_message_goes_where_it_belongs(tmp_path: Path) -> None:
    in_processes(_per_message, 3, tmp_path, 3)


def _all_collectives(group: Any) -> None:
    """Every other call of torch.distributed works as on the group behind."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    mine, ranks = torch.full((2,), float(rank)), torch.arange(float(world))
    dist.barrier(group=group)
    x = mine.clone()
    dist.broadcast(x, 1, group)
    assert x[0] == 1
    outs = [torch.empty(2) for _ in range(world)]
    dist.all_gather(outs, mine, group)
    assert torch.equal(torch.stack(outs)[:, 0], ranks)
    flat = torch.empty(2 * world)
    dist.all_gather_into_tensor(flat, mine, group)
    assert torch.equal(flat[::2], ranks)
    x = mine.clone()
    dist.reduce(x, 0, group=group)
    assert rank or x[0] == ranks.sum()
    out = torch.empty(1)
    dist.reduce_scatter_tensor(out, torch.arange(float(world)), group=group)
    assert out[0] == rank * world
    dist.reduce_scatter(out, [torch.full((1,), float(r)) for r in range(world)], group=group)
    assert out[0] == rank * world
    gathered = [torch.empty(2) for _ in range(world)] if rank == 0 else None
    dist.gather(mine, gathered, 0, group)
    assert gathered is None or gathered[1][0] == 1
    parts = [torch.full((1,), 10.0 + r) for r in range(world)] if rank == 0 else None
    dist.scatter(out, parts, 0, group)
    assert out[0] == 10 + rank
    swapped = torch.empty(world)
    dist.all_to_all_single(swapped, torch.full((world,), float(rank)), group=group)
    assert torch.equal(swapped, ranks)
    if rank == 0:
        dist.send(torch.tensor([7.0]), 1, group)
    elif rank == 1:
        dist.recv(out, 0, group)
        assert out[0] == 7
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, {"rank": rank}, group)
    assert [o["rank"] for o in objects] == list(range(world))


def _in_front_of_gloo() -> None:
    _all_collectives(routed(None, ON))


def test_all_other_collectives_of_a_routed_group(tmp_path: Path) -> None:
    in_processes(_in_front_of_gloo, 2, tmp_path)


def _as_the_backend() -> None:
    assert dist.get_backend() == "rdnaar"
    x = torch.full((4,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((4,), 3.0))
    _all_collectives(dist.group.WORLD)
    # A group of the same backend by torch's own way.
    group = dist.new_group([0, 1])
    assert dist.get_backend(group) == "rdnaar"
    x = torch.full((4,), dist.get_rank() + 1.0)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, torch.full((4,), 3.0))


@pytest.mark.parametrize("enable", ["0", "1"])
def test_as_the_backend_of_a_program(
    enable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDNAAR_ENABLE", enable)
    monkeypatch.setenv("RDNAAR_STRICT", enable)
    in_processes(
        _as_the_backend_of_floats if enable == "1" else _as_the_backend,
        2,
        tmp_path,
        backend="rdnaar",
    )


def _as_the_backend_of_floats() -> None:
    """With RDNAAR_STRICT=1: so what is reduced is reduced here."""
    x = torch.full((4,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((4,), 3.0))
    with pytest.raises(Unsupported, match="RDNAAR_STRICT"):
        dist.all_reduce(torch.ones(3, dtype=torch.int64))
    _all_collectives(dist.group.WORLD)


def _subgroups() -> None:
    rank = dist.get_rank()
    halves = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    crossed = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    mine = routed(halves[rank // 2], ON)
    across = routed(crossed[rank % 2], ON)
    for i in range(20):
        x, y = torch.tensor([float(rank + i)]), torch.tensor([float(rank * i)])
        dist.all_reduce(x, group=mine)
        dist.all_reduce(y, group=across)
        first, other = rank // 2 * 2, rank % 2
        assert x[0] == 2 * first + 1 + 2 * i
        assert y[0] == (2 * other + 2) * i


def test_overlapping_subgroups(tmp_path: Path) -> None:
    in_processes(_subgroups, 4, tmp_path)


def _train(group: Any, steps: int) -> list[torch.Tensor]:
    rank = dist.get_rank()
    torch.manual_seed(rank)  # DistributedDataParallel makes them alike: a broadcast
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.rand(4, 8)).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def _data_parallel() -> bool:
    with pytest.MonkeyPatch.context() as monkeypatch:
        counted = _Counted(monkeypatch)
        here = _train(routed(None, ON), 5)
        assert counted.calls >= 5
    gloo = _train(None, 5)
    # Of two ranks a sum has one order: the same bits.
    return all(same_bits(a, b) for a, b in zip(here, gloo, strict=True))


def test_distributed_data_parallel(tmp_path: Path) -> None:
    assert in_processes(_data_parallel, 2, tmp_path) == [True, True]


def _functional() -> None:
    import torch.distributed._functional_collectives as functional

    group = routed(None, ON)
    rank = dist.get_rank()

    def double_sum(x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(2 * x, "sum", group) + 1

    x = torch.arange(6.0) * (rank + 1)
    with pytest.MonkeyPatch.context() as monkeypatch:
        counted = _Counted(monkeypatch)
        for function in (double_sum, torch.compile(double_sum, fullgraph=True)):
            assert torch.equal(function(x), 6 * torch.arange(6.0) + 1)
        assert counted.calls == 2


def test_functional_collectives_and_compile(tmp_path: Path) -> None:
    in_processes(_functional, 2, tmp_path)


def test_options_default_to_the_environment() -> None:
    assert pyrdnaar.torch.Options() == pyrdnaar.torch.Options(None, None)
    assert Config.from_env({}, enable_default=False).enable is False
