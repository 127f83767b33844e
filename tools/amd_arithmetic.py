# SPDX-License-Identifier: Apache-2.0
"""What an all-reduce must cost on an AMD GPU, by arithmetic: nobody has measured it.

    python tools/amd_arithmetic.py [LIBRARY]

Prints two tables in Markdown. The first is read from the machine code: for each kernel the fewest
instructions of a wave between two vectors of 16 bytes a lane, in the loop that sends and in the
loop that sums, and the waves that its registers leave room for. The second adds what a link
carries. docs/amd.md holds both.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from isa_contract import LIBRARY, WIDE, batch, is_load, is_payload_load, is_payload_store, width
from offload_bundle import code_objects
from rdna_code import CodeObject, Instruction, Kernel

ALGOS = ("ll", "oneshot", "twoshot")
TARGETS = ("gfx1030", "gfx1100", "gfx1201")
WORLDS = (2, 4, 8)
SIZES = [1 << shift for shift in (12, 14, 16, 18, 20, 24)]

# Vector registers of a SIMD for waves of 32, how many are given out at a time, and the most waves
# of a SIMD: LLVM's AMDGPU target documentation, and the instruction set guides.
REGISTERS = {"gfx1030": (1024, 8, 16), "gfx1100": (1536, 24, 16), "gfx1201": (1536, 24, 16)}

# PCIe 4.0 x16: 16 GT/s, 128b/130b, 256-byte writes with 24 bytes around them leave 28.6 GB/s;
# planned with 25. One way through a switch or root complex: 0.7 to 1 us, planned with 1.
LINK_GB_S = 25.0
TRIP_US = 1.0
# gfx1030 as on the Radeon PRO V620: 72 compute units of 2 SIMDs, an instruction a cycle each. The
# clock is that of a card that is not boosted. The grid of a call is at most 256 waves.
SIMDS = 144
CLOCK_GHZ = 1.8
WAVES = 256
BYTES_PER_WAVE = 32 * 16


# ---- Instructions ------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Instructions of a wave for a vector of each lane; `reduce` is 0 where `fold` sums."""

    push: int
    reduce: int
    fold: int
    vgprs: int
    waves_per_simd: int

    def per_vector(self, world: int) -> float:
        """Of the message: twoshot sums a part of it on each rank, and moves the other parts."""
        if not self.reduce:
            return self.push + self.fold
        return ((self.push + self.fold) * (world - 1) + self.reduce) / world


def is_message_load(i: Instruction) -> bool:
    return is_load(i) and not is_payload_load(i) and width(i) in WIDE


def is_message_store(i: Instruction) -> bool:
    return i.name.startswith(("global_store", "flat_store")) and width(i) in WIDE


class Mark(NamedTuple):
    """What a way around a loop must meet, and how often."""

    is_met: Callable[[Instruction], bool]
    times: int = 1


def shortest_round(kernel: Kernel, *marks: Mark) -> int:
    """The fewest instructions of a way around a loop that meets all marks: whole, aligned vectors.

    Of the innermost loops that have what the marks ask for, the cheapest.
    """
    loops = [loop for loop in kernel.loops() if _has(kernel, loop, marks)]
    innermost = [loop for loop in loops if not any(other < loop for other in loops)]
    rounds = [r for loop in innermost if (r := _round(kernel, loop, marks))]
    if not rounds:
        raise SystemExit(f"{kernel.name}: no loop has {[m.is_met.__name__ for m in marks]}")
    return min(rounds)


def _has(kernel: Kernel, loop: set[int], marks: tuple[Mark, ...]) -> bool:
    inside = [i for block in loop for i in kernel.blocks[block].instructions]
    return all(sum(map(mark.is_met, inside)) >= mark.times for mark in marks)


def _round(kernel: Kernel, loop: set[int], marks: tuple[Mark, ...]) -> int:
    """Dijkstra over (block, how often each mark was met), from the header back to it; 0: no way."""
    blocks = kernel.blocks
    header = min(loop)
    queue = [(0, header, (0,) * len(marks))]
    ended = set()
    while queue:
        cost, block, before = heapq.heappop(queue)
        if (block, before) in ended:
            continue
        ended.add((block, before))
        code = blocks[block].instructions
        met = tuple(
            min(mark.times, seen + sum(map(mark.is_met, code)))
            for mark, seen in zip(marks, before, strict=True)
        )
        for successor in blocks[block].successors:
            if successor == header and all(
                seen == mark.times for mark, seen in zip(marks, met, strict=True)
            ):
                return cost + len(code)
            if successor in loop and successor != header:
                heapq.heappush(queue, (cost + len(code), successor, met))
    return 0


def cost(kernel: Kernel, target: str, algo: str, world: int) -> Cost:
    total, granule, most = REGISTERS[target]
    vgprs = kernel.metadata[".vgpr_count"]
    waves = min(most, total // (-(-vgprs // granule) * granule))
    each = batch(kernel.name)
    peers = each * (world - 1)
    load, store = Mark(is_message_load, each), Mark(is_message_store, each)
    if algo == "twoshot":
        push = shortest_round(kernel, load, Mark(is_payload_store))
        reduce = shortest_round(
            kernel, Mark(is_payload_load, peers), Mark(is_payload_store, peers), store
        )
        fold = shortest_round(kernel, Mark(is_payload_load), store)
    else:
        push = shortest_round(kernel, load, Mark(is_payload_store, peers))
        reduce = 0
        fold = shortest_round(kernel, Mark(is_payload_load, peers), store)
    return Cost(-(-push // each), reduce, -(-fold // each), vgprs, waves)


def costs(library: Path, dtype: str = "fp16") -> dict[tuple[str, str, int], Cost]:
    """By target, algorithm and world."""
    table = {}
    for target, content in code_objects(library).items():
        if target not in TARGETS:
            continue
        for kernel in CodeObject(content).kernels():
            for algo in ALGOS:
                for world in WORLDS:
                    if kernel.name == f"rdnaar_{algo}_{dtype}_add_w{world}":
                        table[target, algo, world] = cost(kernel, target, algo, world)
    return table


# ---- The link ----------------------------------------------------------------------------------


def bytes_sent(algo: str, world: int, nbytes: int) -> int:
    """By each rank; ll and oneshot send the message to every peer, twoshot a part of it twice."""
    if algo == "twoshot":
        return 2 * (world - 1) * -(-nbytes // world)
    return (world - 1) * nbytes


def trips(algo: str) -> int:
    """One-way trips that a rank waits for, one after the other.

    A flag goes out when the payload has arrived, which the sender learns a trip later.
    """
    return {"ll": 1, "oneshot": 3, "twoshot": 6}[algo]


def link_us(algo: str, world: int, nbytes: int) -> float:
    return bytes_sent(algo, world, nbytes) / LINK_GB_S / 1e3 + trips(algo) * TRIP_US


def issue_us(instructions: Cost, world: int, nbytes: int) -> float:
    """If no wave ever waited: the waves of the grid, dealt over the SIMDs."""
    vectors = -(-nbytes // BYTES_PER_WAVE)
    busy = min(SIMDS, WAVES, vectors)
    return vectors * instructions.per_vector(world) / busy / CLOCK_GHZ / 1e3


# ---- Tables ------------------------------------------------------------------------------------


def instruction_table(table: dict[tuple[str, str, int], Cost]) -> Iterator[str]:
    yield "| target | algorithm | W | send | sum and send | sum or collect | VGPRs | waves |"
    yield "|---|---|---|---|---|---|---|---|"
    for (target, algo, world), c in sorted(table.items()):
        cells = (target, algo, world, c.push, c.reduce or "-", c.fold, c.vgprs, c.waves_per_simd)
        yield f"| {' | '.join(map(str, cells))} |"


def link_table(table: dict[tuple[str, str, int], Cost]) -> Iterator[str]:
    names = [f"{what}: {algo}" for what in ("link", "issue") for algo in ALGOS]
    yield f"| bytes | W | sent: ll, oneshot | sent: twoshot | {' | '.join(names)} |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for nbytes in SIZES:
        for world in WORLDS:
            sent = [str(bytes_sent(algo, world, nbytes)) for algo in ("oneshot", "twoshot")]
            link = [f"{link_us(algo, world, nbytes):.1f}" for algo in ALGOS]
            costs = [table["gfx1030", algo, world] for algo in ALGOS]
            issue = [f"{issue_us(c, world, nbytes):.1f}" for c in costs]
            yield f"| {nbytes} | {world} | {' | '.join([*sent, *link, *issue])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", type=Path, nargs="?", default=LIBRARY)
    table = costs(parser.parse_args().library)
    print("\n".join([*instruction_table(table), "", *link_table(table)]))


if __name__ == "__main__":
    main()
