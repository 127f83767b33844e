// SPDX-License-Identifier: Apache-2.0
// What the protocol sources need from a compiler: they are built by g++, clang++, hipcc and nvcc.
#pragma once

#include <cstddef>
#include <cstdint>

// Inlined everywhere: on a GPU a call would cost registers and a stack. A GPU build compiles no host
// code, and takes no header of a GPU toolkit, so the attribute is spelled out for clang.
#if defined(__CUDACC__)
#define RDNAAR_FN __device__ __forceinline__
#elif defined(__HIP__)
#define RDNAAR_FN __attribute__((device)) inline __attribute__((always_inline))
#else
#define RDNAAR_FN inline __attribute__((always_inline))
#endif

// Full unrolling keeps small arrays in registers: needed on a GPU, where an indexed array goes to
// scratch memory, harmless elsewhere.
#if defined(__CUDACC__) || defined(__clang__)
#define RDNAAR_UNROLL _Pragma("unroll")
#else
#define RDNAAR_UNROLL _Pragma("GCC unroll 16")
#endif

// A loop that is rare and better short.
#if defined(__CUDACC__) || defined(__clang__)
#define RDNAAR_KEEP_LOOP _Pragma("unroll 1")
#endif

namespace rdnaar {

template <class To, class From>
RDNAAR_FN To bit_cast(const From &from) {
    static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

template <class T>
RDNAAR_FN constexpr T min_of(T a, T b) {
    return a < b ? a : b;
}

RDNAAR_FN constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
RDNAAR_FN constexpr uint64_t round_up(uint64_t a, uint64_t b) { return ceil_div(a, b) * b; }

}  // namespace rdnaar
