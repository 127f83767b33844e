// SPDX-License-Identifier: Apache-2.0
// The contributions of all ranks to one vector: those of the peers from the slab, the own one from
// registers, folded in rank order.
#pragma once

#include "call.h"
#include "numeric.h"

namespace rdnaar {

// The source of the q-th contribution of a peer, in rank order. Beyond the last peer it is the
// first again: a lane that loads all at once does so without branches, and throws the surplus away.
RDNAAR_FN uint32_t source_at(const Call &call, uint32_t q) {
    const uint32_t peer = q + 1 < call.world ? q : 0;
    return peer < call.rank ? peer : peer + 1;
}

// peer[q] = get(source_at(call, q)).
template <class Lane, int kMaxW, class V, class Get>
RDNAAR_FN void load_peers(V (&peer)[kMaxW - 1], const Call &call, Get get) {
    RDNAAR_UNROLL
    for (uint32_t q = 0; q < uint32_t(kMaxW) - 1; q++)
        if (Lane::kLoadsTogether || q + 1 < call.world) peer[q] = get(source_at(call, q));
}

// Word by word: a choice between vectors would be one between their addresses, and put them in
// memory.
template <class V>
RDNAAR_FN V choose(bool first, const V &a, const V &b) {
    V v;
    RDNAAR_UNROLL
    for (int i = 0; i < V::kWords; i++) v.w[i] = first ? a.w[i] : b.w[i];
    return v;
}

// `divisor` and `flip` as in Fold.
template <class T, OpKind kOp, int kMaxW, class V>
RDNAAR_FN V fold_in_rank_order(const V &own, const V (&peer)[kMaxW - 1], const Call &call,
                               uint32_t flip, float divisor) {
    Fold<V, T, kOp> fold;
    fold.start(choose(call.rank == 0, own, peer[0]), flip);
    RDNAAR_UNROLL
    for (uint32_t p = 1; p < uint32_t(kMaxW); p++)
        if (p < call.world) {
            V v = choose(p == call.rank, own, peer[p - 1]);
            if (p < uint32_t(kMaxW) - 1) v = choose(p < call.rank, peer[p], v);
            fold.add(v, flip);
        }
    constexpr bool kTwo = kMaxW == 2;
    return fold.template finish<kTwo>(flip, divisor);
}

}  // namespace rdnaar
