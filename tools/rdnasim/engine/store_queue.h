// SPDX-License-Identifier: Apache-2.0
// Stores on their way. They leave in any order, but for those to the same 8 bytes.
#pragma once

#include <algorithm>
#include <bitset>
#include <vector>

#include "base.h"
#include "random.h"

namespace rdnasim {

// At most 8 bytes that arrive whole; a wider store is several of these.
struct Store {
    u64 address;
    u64 data;
    u8 bytes;
    u8 level;         // that it is meant to reach by itself (gfx12)
    bool follows;     // may be to the same 8 bytes as an older one of the queue
    u32 instruction;  // number of it in the wave
};

inline void write_to_memory(const Store &s) {
    void *p = reinterpret_cast<void *>(s.address);
    if (s.bytes == 8 && s.address % 8 == 0)
        __atomic_store_n(static_cast<u64 *>(p), s.data, __ATOMIC_RELEASE);
    else if (s.bytes == 4 && s.address % 4 == 0)
        __atomic_store_n(static_cast<u32 *>(p), u32(s.data), __ATOMIC_RELEASE);
    else
        memcpy(p, &s.data, s.bytes);
}

class StoreQueue {
public:
    bool empty() const { return alive_ == 0; }
    size_t size() const { return alive_; }

    void push(Store s) {
        const u64 last = (s.address + s.bytes - 1) / kGranule;
        s.follows = false;
        for (u64 granule = s.address / kGranule; granule <= last; granule++) {
            s.follows |= seen_[slot(granule)];
            seen_.set(slot(granule));
        }
        stores_.push_back(s);
        alive_++;
    }

    template <class Sink>
    void drain(Sink sink) {
        for (const Store &s : stores_)
            if (s.bytes != 0) sink(s);
        clear();
    }

    // All up to the instruction of that number.
    template <class Sink>
    void drain_until(u32 instruction, Sink sink) {
        for (Store &s : stores_)
            if (s.bytes != 0 && i32(s.instruction - instruction) <= 0) take(s, sink);
        compact();
    }

    // `count` of them in random order; the oldest where the one that was picked may not overtake.
    template <class Sink>
    void drain_some(Random &random, u32 count, Sink sink) {
        for (u32 i = 0; i < count && alive_ > 0; i++) {
            Store &s = stores_[random.below(u32(stores_.size()))];
            take(s.bytes != 0 && !s.follows ? s : oldest(), sink);
        }
        compact();
    }

    // Those that touch any of these bytes: to be seen by a load of the same wave.
    template <class Sink>
    void drain_overlapping(u64 address, u32 bytes, Sink sink) {
        if (alive_ == 0 || !may_hold(address, bytes)) return;
        for (Store &s : stores_)
            if (s.bytes != 0 && s.address < address + bytes && address < s.address + s.bytes)
                take(s, sink);
        compact();
    }

    // None of them stays short of that level.
    void raise(u8 level) {
        for (Store &s : stores_) s.level = std::max(s.level, level);
    }

    // The number of distinct instructions whose stores have not left.
    u32 instructions() const {
        u32 count = 0;
        const Store *last = nullptr;
        for (const Store &s : stores_) {
            if (s.bytes == 0) continue;
            count += last == nullptr || last->instruction != s.instruction;
            last = &s;
        }
        return count;
    }
    u32 newest_instruction() const { return stores_.empty() ? 0 : stores_.back().instruction; }

private:
    static constexpr u64 kGranule = 8;
    static constexpr size_t kSlots = 1 << 16;
    static size_t slot(u64 granule) { return (granule * 0x9E3779B97F4A7C15u) >> 48; }

    bool may_hold(u64 address, u32 bytes) const {
        for (u64 g = address / kGranule; g <= (address + bytes - 1) / kGranule; g++)
            if (seen_[slot(g)]) return true;
        return false;
    }
    template <class Sink>
    void take(Store &s, Sink sink) {
        const Store taken = s;
        s.bytes = 0;
        alive_--;
        sink(taken);
    }
    Store &oldest() {
        while (stores_[first_].bytes == 0) first_++;
        return stores_[first_];
    }
    void clear() {
        if (!stores_.empty()) seen_.reset();
        stores_.clear();
        alive_ = first_ = 0;
    }
    void compact() {
        if (alive_ == 0) return clear();
        if (stores_.size() < 32 || alive_ * 2 > stores_.size()) return;
        std::erase_if(stores_, [](const Store &s) { return s.bytes == 0; });
        first_ = 0;
    }

    std::vector<Store> stores_;  // bytes 0: has left
    size_t alive_ = 0;
    size_t first_ = 0;          // none before it is alive
    std::bitset<kSlots> seen_;  // granules that were pushed since the queue was empty
};

}  // namespace rdnasim
