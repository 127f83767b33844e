// SPDX-License-Identifier: Apache-2.0
// Instructions of the vector unit: one value a lane.
//
// Each is a function of its sources on one lane; the types of its parameters say how their registers
// are read: u32, i32, float, Half (low 16 bits), u64 (two registers). Subnormals are kept and results
// rounded to nearest even, which is the mode that the kernels ask for (checked at launch).
#include <cmath>
#include <utility>

#include "arithmetic.h"
#include "instructions.h"
#include "sources.h"

namespace rdnasim {

namespace {

template <class X>
struct Source {
    Lanes room;
    const u32 *from;
    RDNASIM_INLINE Source(const Wave &w, const Operand &o) : from(vector32(w, o, room)) {}
    Source(const Source &) = delete;  // may point into itself
    X operator()(u32 lane) const { return bits_as<X>(from[lane]); }
};
template <>
struct Source<Half> {
    Lanes room;
    const u32 *from;
    RDNASIM_INLINE Source(const Wave &w, const Operand &o) : from(vector32(w, o, room, 16)) {}
    Half operator()(u32 lane) const { return Half{u16(from[lane])}; }
};
template <>
struct Source<u64> {
    Lanes rooms[2];
    const u32 *low, *high;
    RDNASIM_INLINE Source(const Wave &w, const Operand &o)
        : low(vector32(w, o, rooms[0])), high(vector64_high(w, o, rooms[1])) {}
    u64 operator()(u32 lane) const { return join(low[lane], high[lane]); }
};

template <class X>
struct Result {
    Lanes r;
    void set(u32 lane, X x) { r.x[lane] = bits_as<u32>(x); }
    RDNASIM_INLINE void store(Wave &w, const Operand &o) const { put_vector(w, o.number, r.x); }
};
template <>
struct Result<Half> {  // leaves the other half of the register as it is
    Lanes r;
    void set(u32 lane, Half x) { r.x[lane] = x.bits; }
    RDNASIM_INLINE void store(Wave &w, const Operand &o) {
        const u32 *old = w.v[o.number].x;
        for (u32 l = 0; l < kWave; l++) r.x[l] |= old[l] & 0xFFFF0000;
        put_vector(w, o.number, r.x);
    }
};
template <>
struct Result<u64> {
    Lanes low, high;
    void set(u32 lane, u64 x) {
        low.x[lane] = u32(x);
        high.x[lane] = u32(x >> 32);
    }
    RDNASIM_INLINE void store(Wave &w, const Operand &o) const {
        put_vector(w, o.number, low.x);
        put_vector(w, o.number + 1, high.x);
    }
};

template <auto F, class Signature = decltype(+F)>
struct Vector;
template <auto F, class R, class... A>
struct Vector<F, R (*)(A...)> {
    static void loop(Result<R> &result, const Source<A> &...sources) {
        for (u32 l = 0; l < kWave; l++) result.set(l, F(sources(l)...));
    }
    template <size_t... I>
    static void apply(Wave &w, const Step &t, std::index_sequence<I...>) {
        Result<R> result;
        loop(result, Source<A>(w, t.source[I])...);
        result.store(w, t.destination);
    }
    static const Step *run(Wave &w, const Step &t) {
        apply(w, t, std::index_sequence_for<A...>{});
        return &t + 1;
    }
};

// The last parameter is what the destination holds.
template <auto F, class Signature = decltype(+F)>
struct Accumulate;
template <auto F>
struct Accumulate<F, float (*)(float, float, float)> {
    static const Step *run(Wave &w, const Step &t) {
        const Source<float> a(w, t.source[0]), b(w, t.source[1]), old(w, t.destination);
        Result<float> result;
        for (u32 l = 0; l < kWave; l++) result.set(l, F(a(l), b(l), old(l)));
        result.store(w, t.destination);
        return &t + 1;
    }
};

#define VECTOR(name, ...) {name, Vector<[] __VA_ARGS__>::run}
#define ACCUMULATE(name, ...) {name, Accumulate<[] __VA_ARGS__>::run}

// ---- What is not a function of one lane's sources -----------------------------------------------

// A bit a lane: carries, conditions.
u32 mask_source(const Wave &w, const Operand &o) { return scalar32(w, o); }

const Step *choose(Wave &w, const Step &t) {
    Lanes rooms[2], r;
    const u32 *no = vector32(w, t.source[0], rooms[0]), *yes = vector32(w, t.source[1], rooms[1]);
    const u32 mask = mask_source(w, t.source[2]);
    for (u32 l = 0; l < kWave; l++) r.x[l] = either(mask >> l & 1, yes[l], no[l]);
    put_vector(w, t.destination.number, r.x);
    return &t + 1;
}

enum Carry : u32 { kAdd, kSubtract, kSubtractReversed, kCarryIn = 4 };

// The carries of lanes that are off are 0.
const Step *carry(Wave &w, const Step &t) {
    Lanes rooms[2], r;
    const u32 *a = vector32(w, t.source[0], rooms[0]), *b = vector32(w, t.source[1], rooms[1]);
    const u32 in = t.parameter & kCarryIn ? mask_source(w, t.source[2]) : 0, kind = t.parameter & 3;
    if (kind == kSubtractReversed) std::swap(a, b);
    u32 out = 0;
    for (u32 l = 0; l < kWave; l++) {
        const u64 c = in >> l & 1;
        const u64 x = kind == kAdd ? u64(a[l]) + b[l] + c : u64(a[l]) - b[l] - c;
        r.x[l] = u32(x);
        out |= u32(x >> 32 & 1) << l;
    }
    put_vector(w, t.destination.number, r.x);
    put_scalar32(w, t.second, out & w.exec());
    return &t + 1;
}

template <class Narrow, class Wide>
const Step *multiply_add_wide(Wave &w, const Step &t) {
    const Source<Narrow> a(w, t.source[0]), b(w, t.source[1]);
    const Source<u64> c(w, t.source[2]);
    Result<u64> result;
    u32 out = 0;
    for (u32 l = 0; l < kWave; l++) {
        const u64 product = u64(Wide(a(l)) * Wide(b(l))), sum = product + c(l);
        result.set(l, sum);
        out |= u32(sum < product) << l;
    }
    result.store(w, t.destination);
    put_scalar32(w, t.second, out & w.exec());
    return &t + 1;
}

const Step *scale_division(Wave &w, const Step &t) {
    const Source<float> of(w, t.source[0]), d(w, t.source[1]), n(w, t.source[2]);
    Result<float> result;
    u32 out = 0;
    for (u32 l = 0; l < kWave; l++) {
        const Scaled s = division_scale(of(l), d(l), n(l));
        result.set(l, s.value);
        out |= u32(s.quotient_too) << l;
    }
    result.store(w, t.destination);
    put_scalar32(w, t.second, out & w.exec());
    return &t + 1;
}

const Step *multiply_add_division(Wave &w, const Step &t) {
    const Source<float> a(w, t.source[0]), b(w, t.source[1]), c(w, t.source[2]);
    const u32 mask = mask_source(w, t.source[3]);
    Result<float> result;
    for (u32 l = 0; l < kWave; l++) result.set(l, division_fma(a(l), b(l), c(l), mask >> l & 1));
    result.store(w, t.destination);
    return &t + 1;
}

// Bits of the mask below the own lane, counted and added.
const Step *count_below(Wave &w, const Step &t) {
    const Source<u32> mask(w, t.source[0]), add(w, t.source[1]);
    Result<u32> result;
    for (u32 l = 0; l < kWave; l++)
        result.set(l, u32(__builtin_popcount(mask(l) & ((1u << l) - 1))) + add(l));
    result.store(w, t.destination);
    return &t + 1;
}

// With all lanes off: lane 0.
const Step *read_first_lane(Wave &w, const Step &t) {
    const u32 lane = w.exec() == 0 ? 0 : u32(__builtin_ctz(w.exec()));
    Lanes room;
    put_scalar32(w, t.destination, vector32(w, t.source[0], room)[lane]);
    return &t + 1;
}
const Step *read_lane(Wave &w, const Step &t) {
    Lanes room;
    const u32 lane = scalar32(w, t.source[1]) % kWave;
    put_scalar32(w, t.destination, vector32(w, t.source[0], room)[lane]);
    return &t + 1;
}
const Step *write_lane(Wave &w, const Step &t) {
    w.v[t.destination.number].x[scalar32(w, t.source[1]) % kWave] = scalar32(w, t.source[0]);
    return &t + 1;
}

float maximum(float a, float b) {
    return a != a ? b : b != b ? a : a > b || (a == b && !std::signbit(a)) ? a : b;
}
float minimum(float a, float b) { return -maximum(-a, -b); }
u32 low24(u32 x) { return x & 0xFFFFFF; }

}  // namespace

const InstructionTable &vector_instructions() {
    static const InstructionTable table = {
        VECTOR(
            "v_mov_b32", (u32 a)->u32 { return a; }),
        VECTOR(
            "v_not_b32", (u32 a)->u32 { return ~a; }),
        VECTOR(
            "v_bfrev_b32", (u32 a)->u32 { return __builtin_bitreverse32(a); }),
        {"v_cndmask_b32", choose},

        VECTOR(
            "v_add_nc_u32", (u32 a, u32 b)->u32 { return a + b; }),
        VECTOR(
            "v_sub_nc_u32", (u32 a, u32 b)->u32 { return a - b; }),
        VECTOR(
            "v_subrev_nc_u32", (u32 a, u32 b)->u32 { return b - a; }),
        {"v_add_co_u32", carry, kAdd},
        {"v_sub_co_u32", carry, kSubtract},
        {"v_subrev_co_u32", carry, kSubtractReversed},
        {"v_add_co_ci_u32", carry, kAdd | kCarryIn},
        {"v_sub_co_ci_u32", carry, kSubtract | kCarryIn},
        {"v_subrev_co_ci_u32", carry, kSubtractReversed | kCarryIn},
        VECTOR(
            "v_mul_lo_u32", (u32 a, u32 b)->u32 { return a * b; }),
        VECTOR(
            "v_mul_hi_u32", (u32 a, u32 b)->u32 { return u32(u64(a) * b >> 32); }),
        VECTOR(
            "v_mul_hi_i32", (i32 a, i32 b)->i32 { return i32(i64(a) * b >> 32); }),
        VECTOR(
            "v_mul_u32_u24", (u32 a, u32 b)->u32 { return low24(a) * low24(b); }),
        VECTOR(
            "v_mad_u32_u24", (u32 a, u32 b, u32 c)->u32 { return low24(a) * low24(b) + c; }),
        {"v_mad_u64_u32", multiply_add_wide<u32, u64>},
        {"v_mad_co_u64_u32", multiply_add_wide<u32, u64>},
        VECTOR(
            "v_add3_u32", (u32 a, u32 b, u32 c)->u32 { return a + b + c; }),
        VECTOR(
            "v_min_u32", (u32 a, u32 b)->u32 { return a < b ? a : b; }),
        VECTOR(
            "v_max_u32", (u32 a, u32 b)->u32 { return a > b ? a : b; }),
        VECTOR(
            "v_min_i32", (i32 a, i32 b)->i32 { return a < b ? a : b; }),
        VECTOR(
            "v_max_i32", (i32 a, i32 b)->i32 { return a > b ? a : b; }),

        VECTOR(
            "v_and_b32", (u32 a, u32 b)->u32 { return a & b; }),
        VECTOR(
            "v_or_b32", (u32 a, u32 b)->u32 { return a | b; }),
        VECTOR(
            "v_xor_b32", (u32 a, u32 b)->u32 { return a ^ b; }),
        VECTOR(
            "v_xnor_b32", (u32 a, u32 b)->u32 { return ~(a ^ b); }),
        VECTOR(
            "v_and_or_b32", (u32 a, u32 b, u32 c)->u32 { return (a & b) | c; }),
        VECTOR(
            "v_or3_b32", (u32 a, u32 b, u32 c)->u32 { return a | b | c; }),
        VECTOR(
            "v_xor3_b32", (u32 a, u32 b, u32 c)->u32 { return a ^ b ^ c; }),
        VECTOR(
            "v_lshlrev_b32", (u32 a, u32 b)->u32 { return b << (a & 31); }),
        VECTOR(
            "v_lshrrev_b32", (u32 a, u32 b)->u32 { return b >> (a & 31); }),
        VECTOR(
            "v_ashrrev_i32", (u32 a, i32 b)->i32 { return b >> (a & 31); }),
        VECTOR(
            "v_lshlrev_b64", (u32 a, u64 b)->u64 { return b << (a & 63); }),
        VECTOR(
            "v_lshrrev_b64", (u32 a, u64 b)->u64 { return b >> (a & 63); }),
        VECTOR(
            "v_lshl_add_u32", (u32 a, u32 b, u32 c)->u32 { return (a << (b & 31)) + c; }),
        VECTOR(
            "v_add_lshl_u32", (u32 a, u32 b, u32 c)->u32 { return (a + b) << (c & 31); }),
        VECTOR(
            "v_lshl_or_b32", (u32 a, u32 b, u32 c)->u32 { return a << (b & 31) | c; }),
        VECTOR(
            "v_xad_u32", (u32 a, u32 b, u32 c)->u32 { return (a ^ b) + c; }),
        VECTOR(
            "v_bfe_u32", (u32 a, u32 b, u32 c)->u32 { return extract(a, b, c); }),
        VECTOR(
            "v_bfe_i32", (u32 a, u32 b, u32 c)->u32 { return extract_signed(a, b, c); }),
        VECTOR(
            "v_bfi_b32", (u32 a, u32 b, u32 c)->u32 { return (a & b) | (~a & c); }),
        VECTOR(
            "v_perm_b32", (u32 a, u32 b, u32 c)->u32 { return permute_bytes(a, b, c); }),
        VECTOR(
            "v_alignbit_b32", (u32 a, u32 b, u32 c)->u32 { return u32(join(b, a) >> (c & 31)); }),
        VECTOR(
            "v_alignbyte_b32",
            (u32 a, u32 b, u32 c)->u32 { return u32(join(b, a) >> 8 * (c & 3)); }),
        {"v_mbcnt_lo_u32_b32", count_below},
        {"v_readfirstlane_b32", read_first_lane},
        {"v_readlane_b32", read_lane},
        {"v_writelane_b32", write_lane},

        VECTOR(
            "v_add_f32", (float a, float b)->float { return a + b; }),
        VECTOR(
            "v_sub_f32", (float a, float b)->float { return a - b; }),
        VECTOR(
            "v_subrev_f32", (float a, float b)->float { return b - a; }),
        VECTOR(
            "v_mul_f32", (float a, float b)->float { return a * b; }),
        VECTOR(
            "v_fma_f32", (float a, float b, float c)->float { return fmaf(a, b, c); }),
        VECTOR(
            "v_fmaak_f32", (float a, float b, float c)->float { return fmaf(a, b, c); }),
        VECTOR(
            "v_fmamk_f32", (float a, float b, float c)->float { return fmaf(a, b, c); }),
        ACCUMULATE(
            "v_fmac_f32", (float a, float b, float old)->float { return fmaf(a, b, old); }),
        VECTOR(
            "v_max_f32", (float a, float b)->float { return maximum(a, b); }),
        VECTOR(
            "v_min_f32", (float a, float b)->float { return minimum(a, b); }),
        VECTOR(
            "v_max_num_f32", (float a, float b)->float { return maximum(a, b); }),
        VECTOR(
            "v_min_num_f32", (float a, float b)->float { return minimum(a, b); }),
        VECTOR(
            "v_trunc_f32", (float a)->float { return truncf(a); }),
        VECTOR(
            "v_floor_f32", (float a)->float { return floorf(a); }),
        VECTOR(
            "v_ceil_f32", (float a)->float { return ceilf(a); }),
        VECTOR(
            "v_rndne_f32", (float a)->float { return nearbyintf(a); }),
        // The hardware may be off by one in the last place: see docs/rdnasim.md.
        VECTOR(
            "v_rcp_f32", (float a)->float { return 1 / a; }),
        VECTOR(
            "v_rcp_iflag_f32", (float a)->float { return 1 / a; }),
        {"v_div_scale_f32", scale_division},
        {"v_div_fmas_f32", multiply_add_division},
        VECTOR(
            "v_div_fixup_f32",
            (float a, float b, float c)->float { return division_fixup(a, b, c); }),

        VECTOR(
            "v_cvt_f32_f16", (Half a)->float { return a.value(); }),
        VECTOR(
            "v_cvt_f16_f32", (float a)->Half { return Half::of(a); }),
        VECTOR(
            "v_cvt_f32_u32", (u32 a)->float { return float(a); }),
        VECTOR(
            "v_cvt_f32_i32", (i32 a)->float { return float(a); }),
        VECTOR(
            "v_cvt_u32_f32", (float a)->u32 { return float_to_u32(a); }),
        VECTOR(
            "v_cvt_i32_f32", (float a)->i32 { return float_to_i32(a); }),
        VECTOR(
            "v_pack_b32_f16", (Half a, Half b)->u32 { return a.bits | u32(b.bits) << 16; }),
    };
    return table;
}

}  // namespace rdnasim
