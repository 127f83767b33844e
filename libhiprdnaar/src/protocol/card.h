// SPDX-License-Identifier: Apache-2.0
// The card: at the start of a call each rank tells each peer which call it is making, so that ranks
// whose calls differ find out instead of hanging or adding nonsense.
//
// A card is two 64-bit words, each carrying a 32-bit tag of the call number beside half of the
// signature. Each word arrives whole, in any order, and counts once both tags are those of the
// call: no fence is needed. 32 bits are enough, since a card's place (source, call parity) is
// written by every call of that parity: all that can be there is this call's card or that of two
// calls ago. Not an older one, since the call before last ended only after it had seen its own
// card; not a later one, since the source starts the call after next only when it has seen the
// card of this rank's next call, which this rank sends when this call has ended.
//
// Block 0 posts them, and every block of the receiver waits for them. Like the flags of twin blocks, this
// needs no resident grid as long as a device starts the blocks of a grid in order, which all that
// this is built for do: the unfinished block of the lowest number is running on every rank, and
// whatever it waits for is posted by running blocks.
#pragma once

#include "abort.h"

namespace rdnaar {

RDNAAR_FN uint32_t card_tag(const Entry &entry) { return uint32_t(entry.call + 1); }  // memory: 0

template <class Lane>
RDNAAR_FN void post_cards(Lane &lane, const Call &call, const Entry &entry) {
    if (lane.block() != 0) return;
    const uint64_t tag = uint64_t(card_tag(entry)) << 32;
    for (uint32_t k = lane.thread(); k + 1 < call.world; k += lane.threads()) {
        unsigned char *card = peer_slab(call, k) + card_offset(entry.call, call.rank);
        uint64_t *words = reinterpret_cast<uint64_t *>(card);
        lane.store_word(words, tag | uint32_t(call.signature));
        lane.store_word(words + 1, tag | call.signature >> 32);
    }
}

// What a thread that waits has found: 0 nothing is missing, else the peer + 1, and whether that
// peer makes another call.
struct Missing {
    uint32_t peer_plus_1;
    bool mismatch;
    uint64_t seen;
};

template <class Lane>
RDNAAR_FN void probe_card(Lane &lane, const Call &call, const Entry &entry, uint32_t peer,
                          Missing &missing) {
    const unsigned char *card = own_slab(call) + card_offset(entry.call, peer);
    const uint64_t *words = reinterpret_cast<const uint64_t *>(card);
    const uint64_t low = lane.load_word(words), high = lane.load_word(words + 1);
    const uint32_t tag = card_tag(entry);
    if (uint32_t(low >> 32) != tag || uint32_t(high >> 32) != tag) {
        missing.peer_plus_1 = peer + 1;
        return;
    }
    const uint64_t signature = uint32_t(low) | high << 32;
    if (signature == call.signature) return;
    missing.peer_plus_1 = peer + 1;
    missing.mismatch = true;
    missing.seen = signature;
}

// The cards of all peers, dealt over the lanes of a wave. The first mismatch ends the look: what is
// missing besides must not take the blame for it.
template <class Lane>
RDNAAR_FN void probe_cards(Lane &lane, const Call &call, const Entry &entry, Missing &missing) {
    for (uint32_t k = lane.thread() % lane.wave(); k + 1 < call.world && !missing.mismatch;
         k += lane.wave())
        probe_card(lane, call, entry, peer_at(call, k), missing);
}

}  // namespace rdnaar
