# SPDX-License-Identifier: Apache-2.0
"""The soak run counts what goes wrong: with libraries that do wrong, it must say so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import pyrdnaar

sys.path.insert(0, str(ROOT / "tools"))  # scripts, not a package
from soaking import limits
from soaking.tally import Tally

Shim = Callable[[str], Path]


def _soak(section: str, library: Path | str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "tools/soak.py", "--short", "--only", section, "--json"]
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "RDNAAR_LIBRARY": str(library)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    report = json.loads(result.stdout)
    assert report["ok"] is (result.returncode == 0), result.stderr
    return result.returncode, report["loads"]


def test_malformed_input_is_counted(lib: pyrdnaar.Library) -> None:
    exit_code, loads = _soak("malformed", lib.path)
    assert exit_code == 0, loads
    assert [load["executed"] for load in loads] == [1000, 1000]


def test_a_library_that_accepts_everything_fails(shim: Shim) -> None:
    library = shim(
        "rdnaar_status rdnaar_register_buffers(rdnaar_comm *c, const void *blobs, uint32_t w)\n"
        "{ (void)c; (void)blobs; (void)w; return RDNAAR_OK; }\n"
    )
    exit_code, (blobs, configs) = _soak("malformed", library)
    assert exit_code == 1
    assert blobs["wrong"] > 0
    assert configs["wrong"] == 0


def test_a_library_that_dies_fails(shim: Shim) -> None:
    library = shim(
        "#include <stdlib.h>\n"
        "rdnaar_status rdnaar_init(const rdnaar_config *config, rdnaar_comm **comm)\n"
        "{ (void)config; (void)comm; abort(); }\n"
    )
    exit_code, loads = _soak("malformed", library)
    assert exit_code == 1
    assert [load["crashes"] for load in loads] == [1, 1]
    assert "SIGABRT" in loads[0]["problems"][0]


def test_a_library_that_does_nothing_fails(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    library = shim(
        "rdnaar_status rdnaar_all_reduce(rdnaar_comm *c, const void *in, void *out, uint64_t n,\n"
        "                                uint32_t d, uint32_t o, uint32_t a, void *s)\n"
        "{ (void)c; (void)in; (void)out; (void)n; (void)d; (void)o; (void)a; (void)s; return 0; }\n"
    )
    monkeypatch.setenv("RDNAAR_LIBRARY", str(library))
    tally = limits.sweep(2, (4096,), 1, lambda done: None)
    assert tally.executed == tally.planned
    assert tally.wrong > 0
    assert not tally.ok


def test_too_little_is_not_ok() -> None:
    assert Tally("calls", "calls", planned=2, executed=2).ok
    assert not Tally("calls", "calls", planned=2, executed=1).ok
