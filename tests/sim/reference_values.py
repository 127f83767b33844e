# SPDX-License-Identifier: Apache-2.0
"""What instructions compute, in numpy, from AMD's public descriptions of the instruction sets.

Written without a look at the engine's tables. A row is the types of the sources, the type of the
result, and a function on arrays of a value a lane (vector) or one value (scalar):

    u i   uint32, int32        f   float32        h   float16 in the low half of a register
    U     uint64 in two registers                  m   a bit a lane, in a scalar register
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Row = tuple[str, str, Callable[..., Any]]

U32, U64, I32, F32 = np.uint32, np.uint64, np.int32, np.float32


def rounded(x: Fraction) -> np.float32:
    """To the nearest float32, ties to even, subnormals kept."""
    if x == 0:
        return F32(0)
    sign, x = (-1, -x) if x < 0 else (1, x)
    exponent = max(x.numerator.bit_length() - x.denominator.bit_length() - 1, -126)
    while x >= Fraction(2) ** (exponent + 1):
        exponent += 1
    units = x / Fraction(2) ** (exponent - 23)
    whole, rest = divmod(units.numerator, units.denominator)
    twice = 2 * rest
    if twice > units.denominator or (twice == units.denominator and whole % 2):
        whole += 1
    return (
        F32(sign * float(whole) * 2.0 ** max(exponent - 23, -1000))
        if exponent < 200
        else F32(sign * np.inf)
    )


def fma(a: Array, b: Array, c: Array) -> Array:
    """Exact product and sum, rounded once."""

    def one(x: np.float32, y: np.float32, z: np.float32) -> np.float32:
        if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
            return F32(np.float64(x) * np.float64(y) + np.float64(z))
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        if exact == 0:  # the sign of a zero: as the sum of the rounded product has it
            return F32(np.float64(x) * np.float64(y) + np.float64(z))
        return rounded(exact)

    with np.errstate(all="ignore"):
        return np.array(
            [one(*lane) for lane in zip(*np.broadcast_arrays(a, b, c), strict=True)], F32
        )


def to_u32(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(
            np.isnan(x), 0, np.clip(np.trunc(x.astype(np.float64)), 0, 2**32 - 1)
        ).astype(U32)


def mbcnt(mask: Array, add: Array) -> Array:
    return np.array(
        [
            bin(int(m) & ((1 << lane) - 1)).count("1") + int(a)
            for lane, (m, a) in enumerate(zip(mask, add, strict=True))
        ],
        np.uint64,
    ).astype(U32)


def shift64(x: Array, by: Array, left: bool) -> Array:
    return x << (by.astype(U64) & U64(63)) if left else x >> (by.astype(U64) & U64(63))


def align(a: Array, b: Array, c: Array) -> Array:
    return ((a.astype(U64) << U64(32) | b) >> (c.astype(U64) & U64(31))).astype(U32)


VECTOR: dict[str, Row] = {
    "v_mov_b32": ("u", "u", lambda a: a),
    "v_add_nc_u32": ("uu", "u", lambda a, b: a + b),
    "v_sub_nc_u32": ("uu", "u", lambda a, b: a - b),
    "v_subrev_nc_u32": ("uu", "u", lambda a, b: b - a),
    "v_mul_lo_u32": ("uu", "u", lambda a, b: a * b),
    "v_add3_u32": ("uuu", "u", lambda a, b, c: a + b + c),
    "v_add_lshl_u32": ("uuu", "u", lambda a, b, c: (a + b) << (c & U32(31))),
    "v_lshl_or_b32": ("uuu", "u", lambda a, b, c: a << (b & U32(31)) | c),
    "v_min_u32": ("uu", "u", np.minimum),
    "v_and_b32": ("uu", "u", lambda a, b: a & b),
    "v_or_b32": ("uu", "u", lambda a, b: a | b),
    "v_xor_b32": ("uu", "u", lambda a, b: a ^ b),
    "v_or3_b32": ("uuu", "u", lambda a, b, c: a | b | c),
    "v_and_or_b32": ("uuu", "u", lambda a, b, c: (a & b) | c),
    "v_lshlrev_b32": ("uu", "u", lambda a, b: b << (a & U32(31))),
    "v_lshrrev_b32": ("uu", "u", lambda a, b: b >> (a & U32(31))),
    "v_lshlrev_b64": ("uU", "U", lambda a, b: shift64(b, a, True)),
    "v_alignbit_b32": ("uuu", "u", align),
    "v_bfe_u32": (
        "uuu", "u",
        lambda a, b, c: a >> (b & U32(31)) & ((U32(1) << (c & U32(31))) - U32(1)),
    ),
    "v_mbcnt_lo_u32_b32": ("uu", "u", mbcnt),
    "v_add_f32": ("ff", "f", lambda a, b: a + b),
    "v_mul_f32": ("ff", "f", lambda a, b: a * b),
    "v_fma_f32": ("fff", "f", fma),
    "v_trunc_f32": ("f", "f", np.trunc),
    "v_rcp_f32": ("f", "f", lambda a: F32(1) / a),
    "v_rcp_iflag_f32": ("f", "f", lambda a: F32(1) / a),
    "v_cvt_f32_f16": ("h", "f", lambda a: a.astype(F32)),
    "v_cvt_f16_f32": ("f", "h", lambda a: a.astype(np.float16)),
    "v_cvt_f32_u32": ("u", "f", lambda a: a.astype(F32)),
    "v_cvt_u32_f32": ("f", "u", to_u32),
    "v_pack_b32_f16": (
        "hh", "u", lambda a, b: a.view(np.uint16) | b.view(np.uint16).astype(U32) << U32(16)
    ),
    "v_cndmask_b32": ("uum", "u", lambda a, b, m: np.where(m, b, a)),
}  # fmt: skip
# The old value of the destination comes last.
ACCUMULATING: dict[str, Row] = {"v_fmac_f32": ("fff", "f", fma)}

_ORDER = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ne": lambda a, b: a != b, "ge": lambda a, b: a >= b,
}  # fmt: skip
COMPARISONS: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    f"{kind}_{name}_{of}": (letter, test)
    for kind in ("v_cmp", "v_cmpx")
    for of, letter in (("u32", "u"), ("u64", "U"), ("f32", "f"))
    for name, test in _ORDER.items()
    if of != "f32" or name != "ne"
}
COMPARISONS["v_cmp_u_f32"] = ("f", lambda a, b: np.isnan(a) | np.isnan(b))
COMPARISONS["v_cmp_o_f32"] = ("f", lambda a, b: ~(np.isnan(a) | np.isnan(b)))
COMPARISONS["v_cmp_neq_f32"] = ("f", lambda a, b: ~(a == b))


# ---- With a carry: sum and the bits that are carried out -----------------------------------------


def add_carry(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    wide = a.astype(U64) + b.astype(U64) + carry.astype(U64)
    return wide.astype(U32), wide >> U64(32) != 0


def subtract_borrow(a: Array, b: Array, borrow: Array) -> tuple[Array, Array]:
    wide = a.astype(np.int64) - b.astype(np.int64) - borrow.astype(np.int64)
    return (wide & 0xFFFFFFFF).astype(U32), wide < 0


CARRIES = {
    "v_add_co_u32": add_carry,
    "v_add_co_ci_u32": add_carry,
    "v_sub_co_u32": subtract_borrow,
    "v_sub_co_ci_u32": subtract_borrow,
}


# ---- Scalar: the value, and the condition code; None: left as it was -----------------------------

Result = tuple[int, "int | None"]
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def signed(x: int, bits: int = 32) -> int:
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def _float(bits: int) -> np.float32:
    return np.array([bits], U32).view(F32)[0]


def _bits(x: Any) -> int:
    return int(np.array([x], F32).view(U32)[0])


def _add(a: int, b: int, c: int = 0) -> Result:
    return (a + b + c) & M32, int(a + b + c > M32)


def _sub(a: int, b: int, c: int = 0) -> Result:
    return (a - b - c) & M32, int(a - b - c < 0)


def _overflow(exact: int) -> Result:
    return exact & M32, int(not -(1 << 31) <= exact < 1 << 31)


def _noting(x: int) -> Result:
    return x, int(x != 0)


def _first_one(x: int) -> int:
    return (x & -x).bit_length() - 1 if x else M32


# f(condition code, sources...); "w" is a source of 64 bits, "s" one of 32.
SCALAR: dict[str, tuple[str, Callable[..., Result]]] = {
    "s_mov_b32": ("s", lambda scc, a: (a, None)),
    "s_mov_b64": ("w", lambda scc, a: (a, None)),
    "s_movk_i32": ("s", lambda scc, a: (signed(a & 0xFFFF, 16) & M32, None)),
    "s_cselect_b32": ("ss", lambda scc, a, b: (a if scc else b, None)),
    "s_mul_i32": ("ss", lambda scc, a, b: (a * b & M32, None)),
    "s_mul_u64": ("ww", lambda scc, a, b: (a * b & M64, None)),
    "s_mul_hi_u32": ("ss", lambda scc, a, b: (a * b >> 32, None)),
    "s_add_nc_u64": ("ww", lambda scc, a, b: ((a + b) & M64, None)),
    "s_sub_nc_u64": ("ww", lambda scc, a, b: ((a - b) & M64, None)),
    "s_min_u32": ("ss", lambda scc, a, b: (min(a, b), int(a < b))),
    "s_lshl_b32": ("ss", lambda scc, a, b: _noting(a << (b & 31) & M32)),
    "s_lshr_b32": ("ss", lambda scc, a, b: _noting(a >> (b & 31))),
    "s_lshl_b64": ("ws", lambda scc, a, b: _noting(a << (b & 63) & M64)),
    "s_lshr_b64": ("ws", lambda scc, a, b: _noting(a >> (b & 63))),
    "s_bcnt1_i32_b32": ("s", lambda scc, a: _noting(bin(a).count("1"))),
    "s_mul_f32": ("ss", lambda scc, a, b: (_bits(_float(a) * _float(b)), None)),
    "s_trunc_f32": ("s", lambda scc, a: (_bits(np.trunc(_float(a))), None)),
    "s_cvt_f32_u32": ("s", lambda scc, a: (_bits(F32(a)), None)),
    "s_cvt_u32_f32": ("s", lambda scc, a: (int(to_u32(np.array([_float(a)]))[0]), None)),
    "s_fmamk_f32": (
        "sss",
        lambda scc, a, b, c: (
            _bits(fma(*(np.array([_float(x)]) for x in (a, b, c)))[0]), None
        ),
    ),
    "v_s_rcp_f32": ("s", lambda scc, a: (_bits(F32(1) / _float(a)), None)),
}  # fmt: skip
for _names, _function in (
    (("s_add_u32", "s_add_co_u32"), lambda scc, a, b: _add(a, b)),
    (("s_sub_u32", "s_sub_co_u32"), lambda scc, a, b: _sub(a, b)),
    (("s_addc_u32", "s_add_co_ci_u32"), lambda scc, a, b: _add(a, b, scc)),
    (("s_subb_u32", "s_sub_co_ci_u32"), lambda scc, a, b: _sub(a, b, scc)),
    (("s_add_i32", "s_add_co_i32"), lambda scc, a, b: _overflow(signed(a) + signed(b))),
    (("s_sub_i32", "s_sub_co_i32"), lambda scc, a, b: _overflow(signed(a) - signed(b))),
    (("s_and_b32",), lambda scc, a, b: _noting(a & b)),
    (("s_or_b32",), lambda scc, a, b: _noting(a | b)),
    (("s_xor_b32",), lambda scc, a, b: _noting(a ^ b)),
    (("s_andn2_b32", "s_and_not1_b32"), lambda scc, a, b: _noting(a & ~b & M32)),
):
    SCALAR |= dict.fromkeys(_names, ("ss", _function))
SCALAR["s_or_b64"] = ("ww", lambda scc, a, b: _noting(a | b))
SCALAR |= {
    name: ("s", lambda scc, a: (_first_one(a), None)) for name in ("s_ff1_i32_b32", "s_ctz_i32_b32")
}

# f(sources...): the condition code.
_SCALAR_ORDER = {"lg": lambda a, b: a != b} | {k: v for k, v in _ORDER.items() if k != "ne"}
CONDITIONS: dict[str, tuple[str, Callable[..., bool]]] = {
    f"s_cmp_{name}_{of}": (
        kind,
        lambda a, b, t=test, s=sign: t(signed(a), signed(b)) if s else t(a, b),
    )
    for name, test in _SCALAR_ORDER.items()
    for of, kind, sign in (("u32", "ss", False), ("i32", "ss", True), ("u64", "ww", False))
}
CONDITIONS["s_cmp_neq_f32"] = ("ss", lambda a, b: _float(a) != _float(b))
CONDITIONS["s_bitcmp1_b32"] = ("ss", lambda a, b: bool(a >> (b & 31) & 1))

# f(source, exec): the new exec; the old one goes to the destination.
SAVING: dict[str, Callable[[int, int], int]] = {
    "s_and_saveexec_b32": lambda x, e: x & e,
    "s_or_saveexec_b32": lambda x, e: x | e,
    "s_andn2_saveexec_b32": lambda x, e: x & ~e,
    "s_and_not1_saveexec_b32": lambda x, e: x & ~e,
}
