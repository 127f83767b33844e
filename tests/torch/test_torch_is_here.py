# SPDX-License-Identifier: Apache-2.0
"""Says why the other tests of this folder did not run."""

from __future__ import annotations

import importlib.util
import os

import pytest


def test_torch_is_installed() -> None:
    try:
        found = importlib.util.find_spec("torch.distributed")
    except ModuleNotFoundError:
        found = None
    if found is None:
        refuse = pytest.fail if "CI" in os.environ else pytest.skip
        refuse("torch is not installed: pip install 'torch==2.13.*', then the adapters are tested")
