// SPDX-License-Identifier: Apache-2.0
// `oneshot`: push to every peer, publish, and make the output of what came. Three collectives are this:
//
//                     pushed to peer q      output
//   all-reduce        all of the input      the fold of all ranks' data
//   reduce-scatter    chunk q of the input  likewise, of the chunks for this rank
//   all-gather        all of the input      chunk q is rank q's data
//
// They share slots and flags, since the argument is the same for all of them: a round is over for a
// slot when the thread that it belongs to has read it.
//
// Why a slot may be written again two rounds later (I2): a block starts round r + 2 after it has seen
// the flags of round r + 1 of all its twins, and a twin publishes r + 1 behind a block barrier that
// its threads reach after their reads of round r. In the next call the grid may differ: this call
// has ended on this rank, so all its blocks have seen the last round's flags of all twins, so all
// reads of the round before are done everywhere; and the last round's slots are written only in the
// next call's second round, or the call after it, which need flags that a peer sends when its
// kernel of this call has ended.
#pragma once

#include "advance.h"
#include "contributions.h"
#include "flags.h"
#include "tensor.h"

namespace rdnaar {

template <class Lane, class T, OpKind kOp, int kMaxW>
struct Oneshot {
    using V = typename Lane::Vec;
    using Index = typename Lane::Index;

    Lane &lane;
    const Call &call;
    const Entry entry;
    const Tensor<Lane, T> tensor;  // what this rank contributes, and its output
    const uint32_t flip;
    const float divisor;

    static RDNAAR_FN uint64_t slot(const Call &c, uint32_t source, uint64_t round) {
        return slot_offset(c.layout.oneshot, c.layout.oneshot_slot, c.world, round, source);
    }

    RDNAAR_FN void push_to_all(const Piece &piece, uint64_t round) {
        for (Index i = lane.first(); i < piece.vectors; i += lane.stride()) {
            const Call &c = lane.fresh(call);
            const V v = tensor.load(lane, piece, i);
            RDNAAR_UNROLL
            for (uint32_t k = 0; k < uint32_t(kMaxW) - 1; k++)
                if (k + 1 < c.world) lane.put(peer_slab(c, k), slot(c, c.rank, round), i, v);
            lane.pace(c.pace);
        }
    }

    RDNAAR_FN void push_chunks(const Piece &piece, uint64_t round) {
        for (uint32_t k = 0; k + 1 < call.world; k++) {
            const Tensor<Lane, T> chunk(call, peer_at(call, k), 0);
            for (Index i = lane.first(); i < piece.vectors; i += lane.stride()) {
                lane.put(peer_slab(call, k), slot(call, call.rank, round), i,
                         chunk.load(lane, piece, i));
                lane.pace(call.pace);
            }
        }
    }

    RDNAAR_FN void fold(const Piece &piece, uint64_t round) {
        for (Index i = lane.first(); i < piece.vectors; i += lane.stride()) {
            const Call &c = lane.fresh(call);
            const V own = tensor.load(lane, piece, i);
            V peer[kMaxW - 1];
            load_peers<Lane, kMaxW>(peer, c, [&](uint32_t source) {
                return lane.get(own_slab(c), slot(c, source, round), i);
            });
            tensor.store(lane, piece, i,
                         fold_in_rank_order<T, kOp, kMaxW>(own, peer, c, flip, divisor));
        }
    }

    RDNAAR_FN void collect(const Piece &piece, uint64_t round) {
        for (uint32_t k = 0; k + 1 < call.world; k++) {
            const uint32_t source = peer_at(call, k);
            const Tensor<Lane, T> chunk(call, 0, source);
            for (Index i = lane.first(); i < piece.vectors; i += lane.stride())
                chunk.store(lane, piece, i, lane.get(own_slab(call), slot(call, source, round), i));
        }
        if (tensor.in == tensor.out) return;
        for (Index i = lane.first(); i < piece.vectors; i += lane.stride())
            tensor.store(lane, piece, i, tensor.load(lane, piece, i));
    }

    // False: aborted.
    template <uint32_t kAlgo>
    RDNAAR_FN bool run() {
        if (!advance(lane, call, entry)) return false;
        for (uint32_t index = 0; index < call.pieces; index++) {
            const Piece piece = tensor.piece(call, index);
            const uint64_t round = entry.round + index;
            if constexpr (kAlgo == kAlgoReduceScatter) {
                push_chunks(piece, round);
            } else {
                push_to_all(piece, round);
            }
            publish(lane, call, kFlagOneshot, round);
            if (!await(lane, call, entry, kFlagOneshot, round, index == 0)) return false;
            if constexpr (kAlgo == kAlgoAllGather) {
                collect(piece, round);
            } else {
                fold(piece, round);
            }
        }
        return true;
    }
};

}  // namespace rdnaar
