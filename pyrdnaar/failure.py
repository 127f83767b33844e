# SPDX-License-Identifier: Apache-2.0
"""What went wrong with a communicator, from its handle."""

from __future__ import annotations

from ctypes import byref, sizeof

from . import _abi
from ._abi import Status
from ._library import Library
from .errors import AbortError, RdnaarError
from .records import AbortRecord


def abort_record(library: Library, comm: int) -> AbortRecord | None:
    """Why it was aborted; None while it was not."""
    raw = _abi.AbortRecord(struct_size=sizeof(_abi.AbortRecord))
    library.check(library.c.rdnaar_abort_record(comm, byref(raw)))
    return AbortRecord.of(raw) if raw.valid else None


def error_of(library: Library, comm: int, status: int) -> RdnaarError:
    """The exception for what a function of this communicator has returned."""
    error = library.error(status, comm)
    if status != Status.E_ABORTED:
        return error
    # The record is there a moment after the abort: another thread may be writing it now.
    record = abort_record(library, comm)
    return AbortError(str(record or error), record)
