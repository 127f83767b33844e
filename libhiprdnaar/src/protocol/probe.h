// SPDX-License-Identifier: Apache-2.0
// Measuring a link with the same accesses that the algorithms use. Not part of the protocol: it works
// on the flag-guarded payload regions of a slab between calls, whose contents no later call relies on,
// and on lines of its own.
//
// Lines: word `source` of a slab's probe lines is written by that rank and read by the owner. A value
// is (session << 32 | step): sessions grow, so a value left by an earlier probe is always smaller.
#pragma once

#include "call.h"
#include "lane.h"
#include "numeric.h"

namespace rdnaar {

// The public values (rdnaar.h); the runtime asserts that they agree.
constexpr uint32_t kProbeStore = 0, kProbeLoad = 1, kProbeLatency = 2, kProbeOrder = 3,
                   kProbeVisible = 4;

// Written by the kernel, read by the host after it has ended.
struct alignas(64) ProbeLine {
    uint64_t ticks;  // kProbeLatency: for all round trips; kProbeVisible: until the word was seen
    uint64_t wrong;  // kProbeOrder: vectors older than their flag, as one thread counted them
    uint32_t timed_out;  // 1: the other side did not come in time
    uint32_t padding[11];
};
static_assert(sizeof(ProbeLine) == 64, "one line");

struct ProbeCall {
    unsigned char *own;     // slab of this rank
    unsigned char *target;  // slab that is stored to or loaded from: the other rank's, or the own
    ProbeLine *line;
    uint64_t region;  // offset of the payload
    uint64_t nbytes;  // of it, a multiple of 64
    uint64_t session;
    uint64_t timeout_ticks;
    uint32_t kind, width, iterations;
    uint32_t rank, other;
    uint32_t active;  // 1: this is the side that stores, loads or begins
};

RDNAAR_FN uint64_t *probe_word(unsigned char *slab, uint32_t source) {
    return reinterpret_cast<uint64_t *>(slab + kProbeOffset + source * kLine);
}

template <class Lane>
struct Probe {
    using V = typename Lane::Vec;
    Lane &lane;
    const ProbeCall &call;

    RDNAAR_FN uint64_t value(uint32_t step) const { return call.session << 32 | step; }

    template <class Word>
    RDNAAR_FN void store_words(uint32_t turn) {
        Word *to = reinterpret_cast<Word *>(call.target + call.region);
        for (uint64_t i = lane.first(); i < call.nbytes / sizeof(Word); i += lane.stride())
            lane.store_word(to + i, Word(turn + i));
    }

    RDNAAR_FN void store() {
        for (uint32_t turn = 0; turn < call.iterations; turn++) {
            if (call.width == 4) {
                store_words<uint32_t>(turn);
            } else if (call.width == 8) {
                store_words<uint64_t>(turn);
            } else {
                for (typename Lane::Index i = lane.first(); i < call.nbytes / V::kBytes;
                     i += lane.stride())
                    lane.put(call.target, call.region, i, filled(turn));
            }
        }
        lane.drain();
    }

    // Sums what it loads, and stores the sum where it is one in 2^32: so the loads have to be made.
    template <class Word>
    RDNAAR_FN uint32_t load_words() {
        const Word *from = reinterpret_cast<const Word *>(call.target + call.region);
        uint32_t sum = 0;
        for (uint64_t i = lane.first(); i < call.nbytes / sizeof(Word); i += lane.stride())
            sum += uint32_t(lane.load_word(from + i));
        return sum;
    }

    RDNAAR_FN void load() {
        uint32_t sum = 0;
        for (uint32_t turn = 0; turn < call.iterations; turn++) {
            if (call.width == 4) {
                sum += load_words<uint32_t>();
            } else if (call.width == 8) {
                sum += load_words<uint64_t>();
            } else {
                for (typename Lane::Index i = lane.first(); i < call.nbytes / V::kBytes;
                     i += lane.stride())
                    sum += Lane::has_word(lane.get(call.target, call.region, i), 0x9E3779B9u);
            }
        }
        if (sum == 0x9E3779B9u) lane.store_record(&call.line->ticks, uint64_t(sum));
    }

    static RDNAAR_FN V filled(uint32_t x) {
        V v;
        RDNAAR_UNROLL
        for (int w = 0; w < V::kWords; w++) v.w[w] = splat<typename V::Word>(x);
        return v;
    }

    // Waits for the other side's word to reach `at_least`. Every thread of the block polls.
    RDNAAR_FN bool wait_for(uint64_t at_least) {
        const uint64_t start = lane.now();
        const uint64_t *word = probe_word(call.own, call.other);
        for (uint32_t polls = 0;; polls++) {
            if (!lane.any(lane.load_flag_acquire(word) < at_least)) return true;
            if (lane.relax(polls) && lane.any(lane.now() - start > call.timeout_ticks)) break;
        }
        lane.store_record(&call.line->timed_out, 1u);
        return false;
    }

    RDNAAR_FN void tell(uint32_t step) {
        if (lane.thread() == 0)
            lane.store_flag_release(probe_word(call.target, call.rank), value(step));
    }

    // Round trips of one word between two blocks of one wave.
    RDNAAR_FN void latency() {
        uint64_t start = 0;
        for (uint32_t step = 1; step <= call.iterations; step++) {
            if (step == 2) start = lane.now();  // the first waits for the other kernel to start
            if (call.active) tell(step);
            if (!wait_for(value(step))) return;
            if (!call.active) tell(step);
        }
        if (lane.thread() == 0) lane.store_record(&call.line->ticks, lane.now() - start);
    }

    // Payload, then flag; the reader looks at all of the payload as soon as it has seen the flag.
    RDNAAR_FN void order() {
        uint64_t wrong = 0;
        const auto vectors = typename Lane::Index(call.nbytes / V::kBytes);
        for (uint32_t step = 1; step <= call.iterations; step++) {
            if (call.active) {
                for (typename Lane::Index i = lane.first(); i < vectors; i += lane.stride())
                    lane.put(call.target, call.region, i, filled(generation(step)));
                lane.drain();
                lane.barrier();
                tell(step);
                if (!wait_for(value(step))) return;
                lane.barrier();
            } else {
                if (!wait_for(value(step))) return;
                lane.barrier();
                lane.before_read();
                for (typename Lane::Index i = lane.first(); i < vectors; i += lane.stride())
                    wrong += !all_words_are(lane.get(call.own, call.region, i), generation(step));
                lane.barrier();
                tell(step);
            }
        }
        if (wrong != 0) lane.store_record(&call.line->wrong, wrong);  // of one thread that saw some
    }

    // No two steps of recent probes fill the payload alike.
    RDNAAR_FN uint32_t generation(uint32_t step) const {
        return uint32_t(call.session) * 0x10001u + step;
    }

    static RDNAAR_FN bool all_words_are(const V &v, uint32_t x) {
        struct Words {
            uint32_t w[V::kBytes / 4];
        };
        const Words words = bit_cast<Words>(v);
        bool same = true;
        RDNAAR_UNROLL
        for (uint32_t i = 0; i < V::kBytes / 4; i++) same = same && words.w[i] == x;
        return same;
    }

    // One store to memory that the other side's kernel is reading already: is it seen before the kernel
    // ends, and when?
    RDNAAR_FN void visible() {
        if (call.active) {
            if (!wait_for(value(1))) return;
            if (lane.thread() == 0)
                lane.store_word(reinterpret_cast<uint64_t *>(call.target + call.region), value(2));
            return;
        }
        const uint64_t *word = reinterpret_cast<const uint64_t *>(call.own + call.region);
        if (lane.load_word(word) == value(2)) return;  // cannot be: sessions grow. And now it is in
                                                       // every cache that may hold it
        lane.barrier();
        tell(1);
        const uint64_t start = lane.now();
        for (uint32_t polls = 0;; polls++) {
            if (!lane.any(lane.load_word(word) != value(2))) break;
            if (lane.relax(polls) && lane.any(lane.now() - start > call.timeout_ticks)) {
                lane.store_record(&call.line->timed_out, 1u);
                return;
            }
        }
        if (lane.thread() == 0) lane.store_record(&call.line->ticks, lane.now() - start);
    }

    RDNAAR_FN void run() {
        if (call.kind == kProbeStore) store();
        if (call.kind == kProbeLoad) load();
        if (call.kind == kProbeLatency) latency();
        if (call.kind == kProbeOrder) order();
        if (call.kind == kProbeVisible) visible();
    }
};

}  // namespace rdnaar
