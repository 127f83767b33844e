// SPDX-License-Identifier: Apache-2.0
#include "place.h"

namespace explorer {

using namespace rdnaar;

namespace {

struct Slot {
    const char *region;
    uint32_t half, source, word;
};

// Offset is in the payload.
Slot slot_at(const Layout &l, uint32_t world, uint32_t offset) {
    const struct {
        const char *name;
        uint64_t begin, slot;
    } regions[] = {{"gather", l.gather, l.slice_slot},
                   {"scatter", l.scatter, l.slice_slot},
                   {"oneshot", l.oneshot, l.oneshot_slot},
                   {"ll", l.ll, l.ll_slot}};
    const auto *region = regions;
    while (offset < region->begin) region++;
    const uint32_t within = offset - uint32_t(region->begin), size = uint32_t(region->slot);
    return Slot{region->name, within / size / world, within / size % world, within % size / 4};
}

struct Line {
    uint32_t phase, parity, source, block;
};

Line flag_at(uint32_t offset) {
    const uint32_t line = (offset - uint32_t(kFlagsOffset)) / uint32_t(kLine);
    return Line{line / kMaxBlocks / kMaxWorld / 2, line / kMaxBlocks / kMaxWorld % 2,
                line / kMaxBlocks % kMaxWorld, line % kMaxBlocks};
}

Line card_at(uint32_t offset) {
    const uint32_t line = (offset - uint32_t(kCardsOffset)) / uint32_t(kLine);
    return Line{0, line / kMaxWorld, line % kMaxWorld, 0};
}

}  // namespace

std::string describe_place(const Layout &layout, uint32_t world, uint32_t offset) {
    char text[96];
    if (offset < kCardsOffset) return "abort word";
    if (offset < kIdentityOffset) {
        const Line card = card_at(offset);
        snprintf(text, sizeof text, "card of rank %u, parity %u, word %u", card.source, card.parity,
                 offset / 8 % 8);
    } else if (offset < kPayloadOffset) {
        const char *phases[] = {"oneshot", "scatter", "gather"};
        const Line flag = flag_at(offset);
        snprintf(text, sizeof text, "%s flag of rank %u, block %u, parity %u",
                 phases[flag.phase % 3], flag.source, flag.block, flag.parity);
    } else {
        const Slot slot = slot_at(layout, world, offset);
        snprintf(text, sizeof text, "%s slot of rank %u, half %u, word %u", slot.region,
                 slot.source, slot.half, slot.word);
    }
    return text;
}

uint32_t source_of(const Layout &layout, uint32_t world, uint32_t offset) {
    return offset < kCardsOffset      ? world
           : offset < kIdentityOffset ? card_at(offset).source
           : offset < kPayloadOffset  ? flag_at(offset).source
                                      : slot_at(layout, world, offset).source;
}

}  // namespace explorer
