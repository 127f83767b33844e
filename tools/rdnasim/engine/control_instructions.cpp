// SPDX-License-Identifier: Apache-2.0
// Branches, barriers, waits, cache controls, clocks and the end.
#include "clock.h"
#include "device.h"
#include "instructions.h"
#include "sources.h"

namespace rdnasim {

namespace {

DeviceMemoryModel &model(Wave &w) { return *w.launch->device->memory; }

const Step *stop(Wave &w, const Step *next, State state) {
    w.next = next;
    w.state = state;
    return nullptr;
}

template <auto F>
const Step *branch_if(Wave &w, const Step &t) {
    return F(w) ? w.launch->kernel->steps.data() + t.target : &t + 1;
}

const Step *end_program(Wave &w, const Step &t) {
    w.progressed = true;
    return stop(w, &t, State::kEnded);
}

const Step *sleep(Wave &w, const Step &t) { return stop(w, &t + 1, State::kSleeps); }
const Step *pass(Wave &, const Step &t) { return &t + 1; }

// ---- Barriers -----------------------------------------------------------------------------------

void arrive(Wave &w) {
    w.progressed = true;
    w.barrier_seen = w.block->generation;
    w.block->arrived++;
    w.block->release_if_complete();
}

const Step *barrier(Wave &w, const Step &t) {
    arrive(w);
    return stop(w, &t + 1, State::kBarrier);
}

const Step *barrier_signal(Wave &w, const Step &t) {
    if (t.offset != -1)
        die("s_barrier_signal %d: only -1, the block's barrier, is known", t.offset);
    arrive(w);
    return &t + 1;
}

const Step *barrier_wait(Wave &w, const Step &t) { return stop(w, &t + 1, State::kBarrier); }

// ---- Waits --------------------------------------------------------------------------------------

// gfx10, gfx11: vmcnt, and lgkmcnt for the scalar unit and LDS together.
const Step *wait_counters(Wave &w, const Step &t) {
    if (w.memory == nullptr) return &t + 1;
    const u32 vector = t.source[0].value, other = t.source[1].value;
    if (vector != 0xFFFF) model(w).wait_for_loads(w, vector);
    if (other != 0xFFFF) {
        model(w).wait_for_scalars(w, other);
        model(w).wait_for_shared(w, other);
    }
    return &t + 1;
}

enum Waits : u32 { kLoads = 1, kStores = 2, kScalars = 4, kShared = 8 };

const Step *wait(Wave &w, const Step &t) {
    if (w.memory == nullptr) return &t + 1;
    const u32 most = u32(t.offset);
    if (t.parameter & kLoads) model(w).wait_for_loads(w, most);
    if (t.parameter & kStores) model(w).wait_for_stores(w, most);
    if (t.parameter & kScalars) model(w).wait_for_scalars(w, most);
    if (t.parameter & kShared) model(w).wait_for_shared(w, most);
    return &t + 1;
}

// ---- Cache controls -----------------------------------------------------------------------------

// Parameter: the level below which all is dropped; 0: the scope says it.
const Step *invalidate(Wave &w, const Step &t) {
    if (w.memory != nullptr)
        model(w).invalidate(w, u8(t.parameter != 0 ? t.parameter : t.flags / kScope & 3));
    return &t + 1;
}

const Step *write_back(Wave &w, const Step &t) {
    if (w.memory != nullptr) model(w).write_back(w, u8(t.flags / kScope & 3));
    return &t + 1;
}

const Step *invalidate_l1(Wave &w, const Step &t) {
    if (w.memory != nullptr) w.launch->memory->l1.clear();
    return &t + 1;
}

const Step *real_time(Wave &w, const Step &t) {
    const u64 now = real_time_ticks();
    PendingScalar pending{&t, {u32(now), u32(now >> 32)}};
    if (w.memory != nullptr)
        w.memory->scalars.push_back(pending);
    else
        put_scalars(w, t, pending.words.data());
    return &t + 1;
}

}  // namespace

const InstructionTable &control_instructions() {
    static const InstructionTable table = {
        {"s_branch", branch_if<[](const Wave &) { return true; }>},
        {"s_cbranch_scc0", branch_if<[](const Wave &w) { return w.scc == 0; }>},
        {"s_cbranch_scc1", branch_if<[](const Wave &w) { return w.scc != 0; }>},
        {"s_cbranch_vccz", branch_if<[](const Wave &w) { return w.s[kVcc] == 0; }>},
        {"s_cbranch_vccnz", branch_if<[](const Wave &w) { return w.s[kVcc] != 0; }>},
        {"s_cbranch_execz", branch_if<[](const Wave &w) { return w.exec() == 0; }>},
        {"s_cbranch_execnz", branch_if<[](const Wave &w) { return w.exec() != 0; }>},
        {"s_endpgm", end_program},
        {"s_sleep", sleep},
        {"s_sendmsg", pass},  // the wave gives its vector registers back: the translator checks
        {"s_barrier", barrier},
        {"s_barrier_signal", barrier_signal},
        {"s_barrier_wait", barrier_wait},

        {"s_waitcnt", wait_counters},
        {"s_waitcnt_vscnt", wait, kStores},
        {"s_wait_loadcnt", wait, kLoads},
        {"s_wait_storecnt", wait, kStores},
        {"s_wait_dscnt", wait, kShared},
        {"s_wait_kmcnt", wait, kScalars},
        {"s_wait_loadcnt_dscnt", wait, kLoads | kShared},
        {"s_wait_storecnt_dscnt", wait, kStores | kShared},
        {"s_wait_idle", wait, kLoads | kStores | kScalars | kShared},

        {"buffer_gl0_inv", invalidate, kL1},
        {"buffer_gl1_inv", invalidate_l1},
        {"global_inv", invalidate},
        {"global_wb", write_back},

        {"s_memrealtime", real_time},
        {"s_sendmsg_rtn_b64", real_time},
    };
    return table;
}

}  // namespace rdnasim
