// SPDX-License-Identifier: Apache-2.0
// A broken link from this rank to one peer. Only in builds with FAULTS=1.
#pragma once

#include <cstdint>

namespace rdnaar {

enum FaultKind : uint32_t { kNoFault = 0, kCorrupt, kDrop, kStall };

struct Fault {
    uint32_t kind;  // FaultKind
    uint32_t k;     // of the peer: its slab is Call::slab[k]
};

}  // namespace rdnaar
