// SPDX-License-Identifier: Apache-2.0
// Every struct that a caller passes in, as raw bytes with any struct_size.
//
// Input: one byte that chooses the function, then its plain arguments, then the struct. The struct
// lies in memory of exactly the size that it claims (no more than kRoom: nothing the library knows is
// larger), so the address sanitizer sees every byte read or written beyond.
#include <memory>

#include "oracle.h"

namespace {

constexpr uint32_t kRoom = 2048;

// A struct as a caller would hold it. Its size may be less than that of S.
template <class S>
class Held {
public:
    explicit Held(fuzz::Input &input) {
        const uint32_t claimed = input.take<uint32_t>();
        size_ = claimed < 8 ? 8 : claimed < kRoom ? claimed : kRoom;
        bytes_.reset(new unsigned char[size_]);
        memcpy(bytes_.get(), &claimed, sizeof claimed);
        input.take(bytes_.get() + sizeof claimed, size_ - sizeof claimed);
    }
    S *get() { return reinterpret_cast<S *>(bytes_.get()); }

    // Makes a field smaller that would cost time or memory, and only where it would be accepted.
    template <class T>
    void cap(T S::*field, T largest, T accepted) {
        static S probe;
        const size_t at = size_t(reinterpret_cast<unsigned char *>(&(probe.*field)) -
                                 reinterpret_cast<unsigned char *>(&probe));
        if (at + sizeof(T) > size_) return;
        T value;
        memcpy(&value, bytes_.get() + at, sizeof value);
        if (value > accepted || value <= largest) return;
        value %= largest + 1;
        memcpy(bytes_.get() + at, &value, sizeof value);
    }

private:
    std::unique_ptr<unsigned char[]> bytes_;
    size_t size_;
};

// Two registered ranks of this process; the harness speaks for rank 0 alone.
struct Pair {
    rdnaar_comm *comms[2];
    Pair() {
        unsigned char blobs[2 * RDNAAR_BLOB_BYTES];
        for (uint32_t r = 0; r < 2; r++) {
            rdnaar_config c;
            rdnaar_config_init(&c, sizeof c);
            c.rank = r;
            c.world = 2;
            c.max_bytes = 4096;
            FUZZ_REQUIRE(rdnaar_init(&c, &comms[r]) == RDNAAR_OK, "%s", rdnaar_last_error(nullptr));
            rdnaar_export_buffers(comms[r], blobs + r * RDNAAR_BLOB_BYTES, RDNAAR_BLOB_BYTES);
        }
        for (rdnaar_comm *comm : comms)
            FUZZ_REQUIRE(rdnaar_register_buffers(comm, blobs, 2) == RDNAAR_OK, "%s",
                         rdnaar_last_error(comm));
    }
};

rdnaar_comm *paired() {
    static Pair pair;
    return pair.comms[0];
}

rdnaar_comm *alone() {
    static rdnaar_comm *const comm = [] {
        rdnaar_config c;
        rdnaar_config_init(&c, sizeof c);
        c.max_bytes = 4096;
        rdnaar_comm *made;
        FUZZ_REQUIRE(rdnaar_init(&c, &made) == RDNAAR_OK, "%s", rdnaar_last_error(nullptr));
        return made;
    }();
    return comm;
}

void plan(rdnaar_comm *comm, fuzz::Input &input) {
    const auto count = input.take<uint64_t>();
    const auto dtype = input.take<uint32_t>(), op = input.take<uint32_t>();
    const auto algo = input.take<uint32_t>();
    Held<rdnaar_plan_t> held(input);
    const rdnaar_status status = rdnaar_plan(comm, count, dtype, op, algo, held.get());
    fuzz::require_explained(status, comm);
    if (status != RDNAAR_E_ABI)
        FUZZ_REQUIRE(held.get()->status == status, "%d in the plan, %d returned",
                     held.get()->status, status);
}

void init(fuzz::Input &input) {
    Held<rdnaar_config> held(input);
    unsigned char blobs[RDNAAR_BLOB_BYTES];
    rdnaar_comm *comm = reinterpret_cast<rdnaar_comm *>(blobs);
    const rdnaar_status status = rdnaar_init(held.get(), &comm);
    fuzz::require_explained(status, nullptr);
    FUZZ_REQUIRE((status == RDNAAR_OK) == (comm != nullptr), "status %d", status);
    if (comm == nullptr) return;
    FUZZ_REQUIRE(rdnaar_export_buffers(comm, blobs, sizeof blobs) == RDNAAR_OK, "%s",
                 rdnaar_last_error(comm));
    // A group of one is whole; of a larger one the peers are missing.
    fuzz::require_explained(rdnaar_register_buffers(comm, blobs, 1), comm);
    plan(comm, input);
    FUZZ_REQUIRE(rdnaar_destroy(comm) == RDNAAR_OK, "%s", rdnaar_last_error(nullptr));
}

void config_init(fuzz::Input &input) {
    const auto struct_size = input.take<uint32_t>();
    Held<rdnaar_config> held(input);
    const uint32_t held_size = held.get()->struct_size;
    // A caller may only claim what it has.
    if (struct_size >= sizeof(rdnaar_config) && held_size < sizeof(rdnaar_config)) return;
    if (struct_size > held_size && held_size < sizeof(rdnaar_config)) return;
    fuzz::require_explained(rdnaar_config_init(held.get(), struct_size), nullptr);
}

void self_test(fuzz::Input &input) {
    Held<rdnaar_self_test_config> config(input);
    Held<rdnaar_self_test_report> report(input);
    config.cap<uint32_t>(&rdnaar_self_test_config::repeats, 2, UINT32_MAX);
    const rdnaar_status status = rdnaar_self_test(alone(), config.get(), report.get(), nullptr);
    fuzz::require_explained(status, alone());
    FUZZ_REQUIRE(status != RDNAAR_E_SELF_TEST, "%s", rdnaar_last_error(alone()));
}

void probe(fuzz::Input &input) {
    Held<rdnaar_probe_config> config(input);
    Held<rdnaar_probe_result> result(input);
    config.cap<uint32_t>(&rdnaar_probe_config::iterations, 4, 65535);
    config.cap<uint32_t>(&rdnaar_probe_config::timeout_ms, 2, 60000);
    fuzz::require_explained(rdnaar_probe(paired(), config.get(), result.get(), nullptr), paired());
}

void reports(fuzz::Input &input) {
    const auto index = input.take<uint32_t>();
    Held<rdnaar_build_info_t> build(input);
    fuzz::require_explained(rdnaar_build_info(build.get()), nullptr);
    Held<rdnaar_device_info_t> device(input);
    fuzz::require_explained(rdnaar_device_info(index, device.get()), nullptr);
    Held<rdnaar_abort_record_t> abort_record(input);
    fuzz::require_explained(rdnaar_abort_record(paired(), abort_record.get()), paired());
    Held<rdnaar_late_record_t> late_record(input);
    fuzz::require_explained(rdnaar_late_record(paired(), late_record.get()), paired());
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    paired();
    alone();
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fuzz::NothingLeftOpen nothing_left_open;
    fuzz::Input input{data, size};
    switch (input.take<unsigned char>() % 6) {
        case 0: init(input); break;
        case 1: plan(paired(), input); break;
        case 2: config_init(input); break;
        case 3: self_test(input); break;
        case 4: probe(input); break;
        case 5: reports(input); break;
    }
    return 0;
}
