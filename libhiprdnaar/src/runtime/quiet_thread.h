// SPDX-License-Identifier: Apache-2.0
// Threads of the library take no signals: those are for the program's own threads.
#pragma once

#include <signal.h>

#include <thread>

namespace rdnaar {

template <class Body>
std::thread quiet_thread(Body body) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    std::thread thread(body);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    return thread;
}

}  // namespace rdnaar
