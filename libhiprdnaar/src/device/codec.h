// SPDX-License-Identifier: Apache-2.0
// 16-bit conversions by the GPU's own instructions: to nearest even, subnormals kept, bit for bit
// what protocol/numeric.h computes. An instruction keeps or invents a NaN's payload, so the
// canonical NaN is put in afterwards.
#pragma once

#include "../protocol/numeric.h"

namespace rdnaar {

// `packed` with the canonical NaN in place of each half whose float is one.
RDNAAR_FN uint32_t with_canonical_nans(uint32_t packed, const float (&f)[2], uint32_t nan) {
    packed = f[0] != f[0] ? (packed & 0xFFFF0000u) | nan : packed;
    return f[1] != f[1] ? (packed & 0x0000FFFFu) | nan << 16 : packed;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800  // that convert two floats at once

template <>
struct Codec<Fp16, uint32_t> {
    using F = float;
    static constexpr int kFloats = 2;
    static RDNAAR_FN void unpack(uint32_t w, float (&f)[2]) {
        asm("cvt.f32.f16 %0, %1;" : "=f"(f[0]) : "h"(uint16_t(w)));
        asm("cvt.f32.f16 %0, %1;" : "=f"(f[1]) : "h"(uint16_t(w >> 16)));
    }
    static RDNAAR_FN uint32_t pack(const float (&f)[2]) {
        uint32_t w;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(f[1]), "f"(f[0]));
        return with_canonical_nans(w, f, 0x7E00u);
    }
};

template <>
struct Codec<Bf16, uint32_t> {
    using F = float;
    static constexpr int kFloats = 2;
    static RDNAAR_FN void unpack(uint32_t w, float (&f)[2]) {
        f[0] = bit_cast<float>(w << 16);
        f[1] = bit_cast<float>(w & 0xFFFF0000u);
    }
    static RDNAAR_FN uint32_t pack(const float (&f)[2]) {
        uint32_t w;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(f[1]), "f"(f[0]));
        return with_canonical_nans(w, f, 0x7FC0u);
    }
};

#elif !defined(__CUDACC__)

template <>
struct Codec<Fp16, uint32_t> {
    using F = float;
    static constexpr int kFloats = 2;
    typedef _Float16 Halves __attribute__((ext_vector_type(2)));
    static RDNAAR_FN void unpack(uint32_t w, float (&f)[2]) {
        const Halves h = bit_cast<Halves>(w);
        f[0] = float(h.x);
        f[1] = float(h.y);
    }
    static RDNAAR_FN uint32_t pack(const float (&f)[2]) {
        const Halves h{_Float16(f[0]), _Float16(f[1])};
        return with_canonical_nans(bit_cast<uint32_t>(h), f, 0x7E00u);
    }
};

#endif

}  // namespace rdnaar
