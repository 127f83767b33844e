// SPDX-License-Identifier: Apache-2.0
// The state of what runs: waves of 32 lanes, the blocks that they are dealt to, the launch.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "program.h"
#include "random.h"

namespace rdnasim {

class Device;
class WaveMemory;   // of the weak model (weak_memory.h)
class BlockMemory;  // likewise
class LaunchMemory;

// Numbers of scalar registers.
constexpr u32 kVcc = 106, kTtmp = 108, kNull = 124, kExec = 126, kScalarRegisters = 128;
constexpr u32 kVectorRegisters = 256, kHiddenRegisters = 4;

struct alignas(64) Lanes {
    u32 x[kWave];
};

enum class State : u8 {
    kRuns,
    kSleeps,   // gave up its turn in a loop that polls
    kBarrier,  // waits for its block
    kEnded,
};

struct Launch;

struct Block {
    Launch *launch = nullptr;
    u32 index[3] = {};
    u32 live = 0;        // waves that have not ended
    u32 arrived = 0;     // waves at the barrier
    u64 generation = 0;  // barriers that have been passed
    std::vector<u8> lds;
    std::unique_ptr<BlockMemory> memory;

    void release_if_complete() {
        if (arrived == 0 || arrived < live) return;
        arrived = 0;
        generation++;
    }
};

struct Wave {
    u32 s[kScalarRegisters];
    Lanes v[kVectorRegisters + kHiddenRegisters];
    u32 scc;
    u32 number;  // in its block
    const Step *next;
    State state;
    bool progressed;   // in this turn: did something that others can see
    bool polls;        // did nothing else in its last turn
    u64 barrier_seen;  // generation in which it arrived
    Block *block;
    Launch *launch;
    WaveMemory *memory;  // NULL in the strong model
    u32 skips;           // of its turns, in 256

    u32 exec() const { return s[kExec]; }
};

struct Launch {
    const Kernel *kernel = nullptr;
    Device *device = nullptr;
    u32 grid[3] = {}, block[3] = {};
    std::vector<u8> arguments;
    u32 group_bytes = 0;       // of LDS
    void *owner = nullptr;     // whoever waits for its end
    u32 next_block = 0;        // first one that has not started
    u32 unfinished = 0;        // blocks
    u32 skips = 0;             // of its sweeps, in 256: some launches are slow
    std::deque<Block> blocks;  // those that have started
    std::unique_ptr<LaunchMemory> memory;

    u32 block_count() const { return grid[0] * grid[1] * grid[2]; }
    u32 threads() const { return block[0] * block[1] * block[2]; }
};

}  // namespace rdnasim
