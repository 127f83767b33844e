# SPDX-License-Identifier: Apache-2.0
"""The arithmetic about AMD GPUs: that the page shows what the code says, and how it is counted."""

from __future__ import annotations

import json
from dataclasses import dataclass

import amd_arithmetic
import pytest
from amd_arithmetic import Mark, shortest_round
from isa_contract import GOLDEN, LIBRARY, ROOT
from offload_bundle import code_objects
from rdna_code import Block, CodeObject, Instruction, Kernel, find_objdump


def test_the_page_shows_what_the_code_says() -> None:
    if find_objdump() is None or not LIBRARY.exists():
        pytest.skip("needs `make hip` and llvm-objdump")
    objects = code_objects(LIBRARY)
    if not set(amd_arithmetic.TARGETS) <= set(objects):
        pytest.skip(f"{LIBRARY} was built for {', '.join(objects)} only")
    compiler = CodeObject(objects["gfx1030"]).compiler()
    if compiler != json.loads(GOLDEN.read_text())["compiler"]:
        pytest.skip(f"made by {compiler}, which is not the compiler of the page")
    table = amd_arithmetic.costs(LIBRARY)
    assert len(table) == 27
    page = (ROOT / "docs" / "amd.md").read_text().splitlines()
    shown = [line for line in page if line.startswith("|")]
    assert shown == [*amd_arithmetic.instruction_table(table), *amd_arithmetic.link_table(table)]


@dataclass(frozen=True)
class _Graph:
    """As much of a Kernel as the count looks at."""

    blocks: list[Block]
    name: str = "graph"
    loops = Kernel.loops
    _dominators = Kernel._dominators


def _block(code: str, *successors: int) -> Block:
    return Block([Instruction(0, name, "") for name in code.split()], list(successors))


def test_the_shortest_way_that_meets_all_marks() -> None:
    kernel = _Graph(
        [
            _block("enter", 1),
            _block("test branch", 2, 3),  # the header of the loop
            _block("load add add", 4),
            _block("skip", 5),  # shorter, and loads nothing
            _block("add store branch", 5, 4),  # a loop of its own
            _block("back", 1, 6),
            _block("leave"),
        ]
    )

    def is_load(i: Instruction) -> bool:
        return i.name == "load"

    def is_store(i: Instruction) -> bool:
        return i.name == "store"

    def count(*marks: Mark) -> int:
        return shortest_round(kernel, *marks)  # type: ignore[arg-type]

    assert count(Mark(is_store)) == 3, "the inner loop"
    assert count(Mark(is_load)) == 9
    assert count(Mark(is_load), Mark(is_store)) == 9
    with pytest.raises(SystemExit, match="no loop has"):
        count(Mark(is_load, 2))


def test_bytes_and_trips() -> None:
    assert amd_arithmetic.bytes_sent("oneshot", 4, 1000) == 3000
    assert amd_arithmetic.bytes_sent("twoshot", 4, 1000) == 1500
    # 25,000 bytes take a microsecond, and so does a trip.
    assert amd_arithmetic.link_us("ll", 2, 25_000) == pytest.approx(2.0)
    assert amd_arithmetic.link_us("twoshot", 2, 25_000) == pytest.approx(7.0)
