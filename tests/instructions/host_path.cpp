// SPDX-License-Identifier: Apache-2.0
// A small all-reduce on the host library whose peer has done its part already: what a call costs when it
// waits for nobody. Run under callgrind, it writes a profile for each message; see test_host_path.py.
//
//     valgrind --tool=callgrind --collect-atstart=no host_path
#include <unistd.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "rdnaar.h"

namespace {

void require(rdnaar_status status) {
    if (status == RDNAAR_OK) return;
    fprintf(stderr, "%s\n", rdnaar_status_string(status));
    exit(1);
}

struct Group {
    rdnaar_comm *comm[2] = {};

    Group() {
        std::vector<unsigned char> blobs(2 * RDNAAR_BLOB_BYTES);
        for (uint32_t rank = 0; rank < 2; ++rank) {
            rdnaar_config config;
            require(rdnaar_config_init(&config, sizeof config));
            config.rank = rank;
            config.world = 2;
            require(rdnaar_init(&config, &comm[rank]));
            require(rdnaar_export_buffers(comm[rank], &blobs[rank * RDNAAR_BLOB_BYTES],
                                          RDNAAR_BLOB_BYTES));
        }
        for (rdnaar_comm *c : comm) require(rdnaar_register_buffers(c, blobs.data(), 2));
    }
    ~Group() {
        for (rdnaar_comm *c : comm) require(rdnaar_destroy(c));
    }

    void reduce(int rank, std::vector<float> &data, rdnaar_algo algo) {
        require(rdnaar_all_reduce(comm[rank], data.data(), data.data(), data.size(), RDNAAR_FP32,
                                  RDNAAR_SUM, algo, nullptr));
    }
};

// Rank 1 has long sent its part, and polls, when rank 0's call begins. Should it be late once, then the
// least of several profiles is still that of a call that waits for nobody.
void profile(Group &group, const char *name, rdnaar_algo algo, size_t nbytes) {
    for (int turn = 0; turn < 4; ++turn) {
        std::vector<float> mine(nbytes / sizeof(float), 1.0f), theirs(mine.size(), 2.0f);
        std::thread peer([&] { group.reduce(1, theirs, algo); });
        usleep(100000);
        CALLGRIND_TOGGLE_COLLECT;
        group.reduce(0, mine, algo);
        CALLGRIND_TOGGLE_COLLECT;
        peer.join();
        if (mine.back() != 3.0f) exit(1);
        const std::string text = std::string(name) + " " + std::to_string(nbytes);
        // The first call pays for what is done once.
        if (turn > 0) CALLGRIND_DUMP_STATS_AT(text.c_str());
        CALLGRIND_ZERO_STATS;
    }
}

}  // namespace

int main() {
    Group group;
    for (size_t nbytes : {64, 1024, 4096}) {
        profile(group, "ll", RDNAAR_ALGO_LL, nbytes);
        profile(group, "oneshot", RDNAAR_ALGO_ONESHOT, nbytes);
    }
    return 0;
}
