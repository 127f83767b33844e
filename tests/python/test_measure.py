# SPDX-License-Identifier: Apache-2.0
"""Measuring: on the library's streams and graphs, and of providers that do not do their work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pyrdnaar
from pyrdnaar.bench.grounds import HostArrays, LibraryDevice
from pyrdnaar.bench.measure import Effort, measure
from pyrdnaar.bench.providers import OnDevice, Prepared, Provider, Shape

EFFORT = Effort(warmup=2, iterations=3, calls=5)
SHAPE = Shape(300, "fp32", "sum")
CONFIG = pyrdnaar.Config(prove="never")


class _Lazy(Prepared):
    """Does its work for the first `works` calls only."""

    works = 0

    def call(self, x: Any, out: Any, shape: Shape) -> Callable[[], object]:
        call, left = super().call(x, out, shape), self.works

        def lazy() -> None:
            nonlocal left
            if left > 0:
                call()
            left -= 1

        return lazy


class _Tired(_Lazy):
    works = 10  # the first check, the warm-up, three runs to choose their number, four of samples


def _on_the_host(exchange: pyrdnaar.Exchange, kinds: list[type[Prepared]]) -> list[dict[str, Any]]:
    with pyrdnaar.Communicator(
        exchange.rank, exchange.world_size, exchange, "host", config=CONFIG
    ) as comm:
        providers: list[Provider] = [kind(comm, "auto") for kind in kinds]
        return measure(exchange, HostArrays(), Prepared(comm, "auto"), providers, SHAPE, EFFORT, 0)


@pytest.mark.usefixtures("lib")
@pytest.mark.parametrize(("kind", "checks"), [(Prepared, 0), (_Lazy, 3), (_Tired, 2)])
def test_skipped_work_is_seen(kind: type[Prepared], checks: int) -> None:
    for cases in pyrdnaar.run_threads(_on_the_host, 2, [kind]):
        assert [case["wrong"] for case in cases] == [checks * SHAPE.count] * 2


@pytest.mark.usefixtures("lib")
def test_nothing_is_measured_against_itself() -> None:
    with pytest.raises(pyrdnaar.InvalidArgument, match="against itself"):
        pyrdnaar.run_threads(_on_the_host, 2, [Prepared, _Lazy])


def _on_streams(exchange: pyrdnaar.Exchange, graphs: bool) -> list[dict[str, Any]]:
    with pyrdnaar.Communicator(
        exchange.rank, exchange.world_size, exchange, "host", config=CONFIG
    ) as comm:
        ground = LibraryDevice(comm, graphs)
        ours = [OnDevice(comm, algo, ground.stream) for algo in ("ll", "oneshot", "twoshot")]
        try:
            return measure(exchange, ground, ours[0], list(ours), SHAPE, EFFORT, 0)
        finally:
            ground.close()


@pytest.mark.usefixtures("lib")
@pytest.mark.parametrize("graphs", [False, True])
def test_streams_and_graphs(graphs: bool) -> None:
    for cases in pyrdnaar.run_threads(_on_streams, 2, graphs):
        assert [case["algo"] for case in cases] == [
            algo for algo in ("ll", "oneshot", "twoshot") for _ in range(2)
        ]
        for case in cases:
            assert case["wrong"] == 0
            assert case["calls_per_sample"] == 5
            assert len(case["samples_us"]) == 3
            assert min(case["samples_us"]) > 0
