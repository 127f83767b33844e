# SPDX-License-Identifier: Apache-2.0
"""The library's self test, run by one rank of a group whose others run it too."""

from __future__ import annotations

from ctypes import byref, sizeof

from . import _abi
from ._abi import SelfTestLevel, Status
from ._library import Library
from .errors import SelfTestError
from .failure import error_of
from .memory import Stream
from .records import SelfTestReport


def run(
    library: Library,
    comm: int,
    device: int,
    level: SelfTestLevel,
    *,
    seed: int,
    max_bytes: int = 0,
    repeats: int = 0,
    floor_mb_s: int = 0,
) -> SelfTestReport:
    """This rank's report; SelfTestError if it found something, AbortError if a call was aborted.

    On a stream of its own: ranks that share a device would wait for each other on the null stream.
    Zeros mean the library's defaults, see rdnaar_self_test_config.
    """
    settings = _abi.SelfTestConfig(
        struct_size=sizeof(_abi.SelfTestConfig),
        seed=seed,
        max_bytes=max_bytes,
        repeats=repeats,
        level=level,
        floor_mb_s=floor_mb_s,
    )
    raw = _abi.SelfTestReport(struct_size=sizeof(_abi.SelfTestReport))
    with Stream(library, device) as stream:
        status = library.c.rdnaar_self_test(comm, byref(settings), byref(raw), int(stream))
    report = SelfTestReport.of(raw)
    if status == Status.E_SELF_TEST:
        raise SelfTestError(report.text or "the self test did not pass", report)
    if status:
        raise error_of(library, comm, status)
    return report
