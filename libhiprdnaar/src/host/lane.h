// SPDX-License-Identifier: Apache-2.0
// The lane of a CPU: one thread is the whole grid of its rank.
//
// Memory order. Payload announced by a flag is plain memory between a release store and an acquire
// load. Payload that is its own flag (`ll`) is read while it is written; each 32-bit word must arrive
// whole, which aligned vector accesses give on every CPU this is built for (x86-64 and AArch64 never
// split an aligned 8-byte word). The fences make a sighting of such a word carry what the writer did before, in the same
// way as a flag; on x86 they cost nothing but hold the compiler back.
#pragma once

#include <sched.h>
#include <time.h>

#include <cstring>

#include "../protocol/all_reduce.h"
#include "simd.h"

#if defined(__SANITIZE_THREAD__)
#define RDNAAR_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RDNAAR_TSAN 1
#endif
#endif

namespace rdnaar {

inline void full_fence() {
#if RDNAAR_TSAN  // knows no fences; this one is for speed only
#elif defined(__x86_64__)
    __builtin_ia32_mfence();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

inline void stop_speculation() {
#if defined(__x86_64__)
    __builtin_ia32_lfence();
#endif
}

inline void cpu_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

inline namespace RDNAAR_SIMD_NAMESPACE {

struct HostLane {
    using Vec = HostVec;
    using Index = uint64_t;
    static constexpr int kBatch = 1 << 20;  // the whole piece: the peer works on it meanwhile
    static constexpr bool kKeepsOwn = false;
    static constexpr bool kLoadsTogether = false;

    // Polls before the processor is offered to others: many when each rank has a core.
    uint32_t spin_polls;

    static constexpr uint32_t thread() { return 0; }
    static constexpr uint32_t threads() { return 1; }
    static constexpr uint32_t block() { return 0; }
    static constexpr uint32_t blocks() { return 1; }
    static constexpr uint32_t wave() { return 1; }
    static constexpr Index first() { return 0; }
    static constexpr Index stride() { return 1; }

    static RDNAAR_FN bool has_word(const Vec &v, uint32_t x) {
        SimdWord found = splat<SimdWord>(0);
        for (int i = 0; i < Vec::kWords; i++) found |= bit_cast<SimdWord>(v.w[i] == x);
        return any_set(found);
    }

    static void barrier() {}
    static bool any(bool b) { return b; }
    static bool elect(bool b) { return b; }
    static bool barrier_any(bool b) { return b; }

    static RDNAAR_FN Vec load_tensor(const unsigned char *p, Index i, bool) {
        Vec v;
        memcpy(&v, p + i * sizeof v, sizeof v);
        return v;
    }
    static RDNAAR_FN void store_tensor(unsigned char *p, Index i, const Vec &v, bool) {
        memcpy(p + i * sizeof v, &v, sizeof v);
    }
    template <uint32_t kElement>
    static RDNAAR_FN Vec load_partial(const unsigned char *p, Index i, uint32_t nbytes) {
        Vec v{};
        memcpy(&v, p + i * sizeof v, nbytes);
        return v;
    }
    template <uint32_t kElement>
    static RDNAAR_FN void store_partial(unsigned char *p, Index i, const Vec &v, uint32_t nbytes) {
        memcpy(p + i * sizeof v, &v, nbytes);
    }

    static RDNAAR_FN Vec *vectors(unsigned char *slab, uint64_t slot) {
        return reinterpret_cast<Vec *>(slab + slot);
    }
    static RDNAAR_FN void put(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        vectors(slab, slot)[i] = v;
    }
    static RDNAAR_FN Vec get(unsigned char *slab, uint64_t slot, Index i) {
        return vectors(slab, slot)[i];
    }

#if RDNAAR_TSAN
    // The thread sanitizer knows no fences, but release stores and acquire loads.
    static void put_ll(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        uint32_t *to = reinterpret_cast<uint32_t *>(vectors(slab, slot) + i);
        const uint32_t *from = reinterpret_cast<const uint32_t *>(&v);
        for (uint32_t w = 0; w < Vec::kBytes / 4; w++)
            __atomic_store_n(to + w, from[w], __ATOMIC_RELEASE);
    }
    static Vec get_ll(unsigned char *slab, uint64_t slot, Index i) {
        Vec v;
        const uint32_t *from = reinterpret_cast<const uint32_t *>(vectors(slab, slot) + i);
        uint32_t *to = reinterpret_cast<uint32_t *>(&v);
        for (uint32_t w = 0; w < Vec::kBytes / 4; w++)
            to[w] = __atomic_load_n(from + w, __ATOMIC_ACQUIRE);
        return v;
    }
#else
    static RDNAAR_FN void put_ll(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        vectors(slab, slot)[i] = v;
    }
    static RDNAAR_FN Vec get_ll(unsigned char *slab, uint64_t slot, Index i) {
        const Vec v = vectors(slab, slot)[i];
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return v;
    }
#endif
    static RDNAAR_FN void clear_ll(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        put_ll(slab, slot, i, v);
    }
    static void order_clears() {}  // put_ll of this thread is a release

    // For correctness the release order of the flag is enough. Letting the pushes arrive first makes
    // the whole several times faster: a core that goes on to poll also reads ahead, speculatively,
    // and takes lines away from the peer that is writing them (64 KiB, W = 2, on a Xeon of family
    // 6 model 207: 38 us without, 12 us with both fences).
    static void drain() { full_fence(); }
    static void pushed() { full_fence(); }
    static void before_read() { stop_speculation(); }
    static void store_flag_release(uint64_t *p, uint64_t x) {
        __atomic_store_n(p, x, __ATOMIC_RELEASE);
    }
    static uint64_t load_flag_acquire(const uint64_t *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    template <class X>
    static void store_word(X *p, X x) {
        __atomic_store_n(p, x, __ATOMIC_RELAXED);
    }
    template <class X>
    static X load_word(const X *p) {
        return __atomic_load_n(p, __ATOMIC_RELAXED);
    }

    // The counters are used by one call at a time; the communicator's lock orders the calls.
    template <class X>
    static X load_counter(const X *p) {
        return *p;
    }
    template <class X>
    static void store_counter(X *p, X x) {
        *p = x;
    }
    static uint32_t fetch_add(uint32_t *p, uint32_t x) {
        return __atomic_fetch_add(p, x, __ATOMIC_RELAXED);
    }
    static uint32_t exchange(uint32_t *p, uint32_t x) {
        return __atomic_exchange_n(p, x, __ATOMIC_ACQ_REL);
    }
    template <class X>
    static void store_record(X *p, X x) {
        __atomic_store_n(p, x, __ATOMIC_RELAXED);
    }
    static void store_record_release(uint32_t *p, uint32_t x) {
        __atomic_store_n(p, x, __ATOMIC_RELEASE);
    }

    static uint64_t now() {  // nanoseconds
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
    }

    // Spins, then lends the processor to others, then sleeps: a peer that is late by milliseconds is
    // likely to be late by many, and its computing may need this core.
    bool relax(uint32_t polls) const {
        constexpr uint32_t kYields = 2000;
        if (polls < spin_polls) {
            cpu_pause();
            return polls % 64 == 63;
        }
        if (polls - spin_polls < kYields) {
            sched_yield();
            return true;
        }
        const timespec nap = {0, polls - spin_polls < 2 * kYields ? 50000 : 1000000};
        nanosleep(&nap, nullptr);
        return true;
    }
    static constexpr uint64_t uniform(uint64_t x) { return x; }
    static RDNAAR_FN const Call &fresh(const Call &call) { return call; }
    static void pace(uint32_t units) {
        for (uint32_t i = 0; i < units; i++) cpu_pause();
    }
};

}  // namespace RDNAAR_SIMD_NAMESPACE
}  // namespace rdnaar
