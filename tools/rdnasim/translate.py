# SPDX-License-Identifier: Apache-2.0
"""Translate a code object of an RDNA GPU into a program for the simulator.

    python3 translate.py CODE_OBJECT PROGRAM

The stand-in runtime runs this when a module is loaded for the first time; it keeps the program in
its cache under the hash of the code object. The disassembler is llvm-objdump; what the text of an
instruction means is put into operations here, what an operation does is in engine/.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import program
import rdna_code
from operands import HIGH_HALF, LOW_BYTE, NAMED, NONE, Kind, Operand, Unknown, parse, split
from program import Argument, Kernel, Operation
from rdna_code import CodeObject, Instruction

# Hints to the hardware, without any effect on results. Waits for results of the vector unit
# (depctr, wait_alu) are among them: no operation here has a result later.
HINTS = {
    "s_nop", "s_clause", "s_delay_alu", "s_inst_prefetch", "s_set_inst_prefetch_distance",
    "s_code_end", "s_waitcnt_depctr", "s_wait_alu", "s_setprio",
}  # fmt: skip

ACCESS = re.compile(r"(global|flat|buffer)_(load|store|atomic)_")
SHARED = re.compile(r"ds_(load|read|store|write)_")
# Vector instructions that write a mask or carry beside their result.
TWO_RESULTS = re.compile(
    r"v_(add|sub|subrev)_co(_ci)?_u32|v_mad_(co_)?[ui]64_[ui]32|v_div_scale_f32"
)
COUNTERS = {"vmcnt": 0, "lgkmcnt": 1, "vscnt": 2, "expcnt": 3}
HIDDEN_VGPR = 256  # registers that no instruction can name


def translate(content: bytes) -> bytes:
    code = CodeObject(content)
    target = code.metadata()["amdhsa.target"].split("--")[1].split(":")[0]
    return program.pack(target, [translate_kernel(kernel) for kernel in code.kernels()])


def translate_kernel(kernel: rdna_code.Kernel) -> Kernel:
    if not kernel.wave32:
        raise Unknown(f"{kernel.name} has waves of 64 lanes")
    if not kernel.keeps_subnormals:
        raise Unknown(f"{kernel.name} flushes subnormals")
    if kernel.metadata[".private_segment_fixed_size"] != 0:
        raise Unknown(f"{kernel.name} has scratch memory")
    operations: list[Operation] = []
    starts: dict[int, int] = {}  # address to the number of its first operation
    for instruction in kernel.instructions:
        starts[instruction.address] = len(operations)
        try:
            operations += expand(instruction)
        except (Unknown, IndexError, KeyError) as error:
            raise Unknown(f"{kernel.name}: {instruction}: {error!r}") from error
    meta = kernel.metadata
    (rsrc2,) = struct.unpack_from("<I", kernel.descriptor, 52)
    (properties,) = struct.unpack_from("<H", kernel.descriptor, 56)
    return Kernel(
        kernel.name,
        [replace(o, target=starts[o.target]) if o.target else o for o in operations],
        meta[".kernarg_segment_size"],
        meta[".group_segment_fixed_size"],
        meta[".private_segment_fixed_size"],
        meta[".vgpr_count"],
        rsrc2,
        properties,
        [Argument(a[".offset"], a[".size"], a[".value_kind"]) for a in meta.get(".args", ())],
    )


def expand(instruction: Instruction) -> list[Operation]:
    """The operations of one instruction: none for a hint, two for a dual one."""
    if instruction.name in HINTS:
        return []
    if "::" in instruction.operands:
        return _dual(instruction)
    return [_operation(instruction)]


def _operation(i: Instruction) -> Operation:
    operands, modifiers = _modifiers(i.operands)
    if ACCESS.match(i.name):
        return _access(i, operands, modifiers)
    if SHARED.match(i.name):
        return _shared(i, operands, modifiers)
    if i.name.startswith("s_load_"):
        return _scalar_load(i, operands, modifiers)
    if i.name.startswith("v_"):
        return _vector(i, operands, modifiers)
    if i.name.startswith(
        ("s_wait", "s_branch", "s_cbranch", "s_sendmsg", "global_", "buffer_")
    ) or (i.name in ("s_sleep", "s_endpgm", "s_barrier", "s_barrier_signal", "s_barrier_wait")):
        return _control(i)
    return _scalar(i, operands, modifiers)


def _modifiers(text: str) -> tuple[list[str], list[str]]:
    """Operands, and the words that follow the last one."""
    operands = split(text)
    if not operands:
        return [], []
    if len(operands) == 1 and re.match(r"([a-z_]+:\S+|glc|slc|dlc)( |$)", operands[0]):
        return [], operands[0].split()
    last, *modifiers = operands[-1].split()
    return [*operands[:-1], last], modifiers


def _none(i: Instruction, modifiers: list[str]) -> None:
    if modifiers:
        raise Unknown(f"modifier {modifiers[0]}")


# ---- Scalar instructions -----------------------------------------------------------------------


def _scalar(i: Instruction, operands: list[str], modifiers: list[str]) -> Operation:
    _none(i, modifiers)
    parsed = [parse(text) for text in operands]
    if i.name.startswith(("s_cmp", "s_bitcmp")):
        return Operation(i.name, i.address, sources=tuple(parsed))
    return Operation(i.name, i.address, parsed[0], sources=tuple(parsed[1:]))


def _scalar_load(i: Instruction, operands: list[str], modifiers: list[str]) -> Operation:
    flags, offset = _policy(modifiers)
    destination, base, *rest = operands
    at = parse(rest[0]) if rest else NONE
    if at.kind is Kind.SCALAR and at.register == NAMED["null"]:
        at = NONE
    return Operation(
        i.name, i.address, parse(destination), sources=(parse(base), at), flags=flags, offset=offset
    )


def _control(i: Instruction) -> Operation:
    if i.name == "s_waitcnt":
        return Operation(i.name, i.address, sources=_counters(i.operands))
    if i.name.startswith("s_sendmsg_rtn"):
        destination, message = split(i.operands)
        if message != "sendmsg(MSG_RTN_GET_REALTIME)":
            raise Unknown(message)
        return Operation(i.name, i.address, parse(destination))
    if i.name == "s_sendmsg":
        if i.operands != "sendmsg(MSG_DEALLOC_VGPRS)":
            raise Unknown(i.operands)
        return Operation(i.name, i.address)
    if i.target is not None:
        return Operation(i.name, i.address, target=i.target)
    scope = re.search(r"scope:SCOPE_(\w+)", i.operands)
    flags = _scope(scope[1]) if scope else 0
    numbers = [int(n, 0) for n in re.findall(r"-?(?:0x[0-9a-f]+|\d+)", i.operands)]
    return Operation(i.name, i.address, flags=flags, offset=numbers[-1] if numbers else 0)


def _counters(text: str) -> tuple[Operand, ...]:
    """vmcnt and lgkmcnt of s_waitcnt; one that is not named is not waited for."""
    limits = [Operand(Kind.CONSTANT, value=0xFFFF)] * 2
    if text.strip() == "0":
        text = "vmcnt(0) lgkmcnt(0)"
    for name, count in re.findall(r"(\w+)\((\d+)\)", text):
        if COUNTERS[name] < 2:
            limits[COUNTERS[name]] = Operand(Kind.CONSTANT, value=int(count))
    return tuple(limits)


# ---- Vector instructions -----------------------------------------------------------------------


def _vector(i: Instruction, operands: list[str], modifiers: list[str]) -> Operation:
    is_half = re.findall(r"[a-z]+\d+", i.name)[-1] == "f16"
    parsed = [parse(text, is_half) for text in operands]
    _select(parsed, modifiers)
    second = NONE
    if i.name.startswith("v_cmpx_"):  # writes exec, which some versions name
        if parsed[0] == parse("exec_lo"):
            parsed = parsed[1:]
        return Operation(i.name, i.address, sources=tuple(parsed))
    destination, *sources = parsed
    if TWO_RESULTS.fullmatch(i.name):
        second, *sources = sources
    if i.name == "v_cndmask_b32" and len(sources) == 2:
        sources.append(parse("vcc_lo"))
    if i.name == "v_div_fmas_f32":
        sources.append(parse("vcc_lo"))
    return Operation(i.name, i.address, destination, second, tuple(sources))


def _select(parsed: list[Operand], modifiers: list[str]) -> None:
    """The sub-word selections that the library's code has."""
    for modifier in modifiers:
        if match := re.fullmatch(r"src([01])_sel:(WORD_1|BYTE_0)", modifier):
            at = 1 + int(match[1])
            part = HIGH_HALF if match[2] == "WORD_1" else LOW_BYTE
            parsed[at] = replace(parsed[at], modifiers=parsed[at].modifiers | part)
        elif not re.fullmatch(r"(dst_sel|src[01]_sel):DWORD|dst_unused:UNUSED_PAD", modifier):
            raise Unknown(f"modifier {modifier}")


def _dual(i: Instruction) -> list[Operation]:
    """Both halves read their sources before either writes."""
    halves = []
    for text in f"{i.name} {i.operands}".split("::"):
        name, operands = text.strip().split(maxsplit=1)
        half = Instruction(i.address, name.replace("v_dual_", "v_"), operands)
        halves.append(_operation(half))
    first, second = halves
    if not any(s.covers(first.destination.register) for s in second.sources):
        return [first, second]
    saves, sources = [], []
    for number, source in enumerate(second.sources):
        if source.covers(first.destination.register):
            hidden = Operand(Kind.VECTOR, HIDDEN_VGPR + number, 1)
            saves.append(
                Operation("v_mov_b32", i.address, hidden, sources=(replace(source, modifiers=0),))
            )
            source = replace(hidden, modifiers=source.modifiers)
        sources.append(source)
    return [*saves, first, replace(second, sources=tuple(sources))]


# ---- Memory ------------------------------------------------------------------------------------


def _scope(name: str) -> int:
    return ("CU", "SE", "DEV", "SYS").index(name) << program.SCOPE_SHIFT


def _policy(modifiers: list[str]) -> tuple[int, int]:
    """Flags and offset of an access."""
    flags, offset = 0, 0
    words = {
        "glc": program.GLC, "dlc": program.DLC, "slc": program.SLC, "offen": program.OFFEN,
        "th:TH_ATOMIC_RETURN": program.RETURNS,
    }  # fmt: skip
    for modifier in modifiers:
        if modifier in words:
            flags |= words[modifier]
        elif match := re.fullmatch(r"offset:(-?\w+)", modifier):
            offset = int(match[1], 0)
        elif match := re.fullmatch(r"scope:SCOPE_(\w+)", modifier):
            flags |= _scope(match[1])
        else:
            raise Unknown(f"modifier {modifier}")
    return flags, offset


def _access(i: Instruction, operands: list[str], modifiers: list[str]) -> Operation:
    flags, offset = _policy(modifiers)
    is_load, is_atomic = "_load_" in i.name, "_atomic_" in i.name
    if is_atomic and flags & program.GLC and not flags & program.RETURNS:
        flags |= program.RETURNS  # gfx10, gfx11
    parsed = [NONE if text == "off" else parse(text) for text in operands]
    destination = parsed.pop(0) if is_load or flags & program.RETURNS else NONE
    if i.name.startswith("buffer_"):
        # data, offset, descriptor, scalar offset
        data = NONE if is_load else parsed.pop(0)
        address, descriptor, scalar = parsed
        if not flags & program.OFFEN and address.kind is not Kind.NONE:
            raise Unknown("an index")
        return Operation(
            i.name, i.address, destination, sources=(address, data, descriptor, scalar),
            flags=flags, offset=offset,
        )  # fmt: skip
    address = parsed.pop(0)
    data = NONE if is_load else parsed.pop(0)
    base = parsed.pop(0) if parsed else NONE
    if address.value == 1:
        flags |= program.MARKED_ADDRESS
    return Operation(
        i.name, i.address, destination, sources=(address, data, base), flags=flags, offset=offset
    )


def _shared(i: Instruction, operands: list[str], modifiers: list[str]) -> Operation:
    flags, offset = _policy(modifiers)
    parsed = [parse(text) for text in operands]
    if re.match(r"ds_(load|read)_", i.name):
        return Operation(
            i.name, i.address, parsed[0], sources=(parsed[1],), flags=flags, offset=offset
        )
    return Operation(i.name, i.address, sources=tuple(parsed), flags=flags, offset=offset)


def main() -> int:
    source, destination = map(Path, sys.argv[1:])
    try:
        translated = translate(source.read_bytes())
    except Unknown as error:
        print(f"rdnasim: cannot translate: {error}", file=sys.stderr)
        return 1
    # Several processes may translate the same object at once: each file appears whole.
    whole = destination.with_suffix(f".{os.getpid()}.tmp")
    whole.write_bytes(translated)
    whole.rename(destination)
    return 0


if __name__ == "__main__":
    sys.exit(main())
