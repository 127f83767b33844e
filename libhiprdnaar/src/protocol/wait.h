// SPDX-License-Identifier: Apache-2.0
// Every wait of the protocol: bounded by a clock, polling memory of the own rank only, left by all
// lanes of a wave together.
#pragma once

#include "card.h"

namespace rdnaar {

template <class Lane>
RDNAAR_FN void note_late(Lane &lane, const Call &call, const Entry &entry, uint32_t phase,
                         uint32_t peer, uint64_t waited_ms) {
    LateLine *line = call.late_line;
    lane.store_record(&line->peer, int32_t(peer));
    lane.store_record(&line->phase, phase);
    lane.store_record(&line->call, entry.call);
    lane.store_record(&line->waited_ms, waited_ms);
    lane.store_record_release(&line->count, lane.fetch_add(&call.counters->late, 1u) + 1);
}

// Calls probe() until no lane of the wave misses anything. False: the call is aborted.
// probe() returns Missing; it may be called again on a lane that already misses nothing.
template <class Lane, class Probe>
RDNAAR_FN bool wait(Lane &lane, const Call &call, const Entry &entry, uint32_t phase,
                    Probe probe) {
    uint64_t start = 0, now = 0;
    uint32_t last_peer = 0;
    for (uint32_t polls = 0;; polls++) {
        const Missing missing = probe();
        if (!lane.any(missing.peer_plus_1 != 0)) break;
        if (missing.peer_plus_1 != 0) last_peer = missing.peer_plus_1 - 1;
        if (lane.any(missing.mismatch)) {
            if (missing.mismatch)
                give_up(lane, call, entry,
                        Blame{kMismatch, phase, int32_t(last_peer), 0, missing.seen});
            return false;
        }
        if (!lane.relax(polls)) continue;
        now = lane.now();
        if (start == 0) start = now;
        const uint64_t bound = entry.call == 0 ? call.warmup_timeout_ticks : call.timeout_ticks;
        const bool expired = now - start > bound;
        const uint64_t word = load_abort_word(lane, call);
        if (lane.any(word != 0)) {
            if (word != 0)
                give_up(lane, call, entry,
                        Blame{kPeerAborted, phase, int32_t(word & 0xFF),
                              (now - start) / call.ticks_per_ms, 0});
            return false;
        }
        if (lane.any(expired)) {
            if (missing.peer_plus_1 != 0)
                give_up(lane, call, entry,
                        Blame{kTimeout, phase, int32_t(last_peer),
                              (now - start) / call.ticks_per_ms, 0});
            return false;
        }
    }
    if (start != 0 && now - start > call.late_ticks)
        note_late(lane, call, entry, phase, last_peer, (now - start) / call.ticks_per_ms);
    return true;
}

}  // namespace rdnaar
