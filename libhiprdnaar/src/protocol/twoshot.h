// SPDX-License-Identifier: Apache-2.0
// `twoshot`: reduce-scatter and all-gather by push.
//
// A piece is cut in W slices; rank q owns slice q. Every rank pushes its part of each slice to the
// owner (scatter); the owner folds, stores to its output and, from the registers that hold the
// result, pushes it to every peer's gather slot; all copy the gathered slices out. The next piece is
// scattered before this one is folded, so that the link has work while a rank waits.
//
// Why slots may be written again two rounds later (I2):
//  - scatter(r + 2) follows gather(r) on the writer: it has seen the gather flags of round r of all
//    its twins, which they published after folding r, that is after their reads of scatter(r).
//  - gather(r + 2) is written while folding r + 2, after the scatter flags of r + 2 of all twins, which
//    they published behind a block barrier after their reads of gather(r).
//  - in the next call, on another grid: when this call has ended here, all its blocks have seen the
//    gather flags of the last round of all twins, so everywhere all folds are done, and all copies
//    but those of the last round. Scatter slots are therefore free. A gather slot is written only
//    after scatter flags of the next call, which a peer sends when its kernel of this call has ended.
// Every block publishes every flag, also for an empty slice: this is what makes a call complete only
// after data of every peer (I1).
#pragma once

#include "advance.h"
#include "contributions.h"
#include "flags.h"
#include "tensor.h"

namespace rdnaar {

template <class Lane, class T, OpKind kOp, int kMaxW>
struct Twoshot {
    using V = typename Lane::Vec;
    using Index = typename Lane::Index;

    Lane &lane;
    const Call &call;
    const Entry entry;
    const Tensor<Lane, T> tensor;
    const uint32_t flip;
    const float divisor;

    static RDNAAR_FN uint64_t slot(const Call &c, uint64_t region, uint32_t source,
                                   uint64_t round) {
        return slot_offset(region, c.layout.slice_slot, c.world, round, source);
    }

    RDNAAR_FN void scatter(const Piece &piece, uint64_t round) {
        for (uint32_t k = 0; k + 1 < call.world; k++) {
            const uint32_t owner = peer_at(call, k);
            const Slice slice = slice_of(piece, call.world, owner);
            const uint64_t to = slot(call, call.layout.scatter, call.rank, round);
            for (Index i = slice.begin + lane.first(); i < slice.end; i += lane.stride()) {
                lane.put(peer_slab(call, k), to, i - slice.begin, tensor.load(lane, piece, i));
                lane.pace(call.pace);
            }
        }
        publish(lane, call, kFlagScatter, round);
    }

    RDNAAR_FN void fold(const Piece &piece, uint64_t round) {
        const Slice slice = slice_of(piece, call.world, call.rank);
        for (Index i = slice.begin + lane.first(); i < slice.end; i += lane.stride()) {
            const Index at = i - slice.begin;
            const Call &c = lane.fresh(call);
            const V own = tensor.load(lane, piece, i);
            V peer[kMaxW - 1];
            load_peers<Lane, kMaxW>(peer, c, [&](uint32_t source) {
                return lane.get(own_slab(c), slot(c, c.layout.scatter, source, round), at);
            });
            const V result = fold_in_rank_order<T, kOp, kMaxW>(own, peer, c, flip, divisor);
            tensor.store(lane, piece, i, result);
            RDNAAR_UNROLL
            for (uint32_t k = 0; k < uint32_t(kMaxW) - 1; k++)
                if (k + 1 < c.world)
                    lane.put(peer_slab(c, k), slot(c, c.layout.gather, c.rank, round), at, result);
            lane.pace(call.pace);
        }
        publish(lane, call, kFlagGather, round);
    }

    RDNAAR_FN void copy_out(const Piece &piece, uint64_t round) {
        for (uint32_t k = 0; k + 1 < call.world; k++) {
            const uint32_t owner = peer_at(call, k);
            const Slice slice = slice_of(piece, call.world, owner);
            const uint64_t from = slot(call, call.layout.gather, owner, round);
            for (Index i = slice.begin + lane.first(); i < slice.end; i += lane.stride())
                tensor.store(lane, piece, i, lane.get(own_slab(call), from, i - slice.begin));
        }
    }

    // False: aborted.
    RDNAAR_FN bool run() {
        if (!advance(lane, call, entry)) return false;
        for (uint32_t ahead = 0; ahead <= call.pieces; ahead++) {
            if (ahead < call.pieces) scatter(tensor.piece(call, ahead), entry.round + ahead);
            if (ahead == 0) continue;
            const uint32_t index = ahead - 1;
            const Piece piece = tensor.piece(call, index);
            const uint64_t round = entry.round + index;
            if (!await(lane, call, entry, kFlagScatter, round, index == 0)) return false;
            fold(piece, round);
            if (!await(lane, call, entry, kFlagGather, round, false)) return false;
            copy_out(piece, round);
        }
        return true;
    }
};

}  // namespace rdnaar
