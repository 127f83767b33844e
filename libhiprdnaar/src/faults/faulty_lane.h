// SPDX-License-Identifier: Apache-2.0
// A lane whose stores to one peer go wrong: one bit of each vector flips, flags (of `ll`: the first
// vector) never leave, or they leave late. Only in builds with FAULTS=1.
#pragma once

#include "../protocol/call.h"
#include "../protocol/lane.h"

namespace rdnaar {

template <class Lane>
struct FaultyLane : Lane {
    using Vec = typename Lane::Vec;
    using Index = typename Lane::Index;
    const Call &call;

    RDNAAR_FN FaultyLane(const Lane &lane, const Call &c) : Lane(lane), call(c) {}

    RDNAAR_FN bool hits(uint32_t kind, const unsigned char *slab) const {
        return call.fault.kind == kind && slab == call.slab[call.fault.k];
    }

    RDNAAR_FN Vec damaged(const unsigned char *slab, Vec v) const {
        if (hits(kCorrupt, slab)) v.w[0] ^= splat<typename Vec::Word>(0x00400000u);
        return v;
    }

    RDNAAR_FN void put(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        Lane::put(slab, slot, i, damaged(slab, v));
    }

    RDNAAR_FN void put_ll(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        if (i == 0 && hits(kDrop, slab)) return;
        if (i == 0 && hits(kStall, slab)) stall();
        Lane::put_ll(slab, slot, i, damaged(slab, v));
    }

    RDNAAR_FN void store_flag_release(uint64_t *flag, uint64_t x) {
        const unsigned char *at = reinterpret_cast<const unsigned char *>(flag);
        const unsigned char *slab = call.slab[call.fault.k];
        const bool there = at >= slab && at < slab + call.layout.slab_bytes;
        if (there && call.fault.kind == kDrop) return;
        if (there && call.fault.kind == kStall) stall();
        Lane::store_flag_release(flag, x);
    }

    // A quarter of the bound, so that the call is late, and right.
    RDNAAR_FN void stall() {
        const uint64_t start = Lane::now();
        while (Lane::now() - start < call.timeout_ticks / 4) {
        }
    }
};

}  // namespace rdnaar
