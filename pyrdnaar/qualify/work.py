# SPDX-License-Identifier: Apache-2.0
"""Jobs of a check, some at the same time, and what went wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..errors import RdnaarError
from .chat import Chat, Reply
from .settings import Settings
from .transport import Client, RequestError, shortened

T = TypeVar("T")

MAX_FAILURES = 20
# How often a progress bar is looked after while no job ends.
TICK_SECONDS = 0.25


class WrongAnswer(RdnaarError):
    """The server has answered, but not as it must. Other requests may still go well."""


class Bar(Protocol):
    """A progress bar."""

    def show(self, done: int) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True)
class Setup:
    """What a check works with."""

    client: Client
    chat: Chat
    settings: Settings
    bar: Callable[[int], Bar]


@dataclass
class Outcome:
    """Of a check. Without failures it has passed; `summary` says what has been seen."""

    summary: str = ""
    failures: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        if not self.failures:
            return self.summary
        more = len(self.failures) - 1
        return self.failures[0] + (f" (and {more} more)" if more else "")


Job = tuple[str, Callable[[], T]]


@dataclass
class Results(Generic[T]):
    """`values` has None in place of what failed or was not begun, `failures` says why."""

    values: list[T | None]
    failures: list[str]

    @property
    def good(self) -> list[T]:
        return [value for value in self.values if value is not None]


def run(jobs: Sequence[Job[T]], workers: int, setup: Setup) -> Results[T]:
    """Run labelled jobs. After a request that fails nothing new is begun: a server that hangs
    costs a check one timeout, not one for each of its requests."""
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(job) for _, job in jobs]
        bar = setup.bar(len(jobs))
        try:
            _watch(futures, bar)
        except BaseException:  # Ctrl-C above all
            pool.shutdown(wait=False, cancel_futures=True)
            setup.client.close()
            raise
        finally:
            bar.clear()
    results: Results[T] = Results([], [])
    for (label, _), future in zip(jobs, futures, strict=True):
        error = None if future.cancelled() else future.exception()
        done = not future.cancelled() and error is None
        results.values.append(future.result() if done else None)
        if error is not None:
            results.failures.append(f"{label}: {_text(error)}")
    return results


def _watch(futures: Sequence[Future[Any]], bar: Bar) -> None:
    pending = set(futures)
    while pending:
        bar.show(len(futures) - len(pending))
        done, pending = wait(pending, TICK_SECONDS, FIRST_COMPLETED)
        if any(isinstance(f.exception(), RequestError) for f in done if not f.cancelled()):
            for future in pending:
                future.cancel()


def _text(error: BaseException) -> str:
    if not isinstance(error, RdnaarError):
        raise error  # a defect of ours
    return str(error)


def answer_of(reply: Reply) -> str:
    """The text of a reply that must be an answer, and whole."""
    require_finish(reply, "stop")
    if reply.tool_calls:
        raise WrongAnswer(f"an unasked call of {shortened(reply.tool_calls[0].name)}")
    if not reply.content:
        raise WrongAnswer("an answer without content")
    return reply.content


def require_finish(reply: Reply, expected: str) -> None:
    if reply.finish == "length" != expected:
        raise WrongAnswer("finish_reason is length: cut off; --max-tokens gives more room")
    if reply.finish != expected:
        raise WrongAnswer(f"finish_reason is {shortened(reply.finish)}, not {expected!r}")
