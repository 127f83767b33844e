// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include <algorithm>
#include <utility>

namespace rdnasim {

namespace {

constexpr u32 kLongTurn = 512, kShortTurn = 64;
constexpr u32 kGarbage = 0x7FA5A5A5;  // a NaN: in registers and LDS that nothing has written

// User registers that a kernel may ask for, in their order (kernel_code_properties).
enum Property : u32 {
    kPrivateBuffer = 1,
    kDispatchPointer = 2,
    kQueuePointer = 4,
    kKernargPointer = 8,
    kDispatchId = 16,
    kFlatScratch = 32,
    kPrivateSize = 64,
};

u32 put_user_registers(Wave &w, const Kernel &k, u64 kernarg) {
    u32 at = 0;
    if (k.properties & kPrivateBuffer) at += 4;
    if (k.properties & kDispatchPointer) at += 2;
    if (k.properties & kQueuePointer) at += 2;
    if (k.properties & kKernargPointer) {
        w.s[at] = u32(kernarg);
        w.s[at + 1] = u32(kernarg >> 32);
        at += 2;
    }
    if (k.properties & kDispatchId) at += 2;
    if (k.properties & kFlatScratch) at += 2;
    if (k.properties & kPrivateSize) at += 1;
    return std::max(at, k.rsrc2 >> 1 & 31);
}

void put_block_index(Wave &w, const Kernel &k, const u32 (&index)[3], u32 at) {
    if (k.family >= 12) {
        w.s[kTtmp + 9] = index[0];
        w.s[kTtmp + 7] = index[1] | index[2] << 16;
        return;
    }
    for (u32 i = 0; i < 3; i++)
        if (k.rsrc2 >> (7 + i) & 1) w.s[at++] = index[i];
}

void put_thread_index(Wave &w, const Launch &launch, u32 first) {
    const u32 x = launch.block[0], y = launch.block[1];
    for (u32 l = 0; l < kWave; l++) {
        const u32 t = first + l, index[3] = {t % x, t / x % y, t / (x * y)};
        if (launch.kernel->family == 10) {
            for (u32 i = 0; i < 3; i++) w.v[i].x[l] = index[i];
        } else {
            w.v[0].x[l] = index[0] | index[1] << 10 | index[2] << 20;
        }
    }
}

}  // namespace

Scheduler::Scheduler() : random_(settings().seed), seeded_(settings().seed != 0) {}

void Scheduler::start(std::unique_ptr<Launch> launch) {
    static constexpr u32 kSkips[] = {0, 0, 128, 240};  // some ranks are slower than others
    launch->unfinished = launch->block_count();
    launch->skips = seeded_ ? kSkips[random_.below(4)] : 0;
    if (launch->device->memory != nullptr) launch->device->memory->start(*launch);
    launches_.push_back(std::move(launch));
    start_blocks();
}

// In order, as far as there is room.
void Scheduler::start_blocks() {
    for (auto &launch : launches_)
        while (launch->next_block < launch->block_count() &&
               launch->device->resident_blocks < settings().resident_blocks) {
            if (seeded_ && launch->next_block > 0 && random_.one_in(3)) break;
            start_block(*launch);
        }
}

void Scheduler::start_block(Launch &launch) {
    launch.blocks.emplace_back();
    Block &block = launch.blocks.back();
    block.launch = &launch;
    const u32 number = launch.next_block++;
    block.index[0] = number % launch.grid[0];
    block.index[1] = number / launch.grid[0] % launch.grid[1];
    block.index[2] = number / (launch.grid[0] * launch.grid[1]);
    block.lds.assign(launch.group_bytes, 0xA5);
    if (launch.device->memory != nullptr) block.memory = std::make_unique<BlockMemory>();
    launch.device->resident_blocks++;
    const u32 waves = (launch.threads() + kWave - 1) / kWave;
    block.live = waves;
    for (u32 i = 0; i < waves; i++) start_wave(launch, block, i);
}

void Scheduler::start_wave(Launch &launch, Block &block, u32 number) {
    static constexpr u32 kSkips[] = {0, 128, 190, 250};
    if (free_.empty()) free_.push_back(std::make_unique<Wave>());
    waves_.push_back(std::move(free_.back()));
    free_.pop_back();
    Wave &w = *waves_.back();
    const Kernel &kernel = *launch.kernel;
    std::fill(std::begin(w.s), std::end(w.s), kGarbage);
    for (u32 i = 0; i < kernel.vgprs; i++)
        std::fill(std::begin(w.v[i].x), std::end(w.v[i].x), kGarbage);
    w.scc = 0;
    w.number = number;
    w.next = kernel.steps.data();
    w.state = State::kRuns;
    w.polls = false;
    w.block = &block;
    w.launch = &launch;
    w.skips = seeded_ ? kSkips[random_.below(4)] : 0;
    const u32 first = number * kWave, threads = std::min(launch.threads() - first, kWave);
    w.s[kExec] = threads == kWave ? ~0u : (1u << threads) - 1;
    w.s[kVcc] = 0;
    const u64 kernarg = reinterpret_cast<u64>(launch.arguments.data());
    put_block_index(w, kernel, block.index, put_user_registers(w, kernel, kernarg));
    put_thread_index(w, launch, first);
    if (launch.device->memory == nullptr) {
        w.memory = nullptr;
    } else {
        if (w.memory == nullptr) w.memory = new WaveMemory;
        w.memory->store_instructions = 0;
    }
}

bool Scheduler::sweep(bool all) {
    bool progressed = false;
    for (auto &launch : launches_) {
        if (launch->device->memory != nullptr) launch->device->memory->turn(*launch);
        progressed |= launch->unfinished == 0;
    }
    const size_t count = waves_.size(),
                 first = seeded_ && count > 0 ? random_.below(u32(count)) : 0;
    for (size_t i = 0; i < count; i++) {
        Wave &w = *waves_[first + i < count ? first + i : first + i - count];
        if (all || !seeded_ ||
            !(random_.below(256) < w.skips || random_.below(256) < w.launch->skips))
            w.polls = !turn(w);
        progressed |= !w.polls;
    }
    for (size_t i = 0; i < waves_.size();) {
        if (waves_[i]->state != State::kEnded) {
            i++;
            continue;
        }
        std::swap(waves_[i], waves_.back());
        free_.push_back(std::move(waves_.back()));
        waves_.pop_back();
    }
    finish_launches();
    start_blocks();
    return progressed;
}

bool Scheduler::turn(Wave &w) {
    if (w.state == State::kEnded) return false;
    if (w.memory != nullptr) w.launch->device->memory->turn(w);
    if (w.state == State::kBarrier && w.block->generation == w.barrier_seen) return false;
    w.state = State::kRuns;
    w.progressed = false;
    const u32 turns =
        seeded_ ? 1 + random_.below(random_.one_in(8) ? kLongTurn : kShortTurn) : kLongTurn;
    u32 left = turns;
    const Step *step = w.next;
    do step = step->run(w, *step);
    while (step != nullptr && --left > 0);
    operations_ += turns - left + (step == nullptr);
    if (step != nullptr) w.next = step;
    if (w.state == State::kEnded) end(w);
    return step != nullptr || w.progressed;
}

void Scheduler::end(Wave &w) {
    Block &block = *w.block;
    if (w.memory != nullptr) w.launch->device->memory->end(w);
    block.live--;
    block.release_if_complete();
    if (block.live > 0) return;
    w.launch->unfinished--;
    w.launch->device->resident_blocks--;
}

void Scheduler::finish_launches() {
    for (size_t i = 0; i < launches_.size();) {
        Launch &launch = *launches_[i];
        DeviceMemoryModel *memory = launch.device->memory.get();
        if (launch.unfinished > 0 || (memory != nullptr && !memory->finish(launch))) {
            i++;
            continue;
        }
        finished_.push_back(std::move(launches_[i]));
        launches_.erase(launches_.begin() + std::ptrdiff_t(i));
    }
}

std::vector<std::unique_ptr<Launch>> Scheduler::take_finished() {
    return std::exchange(finished_, {});
}

}  // namespace rdnasim
