// SPDX-License-Identifier: Apache-2.0
// The beginning of a call: reading and advancing the counters of a communicator.
#pragma once

#include "abort.h"

namespace rdnaar {

template <class Lane>
RDNAAR_FN Entry read_entry(Lane &lane, const Call &call) {
    return Entry{lane.load_counter(&call.counters->call), lane.load_counter(&call.counters->round),
                 load_abort_word(lane, call)};
}

// Every block comes here once per call, after its threads have read the entry. The last one to come
// moves the counters on: no block reads them later in this call, and the next call of the stream
// starts after this one has ended. Nobody waits, so the grid need not be resident. An aborted call
// counts like any other: if it did not, the next one would send cards with the number of this one,
// and a peer that still waits in this call would take them for a call that differs.
//
// False if the communicator is aborted: after an abort slots may hold remains of an unfinished call,
// so no later call may look at them. The block decides as one, since its threads may have read the
// abort word at different times.
template <class Lane>
RDNAAR_FN bool advance(Lane &lane, const Call &call, const Entry &entry) {
    const uint64_t word = entry.abort_word;
    const bool aborted = lane.barrier_any(word != 0);
    if (aborted && word != 0)
        give_up(lane, call, entry, Blame{abort_word_reason(word), 0, abort_word_rank(word), 0, 0});
    if (lane.thread() != 0) return !aborted;
    Counters *counters = call.counters;
    if (lane.fetch_add(&counters->arrived, 1u) + 1 != lane.blocks()) return !aborted;
    lane.store_counter(&counters->arrived, 0u);
    lane.store_counter(&counters->call, entry.call + 1);
    lane.store_counter(&counters->round, entry.round + call.pieces);
    return !aborted;
}

}  // namespace rdnaar
