// SPDX-License-Identifier: Apache-2.0
// The slabs, word by word, and the stores on their way to them.
//
// A store is issued by a thread and arrives when the adversary says so; until then nobody sees it.
// Only two things order arrivals: stores of one thread to one word keep their order, and a store
// that waits for others (a release, see Store::after) comes after them. A word keeps its last
// values, each with the time of its arrival, so that a relaxed load can be given an old one.
#pragma once

#include <vector>

#include "scenario.h"

namespace explorer {

// Who stored a value: what the checks need to know of it.
struct Origin {
    uint8_t rank = 0xFF;  // 0xFF: there from the start
    uint8_t thread = 0;   // block * kThreads + thread
    uint16_t call = 0;
};

struct Version {
    uint64_t value;
    uint32_t since;
    Origin origin;
};

enum class StoreKind : uint8_t { kPut, kPutLl, kClear, kFlag, kWord };

constexpr uint32_t kOldVersions = 3;

struct Cell {
    Version now;
    Version old[kOldVersions];  // latest first
    uint8_t olds;
    bool unread;  // payload that its reader has not taken yet
    uint32_t read_at[kFibersOfRank];
    uint64_t write_hash, reads_hash;  // of the events that made it so (exhaustive search)
};

struct Place {
    uint32_t rank, cell;
};

struct Store {
    Place to;
    StoreKind kind;
    Origin origin;
    uint64_t value;
    uint32_t number;    // of its thread's stores
    uint32_t priority;  // for schedules by priority
    uint64_t hash;      // of the events that led to it (exhaustive search)
    bool release;
    uint32_t after[kThreads];  // a release: the stores of the block's threads before these numbers
};

// The host is one more thread of its rank, for the stores of rdnaar_abort().
constexpr uint32_t kHostThread = kFibersOfRank;

class Memory {
public:
    Memory();
    void prepare(const Scenario &scenario);  // for a new scenario
    void reset();                            // for a new schedule

    const rdnaar::Layout &layout() const { return layout_; }
    unsigned char *slab(uint32_t rank) const { return slabs_ + rank * kSlabBytes; }
    Place place(const void *address);
    uint32_t cells() const { return uint32_t(offsets_.size()); }
    uint32_t offset_of(uint32_t cell) const { return offsets_[cell]; }
    Cell &cell(const Place &place) { return cells_[place.rank][place.cell]; }

    void issue(const Store &store);
    // Stores that may arrive next.
    std::vector<Store> &ready() { return ready_; }
    Store take(uint32_t index);  // from ready(); lets go of those that waited for it
    void arrive(const Store &store, uint32_t time);
    bool has_pending(uint32_t rank, uint32_t thread) const { return pending_[rank][thread] != 0; }
    bool has_pending_to_self(uint32_t rank) const { return pending_to_self_[rank] != 0; }
    uint32_t issued(uint32_t rank, uint32_t thread) const { return issued_[rank][thread]; }
    // The stores on their way to a word: of one thread, in their order.
    uint32_t pending_to(const Place &place) const;
    // A store of another thread that is on its way to the same word.
    const Store *other_writer(const Store &store) const;
    // Lets the first store to a word arrive, and what it waits for before: visit(index in ready()).
    template <class Arrive>
    void bring(const Place &place, Arrive arrive);
    template <class Arrive>
    void bring_all_of(uint32_t rank, uint32_t thread, bool to_self_only, Arrive arrive);

    static constexpr uint64_t kSlabBytes = rdnaar::kSlabGranule;

private:
    uint64_t initial_value(uint32_t offset) const;
    void reset(Cell &cell, uint32_t index);
    bool may_arrive(const Store &store) const;

    unsigned char *slabs_;  // addresses without memory: an access past the lane is a fault
    rdnaar::Layout layout_{};
    uint64_t first_call_ = 0, first_round_ = 0;
    uint32_t world_ = 0;
    std::vector<uint16_t> cell_of_word_;  // + 1
    std::vector<uint32_t> offsets_;
    std::vector<Cell> cells_[kRanks];
    std::vector<Store> ready_, held_;
    uint32_t pending_[kRanks][kFibersOfRank + 1];
    uint32_t pending_to_self_[kRanks];
    uint32_t issued_[kRanks][kFibersOfRank + 1];
};

// The index of the first ready store of which match(store) is true; the size of ready(), if none.
template <class Match>
uint32_t find_ready(const std::vector<Store> &ready, Match match) {
    uint32_t i = 0;
    while (i < ready.size() && !match(ready[i])) i++;
    return i;
}

template <class Arrive>
void Memory::bring_all_of(uint32_t rank, uint32_t thread, bool to_self_only, Arrive arrive) {
    while (to_self_only ? has_pending_to_self(rank) : has_pending(rank, thread)) {
        uint32_t i = find_ready(ready_, [&](const Store &s) {
            return s.origin.rank == rank && s.origin.thread == thread &&
                   (!to_self_only || s.to.rank == rank);
        });
        if (i == ready_.size())  // what is left waits for others of its block
            i = find_ready(ready_, [&](const Store &s) { return s.origin.rank == rank; });
        arrive(i);
    }
}

template <class Arrive>
void Memory::bring(const Place &place, Arrive arrive) {
    auto there = [&](const Store &s) { return s.to.rank == place.rank && s.to.cell == place.cell; };
    for (;;) {
        const uint32_t i = find_ready(ready_, there);
        if (i < ready_.size()) return arrive(i);
        const uint32_t held = find_ready(held_, there);
        const uint32_t rank = held_[held].origin.rank;
        arrive(find_ready(ready_, [&](const Store &s) { return s.origin.rank == rank; }));
    }
}

}  // namespace explorer
