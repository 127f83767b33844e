// SPDX-License-Identifier: Apache-2.0
// The self test knows its expectation by integer arithmetic, apart from the code under test: inputs
// are small integers, which every dtype holds and adds exactly, and each element, rank and call has
// its own. (Rounding, NaN and signed zeros are the business of the library's tests.)
#include "self_test.h"

#include <chrono>
#include <cinttypes>
#include <cstring>
#include <set>
#include <vector>

#include "probe.h"

namespace rdnaar {

namespace {

// A value in -15 .. 15 that rank, element and call decide: 5 bits of a mixed counter.
int value_at(uint64_t seed, uint32_t rank, uint64_t index) {
    uint64_t x = seed * 0x9E3779B97F4A7C15ull + index * 0xBF58476D1CE4E5B9ull + rank + 1;
    x ^= x >> 31;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 29;
    return int(x % 31) - 15;
}

// Bits of an integer |v| < 256 in a dtype: all three hold it exactly.
uint32_t bits_of(float v, uint32_t dtype) {
    const uint32_t f = bit_cast<uint32_t>(v);
    if (dtype == RDNAAR_FP32) return f;
    if (dtype == RDNAAR_BF16) return f >> 16;
    if (v == 0.0f) return f >> 16;
    const uint32_t exponent = (f >> 23 & 0xFF) - 127 + 15;
    return (f >> 16 & 0x8000u) | exponent << 10 | (f >> 13 & 0x3FFu);
}

void put_bits(unsigned char *p, uint32_t element, uint32_t bits) {
    memcpy(p, &bits, element);  // little-endian
}

uint32_t get_bits(const unsigned char *p, uint32_t element) {
    uint32_t bits = 0;
    memcpy(&bits, p, element);
    return bits;
}

// What ranks send and what must come back, periodic in the index: the period is a prime, so data from a
// wrong slot, piece or vector does not fit. For avg the inputs are multiples of the world, so that the
// result is an integer too.
class Pattern {
public:
    Pattern(uint64_t seed, uint32_t world, uint32_t dtype, uint32_t op)
        : seed_(seed), dtype_(dtype), factor_(op == RDNAAR_AVG ? float(world) : 1.0f) {
        for (uint32_t i = 0; i < kPeriod; i++) {
            int sum = 0, high = -16, low = 16;
            for (uint32_t r = 0; r < world; r++) {
                const int v = value_at(seed, r, i);
                sum += v;
                high = v > high ? v : high;
                low = v < low ? v : low;
            }
            const int result = op == RDNAAR_MAX ? high : op == RDNAAR_MIN ? low : sum;
            expected_[i] = bits_of(float(result), dtype);
        }
    }
    uint32_t expected(uint64_t index) const { return expected_[index % kPeriod]; }

    // Elements [begin, end) of what `rank` sends.
    std::vector<unsigned char> input(uint32_t rank, uint64_t begin, uint64_t end) const {
        uint32_t bits[kPeriod];
        for (uint32_t i = 0; i < kPeriod; i++)
            bits[i] = bits_of(factor_ * float(value_at(seed_, rank, i)), dtype_);
        const uint32_t element = element_bytes(dtype_);
        std::vector<unsigned char> bytes((end - begin) * element + sizeof(uint32_t));
        for (uint64_t i = begin; i < end; i++)
            put_bits(bytes.data() + (i - begin) * element, element, bits[i % kPeriod]);
        bytes.resize((end - begin) * element);
        return bytes;
    }

private:
    static constexpr uint32_t kPeriod = 8191;
    const uint64_t seed_;
    const uint32_t dtype_;
    const float factor_;
    uint32_t expected_[kPeriod];
};

// Around each limit where the algorithm, the number of pieces or the tail changes, and through the
// band in which two-shots of others lost flags.
std::vector<uint64_t> sizes_to_try(const Settings &s, uint64_t max_bytes) {
    const uint64_t kib = 1024;
    const uint64_t limits[] = {64,
                               4096,
                               64 * kib,
                               128 * kib,
                               256 * kib,
                               512 * kib,
                               1024 * kib,
                               s.ll_max_bytes,
                               s.oneshot_max_bytes,
                               s.staging.ll,
                               s.staging.oneshot,
                               s.staging.twoshot,
                               2 * s.staging.twoshot,
                               3 * s.staging.twoshot,
                               max_bytes};
    std::set<uint64_t> sizes{2, 4, 6, 12};
    for (uint64_t limit : limits)
        for (int64_t shift : {-2, 0, 6})  // odd counts of two bytes, and of four
            if (limit < (1ull << 40) && int64_t(limit) + shift > 0) sizes.insert(limit + shift);
    std::vector<uint64_t> kept;
    for (uint64_t size : sizes)
        if (size <= max_bytes) kept.push_back(size);
    return kept;
}

class Buffer {
public:
    Buffer(uint32_t device, uint64_t nbytes) : ptr_(backend::allocate(device, nbytes)) {}
    ~Buffer() { backend::release(ptr_); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    void *get() const { return ptr_; }

private:
    void *ptr_;
};

constexpr uint32_t kAlgos[] = {RDNAAR_ALGO_LL, RDNAAR_ALGO_ONESHOT, RDNAAR_ALGO_TWOSHOT};
constexpr uint64_t kQuickBytes = 1 << 20;

class SelfTest {
public:
    SelfTest(Communicator &comm, const rdnaar_self_test_config &config, void *stream)
        : comm_(comm),
          stream_(stream),
          rank_(comm.settings().config.rank),
          world_(comm.settings().config.world),
          config_(config),
          max_bytes_(largest(config, comm.settings().config.max_bytes)),
          in_(comm.device(), max_bytes_ + kSlack),
          out_(comm.device(), max_bytes_ + kSlack),
          host_out_(max_bytes_ + kSlack) {
        report_.source = -1;
    }

    rdnaar_self_test_report run() {
        const auto start = std::chrono::steady_clock::now();
        reductions();
        if (world_ > 1 && config_.floor_mb_s != UINT32_MAX) rates();
        report_.elapsed_us = uint64_t(std::chrono::duration_cast<std::chrono::microseconds>(
                                          std::chrono::steady_clock::now() - start)
                                          .count());
        return report_;
    }

    uint32_t floor_mb_s() const {
        return config_.floor_mb_s != 0 ? config_.floor_mb_s : backend::rate_floor_mb_s();
    }

private:
    static constexpr uint64_t kSlack = 64;  // room for a misaligned start

    bool quick() const { return config_.level == RDNAAR_SELF_TEST_QUICK; }

    static uint64_t largest(const rdnaar_self_test_config &config, uint64_t limit) {
        const uint64_t asked = config.max_bytes == 0 ? limit : config.max_bytes;
        return config.level == RDNAAR_SELF_TEST_QUICK ? min_of(asked, kQuickBytes) : asked;
    }

    // Sum in all dtypes at each size; the other ops where a call is cheap.
    void reductions() {
        for (uint64_t nbytes : sizes_to_try(comm_.settings(), max_bytes_))
            for (uint32_t algo : kAlgos)
                for (uint32_t dtype = 0; dtype < (quick() ? 1 : RDNAAR_DTYPE_COUNT); dtype++)
                    for (uint32_t op = 0; op < (quick() ? 1 : RDNAAR_OP_COUNT); op++)
                        if (op == RDNAAR_SUM || nbytes <= 4096) run_case(algo, dtype, op, nbytes);
    }

    void run_case(uint32_t algo, uint32_t dtype, uint32_t op, uint64_t nbytes) {
        Case c{algo, dtype, op, 0, nbytes / element_bytes(dtype)};
        if (c.count == 0 || comm_.plan(c.count, dtype, op, algo).status != RDNAAR_OK)
            return;  // ll beyond its limit
        const uint32_t repeats = config_.repeats == 0 ? 2 : config_.repeats;
        for (; c.repeat < repeats; c.repeat++) {
            const Pattern pattern(config_.seed + uint64_t(report_.cases) * 977, world_, dtype, op);
            reduce(c, pattern);
            check(c, pattern);
            report_.cases++;
        }
    }

    struct Case {
        uint32_t algo, dtype, op, repeat;
        uint64_t count;
    };

    // A different misalignment in each call and on each rank.
    void reduce(const Case &c, const Pattern &pattern) {
        const uint32_t element = element_bytes(c.dtype);
        const uint64_t nbytes = c.count * element, offset = (report_.cases + rank_) % 8 * element;
        const std::vector<unsigned char> in = pattern.input(rank_, 0, c.count);
        unsigned char *device_in = static_cast<unsigned char *>(in_.get()) + offset;
        unsigned char *device_out = static_cast<unsigned char *>(out_.get()) + offset;
        memset(host_out_.data(), 0xA5, nbytes);
        backend::copy(device_in, in.data(), nbytes, stream_);
        backend::copy(device_out, host_out_.data(), nbytes, stream_);
        comm_.all_reduce(device_in, device_out, c.count, c.dtype, c.op, c.algo, stream_);
        backend::copy(host_out_.data(), device_out, nbytes, stream_);
        backend::sync_stream(stream_);
    }

    void check(const Case &c, const Pattern &pattern) {
        if (comm_.aborted())
            fail(RDNAAR_E_ABORTED, "the communicator was aborted during the self test");
        const uint32_t element = element_bytes(c.dtype);
        const uint64_t wrong_before = report_.wrong;
        for (uint64_t i = 0; i < c.count; i++) {
            const uint32_t expected = pattern.expected(i);
            const uint32_t seen = get_bits(host_out_.data() + i * element, element);
            if (seen == expected || report_.wrong++ > 0) continue;
            report_.algo = c.algo;
            report_.dtype = c.dtype;
            report_.op = c.op;
            report_.repeat = c.repeat;
            report_.count = c.count;
            report_.index = i;
            report_.expected_bits = expected;
            report_.seen_bits = seen;
        }
        if (report_.wrong != wrong_before && report_.source < 0)
            report_.source = source_of_damage(c, pattern);
    }

    // What ranks have pushed stays in the own slab until two rounds later, so the rank whose data came
    // wrong can be told: neither half of its slot holds what it sent. -1: none, or it cannot be told:
    // ll clears what it has read, and a message in several rounds has overwritten its beginning.
    int32_t source_of_damage(const Case &c, const Pattern &pattern) {
        if (c.algo == RDNAAR_ALGO_LL || comm_.plan(c.count, c.dtype, c.op, c.algo).pieces != 1)
            return -1;
        const Layout &l = comm_.settings().layout;
        const bool whole = c.algo == RDNAAR_ALGO_ONESHOT;
        // Of twoshot: the slice that this rank owns, as slice_of() cuts it.
        const uint64_t vector = backend::vector_bytes() / element_bytes(c.dtype);
        const uint64_t part = ceil_div(ceil_div(c.count, vector), world_) * vector;
        const uint64_t begin = whole ? 0 : min_of(rank_ * part, c.count);
        const uint64_t end = whole ? c.count : min_of(begin + part, c.count);
        for (uint32_t source = 0; source < world_; source++) {
            if (source == rank_) continue;
            const std::vector<unsigned char> sent = pattern.input(source, begin, end);
            const auto holds = [&](uint64_t round) {
                return slab_holds(
                    slot_offset(whole ? l.oneshot : l.scatter,
                                whole ? l.oneshot_slot : l.slice_slot, world_, round, source),
                    sent);
            };
            if (!holds(0) && !holds(1)) return int32_t(source);
        }
        return -1;
    }

    // The output has been judged: its room is free.
    bool slab_holds(uint64_t offset, const std::vector<unsigned char> &bytes) {
        if (bytes.empty()) return true;
        backend::copy(host_out_.data(), comm_.slab(rank_) + offset, bytes.size(), stream_);
        backend::sync_stream(stream_);
        return memcmp(host_out_.data(), bytes.data(), bytes.size()) == 0;
    }

    // Pairs take turns; a call between them keeps the ranks together. So does the last one: a rate is
    // measured where the next call's data will be. The best of some measurements counts: a machine may
    // be busy with other things for one of them.
    void rates() {
        for (uint32_t source = 0; source < world_; source++)
            for (uint32_t target = 0; target < world_; target++) {
                if (source == target) continue;
                meet();
                if (source == rank_) note_rate(target, store_mb_s(target));
            }
        meet();
    }

    // A call whose result nobody looks at.
    void meet() {
        reduce(Case{RDNAAR_ALGO_AUTO, RDNAAR_FP16, RDNAAR_SUM, 0, max_bytes_ / 2 < 1 ? 0u : 1u},
               Pattern(0, world_, RDNAAR_FP16, RDNAAR_SUM));
    }

    uint32_t store_mb_s(uint32_t target) {
        constexpr int kTries = 3;
        rdnaar_probe_config probe{};
        probe.kind = RDNAAR_PROBE_STORE;
        probe.source = rank_;
        probe.target = target;
        probe.width = 16;
        probe.iterations = 1;
        double best = 0;
        for (int i = 0; i < kTries; i++) {
            const rdnaar_probe_result r = run_probe(comm_, probe, stream_);
            const double rate = r.microseconds > 0 ? double(r.nbytes) / r.microseconds : 0;
            best = rate > best ? rate : best;
        }
        return best < 4e9 ? uint32_t(best) : UINT32_MAX;
    }

    void note_rate(uint32_t target, uint32_t mb_s) {
        if (mb_s < floor_mb_s()) report_.slow++;
        if (report_.slowest_mb_s != 0 && report_.slowest_mb_s <= mb_s) return;
        report_.slowest_mb_s = mb_s != 0 ? mb_s : 1;
        report_.slowest_target = target;
    }

    Communicator &comm_;
    void *const stream_;
    const uint32_t rank_, world_;
    const rdnaar_self_test_config config_;
    const uint64_t max_bytes_;
    Buffer in_, out_;
    std::vector<unsigned char> host_out_;
    rdnaar_self_test_report report_{};
};

void write_verdict(rdnaar_self_test_report &r, uint32_t rank, uint32_t floor_mb_s) {
    static constexpr const char *kAlgoNames[] = {"auto", "ll", "oneshot", "twoshot"};
    static constexpr const char *kDtypeNames[] = {"fp16", "bf16", "fp32"};
    static constexpr const char *kOpNames[] = {"sum", "max", "min", "avg"};
    if (r.wrong != 0) {
        const int n = snprintf(r.text, sizeof r.text,
                               "%" PRIu64 " wrong elements; first: %s %s %s of %" PRIu64
                               " elements, element %" PRIu64 ": expected 0x%x, got 0x%x",
                               r.wrong, kAlgoNames[r.algo], kDtypeNames[r.dtype], kOpNames[r.op],
                               r.count, r.index, r.expected_bits, r.seen_bits);
        if (r.source >= 0)
            snprintf(r.text + n, sizeof r.text - size_t(n),
                     "; data from rank %d to rank %u comes wrong", r.source, rank);
    } else if (r.slow != 0) {
        snprintf(r.text, sizeof r.text,
                 "stores from rank %u to rank %u pass at %u MB/s, but the floor is %u MB/s", rank,
                 r.slowest_target, r.slowest_mb_s, floor_mb_s);
    } else {
        snprintf(r.text, sizeof r.text, "%u calls, all right", r.cases);
    }
}

}  // namespace

rdnaar_self_test_report run_self_test(Communicator &comm, const rdnaar_self_test_config &config,
                                      void *stream) {
    const rdnaar_config &c = comm.settings().config;
    check_range("level", config.level, 0, RDNAAR_SELF_TEST_LEVEL_COUNT - 1);
    if (config.max_bytes > c.max_bytes)
        fail(RDNAAR_E_INVALID_ARGUMENT,
             "self test max_bytes is %" PRIu64 ", but the communicator's is %" PRIu64,
             config.max_bytes, c.max_bytes);
    comm.check_ready();
    SelfTest test(comm, config, stream);
    rdnaar_self_test_report report = test.run();
    write_verdict(report, c.rank, test.floor_mb_s());
    return report;
}

}  // namespace rdnaar
