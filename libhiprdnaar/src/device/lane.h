// SPDX-License-Identifier: Apache-2.0
// The lane of a GPU: one thread of one block of one rank's kernel. What differs between platforms
// is in lane_amd.h and lane_nvidia.h.
#pragma once

#if defined(__CUDACC__)
#include "lane_nvidia.h"
#else
#include "lane_amd.h"
#endif

#include "../protocol/all_reduce.h"
#include "codec.h"
#include "grid.h"

namespace rdnaar {

template <uint32_t kBytes>
struct ElementOf;
template <>
struct ElementOf<2> {
    using type = uint16_t;
};
template <>
struct ElementOf<4> {
    using type = uint32_t;
};
template <uint32_t kBytes>
using Element = typename ElementOf<kBytes>::type;

template <int kMaxW>
class GpuLane {
public:
    using Vec = rdnaar::Vec<uint32_t, 4>;  // 16 bytes: the widest access of a thread
    using Index = uint32_t;                // slabs and pieces have less than 4 GiB (tuning.h)
    // As many vectors on their way per thread as registers allow: each takes one per rank.
    static constexpr int kBatch = kMaxW == 2 ? 4 : kMaxW == 4 ? 2 : 1;
    static constexpr bool kKeepsOwn = true;
    static constexpr bool kLoadsTogether = true;

    RDNAAR_FN GpuLane(const GridShape &shape, uint32_t poll_pause)
        : shape_(shape), poll_pause_(poll_pause) {}

    RDNAAR_FN uint32_t thread() const { return gpu::thread_index(); }
    RDNAAR_FN uint32_t threads() const { return shape_.threads; }
    RDNAAR_FN uint32_t block() const { return gpu::block_index(); }
    RDNAAR_FN uint32_t blocks() const { return shape_.blocks; }
    static RDNAAR_FN constexpr uint32_t wave() { return gpu::kWave; }

    // Waves are dealt round-robin to the blocks, so that a message of fewer vectors than threads
    // keeps every block, and with it every compute unit, busy.
    RDNAAR_FN Index first() const {
        return (thread() / wave() * blocks() + block()) * wave() + thread() % wave();
    }
    RDNAAR_FN Index stride() const { return blocks() * threads(); }

    static RDNAAR_FN bool has_word(const Vec &v, uint32_t x) {
        return v.w[0] == x || v.w[1] == x || v.w[2] == x || v.w[3] == x;
    }

    static RDNAAR_FN void barrier() { gpu::block_barrier(); }
    static RDNAAR_FN bool any(bool b) { return gpu::wave_any(b); }
    static RDNAAR_FN bool elect(bool b) { return gpu::wave_elect(b); }
    RDNAAR_FN bool barrier_any(bool b) { return gpu::block_any(b, votes_++, threads()); }

    static RDNAAR_FN Vec load_tensor(const unsigned char *p, Index i, bool aligned) {
        return bit_cast<Vec>(gpu::load_tensor_vector(p + i * Vec::kBytes, aligned));
    }
    static RDNAAR_FN void store_tensor(unsigned char *p, Index i, const Vec &v, bool aligned) {
        gpu::store_tensor_vector(p + i * Vec::kBytes, bit_cast<gpu::Words>(v), aligned);
    }
    // At most one thread of the grid comes to these two: loops, to keep the code short.
    template <uint32_t kElement>
    static RDNAAR_FN Vec load_partial(const unsigned char *p, Index i, uint32_t nbytes) {
        Vec v{};
        RDNAAR_KEEP_LOOP
        for (uint32_t b = 0; b < nbytes; b += kElement) {
            const uint32_t x =
                *reinterpret_cast<const Element<kElement> *>(p + i * Vec::kBytes + b);
            RDNAAR_UNROLL
            for (uint32_t w = 0; w < 4; w++) v.w[w] |= b / 4 == w ? x << b % 4 * 8 : 0;
        }
        return v;
    }
    template <uint32_t kElement>
    static RDNAAR_FN void store_partial(unsigned char *p, Index i, const Vec &v, uint32_t nbytes) {
        RDNAAR_KEEP_LOOP
        for (uint32_t b = 0; b < nbytes; b += kElement) {
            uint32_t x = 0;
            RDNAAR_UNROLL
            for (uint32_t w = 0; w < 4; w++) x |= b / 4 == w ? v.w[w] : 0;
            *reinterpret_cast<Element<kElement> *>(p + i * Vec::kBytes + b) =
                Element<kElement>(x >> b % 4 * 8);
        }
    }

    static RDNAAR_FN void put(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        gpu::store_vector_relaxed_system(slab, uint32_t(slot), i * Vec::kBytes,
                                         bit_cast<gpu::Words>(v));
    }
    static RDNAAR_FN Vec get(const unsigned char *slab, uint64_t slot, Index i) {
        return bit_cast<Vec>(
            gpu::load_vector_relaxed_system(slab, uint32_t(slot), i * Vec::kBytes));
    }
    static RDNAAR_FN void put_ll(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        put(slab, slot, i, v);
    }
    static RDNAAR_FN Vec get_ll(const unsigned char *slab, uint64_t slot, Index i) {
        return get(slab, slot, i);
    }
    static RDNAAR_FN void clear_ll(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        put(slab, slot, i, v);
    }
    static RDNAAR_FN void order_clears() { gpu::drain_stores(); }

    static RDNAAR_FN void drain() { gpu::drain_stores(); }
    static RDNAAR_FN void pushed() {}
    static RDNAAR_FN void before_read() {}  // get() bypasses the caches

    static RDNAAR_FN void store_flag_release(uint64_t *p, uint64_t x) {
        gpu::store_word_release_system(p, x);
    }
    static RDNAAR_FN uint64_t load_flag_acquire(const uint64_t *p) {
        return gpu::load_word_acquire_system(p);
    }
    template <class X>
    static RDNAAR_FN void store_word(X *p, X x) {
        gpu::store_word_relaxed_system(p, x);
    }
    template <class X>
    static RDNAAR_FN X load_word(const X *p) {
        return gpu::load_word_relaxed_system(p);
    }

    static RDNAAR_FN uint64_t load_counter(const uint64_t *p) {
        return gpu::load_counter_relaxed_device(p);
    }
    template <class X>
    static RDNAAR_FN void store_counter(X *p, X x) {
        gpu::store_counter_relaxed_device(p, x);
    }
    static RDNAAR_FN uint32_t fetch_add(uint32_t *p, uint32_t x) {
        return gpu::fetch_add_relaxed_device(p, x);
    }
    static RDNAAR_FN uint32_t exchange(uint32_t *p, uint32_t x) {
        return gpu::exchange_relaxed_device(p, x);
    }
    template <class X>
    static RDNAAR_FN void store_record(X *p, X x) {
        gpu::store_word_relaxed_system(p, x);
    }
    static RDNAAR_FN void store_record_release(uint32_t *p, uint32_t x) {
        gpu::store_word_release_system(p, x);
    }

    static RDNAAR_FN uint64_t now() { return gpu::real_time(); }

    // Where the own slab is in host memory, every poll crosses the link: the pauses grow to
    // poll_pause.
    RDNAAR_FN bool relax(uint32_t polls) const {
        gpu::idle_after_poll();
        for (uint32_t i = 0; i < min_of(polls, poll_pause_); i++) gpu::idle_long();
        return polls % 64 == 63;
    }
    static RDNAAR_FN uint64_t uniform(uint64_t x) { return gpu::uniform(x); }
    static RDNAAR_FN const Call &fresh(const Call &call) { return gpu::fresh(call); }
    static RDNAAR_FN void pace(uint32_t units) {
        for (uint32_t i = 0; i < units; i++) gpu::idle_short();
    }

private:
    const GridShape shape_;
    const uint32_t poll_pause_;
    uint32_t votes_ = 0;  // so far; the same on all threads of a block
};

}  // namespace rdnaar
