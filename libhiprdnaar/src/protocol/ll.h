// SPDX-License-Identifier: Apache-2.0
// `ll`: the payload is its own flag.
//
// A slot holds the sentinel in every word until data arrives. A writer never sends the sentinel: a
// data word that equals it (a NaN in every dtype) is replaced by another NaN. The reader polls whole
// vectors of its own memory until no word is the sentinel, folds them in rank order, and puts the
// sentinel back. One one-way trip: no fence, no flag.
//
// Why a slot is clean when it is written again, two rounds later (I2): the writer of round r + 2 has
// finished round r + 1, so it has seen data of round r + 1 from the reader, which sent that after
// it had cleared its slots of round r: in a later call, after the end of the kernel (clears are in
// memory then); in the same call, by the same thread, after order_clears().
// The second case needs one thread per rank: a thread with a share in round r but none in the last,
// shorter round would vouch for nothing. So several pieces are only allowed where the grid is one
// thread (rdnaar_plan() sees to it).
#pragma once

#include "advance.h"
#include "contributions.h"
#include "tensor.h"
#include "wait.h"

namespace rdnaar {

constexpr uint32_t kSentinel = 0xFFFFFFFFu;

template <class T>
RDNAAR_FN uint32_t sentinel_substitute() {
    return T::kBytes == 4 ? 0x7FFFFFFFu : 0xFFFF7FFFu;  // NaN in each element
}

template <class T, class V>
RDNAAR_FN V without_sentinel(V v) {
    using U = typename V::Word;
    RDNAAR_UNROLL
    for (int i = 0; i < V::kWords; i++)
        v.w[i] = select(v.w[i] == kSentinel, splat<U>(sentinel_substitute<T>()), v.w[i]);
    return v;
}

template <class Lane, class T, OpKind kOp, int kMaxW>
struct Ll {
    using V = typename Lane::Vec;
    using Index = typename Lane::Index;
    // Vectors whose data is polled for at once.
    static constexpr int kGroup = Lane::kKeepsOwn ? Lane::kBatch : 1;

    Lane &lane;
    const Call &call;
    const Entry loading_entry;
    const Tensor<Lane, T> tensor;
    const uint32_t flip;
    const float divisor;
    bool cards_seen;

    static RDNAAR_FN uint64_t slot(const Call &c, uint32_t source, uint64_t round) {
        return slot_offset(c.layout.ll, c.layout.ll_slot, c.world, round, source);
    }

    RDNAAR_FN void push(uint64_t round, Index i, const V &own) {
        const Call &c = lane.fresh(call);
        const V clean = without_sentinel<T>(own);
        RDNAAR_UNROLL
        for (uint32_t k = 0; k < uint32_t(kMaxW) - 1; k++)
            if (k + 1 < c.world) lane.put_ll(peer_slab(c, k), slot(c, c.rank, round), i, clean);
        lane.pace(c.pace);
    }

    // Polls for, folds, stores and clears up to kGroup vectors: i, i + stride, ...
    RDNAAR_FN bool reduce(const Entry &entry, const Piece &piece, uint64_t round, Index i,
                          const V *own) {
        V peer[kGroup][kMaxW - 1];
        const bool ok = wait(lane, call, entry, kPhaseLlWord, [&] {
            const Call &c = lane.fresh(call);
            Missing missing{};
            // All loads first, so that they are on their way together.
            RDNAAR_UNROLL
            for (int g = 0; g < kGroup; g++) {
                const Index at = i + g * lane.stride();
                if (at >= piece.vectors) break;
                load_peers<Lane, kMaxW>(peer[g], c, [&](uint32_t source) {
                    return lane.get_ll(own_slab(c), slot(c, source, round), at);
                });
            }
            uint32_t late = 0;  // q + 1
            RDNAAR_UNROLL
            for (int g = 0; g < kGroup; g++) {
                if (i + g * lane.stride() >= piece.vectors) break;
                RDNAAR_UNROLL
                for (uint32_t q = 0; q < uint32_t(kMaxW) - 1; q++)
                    if ((Lane::kLoadsTogether || q + 1 < c.world) &&
                        Lane::has_word(peer[g][q], kSentinel))
                        late = q + 1;
            }
            if (late != 0) missing.peer_plus_1 = source_at(c, late - 1) + 1;
            if (!cards_seen) probe_cards(lane, call, entry, missing);
            return missing;
        });
        if (!ok) return false;
        cards_seen = true;
        V sentinel;
        RDNAAR_UNROLL
        for (int w = 0; w < V::kWords; w++) sentinel.w[w] = splat<typename V::Word>(kSentinel);
        RDNAAR_UNROLL
        for (int g = 0; g < kGroup; g++) {
            const Index at = i + g * lane.stride();
            if (at >= piece.vectors) break;
            const Call &c = lane.fresh(call);
            const V mine = Lane::kKeepsOwn ? own[g] : tensor.load(lane, piece, at);
            tensor.store(lane, piece, at,
                         fold_in_rank_order<T, kOp, kMaxW>(mine, peer[g], c, flip, divisor));
            RDNAAR_UNROLL
            for (uint32_t q = 0; q < uint32_t(kMaxW) - 1; q++)
                if (q + 1 < c.world)
                    lane.clear_ll(own_slab(c), slot(c, source_at(c, q), round), at, sentinel);
        }
        return true;
    }

    // False: aborted.
    RDNAAR_FN bool run() {
        const Index step = lane.stride() * Lane::kBatch;
        for (uint32_t index = 0; index < call.pieces; index++) {
            const Piece piece = tensor.piece(call, index);
            if (index > 0) lane.order_clears();
            // All threads make the same number of turns, so that waves vote together.
            for (Index base = 0; base < piece.vectors; base += step) {
                const Index first = base + lane.first();
                V own[kGroup];
                if constexpr (Lane::kKeepsOwn) {
                    RDNAAR_UNROLL
                    for (int u = 0; u < Lane::kBatch; u++) {
                        const Index i = first + u * lane.stride();
                        if (i < piece.vectors) own[u] = tensor.load(lane, piece, i);
                    }
                }
                // Only now is the entry waited for: its loads and those of the input overlap.
                const Entry entry = uniform(lane, loading_entry);
                const uint64_t round = entry.round + index;
                // Nor is anything pushed after an abort: a peer that has not heard of it may still
                // wait in an earlier call, for the data that lies in the same place.
                RDNAAR_UNROLL
                for (int u = 0; u < Lane::kBatch; u++) {
                    const Index i = first + u * lane.stride();
                    if (i >= piece.vectors || entry.abort_word != 0) break;
                    if constexpr (Lane::kKeepsOwn) {
                        push(round, i, own[u]);
                    } else {
                        push(round, i, tensor.load(lane, piece, i));
                    }
                }
                if (index == 0 && base == 0 && !advance(lane, call, entry)) return false;
                lane.pushed();
                for (int u = 0; u < Lane::kBatch; u += kGroup) {
                    const Index i = first + u * lane.stride();
                    if (base + u * lane.stride() >= piece.vectors) break;
                    if (!reduce(entry, piece, round, i, own)) return false;
                }
            }
        }
        return true;
    }
};

}  // namespace rdnaar
