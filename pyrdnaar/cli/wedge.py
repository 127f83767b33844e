# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar wedge`: the marker that an abort leaves, and that keeps the next start disabled."""

from __future__ import annotations

import json

import click

from .. import wedge as marker
from .options import configuration, json_option, write_json


@click.group()
def wedge() -> None:
    """Show or clear the marker of an earlier abort."""


@wedge.command()
@json_option
def show(json_path: str | None) -> None:
    """Print the marker. Exit code 1 if there is one."""
    path = marker.path_of(configuration())
    data = marker.read(path)
    if not write_json(json_path, {"path": str(path), "marker": data}):
        if data is None:
            click.echo(f"no marker at {path}")
        else:
            click.echo(f"{path}:\n{json.dumps(data, indent=1, sort_keys=True)}")
    if data is not None:
        raise click.exceptions.Exit(1)


@wedge.command()
def clear() -> None:
    """Remove the marker, so that the next start is not refused."""
    path = marker.path_of(configuration())
    click.echo(f"removed {path}" if marker.clear(path) else f"no marker at {path}")
