// SPDX-License-Identifier: Apache-2.0
// The lane of the explorer: every access goes to the machine, where it is a scheduling point. What
// the contract in protocol/lane.h leaves open, the machine decides against the caller.
//
// kCpu: the constants of the host's lane (no own contribution kept, one vector at a time); else
// those of the GPUs' lane.
#pragma once

#include <cstring>

#include "machine.h"

namespace explorer {

template <bool kCpu>
class ExplorerLane {
public:
    using Vec = rdnaar::Vec<uint32_t, kVectorBytes / 4>;
    using Index = uint32_t;
    static constexpr int kBatch = kCpu ? 1 << 20 : 2;
    static constexpr bool kKeepsOwn = !kCpu;
    static constexpr bool kLoadsTogether = !kCpu;

    ExplorerLane(Machine &machine, Thread &thread, uint32_t blocks, uint32_t threads)
        : m_(machine), t_(thread), blocks_(blocks), threads_(threads) {}

    uint32_t thread() const { return t_.index; }
    uint32_t threads() const { return threads_; }
    uint32_t block() const { return t_.block; }
    uint32_t blocks() const { return blocks_; }
    uint32_t wave() const { return m_.scenario().wave; }
    Index first() const {  // as GpuLane
        return (thread() / wave() * blocks() + block()) * wave() + thread() % wave();
    }
    Index stride() const { return blocks() * threads(); }

    static bool has_word(const Vec &v, uint32_t x) {
        for (const uint32_t w : v.w)
            if (w == x) return true;
        return false;
    }

    void barrier() { m_.barrier(t_); }
    bool any(bool b) { return m_.any(t_, b); }
    bool elect(bool b) { return m_.elect(t_, b); }
    bool barrier_any(bool b) { return m_.barrier_any(t_, b); }

    // The caller's tensors belong to one thread each, so they are plain memory here.
    static Vec load_tensor(const unsigned char *p, Index i, bool) {
        return load_bytes(p + i * Vec::kBytes, Vec::kBytes);
    }
    static void store_tensor(unsigned char *p, Index i, const Vec &v, bool) {
        memcpy(p + i * Vec::kBytes, &v, Vec::kBytes);
    }
    template <uint32_t kElement>
    static Vec load_partial(const unsigned char *p, Index i, uint32_t nbytes) {
        return load_bytes(p + i * Vec::kBytes, nbytes);
    }
    template <uint32_t kElement>
    static void store_partial(unsigned char *p, Index i, const Vec &v, uint32_t nbytes) {
        memcpy(p + i * Vec::kBytes, &v, nbytes);
    }

    void put(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        store_words(slab + slot + i * Vec::kBytes, v, StoreKind::kPut);
    }
    Vec get(const unsigned char *slab, uint64_t slot, Index i) {
        return load_words(slab + slot + i * Vec::kBytes, Op::kGet);
    }
    void put_ll(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        store_words(slab + slot + i * Vec::kBytes, v, StoreKind::kPutLl);
    }
    Vec get_ll(const unsigned char *slab, uint64_t slot, Index i) {
        return load_words(slab + slot + i * Vec::kBytes, Op::kGetLl);
    }
    void clear_ll(unsigned char *slab, uint64_t slot, Index i, const Vec &v) {
        store_words(slab + slot + i * Vec::kBytes, v, StoreKind::kClear);
    }
    void order_clears() { m_.drain(t_); }
    void drain() {
        if (!m_.scenario().cumulative) m_.drain(t_);
    }
    void pushed() {}
    void before_read() {}

    void store_flag_release(uint64_t *p, uint64_t x) { m_.store_release(t_, p, x); }
    uint64_t load_flag_acquire(const uint64_t *p) { return m_.load(t_, p, Op::kLoadAcquire); }
    template <class X>
    void store_word(X *p, X x) {
        m_.store(t_, p, uint64_t(x), StoreKind::kWord);
    }
    template <class X>
    X load_word(const X *p) {
        return X(m_.load(t_, p, Op::kLoad));
    }

    template <class X>
    X load_counter(const X *p) {
        m_.before_counter(t_, p);
        return X(m_.counter_loaded(t_, p, *p));
    }
    template <class X>
    void store_counter(X *p, X x) {
        m_.before_counter(t_, p);
        *p = x;
    }
    uint32_t fetch_add(uint32_t *p, uint32_t x) {
        m_.before_counter(t_, p);
        const uint32_t before = *p;
        *p += x;
        return before;
    }
    uint32_t exchange(uint32_t *p, uint32_t x) {
        m_.before_counter(t_, p);
        const uint32_t before = *p;
        *p = x;
        m_.claimed(t_, before);
        return before;
    }
    template <class X>
    void store_record(X *p, X x) {
        m_.before_counter(t_, p, Op::kRecord);
        *p = x;
    }
    void store_record_release(uint32_t *p, uint32_t x) { store_record(p, x); }

    static uint64_t uniform(uint64_t x) { return x; }
    static const rdnaar::Call &fresh(const rdnaar::Call &call) { return call; }
    uint64_t now() { return m_.now(t_); }
    bool relax(uint32_t) { return m_.relax(t_); }
    static void pace(uint32_t) {}

private:
    static Vec load_bytes(const unsigned char *p, uint32_t nbytes) {
        Vec v{};
        memcpy(&v, p, nbytes);
        return v;
    }
    // A vector is torn: its words go and come one by one, in either order.
    void store_words(unsigned char *p, const Vec &v, StoreKind kind) {
        for (int w = 0; w < Vec::kWords; w++) m_.store(t_, p + 4 * w, v.w[w], kind);
    }
    Vec load_words(const unsigned char *p, Op op) {
        const int turn = m_.flip(2) ? Vec::kWords - 1 : 0;
        Vec v;
        for (int i = 0; i < Vec::kWords; i++) {
            const int w = i ^ turn;
            v.w[w] = uint32_t(m_.load(t_, p + 4 * w, op));
        }
        return v;
    }

    Machine &m_;
    Thread &t_;
    const uint32_t blocks_, threads_;
};

}  // namespace explorer
