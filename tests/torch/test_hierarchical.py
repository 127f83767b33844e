# SPDX-License-Identifier: Apache-2.0
"""HierarchicalAllReduce over "machines": network namespaces of one host, linked by a cable."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from machine_rank import BOUND
from torch_ranks import ON, in_processes

from pyrdnaar import Disabled, InvalidArgument
from pyrdnaar.torch import HierarchicalAllReduce, RdnaAllReduce

pytestmark = pytest.mark.usefixtures("lib")

RANK = Path(__file__).with_name("machine_rank.py")
Run = Callable[..., subprocess.Popen[str]]


class Network:
    """Two machines and the cable between them."""

    def __init__(self) -> None:
        tag = uuid.uuid4().hex[:6]
        self.names = [f"rdnaar-{tag}-{m}" for m in range(2)]
        self.links = [f"rd{tag}{m}" for m in range(2)]

    def up(self) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        _ip("link", "add", self.links[0], "type", "veth", "peer", "name", self.links[1])
        for m, (name, link) in enumerate(zip(self.names, self.links, strict=True)):
            _ip("link", "set", link, "netns", name)
            _ip("-n", name, "addr", "add", f"10.77.0.{m + 1}/24", "dev", link)
            _ip("-n", name, "link", "set", link, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def cut(self) -> None:
        _ip("-n", self.names[0], "link", "set", self.links[0], "down")

    def down(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, timeout=20)


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    try:
        if shutil.which("ip") is None:
            raise OSError("there is no `ip` (package iproute2)")
        network.up()
    except (OSError, subprocess.CalledProcessError) as error:
        network.down()
        detail = getattr(error, "stderr", b"") or str(error)
        refuse = pytest.fail if "CI" in os.environ else pytest.skip
        refuse(f"network namespaces need root and iproute2: {detail!r}")
    yield network
    network.down()


class Rank:
    """A running rank, whose lines are collected as they come."""

    def __init__(self, network: Network, machine: int, environ: dict[str, str]) -> None:
        self.facts: dict[str, Any] = {}
        self.looping = threading.Event()
        self.errors = ""
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", network.names[machine], sys.executable, str(RANK)],
            env={**os.environ, **environ, "GLOO_SOCKET_IFNAME": network.links[machine]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.readers = [threading.Thread(target=read) for read in (self._read, self._read_errors)]
        for reader in self.readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.facts.update(json.loads(line))
            if "looping" in self.facts:
                self.looping.set()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def end(self, timeout: float) -> int:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        for reader in self.readers:
            reader.join(10)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return code


@pytest.mark.parametrize("per_machine", [2, 3])
def test_two_machines_and_a_cut_cable(network: Network, per_machine: int) -> None:
    environ = {
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": "29511",
        "MACHINES": "2",
        "PER_MACHINE": str(per_machine),
        "WORLD_SIZE": str(2 * per_machine),
    }
    ranks = [
        Rank(network, rank // per_machine, {**environ, "RANK": str(rank)})
        for rank in range(2 * per_machine)
    ]
    try:
        for rank in ranks:
            assert rank.looping.wait(180), (rank.facts, rank.end(0), rank.errors[-3000:])
        network.cut()
        codes = [rank.end(120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.end(0)
    assert codes == [0] * len(ranks), [rank.errors[-2000:] for rank in ranks]
    for rank in ranks:
        assert (rank.facts["disabled"], rank.facts["wrong"]) == (False, 0)
        # Each rank's own network failed, or a rank of its machine told it so.
        assert "between machines" in rank.facts["error"] or "AbortError" in rank.facts["error"]
        assert rank.facts["seconds"] < 3 * BOUND.total_seconds()


# ---- What needs no network: machines are groups of one host's processes -------------------------


def _groups(across: tuple[list[int], list[int]]) -> tuple[Any, Any]:
    """The group inside, of ranks 0, 1 and 2, 3, and the one of `across` with this rank."""
    rank = dist.get_rank()
    inside = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    between = [dist.new_group(ranks) for ranks in across]
    return inside, between[rank in across[1]]


def _averages_and_refusals() -> None:
    inside, between = _groups(([0, 2], [1, 3]))
    reduce = HierarchicalAllReduce(RdnaAllReduce(inside, "cpu", ON), between)
    assert reduce.world_size == 4
    y = reduce.all_reduce(torch.full((7,), float(dist.get_rank())), "avg")
    assert torch.equal(y, torch.full((7,), 1.5))
    assert reduce.all_reduce(torch.empty(0)).shape == (0,)
    reduce.check()
    with pytest.raises(InvalidArgument, match=r"'sum' of torch.int32 on cpu"):
        reduce.all_reduce(torch.ones(3, dtype=torch.int32))
    with pytest.raises(InvalidArgument, match="op 'prod'"):
        reduce.all_reduce(torch.ones(3), "prod")


def _one_machine_disabled() -> str:
    inside, between = _groups(([0, 2], [1, 3]))
    config = ON if dist.get_rank() < 2 else dataclasses.replace(ON, enable=False)
    reduce = HierarchicalAllReduce(RdnaAllReduce(inside, "cpu", config), between)
    assert reduce.disabled
    with pytest.raises(Disabled, match=r"machine 1: .*RDNAAR_ENABLE"):
        reduce.all_reduce(torch.ones(3))
    return reduce.reason


def _crossed() -> str:
    inside, between = _groups(([0, 3], [1, 2]))
    return HierarchicalAllReduce(RdnaAllReduce(inside, "cpu", ON), between).reason


def _one_after_the_other() -> tuple[str, str]:
    _averages_and_refusals()
    return _one_machine_disabled(), _crossed()


def test_averages_refusals_and_verdicts(tmp_path: Path) -> None:
    """A machine that is disabled, or groups that do not fit, are every rank's reason."""
    verdicts = in_processes(_one_after_the_other, 4, tmp_path)
    assert len({disabled for disabled, _ in verdicts}) == 1
    assert all("is grouped with rank" in crossed for _, crossed in verdicts)
