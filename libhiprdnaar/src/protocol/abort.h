// SPDX-License-Identifier: Apache-2.0
// Giving up: one record, told to all, sticky.
//
// The abort word in each slab is written by whoever gives up, to its own slab and to every peer's, and
// by the owner's host side, when a peer has died; it never goes back to zero. It says what the call
// that finds it records: why, and because of which rank. A kernel looks at its own at entry and while
// it waits. Several may write it at once: any of them is a true reason.
#pragma once

#include "call.h"
#include "numeric.h"

namespace rdnaar {

enum Reason : uint32_t {
    kTimeout = 1,
    kMismatch = 2,
    kPeerAborted = 3,
    kPeerDead = 4,
    kUser = 5,
    kRuntime = 6
};

enum Phase : uint32_t { kPhaseFlag = 2, kPhaseGatherFlag = 4, kPhaseLlWord = 5 };

RDNAAR_FN uint64_t make_abort_word(uint32_t reason, uint32_t rank) {
    return uint64_t(1) << 32 | reason << 8 | rank;
}
RDNAAR_FN uint32_t abort_word_reason(uint64_t word) { return uint32_t(word) >> 8 & 0xFF; }
RDNAAR_FN int32_t abort_word_rank(uint64_t word) { return int32_t(word & 0xFF); }

// What a call finds when it begins; the same for all its blocks.
struct Entry {
    uint64_t call;
    uint64_t round;
    uint64_t abort_word;
};

template <class Lane>
RDNAAR_FN Entry uniform(Lane &lane, const Entry &entry) {
    return Entry{lane.uniform(entry.call), lane.uniform(entry.round),
                 lane.uniform(entry.abort_word)};
}

struct Blame {
    uint32_t reason, phase;
    int32_t peer;
    uint64_t waited_ticks, seen;
};

// The first thread of the rank to come here writes the record and tells everybody; for all others it
// has been done.
template <class Lane>
RDNAAR_FN void give_up(Lane &lane, const Call &call, const Entry &entry, const Blame &blame) {
    if (lane.exchange(&call.counters->claimed, 1u) != 0) return;
    AbortLine *line = call.abort_line;
    line->reason = uint8_t(blame.reason);
    line->phase = uint8_t(blame.phase);
    line->algo = uint8_t(call.algo);
    line->peer = blame.peer;
    line->block = lane.block();
    line->call = entry.call;
    line->waited_ticks = blame.waited_ticks;
    line->expected = call.signature;
    line->seen = blame.seen;
    lane.store_record_release(&line->valid, 1u);
    const uint64_t word = make_abort_word(kPeerAborted, call.rank);
    for (uint32_t k = 0; k < call.world; k++)
        lane.store_word(reinterpret_cast<uint64_t *>(call.slab[k] + kAbortWordOffset), word);
}

template <class Lane>
RDNAAR_FN uint64_t load_abort_word(Lane &lane, const Call &call) {
    return lane.load_word(reinterpret_cast<const uint64_t *>(own_slab(call) + kAbortWordOffset));
}

}  // namespace rdnaar
