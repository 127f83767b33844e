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
    Pattern(uint64_t seed, uint32_t world, uint32_t rank, uint32_t dtype, uint32_t op) {
        const float factor = op == RDNAAR_AVG ? float(world) : 1.0f;
        for (uint32_t i = 0; i < kPeriod; i++) {
            int sum = 0, high = -16, low = 16;
            for (uint32_t r = 0; r < world; r++) {
                const int v = value_at(seed, r, i);
                sum += v;
                high = v > high ? v : high;
                low = v < low ? v : low;
            }
            const int result = op == RDNAAR_MAX ? high : op == RDNAAR_MIN ? low : sum;
            input_[i] = bits_of(factor * float(value_at(seed, rank, i)), dtype);
            expected_[i] = bits_of(float(result), dtype);
        }
    }
    uint32_t input(uint64_t index) const { return input_[index % kPeriod]; }
    uint32_t expected(uint64_t index) const { return expected_[index % kPeriod]; }

private:
    static constexpr uint32_t kPeriod = 8191;
    uint32_t input_[kPeriod], expected_[kPeriod];
};

// Around each limit where the algorithm, the number of pieces or the tail changes.
std::vector<uint64_t> sizes_to_try(const Settings &s, uint64_t max_bytes) {
    const uint64_t limits[] = {64,
                               4096,
                               s.ll_max_bytes,
                               s.oneshot_max_bytes,
                               s.staging.ll,
                               s.staging.oneshot,
                               s.staging.twoshot,
                               2 * s.staging.twoshot,
                               3 * s.staging.twoshot,
                               max_bytes};
    std::set<uint64_t> sizes{4, 8, 12};
    for (uint64_t limit : limits)
        for (int64_t shift : {-4, 0, 4})
            if (limit < (1ull << 40) && int64_t(limit) + shift > 0) sizes.insert(limit + shift);
    std::vector<uint64_t> kept;
    for (uint64_t size : sizes)
        if (size <= max_bytes && size <= s.config.max_bytes) kept.push_back(size);
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

class SelfTest {
public:
    SelfTest(Communicator &comm, const rdnaar_self_test_config &config, void *stream)
        : comm_(comm),
          stream_(stream),
          seed_(config.seed),
          repeats_(config.repeats == 0 ? 2 : config.repeats),
          max_bytes_(config.max_bytes == 0 ? comm.settings().config.max_bytes : config.max_bytes),
          in_(comm.device(), max_bytes_ + kSlack),
          out_(comm.device(), max_bytes_ + kSlack),
          host_in_(max_bytes_ + kSlack),
          host_out_(max_bytes_ + kSlack) {}

    rdnaar_self_test_report run() {
        const auto start = std::chrono::steady_clock::now();
        const uint32_t algos[] = {RDNAAR_ALGO_LL, RDNAAR_ALGO_ONESHOT, RDNAAR_ALGO_TWOSHOT};
        for (uint64_t nbytes : sizes_to_try(comm_.settings(), max_bytes_)) {
            // Sum in all dtypes at each size; the other ops where a call is cheap.
            for (uint32_t algo : algos)
                for (uint32_t dtype = 0; dtype < RDNAAR_DTYPE_COUNT; dtype++)
                    for (uint32_t op = 0; op < RDNAAR_OP_COUNT; op++)
                        if (op == RDNAAR_SUM || nbytes <= 4096) run_case(algo, dtype, op, nbytes);
        }
        report_.elapsed_us = uint64_t(std::chrono::duration_cast<std::chrono::microseconds>(
                                          std::chrono::steady_clock::now() - start)
                                          .count());
        return report_;
    }

private:
    static constexpr uint64_t kSlack = 64;  // room for a misaligned start

    void run_case(uint32_t algo, uint32_t dtype, uint32_t op, uint64_t nbytes) {
        const uint32_t element = element_bytes(dtype), world = comm_.settings().config.world;
        const uint64_t count = nbytes / element;
        if (comm_.plan(count, dtype, op, algo).status != RDNAAR_OK) return;  // ll beyond its limit
        const uint32_t rank = comm_.settings().config.rank;
        for (uint32_t repeat = 0; repeat < repeats_; repeat++) {
            const Pattern pattern(seed_ + uint64_t(report_.cases) * 977, world, rank, dtype, op);
            // A different misalignment in each call and on each rank.
            const uint64_t offset = (report_.cases + rank) % 8 * element;
            unsigned char *in = host_in_.data() + offset;
            for (uint64_t i = 0; i < count; i++)
                put_bits(in + i * element, element, pattern.input(i));
            unsigned char *device_in = static_cast<unsigned char *>(in_.get()) + offset;
            unsigned char *device_out = static_cast<unsigned char *>(out_.get()) + offset;
            memset(host_out_.data(), 0xA5, nbytes);
            backend::copy(device_in, in, nbytes, stream_);
            backend::copy(device_out, host_out_.data(), nbytes, stream_);
            comm_.all_reduce(device_in, device_out, count, dtype, op, algo, stream_);
            backend::copy(host_out_.data(), device_out, nbytes, stream_);
            backend::sync_stream(stream_);
            check(algo, dtype, op, repeat, count, pattern);
            report_.cases++;
        }
    }

    void check(uint32_t algo, uint32_t dtype, uint32_t op, uint32_t repeat, uint64_t count,
               const Pattern &pattern) {
        if (comm_.aborted())
            fail(RDNAAR_E_ABORTED, "the communicator was aborted during the self test");
        const uint32_t element = element_bytes(dtype);
        for (uint64_t i = 0; i < count; i++) {
            const uint32_t expected = pattern.expected(i);
            const uint32_t seen = get_bits(host_out_.data() + i * element, element);
            if (seen == expected) continue;
            if (report_.wrong++ > 0) continue;
            report_.algo = algo;
            report_.dtype = dtype;
            report_.op = op;
            report_.repeat = repeat;
            report_.count = count;
            report_.index = i;
            report_.expected_bits = expected;
            report_.seen_bits = seen;
        }
    }

    Communicator &comm_;
    void *const stream_;
    const uint64_t seed_;
    const uint32_t repeats_;
    const uint64_t max_bytes_;
    Buffer in_, out_;
    std::vector<unsigned char> host_in_, host_out_;
    rdnaar_self_test_report report_{};
};

}  // namespace

rdnaar_self_test_report run_self_test(Communicator &comm, const rdnaar_self_test_config &config,
                                      void *stream) {
    if (config.max_bytes > comm.settings().config.max_bytes)
        fail(RDNAAR_E_INVALID_ARGUMENT,
             "self test max_bytes is %" PRIu64 ", but the communicator's is %" PRIu64,
             config.max_bytes, comm.settings().config.max_bytes);
    return SelfTest(comm, config, stream).run();
}

}  // namespace rdnaar
