// SPDX-License-Identifier: Apache-2.0
// What one call of a collective is given, and the counters that live between calls.
#pragma once

#include "layout.h"

#if RDNAAR_FAULTS
#include "../faults/fault.h"
#endif

namespace rdnaar {

// The public values (rdnaar.h); the runtime asserts that they agree.
constexpr uint32_t kAlgoLl = 1, kAlgoOneshot = 2, kAlgoTwoshot = 3, kAlgoReduceScatter = 5,
                   kAlgoAllGather = 6;
constexpr uint32_t kSum = 0, kMax = 1, kMin = 2, kAvg = 3;

// The counters of a communicator, in memory of this rank only: every block reads them at entry and
// the last block to have read them advances them (counted, never waited for). They are not kernel
// arguments, since a captured graph would freeze those.
struct Counters {
    uint64_t call;     // number of the call, from 0
    uint64_t round;    // number of the first round of the call; a call has one round per piece
    uint32_t arrived;  // blocks of the current call that have read the two words above
    uint32_t claimed;  // 1 once a thread has won the right to write the abort record
    uint32_t late;     // waits that took longer than late_ms: counted here, since the record may be
                       // in host memory, where a device cannot count atomically
    uint32_t reserved;
};
static_assert(sizeof(Counters) == 32, "no hidden padding");

// The abort record: one line that the host can read at any time. Written once, by the thread that
// claimed it; `valid` is stored last with release order.
struct alignas(64) AbortLine {
    uint32_t valid;
    uint8_t reason, phase, algo, reserved;
    int32_t peer;
    uint32_t block;
    uint64_t call;
    uint64_t waited_ticks;
    uint64_t expected, seen;  // signatures, for MISMATCH
    uint64_t padding[2];
};
static_assert(sizeof(AbortLine) == 64, "one line");

// The last wait that took longer than late_ms. Each word is written whole; words of two late waits
// may mix, which a diagnosis can bear.
struct alignas(64) LateLine {
    uint32_t count;
    int32_t peer;
    uint32_t phase, reserved;
    uint64_t call;
    uint64_t waited_ticks;
    uint64_t padding[4];
};
static_assert(sizeof(LateLine) == 64, "one line");

struct Call {
    const void *in;
    void *out;
    uint64_t count;                  // elements; of a chunk in reduce-scatter and all-gather
    unsigned char *slab[kMaxWorld];  // [k]: of rank (rank + k) mod world; 0 is the own one
    Counters *counters;
    AbortLine *abort_line;
    LateLine *late_line;
    Layout layout;
    uint64_t signature;
    uint64_t piece_bytes;  // of the message per round: a multiple of kLine, but the last
    uint64_t timeout_ticks, warmup_timeout_ticks, late_ticks;  // of Lane::now()
    uint32_t rank, world;
    uint32_t algo, op;
    uint32_t pieces;  // rounds of this call
    uint32_t pace;
    uint32_t poll_pause;  // longest pause between polls, in units of the lane; 0: own slab is near
#if RDNAAR_FAULTS
    Fault fault;
#endif
};

// Signature of a call: what all ranks must agree on. 40 bits hold any count (max_bytes is limited
// to 2^36).
RDNAAR_FN uint64_t make_signature(uint64_t count, uint32_t dtype, uint32_t op, uint32_t algo) {
    return count | uint64_t(dtype) << 40 | uint64_t(op) << 48 | uint64_t(algo) << 56;
}

// The peer that this rank turns to k-th, and its slab: each rank starts with its right neighbour, so
// that the ranks never all push to the same one.
RDNAAR_FN uint32_t peer_at(const Call &call, uint32_t k) {
    uint32_t peer = call.rank + 1 + k;
    return peer >= call.world ? peer - call.world : peer;
}
RDNAAR_FN unsigned char *peer_slab(const Call &call, uint32_t k) { return call.slab[k + 1]; }
RDNAAR_FN unsigned char *own_slab(const Call &call) { return call.slab[0]; }

}  // namespace rdnaar
