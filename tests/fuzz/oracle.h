// SPDX-License-Identifier: Apache-2.0
// What every fuzz harness asks of the library, besides what the sanitizers see.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rdnaar.h"

namespace fuzz {

// Ends the run; libFuzzer keeps the input.
#define FUZZ_REQUIRE(condition, ...)                                        \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fputc('\n', stderr);                                            \
            abort();                                                        \
        }                                                                   \
    } while (0)

// A status of the table; a failure leaves its reason.
inline void require_explained(rdnaar_status status, rdnaar_comm *comm) {
    FUZZ_REQUIRE(status >= 0 && status < RDNAAR_STATUS_COUNT, "status %d", status);
    FUZZ_REQUIRE(status == RDNAAR_OK || rdnaar_last_error(comm)[0] != 0,
                 "status %d without a reason", status);
}

// One run must end with the descriptors that it began with. (Between runs the fuzzer opens some.)
class NothingLeftOpen {
public:
    NothingLeftOpen() : before_(lowest_free()) {}
    ~NothingLeftOpen() {
        FUZZ_REQUIRE(lowest_free() == before_, "a descriptor is left open, or one too many closed");
    }

private:
    static int lowest_free() {
        const int fd = dup(2);
        close(fd);
        return fd;
    }
    const int before_;
};

// Takes `size` bytes off the front of the input; zeros where it has ended.
struct Input {
    const unsigned char *data;
    size_t left;

    void take(void *to, size_t size) {
        const size_t n = size < left ? size : left;
        memset(to, 0, size);
        if (n > 0) memcpy(to, data, n);
        data += n;
        left -= n;
    }
    template <class T>
    T take() {
        T value;
        take(&value, sizeof value);
        return value;
    }
};

}  // namespace fuzz
