# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar qualify`: checks of a running model server, before and after its all-reduce changes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..config import parse_size
from ..qualify import report, speed
from ..qualify.chat import OURS, Chat
from ..qualify.server import await_ready
from ..qualify.settings import Settings
from ..qualify.transport import Client
from ..qualify.work import Setup
from .options import json_option, write_json
from .progress import Progress

MAX_CELLS = 16
MAX_CONTEXT = 16 << 20
CHECKS = click.Choice(list(report.CHECKS))


def _numbers(
    parse: Callable[[str], int], low: int, high: int
) -> Callable[[click.Context, click.Parameter, str], tuple[int, ...]]:
    """The callback of an option that takes numbers with commas between them."""

    def callback(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
        try:
            numbers = tuple(parse(part.strip()) for part in text.split(","))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        if len(numbers) > MAX_CELLS or not all(low <= number <= high for number in numbers):
            raise click.BadParameter(f"{text!r} is not up to {MAX_CELLS} of {low} to {high}")
        return numbers

    return callback


def _number(_: click.Context, __: click.Parameter, value: float) -> float:
    if math.isnan(value):  # which no range refuses
        raise click.BadParameter("is not a number")
    return value


def _key(_: click.Context, __: click.Parameter, name: str | None) -> str:
    """The API key itself. `name` is not repeated: it might be a key that was put in its place."""
    if name is None:
        return ""
    key = os.environ.get(name, "")
    if not key:
        raise click.BadParameter("names no environment variable that is set")
    return key


def _extra(_: click.Context, __: click.Parameter, text: str) -> dict[str, Any]:
    try:
        extra = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"is no JSON: {error}") from None
    if not isinstance(extra, dict):
        raise click.BadParameter("is no JSON object")
    if OURS & set(extra):
        raise click.BadParameter(f"must not set {', '.join(sorted(OURS & set(extra)))}")
    return extra


@click.command()
@click.option("--base-url", required=True, metavar="URL", help="Like http://127.0.0.1:8000/v1.")
@click.option("--model", required=True, help="The model's name on the server.")
@click.option("--only", type=CHECKS, multiple=True, help="Run this check. Several times: these.")
@click.option("--skip", type=CHECKS, multiple=True, help="Leave this check out.")
@click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare with this report, which an earlier run wrote by --json.",
)
@click.option("--concurrency", type=click.IntRange(1, 256), default=8, show_default=True)
@click.option(
    "--repeats",
    type=click.IntRange(2, 100),
    default=3,
    show_default=True,
    help="Of each greedy prompt.",
)
@click.option(
    "--samples",
    type=click.IntRange(speed.MIN_SAMPLES, speed.MAX_SAMPLES),
    default=8,
    show_default=True,
    help="Of the times.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(16, 1 << 20),
    default=512,
    show_default=True,
    help="Room for an answer of tools and needle, with what a model thinks before.",
)
@click.option(
    "--contexts",
    callback=_numbers(parse_size, 1 << 10, MAX_CONTEXT),
    default="4K,12K,24K",
    show_default=True,
    help="Lengths of the needle's texts, in characters (about 4 to a token).",
)
@click.option(
    "--depths",
    callback=_numbers(int, 0, 100),
    default="0,50,100",
    show_default=True,
    help="Where in a text the needle is, per cent.",
)
@click.option(
    "--tool-seconds",
    type=click.FloatRange(0, 600),
    callback=_number,
    default=1.0,
    show_default=True,
    help="What the slowest tool takes; the others are spread below it.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 86400),
    callback=_number,
    default=120.0,
    show_default=True,
    help="Seconds for a whole request.",
)
@click.option(
    "--wait",
    type=click.FloatRange(0, 86400),
    callback=_number,
    default=0.0,
    show_default=True,
    help="Seconds to wait for a server that is being started.",
)
@click.option(
    "--api-key",
    "key",
    callback=_key,
    metavar="VARIABLE",
    help="Name of the environment variable that holds the key.",
)
@click.option(
    "--extra",
    callback=_extra,
    metavar="JSON",
    default="{}",
    help="An object whose members are added to every request.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="Of the prompts.")
@json_option
def qualify(
    base_url: str,
    model: str,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    baseline: Path | None,
    timeout: float,
    wait: float,
    key: str,
    json_path: str | None,
    **others: Any,
) -> None:
    """Check a running OpenAI-compatible server.

    greedy: outputs at temperature 0 are the same in all repeats. tools: chats at the same time
    call tools, and get their own results. needle: a sentence is found in long texts. speed: time
    to first token and rate of decoding. With --baseline, greedy and speed are compared with an
    earlier run.

    Exit codes: 0 all passed, 1 a check failed, 2 usage, 3 no server, or none that is ready.
    """
    names = [name for name in report.CHECKS if name in (only or report.CHECKS) and name not in skip]
    if not names:
        raise click.UsageError("no check is left to run")
    settings = Settings(model=model, **others)
    earlier = _earlier(baseline, settings, names)
    client = Client(base_url, key, timeout)
    models = await_ready(client, wait, Progress(int(wait)))
    if models and model not in models:
        listed = ", ".join(client.quoted(name) for name in models)
        click.echo(f"warning: the server lists {listed}, and not {model!r}", err=True)
    chat = Chat(client, model, settings.seed, settings.extra)
    setup = Setup(client, chat, settings, Progress)
    said = _quiet if json_path == "-" else _row
    data = report.run(setup, names, earlier, said)
    write_json(json_path, {**data, "server": {"base_url": base_url, "models": models}})
    failed = [name for name, check in data["checks"].items() if not check["ok"]]
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


def _earlier(path: Path | None, settings: Settings, names: list[str]) -> dict[str, Any]:
    if path is None:
        return {}
    earlier = report.read_baseline(path, settings, names)
    if not earlier:
        raise click.UsageError(f"--baseline: nothing of {', '.join(names)} is compared")
    return earlier


def _quiet(_: str, __: dict[str, Any]) -> None:
    pass


def _row(name: str, check: dict[str, Any]) -> None:
    verdict = "passed" if check["ok"] else "FAILED"
    click.echo(f"{name:8} {verdict} {check['seconds']:>8.1f} s  {check['reason']}")
