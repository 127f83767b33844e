# SPDX-License-Identifier: Apache-2.0
"""Small messages on CPUs: no call may come to cost more instructions without anybody noticing.

Time on a shared machine says little; instructions are the same each time. Whoever changes their
number on purpose, up or down, writes the new one into golden.json.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

PROGRAM = os.environ.get("HOST_PATH")
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
TOLERANCE = 0.05

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs valgrind: make test-instructions")


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The least that callgrind has counted, by algorithm and bytes."""
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("the golden values are those of the AVX2 kernels")
    folder = tmp_path_factory.mktemp("callgrind")
    out = folder / "profile"
    tool = ["valgrind", "-q", "--tool=callgrind", "--collect-atstart=no"]
    command = [*tool, f"--callgrind-out-file={out}", str(Path(str(PROGRAM)).resolve())]
    subprocess.run(command, check=True, timeout=120)
    seen: dict[str, int] = {}
    for path in folder.iterdir():
        text = path.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
        total = re.search(r"^summary: (\d+)", text, re.MULTILINE)
        if name and total:
            seen[name[1]] = min(int(total[1]), seen.get(name[1], 1 << 62))
    return seen


def test_every_message_was_counted(counts: dict[str, int]) -> None:
    assert sorted(counts) == sorted(GOLDEN["counts"])
    print("\n", json.dumps(counts, indent=1))


@pytest.mark.parametrize("message", list(GOLDEN["counts"]))
def test_instructions_are_those_of_the_golden_file(counts: dict[str, int], message: str) -> None:
    golden = GOLDEN["counts"][message]
    assert abs(counts[message] - golden) <= TOLERANCE * golden, (
        f"{message} takes {counts[message]} instructions, the golden file says {golden}"
    )
