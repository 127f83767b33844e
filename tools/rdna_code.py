# SPDX-License-Identifier: Apache-2.0
"""Reading code objects of AMD GPUs: metadata, kernel descriptors, instructions and control flow."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

OBJDUMPS = ("llvm-objdump-19", "llvm-objdump", "/opt/rocm/llvm/bin/llvm-objdump")


def find_objdump() -> str | None:
    """A disassembler that knows the targets: LLVM_OBJDUMP, or one of the usual names."""
    names = (os.environ.get("LLVM_OBJDUMP", ""), *OBJDUMPS)
    return next((path for name in names if name and (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Instruction:
    address: int
    name: str  # without the encoding: v_add_f32, not v_add_f32_e64
    operands: str
    target: int | None = None  # of a branch

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.name} {self.operands}".rstrip()

    @property
    def is_conditional(self) -> bool:
        return self.name.startswith("s_cbranch")

    @property
    def ends_block(self) -> bool:
        return self.is_conditional or self.name in ("s_branch", "s_endpgm")


@dataclass
class Block:
    """Instructions that run one after the other."""

    instructions: list[Instruction]
    successors: list[int] = field(default_factory=list)  # indices of blocks


@dataclass(frozen=True)
class Kernel:
    name: str
    instructions: tuple[Instruction, ...]
    code_bytes: int
    metadata: dict[str, Any]
    descriptor: bytes  # 64 bytes

    # Bits of the kernel descriptor, as the LLVM AMDGPU documentation has them.
    @property
    def _rsrc1(self) -> int:
        return int(struct.unpack_from("<I", self.descriptor, 48)[0])

    @property
    def wgp_mode(self) -> bool:
        return bool(self._rsrc1 >> 29 & 1)

    @property
    def keeps_subnormals(self) -> bool:
        return self._rsrc1 >> 16 & 0xF == 0xF  # of 32 bits, of 16 and 64 bits

    @property
    def wave32(self) -> bool:
        return bool(struct.unpack_from("<H", self.descriptor, 56)[0] >> 10 & 1)

    @cached_property
    def blocks(self) -> list[Block]:
        """The control flow graph; block 0 is the entry."""
        starts = {self.instructions[0].address}
        for i, instruction in enumerate(self.instructions):
            if instruction.target is not None:
                starts.add(instruction.target)
            if instruction.ends_block and i + 1 < len(self.instructions):
                starts.add(self.instructions[i + 1].address)
        blocks: list[Block] = []
        index: dict[int, int] = {}
        for instruction in self.instructions:
            if instruction.address in starts:
                index[instruction.address] = len(blocks)
                blocks.append(Block([]))
            blocks[-1].instructions.append(instruction)
        for i, block in enumerate(blocks):
            last = block.instructions[-1]
            if last.target is not None:
                block.successors.append(index[last.target])
            if last.name not in ("s_branch", "s_endpgm") and i + 1 < len(blocks):
                block.successors.append(i + 1)
        return blocks

    def loops(self) -> list[set[int]]:
        """The natural loops, as sets of block indices."""
        dominators = self._dominators()
        predecessors: list[list[int]] = [[] for _ in self.blocks]
        for i, block in enumerate(self.blocks):
            for successor in block.successors:
                predecessors[successor].append(i)
        bodies: dict[int, set[int]] = {}
        for i, block in enumerate(self.blocks):
            for header in block.successors:
                if not dominators[i] >> header & 1:
                    continue
                body = bodies.setdefault(header, {header})
                work = [i]
                while work:
                    inside = work.pop()
                    if inside not in body:
                        body.add(inside)
                        work.extend(predecessors[inside])
        return list(bodies.values())

    def _dominators(self) -> list[int]:
        """For each block the blocks that every path to it passes, as bits."""
        everything = (1 << len(self.blocks)) - 1
        dominators = [everything] * len(self.blocks)
        dominators[0] = 1
        incoming = [0] * len(self.blocks)
        changed = True
        while changed:
            changed = False
            incoming = [everything] * len(self.blocks)
            for i, block in enumerate(self.blocks):
                for successor in block.successors:
                    incoming[successor] &= dominators[i]
            for i in range(1, len(self.blocks)):
                new = incoming[i] | 1 << i
                if new != dominators[i]:
                    dominators[i], changed = new, True
        return dominators


class CodeObject:
    """One ELF file for one target."""

    def __init__(self, content: bytes) -> None:
        self._elf = content
        (table,) = struct.unpack_from("<Q", content, 40)
        (count,) = struct.unpack_from("<H", content, 60)
        self._sections = [
            struct.unpack_from("<IIQQQQIIQQ", content, table + 64 * i) for i in range(count)
        ]

    def kernels(self) -> list[Kernel]:
        symbols = dict(self._symbols())
        code = self._disassemble()
        kernels = []
        for entry in self.metadata()["amdhsa.kernels"]:
            name = entry[".name"]
            _, size = symbols[name]
            descriptor, _ = symbols[entry[".symbol"]]
            at = self._file_offset(descriptor)
            kernels.append(Kernel(name, tuple(code[name]), size, entry, self._elf[at : at + 64]))
        return kernels

    def metadata(self) -> dict[str, Any]:
        """The note that tells the runtime about the kernels."""
        for _, kind, _, _, offset, size, *_ in self._sections:
            at = offset
            while kind == 7 and at < offset + size:  # SHT_NOTE
                name_size, size_of, note = struct.unpack_from("<III", self._elf, at)
                start = at + 12 + (name_size + 3 & ~3)
                if note == 32:  # NT_AMDGPU_METADATA
                    value, _ = _unpack_message(self._elf[start : start + size_of], 0)
                    assert isinstance(value, dict)
                    return value
                at = start + (size_of + 3 & ~3)
        raise ValueError("the code object has no metadata")

    def compiler(self) -> str:
        """What the compiler says of itself."""
        comments = [
            text.decode()
            for _, kind, flags, _, offset, size, *_ in self._sections
            if kind == 1 and flags & 0x30 == 0x30  # mergeable strings
            for text in self._elf[offset : offset + size].split(b"\0")
            if b"clang version" in text
        ]
        return comments[0] if comments else "unknown"

    def _symbols(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for _, kind, _, _, offset, size, link, *_ in self._sections:
            if kind != 11:  # SHT_DYNSYM
                continue
            names = self._sections[link][4]
            for at in range(offset, offset + size, 24):
                name, _, _, _, value, length = struct.unpack_from("<IBBHQQ", self._elf, at)
                end = self._elf.index(b"\0", names + name)
                yield self._elf[names + name : end].decode(), (value, length)

    def _file_offset(self, address: int) -> int:
        for _, kind, flags, start, offset, size, *_ in self._sections:
            if kind == 1 and flags & 2 and start <= address < start + size:
                return int(offset + address - start)
        raise ValueError(f"no section holds address {address:#x}")

    def _disassemble(self) -> dict[str, list[Instruction]]:
        objdump = find_objdump()
        if objdump is None:
            raise FileNotFoundError("llvm-objdump is missing: on Debian, apt install llvm-19")
        with tempfile.NamedTemporaryFile(suffix=".co") as file:
            file.write(self._elf)
            file.flush()
            command = [objdump, "--disassemble", "--no-show-raw-insn", file.name]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return _parse(text)


FUNCTION = re.compile(r"^([0-9a-f]+) <(\S+)>:$")
LINE = re.compile(r"^\s+(\S+)\s*(.*?)\s*// ([0-9A-F]+):[^<]*(?:<(\S+?)(?:\+0x([0-9a-f]+))?>)?")
ENCODING = re.compile(r"_(e32|e64|dpp|e64_dpp|sdwa)$")


def _parse(text: str) -> dict[str, list[Instruction]]:
    functions: dict[str, list[Instruction]] = {}
    starts: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            name = match[2]
            starts[name] = int(match[1], 16)
            functions[name] = []
        elif match := LINE.match(line):
            mnemonic = ENCODING.sub("", match[1])
            if mnemonic == "s_code_end":  # padding
                continue
            target = None
            if mnemonic.startswith(("s_branch", "s_cbranch")):
                target = starts[match[4]] + int(match[5] or "0", 16)
            functions[name].append(Instruction(int(match[3], 16), mnemonic, match[2], target))
    return functions


def _unpack_message(data: bytes, at: int) -> tuple[Any, int]:
    """The part of MessagePack that the metadata uses."""
    tag = data[at]
    at += 1
    if tag <= 0x7F:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag in (0xC2, 0xC3):
        return tag == 0xC3, at
    if tag in (0xCC, 0xCD, 0xCE, 0xCF):
        size = 1 << (tag - 0xCC)
        return int.from_bytes(data[at : at + size], "big"), at + size
    if 0xA0 <= tag <= 0xBF or tag in (0xD9, 0xDA, 0xDB):
        length, at = (tag & 31, at) if tag <= 0xBF else _length(data, at, tag - 0xD9)
        return data[at : at + length].decode(), at + length
    if 0x90 <= tag <= 0x9F or tag in (0xDC, 0xDD):
        length, at = (tag & 15, at) if tag <= 0x9F else _length(data, at, tag - 0xDC + 1)
        items = []
        for _ in range(length):
            item, at = _unpack_message(data, at)
            items.append(item)
        return items, at
    if 0x80 <= tag <= 0x8F or tag in (0xDE, 0xDF):
        length, at = (tag & 15, at) if tag <= 0x8F else _length(data, at, tag - 0xDE + 1)
        mapping = {}
        for _ in range(length):
            key, at = _unpack_message(data, at)
            mapping[key], at = _unpack_message(data, at)
        return mapping, at
    raise ValueError(f"MessagePack tag {tag:#x}")


def _length(data: bytes, at: int, log2: int) -> tuple[int, int]:
    size = 1 << log2
    return int.from_bytes(data[at : at + size], "big"), at + size
