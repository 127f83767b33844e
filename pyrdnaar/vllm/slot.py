# SPDX-License-Identifier: Apache-2.0
"""What the vLLM forks for RDNA keep in `device_communicator.rdna_ar_comm`, by their names.

Two interfaces are met by one class: RdnaOneShotAllReduce(group, device) with should_use() and
all_reduce(), and RdnaCustomAllreduce(group, device, enabled) with should_custom_ar() and
custom_all_reduce(). Settings are RDNAAR_*, or else the forks' VLLM_RDNA_AR*.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from .._abi import Phase
from ..records import AbortRecord
from ..torch.adapter import Fallback, RdnaAllReduce

logger = logging.getLogger("pyrdnaar")


class RdnaOneShotAllReduce(RdnaAllReduce):
    """RdnaAllReduce with the forks' names. `enabled` counts where no variable says."""

    def __init__(
        self,
        group: Any,
        device: Any,
        enabled: bool = False,
        fallback: Fallback | None = None,
    ) -> None:
        super().__init__(group, device, fallback=fallback, enable_default=enabled)
        self.rank: int = self.group.rank()
        self.world_size: int = self.group.size()
        self._late_seen = 0

    def should_custom_ar(self, x: torch.Tensor) -> bool:
        return self.should_use(x)

    def custom_all_reduce(self, x: torch.Tensor) -> torch.Tensor | None:
        """The result, or None if the caller has to reduce otherwise."""
        return self.all_reduce(x) if self.takes(x) else None

    def timeout_info(self) -> int:
        """The abort as the forks' 64-bit code; 0 while there is none. See describe_abort()."""
        record = self.abort_record()
        return 0 if record is None else abort_code(record)

    def check(self) -> None:
        """RdnaAllReduce.check(), and one warning for each late peer."""
        super().check()
        late = None if self._comm is None or self._comm.closed else self._comm.late_record()
        if late is not None and late.count != self._late_seen:
            self._late_seen = late.count
            logger.warning(
                "rank %d waited %d ms for rank %d in call %d, which then completed",
                self.rank,
                late.waited_ms,
                late.peer,
                late.epoch,
            )


RdnaCustomAllreduce = RdnaOneShotAllReduce


def rdna_ar_check() -> None:
    """check() of vLLM's tensor-parallel group, for a step loop; nothing without one."""
    from vllm.distributed import parallel_state

    try:
        group = parallel_state.get_tp_group()
    except AssertionError:  # not initialised
        return
    comm = getattr(group.device_communicator, "rdna_ar_comm", None)
    if comm is not None:
        comm.check()


def abort_code(record: AbortRecord) -> int:
    """Bits 0-7: 1. 8-11: phase. 12-15: peer, 15 for none. 16-31: the wait in units of 16 ms.
    32-63: the call's number. What does not fit is cut to the largest (wait) or lowest (call) bits.
    """
    phase = Phase[record.phase.upper()].value
    wait = min(record.waited_ms // 16, 0xFFFF)
    return (
        1 | phase << 8 | (record.peer & 0xF) << 12 | wait << 16 | (record.epoch & 0xFFFFFFFF) << 32
    )
