// SPDX-License-Identifier: Apache-2.0
// The weak memory model: what the instruction set allows, taken as badly as it can be.
//
//   wave      stores wait in a queue and leave it in any order until the wave waits for them; loads
//             look at memory some time between their instruction and the wait for it, and the
//             register keeps its old value until then
//   block     two L0 caches (the block runs on two compute units), for loads that may hit them;
//             on gfx12 stores of less than device scope stay here until a write-back
//   launch    one L1 cache, likewise
//   device    the L2: lines of ordinary memory of the device that peers may write to, kept from
//             their first use until the next kernel; and the link, which all stores to other
//             devices and to the host pass: in any order, but not across a wave's wait for stores
//
// All of it is emptied when a launch ends.
#pragma once

#include <array>
#include <deque>
#include <unordered_map>

#include "allocations.h"
#include "store_queue.h"
#include "wave.h"

namespace rdnasim {

constexpr u32 kLineBytes = 128;

// Addresses of an access, of the lanes that make it.
struct Places {
    u64 at[kWave];
    u32 lanes;
};

class Cache {
public:
    using Line = std::array<u8, kLineBytes>;
    // NULL if the line is not here.
    Line *find(u64 line) {
        const auto at = lines_.find(line);
        return at == lines_.end() ? nullptr : &at->second;
    }
    Line &fill(u64 line);  // from memory
    void put(u64 line, const Line &from) { lines_[line] = from; }
    void update(const Store &s);
    void drop(const Store &s);
    void clear() { lines_.clear(); }

private:
    std::unordered_map<u64, Line> lines_;
};

struct PendingAccess {
    const Step *step;
    Places places;         // of a load that has not looked yet
    bool looked;           // `data` has what it found
    std::vector<u8> data;  // of the lanes one after the other, 16 bytes each
};

// What the scalar unit or LDS owe the wave.
struct PendingScalar {
    const Step *step;
    std::array<u32, 16> words;
};

class WaveMemory {
public:
    StoreQueue stores;
    u32 store_instructions = 0;
    std::deque<PendingAccess> loads;    // in order
    std::deque<PendingScalar> scalars;  // in any order
    std::deque<PendingAccess> shared;   // LDS, in order; stores too
};

class BlockMemory {
public:
    Cache l0[2];
    StoreQueue unwritten;  // gfx12
};

class LaunchMemory {
public:
    Cache l1;
    StoreQueue left;       // by waves that have ended
    bool ended = false;    // all its waves have
    u64 last_segment = 0;  // of the link, with stores of this launch
};

// Of a device, as this process sees it.
class DeviceMemoryModel {
public:
    DeviceMemoryModel(u32 device, u64 seed) : device_(device), random_(seed) {}

    // Instructions.
    void load(Wave &w, const Step &t, const Places &places);
    void store(Wave &w, const Step &t, u64 address, const u8 *data, u32 bytes);
    void before_atomic(Wave &w, u64 address, u32 bytes);
    void after_atomic(Wave &w, const Step &t, const Places &places, std::vector<u8> old);
    void wait_for_loads(Wave &w, u32 most);
    void wait_for_stores(Wave &w, u32 most);
    void wait_for_scalars(Wave &w, u32 most);
    void wait_for_shared(Wave &w, u32 most);
    void invalidate(Wave &w, u8 level);  // all caches below this level
    void write_back(Wave &w, u8 level);  // gfx12

    // Between instructions.
    void turn(Wave &w);
    void end(Wave &w);
    void start(Launch &launch);
    void turn(Launch &launch);
    // Of a launch whose waves have ended: have its stores arrived? It is over when they have.
    bool finish(Launch &launch);

private:
    enum class Way { kMemory, kLink, kL2 };
    Way way_of(u64 address);
    void read(Wave &w, u64 address, u32 bytes, u8 level, u8 *to);
    void read_below(Wave &w, u64 address, u32 bytes, u8 level, u8 *to);
    Cache::Line &line_of_l2(u64 line);
    void look(Wave &w, PendingAccess &access);
    void complete_load(Wave &w);
    void complete_shared(Wave &w);
    void leave(Block &block, const Store &s);  // the wave's queue
    void leave_block(const Store &s);
    void arrive(const Store &s);   // at the L2 or the link
    void deliver(const Store &s);  // at the end of the link
    void deliver_all();
    void mark_link();
    u32 some_of(const StoreQueue &queue, u32 few);

    const u32 device_;
    Random random_;
    u64 generation_ = 0;
    std::vector<Allocation> allocations_;
    const Allocation *recent_ = nullptr;
    StoreQueue unwritten_;             // gfx12: of device scope, to other devices
    std::deque<StoreQueue> segments_;  // of the link, between marks; before link_
    StoreQueue link_;
    u64 closed_ = 0, gone_ = 0;  // segments, so far
    std::unordered_map<u64, Cache::Line> l2_;
};

// Puts what a load has found for one lane into the registers.
void put_loaded(Wave &w, const Step &t, u32 lane, const u8 *data);
void put_scalars(Wave &w, const Step &t, const u32 *words);
void access_shared(Wave &w, const Step &t, const Places &places, u8 *data);

}  // namespace rdnasim
