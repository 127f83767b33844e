// SPDX-License-Identifier: Apache-2.0
// Sizes and limits by platform: the one place for numbers that come from measurements, or wait for
// one.
#pragma once

#include "../runtime/backend.h"
#include "grid.h"

namespace rdnaar::gpu {

struct Tuning {
    StagingSizes staging;         // bytes of a message in the slab at a time, at most
    uint64_t ll_bytes[3];         // AUTO takes ll up to here; worlds of 2, 3 to 4, 5 to 8 ranks
    uint64_t oneshot_bytes[3];    // and oneshot up to here
    uint32_t threads;             // of a block, at most
    uint32_t blocks;              // of a grid, at most
    uint32_t vectors_per_thread;  // that are worth a thread, in twoshot
    uint32_t host_poll_pause;  // longest pause between polls of a slab in host memory, microseconds
};

constexpr uint64_t kKib = 1024, kMib = 1024 * kKib;

// AMD RDNA over PCIe: untested, by arithmetic. PCIe 4.0 x16 carries 25 GB/s; one trip takes one or
// two microseconds, in which 50 KB are on their way: 3200 vectors, so 32 blocks of 256 threads keep
// the link full, and more blocks only make peers' stores collide. ll and oneshot send W-1 times the
// message, twoshot 2(W-1)/W times with one trip more: from 32 KiB at W >= 4 the bytes cost more
// than the trip.
constexpr Tuning kHipTuning = {
    {1 * kMib, 1 * kMib, 16 * kMib},     // staging of ll, oneshot, twoshot
    {256 * kKib, 32 * kKib, 16 * kKib},  // ll_bytes
    {1 * kMib, 32 * kKib, 32 * kKib},    // oneshot_bytes
    256,                                 // threads
    32,                                  // blocks
    2,                                   // vectors_per_thread
    8,                                   // host_poll_pause
};

// NVIDIA over NVLink, on 2x H200 (2026-11-30, bf16, graphs): ll is the fastest at W = 2 wherever its
// staging reaches, 6.9 us at 1 MiB beside oneshot's 8.7 and twoshot's 11.5 (docs/hardware.md); 512
// threads as in a sketch there. W > 2 is untested.
constexpr Tuning kCudaTuning = {
    {1 * kMib, 1 * kMib, 16 * kMib},   // staging of ll, oneshot, twoshot
    {1 * kMib, 64 * kKib, 32 * kKib},  // ll_bytes
    {1 * kMib, 64 * kKib, 32 * kKib},  // oneshot_bytes
    512,                               // threads
    64,                                // blocks
    2,                                 // vectors_per_thread
    8,                                 // host_poll_pause
};

// Offsets inside a slab have 32 bits in a lane.
constexpr uint64_t slab_bytes_at_most(const Tuning &t) {
    return kPayloadOffset + 2 * kMaxWorld * (t.staging.ll + t.staging.oneshot + kLine) +
           4 * (t.staging.twoshot + kMaxWorld * kLine) + kSlabGranule;
}
static_assert(slab_bytes_at_most(kHipTuning) < 1ull << 32, "GpuLane::Index");
static_assert(slab_bytes_at_most(kCudaTuning) < 1ull << 32, "GpuLane::Index");
static_assert(kHipTuning.threads <= kMaxThreads && kCudaTuning.threads <= kMaxThreads,
              "the kernels");
static_assert(kHipTuning.blocks <= kMaxBlocks && kCudaTuning.blocks <= kMaxBlocks, "the flags");

const Tuning &tuning();  // of this build's platform

}  // namespace rdnaar::gpu
