# SPDX-License-Identifier: Apache-2.0
"""Start-up: any rank's failure disables all ranks, with the same words, and leaves none waiting."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyrdnaar import (
    Communicator,
    Config,
    Disabled,
    ExchangeError,
    PipeExchange,
    RankError,
    ThreadExchange,
    startup,
)
from pyrdnaar.ranks import run_ranks, run_threads

pytestmark = pytest.mark.usefixtures("lib")


def _disabled(odd: int, world_size: int = 3, **of_the_odd_one: Any) -> list[Disabled]:
    """Every rank's error when one rank's arguments differ."""

    def work(exchange: ThreadExchange) -> Disabled:
        arguments: dict[str, Any] = {"backend": "host", "config": Config()}
        if exchange.rank == odd:
            arguments |= of_the_odd_one
        with pytest.raises(Disabled) as caught:
            Communicator(exchange.rank, exchange.world_size, exchange, **arguments)
        # The exchange is still of use, and so is a second try.
        with Communicator(exchange.rank, exchange.world_size, exchange, "host") as comm:
            assert comm.all_reduce(np.ones(1, np.float32))[0] == world_size
        return caught.value

    start = time.monotonic()
    errors = run_threads(work, world_size, timeout=60)
    assert time.monotonic() - start < 20
    return errors


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize(
    ("arguments", "said", "exit_code"),
    [
        ({"backend": "gpu"}, "backend 'gpu' is not one of", 2),
        ({"config": Config(library="/nowhere.so")}, "cannot load /nowhere.so", 3),
        ({"config": Config(enable=False)}, "switched off", 1),
        ({"device": 1000}, "device", 2),
    ],
)
def test_a_failing_rank_is_named_to_all(
    odd: int, arguments: dict[str, Any], said: str, exit_code: int
) -> None:
    errors = _disabled(odd, **arguments)
    assert {str(error) for error in errors} == {str(errors[0])}
    assert errors[0].rank == odd
    assert errors[0].reason in str(errors[0])
    assert said in errors[0].reason
    assert {error.exit_code for error in errors} == {exit_code}
    # Where it failed, the cause is at hand.
    assert errors[odd].__cause__ is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_bytes", 1 << 16),
        ("blocks", 7),
        ("timeout_ms", 5),
        ("late_ms", 5),
        ("algo", "ll"),
        ("pace", 1),
    ],
)
def test_configurations_must_agree(field: str, value: object) -> None:
    errors = _disabled(1, config=dataclasses.replace(Config(), **{field: value}))
    assert {(e.rank, str(e)) for e in errors} == {(1, str(errors[0]))}
    default = getattr(Config(), field)
    assert f"{field} is {value!r}, on rank 0 it is {default!r}" in errors[0].reason


def test_the_memory_of_slabs_must_agree() -> None:
    errors = _disabled(1, slab_memory="ordinary")
    assert {str(e) for e in errors} == {
        "rank 1: slab_memory is 'ordinary', on rank 0 it is 'auto': all ranks must agree"
    }


def test_a_lost_exchange_is_no_broken_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that cannot talk any more do not try another transport."""
    monkeypatch.setattr(startup, "_common_transport", lambda _: "p2p")

    class Lost(ThreadExchange):
        gathered = 0

        def all_gather(self, data: bytes) -> list[bytes]:
            self.gathered += 1
            if self.gathered >= 5:  # of the opened slabs
                raise ExchangeError("rank 1 is gone", 1)
            return super().all_gather(data)

    def work(exchange: Lost) -> None:
        with pytest.raises(Disabled, match=r"^rank 1: rank 1 is gone$"):
            Communicator(exchange.rank, 2, exchange, "host", config=Config(prove="never"))
        assert exchange.gathered == 5

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, Lost.group(2, 30)))


def test_a_bad_environment_of_one_rank_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDNAAR_BLOCKS", "many")

    def work(exchange: ThreadExchange) -> str:
        config = Config() if exchange.rank else None  # rank 0 reads the environment
        with pytest.raises(Disabled) as caught:
            Communicator(exchange.rank, exchange.world_size, exchange, "host", config=config)
        return str(caught.value)

    messages = run_threads(work, 2, timeout=30)
    assert messages[0] == messages[1]
    assert messages[0].startswith("rank 0: RDNAAR_BLOCKS='many' is not accepted")


def test_another_build_is_refused(shim: Callable[[str], Path]) -> None:
    """Same ABI, other sources: provenance is settled before anything is allocated."""
    other = shim(
        "#include <dlfcn.h>\n#include <string.h>\n"
        "rdnaar_status rdnaar_build_info(rdnaar_build_info_t *info) {\n"
        "  rdnaar_status (*real)(rdnaar_build_info_t *);\n"
        '  *(void **)&real = dlsym(RTLD_NEXT, "rdnaar_build_info");\n'
        "  rdnaar_status status = real(info);\n"
        "  memset(info->source_digest, 'f', 64);\n"
        "  return status; }\n"
    )
    errors = _disabled(1, 2, config=Config(library=str(other)))
    assert {str(error) for error in errors} == {str(errors[0])}
    assert f"source digest is '{'f' * 64}'" in errors[0].reason
    assert errors[0].rank == 1


def test_rank_and_world_size_are_checked() -> None:
    def work(exchange: ThreadExchange) -> str:
        with pytest.raises(Disabled) as caught:
            Communicator(0, exchange.world_size, exchange, "host")
        return str(caught.value)

    messages = run_threads(work, 2, timeout=30)
    assert messages == ["rank 1: rank 0 of 2 has the exchange of rank 1 of 2"] * 2


def test_a_group_too_large() -> None:
    def work(exchange: ThreadExchange) -> str:
        with pytest.raises(Disabled) as caught:
            Communicator(exchange.rank, 9, exchange, "host")
        return caught.value.reason

    assert set(run_threads(work, 9, timeout=30)) == {"world_size = 9 is not 1 to 8"}


def _die_during_start(exchange: PipeExchange) -> str:
    if exchange.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(Disabled) as caught:
        Communicator(exchange.rank, exchange.world_size, exchange, "host")
    assert time.monotonic() - start < 20
    assert caught.value.rank == 2
    return str(caught.value)


def test_a_rank_killed_during_start_up_is_named() -> None:
    with pytest.raises(RankError, match="rank 2 failed:\nkilled by signal 9"):
        run_ranks(_die_during_start, 3, timeout=60)


def test_two_groups_do_not_mix() -> None:
    """Each group draws its own id, so its blobs do not open another group's memory."""
    blobs: dict[int, list[bytes]] = {}

    class Recorder(ThreadExchange):
        def all_gather(self, data: bytes) -> list[bytes]:
            parts = super().all_gather(data)
            blobs.setdefault(self.rank, []).append(b"".join(parts))
            return parts

    def work(exchange: ThreadExchange) -> None:
        recorder = Recorder(exchange.rank, exchange._slots, exchange._barrier, exchange.timeout)
        for _ in range(2):
            with Communicator(exchange.rank, exchange.world_size, recorder, "host"):
                pass

    run_threads(work, 2, timeout=30)
    first_group, second_group = blobs[0][0], blobs[0][3]
    assert first_group != second_group
