# SPDX-License-Identifier: Apache-2.0
"""The vLLM plugin and the forks' slot, on stand-ins of vLLM's interfaces.

A stand-in has what the plugin relies on; docs/serving.md says in which versions that was read.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch_ranks import BOUND, expected, inputs, on_threads, same_bits

from pyrdnaar import AbortError, wedge
from pyrdnaar.records import AbortRecord
from pyrdnaar.vllm import plugin, register
from pyrdnaar.vllm.slot import RdnaCustomAllreduce, RdnaOneShotAllReduce, abort_code, rdna_ar_check

pytestmark = pytest.mark.usefixtures("lib")

CUDA_COMMUNICATOR = "vllm.distributed.device_communicators.cuda_communicator"


class PyNccl:
    """Sums out of place, by gloo, and counts."""

    def __init__(self, group: Any) -> None:
        self.group, self.calls = group, 0

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        out = input_.clone()
        self.group.allreduce([out]).wait(BOUND)
        return out


class CudaCommunicator:
    """Of vllm/distributed/device_communicators/cuda_communicator.py."""

    def __init__(
        self, cpu_group: Any, device: Any = None, device_group: Any = None, unique_name: str = ""
    ) -> None:
        self.cpu_group, self.device, self.unique_name = cpu_group, device, unique_name
        self.world_size = cpu_group.size()
        self.pynccl_comm: PyNccl | None = PyNccl(cpu_group)

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        assert self.pynccl_comm is not None
        return self.pynccl_comm.all_reduce(input_)

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        parts = [torch.empty_like(input_) for _ in range(self.world_size)]
        self.cpu_group.allgather([parts], [input_]).wait(BOUND)
        return torch.cat(parts, dim)

    def gather(self, input_: torch.Tensor, dst: int = 0, dim: int = -1) -> torch.Tensor:
        return self.all_gather(input_, dim)

    def destroy(self) -> None:
        self.pynccl_comm = None


class ForkCommunicator(CudaCommunicator):
    """A fork's: its own all-reduce is in the slot."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.closed = False
        self.rdna_ar_comm: Any = SimpleNamespace(close=lambda: setattr(self, "closed", True))


class Platform:
    """Of vllm/platforms/interface.py."""

    answer = f"{CUDA_COMMUNICATOR}.CudaCommunicator"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return cls.answer


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A process in which vLLM has chosen its platform."""
    modules = {
        "vllm": {},
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.distributed": {},
        "vllm.distributed.device_communicators": {},
        CUDA_COMMUNICATOR: {"CudaCommunicator": CudaCommunicator, "Fork": ForkCommunicator},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return sys.modules["vllm.platforms"].current_platform


def _resolve(qualname: str) -> Any:
    """Of vllm.utils: how vLLM finds the class that its platform names."""
    module, _, name = qualname.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _communicator(platform: Platform, group: Any, unique_name: str = "tp:0") -> Any:
    """As vllm/distributed/parallel_state.py does for each group."""
    cls = _resolve(platform.get_device_communicator_cls())
    return cls(
        cpu_group=group, device=torch.device("cpu"), device_group=group, unique_name=unique_name
    )


# ---- The plugin --------------------------------------------------------------------------------


def test_the_entry_point_is_the_plugin() -> None:
    points = importlib.metadata.entry_points(group="vllm.general_plugins")
    assert [point.load() for point in points if point.name == "pyrdnaar"] == [register]


@pytest.mark.parametrize("value", [None, "0"])
def test_off_until_asked_for(
    value: str | None, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("RDNAAR_ENABLE", value)
    register()
    assert platform.get_device_communicator_cls() == Platform.answer


def test_without_vllm_and_off_it_does_nothing() -> None:
    register()
    assert "vllm" not in sys.modules


@pytest.fixture
def enabled(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("RDNAAR_ENABLE", "1")
    monkeypatch.setenv("RDNAAR_MAX_KB", "4")
    monkeypatch.setenv("RDNAAR_PROVE", "never")
    register()
    register()  # vLLM loads plugins in every process, and may do so twice
    return platform


def test_eligible_tensors_come_here_before_pynccl(enabled: Platform) -> None:
    assert enabled.get_device_communicator_cls() == f"{plugin.__name__}.RdnaCudaCommunicator"

    def rank(group: Any) -> None:
        communicator = _communicator(enabled, group)
        assert isinstance(communicator, CudaCommunicator)
        for dtype in ("fp16", "bf16", "fp32"):
            contributions = inputs(2, 512, dtype)
            y = communicator.all_reduce(contributions[group.rank()])
            assert same_bits(y, expected(contributions))
        nccl = communicator.pynccl_comm
        assert nccl.calls == 0
        for x in (torch.ones(1025), torch.ones(3, dtype=torch.int32)):
            assert torch.equal(communicator.all_reduce(x), 2 * x)
        assert nccl.calls == 2
        assert communicator.all_gather(torch.ones(2)).shape == (4,)
        assert communicator.gather(torch.ones(2), dst=0).shape == (4,)
        comm = communicator.rdna_ar_comm
        communicator.destroy()
        assert comm.closed
        assert communicator.rdna_ar_comm is None
        assert communicator.pynccl_comm is None

    on_threads(rank)


@pytest.mark.parametrize("unique_name", ["dp:0", "ep:0", "pp:0", "dcp:0", ""])
def test_other_groups_are_left_alone(unique_name: str, enabled: Platform) -> None:
    def rank(group: Any) -> None:
        communicator = _communicator(enabled, group, unique_name)
        assert communicator.rdna_ar_comm is None
        assert torch.equal(communicator.all_reduce(torch.ones(3)), torch.full((3,), 2.0))
        assert communicator.pynccl_comm.calls == 1
        communicator.destroy()

    on_threads(rank)


def test_a_failed_start_leaves_pynccl(
    enabled: Platform, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("RDNAAR_BACKEND", "hip")

    def rank(group: Any) -> None:
        communicator = _communicator(enabled, group)
        assert communicator.rdna_ar_comm.disabled
        assert torch.equal(communicator.all_reduce(torch.ones(3)), torch.full((3,), 2.0))
        assert communicator.pynccl_comm.calls == 1

    on_threads(rank)
    assert "RDNAAR_BACKEND" in caplog.text


def test_it_takes_the_slot_of_a_fork(enabled: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Platform, "answer", f"{CUDA_COMMUNICATOR}.Fork")

    def rank(group: Any) -> None:
        communicator = _communicator(enabled, group)
        assert communicator.closed  # the fork's own has been released
        assert isinstance(communicator.rdna_ar_comm, RdnaOneShotAllReduce)
        assert communicator.all_reduce(torch.ones(3))[0] == 2
        communicator.destroy()

    on_threads(rank)


def _after_a_timeout(group: Any, work: Any, make: Any) -> None:
    """work(communicator) on a rank whose peer does not make the next call."""
    communicator = make(group)
    communicator.all_reduce(torch.ones(3))
    if group.rank() == 0:
        with pytest.raises(AbortError):
            communicator.all_reduce(torch.ones(3))
        work(communicator)
    group.barrier().wait(BOUND)
    getattr(communicator, "rdna_ar_comm", communicator).close()


def test_a_step_after_an_abort_fails_and_leaves_the_marker(
    enabled: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    path = tmp_path / "wedge.json"
    monkeypatch.setenv("RDNAAR_TIMEOUT_MS", "300")
    monkeypatch.setenv("RDNAAR_PROVE", "never")  # the proof would have no more time
    monkeypatch.setenv("RDNAAR_WEDGE_FILE", str(path))

    def step(communicator: Any) -> None:
        wedge.clear(path)
        for collect in (communicator.all_gather, communicator.gather):
            with pytest.raises(AbortError, match="timeout on rank 0, peer 1"):
                collect(torch.ones(2))  # the logits
            data = wedge.read(path)
            assert data is not None
            assert data["record"]["peer"] == 1
            wedge.clear(path)
        parallel_state = ModuleType("vllm.distributed.parallel_state")
        parallel_state.get_tp_group = lambda: SimpleNamespace(device_communicator=communicator)  # type: ignore[attr-defined]
        monkeypatch.setattr(
            sys.modules["vllm.distributed"], "parallel_state", parallel_state, raising=False
        )
        with pytest.raises(AbortError):
            rdna_ar_check()
        assert path.exists()

    on_threads(lambda group: _after_a_timeout(group, step, lambda g: _communicator(enabled, g)))


def test_check_without_a_tensor_parallel_group(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise AssertionError("tensor model parallel group is not initialized")

    parallel_state = SimpleNamespace(get_tp_group=none)
    monkeypatch.setattr(
        sys.modules["vllm.distributed"], "parallel_state", parallel_state, raising=False
    )
    rdna_ar_check()
    group = SimpleNamespace(device_communicator=SimpleNamespace())
    monkeypatch.setattr(parallel_state, "get_tp_group", lambda: group)
    rdna_ar_check()


# ---- The slot ----------------------------------------------------------------------------------


def test_both_interfaces_of_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forks' variables, and their names for the same things."""
    monkeypatch.setenv("VLLM_RDNA_AR", "1")
    monkeypatch.setenv("VLLM_RDNA_AR_MAX_KB", "4")
    monkeypatch.setenv("VLLM_RDNA_AR_ALGO", "2stage")
    monkeypatch.setenv("VLLM_RDNA_AR_WAIT_MS", "5000")

    def rank(group: Any) -> None:
        comm = RdnaOneShotAllReduce(group, torch.device("cpu"))
        assert (comm.disabled, comm.rank, comm.world_size) == (False, group.rank(), 2)
        assert comm._comm is not None
        settings = comm._comm.config
        assert (settings.max_bytes, settings.algo) == (4096, "twoshot")
        assert settings.timeout_ms == 5000
        x = torch.full((1024,), group.rank() + 1.0)
        assert comm.should_use(x)
        assert comm.should_custom_ar(x)
        for y in (comm.all_reduce(x), comm.custom_all_reduce(x)):
            assert y is not None
            assert torch.equal(y, torch.full((1024,), 3.0))
        large = torch.ones(1025)
        assert not comm.should_use(large)
        assert not comm.should_custom_ar(large)
        assert comm.custom_all_reduce(large) is None
        assert not comm.timed_out()
        assert comm.timeout_info() == 0
        comm.check()
        comm.close()
        assert comm.timeout_info() == 0

    on_threads(rank)


@pytest.mark.parametrize("variable", [None, "0"])
def test_enabled_by_argument_unless_a_variable_says_no(
    variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("VLLM_RDNA_AR", variable)

    def rank(group: Any) -> bool:
        comm = RdnaCustomAllreduce(group, torch.device("cpu"), enabled=True)
        comm.close()
        return comm.reason == "closed"

    assert on_threads(rank) == [variable is None] * 2


def test_timeout_info_of_a_real_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_RDNA_AR", "1")
    monkeypatch.setenv("VLLM_RDNA_AR_WAIT_MS", "400")
    monkeypatch.setenv("VLLM_RDNA_AR_ALGO", "oneshot")
    monkeypatch.setenv("RDNAAR_PROVE", "never")

    def look(comm: RdnaOneShotAllReduce) -> None:
        code = comm.timeout_info()
        assert code & 0xFF == 1
        assert code >> 8 & 0xF == 2  # a peer's flag
        assert code >> 12 & 0xF == 1
        assert 400 <= (code >> 16 & 0xFFFF) * 16 + 16 < 20_000
        record = comm.abort_record()
        assert record is not None
        assert code >> 32 == record.epoch
        assert comm.timed_out()
        assert not comm.disabled  # no rank goes on with another all-reduce than its peers
        with pytest.raises(AbortError):
            comm.check()

    on_threads(
        lambda group: _after_a_timeout(group, look, lambda g: RdnaOneShotAllReduce(g, "cpu"))
    )


RECORD = AbortRecord("timeout", "gather_flag", 3, 0, 9, "twoshot", 9, 120_000, 0, 0)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 1 | 4 << 8 | 3 << 12 | 7500 << 16 | 9 << 32),
        ({"phase": "own_blocks"}, 1 | 1 << 8 | 3 << 12 | 7500 << 16 | 9 << 32),
        ({"phase": "ll_word"}, 1 | 5 << 8 | 3 << 12 | 7500 << 16 | 9 << 32),
        ({"phase": "none", "peer": -1}, 1 | 15 << 12 | 7500 << 16 | 9 << 32),
        ({"waited_ms": 86_400_000}, 1 | 4 << 8 | 3 << 12 | 0xFFFF << 16 | 9 << 32),
        ({"epoch": 2**40 + 5}, 1 | 4 << 8 | 3 << 12 | 7500 << 16 | 5 << 32),
    ],
)
def test_abort_code(changes: dict[str, Any], code: int) -> None:
    assert abort_code(dataclasses.replace(RECORD, **changes)) == code


def test_a_late_peer_is_reported_once(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setenv("RDNAAR_ENABLE", "1")
    monkeypatch.setenv("RDNAAR_LATE_MS", "50")
    monkeypatch.setenv("RDNAAR_PROVE", "never")

    def rank(group: Any) -> None:
        with RdnaOneShotAllReduce(group, "cpu") as comm:
            comm.all_reduce(torch.ones(3))
            group.barrier().wait(BOUND)
            if group.rank() == 1:
                time.sleep(0.5)
            comm.all_reduce(torch.ones(3))
            for _ in range(3):
                comm.check()

    on_threads(rank)
    late = [r for r in caplog.records if "for rank 1 in call" in r.getMessage()]
    assert [r.levelno for r in late] == [logging.WARNING]
