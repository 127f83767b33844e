# SPDX-License-Identifier: Apache-2.0
"""Running instructions on one simulated wave, in this process."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import program
import translate
from rdna_code import Instruction

from .conftest import SIMULATOR

LANES, SCALARS, VECTORS, LDS_BYTES = 32, 128, 256, 1 << 12
EXEC, VCC = 126, 106

Array = np.ndarray[Any, Any]


class _Registers(ctypes.Structure):  # engine/testing.cpp
    _fields_ = (
        ("scalars", ctypes.c_uint32 * SCALARS),
        ("scc", ctypes.c_uint32),
        ("operations", ctypes.c_uint32),
        ("vectors", ctypes.c_uint32 * (VECTORS * LANES)),
        ("lds", ctypes.c_uint8 * LDS_BYTES),
    )


@functools.cache
def _engine() -> ctypes.CDLL:
    engine = ctypes.CDLL(str(SIMULATOR))
    engine.rdnasim_instruction_names.restype = ctypes.c_char_p
    engine.rdnasim_run_wave.restype = ctypes.c_char_p
    return engine


def instruction_names() -> set[str]:
    return set(_engine().rdnasim_instruction_names().decode().split())


@dataclass
class Wave:
    """The registers of a wave; `vectors[r, lane]`."""

    scalars: Array
    vectors: Array
    lds: Array
    scc: int = 0

    @classmethod
    def filled(cls, draw: np.random.Generator, interesting: Array) -> Wave:
        """Random registers, half of them from a list of interesting values."""

        def words(*shape: int) -> Array:
            random = draw.integers(0, 1 << 32, shape, dtype=np.uint32)
            return np.where(draw.random(shape) < 0.5, draw.choice(interesting, shape), random)

        lds = np.frombuffer(draw.bytes(LDS_BYTES), np.uint8).copy()
        return cls(words(SCALARS), words(VECTORS, LANES), lds, int(draw.integers(2)))

    def copy(self) -> Wave:
        return Wave(self.scalars.copy(), self.vectors.copy(), self.lds.copy(), self.scc)

    def lanes(self) -> Array:
        """Which lanes are on."""
        return (int(self.scalars[EXEC]) >> np.arange(LANES) & 1).astype(bool)


class Snippet:
    """Instructions that can be run on waves."""

    def __init__(self, instructions: list[Instruction], target: str, folder: Path) -> None:
        operations = [o for i in instructions for o in translate.expand(i)]
        operations.append(program.Operation("s_endpgm", 0))
        kernel = program.Kernel("test", operations, 0, LDS_BYTES, 0, VECTORS, 0, 0)
        self._file = folder / "test.program"
        self._file.write_bytes(program.pack(target, [kernel]))

    def run(self, wave: Wave) -> Wave:
        """The wave after them."""
        registers = _Registers(scc=wave.scc)
        for field, array in (
            ("scalars", wave.scalars),
            ("vectors", wave.vectors),
            ("lds", wave.lds),
        ):
            whole = np.ascontiguousarray(array)
            ctypes.memmove(getattr(registers, field), whole.ctypes.data, whole.nbytes)
        reason = _engine().rdnasim_run_wave(str(self._file).encode(), ctypes.byref(registers))
        assert reason is None, reason
        return Wave(
            np.array(registers.scalars, np.uint32),
            np.frombuffer(registers.vectors, np.uint32).reshape(VECTORS, LANES).copy(),
            np.array(registers.lds, np.uint8),
            registers.scc,
        )


def run(wave: Wave, instructions: list[Instruction], target: str, folder: Path) -> Wave:
    return Snippet(instructions, target, folder).run(wave)
