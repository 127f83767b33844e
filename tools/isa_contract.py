# SPDX-License-Identifier: Apache-2.0
"""Check the machine code inside libhiprdnaar.so against what the protocol needs of it.

For every kernel of every target:

  wide       payload goes to peers in stores of 16 bytes, and comes from the slab in loads of 16
  bypass     such loads, and all loads of a polling loop, bypass the caches that a peer's store does
             not reach: gfx10 glc dlc, gfx11 glc, gfx12 scope:SCOPE_SYS (stores too)
  drain      on no path does a flag go out while payload of the block may be on its way: between a
             payload store and a flag store every wave waits for its stores, then the block meets
  clock      a polling loop reads the real-time clock, and no kernel reads another clock
  modes      WGP mode, waves of 32, subnormals kept
  scratch    no stack, no spilled registers, no calls
  arguments  nothing but the call and the grid is passed: no hidden arguments

The contract is the same for any compiler. Registers, code size and the numbers of instructions are
kept beside it in a golden file, and compared when the library was made by the compiler that made
the file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from offload_bundle import code_objects
from rdna_code import CodeObject, Instruction, Kernel

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build" / "lib" / "libhiprdnaar.so"
GOLDEN = ROOT / "tests" / "isa" / "golden.json"

# Bits of a load that bypass the caches of a compute unit and a shader array.
BYPASS = {10: ("glc", "dlc"), 11: ("glc",), 12: ("scope:SCOPE_SYS",)}
CLOCKS = {10: "s_memrealtime", 11: "s_sendmsg_rtn_b64", 12: "s_sendmsg_rtn_b64"}
WIDE = ("dwordx4", "b128")
WORD64 = ("dwordx2", "b64")
# Vectors of a message that a thread of ll works on at once (GpuLane::kBatch); 1 elsewhere.
BATCH = {"w2": 4, "w4": 2, "w8": 1}


def family(target: str) -> int:
    return int(target.removeprefix("gfx")[:-2])


def width(instruction: Instruction) -> str:
    """ "dwordx4" of buffer_store_dwordx4."""
    return instruction.name.split("_", 2)[2]


def is_payload_store(i: Instruction) -> bool:
    return i.name.startswith("buffer_store")


def is_payload_load(i: Instruction) -> bool:
    return i.name.startswith("buffer_load")


def is_load(i: Instruction) -> bool:
    return re.match(r"(global|flat|buffer|scratch)_load", i.name) is not None


def is_word_store(i: Instruction) -> bool:
    """64 bits: what a flag is stored by."""
    return re.match(r"(global|flat)_store", i.name) is not None and width(i) in WORD64


def is_barrier(i: Instruction) -> bool:
    return i.name in ("s_barrier", "s_barrier_signal")


def is_clock(i: Instruction, gfx: int) -> bool:
    return i.name == CLOCKS[gfx] and (gfx == 10 or "REALTIME" in i.operands)


def is_store_wait(i: Instruction) -> bool:
    """Waits until all stores of the wave have arrived."""
    if i.name == "s_waitcnt_vscnt":
        return i.operands.split(",")[-1].strip() == "0x0"
    return i.name in ("s_wait_storecnt", "s_wait_storecnt_dscnt") and i.operands == "0x0"


def bypasses(i: Instruction, gfx: int) -> bool:
    return all(bit in i.operands.split() for bit in BYPASS[gfx])


# ---- The contract ------------------------------------------------------------------------------


def check_wide(kernel: Kernel, gfx: int) -> Iterator[str]:
    payload = [i for i in kernel.instructions if is_payload_store(i) or is_payload_load(i)]
    for i in payload:
        if width(i) not in WIDE:
            yield f"payload moves in less than 16 bytes: {i}"
    if not any(is_payload_store(i) for i in payload):
        yield "no payload store of 16 bytes"
    if not any(is_payload_load(i) for i in payload):
        yield "no payload load of 16 bytes"


def check_bypass(kernel: Kernel, gfx: int) -> Iterator[str]:
    for i in kernel.instructions:
        if is_payload_load(i) and not bypasses(i, gfx):
            yield f"a payload load may hit a cache: {i}"
        if gfx == 12 and is_payload_store(i) and not bypasses(i, gfx):
            yield f"a payload store may stay in a cache: {i}"
    for loop in polling_loops(kernel, gfx):
        for block in loop:
            for i in kernel.blocks[block].instructions:
                if is_load(i) and not is_payload_load(i) and not bypasses(i, gfx):
                    yield f"a poll may hit a cache: {i}"


def check_clock(kernel: Kernel, gfx: int) -> Iterator[str]:
    if not polling_loops(kernel, gfx):
        yield "no polling loop reads the real-time clock"
    for i in kernel.instructions:
        other = i.name == "s_memtime" or "SHADER_CYCLES" in i.operands
        if other or (i.name.startswith("s_sendmsg_rtn") and not is_clock(i, gfx)):
            yield f"a clock that stops, wraps or differs between units: {i}"


def polling_loops(kernel: Kernel, gfx: int) -> list[set[int]]:
    """The innermost loops that read the clock."""
    timed = [
        loop
        for loop in kernel.loops()
        if any(is_clock(i, gfx) for block in loop for i in kernel.blocks[block].instructions)
    ]
    return [loop for loop in timed if not any(other < loop for other in timed)]


# What a path has done with payload since its last store.
CLEAN, DRAINED, ON_ITS_WAY = 0, 1, 2


def check_drain(kernel: Kernel, gfx: int) -> Iterator[str]:
    if "_ll_" in kernel.name:
        return  # the payload is its own flag
    words = [i for i in kernel.instructions if is_word_store(i)]
    if not words:
        yield "no flag store"
    entry: list[int] = [-1] * len(kernel.blocks)  # worst state on any path; -1: not reached
    entry[0] = CLEAN
    work = [0]
    while work:
        index = work.pop()
        state = entry[index]
        for i in kernel.blocks[index].instructions:
            state = after(state, i)
        for successor in kernel.blocks[index].successors:
            if state > entry[successor]:
                entry[successor] = state
                work.append(successor)
    for index, block in enumerate(kernel.blocks):
        state = entry[index]
        for i in block.instructions:
            if is_word_store(i) and state == ON_ITS_WAY:
                yield f"a flag may overtake payload of its wave: {i}"
            if is_word_store(i) and state == DRAINED:
                yield f"a flag may overtake payload of another wave of its block: {i}"
            if is_barrier(i) and state == ON_ITS_WAY:
                yield f"a wave comes to the barrier with payload on its way: {i}"
            state = after(state, i)


def after(state: int, i: Instruction) -> int:
    if is_payload_store(i):
        return ON_ITS_WAY
    if is_store_wait(i) and state == ON_ITS_WAY:
        return DRAINED
    if is_barrier(i) and state == DRAINED:
        return CLEAN
    return state


def check_modes(kernel: Kernel, gfx: int) -> Iterator[str]:
    if not kernel.wgp_mode:
        yield "CU mode: a barrier does not wait for stores of sibling waves"
    if not kernel.wave32 or kernel.metadata[".wavefront_size"] != 32:
        yield "waves are not of 32 lanes"
    if not kernel.keeps_subnormals:
        yield "subnormals are flushed to zero"


def check_scratch(kernel: Kernel, gfx: int) -> Iterator[str]:
    for key in (".private_segment_fixed_size", ".sgpr_spill_count", ".vgpr_spill_count"):
        if kernel.metadata[key] != 0:
            yield f"{key.lstrip('.')} is {kernel.metadata[key]}"
    for i in kernel.instructions:
        if i.name.startswith(("scratch_", "s_swappc", "s_setpc")):
            yield f"stack or call: {i}"


def check_arguments(kernel: Kernel, gfx: int) -> Iterator[str]:
    kinds = [argument[".value_kind"] for argument in kernel.metadata[".args"]]
    if kinds != ["by_value", "by_value"]:
        yield f"arguments are {kinds}, not two values"


CHECKS = {
    "wide": check_wide,
    "bypass": check_bypass,
    "drain": check_drain,
    "clock": check_clock,
    "modes": check_modes,
    "scratch": check_scratch,
    "arguments": check_arguments,
}
# The probe measures with words too, and what it stores without a flag needs no drain.
PROBE_CHECKS = ("modes", "scratch", "arguments")


def violations(kernel: Kernel, gfx: int) -> list[str]:
    names = PROBE_CHECKS if kernel.name == "rdnaar_probe" else CHECKS
    return [f"{name}: {text}" for name in names for text in CHECKS[name](kernel, gfx)]


# ---- Figures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    vgprs: int
    sgprs: int
    lds_bytes: int
    code_bytes: int
    payload_stores: int  # instructions in the kernel
    payload_loads: int
    instructions: int


def figures(kernel: Kernel) -> Figures:
    return Figures(
        vgprs=kernel.metadata[".vgpr_count"],
        sgprs=kernel.metadata[".sgpr_count"],
        lds_bytes=kernel.metadata[".group_segment_fixed_size"],
        code_bytes=kernel.code_bytes,
        payload_stores=sum(map(is_payload_store, kernel.instructions)),
        payload_loads=sum(map(is_payload_load, kernel.instructions)),
        instructions=len(kernel.instructions),
    )


def batch(name: str) -> int:
    return BATCH[name.rsplit("_", 1)[1]] if "_ll_" in name else 1


Table = dict[str, dict[str, Figures]]  # target, kernel


def print_table(table: Table) -> None:
    head = ("target", "kernel", "vgpr", "sgpr", "lds", "code", "stores/16B", "loads/16B")
    print("{:8} {:26} {:>5} {:>5} {:>5} {:>6} {:>10} {:>9}".format(*head))
    for target, kernels in table.items():
        for name, f in kernels.items():
            stores, loads = f.payload_stores / batch(name), f.payload_loads / batch(name)
            print(
                f"{target:8} {name.removeprefix('rdnaar_'):26} {f.vgprs:5} {f.sgprs:5} "
                f"{f.lds_bytes:5} {f.code_bytes:6} {stores:10g} {loads:9g}"
            )


def write_golden(path: Path, compiler: str, table: Table) -> None:
    """One line a kernel, so that a change is a line in a diff."""
    targets = []
    for target, kernels in sorted(table.items()):
        rows = (
            f"   {json.dumps(name)}: {json.dumps(list(asdict(f).values()))}"
            for name, f in sorted(kernels.items())
        )
        targets.append(f"  {json.dumps(target)}: {{\n" + ",\n".join(rows) + "\n  }")
    columns = json.dumps(list(Figures.__dataclass_fields__))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'{{\n "compiler": {json.dumps(compiler)},\n "columns": {columns},\n "targets": {{\n'
        + ",\n".join(targets)
        + "\n }\n}\n"
    )


def differences(golden: Path, compiler: str, table: Table) -> Iterator[str]:
    expected = json.loads(golden.read_text())
    if expected["compiler"] != compiler:
        print(f"figures not compared: made by {compiler}, golden by {expected['compiler']}")
        return
    for target, kernels in table.items():
        rows = expected["targets"].get(target)
        if rows is None:
            print(f"figures not compared: {target} is not in the golden file")
            continue
        if set(rows) != set(kernels):
            yield f"{target}: kernels differ: {sorted(set(rows) ^ set(kernels))}"
        for name in sorted(set(rows) & set(kernels)):
            for column, seen, wanted in zip(
                expected["columns"], asdict(kernels[name]).values(), rows[name], strict=True
            ):
                if seen != wanted:
                    yield f"{target} {name}: {column} is {seen}, was {wanted}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", type=Path, nargs="?", default=LIBRARY)
    parser.add_argument("--golden", type=Path, default=GOLDEN)
    parser.add_argument("--update", action="store_true", help="write the golden file anew")
    arguments = parser.parse_args()
    table: Table = {}
    broken, compiler = [], "unknown"
    for target, content in code_objects(arguments.library).items():
        code = CodeObject(content)
        compiler = code.compiler()
        kernels = sorted(code.kernels(), key=lambda kernel: kernel.name)
        table[target] = {kernel.name: figures(kernel) for kernel in kernels}
        for kernel in kernels:
            broken += [f"{target} {kernel.name}: {v}" for v in violations(kernel, family(target))]
    print_table(table)
    if arguments.update:
        write_golden(arguments.golden, compiler, table)
    elif arguments.golden.exists():
        broken += differences(arguments.golden, compiler, table)
    for line in broken:
        print(line, file=sys.stderr)
    count = sum(len(kernels) for kernels in table.values())
    print(f"{count} kernels, {len(broken)} complaints")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
