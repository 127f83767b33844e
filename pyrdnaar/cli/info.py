# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar info`: which library is used, how it was built, and what it sees."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from .. import provenance
from .._library import Library, load
from ..errors import RdnaarError
from ..provenance import Provenance
from ..records import BuildInfo, DeviceInfo
from .options import backend_option, configuration, json_option, write_json


@click.command()
@backend_option
@click.option(
    "--strict",
    is_flag=True,
    help="List every check of the library's provenance; exit code 1 if one fails, also where the "
    "library cannot be loaded.",
)
@json_option
def info(backend: str, strict: bool, json_path: str | None) -> None:
    """Show the library, its provenance and its devices."""
    config = configuration()
    backend = config.backend if backend == "auto" else backend
    checked = provenance.inspect(backend, config.library) if strict else None
    data: dict[str, Any]
    lines: list[str] = []
    try:
        library = load(backend, config.library)
    except RdnaarError:
        if checked is None or checked.ok:
            raise
        data = {"path": checked.path}
    else:
        checked = checked or provenance.inspect_loaded(library)
        data, lines = _described(library)
    data["provenance"] = {"ok": checked.ok, "checks": [asdict(check) for check in checked.checks]}
    if not write_json(json_path, data):
        for line in [*lines, *_provenance(checked, strict)]:
            click.echo(line)
    if strict and not checked.ok:
        count = f"{len(checked.failed)} of {len(checked.checks)} checks failed"
        raise click.ClickException(f"{count}: {', '.join(checked.failed)}")


def _described(library: Library) -> tuple[dict[str, Any], list[str]]:
    """All that the library says, as data and as lines of text."""
    build, devices = library.build_info(), library.devices()
    data: dict[str, Any] = {"path": library.path, **asdict(build)}
    data["devices"] = [asdict(device) for device in devices]
    rows = _build_rows(library.path, build)
    lines = [f"{name:14} {value}" for name, value in rows.items()]
    return data, lines + [_device_line(device) for device in devices]


def _build_rows(path: str, build: BuildInfo) -> dict[str, str]:
    version = build.abi_version
    return {
        "library": path,
        "version": build.version,
        "ABI": f"{version >> 16}.{version & 0xFFFF}",
        "backend": build.backend,
        "targets": build.targets,
        "compiler": build.compiler,
        "runtime": build.runtime or "none",
        "source digest": build.source_digest or "unknown",
        "git revision": build.git_revision or "unknown",
    }


def _device_line(device: DeviceInfo) -> str:
    traits = [device.pci_bus_id, f"{device.memory_bytes / 2**30:.1f} GiB"]
    traits.append(f"{device.compute_units} compute units")
    traits += ["integrated"] * device.integrated + ["uncached memory"] * device.uncached
    return (
        f"device {device.index:<7} {device.architecture}, {device.name}: "
        f"{', '.join(trait for trait in traits if trait)}"
    )


def _provenance(checked: Provenance, strict: bool) -> list[str]:
    count = len(checked.checks)
    verdict = f"all {count} checks passed"
    if not checked.ok:
        hint = "" if strict else "; `pyrdnaar info --strict` says why"
        verdict = f"{len(checked.failed)} of {count} checks FAILED: {', '.join(checked.failed)}"
        verdict += hint
    lines = [f"{'provenance':14} {verdict}"]
    if strict:
        for check in checked.checks:
            lines.append(f"  {'ok' if check.ok else 'FAILED':7} {check.name:14} {check.detail}")
    return lines
