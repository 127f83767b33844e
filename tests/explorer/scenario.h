// SPDX-License-Identifier: Apache-2.0
// A scenario: the machine and the sequence of calls that schedules are tried on.
#pragma once

#include <string>
#include <vector>

#include "../../libhiprdnaar/src/protocol/all_reduce.h"
#include "random.h"

namespace explorer {

constexpr uint32_t kRanks = 4, kBlocks = 3, kThreads = 4;  // at most
constexpr uint32_t kFibersOfRank = kBlocks * kThreads;
constexpr uint32_t kVectorBytes = 8;    // two words: enough to be torn
constexpr uint32_t kStagingBytes = 64;  // of each region's slot: eight vectors
constexpr uint32_t kMessageBytes = 64;  // at most; of a chunk where a tensor has one for each rank
constexpr uint32_t kAlgos[] = {rdnaar::kAlgoLl, rdnaar::kAlgoOneshot, rdnaar::kAlgoTwoshot,
                               rdnaar::kAlgoReduceScatter, rdnaar::kAlgoAllGather};
constexpr uint32_t kAlgoCount = 5;
constexpr uint64_t kTimeoutTicks = 1000, kLateTicks = 10;

enum class Dtype : uint32_t { kFp16 = 0, kBf16 = 1, kFp32 = 2 };  // the public values
uint32_t element_bytes(Dtype dtype);

struct CallSpec {
    uint32_t algo;
    Dtype dtype;
    uint32_t op;
    uint32_t count;  // of elements; of a chunk in reduce-scatter and all-gather
    uint32_t blocks, threads;
    uint32_t piece_vectors;  // that pass through the slab in one round
    bool in_place;
    uint32_t graph;  // the call whose launch this one repeats; itself: a launch of its own
    uint32_t bytes() const { return count * element_bytes(dtype); }
    uint32_t in_chunks(uint32_t world) const {
        return algo == rdnaar::kAlgoReduceScatter ? world : 1;
    }
    uint32_t out_chunks(uint32_t world) const { return algo == rdnaar::kAlgoAllGather ? world : 1; }
    uint32_t pieces() const;
    uint64_t signature() const;
};

// What goes wrong in a schedule, at a moment that the adversary chooses.
enum class Trouble : uint32_t {
    kNone,
    kLate,       // a clock jumps, by more than late_ms
    kTimeout,    // a clock jumps, by more than the timeout
    kUserAbort,  // a rank's host aborts
    kKill,       // a rank stops for ever; the others' clocks go on when nothing else can
    kMismatch,   // one rank makes another call
};

struct Scenario {
    uint32_t world = 2;
    bool cpu_lane = false;    // the constants of the host's lane, else those of the GPUs'
    bool cumulative = false;  // a release carries the block's stores; else drain() waits for them
    bool stale = false;       // relaxed loads may see old values
    uint32_t wave = 1;
    uint32_t resident[kRanks] = {kBlocks, kBlocks, kBlocks, kBlocks};
    uint64_t first_call = 0, first_round = 0;
    std::vector<CallSpec> calls;
    Trouble trouble = Trouble::kNone;
    uint32_t odd_rank = 0, odd_call = 0;  // for kMismatch
    CallSpec odd{};

    const CallSpec &call(uint32_t rank, uint32_t index) const {
        const bool is_odd = trouble == Trouble::kMismatch && rank == odd_rank && index == odd_call;
        return is_odd ? odd : calls[index];
    }
    uint64_t round_of(uint32_t index) const;  // the first one of a call
};

Scenario random_scenario(uint64_t seed);

// Calls of one thread on each of two ranks, which can be searched to the end.
Scenario smallest_scenario(const std::vector<uint32_t> &algos, uint32_t vectors, bool cumulative);

std::string describe(const Scenario &scenario);
const char *algo_name(uint32_t algo);

}  // namespace explorer
