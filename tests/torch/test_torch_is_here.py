# SPDX-License-Identifier: Apache-2.0
"""Says why the other tests of this folder did not run."""

from __future__ import annotations

import os

import pytest
from conftest import HAS_TORCH


def test_torch_is_installed() -> None:
    if not HAS_TORCH:
        refuse = pytest.fail if "CI" in os.environ else pytest.skip
        refuse("torch is not installed: pip install torch==2.13.0, then the adapters are tested")
