// SPDX-License-Identifier: Apache-2.0
// Integer types of the machine that is simulated, and looking at the same bits in another way.
#pragma once

#include <cstdint>
#include <cstring>

#define RDNASIM_INLINE __attribute__((always_inline)) inline

namespace rdnasim {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;

constexpr u32 kWave = 32;

template <class To, class From>
inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

inline u64 join(u32 low, u32 high) { return u64(high) << 32 | low; }

// Says what is wrong and ends the process: as a GPU that faults does.
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...);

}  // namespace rdnasim
