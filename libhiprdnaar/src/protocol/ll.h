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
    const Entry entry;
    const Tensor<Lane, T> tensor;
    const uint32_t flip;
    const float divisor;
    bool cards_seen;

    RDNAAR_FN uint64_t slot(uint32_t source, uint64_t round) const {
        return slot_offset(call.layout.ll, call.layout.ll_slot, call.world, round, source);
    }

    RDNAAR_FN V push(const Piece &piece, uint64_t round, Index i) {
        const uint32_t world = lane.fresh(call.world);
        const V own = tensor.load(lane, piece, i);
        const V clean = without_sentinel<T>(own);
        RDNAAR_UNROLL
        for (uint32_t k = 0; k < uint32_t(kMaxW) - 1; k++)
            if (k + 1 < world) lane.put_ll(peer_slab(call, k), slot(call.rank, round), i, clean);
        lane.pace(call.pace);
        return own;
    }

    // Polls for, folds, stores and clears up to kGroup vectors: i, i + stride, ...
    RDNAAR_FN bool reduce(const Piece &piece, uint64_t round, Index i, const V *own) {
        V x[kGroup][kMaxW];
        const bool ok = wait(lane, call, entry, kPhaseLlWord, [&] {
            const uint32_t world = lane.fresh(call.world), rank = lane.fresh(call.rank);
            Missing missing{};
            RDNAAR_UNROLL
            for (int g = 0; g < kGroup; g++) {
                const Index at = i + g * lane.stride();
                if (at >= piece.vectors) break;
                RDNAAR_UNROLL
                for (uint32_t p = 0; p < uint32_t(kMaxW); p++) {
                    if (p >= world || p == rank) continue;
                    x[g][p] = lane.get_ll(own_slab(call), slot(p, round), at);
                    if (Lane::has_word(x[g][p], kSentinel)) missing.peer_plus_1 = p + 1;
                }
            }
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
            const uint32_t world = lane.fresh(call.world), rank = lane.fresh(call.rank);
            const V mine = Lane::kKeepsOwn ? own[g] : tensor.load(lane, piece, at);
            RDNAAR_UNROLL
            for (uint32_t p = 0; p < uint32_t(kMaxW); p++)
                if (p == rank) x[g][p] = mine;
            Fold<V, T, kOp> fold;
            fold.start(x[g][0], flip);
            RDNAAR_UNROLL
            for (uint32_t p = 1; p < uint32_t(kMaxW); p++)
                if (p < world) fold.add(x[g][p], flip);
            tensor.store(lane, piece, at, fold.finish(flip, divisor));
            RDNAAR_UNROLL
            for (uint32_t p = 0; p < uint32_t(kMaxW); p++)
                if (p < world && p != rank)
                    lane.clear_ll(own_slab(call), slot(p, round), at, sentinel);
        }
        return true;
    }

    // False: aborted.
    RDNAAR_FN bool run() {
        const Index step = lane.stride() * Lane::kBatch;
        for (uint32_t index = 0; index < call.pieces; index++) {
            const Piece piece = tensor.piece(call, index);
            const uint64_t round = entry.round + index;
            if (index > 0) lane.order_clears();
            // All threads make the same number of turns, so that waves vote together.
            for (Index base = 0; base < piece.vectors; base += step) {
                const Index first = base + lane.first();
                V own[kGroup];
                RDNAAR_UNROLL
                for (int u = 0; u < Lane::kBatch; u++) {
                    const Index i = first + u * lane.stride();
                    if (i >= piece.vectors) break;
                    const V v = push(piece, round, i);
                    if constexpr (Lane::kKeepsOwn) own[u] = v;
                }
                if (index == 0 && base == 0 && !advance(lane, call, entry)) return false;
                lane.pushed();
                for (int u = 0; u < Lane::kBatch; u += kGroup) {
                    const Index i = first + u * lane.stride();
                    if (base + u * lane.stride() >= piece.vectors) break;
                    if (!reduce(piece, round, i, own)) return false;
                }
            }
        }
        return true;
    }
};

}  // namespace rdnaar
