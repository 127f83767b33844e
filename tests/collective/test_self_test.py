# SPDX-License-Identifier: Apache-2.0
"""The self test as the C ABI has it: no rank need wait for another after it."""

from __future__ import annotations

import numpy as np

import pyrdnaar
from pyrdnaar import reference, selftest
from pyrdnaar._abi import SelfTestLevel

from .raw import Rank

COUNT = 8192


def _calls(exchange: pyrdnaar.Exchange) -> list[int]:
    """The turns in which the call right after a self test was wrong."""
    wrong = []
    with Rank(exchange, 4 * COUNT) as rank:
        handle = rank.comm._comm
        assert handle is not None
        inputs = rank.inputs(COUNT, "fp32", 0)
        for turn in range(20):
            rank.input.write(inputs[rank.rank], stream=rank.stream)
            selftest.run(
                rank.comm.library,
                handle,
                rank.comm.device,
                SelfTestLevel.QUICK,
                seed=turn,
                max_bytes=4,
                floor_mb_s=1,
            )
            rank.comm.all_reduce_ptr(
                rank.input.ptr, rank.output.ptr, COUNT, "fp32", "sum", "oneshot", rank.stream
            )
            seen = rank.output.read(np.zeros(COUNT, np.float32), stream=rank.stream)
            if reference.wrong_elements(seen, reference.expected(inputs, "sum")):
                wrong.append(turn)
            exchange.all_gather(b"")
    return wrong


def test_a_call_right_after_a_self_test_is_right() -> None:
    """The rates are measured where the data of the next call is pushed to."""
    assert pyrdnaar.run_ranks(_calls, 3, timeout=120) == [[], [], []]
