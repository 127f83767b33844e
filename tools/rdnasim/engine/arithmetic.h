// SPDX-License-Identifier: Apache-2.0
// What single instructions compute, where C++ has no operator for it.
#pragma once

#include <cmath>

#include "base.h"

namespace rdnasim {

// A 16-bit float in the low half of a register.
struct Half {
    u16 bits;
    float value() const { return float(bits_as<_Float16>(bits)); }
    static Half of(float f) { return Half{bits_as<u16>(_Float16(f))}; }
};

inline u32 exponent(float f) { return bits_as<u32>(f) >> 23 & 0xFF; }
inline bool is_subnormal(float f) { return exponent(f) == 0 && f != 0; }

inline u32 float_to_u32(float f) { return !(f > 0) ? 0 : f >= 4294967296.0f ? ~0u : u32(f); }
inline i32 float_to_i32(float f) {
    return f != f ? 0 : f <= -2147483648.0f ? INT32_MIN : f >= 2147483648.0f ? INT32_MAX : i32(f);
}

inline u32 mask_of(u32 bits) { return bits >= 32 ? ~0u : (1u << bits) - 1; }
inline u32 extract(u32 x, u32 offset, u32 width) {
    return x >> (offset & 31) & mask_of(width & 31);
}
inline u32 extract_signed(u32 x, u32 offset, u32 width) {
    width &= 31;
    return width == 0 ? 0 : u32(i32(extract(x, offset, width) << (32 - width)) >> (32 - width));
}

// v_perm_b32: each byte of the selector picks a byte of (high, low), or makes one.
inline u32 permute_bytes(u32 high, u32 low, u32 selector) {
    const u64 bytes = join(low, high);
    u32 result = 0;
    for (u32 i = 0; i < 4; i++) {
        const u32 pick = selector >> 8 * i & 0xFF;
        u32 byte = 0xFF;
        if (pick < 8)
            byte = u32(bytes >> 8 * pick) & 0xFF;
        else if (pick < 12)
            byte = bytes >> (16 * (pick - 8) + 15) & 1 ? 0xFF : 0;
        else if (pick == 12)
            byte = 0;
        result |= byte << 8 * i;
    }
    return result;
}

// ---- Division: the three instructions around the reciprocal -------------------------------------
//
// They keep what comes between away from overflow and subnormals, so that the compiler's sequence
// is correctly rounded for all operands. The test of instructions holds the whole sequence against
// the CPU's division.

inline bool is_below_normal(double x) { return x != 0 && std::fabs(x) < 0x1p-126; }

// The scaled numerator or denominator (`of` is one of the two), and whether the quotient has to be
// scaled back.
struct Scaled {
    float value;
    bool quotient_too;
};
inline Scaled division_scale(float of, float denominator, float numerator) {
    if (numerator == 0 || denominator == 0) return {NAN, false};
    const bool of_denominator = bits_as<u32>(of) == bits_as<u32>(denominator);
    const bool of_numerator = bits_as<u32>(of) == bits_as<u32>(numerator);
    const bool reciprocal_small = is_below_normal(1.0 / double(denominator));
    const bool quotient_small = is_below_normal(double(numerator) / double(denominator));
    if (i32(exponent(numerator)) - i32(exponent(denominator)) >= 96)
        return {of_denominator ? ldexpf(of, 64) : of, true};
    if (is_subnormal(denominator)) return {ldexpf(of, 64), false};
    if (reciprocal_small && quotient_small) return {of_denominator ? ldexpf(of, -64) : of, true};
    if (reciprocal_small) return {ldexpf(of, -64), false};
    if (quotient_small) return {of_numerator ? ldexpf(of, 64) : of, true};
    if (exponent(numerator) <= 23) return {ldexpf(of, 64), false};
    return {of, false};
}

// Scaled before it is rounded: a second rounding would be wrong among the subnormals.
inline float division_fma(float a, float b, float c, bool scale) {
    if (!scale) return fmaf(a, b, c);
    const __float128 exact = __float128(a) * b + c;
    return float(exact * (exponent(c) > 127 ? 0x1p64 : 0x1p-64));
}

inline float quiet(float nan) { return bits_as<float>(bits_as<u32>(nan) | 0x400000u); }

inline float division_fixup(float quotient, float denominator, float numerator) {
    const bool negative = std::signbit(denominator) != std::signbit(numerator);
    const auto with_sign = [negative](float f) { return negative ? -f : f; };
    if (numerator != numerator) return quiet(numerator);
    if (denominator != denominator) return quiet(denominator);
    const bool infinite_n = std::isinf(numerator), infinite_d = std::isinf(denominator);
    if ((numerator == 0 && denominator == 0) || (infinite_n && infinite_d))
        return bits_as<float>(0xFFC00000u);
    if (denominator == 0 || infinite_n) return with_sign(INFINITY);
    if (infinite_d || numerator == 0) return with_sign(0.0f);
    // Too small or too large for the sequence to have come to anything.
    const i32 difference = i32(exponent(numerator)) - i32(exponent(denominator));
    if (difference < -150) return with_sign(0.0f);
    if (difference > 128) return with_sign(INFINITY);
    return with_sign(fabsf(quotient));
}

}  // namespace rdnasim
