// SPDX-License-Identifier: Apache-2.0
// binary16 conversions by the CPU's own instructions, where the compiler may use them.
#pragma once

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>

#include "simd.h"

namespace rdnaar {

// The elements of the first half of a word go to f[0], those of the second half to f[1], both in
// memory order. The packing instruction keeps NaN payloads, so the canonical NaN is blended in.
template <>
struct Codec<Fp16, SimdWord> {
    using F = SimdFloat;
    static constexpr int kFloats = 2;
#if defined(__AVX512F__)
    using Half = __m256i;
    static RDNAAR_FN F widen(Half h) { return F(_mm512_cvtph_ps(h)); }
    static RDNAAR_FN Half narrow(F f) {
        return _mm512_cvtps_ph(__m512(f), _MM_FROUND_TO_NEAREST_INT);
    }
#else
    using Half = __m128i;
    static RDNAAR_FN F widen(Half h) { return F(_mm256_cvtph_ps(h)); }
    static RDNAAR_FN Half narrow(F f) {
        return _mm256_cvtps_ph(__m256(f), _MM_FROUND_TO_NEAREST_INT);
    }
#endif
    struct Halves {
        Half half[2];
    };
    static_assert(sizeof(Halves) == sizeof(SimdWord), "a word in two halves");

    static RDNAAR_FN void unpack(SimdWord w, F (&f)[2]) {
        const Halves halves = bit_cast<Halves>(w);
        f[0] = widen(halves.half[0]);
        f[1] = widen(halves.half[1]);
    }
    static RDNAAR_FN SimdWord pack(const F (&f)[2]) {
        Halves halves;
        for (int k = 0; k < 2; k++) {
            const SimdWord nan = splat<SimdWord>(0x7FC00000u);
            halves.half[k] = narrow(select(f[k] != f[k], bit_cast<F>(nan), f[k]));
        }
        return bit_cast<SimdWord>(halves);
    }
};

}  // namespace rdnaar
#endif
