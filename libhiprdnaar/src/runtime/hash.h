// SPDX-License-Identifier: Apache-2.0
// FNV-1a, 64 bits: to notice that two things differ, not to withstand an attacker.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdnaar {

constexpr uint64_t kFnvStart = 0xCBF29CE484222325ull;

inline uint64_t fnv1a(const void *data, size_t nbytes, uint64_t hash = kFnvStart) {
    const unsigned char *p = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ p[i]) * 0x100000001B3ull;
    return hash;
}

}  // namespace rdnaar
