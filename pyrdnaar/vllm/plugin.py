# SPDX-License-Identifier: Apache-2.0
"""The vLLM plugin: tensor-parallel groups reduce here first what is eligible.

vLLM asks its platform for the name of a class, get_device_communicator_cls(), and makes an object
of it for each group. While RDNAAR_ENABLE=1 the platform names a subclass of its own answer.
"""

from __future__ import annotations

import importlib
import logging
import os
from functools import cache
from typing import Any

from ..config import is_set, setting

logger = logging.getLogger("pyrdnaar")


def register() -> None:
    """Called by vLLM in each of its processes, possibly more than once."""
    if not (is_set("RDNAAR_ENABLE", os.environ) and setting("RDNAAR_ENABLE", os.environ)):
        return
    from vllm.platforms import current_platform

    ask = current_platform.get_device_communicator_cls
    if isinstance(ask, _Answer):
        return
    current_platform.get_device_communicator_cls = _Answer(ask)
    logger.info("all-reduce of tensor-parallel groups: %s", __name__)


class _Answer:
    """The platform's get_device_communicator_cls(), which names our subclass of its class."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def __call__(self) -> str:
        # Not before vLLM wants it: importing that class loads much of vLLM.
        module, _, name = self._ask().rpartition(".")
        extended = extend(getattr(importlib.import_module(module), name))
        globals()[extended.__name__] = extended
        return f"{__name__}.{extended.__name__}"


@cache
def extend(base: type[Any]) -> type[Any]:
    """`base`, a device communicator of vLLM, with our all-reduce before its own."""
    from .slot import RdnaOneShotAllReduce

    class Extended(base):
        rdna_ar_comm: RdnaOneShotAllReduce | None

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._release()  # a fork's own
            if self.unique_name.split(":")[0] == "tp" and self.world_size > 1:
                self.rdna_ar_comm = RdnaOneShotAllReduce(
                    self.cpu_group, self.device, fallback=self._reduce_by_vllm
                )

        def all_reduce(self, input_: Any) -> Any:
            comm = self.rdna_ar_comm
            return super().all_reduce(input_) if comm is None else comm.all_reduce(input_)

        def _reduce_by_vllm(self, input_: Any, op: str) -> Any:
            # The CPU's reduces in place, which an operator of torch must not.
            return super().all_reduce(input_.clone() if input_.is_cpu else input_)

        # Every step ends by collecting the logits, outside of graphs: the place to look whether
        # one of the step's all-reduces was aborted.

        def all_gather(self, input_: Any, *args: Any, **kwargs: Any) -> Any:
            self._check()
            return super().all_gather(input_, *args, **kwargs)

        def gather(self, input_: Any, *args: Any, **kwargs: Any) -> Any:
            self._check()
            return super().gather(input_, *args, **kwargs)

        def _check(self) -> None:
            if self.rdna_ar_comm is not None:
                self.rdna_ar_comm.check()

        def destroy(self) -> None:
            self._release()
            super().destroy()

        def _release(self) -> None:
            comm = getattr(self, "rdna_ar_comm", None)
            self.rdna_ar_comm = None
            if comm is not None and hasattr(comm, "close"):
                comm.close()

    Extended.__name__ = Extended.__qualname__ = f"Rdna{base.__name__}"
    return Extended
