// SPDX-License-Identifier: Apache-2.0
// Arithmetic on packed vectors: unpack to fp32, combine, round once, pack.
//
// All of it is written for a "word" U, which is one 32-bit word on a GPU and a SIMD register of
// them on a CPU, and for F, the floats of the same shape. A word holds one fp32 element or two
// 16-bit elements, unpacked to two Fs. Which element goes to which is the codec's matter;
// combining works on all alike and packing puts each back to its place.
//
// A NaN result is always the one canonical NaN: operand order of NaN payloads is not defined by
// compilers, and all ranks must get the same bits. So no result is ever the sentinel either.
#pragma once

#include "lane.h"
#include "portable.h"

namespace rdnaar {

struct Fp16 {
    static constexpr uint32_t kBytes = 2;
};
struct Bf16 {
    static constexpr uint32_t kBytes = 2;
};
struct Fp32 {
    static constexpr uint32_t kBytes = 4;
};

// The floats of the shape of U; a platform with SIMD words specialises it.
template <class U>
struct FloatsOf;
template <>
struct FloatsOf<uint32_t> {
    using type = float;
};

template <class U>
RDNAAR_FN U splat(uint32_t x) {
    return U{} + x;
}

template <class Mask, class X>
RDNAAR_FN X select(Mask mask, X yes, X no) {
    return mask ? yes : no;
}

// ---- Conversions, in arithmetic without branches -----------------------------------------------

// Every binary16 value is exact in binary32. The multiplication moves the exponent's bias and makes
// subnormals normal; it is exact.
template <class U, class F = typename FloatsOf<U>::type>
RDNAAR_FN F half_bits_to_float(U h) {
    const U magnitude = (h & 0x7FFFu) << 13;
    const F scaled = bit_cast<F>(magnitude) * 5.192296858534828e33f;  // 2^112
    const U inf_or_nan = select((h & 0x7C00u) == 0x7C00u, splat<U>(0x7F800000u), splat<U>(0u));
    return bit_cast<F>(U(bit_cast<U>(scaled) | inf_or_nan | (h & 0x8000u) << 16));
}

// To nearest, ties to even; overflow gives infinity, NaN the canonical NaN.
template <class F, class U>
RDNAAR_FN U float_to_half_bits(F f) {
    const U bits = bit_cast<U>(f);
    const U sign = bits >> 16 & 0x8000u;
    const U magnitude = bits & 0x7FFFFFFFu;
    const U odd = magnitude >> 13 & 1u;
    const U normal = (magnitude - 0x38000000u + 0xFFFu + odd) >> 13;
    // Adding 1/2 lets the adder round at the place of the last bit of a subnormal half.
    const U subnormal = bit_cast<U>(F(bit_cast<F>(magnitude) + 0.5f)) - 0x3F000000u;
    U half = select(magnitude < 0x38800000u, subnormal, normal);              // 2^-14
    half = select(magnitude >= 0x47800000u, splat<U>(0x7C00u), half) | sign;  // 2^16
    return select(magnitude > 0x7F800000u, splat<U>(0x7E00u), half);
}

// The upper half of the word, the lower half is cleared; likewise.
template <class F, class U>
RDNAAR_FN U float_to_bf16_high(F f) {
    const U bits = bit_cast<U>(f);
    const U rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
    return select((bits & 0x7FFFFFFFu) > 0x7F800000u, splat<U>(0x7FC00000u), rounded);
}

template <class F, class U>
RDNAAR_FN U float_to_fp32_bits(F f) {
    return select(f != f, splat<U>(0x7FC00000u), bit_cast<U>(f));
}

// Codec<T, U>: one word to kFloats Fs and back. A platform may specialise it for its instructions.
template <class T, class U>
struct Codec;

template <class U>
struct Codec<Fp32, U> {
    using F = typename FloatsOf<U>::type;
    static constexpr int kFloats = 1;
    static RDNAAR_FN void unpack(U w, F (&f)[1]) { f[0] = bit_cast<F>(w); }
    static RDNAAR_FN U pack(const F (&f)[1]) { return float_to_fp32_bits<F, U>(f[0]); }
};

template <class U>
struct Codec<Bf16, U> {
    using F = typename FloatsOf<U>::type;
    static constexpr int kFloats = 2;
    static RDNAAR_FN void unpack(U w, F (&f)[2]) {
        f[0] = bit_cast<F>(U(w << 16));
        f[1] = bit_cast<F>(U(w & 0xFFFF0000u));
    }
    static RDNAAR_FN U pack(const F (&f)[2]) {
        return float_to_bf16_high<F, U>(f[0]) >> 16 | float_to_bf16_high<F, U>(f[1]);
    }
};

template <class U>
struct Codec<Fp16, U> {
    using F = typename FloatsOf<U>::type;
    static constexpr int kFloats = 2;
    static RDNAAR_FN void unpack(U w, F (&f)[2]) {
        f[0] = half_bits_to_float<U>(w & 0xFFFFu);
        f[1] = half_bits_to_float<U>(w >> 16);
    }
    static RDNAAR_FN U pack(const F (&f)[2]) {
        return float_to_half_bits<F, U>(f[0]) | float_to_half_bits<F, U>(f[1]) << 16;
    }
};

// ---- Operations ----------------------------------------------------------------------------

// IEEE 754-2019 maximum: NaN wins, -0 is below +0. Equal operands differ at most in the sign of a
// zero, so that `and` of their bits is the greater.
template <class U, class F>
RDNAAR_FN F maximum(F a, F b) {
    F r = select(a > b, a, b);
    r = select(a == b, bit_cast<F>(U(bit_cast<U>(a) & bit_cast<U>(b))), r);
    return select(a != a, a, r);
}

enum OpKind : int { kOpAdd = 0, kOpMax = 1 };  // sum and avg; max and min

// Folds vectors in rank order. min(a, b) is -max(-a, -b): `flip` is the sign bit for min, else 0.
template <class V, class T, OpKind kOp>
struct Fold {
    using U = typename V::Word;
    using C = Codec<T, U>;
    using F = typename FloatsOf<U>::type;
    static constexpr int N = V::kWords;
    F sum[N][C::kFloats];

    static RDNAAR_FN void unpack(U w, uint32_t flip, F (&f)[C::kFloats]) {
        C::unpack(w, f);
        if constexpr (kOp == kOpMax)
            for (int k = 0; k < C::kFloats; k++) f[k] = bit_cast<F>(U(bit_cast<U>(f[k]) ^ flip));
    }

    RDNAAR_FN void start(const V &v, uint32_t flip) {
        RDNAAR_UNROLL
        for (int i = 0; i < N; i++) unpack(v.w[i], flip, sum[i]);
    }

    RDNAAR_FN void add(const V &v, uint32_t flip) {
        RDNAAR_UNROLL
        for (int i = 0; i < N; i++) {
            F f[C::kFloats];
            unpack(v.w[i], flip, f);
            RDNAAR_UNROLL
            for (int k = 0; k < C::kFloats; k++) {
                if constexpr (kOp == kOpAdd) {
                    sum[i][k] = sum[i][k] + f[k];
                } else {
                    sum[i][k] = maximum<U>(sum[i][k], f[k]);
                }
            }
        }
    }

    // `divisor` is the world for avg, else 1. Half of a float is correctly rounded by multiplication.
    template <bool kDivisorIsTwo>
    RDNAAR_FN V finish(uint32_t flip, float divisor) {
        V v;
        RDNAAR_UNROLL
        for (int i = 0; i < N; i++) {
            RDNAAR_UNROLL
            for (int k = 0; k < C::kFloats; k++) {
                F &f = sum[i][k];
                if constexpr (kOp == kOpMax) {
                    f = bit_cast<F>(U(bit_cast<U>(f) ^ flip));
                } else if (divisor != 1.0f) {
                    f = kDivisorIsTwo ? f * 0.5f : f / divisor;
                }
            }
            v.w[i] = C::pack(sum[i]);
        }
        return v;
    }
};

// Two, or one, canonical NaNs in a word: the output of an aborted call.
template <class T>
RDNAAR_FN uint32_t nan_word();
template <>
RDNAAR_FN uint32_t nan_word<Fp16>() {
    return 0x7E007E00u;
}
template <>
RDNAAR_FN uint32_t nan_word<Bf16>() {
    return 0x7FC07FC0u;
}
template <>
RDNAAR_FN uint32_t nan_word<Fp32>() {
    return 0x7FC00000u;
}

}  // namespace rdnaar
