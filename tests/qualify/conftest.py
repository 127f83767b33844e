# SPDX-License-Identifier: Apache-2.0
"""A stand-in server for each test that asks for one, and small runs against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyrdnaar.cli import main

from .stand_in import MODEL, StandIn

SMALL = ("--concurrency", "4", "--repeats", "2", "--samples", "5", "--contexts", "1K,4K",
         "--depths", "0,50,100", "--tool-seconds", "0.05", "--timeout", "10")  # fmt: skip


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture
def qualify(runner: CliRunner, server: StandIn) -> Callable[..., Result]:
    """qualify(*args, exit_code=0): a small run of the command against `server`."""

    def run(*args: Any, exit_code: int = 0, **environ: str) -> Result:
        command = ["qualify", "--base-url", server.url, "--model", MODEL, *SMALL, *map(str, args)]
        result = runner.invoke(main, command, env=environ)
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result

    return run
