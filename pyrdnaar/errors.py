# SPDX-License-Identifier: Apache-2.0
"""The exceptions of pyrdnaar. All derive from RdnaarError.

`status` is the code of rdnaar.h behind the error (0: none, the error is Python's own) and
`exit_code` is what the command line ends with: 1 a check failed, 2 usage, 3 no usable hardware or
library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .records import AbortRecord, SelfTestReport


class RdnaarError(Exception):
    """Base of everything raised here."""

    status: int = 0
    exit_code: int = 1

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (run_ranks): rebuild from the message and the rest of
        # the state, whatever the constructor of the subclass takes.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    cls: type[RdnaarError], args: tuple[object, ...], state: dict[str, object]
) -> RdnaarError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class LibraryError(RdnaarError):
    """No library, or not one that fits this package. The message names the remedy."""

    exit_code = 3


class NoDevice(LibraryError):
    """The library is fine, but there is no device or GPU runtime that it can use."""


class ConfigError(RdnaarError, ValueError):
    """A setting has a value that is not accepted."""

    exit_code = 2


class InvalidArgument(RdnaarError, ValueError):
    """An argument of a call is not valid: the message names it, its value and the limit."""

    status = 1
    exit_code = 2


class TooLarge(InvalidArgument):
    """The message is larger than the configured limit."""

    status = 2


class Unsupported(RdnaarError):
    """Not supported by this library or device."""

    status = 3
    exit_code = 3


class OutOfMemory(RdnaarError, MemoryError):
    """Memory could not be allocated."""

    status = 6


class StateError(RdnaarError):
    """Not allowed in this state of the object: closed, not yet registered, in use."""

    status = 9


class AbortError(RdnaarError):
    """The communicator was aborted. `record` says by whom and why, if it is known already."""

    status = 11

    def __init__(self, message: str, record: AbortRecord | None) -> None:
        super().__init__(message)
        self.record = record


class SelfTestError(RdnaarError):
    """The self test did not pass on at least one rank. `report` is this rank's own."""

    status = 16

    def __init__(self, message: str, report: SelfTestReport) -> None:
        super().__init__(message)
        self.report = report


class ExchangeError(RdnaarError):
    """The ranks cannot talk to each other. `rank` is the one that is missing or failed, or -1."""

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class Disabled(RdnaarError):
    """Start-up failed on `rank` (-1: no single one), so no rank has a communicator.

    Every rank gets the same `reason` and `rank`. `exit_code` is that of the failure behind it.
    """

    def __init__(self, reason: str, rank: int, exit_code: int = 1) -> None:
        super().__init__(reason if rank < 0 else f"rank {rank}: {reason}")
        self.reason = reason
        self.rank = rank
        self.exit_code = exit_code


class RankError(RdnaarError):
    """A rank started by run_ranks() or run_threads() failed. `text` is its traceback, if any."""

    def __init__(self, message: str, rank: int, text: str = "") -> None:
        super().__init__(f"{message}\n{text}".rstrip())
        self.rank = rank
        self.text = text


# By status of rdnaar.h; all others are plain RdnaarErrors. AbortError and SelfTestError carry what
# only the communicator knows, so it raises them itself.
BY_STATUS: dict[int, type[RdnaarError]] = {
    1: InvalidArgument,
    2: TooLarge,
    3: Unsupported,
    4: NoDevice,
    5: NoDevice,
    6: OutOfMemory,
    7: LibraryError,
    9: StateError,
    10: StateError,
}
