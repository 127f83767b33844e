# SPDX-License-Identifier: Apache-2.0
"""torch.ops.pyrdnaar.all_reduce: what torch checks of operators, gradients, torch.compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch_ranks import ON, expected, in_processes, inputs, on_threads, same_bits

from pyrdnaar import InvalidArgument, Unsupported
from pyrdnaar.torch import RdnaAllReduce

pytestmark = pytest.mark.usefixtures("lib")


def _op(x: torch.Tensor, adapter: RdnaAllReduce, op: str = "sum") -> torch.Tensor:
    return torch.ops.pyrdnaar.all_reduce(x, adapter.name, op)


def test_it_is_the_adapters_all_reduce() -> None:
    def work(group: Any) -> None:
        with RdnaAllReduce(group, "cpu", ON) as adapter:
            for dtype in ("fp16", "bf16", "fp32"):
                contributions = inputs(2, 1000, dtype)
                y = _op(contributions[group.rank()], adapter)
                assert same_bits(y, expected(contributions))

    on_threads(work)


def test_an_unknown_name() -> None:
    with pytest.raises(InvalidArgument, match="'nobody' is no RdnaAllReduce"):
        torch.ops.pyrdnaar.all_reduce(torch.ones(3), "nobody")


def test_opcheck() -> None:
    def work(group: Any) -> None:
        with RdnaAllReduce(group, "cpu", ON) as adapter:
            op = torch.ops.pyrdnaar.all_reduce.default
            for x in (
                torch.rand(4, 6),
                torch.rand(4, 6).t(),
                torch.rand(4, 6)[:, ::2],
                torch.rand(4, 6, requires_grad=True),
            ):
                torch.library.opcheck(op, (x, adapter.name, "sum"))

    on_threads(work, 1)


def test_gradients() -> None:
    """Each rank's loss weighs its output by other factors: so the sum over ranks shows."""

    def work(group: Any) -> None:
        with RdnaAllReduce(group, "cpu", ON) as adapter:
            for op, scale in (("sum", 1.0), ("avg", 0.5)):
                x = torch.ones(5, requires_grad=True)
                weights = torch.arange(5.0) + 10 * group.rank()
                (adapter.all_reduce(x, op) * weights).sum().backward()
                assert torch.equal(x.grad, (2 * torch.arange(5.0) + 10) * scale)
            x = torch.ones(5, requires_grad=True)
            with pytest.raises(Unsupported, match="op 'max' has no gradient"):
                adapter.all_reduce(x, "max").sum().backward()
            with torch.no_grad():
                assert not adapter.all_reduce(x).requires_grad

    on_threads(work)


def _compiled() -> None:
    rank = dist.get_rank()
    with RdnaAllReduce(None, "cpu", ON) as adapter:

        def by_operator(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.relu(_op(x @ w, adapter)) + 1

        def by_method(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.relu(adapter.all_reduce(x @ w)) + 1

        for function in (by_operator, by_method):
            compiled = torch.compile(function, fullgraph=True, dynamic=True)
            for rows in (2, 3, 5):
                torch.manual_seed(rows)
                xs, w = torch.rand(2, rows, 4), torch.rand(4, 6, requires_grad=True)
                y = compiled(xs[rank], w)
                assert torch.allclose(y, torch.relu(xs[0] @ w + xs[1] @ w) + 1)
                y.sum().backward()
                # The loss of every rank depends on this rank's w: twice the gradient.
                assert torch.allclose(w.grad, 2 * xs[rank].sum(0)[:, None].expand(4, 6))


def test_compiled_whole(tmp_path: Path) -> None:
    in_processes(_compiled, 2, tmp_path)
