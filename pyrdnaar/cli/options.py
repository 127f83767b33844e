# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .._abi import MAX_WORLD
from .._library import BACKENDS
from ..config import Config, parse_size

F = TypeVar("F", bound=Callable[..., Any])


def size(value: str) -> int:
    """As the type of an option: bytes, written 4096, 4K, 20M or 1G."""
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def ranks_option(default: int) -> Callable[[F], F]:
    return click.option(
        "-n",
        "--ranks",
        type=click.IntRange(1, MAX_WORLD),
        help=f"Ranks to start on this machine [default: {default}]. Under torchrun or mpiexec the "
        "ranks are the launcher's.",
    )


backend_option = click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="auto",
    show_default=True,
    help="Which library; auto is RDNAAR_BACKEND, or a GPU library that finds a device, or host.",
)

threads_option = click.option(
    "--threads", is_flag=True, help="Ranks as threads of one process instead of processes."
)


def _json_path(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    """Refuse a place that cannot be written before there is a result to lose."""
    if path in (None, "-"):
        return path
    target = Path(str(path))
    place = target if target.exists() else target.parent
    if target.is_dir() or not os.access(place, os.W_OK):
        raise click.BadParameter(f"cannot write {path}")
    return path


json_option = click.option(
    "--json",
    "json_path",
    callback=_json_path,
    metavar="[PATH]",
    is_flag=False,
    flag_value="-",
    help="Write the data as JSON to PATH; without PATH, or with -, to stdout instead of the table.",
)


def write_json(path: str | None, data: dict[str, Any]) -> bool:
    """Obey --json. True when stdout has been used, so that no table may follow."""
    if path is None:
        return False
    text = json.dumps(data, indent=2)
    if path == "-":
        click.echo(text)
        return True
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error}") from None
    return False


def configuration() -> Config:
    """The configuration of the environment; its warnings go to stderr as log lines."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = Config.from_env()
    for warning in caught:
        click.echo(f"warning: {warning.message}", err=True)
    return config
