# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar info`: which library is used, how it was built, and what it sees."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from .._library import load
from .options import backend_option, configuration, json_option, write_json


@click.command()
@backend_option
@json_option
def info(backend: str, json_path: str | None) -> None:
    """Show the library, its provenance and its devices."""
    config = configuration()
    library = load(config.backend if backend == "auto" else backend, config.library)
    build = library.build_info()
    devices = [asdict(device) for device in library.devices()]
    data: dict[str, Any] = {"path": library.path, **asdict(build), "devices": devices}
    if write_json(json_path, data):
        return
    version = build.abi_version
    rows = {
        "library": library.path,
        "version": build.version,
        "ABI": f"{version >> 16}.{version & 0xFFFF}",
        "backend": build.backend,
        "targets": build.targets,
        "compiler": build.compiler,
        "runtime": build.runtime or "none",
        "source digest": build.source_digest or "unknown",
        "git revision": build.git_revision or "unknown",
    }
    for name, value in rows.items():
        click.echo(f"{name:14} {value}")
    for device in library.devices():
        traits = [device.pci_bus_id, f"{device.memory_bytes / 2**30:.1f} GiB"]
        traits.append(f"{device.compute_units} compute units")
        traits += ["integrated"] * device.integrated + ["uncached memory"] * device.uncached
        click.echo(
            f"device {device.index:<7} {device.architecture}, {device.name}: "
            f"{', '.join(trait for trait in traits if trait)}"
        )
