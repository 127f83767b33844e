// SPDX-License-Identifier: Apache-2.0
// What a lane does on NVIDIA GPUs (sm_70 and later). Inline PTX, since CUDA C++ has no 16-byte
// access of system scope; each function is one instruction, named by its order and scope in PTX's
// memory model.
#pragma once

#include "../protocol/call.h"
#include "../protocol/lane.h"

#define RDNAAR_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define RDNAAR_KERNEL_PARAMETER const __grid_constant__

namespace rdnaar::gpu {

constexpr uint32_t kWave = 32;

struct alignas(16) Words {
    uint32_t x, y, z, w;
};

// ---- Place in the grid --------------------------------------------------------------------------

RDNAAR_FN uint32_t thread_index() { return threadIdx.x; }
RDNAAR_FN uint32_t block_index() { return blockIdx.x; }

// ---- 16 bytes of a slab, system scope, relaxed --------------------------------------------------

RDNAAR_FN void store_vector_relaxed_system(unsigned char *slab, uint32_t slot, uint32_t offset,
                                           Words v) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(slab + slot + offset),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
RDNAAR_FN Words load_vector_relaxed_system(const unsigned char *slab, uint32_t slot,
                                           uint32_t offset) {
    Words v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(slab + slot + offset)
                 : "memory");
    return v;
}

// ---- Words --------------------------------------------------------------------------------------

RDNAAR_FN uint64_t load_word_relaxed_system(const uint64_t *p) {
    uint64_t x;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}
RDNAAR_FN uint32_t load_word_relaxed_system(const uint32_t *p) {
    uint32_t x;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
RDNAAR_FN uint64_t load_word_acquire_system(const uint64_t *p) {
    uint64_t x;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}
RDNAAR_FN void store_word_relaxed_system(uint64_t *p, uint64_t x) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}
RDNAAR_FN void store_word_relaxed_system(uint32_t *p, uint32_t x) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
RDNAAR_FN void store_word_relaxed_system(int32_t *p, int32_t x) {
    store_word_relaxed_system(reinterpret_cast<uint32_t *>(p), uint32_t(x));
}
RDNAAR_FN void store_word_release_system(uint64_t *p, uint64_t x) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}
RDNAAR_FN void store_word_release_system(uint32_t *p, uint32_t x) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

RDNAAR_FN uint64_t uniform(uint64_t x) { return x; }
RDNAAR_FN uint64_t load_counter_relaxed_device(const uint64_t *p) {
    uint64_t x;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}
RDNAAR_FN void store_counter_relaxed_device(uint64_t *p, uint64_t x) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}
RDNAAR_FN void store_counter_relaxed_device(uint32_t *p, uint32_t x) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
RDNAAR_FN uint32_t fetch_add_relaxed_device(uint32_t *p, uint32_t x) {
    uint32_t old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(p), "r"(x)
                 : "memory");
    return old;
}
RDNAAR_FN uint32_t exchange_relaxed_device(uint32_t *p, uint32_t x) {
    uint32_t old;
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(p), "r"(x)
                 : "memory");
    return old;
}

// ---- The caller's tensors -----------------------------------------------------------------------

// Unaligned accesses trap. A tensor that does not lie on a vector lies on a word, or on an element
// of 16 bits: the same for all its vectors, so a warp takes one branch.
RDNAAR_FN Words load_tensor_vector(const unsigned char *p, bool aligned) {
    if (aligned) return *reinterpret_cast<const Words *>(p);
    if (reinterpret_cast<uintptr_t>(p) % 4 == 0) {
        const uint32_t *w = reinterpret_cast<const uint32_t *>(p);
        return Words{w[0], w[1], w[2], w[3]};
    }
    const uint16_t *h = reinterpret_cast<const uint16_t *>(p);
    return Words{h[0] | uint32_t(h[1]) << 16, h[2] | uint32_t(h[3]) << 16,
                 h[4] | uint32_t(h[5]) << 16, h[6] | uint32_t(h[7]) << 16};
}
RDNAAR_FN void store_tensor_vector(unsigned char *p, Words v, bool aligned) {
    if (aligned) {
        *reinterpret_cast<Words *>(p) = v;
        return;
    }
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    if (reinterpret_cast<uintptr_t>(p) % 4 == 0) {
        RDNAAR_UNROLL
        for (int i = 0; i < 4; i++) reinterpret_cast<uint32_t *>(p)[i] = words[i];
        return;
    }
    RDNAAR_UNROLL
    for (int i = 0; i < 8; i++)
        reinterpret_cast<uint16_t *>(p)[i] = uint16_t(words[i / 2] >> i % 2 * 16);
}

// ---- Waiting ------------------------------------------------------------------------------------

// A release is cumulative: st.release.sys of a flag, after a block barrier, comes after the stores
// of all threads of the block.
RDNAAR_FN void drain_stores() {}

RDNAAR_FN void block_barrier() { __syncthreads(); }
RDNAAR_FN bool wave_any(bool b) { return __any_sync(0xFFFFFFFFu, b); }
RDNAAR_FN bool wave_elect(bool b) {
    return uint32_t(__ffs(int(__ballot_sync(0xFFFFFFFFu, b)))) == threadIdx.x % kWave + 1;
}
RDNAAR_FN bool block_any(bool b, uint32_t /*turn*/, uint32_t /*threads*/) {
    return __syncthreads_or(b);
}

RDNAAR_FN uint64_t real_time() {  // nanoseconds
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// Nothing: the shortest sleep takes longer than the hop that is waited for (0.6 us on two H200).
RDNAAR_FN void idle_after_poll() {}
RDNAAR_FN void idle_short() { __nanosleep(32); }
RDNAAR_FN void idle_long() { __nanosleep(1000); }

// ---- Arguments ----------------------------------------------------------------------------------

// In constant memory; an instruction can take it from there, so nothing need be kept in registers.
RDNAAR_FN const Call &argument(const Call &call) { return call; }
RDNAAR_FN const Call &fresh(const Call &call) { return call; }

}  // namespace rdnaar::gpu
