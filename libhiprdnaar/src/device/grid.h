// SPDX-License-Identifier: Apache-2.0
// The grid of a launch, as the kernel is told. An argument of its own, since what a kernel can find
// out itself is somewhere else in each code object version and platform.
#pragma once

#include <cstdint>

namespace rdnaar {

constexpr uint32_t kMaxThreads = 512;

struct GridShape {
    uint32_t blocks;
    uint32_t threads;  // per block; a multiple of the wave, at most kMaxThreads
};

}  // namespace rdnaar
