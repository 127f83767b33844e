// SPDX-License-Identifier: Apache-2.0
// The slab: the memory of a rank that its peers write to. Who writes and who reads each word.
//
// Offsets depend on the configuration only, never on a message, so that a peer which is a call
// ahead and works on another size cannot disagree about where things are. The regions are
// disjoint: none is used by two algorithms or by two phases of one.
//
//   offset
//   0        abort word          u64   written by any rank, read by the owner     (see abort.h)
//   64       cards   [2][8]      64 B  card of (call parity, source): written by the source, read
//                                      by the owner: which call the source is making
//   2048     identity            16 B  random, written by the owner before it exports the slab; read
//                                      by a peer that opens it, to know that it has the right one
//   3072     probe lines [8]     64 B  word of (source): written by the source (see probe.h)
//   4096     flags   [3][2][8][B] 64 B flag of (phase, round parity, source, block): written by the
//                                      source's block, read by the owner's block of the same number
//   ll       payload [2][W][L]         (round parity, source): written by the source with data, put
//                                      back to the sentinel by the owner
//   oneshot  payload [2][W][O]         (round parity, source): written by the source, read by owner
//   scatter  payload [2][W][S]         (round parity, source): the source's part of the slice that
//                                      this rank owns
//   gather   payload [2][W][S]         (round parity, owner of the slice): the reduced slice
//
// B = RDNAAR_MAX_BLOCKS, W = world, S = T / W rounded up to a vector.
// A line of 64 bytes per flag: one poller, one writer, and no two of either on a cache line.
#pragma once

#include "portable.h"

namespace rdnaar {

constexpr uint32_t kMaxWorld = 8;
constexpr uint32_t kMaxBlocks = 128;
constexpr uint64_t kLine = 64;
constexpr uint64_t kSlabGranule = 2ull << 20;  // what drivers round device memory up to anyway

enum FlagPhase : uint32_t { kFlagOneshot = 0, kFlagScatter = 1, kFlagGather = 2, kFlagPhases = 3 };

constexpr uint64_t kAbortWordOffset = 0;
constexpr uint64_t kCardsOffset = 64;
constexpr uint64_t kIdentityOffset = 2048;
constexpr uint64_t kProbeOffset = 3072;
constexpr uint64_t kFlagsOffset = 4096;
constexpr uint64_t kFlagsBytes = uint64_t(kFlagPhases) * 2 * kMaxWorld * kMaxBlocks * kLine;
constexpr uint64_t kPayloadOffset = kFlagsOffset + kFlagsBytes;
static_assert(kCardsOffset + 2 * kMaxWorld * kLine <= kIdentityOffset, "regions are disjoint");
static_assert(kIdentityOffset + 16 <= kProbeOffset, "regions are disjoint");
static_assert(kProbeOffset + kMaxWorld * kLine <= kFlagsOffset, "regions are disjoint");
static_assert(kPayloadOffset < (512u << 10), "rdnaar.h promises less than 512 KiB");
static_assert(kPayloadOffset % kLine == 0, "payload starts on a line");

// Sizes in bytes of one source's slot, multiples of kLine.
struct Layout {
    uint64_t ll, oneshot, scatter, gather;  // offsets of the regions
    uint64_t ll_slot, oneshot_slot, slice_slot;
    uint64_t slab_bytes;
};

struct StagingSizes {
    uint64_t ll, oneshot, twoshot;  // bytes of a message that pass through the slab at a time
};

RDNAAR_FN Layout make_layout(uint32_t world, const StagingSizes &staging) {
    Layout l{};
    l.ll_slot = round_up(staging.ll, kLine);
    l.oneshot_slot = round_up(staging.oneshot, kLine);
    l.slice_slot = round_up(ceil_div(staging.twoshot, world), kLine);
    l.ll = kPayloadOffset;
    l.oneshot = l.ll + 2 * world * l.ll_slot;
    l.scatter = l.oneshot + 2 * world * l.oneshot_slot;
    l.gather = l.scatter + 2 * world * l.slice_slot;
    l.slab_bytes = round_up(l.gather + 2 * world * l.slice_slot, kSlabGranule);
    return l;
}

RDNAAR_FN uint64_t card_offset(uint64_t call, uint32_t source) {
    return kCardsOffset + ((call & 1) * kMaxWorld + source) * kLine;
}

RDNAAR_FN uint64_t flag_offset(uint32_t phase, uint64_t round, uint32_t source, uint32_t block) {
    return kFlagsOffset +
           (((uint64_t(phase) * 2 + (round & 1)) * kMaxWorld + source) * kMaxBlocks + block) *
               kLine;
}

// Offset of a source's slot in a region of slots of `slot` bytes.
RDNAAR_FN uint64_t slot_offset(uint64_t region, uint64_t slot, uint32_t world, uint64_t round,
                               uint32_t source) {
    return region + ((round & 1) * world + source) * slot;
}

}  // namespace rdnaar
