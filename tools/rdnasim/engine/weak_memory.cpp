// SPDX-License-Identifier: Apache-2.0
#include "weak_memory.h"

#include "faults.h"

namespace rdnasim {

namespace {

// Beyond this a queue gives up its older half, as a cache of some size has to.
constexpr size_t kMostUnwritten = 8192;
constexpr u32 kPageLines = 1 << 14;

u8 *bytes_at(u64 address) { return reinterpret_cast<u8 *>(address); }

// In the words that the hardware would read whole.
void read_memory(u64 address, u32 bytes, u8 *to) {
    if (bytes % 8 == 0 && address % 8 == 0) {
        for (u32 i = 0; i < bytes; i += 8) {
            const u64 x = __atomic_load_n(reinterpret_cast<u64 *>(address + i), __ATOMIC_ACQUIRE);
            memcpy(to + i, &x, 8);
        }
    } else if (bytes % 4 == 0 && address % 4 == 0) {
        for (u32 i = 0; i < bytes; i += 4) {
            const u32 x = __atomic_load_n(reinterpret_cast<u32 *>(address + i), __ATOMIC_ACQUIRE);
            memcpy(to + i, &x, 4);
        }
    } else {
        memcpy(to, bytes_at(address), bytes);
    }
}

void update_line(Cache::Line &line, u64 start, const Store &s) {
    const u8 *data = reinterpret_cast<const u8 *>(&s.data);
    for (u32 i = 0; i < s.bytes; i++)
        if (s.address + i - start < kLineBytes) line[s.address + i - start] = data[i];
}

template <class Do>
void for_lines(u64 address, u32 bytes, Do work) {
    for (u64 line = address / kLineBytes * kLineBytes; line < address + bytes; line += kLineBytes)
        work(line);
}

}  // namespace

// ---- Caches -------------------------------------------------------------------------------------

Cache::Line &Cache::fill(u64 line) {
    if (lines_.size() > kPageLines) lines_.clear();
    Line &room = lines_[line];
    read_memory(line, kLineBytes, room.data());
    return room;
}

void Cache::update(const Store &s) {
    if (lines_.empty()) return;
    for_lines(s.address, s.bytes, [&](u64 line) {
        if (Line *found = find(line)) update_line(*found, line, s);
    });
}

void Cache::drop(const Store &s) {
    if (lines_.empty()) return;
    for_lines(s.address, s.bytes, [&](u64 line) { lines_.erase(line); });
}

Cache::Line &DeviceMemoryModel::line_of_l2(u64 line) {
    const auto at = l2_.find(line);
    if (at != l2_.end()) return at->second;
    Cache::Line &room = l2_[line];
    read_memory(line, kLineBytes, room.data());
    return room;
}

// ---- Loads --------------------------------------------------------------------------------------

void DeviceMemoryModel::load(Wave &w, const Step &t, const Places &places) {
    w.memory->loads.push_back(PendingAccess{&t, places, false, {}});
    if (random_.one_in(8)) look(w, w.memory->loads.back());
}

// Some time between the instruction and the wait.
void DeviceMemoryModel::look(Wave &w, PendingAccess &access) {
    if (access.looked) return;
    access.looked = true;
    const u32 bytes = access.step->parameter & 0xFF;
    access.data.resize(kWave * 16);
    for (u32 l = 0; l < kWave; l++)
        if (access.places.lanes >> l & 1)
            read(w, access.places.at[l], bytes, access.step->level, &access.data[l * 16]);
}

void DeviceMemoryModel::complete_load(Wave &w) {
    PendingAccess &access = w.memory->loads.front();
    look(w, access);
    for (u32 l = 0; l < kWave; l++)
        if (access.places.lanes >> l & 1) put_loaded(w, *access.step, l, &access.data[l * 16]);
    w.memory->loads.pop_front();
}

// What the wave itself has stored, it sees.
void DeviceMemoryModel::read(Wave &w, u64 address, u32 bytes, u8 level, u8 *to) {
    Block &block = *w.block;
    w.memory->stores.drain_overlapping(address, bytes, [&](const Store &s) { leave(block, s); });
    block.memory->unwritten.drain_overlapping(address, bytes,
                                              [&](const Store &s) { leave_block(s); });
    for (u32 done = 0; done < bytes;) {
        const u64 at = address + done;
        const u32 part = std::min(bytes - done, u32(kLineBytes - at % kLineBytes));
        read_below(w, at, part, level, to + done);
        done += part;
    }
}

void DeviceMemoryModel::read_below(Wave &w, u64 address, u32 bytes, u8 level, u8 *to) {
    const u64 line = address / kLineBytes * kLineBytes;
    const Way way = way_of(address);
    if (level < kL2) {
        Cache &l0 = w.block->memory->l0[w.number % 2], &l1 = w.launch->memory->l1;
        Cache::Line *found = level == kL0 ? l0.find(line) : nullptr;
        if (found == nullptr) {
            found = l1.find(line);
            if (found == nullptr) {
                found = &l1.fill(line);
                if (way == Way::kL2) *found = line_of_l2(line);
            }
            if (level == kL0) l0.put(line, *found);
        }
        memcpy(to, found->data() + (address - line), bytes);
        return;
    }
    if (way == Way::kL2) {
        memcpy(to, line_of_l2(line).data() + (address - line), bytes);
        return;
    }
    // A read over the link pushes the writes before it.
    if (way == Way::kLink) deliver_all();
    unwritten_.drain_overlapping(address, bytes, [&](const Store &s) { arrive(s); });
    read_memory(address, bytes, to);
}

// ---- Stores -------------------------------------------------------------------------------------

void DeviceMemoryModel::store(Wave &w, const Step &t, u64 address, const u8 *data, u32 bytes) {
    const u8 level = w.launch->kernel->family >= 12 ? t.level : u8(kSystem);
    // What is at its natural place arrives whole up to 8 bytes; 16 bytes do not.
    const u32 whole = bytes == 8 && address % 8 == 0 ? 8 : bytes >= 4 ? 4 : bytes;
    for (u32 i = 0; i < bytes; i += whole) {
        Store s{address + i, 0, u8(whole), level, false, w.memory->store_instructions};
        memcpy(&s.data, data + i, whole);
        w.block->memory->l0[w.number % 2].update(s);
        w.launch->memory->l1.drop(s);
        w.memory->stores.push(s);
    }
}

// Out of the wave. On gfx12 no further than its scope says.
void DeviceMemoryModel::leave(Block &block, const Store &s) {
    if (s.level >= kL2) return leave_block(s);
    block.memory->unwritten.push(s);
    if (block.memory->unwritten.size() > kMostUnwritten)
        block.memory->unwritten.drain([&](const Store &old) { leave_block(old); });
}

void DeviceMemoryModel::leave_block(const Store &s) {
    if (s.level == kSystem || way_of(s.address) != Way::kLink) return arrive(s);
    unwritten_.push(s);
    if (unwritten_.size() > kMostUnwritten)
        unwritten_.drain([&](const Store &old) { arrive(old); });
}

void DeviceMemoryModel::arrive(const Store &s) {
    switch (way_of(s.address)) {
        case Way::kMemory: return write_to_memory(s);
        case Way::kLink: return link_.push(s);
        case Way::kL2:
            for_lines(s.address, s.bytes,
                      [&](u64 line) { update_line(line_of_l2(line), line, s); });
            return write_to_memory(s);
    }
}

void DeviceMemoryModel::deliver(const Store &s) {
    Allocation a;
    if (peer_faults_exist() && Allocations::get().find(s.address, a) && a.memory != Memory::kHost) {
        Store changed = s;
        if (pass_faulty_link(device_, a.device, changed)) write_to_memory(changed);
        return;
    }
    write_to_memory(s);
}

void DeviceMemoryModel::mark_link() {
    if (link_.empty()) return;
    segments_.push_back(std::move(link_));
    link_ = StoreQueue();
    closed_++;
}

void DeviceMemoryModel::deliver_all() {
    for (StoreQueue &segment : segments_) segment.drain([&](const Store &s) { deliver(s); });
    segments_.clear();
    gone_ = closed_;
    link_.drain([&](const Store &s) { deliver(s); });
}

// ---- Atomics: done at the memory, where all sees them; the old value comes back later -----------

void DeviceMemoryModel::before_atomic(Wave &w, u64 address, u32 bytes) {
    Block &block = *w.block;
    w.memory->stores.drain_overlapping(address, bytes, [&](const Store &s) { leave(block, s); });
    block.memory->unwritten.drain_overlapping(address, bytes,
                                              [&](const Store &s) { leave_block(s); });
    unwritten_.drain_overlapping(address, bytes, [&](const Store &s) { arrive(s); });
    const Store touched{address, 0, u8(bytes), kSystem, false, 0};
    block.memory->l0[w.number % 2].drop(touched);
    w.launch->memory->l1.drop(touched);
    l2_.erase(address / kLineBytes * kLineBytes);
}

void DeviceMemoryModel::after_atomic(Wave &w, const Step &t, const Places &places,
                                     std::vector<u8> old) {
    w.memory->loads.push_back(PendingAccess{&t, places, true, std::move(old)});
}

// ---- Waits and cache controls -------------------------------------------------------------------

void DeviceMemoryModel::wait_for_loads(Wave &w, u32 most) {
    while (w.memory->loads.size() > most) complete_load(w);
}

// Stores that a wave has waited for have reached memory, or go over the link before all later ones.
void DeviceMemoryModel::wait_for_stores(Wave &w, u32 most) {
    Block &block = *w.block;
    StoreQueue &stores = w.memory->stores;
    const auto sink = [&](const Store &s) { leave(block, s); };
    if (most == 0) {
        stores.drain(sink);
        mark_link();
    } else if (stores.instructions() > most) {
        stores.drain_until(w.memory->store_instructions - most, sink);
    }
}

void DeviceMemoryModel::wait_for_scalars(Wave &w, u32 most) {
    if (most != 0) return;  // they come in any order: only waiting for all says anything
    for (const PendingScalar &scalar : w.memory->scalars)
        put_scalars(w, *scalar.step, scalar.words.data());
    w.memory->scalars.clear();
}

void DeviceMemoryModel::complete_shared(Wave &w) {
    PendingAccess &access = w.memory->shared.front();
    access_shared(w, *access.step, access.places, access.data.data());
    w.memory->shared.pop_front();
}

void DeviceMemoryModel::wait_for_shared(Wave &w, u32 most) {
    while (w.memory->shared.size() > most) complete_shared(w);
}

void DeviceMemoryModel::invalidate(Wave &w, u8 level) {
    if (level > kL0) w.block->memory->l0[w.number % 2].clear();
    if (level > kL1) w.launch->memory->l1.clear();
    // Ordinary memory stays in the L2 whatever an instruction of gfx10 and gfx11 says.
    if (level >= kSystem && w.launch->kernel->family >= 12) l2_.clear();
}

// It is not waited for: the wave's stores leave as if they had been of that scope themselves.
void DeviceMemoryModel::write_back(Wave &w, u8 level) {
    Block &block = *w.block;
    w.memory->stores.raise(level);
    if (level >= kL2) block.memory->unwritten.drain([&](const Store &s) { leave_block(s); });
    if (level >= kSystem) unwritten_.drain([&](const Store &s) { arrive(s); });
}

// ---- Between instructions -----------------------------------------------------------------------

// At least 1; long queues go faster, so that all that is sent arrives in some turns.
u32 DeviceMemoryModel::some_of(const StoreQueue &queue, u32 few) {
    return 1 + random_.below(std::max(few, u32(queue.size() / 4)));
}

void DeviceMemoryModel::turn(Wave &w) {
    WaveMemory &m = *w.memory;
    while (!m.loads.empty() && random_.one_in(2)) complete_load(w);
    while (!m.shared.empty() && random_.one_in(2)) complete_shared(w);
    if (!m.scalars.empty() && random_.one_in(2)) wait_for_scalars(w, 0);
    if (!m.stores.empty() && random_.one_in(3)) {
        Block &block = *w.block;
        m.stores.drain_some(random_, some_of(m.stores, 24),
                            [&](const Store &s) { leave(block, s); });
    }
}

void DeviceMemoryModel::end(Wave &w) {
    wait_for_loads(w, 0);
    wait_for_scalars(w, 0);
    wait_for_shared(w, 0);
    StoreQueue &left = w.launch->memory->left;
    w.memory->stores.drain([&](const Store &s) { left.push(s); });
}

void DeviceMemoryModel::start(Launch &launch) {
    launch.memory = std::make_unique<LaunchMemory>();
    l2_.clear();
}

void DeviceMemoryModel::turn(Launch &launch) {
    StoreQueue &left = launch.memory->left;
    if (!left.empty() && random_.one_in(4)) {
        left.drain_some(random_, some_of(left, 64), [&](const Store &one) { leave_block(one); });
    }
    if (random_.one_in(4)) return;  // the link is slow
    for (; !segments_.empty() && segments_.front().empty(); gone_++) segments_.pop_front();
    StoreQueue &next = segments_.empty() ? link_ : segments_.front();
    if (!next.empty())
        next.drain_some(random_, some_of(next, 256), [&](const Store &s) { deliver(s); });
}

bool DeviceMemoryModel::finish(Launch &launch) {
    LaunchMemory &m = *launch.memory;
    if (!m.left.empty()) return false;
    if (!m.ended) {
        m.ended = true;
        for (Block &block : launch.blocks)
            block.memory->unwritten.drain([&](const Store &s) { leave_block(s); });
        unwritten_.drain([&](const Store &s) { arrive(s); });
        mark_link();
        m.last_segment = closed_;
        l2_.clear();
    }
    return gone_ >= m.last_segment;
}

// ---- Places -------------------------------------------------------------------------------------

DeviceMemoryModel::Way DeviceMemoryModel::way_of(u64 address) {
    Allocations &allocations = Allocations::get();
    if (const u64 now = allocations.generation(); now != generation_) {
        allocations_ = allocations.all();
        generation_ = now;
        recent_ = nullptr;
    }
    if (recent_ == nullptr || address - recent_->base >= recent_->nbytes) {
        recent_ = nullptr;
        for (const Allocation &a : allocations_)
            if (address - a.base < a.nbytes) recent_ = &a;
        if (recent_ == nullptr) return Way::kLink;  // the host's
    }
    if (recent_->memory == Memory::kHost || recent_->device != device_) return Way::kLink;
    return recent_->memory == Memory::kOrdinary && recent_->shared ? Way::kL2 : Way::kMemory;
}

}  // namespace rdnasim
