# SPDX-License-Identifier: Apache-2.0
"""Every instruction that the library's code objects have, on one wave, against numpy.

For each target and name, one example of each form of its operands is taken out of the library's own
code and run with random and with interesting registers: subnormals, NaN, infinities, ties. What is
about memory is run on memory of the test. What neither has a reference fails the test by its name.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import numpy as np
import offload_bundle
import pytest
import translate
from operands import ABSOLUTE, HIGH_HALF, LOW_BYTE, NEGATE, Kind, Operand
from program import Operation
from rdna_code import CodeObject, Instruction

from . import reference_values as reference
from .conftest import LIBRARY, MODELS, ROOT, Tables
from .one_wave import EXEC, LANES, VCC, Snippet, Wave, instruction_names, run

Array = np.ndarray[Any, Any]

ROUNDS = 8
INTERESTING = np.array(
    [
        0, 1, 2, 31, 32, 63, 0x7F, 0xFF, 0xFFFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
        0xFFFFFFFE,
        0x3F800000, 0xBF800000, 0x3F000000, 0x40000000, 0x40400000, 0x7F800000, 0xFF800000,
        0x7FC00000, 0xFFC00000, 0x7F800001, 0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF,
        0x4F7FFFFF, 0x4F800000, 0xCF000000, 0x477FE000, 0x477FF000, 0x33800000, 0x33000000,
        0x33000001, 0x38800000, 0x387FC000, 0x387FE000, 0x3C003C01, 0x7C00FC00, 0x7E007C01,
        0x03FF0001, 0x04008001, 0x7BFFFBFF, 0x42FE0000, 0x3F801000, 0x3F803000,
    ],
    np.uint32,
)  # fmt: skip

# Division's three helpers are judged by what they are for: see test_division.
DIVISION = {"v_div_scale_f32", "v_div_fmas_f32", "v_div_fixup_f32"}
MEMORY = re.compile(r"(global|flat|buffer)_(load|store|atomic)|ds_|s_load_")
# What the schedulers' and memory models' tests are about; here they only have to be known.
CONTROL = re.compile(
    r"s_(branch|cbranch|endpgm|sleep|barrier|wait|sendmsg|memrealtime)|(buffer|global)_(gl\d_)?(inv|wb)"
)


@functools.cache
def instructions(target: str) -> tuple[Instruction, ...]:
    code = CodeObject(offload_bundle.code_objects(LIBRARY)[target])
    return tuple(i for kernel in code.kernels() for i in kernel.instructions)


def halves(i: Instruction) -> list[Instruction]:
    if "::" not in i.operands:
        return [i]
    parts = (text.strip().split(maxsplit=1) for text in f"{i.name} {i.operands}".split("::"))
    return [Instruction(i.address, n.replace("v_dual_", "v_"), rest) for n, rest in parts]


def form(i: Instruction) -> str:
    """The operands without their numbers."""
    return re.sub(
        r"(\b(?:v|s|ttmp))[\d\[:\]]+", r"\1", re.sub(r"0x[0-9a-f]+", "literal", i.operands)
    )


def examples(target: str) -> dict[tuple[str, str], Instruction]:
    found: dict[tuple[str, str], Instruction] = {}
    for i in instructions(target):
        if i.name not in translate.HINTS:
            found.setdefault((i.name, form(i)), i)
    return found


# ---- Reading and writing registers ---------------------------------------------------------------


def words(wave: Wave, o: Operand, at: int = 0) -> Array:
    """A register of the operand on all lanes."""
    if o.kind is Kind.VECTOR:
        return wave.vectors[o.register + at].copy()
    return np.full(LANES, scalar(wave, o, at), np.uint32)


def scalar(wave: Wave, o: Operand, at: int = 0) -> int:
    if o.kind is Kind.CONSTANT:
        return o.value if at == 0 else 0xFFFFFFFF if o.register else 0
    return 0 if o.register == 124 else int(wave.scalars[o.register + at])


def value(wave: Wave, o: Operand, kind: str) -> Array:
    low = words(wave, o)
    if kind == "U":
        return low.astype(np.uint64) | words(wave, o, 1).astype(np.uint64) << np.uint64(32)
    if kind == "m":
        return scalar(wave, o) >> np.arange(LANES) & 1 == 1
    if o.modifiers & HIGH_HALF:
        low = low >> np.uint32(16)
    if o.modifiers & LOW_BYTE:
        low = low & np.uint32(0xFF)
    result = {
        "u": lambda: low,
        "f": lambda: low.view(np.float32),
        "h": lambda: low.astype(np.uint16).view(np.float16),
    }[kind]()
    if o.modifiers & ABSOLUTE:
        result = np.abs(result)
    return -result if o.modifiers & NEGATE else result


def write(wave: Wave, before: Wave, o: Operand, kind: str, result: Array) -> None:
    """On the lanes that are on."""
    on = before.lanes()
    if kind == "h":
        bits = result.view(np.uint16).astype(np.uint32)
        bits |= before.vectors[o.register] & np.uint32(0xFFFF0000)
    elif kind == "U":
        high = (result >> np.uint64(32)).astype(np.uint32)
        wave.vectors[o.register + 1][on] = high[on]
        bits = result.astype(np.uint32)
    else:
        bits = result.view(np.uint32)
    wave.vectors[o.register][on] = bits[on]


def mask(bits: Array, on: Array) -> int:
    return int(sum(1 << lane for lane in range(LANES) if bits[lane] and on[lane]))


def write_scalar(wave: Wave, o: Operand, result: int) -> None:
    if o.register == 124:
        return
    for at in range(o.value):
        wave.scalars[o.register + at] = result >> 32 * at & 0xFFFFFFFF


# ---- The reference on a wave ---------------------------------------------------------------------


def apply(before: Wave, after: Wave, o: Operation) -> bool:
    """Changes `after` as the reference says. False: there is none."""
    name, sources = o.name, o.sources
    if name in reference.VECTOR or name in reference.ACCUMULATING:
        kinds, result, function = (reference.VECTOR | reference.ACCUMULATING)[name]
        if name in reference.ACCUMULATING:
            sources = (*sources, o.destination)
        given = [value(before, s, k) for s, k in zip(sources, kinds, strict=True)]
        write(after, before, o.destination, result, function(*given))
    elif name in reference.COMPARISONS:
        kind, test = reference.COMPARISONS[name]
        bits = mask(test(*(value(before, s, kind) for s in sources)), before.lanes())
        if name.startswith("v_cmpx"):
            after.scalars[EXEC] = bits
        else:
            write_scalar(after, o.destination, bits)
    elif name in reference.CARRIES:
        a, b = (value(before, s, "u") for s in sources[:2])
        carry = value(before, sources[2], "m") if len(sources) > 2 else np.zeros(LANES, bool)
        total, out = reference.CARRIES[name](a, b, carry)
        write(after, before, o.destination, "u", total)
        write_scalar(after, o.second, mask(out, before.lanes()))
    elif name in ("v_mad_u64_u32", "v_mad_co_u64_u32"):
        a, b = (value(before, s, "u").astype(object) for s in sources[:2])
        exact = a * b + value(before, sources[2], "U").astype(object)
        total = np.array([int(x) & reference.M64 for x in exact], np.uint64)
        write(after, before, o.destination, "U", total)
        write_scalar(
            after, o.second, mask(np.array([x > reference.M64 for x in exact]), before.lanes())
        )
    elif name == "v_readfirstlane_b32":
        on = np.flatnonzero(before.lanes())
        first = int(on[0]) if on.size else 0
        write_scalar(after, o.destination, int(value(before, sources[0], "u")[first]))
    elif name in reference.SCALAR:
        kinds, compute = reference.SCALAR[name]
        result_, scc = compute(before.scc, *scalars(before, sources, kinds))
        write_scalar(after, o.destination, result_)
        after.scc = after.scc if scc is None else scc
    elif name in reference.CONDITIONS:
        kinds, test_ = reference.CONDITIONS[name]
        after.scc = int(test_(*scalars(before, sources, kinds)))
    elif name in reference.SAVING:
        old = int(before.scalars[EXEC])
        new = reference.SAVING[name](scalar(before, sources[0]), old)
        write_scalar(after, o.destination, old)
        after.scalars[EXEC], after.scc = new, int(new != 0)
    else:
        return False
    return True


def scalars(wave: Wave, sources: tuple[Operand, ...], kinds: str) -> Iterator[int]:
    for source, kind in zip(sources, kinds, strict=True):
        high = scalar(wave, source, 1) << 32 if kind == "w" else 0
        yield scalar(wave, source) | high


def same(seen: Array, wanted: Array) -> Array:
    """Equal bits. Two NaN, as floats or pairs of halves, are as good as each other: which payload
    an instruction gives is left open."""
    nans = np.isnan(seen.view(np.float32)) & np.isnan(wanted.view(np.float32))
    half = (seen & 0x7C00) == 0x7C00, (wanted & 0x7C00) == 0x7C00
    half_nans = half[0] & half[1] & ((seen & 0x3FF) != 0) & ((wanted & 0x3FF) != 0)
    upper = seen & np.uint32(0xFFFF0000) == wanted & np.uint32(0xFFFF0000)
    result: Array = (seen == wanted) | nans | (half_nans & upper)
    return result


@pytest.mark.parametrize("target", MODELS)
def test_against_numpy(target: str, tmp_path: Path, tables: Tables) -> None:
    draw = np.random.default_rng(1030)
    names = set()
    for (name, _), i in examples(target).items():
        if MEMORY.match(name) or CONTROL.match(name) or name in DIVISION:
            continue
        names.add(name)
        operations = [translate.expand(half)[0] for half in halves(i)]
        snippet = Snippet([i], target, tmp_path)
        for turn in range(ROUNDS):
            before = Wave.filled(draw, INTERESTING)
            if turn % 3 == 0:
                before.scalars[EXEC] = 0xFFFFFFFF
            wanted = before.copy()
            with np.errstate(all="ignore"):
                known = [apply(before, wanted, o) for o in operations]
            assert all(known), f"{i}: no reference values for it"
            seen = snippet.run(before)
            wrong = ~same(seen.vectors, wanted.vectors)
            assert not wrong.any(), (
                str(i),
                np.argwhere(wrong)[:3],
                seen.vectors[wrong][:3],
                wanted.vectors[wrong][:3],
            )
            assert same(seen.scalars, wanted.scalars).all(), (
                str(i),
                np.flatnonzero(seen.scalars != wanted.scalars),
            )
            assert seen.scc == wanted.scc, str(i)
    tables.add("instructions against numpy", f"{target}: {len(names)} names")


def test_a_wrong_result_is_found(tmp_path: Path) -> None:
    i = Instruction(0, "v_add_f32", "v1, v2, v3")
    before = Wave.filled(np.random.default_rng(1), INTERESTING)
    wanted = before.copy()
    with np.errstate(all="ignore"):
        apply(before, wanted, translate.expand(Instruction(0, "v_mul_f32", "v1, v2, v3"))[0])
    assert not same(run(before, [i], "gfx1030", tmp_path).vectors, wanted.vectors).all()


# ---- Division ------------------------------------------------------------------------------------

SEQUENCE = """
v_div_scale_f32 v10, null, v2, v2, v1
v_div_scale_f32 v11, vcc_lo, v1, v2, v1
v_rcp_f32 v12, v10
v_fma_f32 v13, -v10, v12, 1.0
v_fmac_f32 v12, v13, v12
v_mul_f32 v13, v11, v12
v_fma_f32 v14, -v10, v13, v11
v_fmac_f32 v13, v14, v12
v_fma_f32 v10, -v10, v13, v11
v_div_fmas_f32 v10, v10, v12, v13
v_div_fixup_f32 v10, v10, v2, v1
"""


def test_division(tmp_path: Path) -> None:
    """The compiler's sequence is the correctly rounded quotient for all kinds of operands."""
    lines = [line.split(maxsplit=1) for line in SEQUENCE.strip().splitlines()]
    sequence = [Instruction(4 * n, name, rest) for n, (name, rest) in enumerate(lines)]
    snippet = Snippet(sequence, "gfx1030", tmp_path)
    draw = np.random.default_rng(3)
    for turn in range(150):
        before = Wave.filled(draw, INTERESTING)
        before.scalars[EXEC] = 0xFFFFFFFF
        if turn % 2:
            before.vectors[2] = np.array([draw.integers(1, 9)], np.float32).view(np.uint32)
        if turn % 3:
            before.vectors[1] &= np.uint32(0x80FFFFFF)  # small
        with np.errstate(all="ignore"):
            wanted = before.vectors[1].view(np.float32) / before.vectors[2].view(np.float32)
        seen = snippet.run(before).vectors[10]
        assert same(seen, wanted.view(np.uint32)).all(), (before.vectors[1:3], seen, wanted)


# ---- Memory --------------------------------------------------------------------------------------

BYTES = {
    "dword": 4, "b32": 4, "dwordx2": 8, "b64": 8, "dwordx4": 16, "b128": 16, "dwordx8": 32,
    "b256": 32, "ushort": 2, "u16": 2, "short": 2, "b16": 2, "byte": 1, "b8": 1,
    "short_d16_hi": 2, "d16_hi_b16": 2,
}  # fmt: skip
AREA = 1 << 16


def point(wave: Wave, o: Operation, base: int) -> Array:
    """Sets the registers of the access so that it falls into the area; the lanes' places in it."""
    places = 64 * np.random.default_rng(5).permutation(LANES).astype(np.int64) + 8192
    address = o.sources[0]
    if o.name.startswith("buffer_"):
        descriptor, scalar_offset = o.sources[2], o.sources[3]
        first = descriptor.register
        wave.scalars[first : first + 4] = [base & 0xFFFFFFFF, base >> 32, 0xFFFFFFFF, 0]
        wave.scalars[scalar_offset.register] = 4096
        wave.vectors[address.register] = places
        return places + 4096 + o.offset
    if o.name.startswith("ds_"):
        places = 64 * (places // 64 % 60)
        wave.vectors[address.register] = places
        return places + o.offset
    if address.value == 1:
        saddr = o.sources[2].register
        wave.scalars[saddr : saddr + 2] = [base & 0xFFFFFFFF, base >> 32]
        wave.vectors[address.register] = places
    else:
        whole = places + base
        wave.vectors[address.register] = whole & 0xFFFFFFFF
        wave.vectors[address.register + 1] = whole >> 32
    return places + o.offset


@pytest.mark.parametrize("target", MODELS)
def test_memory(target: str, tmp_path: Path, tables: Tables) -> None:
    draw = np.random.default_rng(7)
    names = set()
    for (name, _), i in examples(target).items():
        if not MEMORY.match(name):
            continue
        names.add(name)
        o = translate.expand(i)[0]
        area = np.frombuffer(draw.bytes(AREA), np.uint8).copy()
        before = Wave.filled(draw, INTERESTING)
        area_before = area.copy()
        base = area.ctypes.data
        if name.startswith("s_load_"):
            check_scalar_load(before, i, o, area, target, tmp_path)
            continue
        at = point(before, o, base)
        seen = run(before, [i], target, tmp_path)
        room = before.lds.copy() if name.startswith("ds_") else area_before
        check_access(i, o, before, seen, room, seen.lds if name.startswith("ds_") else area, at)
    tables.add("instructions against numpy", f"{target}: {len(names)} names of accesses")


def check_scalar_load(
    before: Wave, i: Instruction, o: Operation, area: Array, target: str, folder: Path
) -> None:
    base = o.sources[0].register
    address = area.ctypes.data
    before.scalars[base : base + 2] = [address & 0xFFFFFFFF, address >> 32]
    offset = scalar(before, o.sources[1]) if o.sources[1].kind is Kind.CONSTANT else 0
    if o.sources[1].kind is Kind.SCALAR:
        before.scalars[o.sources[1].register] = offset = 256
    seen = run(before, [i], target, folder)
    count, first = o.destination.value, o.destination.register
    wanted = area[offset : offset + 4 * count].view(np.uint32)
    assert np.array_equal(seen.scalars[first : first + count], wanted), str(i)


def check_access(
    i: Instruction, o: Operation, before: Wave, seen: Wave, room: Array, after: Array, at: Array
) -> None:
    kind = i.name.split("_", 2)
    is_load = kind[1] in ("load", "read")
    wanted_room, wanted = room.copy(), before.copy()
    for lane in np.flatnonzero(before.lanes()):
        place = int(at[lane])
        if kind[1] == "atomic":
            old = int(room[place : place + 4].view(np.uint32)[0])
            operand = int(before.vectors[o.sources[1].register, lane])
            new = (old + operand) & 0xFFFFFFFF if "add" in kind[2] else operand
            wanted_room[place : place + 4].view(np.uint32)[0] = new
            wanted.vectors[o.destination.register, lane] = old
            continue
        nbytes = BYTES[kind[2]]
        if is_load:
            raw = room[place : place + nbytes].tobytes().ljust(-(-nbytes // 4) * 4, b"\0")
            for at_word, word in enumerate(np.frombuffer(raw, np.uint32)):
                wanted.vectors[o.destination.register + at_word, lane] = word
        else:
            first = o.sources[1].register
            raw = before.vectors[first : first + 4, lane].tobytes()
            raw = raw[2:] if "d16_hi" in kind[2] else raw
            wanted_room[place : place + nbytes] = np.frombuffer(raw[:nbytes], np.uint8)
    assert np.array_equal(after, wanted_room), str(i)
    assert np.array_equal(seen.vectors, wanted.vectors), str(i)


# ---- Coverage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", MODELS)
def test_all_that_the_library_uses_is_known(target: str) -> None:
    used = {h.name for i in instructions(target) for h in halves(i)} - translate.HINTS
    assert used <= instruction_names()


def test_the_table_is_that_of_the_library() -> None:
    golden = json.loads((ROOT / "tests" / "isa" / "golden.json").read_text())["compiler"]
    compiler = CodeObject(offload_bundle.code_objects(LIBRARY)["gfx1030"]).compiler()
    if compiler != golden:
        pytest.skip(f"made by {compiler}, the table by {golden}: others may choose otherwise")
    page = (ROOT / "docs" / "rdnasim.md").read_text().splitlines()
    missing = [line for line in coverage.table(LIBRARY) if line not in page]
    assert not missing, "make it anew: tools/rdnasim/coverage.py --table"


def test_vcc_is_where_the_encoding_has_it() -> None:
    assert translate.NAMED["vcc_lo"] == VCC
