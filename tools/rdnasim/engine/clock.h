// SPDX-License-Identifier: Apache-2.0
// The simulated clock is the real one: bounds of waits mean the same milliseconds as on a GPU. Unless
// it is told to go slower (RDNASIM_SLOW_CLOCK), for machines that have other things to do.
#pragma once

#include <time.h>

#include "settings.h"

namespace rdnasim {

constexpr u32 kRealTimeKhz = 100000;  // of s_memrealtime, on all parts so far

inline u64 nanoseconds(clockid_t clock = CLOCK_MONOTONIC) {
    timespec t;
    clock_gettime(clock, &t);
    return u64(t.tv_sec) * 1000000000 + u64(t.tv_nsec);
}

inline u64 real_time_ticks() {
    return nanoseconds() / (1000000 / kRealTimeKhz) / settings().slow_clock;
}

}  // namespace rdnasim
