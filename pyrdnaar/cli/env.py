# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar env`: the effective configuration, and where each value came from."""

from __future__ import annotations

import os
from typing import Any

import click

from ..config import VARIABLES, Setting, effective, environ_of, unread
from .options import json_option, write_json

_SECRETS = {variable.name for variable in VARIABLES if variable.secret}


@click.command()
@click.option("--pid", type=click.IntRange(1), help="Of this running process, as it was started.")
@json_option
def env(pid: int | None, json_path: str | None) -> None:
    """Show every setting, its effective value and where that came from."""
    environ = os.environ if pid is None else environ_of(pid)
    settings = effective(environ)
    for note in unread(environ):
        click.echo(f"warning: {note}", err=True)
    data = {s.name: {"value": _shown(s), "field": s.field, "origin": s.origin} for s in settings}
    if write_json(json_path, data):
        return
    unset = {variable.name: variable.kind.unset for variable in VARIABLES}
    click.echo(f"{'variable':26} {'field':18} {'value':>12}  from")
    for setting in settings:
        value = _shown(setting)
        text = unset[setting.name] if value is None else str(value)
        click.echo(f"{setting.name:26} {setting.field or '-':18} {text:>12}  {setting.origin}")


def _shown(setting: Setting) -> Any:
    if setting.name in _SECRETS and setting.value is not None:
        return "(set)"
    return setting.value
