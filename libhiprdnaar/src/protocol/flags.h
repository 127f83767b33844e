// SPDX-License-Identifier: Apache-2.0
// Publishing payload to the twin blocks of the peers, and waiting for theirs.
//
// A flag holds the number of its round plus one, in 64 bits: it never wraps, and memory starts at 0.
//
// I5: all threads of a block store their payload, each wave waits until its own stores have arrived,
// the block meets at a barrier, and only then one thread per peer stores that peer's flag with
// release order at system scope. The barrier alone would not do: it orders the waves of a block,
// not their stores on a link.
#pragma once

#include "wait.h"

namespace rdnaar {

template <class Lane>
RDNAAR_FN void publish(Lane &lane, const Call &call, uint32_t phase, uint64_t round) {
    lane.drain();
    lane.barrier();
    for (uint32_t k = lane.thread(); k + 1 < call.world; k += lane.threads()) {
        unsigned char *slab = peer_slab(call, k);
        const uint64_t at = flag_offset(phase, round, call.rank, lane.block());
        lane.store_flag_release(reinterpret_cast<uint64_t *>(slab + at), round + 1);
    }
}

// Waits until the twin blocks of all peers have published `round`. The first wave polls, the block
// barrier tells the others. In the first round of a call the cards are checked as well, so that no
// output is stored before all ranks are known to make the same call. False: aborted.
template <class Lane>
RDNAAR_FN bool await(Lane &lane, const Call &call, const Entry &entry, uint32_t phase,
                     uint64_t round, bool check_cards) {
    bool ok = true;
    if (lane.thread() < lane.wave()) {
        ok = wait(lane, call, entry, phase == kFlagGather ? kPhaseGatherFlag : kPhaseFlag, [&] {
            Missing missing{};
            for (uint32_t k = lane.thread(); k + 1 < call.world && !missing.mismatch;
                 k += lane.wave()) {
                const uint32_t peer = peer_at(call, k);
                const unsigned char *slab = own_slab(call);
                const uint64_t at = flag_offset(phase, round, peer, lane.block());
                if (lane.load_flag_acquire(reinterpret_cast<const uint64_t *>(slab + at)) !=
                    round + 1)
                    missing.peer_plus_1 = peer + 1;
                if (check_cards) probe_card(lane, call, entry, peer, missing);
            }
            return missing;
        });
    }
    if (lane.barrier_any(!ok)) return false;
    lane.before_read();
    return true;
}

}  // namespace rdnaar
