# SPDX-License-Identifier: Apache-2.0
"""The command line, `pyrdnaar`. Each command is in its own file.

Data goes to stdout, everything else to stderr. Exit codes: 0 ok, 1 a check failed, 2 usage, 3 no
usable hardware or library.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Any

import click

from .._version import __version__
from ..errors import RdnaarError
from .ab import ab
from .bench import bench
from .demo import demo
from .env import env
from .info import info
from .probe import probe
from .qualify import qualify
from .selftest import selftest
from .wedge import wedge


class _Group(click.Group):
    """Ends on a RdnaarError with its message on stderr and its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RdnaarError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # click's: the reader has seen enough
            _give_up_stdout()
            raise click.ClickException(str(error)) from None  # a full disk behind stdout, say


def _give_up_stdout() -> None:
    """What is still buffered would be written at exit, fail again, and change the exit code."""
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="pyrdnaar", prog_name="pyrdnaar")
def main() -> None:
    """All-reduce over the 2 to 8 devices of one machine.

    Sizes may end in K, M or G, which are powers of 1024. Exit codes: 0 ok, 1 a check failed,
    2 usage, 3 no usable hardware or library.
    """


for _command in (demo, info, env, selftest, probe, bench, ab, wedge, qualify):
    main.add_command(_command)
