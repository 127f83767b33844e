// SPDX-License-Identifier: Apache-2.0
// The blob parser, which reads what another process has written.
//
// Three ranks: the reader (0), one of the same process (1), and one of a child process (2), so that
// both ways to open a peer's memory are taken. Input: one byte of mode, then bytes that are combined
// with the three genuine blobs. All zeros therefore are the genuine blobs, in every run anew.
#include <sys/prctl.h>

#include <csignal>
#include <vector>

#include "../../libhiprdnaar/src/runtime/blob.h"
#include "../../libhiprdnaar/src/runtime/hash.h"
#include "oracle.h"

using namespace rdnaar;

namespace {

constexpr uint32_t kWorld = 3;
constexpr size_t kAllBlobs = kWorld * sizeof(Blob);

enum Mode : unsigned char {
    kRaw = 1,         // the bytes are the blobs, instead of changing them
    kRightSum = 2,    // every blob gets the checksum of its contents
    kCheckAlone = 4,  // check_blob() by itself, which opens nothing
};

rdnaar_config config_of(uint32_t rank) {
    rdnaar_config c;
    rdnaar_config_init(&c, sizeof c);
    c.rank = rank;
    c.world = kWorld;
    c.max_bytes = 1024;
    memset(c.group_id, 0x5A, sizeof c.group_id);
    return c;
}

rdnaar_comm *make(uint32_t rank, unsigned char *blob) {
    const rdnaar_config c = config_of(rank);
    rdnaar_comm *comm;
    FUZZ_REQUIRE(rdnaar_init(&c, &comm) == RDNAAR_OK, "%s", rdnaar_last_error(nullptr));
    FUZZ_REQUIRE(rdnaar_export_buffers(comm, blob, sizeof(Blob)) == RDNAAR_OK, "%s",
                 rdnaar_last_error(comm));
    return comm;
}

// A rank in a process of its own, which ends with this one.
void start_child(unsigned char *blob) {
    int ends[2];
    FUZZ_REQUIRE(pipe(ends) == 0, "pipe");
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        make(2, blob);
        _exit(write(ends[1], blob, sizeof(Blob)) == ssize_t(sizeof(Blob)) ? pause() : 1);
    }
    FUZZ_REQUIRE(read(ends[0], blob, sizeof(Blob)) == ssize_t(sizeof(Blob)), "the child's blob");
    close(ends[0]);
    close(ends[1]);
}

struct Group {
    unsigned char genuine[kAllBlobs];
    rdnaar_comm *reader, *sibling;

    Group() {
        start_child(genuine + 2 * sizeof(Blob));
        sibling = make(1, genuine + sizeof(Blob));
        reader = make(0, genuine);
    }
    void renew_reader() {
        FUZZ_REQUIRE(rdnaar_destroy(reader) == RDNAAR_OK, "%s", rdnaar_last_error(nullptr));
        reader = make(0, genuine);
    }
};

Group &group() {
    static Group g;
    return g;
}

std::vector<unsigned char> blobs_from(unsigned char mode, fuzz::Input input) {
    std::vector<unsigned char> blobs(kAllBlobs);
    input.take(blobs.data(), blobs.size());
    if ((mode & kRaw) == 0)
        for (size_t i = 0; i < kAllBlobs; i++) blobs[i] ^= group().genuine[i];
    for (uint32_t r = 0; (mode & kRightSum) != 0 && r < kWorld; r++) {
        unsigned char *blob = blobs.data() + r * sizeof(Blob);
        const uint64_t sum = fnv1a(blob, offsetof(Blob, checksum));
        memcpy(blob + offsetof(Blob, checksum), &sum, sizeof sum);
    }
    return blobs;
}

bool lies_in(size_t at, size_t begin, size_t size) { return at >= begin && at < begin + size; }

// What a reader relies on: nothing differs from the genuine blob but addresses that are not proven yet.
void require_genuine(const unsigned char *blobs, uint32_t rank, bool handle_unproven,
                     bool board_unproven) {
    const unsigned char *mine = group().genuine + rank * sizeof(Blob);
    const unsigned char *theirs = blobs + rank * sizeof(Blob);
    for (size_t i = 0; i < offsetof(Blob, checksum); i++) {
        const bool unproven =
            (handle_unproven && lies_in(i, offsetof(Blob, handle), sizeof(Blob::handle))) ||
            (board_unproven && lies_in(i, offsetof(Blob, board), sizeof(Blob::board)));
        FUZZ_REQUIRE(unproven || mine[i] == theirs[i], "byte %zu of blob %u was accepted", i, rank);
    }
}

void check_alone(const unsigned char *blobs) {
    static const Settings settings = make_settings(config_of(0));
    for (uint32_t r = 0; r < kWorld; r++) {
        Blob blob;
        memcpy(&blob, blobs + r * sizeof blob, sizeof blob);
        try {
            check_blob(blob, settings, r);
        } catch (const Error &e) {
            FUZZ_REQUIRE(e.status != RDNAAR_OK && !e.text.empty(), "status %d", e.status);
            continue;
        }
        require_genuine(blobs, r, true, true);  // proven by opening it
    }
}

void register_all(const unsigned char *blobs) {
    Group &g = group();
    const rdnaar_status status = rdnaar_register_buffers(g.reader, blobs, kWorld);
    fuzz::require_explained(status, g.reader);
    if (memcmp(blobs, g.genuine, kAllBlobs) == 0)
        FUZZ_REQUIRE(status == RDNAAR_OK, "%s", rdnaar_last_error(g.reader));
    if (status == RDNAAR_OK) {
        // The own addresses are not used. Of the handle of another process only its first part is.
        for (uint32_t r = 0; r < kWorld; r++) require_genuine(blobs, r, r != 1, r == 0);
        g.renew_reader();
    }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    group();
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fuzz::NothingLeftOpen nothing_left_open;
    fuzz::Input input{data, size};
    const unsigned char mode = input.take<unsigned char>();
    const std::vector<unsigned char> blobs = blobs_from(mode, input);
    if ((mode & kCheckAlone) != 0) {
        check_alone(blobs.data());
    } else {
        register_all(blobs.data());
    }
    return 0;
}
