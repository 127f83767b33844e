# SPDX-License-Identifier: Apache-2.0
"""The file that the translator writes and the engine reads: operations of a fixed size.

Little-endian; the same structs as in engine/program.h. Names of instructions are kept as text, and
the engine finds their meaning when it loads the file: its table is the only one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from operands import NONE, Operand

MAGIC = b"RDNASIM3"
NAME_BYTES, KERNEL_NAME_BYTES = 48, 64

# Bits of Operation.flags, as in engine/program.h.
GLC, DLC, SLC, RETURNS, OFFEN = 1, 2, 4, 8, 16
SCOPE_SHIFT = 5  # two bits
MARKED_ADDRESS = 128  # the address comes as 32 bits beside a scalar base


@dataclass(frozen=True)
class Operation:
    name: str
    address: int
    destination: Operand = NONE
    second: Operand = NONE  # a carry or mask that is written
    sources: tuple[Operand, ...] = ()
    flags: int = 0
    offset: int = 0  # of an access; an immediate of other instructions
    target: int = 0  # of a branch: an address, in the file the number of an operation


@dataclass(frozen=True)
class Argument:
    offset: int
    size: int
    kind: str


@dataclass
class Kernel:
    name: str
    operations: list[Operation]
    kernarg_bytes: int
    group_bytes: int
    private_bytes: int
    vgprs: int
    rsrc2: int
    properties: int
    arguments: list[Argument] = field(default_factory=list)


# Values of an argument's kind, as in engine/program.h.
BY_VALUE, IGNORED, BLOCK_COUNT, GROUP_SIZE, GRID_DIMENSIONS = 0, 1, 2, 8, 16


def argument_kind(kind: str) -> int:
    if kind in ("by_value", "global_buffer"):
        return BY_VALUE
    if kind.startswith("hidden_block_count_"):
        return BLOCK_COUNT + "xyz".index(kind[-1])
    if kind.startswith("hidden_group_size_"):
        return GROUP_SIZE + "xyz".index(kind[-1])
    return GRID_DIMENSIONS if kind == "hidden_grid_dims" else IGNORED


def pack(target: str, kernels: list[Kernel]) -> bytes:
    names: dict[str, int] = {}
    operations, table, arguments = bytearray(), bytearray(), bytearray()
    first, first_argument = 0, 0
    for kernel in kernels:
        for operation in kernel.operations:
            operations += _operation(operation, names.setdefault(operation.name, len(names)), first)
        table += struct.pack(
            f"<{KERNEL_NAME_BYTES}s10I",
            kernel.name.encode(), first, len(kernel.operations), kernel.kernarg_bytes,
            kernel.group_bytes, kernel.private_bytes, kernel.vgprs, kernel.rsrc2,
            kernel.properties, first_argument, len(kernel.arguments),
        )  # fmt: skip
        for a in kernel.arguments:
            arguments += struct.pack("<III", a.offset, a.size, argument_kind(a.kind))
        first += len(kernel.operations)
        first_argument += len(kernel.arguments)
    counts = (len(kernels), first_argument, len(names), first)
    header = MAGIC + struct.pack("<16s4I", target.encode(), *counts)
    text = b"".join(struct.pack(f"<{NAME_BYTES}s", name.encode()) for name in names)
    return header + bytes(table) + bytes(arguments) + text + bytes(operations)


def _operation(operation: Operation, name: int, first: int) -> bytes:
    sources = (*operation.sources, NONE, NONE, NONE, NONE)[:4]
    head = struct.pack(
        "<HHiII", name, operation.flags, operation.offset, first + operation.target,
        operation.address,
    )  # fmt: skip
    registers = (operation.destination, operation.second, *sources)
    return head + b"".join(operand.pack() for operand in registers)
