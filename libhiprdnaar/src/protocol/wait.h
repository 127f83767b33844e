// SPDX-License-Identifier: Apache-2.0
// Every wait of the protocol: bounded by a clock, polling memory of the own rank only, left by all
// lanes of a wave together.
#pragma once

#include "card.h"

namespace rdnaar {

template <class Lane>
RDNAAR_FN void note_late(Lane &lane, const Call &call, const Entry &entry, uint32_t phase,
                         uint32_t peer, uint64_t waited_ticks) {
    LateLine *line = call.late_line;
    lane.store_record(&line->peer, int32_t(peer));
    lane.store_record(&line->phase, phase);
    lane.store_record(&line->call, entry.call);
    lane.store_record(&line->waited_ticks, waited_ticks);
    lane.store_record_release(&line->count, lane.fetch_add(&call.counters->late, 1u) + 1);
}

// Calls probe() until no lane of the wave misses anything. False: the call is aborted.
// probe() returns Missing; it may be called again on a lane that already misses nothing.
template <class Lane, class Probe>
RDNAAR_FN bool wait(Lane &lane, const Call &call, const Entry &entry, uint32_t phase, Probe probe) {
    uint64_t start = 0, now = 0, word = 0;
    uint32_t last_peer_plus_1 = 0, reason = 0;
    bool late = false, expired = false;
    Missing missing{};
    for (uint32_t polls = 0; reason == 0; polls++) {
        missing = probe();
        if (!lane.any(missing.peer_plus_1 != 0)) break;
        if (missing.peer_plus_1 != 0) last_peer_plus_1 = missing.peer_plus_1;
        if (lane.any(missing.mismatch)) {
            reason = kMismatch;
            break;
        }
        // Not before one more look: this rank may have been stopped between a look and the clock.
        if (expired) {
            reason = kTimeout;
            break;
        }
        if (!lane.relax(polls)) continue;
        now = lane.now();
        if (start == 0) start = now;
        word = load_abort_word(lane, call);
        const uint64_t bound = entry.call == 0 ? call.warmup_timeout_ticks : call.timeout_ticks;
        if (lane.any(word != 0)) reason = kPeerAborted;
        // The lanes read their clocks one by one, so they agree on what it says.
        late = lane.any(now - start > call.late_ticks);
        expired = lane.any(now - start > bound);
    }
    const uint64_t waited = now - start;
    if (reason == 0) {
        if (late && lane.elect(last_peer_plus_1 != 0))
            note_late(lane, call, entry, phase, last_peer_plus_1 - 1, waited);
        return true;
    }
    // A lane speaks for what it has seen itself.
    const bool seen = reason == kMismatch      ? missing.mismatch
                      : reason == kPeerAborted ? word != 0
                                               : missing.peer_plus_1 != 0;
    Blame blame{reason, phase, int32_t(last_peer_plus_1) - 1, waited, 0};
    if (reason == kMismatch) blame.seen = missing.seen;
    if (reason == kPeerAborted) {
        blame.reason = abort_word_reason(word);
        blame.peer = abort_word_rank(word);
    }
    if (seen) give_up(lane, call, entry, blame);
    return false;
}

}  // namespace rdnaar
