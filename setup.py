# SPDX-License-Identifier: Apache-2.0
"""The build step that pyproject.toml cannot express: the host library goes into the wheel."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
LIBRARY = ROOT / "build" / "lib" / "libhiprdnaar_host.so"


class BuildWithLibrary(build_py):
    """Compiles the library with make and copies it to pyrdnaar/lib/ of what is built.

    An editable install takes it from build/lib/, where the loader looks in a checkout.
    """

    def run(self) -> None:
        super().run()
        subprocess.run(["make", "host"], cwd=ROOT, check=True)
        if not self.editable_mode:
            target = Path(self.build_lib) / "pyrdnaar" / "lib"
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(LIBRARY, target)


class BuildElsewhere(build):
    """Keeps setuptools' files apart from make's, which are in build/."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = "build/python"


class PlatformWheel(bdist_wheel):
    """One wheel for every Python 3 of a platform: the library is loaded, not linked."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


COMMANDS: dict[str, type[Command]] = {
    "build": BuildElsewhere,
    "build_py": BuildWithLibrary,
    "bdist_wheel": PlatformWheel,
}

setup(cmdclass=COMMANDS)
