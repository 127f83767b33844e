// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace explorer {

using namespace rdnaar;

Memory::Memory() : cell_of_word_(kSlabBytes / 4) {
    void *p = mmap(nullptr, kRanks * kSlabBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    slabs_ = static_cast<unsigned char *>(p);
}

void Memory::prepare(const Scenario &s) {
    world_ = s.world;
    first_call_ = s.first_call;
    first_round_ = s.first_round;
    layout_ = make_layout(s.world, {kStagingBytes, kStagingBytes, kStagingBytes});
    for (const uint32_t offset : offsets_) cell_of_word_[offset / 4] = 0;
    offsets_.clear();
    for (auto &cells : cells_) cells.clear();
    reset();
}

void Memory::reset() {
    for (uint32_t r = 0; r < world_; r++)
        for (uint32_t c = 0; c < cells_[r].size(); c++) reset(cells_[r][c], c);
    ready_.clear();
    held_.clear();
    memset(pending_, 0, sizeof pending_);
    memset(pending_to_self_, 0, sizeof pending_to_self_);
    memset(issued_, 0, sizeof issued_);
}

void Memory::reset(Cell &cell, uint32_t index) {
    cell.now = Version{initial_value(offsets_[index]), 0, Origin{}};
    cell.olds = 0;
    cell.unread = false;
    memset(cell.read_at, 0, sizeof cell.read_at);
    cell.write_hash = cell.reads_hash = 0;
}

// What calls before the first one have left: flags and cards of their parities, none in a new slab.
uint64_t Memory::initial_value(uint32_t offset) const {
    if (offset >= layout_.ll && offset < layout_.ll + 2 * world_ * layout_.ll_slot)
        return kSentinel;
    if (offset >= kFlagsOffset && offset < kPayloadOffset) {
        const uint32_t parity = (offset - kFlagsOffset) / (kMaxWorld * kMaxBlocks * kLine) % 2;
        for (uint64_t back = 1; back <= 2 && back <= first_round_; back++)
            if (((first_round_ - back) & 1) == parity) return first_round_ - back + 1;
    }
    if (offset >= kCardsOffset && offset < kIdentityOffset) {
        const uint32_t parity = (offset - kCardsOffset) / (kMaxWorld * kLine);
        for (uint64_t back = 1; back <= 2 && back <= first_call_; back++)
            if (((first_call_ - back) & 1) == parity)
                return uint64_t(uint32_t(first_call_ - back + 1)) << 32 | 7;
    }
    return 0;
}

Place Memory::place(const void *address) {
    const uint64_t at = uint64_t(static_cast<const unsigned char *>(address) - slabs_);
    if (at >= kRanks * kSlabBytes) abort();
    const uint32_t rank = uint32_t(at / kSlabBytes), offset = uint32_t(at % kSlabBytes);
    uint16_t &cell = cell_of_word_[offset / 4];
    if (cell == 0) {
        offsets_.push_back(offset);
        cell = uint16_t(offsets_.size());
        for (uint32_t r = 0; r < world_; r++) {
            cells_[r].emplace_back();
            reset(cells_[r].back(), uint32_t(cell - 1));
        }
    }
    return Place{rank, uint32_t(cell - 1)};
}

void Memory::issue(const Store &store) {
    const Origin &from = store.origin;
    pending_[from.rank][from.thread]++;
    issued_[from.rank][from.thread]++;
    if (store.to.rank == from.rank) pending_to_self_[from.rank]++;
    (may_arrive(store) ? ready_ : held_).push_back(store);
}

bool Memory::may_arrive(const Store &store) const {
    const uint32_t first = store.origin.thread / kThreads * kThreads;
    auto earlier = [&](const Store &other) {
        if (other.origin.rank != store.origin.rank) return false;
        if (other.origin.thread == store.origin.thread && other.number < store.number &&
            other.to.rank == store.to.rank && other.to.cell == store.to.cell)
            return true;
        if (!store.release || other.origin.thread / kThreads * kThreads != first) return false;
        return other.number < store.after[other.origin.thread - first];
    };
    for (const Store &other : ready_)
        if (earlier(other)) return false;
    for (const Store &other : held_)
        if (earlier(other)) return false;
    return true;
}

Store Memory::take(uint32_t index) {
    const Store store = ready_[index];
    ready_[index] = ready_.back();
    ready_.pop_back();
    const Origin &from = store.origin;
    pending_[from.rank][from.thread]--;
    if (store.to.rank == from.rank) pending_to_self_[from.rank]--;
    for (size_t i = 0; i < held_.size();) {
        if (!may_arrive(held_[i])) {
            i++;
            continue;
        }
        ready_.push_back(held_[i]);
        held_.erase(held_.begin() + long(i));
    }
    return store;
}

void Memory::arrive(const Store &store, uint32_t time) {
    Cell &c = cell(store.to);
    for (uint32_t i = kOldVersions - 1; i > 0; i--) c.old[i] = c.old[i - 1];
    c.old[0] = c.now;
    if (c.olds < kOldVersions) c.olds++;
    c.now = Version{store.value, time, store.origin};
    c.unread = store.kind == StoreKind::kPut || store.kind == StoreKind::kPutLl;
}

uint32_t Memory::pending_to(const Place &place) const {
    uint32_t n = 0;
    for (const std::vector<Store> *stores : {&ready_, &held_})
        for (const Store &s : *stores) n += s.to.rank == place.rank && s.to.cell == place.cell;
    return n;
}

const Store *Memory::other_writer(const Store &store) const {
    for (const std::vector<Store> *stores : {&ready_, &held_})
        for (const Store &s : *stores)
            if (s.to.rank == store.to.rank && s.to.cell == store.to.cell &&
                (s.origin.rank != store.origin.rank || s.origin.thread != store.origin.thread))
                return &s;
    return nullptr;
}

}  // namespace explorer
