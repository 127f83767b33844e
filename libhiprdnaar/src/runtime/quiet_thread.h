// SPDX-License-Identifier: Apache-2.0
// Threads of the library take no signals: those are for the program's own threads.
#pragma once

#include <signal.h>

#include <thread>

namespace rdnaar {

class AllSignalsBlocked {
public:
    AllSignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old_);
    }
    ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
    AllSignalsBlocked(const AllSignalsBlocked &) = delete;
    AllSignalsBlocked &operator=(const AllSignalsBlocked &) = delete;

private:
    sigset_t old_;
};

template <class Body>
std::thread quiet_thread(Body body) {
    const AllSignalsBlocked blocked;  // inherited; the caller's mask comes back even on an error
    return std::thread(body);
}

}  // namespace rdnaar
