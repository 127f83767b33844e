// SPDX-License-Identifier: Apache-2.0
// What the environment says about the machine to simulate. Read once.
#pragma once

#include <string>
#include <vector>

#include "base.h"

namespace rdnasim {

struct Model {
    const char *name;    // as the setting spells it
    const char *title;   // as the runtime reports it
    const char *target;  // of code objects
    u32 compute_units;
    u64 memory_bytes;
};

enum class PeerFault { kNone, kCorrupt, kDrop, kStall };

struct Settings {
    std::vector<const Model *> devices;  // RDNASIM_DEVICES, V620,V620 for instance
    bool weak = false;                   // RDNASIM_MEMORY=strong|weak
    u64 seed = 0;                        // RDNASIM_SEED; 0: waves take turns of equal length
    u32 resident_blocks = ~0u;           // RDNASIM_RESIDENT_BLOCKS, of a device
    bool peer_access = true;             // RDNASIM_PEER=yes|refused
    PeerFault fault = PeerFault::kNone;  // RDNASIM_PEER_FAULT=corrupt:0:1
    u32 fault_from = 0, fault_to = 0;
    bool uncached = true;     // RDNASIM_UNCACHED=yes|no, as HIP 5.2
    u64 slow_clock = 1;       // RDNASIM_SLOW_CLOCK, so many times slower
    bool statistics = false;  // RDNASIM_STATISTICS=1
    std::string cache;        // RDNASIM_CACHE, of translated programs
};

const Settings &settings();

}  // namespace rdnasim
