// SPDX-License-Identifier: Apache-2.0
// A small generator of random numbers (xorshift64*): drawn for every turn of every wave.
#pragma once

#include "base.h"

namespace rdnasim {

class Random {
public:
    explicit Random(u64 seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x5851F42D4C957F2Du) { next(); }
    u32 next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return u32(state_ * 0x2545F4914F6CDD1Du >> 32);
    }
    u32 below(u32 bound) { return u32(u64(next()) * bound >> 32); }
    bool one_in(u32 n) { return below(n) == 0; }

private:
    u64 state_;
};

}  // namespace rdnasim
