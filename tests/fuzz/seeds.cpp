// SPDX-License-Identifier: Apache-2.0
// Writes the first inputs of the fuzzers: well-formed ones, to be spoiled.
//
//     seeds FOLDER        makes FOLDER/blob and FOLDER/config
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "rdnaar.h"

namespace {

class Seed {
public:
    Seed &byte(unsigned char value) { return add(value); }
    Seed &word(uint32_t value) { return add(value); }
    Seed &wide(uint64_t value) { return add(value); }
    Seed &zeros(size_t count) {
        bytes_.append(count, '\0');
        return *this;
    }
    template <class T>
    Seed &add(const T &value) {
        bytes_.append(reinterpret_cast<const char *>(&value), sizeof value);
        return *this;
    }
    // A struct of S with nothing but its size.
    template <class S>
    Seed &empty() {
        return word(sizeof(S)).zeros(sizeof(S) - 4);
    }
    bool write(const std::string &path) const {
        FILE *file = fopen(path.c_str(), "wb");
        if (file == nullptr) return false;
        const bool whole = fwrite(bytes_.data(), 1, bytes_.size(), file) == bytes_.size();
        return fclose(file) == 0 && whole;
    }

private:
    std::string bytes_;
};

bool write_blobs(const std::string &folder) {
    bool ok = true;
    for (unsigned char mode = 0; mode < 8; mode++)
        ok &= Seed()
                  .byte(mode)
                  .zeros(3 * RDNAAR_BLOB_BYTES)
                  .write(folder + "/" + std::to_string(mode));
    return ok;
}

bool write_configs(const std::string &folder) {
    bool ok = true;
    for (uint32_t world : {1u, 2u, 8u}) {
        rdnaar_config c;
        rdnaar_config_init(&c, sizeof c);
        c.world = world;
        c.max_bytes = 1 << 16;
        ok &= Seed()
                  .byte(0)
                  .add(c)
                  .wide(100)
                  .word(RDNAAR_FP32)
                  .word(0)
                  .word(0)
                  .empty<rdnaar_plan_t>()
                  .write(folder + "/init" + std::to_string(world));
    }
    ok &= Seed()
              .byte(1)
              .wide(100)
              .word(RDNAAR_BF16)
              .word(RDNAAR_MAX)
              .word(RDNAAR_ALGO_LL)
              .empty<rdnaar_plan_t>()
              .write(folder + "/plan");
    ok &= Seed()
              .byte(2)
              .word(sizeof(rdnaar_config))
              .empty<rdnaar_config>()
              .write(folder + "/config_init");
    rdnaar_self_test_config t{};
    t.struct_size = sizeof t;
    t.max_bytes = 256;
    t.repeats = 1;
    ok &= Seed().byte(3).add(t).empty<rdnaar_self_test_report>().write(folder + "/self_test");
    for (uint32_t kind = 0; kind < RDNAAR_PROBE_COUNT; kind++) {
        rdnaar_probe_config p{};
        p.struct_size = sizeof p;
        p.kind = kind;
        p.target = 1;
        p.width = 16;
        p.iterations = 1;
        p.nbytes = 64;
        p.session = 1;
        p.timeout_ms = 1;
        ok &= Seed().byte(4).add(p).empty<rdnaar_probe_result>().write(folder + "/probe" +
                                                                       std::to_string(kind));
    }
    ok &= Seed()
              .byte(5)
              .word(0)
              .empty<rdnaar_build_info_t>()
              .empty<rdnaar_device_info_t>()
              .empty<rdnaar_abort_record_t>()
              .empty<rdnaar_late_record_t>()
              .write(folder + "/reports");
    return ok;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const std::string folder = argv[1];
    mkdir(folder.c_str(), 0777);
    mkdir((folder + "/blob").c_str(), 0777);
    mkdir((folder + "/config").c_str(), 0777);
    if (write_blobs(folder + "/blob") && write_configs(folder + "/config")) return 0;
    fprintf(stderr, "cannot write to %s\n", argv[1]);
    return 1;
}
