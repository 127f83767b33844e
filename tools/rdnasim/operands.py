# SPDX-License-Identifier: Apache-2.0
"""The disassembler's operand syntax, as data.

Refuses what it does not know by raising Unknown with the text: an operand that is passed over in
silence would be executed wrongly in silence.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from enum import IntEnum


class Unknown(Exception):
    """An instruction, operand or modifier that the simulator does not have."""


class Kind(IntEnum):
    """As in engine/program.h."""

    NONE = 0
    VECTOR = 1
    SCALAR = 2
    CONSTANT = 3


NEGATE, ABSOLUTE, HIGH_HALF, LOW_BYTE = 1, 2, 4, 8  # as in engine/program.h

# Numbers of the scalar registers that have names, as the instructions encode them on gfx11 and
# gfx12. gfx10 has m0 and null the other way round, which nothing here can notice.
NAMED = {"vcc": 106, "vcc_lo": 106, "vcc_hi": 107, "null": 124, "m0": 125, "exec": 126}
NAMED |= {"exec_lo": 126, "exec_hi": 127}
FIRST_TTMP = 108


@dataclass(frozen=True)
class Operand:
    kind: Kind = Kind.NONE
    register: int = 0  # of a constant: 1 if it is negative
    value: int = 0  # of a constant: its low 32 bits; of registers: how many
    modifiers: int = 0

    def pack(self) -> bytes:
        return struct.pack("<BBHI", self.kind, self.modifiers, self.register, self.value)

    def covers(self, register: int) -> bool:
        """Is this the vector register of that number, or a range with it?"""
        return self.kind is Kind.VECTOR and 0 <= register - self.register < self.value


NONE = Operand()


def split(text: str) -> list[str]:
    """At the commas outside brackets."""
    parts = re.split(r",\s*(?![^\[\](]*[\])])", text)
    return [part.strip() for part in parts if part.strip()]


def parse(text: str, is_half: bool = False) -> Operand:
    """One operand. `is_half`: floating-point constants have 16 bits."""
    modifiers = 0
    if match := re.fullmatch(r"-(\|?v[\d\[].*|\|?s[\d\[].*|\|?vcc_lo\|?)", text):
        modifiers, text = NEGATE, match[1]
    if match := re.fullmatch(r"\|(.+)\|", text):
        modifiers, text = modifiers | ABSOLUTE, match[1]
    return replace(_register(text) or _constant(text, is_half), modifiers=modifiers)


def _register(text: str) -> Operand | None:
    if text in NAMED:
        return Operand(Kind.SCALAR, NAMED[text], 2 if text in ("vcc", "exec") else 1)
    match = re.fullmatch(r"(v|s|ttmp)(?:(\d+)|\[(\d+):(\d+)\])", text)
    if match is None:
        return None
    first = int(match[2] or match[3])
    count = int(match[4]) - first + 1 if match[4] else 1
    if match[1] == "v":
        return Operand(Kind.VECTOR, first, count)
    return Operand(Kind.SCALAR, first + (FIRST_TTMP if match[1] == "ttmp" else 0), count)


def _constant(text: str, is_half: bool) -> Operand:
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        value = int(text, 0)
        # Where 64 bits are wanted, a negative constant is extended with its sign.
        return Operand(Kind.CONSTANT, register=int(value < 0), value=value & 0xFFFFFFFF)
    if re.fullmatch(r"-?\d+\.\d+", text):
        form = "<e" if is_half else "<f"
        return Operand(
            Kind.CONSTANT, value=int.from_bytes(struct.pack(form, float(text)), "little")
        )
    raise Unknown(f"operand {text}")
