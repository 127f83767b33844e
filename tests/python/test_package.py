# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: versions, licence lines, what it exports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import HEADER, ROOT

import pyrdnaar

SOURCES = sorted([*(ROOT / "pyrdnaar").rglob("*.py"), *(ROOT / "tests" / "python").glob("*.py")])


def test_package_and_library_have_one_version() -> None:
    version = re.search(r'RDNAAR_VERSION_STRING "([^"]+)"', HEADER.read_text())
    assert version
    assert version[1] == pyrdnaar.__version__


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_names_its_licence(source: Path) -> None:
    assert source.read_text().startswith("# SPDX-License-Identifier: Apache-2.0\n")


def test_everything_exported_exists_and_is_documented() -> None:
    for name in pyrdnaar.__all__:
        thing = getattr(pyrdnaar, name)
        assert name == "__version__" or thing.__doc__, name


def test_it_says_that_it_is_typed() -> None:
    assert (ROOT / "pyrdnaar" / "py.typed").exists()
