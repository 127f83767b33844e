// SPDX-License-Identifier: Apache-2.0
// Numbers that follow from a seed alone.
#pragma once

#include <cstdint>

namespace explorer {

inline uint64_t mix(uint64_t x) {  // splitmix64
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

inline uint64_t mix(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }

class Random {
public:
    explicit Random(uint64_t seed = 0) : state_(mix(seed) | 1) {}
    uint32_t next() {  // xorshift64*
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return uint32_t(state_ * 0x2545F4914F6CDD1Du >> 32);
    }
    uint32_t below(uint32_t n) { return uint32_t(uint64_t(next()) * n >> 32); }
    uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool one_in(uint32_t n) { return below(n) == 0; }

private:
    uint64_t state_;
};

}  // namespace explorer
