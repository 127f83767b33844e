// SPDX-License-Identifier: Apache-2.0
// Instructions of the scalar unit: one value a wave.
//
// Each is a function of its sources, (u32 or u64, as wide as the operands), that gets the condition
// code first. Update is for those that also read what they write.
#include <cmath>
#include <utility>

#include "arithmetic.h"
#include "instructions.h"
#include "sources.h"

namespace rdnasim {

namespace {

template <class X>
X read(const Wave &w, const Operand &o) {
    if constexpr (sizeof(X) == 8)
        return X(scalar64(w, o));
    else if constexpr (std::is_same_v<X, float>)
        return bits_as<float>(scalar32(w, o));
    else
        return X(scalar32(w, o));
}

template <class X>
void write(Wave &w, const Operand &o, X x) {
    if constexpr (sizeof(X) == 8)
        put_scalar64(w, o, u64(x));
    else if constexpr (std::is_same_v<X, float>)
        put_scalar32(w, o, bits_as<u32>(x));
    else
        put_scalar32(w, o, u32(x));
}

template <auto F, class Signature = decltype(+F)>
struct Scalar;
template <auto F, class R, class... A>
struct Scalar<F, R (*)(u32 &, A...)> {
    template <size_t... I>
    static void apply(Wave &w, const Step &t, std::index_sequence<I...>) {
        if constexpr (std::is_void_v<R>)
            F(w.scc, read<A>(w, t.source[I])...);
        else
            write<R>(w, t.destination, F(w.scc, read<A>(w, t.source[I])...));
    }
    static const Step *run(Wave &w, const Step &t) {
        apply(w, t, std::index_sequence_for<A...>{});
        return &t + 1;
    }
};

template <auto F, class Signature = decltype(+F)>
struct Update;
template <auto F, class R, class... A>
struct Update<F, R (*)(u32 &, R, A...)> {
    template <size_t... I>
    static void apply(Wave &w, const Step &t, std::index_sequence<I...>) {
        write<R>(w, t.destination, F(w.scc, read<R>(w, t.destination), read<A>(w, t.source[I])...));
    }
    static const Step *run(Wave &w, const Step &t) {
        apply(w, t, std::index_sequence_for<A...>{});
        return &t + 1;
    }
};

// New values of exec from the old one and the source; the old one is kept.
template <auto F>
const Step *save_exec(Wave &w, const Step &t) {
    const u32 old = w.exec(), x = scalar32(w, t.source[0]);
    put_scalar32(w, t.destination, old);
    w.s[kExec] = F(x, old);
    w.scc = w.exec() != 0;
    return &t + 1;
}

template <class X>
X noting(u32 &scc, X x) {
    scc = x != 0;
    return x;
}

// s_bfe: offset in bits 0 to 4, width in bits 16 to 22.
u32 field_width(u32 b) { return b >> 16 & 0x7F; }

#define SCALAR(name, ...) {name, Scalar<[] __VA_ARGS__>::run}
#define UPDATE(name, ...) {name, Update<[] __VA_ARGS__>::run}
#define COMPARE(name, X, op) SCALAR(name, (u32 & scc, X a, X b) { scc = a op b; })
#define COMPARE_ALL(X, type)                                               \
    COMPARE("s_cmp_eq_" type, X, ==), COMPARE("s_cmp_lg_" type, X, !=),    \
        COMPARE("s_cmp_gt_" type, X, >), COMPARE("s_cmp_ge_" type, X, >=), \
        COMPARE("s_cmp_lt_" type, X, <), COMPARE("s_cmp_le_" type, X, <=)
#define BITWISE(name, X, type, ...) \
    SCALAR("s_" name "_" type, (u32 & scc, X a, X b)->X { return noting<X>(scc, __VA_ARGS__); })
#define BITWISE_ALL(X, type)                                                                      \
    BITWISE("and", X, type, a &b), BITWISE("or", X, type, a | b), BITWISE("xor", X, type, a ^ b), \
        BITWISE("andn2", X, type, a & ~b), BITWISE("and_not1", X, type, a & ~b),                  \
        BITWISE("orn2", X, type, a | ~b), BITWISE("or_not1", X, type, a | ~b),                    \
        BITWISE("nand", X, type, ~(a & b)), BITWISE("nor", X, type, ~(a | b)),                    \
        BITWISE("xnor", X, type, ~(a ^ b))
// Two names of one instruction: of gfx10 and gfx11, and of gfx12.
#define ADD(name)                              \
    SCALAR(                                    \
        name, (u32 & scc, u32 a, u32 b)->u32 { \
            const u64 r = u64(a) + b;          \
            scc = u32(r >> 32);                \
            return u32(r);                     \
        })
#define SUBTRACT(name)                         \
    SCALAR(                                    \
        name, (u32 & scc, u32 a, u32 b)->u32 { \
            scc = a < b;                       \
            return a - b;                      \
        })
#define ADD_SIGNED(name)                                      \
    SCALAR(                                                   \
        name, (u32 & scc, u32 a, u32 b)->u32 {                \
            i32 r;                                            \
            scc = __builtin_add_overflow(i32(a), i32(b), &r); \
            return u32(r);                                    \
        })
#define SUBTRACT_SIGNED(name)                                 \
    SCALAR(                                                   \
        name, (u32 & scc, u32 a, u32 b)->u32 {                \
            i32 r;                                            \
            scc = __builtin_sub_overflow(i32(a), i32(b), &r); \
            return u32(r);                                    \
        })
#define ADD_CARRY(name)                        \
    SCALAR(                                    \
        name, (u32 & scc, u32 a, u32 b)->u32 { \
            const u64 r = u64(a) + b + scc;    \
            scc = u32(r >> 32);                \
            return u32(r);                     \
        })
#define SUBTRACT_BORROW(name)                  \
    SCALAR(                                    \
        name, (u32 & scc, u32 a, u32 b)->u32 { \
            const u64 r = u64(a) - b - scc;    \
            scc = r >> 32 != 0;                \
            return u32(r);                     \
        })
#define FIND_FIRST_ONE(name, X, ctz) \
    SCALAR(name, (u32 &, X a)->u32 { return a == 0 ? ~0u : u32(ctz(a)); })

}  // namespace

const InstructionTable &scalar_instructions() {
    static const InstructionTable table = {
        SCALAR(
            "s_mov_b32", (u32 &, u32 a)->u32 { return a; }),
        SCALAR(
            "s_mov_b64", (u32 &, u64 a)->u64 { return a; }),
        SCALAR(
            "s_movk_i32", (u32 &, u32 a)->u32 { return u32(i32(i16(a))); }),
        UPDATE(
            "s_cmov_b32", (u32 & scc, u32 old, u32 a)->u32 { return scc ? a : old; }),
        UPDATE(
            "s_cmov_b64", (u32 & scc, u64 old, u64 a)->u64 { return scc ? a : old; }),
        SCALAR(
            "s_cselect_b32", (u32 & scc, u32 a, u32 b)->u32 { return scc ? a : b; }),
        SCALAR(
            "s_cselect_b64", (u32 & scc, u64 a, u64 b)->u64 { return scc ? a : b; }),

        ADD("s_add_u32"),
        ADD("s_add_co_u32"),
        SUBTRACT("s_sub_u32"),
        SUBTRACT("s_sub_co_u32"),
        ADD_SIGNED("s_add_i32"),
        ADD_SIGNED("s_add_co_i32"),
        SUBTRACT_SIGNED("s_sub_i32"),
        SUBTRACT_SIGNED("s_sub_co_i32"),
        ADD_CARRY("s_addc_u32"),
        ADD_CARRY("s_add_co_ci_u32"),
        SUBTRACT_BORROW("s_subb_u32"),
        SUBTRACT_BORROW("s_sub_co_ci_u32"),
        SCALAR(
            "s_add_nc_u64", (u32 &, u64 a, u64 b)->u64 { return a + b; }),
        SCALAR(
            "s_sub_nc_u64", (u32 &, u64 a, u64 b)->u64 { return a - b; }),
        SCALAR(
            "s_mul_i32", (u32 &, u32 a, u32 b)->u32 { return a * b; }),
        SCALAR(
            "s_mul_u64", (u32 &, u64 a, u64 b)->u64 { return a * b; }),
        SCALAR(
            "s_mul_hi_u32", (u32 &, u32 a, u32 b)->u32 { return u32(u64(a) * b >> 32); }),
        SCALAR(
            "s_mul_hi_i32", (u32 &, u32 a, u32 b)->u32 { return u32(i64(i32(a)) * i32(b) >> 32); }),
        UPDATE(
            "s_addk_i32",
            (u32 & scc, u32 old, u32 a)->u32 {
                i32 r;
                scc = __builtin_add_overflow(i32(old), i32(i16(a)), &r);
                return u32(r);
            }),
        UPDATE(
            "s_mulk_i32", (u32 &, u32 old, u32 a)->u32 { return old * u32(i32(i16(a))); }),
        SCALAR(
            "s_abs_i32", (u32 & scc, u32 a)->u32 { return noting(scc, i32(a) < 0 ? 0 - a : a); }),
        SCALAR(
            "s_min_u32", (u32 & scc, u32 a, u32 b)->u32 { return (scc = a < b) ? a : b; }),
        SCALAR(
            "s_max_u32", (u32 & scc, u32 a, u32 b)->u32 { return (scc = a > b) ? a : b; }),
        SCALAR(
            "s_min_i32", (u32 & scc, i32 a, i32 b)->i32 { return (scc = a < b) ? a : b; }),
        SCALAR(
            "s_max_i32", (u32 & scc, i32 a, i32 b)->i32 { return (scc = a > b) ? a : b; }),

        BITWISE_ALL(u32, "b32"),
        BITWISE_ALL(u64, "b64"),
        SCALAR(
            "s_not_b32", (u32 & scc, u32 a)->u32 { return noting(scc, ~a); }),
        SCALAR(
            "s_not_b64", (u32 & scc, u64 a)->u64 { return noting(scc, ~a); }),
        SCALAR(
            "s_lshl_b32", (u32 & scc, u32 a, u32 b)->u32 { return noting(scc, a << (b & 31)); }),
        SCALAR(
            "s_lshr_b32", (u32 & scc, u32 a, u32 b)->u32 { return noting(scc, a >> (b & 31)); }),
        SCALAR(
            "s_ashr_i32", (u32 & scc, i32 a, u32 b)->i32 { return noting(scc, a >> (b & 31)); }),
        SCALAR(
            "s_lshl_b64", (u32 & scc, u64 a, u32 b)->u64 { return noting(scc, a << (b & 63)); }),
        SCALAR(
            "s_lshr_b64", (u32 & scc, u64 a, u32 b)->u64 { return noting(scc, a >> (b & 63)); }),
        SCALAR(
            "s_ashr_i64", (u32 & scc, i64 a, u32 b)->i64 { return noting(scc, a >> (b & 63)); }),
        SCALAR(
            "s_bfe_u32",
            (u32 & scc, u32 a, u32 b)->u32 {
                return noting(scc, a >> (b & 31) & mask_of(field_width(b)));
            }),
        SCALAR(
            "s_bfm_b32", (u32 &, u32 a, u32 b)->u32 { return mask_of(a & 31) << (b & 31); }),
        SCALAR(
            "s_brev_b32", (u32 &, u32 a)->u32 { return __builtin_bitreverse32(a); }),
        SCALAR(
            "s_bcnt1_i32_b32",
            (u32 & scc, u32 a)->u32 { return noting(scc, u32(__builtin_popcount(a))); }),
        SCALAR(
            "s_bcnt1_i32_b64",
            (u32 & scc, u64 a)->u32 { return noting(scc, u32(__builtin_popcountll(a))); }),
        FIND_FIRST_ONE("s_ff1_i32_b32", u32, __builtin_ctz),
        FIND_FIRST_ONE("s_ctz_i32_b32", u32, __builtin_ctz),
        FIND_FIRST_ONE("s_ff1_i32_b64", u64, __builtin_ctzll),
        FIND_FIRST_ONE("s_ctz_i32_b64", u64, __builtin_ctzll),
        FIND_FIRST_ONE("s_flbit_i32_b32", u32, __builtin_clz),
        FIND_FIRST_ONE("s_clz_i32_u32", u32, __builtin_clz),
        UPDATE(
            "s_bitset0_b32", (u32 &, u32 old, u32 a)->u32 { return old & ~(1u << (a & 31)); }),
        UPDATE(
            "s_bitset1_b32", (u32 &, u32 old, u32 a)->u32 { return old | 1u << (a & 31); }),
        SCALAR(
            "s_sext_i32_i8", (u32 &, u32 a)->u32 { return u32(i32(int8_t(a))); }),
        SCALAR(
            "s_sext_i32_i16", (u32 &, u32 a)->u32 { return u32(i32(i16(a))); }),
        SCALAR(
            "s_pack_ll_b32_b16", (u32 &, u32 a, u32 b)->u32 { return (a & 0xFFFF) | b << 16; }),
        SCALAR(
            "s_pack_lh_b32_b16",
            (u32 &, u32 a, u32 b)->u32 { return (a & 0xFFFF) | (b & 0xFFFF0000); }),
        SCALAR(
            "s_pack_hh_b32_b16", (u32 &, u32 a, u32 b)->u32 { return a >> 16 | (b & 0xFFFF0000); }),

        COMPARE_ALL(u32, "u32"),
        COMPARE_ALL(i32, "i32"),
        COMPARE("s_cmp_eq_u64", u64, ==),
        COMPARE("s_cmp_lg_u64", u64, !=),
        COMPARE_ALL(float, "f32"),
        SCALAR(
            "s_cmp_neq_f32", (u32 & scc, float a, float b) { scc = !(a == b); }),
        SCALAR(
            "s_cmp_u_f32", (u32 & scc, float a, float b) { scc = a != a || b != b; }),
        SCALAR(
            "s_cmp_o_f32", (u32 & scc, float a, float b) { scc = a == a && b == b; }),
        SCALAR(
            "s_bitcmp0_b32", (u32 & scc, u32 a, u32 b) { scc = !(a >> (b & 31) & 1); }),
        SCALAR(
            "s_bitcmp1_b32", (u32 & scc, u32 a, u32 b) { scc = a >> (b & 31) & 1; }),

        {"s_and_saveexec_b32", save_exec<[](u32 x, u32 exec) { return x & exec; }>},
        {"s_or_saveexec_b32", save_exec<[](u32 x, u32 exec) { return x | exec; }>},
        {"s_xor_saveexec_b32", save_exec<[](u32 x, u32 exec) { return x ^ exec; }>},
        {"s_andn2_saveexec_b32", save_exec<[](u32 x, u32 exec) { return x & ~exec; }>},
        {"s_and_not1_saveexec_b32", save_exec<[](u32 x, u32 exec) { return x & ~exec; }>},
        {"s_and_not0_saveexec_b32", save_exec<[](u32 x, u32 exec) { return ~x & exec; }>},
        {"s_andn1_saveexec_b32", save_exec<[](u32 x, u32 exec) { return ~x & exec; }>},

        // The floating-point instructions of gfx11.5 and gfx12.
        SCALAR(
            "s_add_f32", (u32 &, float a, float b)->float { return a + b; }),
        SCALAR(
            "s_sub_f32", (u32 &, float a, float b)->float { return a - b; }),
        SCALAR(
            "s_mul_f32", (u32 &, float a, float b)->float { return a * b; }),
        SCALAR(
            "s_fmamk_f32", (u32 &, float a, float b, float c)->float { return fmaf(a, b, c); }),
        SCALAR(
            "s_fmaak_f32", (u32 &, float a, float b, float c)->float { return fmaf(a, b, c); }),
        UPDATE(
            "s_fmac_f32", (u32 &, float old, float a, float b)->float { return fmaf(a, b, old); }),
        SCALAR(
            "s_trunc_f32", (u32 &, float a)->float { return truncf(a); }),
        SCALAR(
            "s_floor_f32", (u32 &, float a)->float { return floorf(a); }),
        SCALAR(
            "s_cvt_f32_u32", (u32 &, u32 a)->float { return float(a); }),
        SCALAR(
            "s_cvt_f32_i32", (u32 &, i32 a)->float { return float(a); }),
        SCALAR(
            "s_cvt_u32_f32", (u32 &, float a)->u32 { return float_to_u32(a); }),
        SCALAR(
            "s_cvt_i32_f32", (u32 &, float a)->i32 { return float_to_i32(a); }),
        SCALAR(
            "v_s_rcp_f32", (u32 &, float a)->float { return 1 / a; }),
    };
    return table;
}

}  // namespace rdnasim
