# SPDX-License-Identifier: Apache-2.0
"""The examples run as README and docs/serving.md say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("lib")


def _torchrun(ranks: int, script: Path) -> str:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*torchrun, str(script)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_tensor_parallel_mlp() -> None:
    printed = _torchrun(4, ROOT / "examples" / "mlp_tp.py")
    for name in ("gloo", "pyrdnaar"):
        line = next(line for line in printed.splitlines() if line.lstrip().startswith(name))
        assert "the same bits on 4 ranks" in line


def test_the_documents_example(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "serving.md").read_text(), re.S | re.M
    )
    script = tmp_path / "example.py"
    script.write_text("\n".join(blocks))
    printed = _torchrun(2, script)
    assert printed == "[3.0, 3.0, 3.0, 3.0] [6.0, 6.0, 6.0, 6.0] False True\n"
