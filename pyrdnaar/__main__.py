# SPDX-License-Identifier: Apache-2.0
"""`python -m pyrdnaar`."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="pyrdnaar")
