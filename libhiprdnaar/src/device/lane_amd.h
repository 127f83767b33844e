// SPDX-License-Identifier: Apache-2.0
// What a lane does on AMD GPUs of the RDNA families: gfx10 (RDNA 1, 2), gfx11 (RDNA 3), gfx12 (RDNA
// 4). Written with the compiler's builtins alone, without a header or device library of ROCm, so
// that the machine code does not depend on which ROCm is installed.
//
// Memory. A slab is uncached memory on both sides (hipDeviceMallocUncached): no L2 cache keeps a
// copy of it. The caches that remain are those of a compute unit and of a shader array. Stores
// write through them. Loads of what a peer wrote have to bypass them; the bits for that are those
// which the memory model of LLVM's AMDGPU backend gives for "load atomic monotonic, system scope,
// global":
//   gfx10 glc dlc, gfx11 glc, gfx12 scope:SCOPE_SYS
// and for "store atomic monotonic": none, but scope:SCOPE_SYS on gfx12. For 64-bit words the
// compiler has atomic loads and stores that set them. For 16 bytes it has none, but its buffer
// instructions take them as an operand, and it places the waits for them as for any other load and
// store.
#pragma once

#include "../protocol/call.h"
#include "../protocol/lane.h"

#if !defined(__HIP_DEVICE_COMPILE__)
#error "this is compiled for a GPU alone (--cuda-device-only)"
#endif

#define RDNAAR_KERNEL(threads) \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void
#define RDNAAR_KERNEL_PARAMETER const

namespace rdnaar::gpu {

constexpr uint32_t kWave = 32;
static_assert(__AMDGCN_WAVEFRONT_SIZE == kWave, "compile with -mno-wavefrontsize64");

// Cache policy operand of a buffer instruction, and the last word of its resource descriptor: a
// plain range of bytes, as the kernels of rocBLAS (Tensile) describe theirs on the same family.
#if defined(__GFX10__)
constexpr int32_t kBypassCaches = 1 | 4;  // glc, dlc
constexpr int32_t kStoreSystem = 0;
constexpr int32_t kDescriptorWord3 = 0x31014000;
#elif defined(__GFX11__)
constexpr int32_t kBypassCaches = 1;  // glc
constexpr int32_t kStoreSystem = 0;
constexpr int32_t kDescriptorWord3 = 0x31004000;
#elif defined(__GFX12__)
constexpr int32_t kBypassCaches = 3 << 3;  // scope:SCOPE_SYS
constexpr int32_t kStoreSystem = 3 << 3;
constexpr int32_t kDescriptorWord3 = 0x31004000;
#else
#error "known are the GPU families gfx10, gfx11 and gfx12"
#endif

typedef uint32_t Words __attribute__((ext_vector_type(4)));
typedef int32_t Descriptor __attribute__((ext_vector_type(4)));

// ---- Place in the grid --------------------------------------------------------------------------

RDNAAR_FN uint32_t thread_index() { return __builtin_amdgcn_workitem_id_x(); }
RDNAAR_FN uint32_t block_index() { return __builtin_amdgcn_workgroup_id_x(); }

// ---- Arguments ----------------------------------------------------------------------------------

// The call as the kernel's first argument in memory, not as the copy of it that the language gives:
// so every access is a scalar load, with an index too.
typedef const __attribute__((address_space(4))) Call *CallArgument;
RDNAAR_FN const Call &argument(const Call &) {
    return *(const Call *)(CallArgument)__builtin_amdgcn_kernarg_segment_ptr();
}
RDNAAR_FN const Call &fresh(const Call &call) {
    CallArgument p = (CallArgument)&call;
    asm volatile("" : "+s"(p));
    return *(const Call *)p;
}

// ---- 16 bytes of a slab, system scope, relaxed --------------------------------------------------

__attribute__((device)) Words
buffer_load(Descriptor slab, int32_t offset, int32_t slot,
            int32_t policy) __asm("llvm.amdgcn.raw.buffer.load.v4i32");
__attribute__((device)) void buffer_store(
    Words v, Descriptor slab, int32_t offset, int32_t slot,
    int32_t policy) __asm("llvm.amdgcn.raw.buffer.store.v4i32");

// Said again of each slot, though all that it is made of is scalar: clang 15 forgets it on the way
// and then makes an instruction that is none.
RDNAAR_FN int32_t first_lane(uint32_t x) { return __builtin_amdgcn_readfirstlane(int32_t(x)); }

// The same on all lanes of a wave, so it lies in scalar registers. User space addresses have 47
// bits: the upper bits of the second word, stride and swizzle, are zero.
RDNAAR_FN Descriptor descriptor_of(const unsigned char *slab) {
    const uint64_t base = reinterpret_cast<uint64_t>(slab);
    return Descriptor{int32_t(base), int32_t(base >> 32), -1, kDescriptorWord3};
}

RDNAAR_FN void store_vector_relaxed_system(unsigned char *slab, uint32_t slot, uint32_t offset,
                                           Words v) {
    buffer_store(v, descriptor_of(slab), int32_t(offset), first_lane(slot), kStoreSystem);
}

// The compiler takes the load for one of ordinary memory: the barrier keeps it in each turn of a
// poll.
RDNAAR_FN Words load_vector_relaxed_system(const unsigned char *slab, uint32_t slot,
                                           uint32_t offset) {
    asm volatile("" ::: "memory");
    return buffer_load(descriptor_of(slab), int32_t(offset), first_lane(slot), kBypassCaches);
}

// ---- Words --------------------------------------------------------------------------------------

// A pointer into global memory: the compiler cannot tell for one that came from memory itself, and
// would take a flat instruction, which counts as one of LDS too.
template <class X>
using Global = __attribute__((address_space(1))) X *;
template <class X>
RDNAAR_FN Global<X> global(X *p) {
    return (Global<X>)p;
}

template <class X>
RDNAAR_FN X load_word_relaxed_system(const X *p) {
    return __hip_atomic_load(global(p), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
RDNAAR_FN uint64_t load_word_acquire_system(const uint64_t *p) {
    return __hip_atomic_load(global(p), __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class X>
RDNAAR_FN void store_word_relaxed_system(X *p, X x) {
    __hip_atomic_store(global(p), x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class X>
RDNAAR_FN void store_word_release_system(X *p, X x) {
    __hip_atomic_store(global(p), x, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}

// Moved to scalar registers: addresses made of it are scalar too. The barrier keeps the compiler
// from doing so, and waiting for x, earlier than said.
RDNAAR_FN uint64_t uniform(uint64_t x) {
    asm volatile("" : "+v"(x));
    return uint64_t(uint32_t(first_lane(uint32_t(x >> 32)))) << 32 |
           uint32_t(first_lane(uint32_t(x)));
}
RDNAAR_FN uint64_t load_counter_relaxed_device(const uint64_t *p) {
    return __hip_atomic_load(global(p), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class X>
RDNAAR_FN void store_counter_relaxed_device(X *p, X x) {
    __hip_atomic_store(global(p), x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
RDNAAR_FN uint32_t fetch_add_relaxed_device(uint32_t *p, uint32_t x) {
    return __hip_atomic_fetch_add(global(p), x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
RDNAAR_FN uint32_t exchange_relaxed_device(uint32_t *p, uint32_t x) {
    return __hip_atomic_exchange(global(p), x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// ---- The caller's tensors -----------------------------------------------------------------------

// These families load and store 16 bytes at any address: the runtime puts them in unaligned mode.
typedef uint32_t WordsAnywhere __attribute__((ext_vector_type(4), aligned(2)));

RDNAAR_FN Words load_tensor_vector(const unsigned char *p, bool /*aligned*/) {
    return *reinterpret_cast<const WordsAnywhere *>(p);
}
RDNAAR_FN void store_tensor_vector(unsigned char *p, Words v, bool /*aligned*/) {
    *reinterpret_cast<WordsAnywhere *>(p) = v;
}

// ---- Waiting ------------------------------------------------------------------------------------

// Written out, since the compiler drops a wait of a fence when it believes that nothing is on its
// way. On gfx10 and gfx11 a store has been counted off once it is in memory (uncached), on gfx12
// after the write-back.
RDNAAR_FN void drain_stores() {
#if defined(__GFX12__)
    asm volatile("global_wb scope:SCOPE_SYS\n\ts_wait_loadcnt 0x0\n\ts_wait_storecnt 0x0" ::
                     : "memory");
#else
    asm volatile("s_waitcnt vmcnt(0)\n\ts_waitcnt_vscnt null, 0x0" ::: "memory");
#endif
}

// The compiler's own waits before a barrier depend on the mode: in CU mode clang 19 waits for no
// store of a wave before s_barrier on gfx1030. So the build is for WGP mode (clang's default).
RDNAAR_FN void block_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Bit i: b on lane i. Under its own name only since clang 16.
__attribute__((device, convergent)) uint32_t ballot(bool b) __asm("llvm.amdgcn.ballot.i32");

RDNAAR_FN bool wave_any(bool b) { return ballot(b) != 0; }
RDNAAR_FN bool wave_elect(bool b) {
    return b && uint32_t(__builtin_ctz(ballot(b))) == thread_index() % kWave;
}

// Each wave writes its vote to a word of its own in LDS; two sets in turn, since a wave may cast
// its next vote while another still reads this one. It waits for loads and LDS alone: the pushes of
// `ll` need not have arrived (clang 19 waits for them all the same on gfx11 and gfx12).
RDNAAR_FN bool block_any(bool b, uint32_t turn, uint32_t threads) {
    static __attribute__((shared)) uint32_t votes[2][kWave];
    const uint32_t wave = thread_index() / kWave, lane = thread_index() % kWave;
    const bool mine = wave_any(b);
    if (lane == 0) votes[turn % 2][wave] = mine;
#if defined(__GFX12__)
    asm volatile("s_wait_loadcnt 0x0\n\ts_wait_dscnt 0x0" ::: "memory");
#else
    asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)" ::: "memory");
#endif
    __builtin_amdgcn_s_barrier();
    asm volatile("" ::: "memory");
    return wave_any(lane < threads / kWave && votes[turn % 2][lane] != 0);
}

// 100 MHz on all parts so far; the runtime tells (hipDeviceAttributeWallClockRate). clock64() is no
// clock on gfx11 (20 bits), and wall_clock64() of HIP 5.2 is the constant -1 on gfx11 and gfx12.
RDNAAR_FN uint64_t real_time() {
#if defined(__GFX10__)
    return __builtin_amdgcn_s_memrealtime();
#else
    return __builtin_amdgcn_s_sendmsg_rtnl(0x83);  // MSG_RTN_GET_REALTIME
#endif
}

// 64 clocks: leaves the memory to other waves between two polls.
RDNAAR_FN void idle_after_poll() { __builtin_amdgcn_s_sleep(1); }
RDNAAR_FN void idle_short() { __builtin_amdgcn_s_sleep(1); }
RDNAAR_FN void idle_long() { __builtin_amdgcn_s_sleep(32); }  // 2048 clocks, about a microsecond

}  // namespace rdnaar::gpu
