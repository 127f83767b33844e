# SPDX-License-Identifier: Apache-2.0
"""The examples of the README compile, run and print what it says; its tables name what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyrdnaar
from pyrdnaar.cli import main
from pyrdnaar.config import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.S | re.M)
    assert len(found) == 1, language
    return str(found[0])


def run(*command: str) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120, cwd=ROOT
    ).stdout


def test_python_example(lib: pyrdnaar.Library, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block("python"))
    assert run(sys.executable, str(script)) == "[3. 3. 3. 3.]\n"


def test_c_example(lib: pyrdnaar.Library, tmp_path: Path) -> None:
    source, program = tmp_path / "example.c", tmp_path / "example"
    source.write_text(block("c"))
    run(
        "cc", "-Wall", "-Wextra", "-Werror", str(source), "-Ilibhiprdnaar/include", lib.path,
        f"-Wl,-rpath,{Path(lib.path).parent}", "-pthread", "-o", str(program),
    )  # fmt: skip
    assert run(str(program)) == "3 3 3 3\n"


def test_tables_name_what_exists() -> None:
    commands = set(re.findall(r"^\| `pyrdnaar (\w+)", README, re.M))
    assert commands == set(main.commands)
    rows = "".join(line for line in README.splitlines() if line.startswith("| `RDNAAR_"))
    named = set(re.findall(r"RDNAAR_[A-Z_]+", rows))
    assert named <= {variable.name for variable in VARIABLES}


def test_make_targets_exist() -> None:
    files = [ROOT / "Makefile", *(ROOT / "mk").glob("*.mk")]
    targets = set(re.findall(r"^([a-z-]+):", "".join(f.read_text() for f in files), re.M))
    assert set(re.findall(r"`make ([a-z-]+)`", README)) <= targets
