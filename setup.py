# SPDX-License-Identifier: Apache-2.0
"""The build step that pyproject.toml cannot express: the host library goes into the wheel.

With it goes the digest of the sources, for `pyrdnaar info --strict` of an installed package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Command, Distribution, setup
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
        jobs = len(os.sched_getaffinity(0))
        subprocess.run(["make", f"-j{jobs}", "host"], cwd=ROOT, check=True)
        if not self.editable_mode:
            target = Path(self.build_lib) / "pyrdnaar" / "lib"
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(LIBRARY, target)
            (target / "source_digest").write_text(source_digest(), encoding="ascii")


def source_digest() -> str:
    command = [sys.executable, "-I", "pyrdnaar/source_digest.py", "libhiprdnaar"]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


class BuildElsewhere(build):
    """Keeps setuptools' files apart from make's, which are in build/."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = "build/python"


class PlatformWheel(bdist_wheel):
    """One wheel for every Python 3 of a platform: the library is loaded, not linked."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    """Tells setuptools that there is machine code, although it compiles none itself."""

    def has_ext_modules(self) -> bool:
        return True


COMMANDS: dict[str, type[Command]] = {
    "build": BuildElsewhere,
    "build_py": BuildWithLibrary,
    "bdist_wheel": PlatformWheel,
}

setup(cmdclass=COMMANDS, distclass=BinaryDistribution)
