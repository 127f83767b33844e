// SPDX-License-Identifier: Apache-2.0
// The widest SIMD register of the instruction set that this file is compiled for, as the word of the
// arithmetic in protocol/numeric.h. Four SSE (or NEON) registers, two AVX or one AVX-512 make a cache
// line; the compiler handles a vector type well only when the machine has a register for it.
#pragma once

#include "../protocol/numeric.h"

namespace rdnaar {

// A namespace per instruction set: one library holds this header compiled for several, and the linker
// would merge functions of the same name, so that one set's code could run on a CPU without it.
#if defined(__AVX512F__)
#define RDNAAR_SIMD_NAMESPACE avx512
constexpr int kSimdBytes = 64;
#elif defined(__AVX2__)
#define RDNAAR_SIMD_NAMESPACE avx2
constexpr int kSimdBytes = 32;
#else
#define RDNAAR_SIMD_NAMESPACE baseline
constexpr int kSimdBytes = 16;
#endif

typedef uint32_t SimdWord __attribute__((vector_size(kSimdBytes)));
typedef float SimdFloat __attribute__((vector_size(kSimdBytes)));

template <>
struct FloatsOf<SimdWord> {
    using type = SimdFloat;
};

using HostVec = Vec<SimdWord, 64 / kSimdBytes>;
static_assert(sizeof(HostVec) == 64, "one cache line, on every instruction set");

RDNAAR_FN bool any_set(SimdWord w) {
    typedef uint64_t Pairs __attribute__((vector_size(kSimdBytes)));
    const Pairs p = bit_cast<Pairs>(w);
    uint64_t found = 0;
    for (int i = 0; i < kSimdBytes / 8; i++) found |= p[i];
    return found != 0;
}

}  // namespace rdnaar
