# SPDX-License-Identifier: Apache-2.0
"""`pyrdnaar info --strict` of the library for AMD GPUs, with stand-ins for the runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

StandIn = Callable[..., Path]


def _strict(library: Path, **environ: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and each check's (ok, detail)."""
    result = subprocess.run(
        [sys.executable, "-m", "pyrdnaar", "info", "--strict", "--backend", "hip", "--json"],
        env={**os.environ, "RDNAAR_LIBRARY": str(library), **environ},
        cwd=library.parent.parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    checks = json.loads(result.stdout)["provenance"]["checks"]
    return result.returncode, {c["name"]: (c["ok"], c["detail"]) for c in checks}


def test_a_device_and_one_runtime(hip_library: Path, stand_in: StandIn) -> None:
    runtime = str(stand_in("runtime"))
    exit_code, checks = _strict(hip_library, RDNAAR_HIP_RUNTIME=runtime)
    assert exit_code == 0, checks
    assert checks["HIP runtime"] == (True, runtime)
    assert "device 0" in checks["devices"][1]
    assert "built for gfx1030" in checks["devices"][1]


def test_a_second_runtime(hip_library: Path, stand_in: StandIn) -> None:
    first, second = str(stand_in("first")), str(stand_in("second"))
    exit_code, checks = _strict(hip_library, LD_PRELOAD=f"{first}:{second}")
    assert exit_code == 1
    assert [name for name, (ok, _) in checks.items() if not ok] == ["devices", "HIP runtime"]
    for name in ("devices", "HIP runtime"):
        assert first in checks[name][1]
        assert second in checks[name][1]


def test_no_device(hip_library: Path, stand_in: StandIn) -> None:
    runtime = stand_in("empty", "int hipGetDeviceCount(int *count) { return 100; }")
    exit_code, checks = _strict(hip_library, RDNAAR_HIP_RUNTIME=str(runtime))
    assert exit_code == 1
    assert [name for name, (ok, _) in checks.items() if not ok] == ["devices"]
    assert "finds no GPU" in checks["devices"][1]
