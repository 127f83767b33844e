# SPDX-License-Identifier: Apache-2.0
"""The adapters on two GPUs: eager, graphs, torch.compile, streams, process groups."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch_ranks import ON, expected, in_processes, inputs, same_bits

import pyrdnaar
from pyrdnaar.torch import RdnaAllReduce, routed

BACKEND = "hip" if torch.version.hip else "cuda"
ROOT = Path(__file__).resolve().parents[2]

STRICT = dataclasses.replace(ON, strict=True)


@pytest.fixture(scope="module", autouse=True)
def _two_gpus() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 GPUs, torch sees {torch.cuda.device_count()}")
    usable, reason = pyrdnaar.available(BACKEND)
    if not usable:
        pytest.fail(f"run `make {BACKEND}` first: {reason}")


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def _on_gpus(work: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    return in_processes(work, 2, folder, *args, backend="cpu:gloo,cuda:nccl")


# ---- Eager -------------------------------------------------------------------------------------


def _eager() -> None:
    rank = dist.get_rank()
    with RdnaAllReduce(None, _device(), STRICT) as adapter:
        for dtype in ("fp16", "bf16", "fp32"):
            for count in (1, 7, 4096, 100_003, 3_000_000):
                contributions = inputs(2, count, dtype, count)
                x = contributions[rank].cuda()
                for op in ("sum", "max", "min", "avg"):
                    wanted = expected(contributions, op)
                    assert same_bits(adapter.all_reduce(x, op), wanted), (dtype, count, op)
                assert same_bits(x, contributions[rank])
                assert adapter.all_reduce_(x) is x
                assert same_bits(x, expected(contributions))
        contributions = inputs(2, 24, "fp32")
        total = expected(contributions)
        for view in (
            lambda t: t.view(6, 4).t(),
            lambda t: t.view(6, 4)[:, 1:3],
            lambda t: t.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
            lambda t: t[:0],
        ):
            assert torch.equal(
                adapter.all_reduce(view(contributions[rank].cuda())).cpu(), view(total)
            )
        adapter.check()
        assert not adapter.timed_out()


def _fallback() -> None:
    rank = dist.get_rank()
    with RdnaAllReduce(None, _device(), dataclasses.replace(ON, max_bytes=4096)) as adapter:
        for x in (torch.ones(1025), torch.ones(5, dtype=torch.float64)):
            x = x.cuda() * (rank + 1)
            assert not adapter.should_use(x)
            assert torch.equal(adapter.all_reduce(x), torch.full_like(x, 3))


def _over_a_group_of_nccl_alone() -> None:
    group = dist.new_group(backend="nccl")
    for _ in range(2):
        with RdnaAllReduce(group, _device(), STRICT) as adapter:
            assert adapter.all_reduce(torch.ones(5, device="cuda"))[0] == 2


def _eager_and_the_rest() -> None:
    _eager()
    _fallback()
    _over_a_group_of_nccl_alone()


@pytest.mark.parametrize("segments", ["plain", "expandable"])
def test_eager(segments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if segments == "expandable":
        for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
            monkeypatch.setenv(name, "expandable_segments:True")
    _on_gpus(_eager_and_the_rest, tmp_path)


# ---- Graphs ------------------------------------------------------------------------------------


def _graphs() -> None:
    rank = dist.get_rank()
    with RdnaAllReduce(None, _device(), STRICT) as adapter:
        x = torch.empty(5000, dtype=torch.bfloat16, device="cuda")
        big = torch.empty(400_000, device="cuda")
        adapter.all_reduce(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            # An odd number of calls, of several algorithms, the last by the operator.
            y = adapter.all_reduce(x)
            z = adapter.all_reduce(big)
            w = torch.ops.pyrdnaar.all_reduce(y, adapter.name, "max")
        for seed in range(300):
            contributions = inputs(2, 5000, "bf16", seed)
            x.copy_(contributions[rank])
            big.fill_(seed + rank)
            graph.replay()
            if seed % 7 == 0:  # eager calls between
                assert adapter.all_reduce(torch.ones(3, device="cuda"))[0] == 2
            if seed % 20 == 0:
                assert same_bits(y, expected(contributions)), seed
                assert same_bits(w, y), seed
                assert torch.equal(z, torch.full_like(z, 2 * seed + 1)), seed
        adapter.check()
        torch.cuda.synchronize()


def test_graphs(tmp_path: Path) -> None:
    _on_gpus(_graphs, tmp_path)


class _Layer(torch.nn.Module):
    """Half of a tensor-parallel layer, with its all-reduce."""

    def __init__(self, adapter: RdnaAllReduce) -> None:
        super().__init__()
        torch.manual_seed(5)
        whole = torch.randn(16, 8)
        self.weight = torch.nn.Parameter(whole[8 * dist.get_rank() :][:8].clone().cuda())
        self.adapter = adapter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.adapter.all_reduce(x @ self.weight))


def _graphed_callable() -> None:
    rank = dist.get_rank()
    with RdnaAllReduce(None, _device(), STRICT) as adapter:
        eager, layer = _Layer(adapter), _Layer(adapter)
        sample = torch.randn(4, 8, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(layer, (sample,))
        for seed in range(20):
            torch.manual_seed(seed)
            x = torch.randn(2, 4, 8)[rank].cuda()
            a, b = (x.clone().requires_grad_() for _ in range(2))
            layer.zero_grad(), eager.zero_grad()  # the graph writes its gradients anew
            y, wanted = graphed(a), eager(b)
            assert torch.equal(y, wanted)
            y.square().sum().backward()
            wanted.square().sum().backward()
            assert torch.equal(a.grad, b.grad)
            # A product of matrices, for which a captured graph may choose other kernels.
            torch.testing.assert_close(layer.weight.grad, eager.weight.grad)
        torch.cuda.synchronize()
        del graphed


def test_make_graphed_callables(tmp_path: Path) -> None:
    _on_gpus(_graphed_callable, tmp_path)


def _compiled() -> None:
    rank = dist.get_rank()
    with RdnaAllReduce(None, _device(), STRICT) as adapter:

        def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.relu(adapter.all_reduce(x @ w)) + 1

        torch.manual_seed(3)
        xs, w = torch.rand(2, 4, 8), torch.rand(8, 6).cuda()
        wanted = torch.relu((xs[0] + xs[1]).cuda() @ w) + 1
        x = xs[rank].cuda()
        for mode in ("default", "reduce-overhead"):
            compiled = torch.compile(layer, fullgraph=True, mode=mode)
            for _ in range(10):
                torch.testing.assert_close(compiled(x, w).clone(), wanted, rtol=1e-2, atol=1e-2)
        w.requires_grad_()
        torch.compile(layer, fullgraph=True)(x, w).sum().backward()
        torch.testing.assert_close(w.grad, 2 * x.sum(0)[:, None].expand(8, 6), rtol=1e-2, atol=1e-2)
        torch.cuda.synchronize()


def test_compiled(tmp_path: Path) -> None:
    _on_gpus(_compiled, tmp_path)


# ---- Streams -----------------------------------------------------------------------------------


def _streams() -> None:
    """Produced, reduced and freed on one stream; its memory wanted again at once on another."""
    rank = dist.get_rank()
    with RdnaAllReduce(None, _device(), STRICT) as adapter:
        side, other = torch.cuda.Stream(), torch.cuda.Stream()
        sums = []
        for i in range(200):
            with torch.cuda.stream(side):
                x = torch.full((50_000,), float(i + rank), device="cuda")
                y = adapter.all_reduce(x)
                del x
                again = torch.full((50_000,), float("nan"), device="cuda")  # may be x's memory
                sums.append(y.sum())
                del y, again
            with torch.cuda.stream(other):
                torch.full((50_000,), float("nan"), device="cuda")
        torch.cuda.synchronize()
        wanted = [50_000.0 * (2 * i + 1) for i in range(200)]
        assert torch.stack(sums).tolist() == wanted
        # Calls of one communicator on several streams, with torch's own ordering between.
        x = torch.ones(10_000, device="cuda")
        for stream in (side, other, side):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = adapter.all_reduce(x)
            torch.cuda.current_stream().wait_stream(stream)
            assert torch.equal(y, torch.full_like(y, 2))


def test_streams(tmp_path: Path) -> None:
    _on_gpus(_streams, tmp_path)


# ---- Process groups ----------------------------------------------------------------------------


def _train(group: Any) -> list[torch.Tensor]:
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 8)).cuda()
    ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        ddp(torch.rand(4, 64, device="cuda")).square().mean().backward()
        optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]


def _routed() -> list[bytes]:
    group = routed(None, ON)
    x = torch.full((5,), dist.get_rank() + 1.0, device="cuda")
    dist.all_reduce(x, group=group)
    assert torch.equal(x, torch.full_like(x, 3))
    assert not group._adapters["cuda"].disabled
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x = torch.full((500_000,), dist.get_rank() + 1.0, device="cuda")
        work = dist.all_reduce(x, group=group, async_op=True)
    work.wait()
    assert torch.equal(x, torch.full_like(x, 3))
    whole = torch.ones(3, dtype=torch.int64, device="cuda")
    dist.all_reduce(whole, group=group)
    assert whole[0] == 2
    dist.barrier(group=group)
    return [p.numpy().tobytes() for p in _train(group)]


def test_routed_groups_and_data_parallel(tmp_path: Path) -> None:
    first, second = _on_gpus(_routed, tmp_path)
    assert first == second


def _as_the_backend() -> None:
    x = torch.full((5,), dist.get_rank() + 1.0, device="cuda")
    dist.all_reduce(x)
    assert torch.equal(x, torch.full_like(x, 3))
    on_cpu = torch.full((5,), dist.get_rank() + 1.0)
    dist.all_reduce(on_cpu)
    assert torch.equal(on_cpu, torch.full_like(on_cpu, 3))
    parts = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(parts, x)
    assert torch.equal(torch.stack(parts), torch.full((2, 5), 3.0, device="cuda"))


def test_as_the_backend_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDNAAR_ENABLE", "1")
    monkeypatch.setenv("RDNAAR_STRICT", "1")
    in_processes(_as_the_backend, 2, tmp_path, backend="rdnaar")


def test_example() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         str(ROOT / "examples" / "mlp_tp.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "pyrdnaar on cuda" in done.stdout
    assert done.stdout.count("the same bits") == 2
