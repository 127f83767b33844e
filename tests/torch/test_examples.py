# SPDX-License-Identifier: Apache-2.0
"""The examples run as their README says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("lib")


def test_tensor_parallel_mlp() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4",
         str(ROOT / "examples" / "mlp_tp.py")],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("gloo", "pyrdnaar"):
        line = next(line for line in done.stdout.splitlines() if line.lstrip().startswith(name))
        assert "the same bits on 4 ranks" in line
