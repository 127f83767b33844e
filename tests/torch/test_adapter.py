# SPDX-License-Identifier: Apache-2.0
"""RdnaAllReduce on CPU tensors: results, layouts, who reduces what, and failures."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch_ranks import ON, TORCH, expected, in_processes, inputs, on_threads, same_bits

from pyrdnaar import AbortError, Config, Disabled, InvalidArgument, StateError, Unsupported, wedge
from pyrdnaar.torch import RdnaAllReduce

pytestmark = pytest.mark.usefixtures("lib")


def _adapters(work: Any, world: int = 2, config: Config = ON, **kwargs: Any) -> list[Any]:
    """work(adapter) on every rank."""

    def rank(group: Any) -> Any:
        with RdnaAllReduce(group, "cpu", config, **kwargs) as adapter:
            return work(adapter)

    return on_threads(rank, world)


# ---- Results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("world", [2, 3])
def test_every_op_and_dtype(dtype: str, world: int) -> None:
    def work(adapter: RdnaAllReduce) -> None:
        assert (adapter.disabled, adapter.reason) == (False, "")
        for count in (1, 7, 1000, 70_000):
            contributions = inputs(world, count, dtype, count)
            x = contributions[adapter.group.rank()]
            for op in ("sum", "max", "min", "avg"):
                before = x.clone()
                assert adapter.should_use(x, op)
                y = adapter.all_reduce(x, op)
                wanted = expected(contributions, op)
                assert same_bits(y, wanted), (count, op)
                assert same_bits(x, before)
                assert y.data_ptr() != x.data_ptr()
                assert adapter.all_reduce_(before, op) is before
                assert same_bits(before, wanted)

    _adapters(work, world)


def test_retained_results_are_not_overwritten() -> None:
    def work(adapter: RdnaAllReduce) -> None:
        kept = []
        for seed in range(30):
            contributions = inputs(2, 500, "fp32", seed)
            y = adapter.all_reduce(contributions[adapter.group.rank()])
            kept.append((y, expected(contributions)))
        assert all(same_bits(y, wanted) for y, wanted in kept)

    _adapters(work)


LAYOUTS = {
    "transposed": lambda x: x.view(6, 4).t(),
    "permuted": lambda x: x.view(2, 3, 4).permute(2, 0, 1),
    "channels last": lambda x: x.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
    "slice with gaps": lambda x: x.view(6, 4)[:, 1:3],
    "every second": lambda x: x[::2],
    "expanded": lambda x: x[:4].view(4, 1).expand(4, 3),
    "scalar": lambda x: x[0],
    "empty": lambda x: x[:0],
    "negative view": lambda x: torch.view_as_complex(x.view(12, 2)).conj().imag,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    view = LAYOUTS[layout]

    def work(adapter: RdnaAllReduce) -> None:
        contributions = [view(x) for x in inputs(2, 24, "fp32")]
        x = contributions[adapter.group.rank()]
        assert adapter.should_use(x)
        y = adapter.all_reduce(x)
        # Of two numbers the order of the sum does not matter.
        assert torch.equal(y, contributions[0] + contributions[1])
        assert y.stride() == torch.empty_like(x).stride()
        if layout != "expanded":
            target = view(inputs(2, 24, "fp32")[adapter.group.rank()])
            assert adapter.all_reduce_(target) is target
            assert torch.equal(target, y)

    _adapters(work)


def test_ranks_with_and_without_gaps_meet_in_one_call() -> None:
    """A rank's layout must not choose another all-reduce than its peers' does."""

    def work(adapter: RdnaAllReduce) -> None:
        contributions = inputs(2, 24, "fp32")
        rank = adapter.group.rank()
        x = contributions[rank].view(6, 4)
        if rank == 1:
            wide = torch.full((6, 9), float("nan"))
            wide[:, 3:7] = x
            x = wide[:, 3:7]
        assert torch.equal(adapter.all_reduce(x), expected(contributions).view(6, 4))

    _adapters(work)


def test_one_rank_copies() -> None:
    def work(adapter: RdnaAllReduce) -> None:
        x = torch.arange(5.0)
        y = adapter.all_reduce(x)
        assert torch.equal(x, y)
        assert y.data_ptr() != x.data_ptr()

    _adapters(work, world=1)


@pytest.mark.parametrize("layout", ["dense", "slice with gaps"])
def test_in_place_on_what_a_gradient_needs_is_an_error(layout: str) -> None:
    """As for torch's own operators; otherwise the gradient would silently be that of the sum."""

    def work(adapter: RdnaAllReduce) -> None:
        x = torch.ones(6, 4, requires_grad=True)
        y = x * 2
        z = y.square().sum()  # keeps y
        saved = y.detach()
        adapter.all_reduce_(saved if layout == "dense" else saved[:, 1:3])
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()
        with torch.inference_mode():  # where tensors have no version
            assert adapter.all_reduce_(torch.ones(3)).tolist() == [2, 2, 2]

    _adapters(work)


# ---- Who reduces -------------------------------------------------------------------------------


def _counting(calls: list[str]) -> Any:
    def fallback(x: torch.Tensor, op: str) -> torch.Tensor:
        calls.append(op)
        return -x

    return fallback


def test_what_is_not_eligible_is_the_fallbacks() -> None:
    def rank(group: Any) -> None:
        calls: list[str] = []
        config = dataclasses.replace(ON, max_bytes=4096)
        with RdnaAllReduce(group, "cpu", config, _counting(calls)) as adapter:
            for x in (
                torch.ones(1025),
                torch.ones(4, dtype=torch.float64),
                torch.ones(4, dtype=torch.int32),
                torch.ones(4, dtype=torch.complex64),
                torch.ones(4).to_sparse(),
            ):
                assert not adapter.should_use(x)
                adapter.all_reduce(x)
            assert len(calls) == 5
            assert adapter.should_use(torch.ones(1024))
            adapter.all_reduce(torch.ones(1024))
            assert len(calls) == 5

    on_threads(rank)


def _group_fallback(config: Config) -> None:
    with RdnaAllReduce(None, "cpu", config) as adapter:
        rank = dist.get_rank()
        for x in (torch.arange(2000.0), torch.arange(6, dtype=torch.int64)):
            before = x.clone()
            assert not adapter.should_use(x)
            assert torch.equal(adapter.all_reduce(x * (rank + 1)), x * 3)
            assert torch.equal(adapter.all_reduce(x * (rank + 1), "max"), x * 2)
            assert torch.equal(x, before)
            assert torch.equal(adapter.all_reduce_(x * (rank + 1)), before * 3)
        assert torch.equal(
            adapter.all_reduce(torch.full((2000,), rank + 1.0), "avg"), torch.full((2000,), 1.5)
        )


def test_the_groups_own_all_reduce_is_the_fallback(tmp_path: Path) -> None:
    in_processes(_group_fallback, 2, tmp_path, dataclasses.replace(ON, max_bytes=4096))


def test_off_until_asked_for(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def rank(group: Any) -> tuple[bool, str]:
        calls: list[str] = []
        adapter = RdnaAllReduce(group, "cpu", fallback=_counting(calls))
        adapter.all_reduce(torch.ones(3))
        adapter.check()
        assert not adapter.timed_out()
        assert calls == ["sum"]
        return adapter.disabled, adapter.reason

    for disabled, reason in on_threads(rank):
        assert disabled
        assert "RDNAAR_ENABLE" in reason
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    monkeypatch.setenv("RDNAAR_ENABLE", "1")

    def enabled(group: Any) -> bool:
        with RdnaAllReduce(group, "cpu") as adapter:
            return adapter.disabled

    assert on_threads(enabled) == [False, False]


def test_a_failed_start_is_told_alike_on_all_ranks(caplog: Any) -> None:
    def rank(group: Any) -> str:
        config = ON if group.rank() == 0 else dataclasses.replace(ON, library="/no/such/library.so")
        calls: list[str] = []
        adapter = RdnaAllReduce(group, "cpu", config, _counting(calls))
        assert adapter.disabled
        assert adapter.all_reduce(torch.ones(3))[0] == -1
        adapter.close()
        return adapter.reason

    first, second = on_threads(rank)
    assert first == second
    assert "rank 1" in first
    assert "/no/such/library.so" in first
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [first in r.getMessage() for r in warnings] == [True]  # rank 0 alone


def test_a_bad_variable_is_every_ranks_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDNAAR_ENABLE", "1")
    monkeypatch.setenv("RDNAAR_BLOCKS", "many")
    adapters = on_threads(lambda group: RdnaAllReduce(group, "cpu", fallback=_counting([])))
    assert all("RDNAAR_BLOCKS='many'" in adapter.reason for adapter in adapters)


def test_a_backend_that_does_not_fit_the_tensors() -> None:
    config = dataclasses.replace(ON, backend="hip")
    adapters = on_threads(lambda group: RdnaAllReduce(group, "cpu", config))
    assert all("need 'host'" in adapter.reason for adapter in adapters)


def test_strict_raises_where_it_would_fall_back() -> None:
    strict = dataclasses.replace(ON, strict=True, max_bytes=4096)

    def work(adapter: RdnaAllReduce) -> None:
        with pytest.raises(Unsupported, match=r"count is 1025.*4096.*RDNAAR_STRICT"):
            adapter.all_reduce(torch.ones(1025))
        with pytest.raises(Unsupported, match=r"torch.int32 is not one of .*RDNAAR_STRICT"):
            adapter.all_reduce_(torch.ones(4, dtype=torch.int32))
        assert not adapter.should_use(torch.ones(1025))
        assert adapter.all_reduce(torch.ones(4))[0] == 2

    _adapters(work, config=strict)

    def refused(group: Any) -> None:
        with pytest.raises(Disabled, match="RDNAAR_ENABLE"):
            RdnaAllReduce(group, "cpu", dataclasses.replace(strict, enable=False))

    on_threads(refused)


def test_arguments_that_are_refused() -> None:
    def work(adapter: RdnaAllReduce) -> None:
        with pytest.raises(InvalidArgument, match="op 'prod' is not one of sum, max, min, avg"):
            adapter.all_reduce(torch.ones(3), "prod")
        assert adapter.all_reduce(torch.ones(3))[0] == 2

    _adapters(work)
    with pytest.raises(InvalidArgument, match="device meta"):
        on_threads(lambda group: RdnaAllReduce(group, "meta"), 1)


# ---- Failure -----------------------------------------------------------------------------------


def test_an_abort_is_found_by_check_and_written_down(tmp_path: Path) -> None:
    path = tmp_path / "wedge.json"
    late = threading.Event()
    config = dataclasses.replace(
        ON, timeout_ms=300, warmup_timeout_ms=300, wedge_file=str(path), strict=True
    )

    def work(adapter: RdnaAllReduce) -> None:
        adapter.check()
        assert not adapter.timed_out()
        if adapter.group.rank() == 1:
            late.wait(30)  # the peer has given up: this rank learns it by its next call
        with pytest.raises(AbortError):
            adapter.all_reduce(torch.ones(3))
        late.set()
        assert adapter.timed_out()
        with pytest.raises(AbortError):
            adapter.check()
        with pytest.raises(AbortError):  # no rank goes on with the fallback alone
            adapter.all_reduce(torch.ones(3))

    _adapters(work, config=config)
    data = wedge.read(path)
    assert data is not None
    assert data["record"]["reason"] == "timeout"

    def again(group: Any) -> str:
        return RdnaAllReduce(group, "cpu", dataclasses.replace(config, strict=False)).reason

    assert all("timeout on rank 0, peer 1" in reason for reason in on_threads(again))


def test_the_marker_is_in_the_cache_folder_by_default(cache: Path) -> None:
    path = cache / "pyrdnaar" / "wedge.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"summary": "planted"}')
    try:
        adapters = on_threads(lambda group: RdnaAllReduce(group, "cpu", ON))
        assert all("planted" in adapter.reason for adapter in adapters)
    finally:
        path.unlink()


def test_a_closed_adapter() -> None:
    def work(adapter: RdnaAllReduce) -> None:
        adapter.close()
        adapter.close()
        assert adapter.disabled
        assert not adapter.timed_out()
        assert not adapter.should_use(torch.ones(3))
        with pytest.raises(StateError, match="closed"):
            adapter.all_reduce(torch.ones(3))
        adapter.check()

    _adapters(work)


def test_nothing_else_imports_torch() -> None:
    script = "import sys, pyrdnaar, pyrdnaar.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
