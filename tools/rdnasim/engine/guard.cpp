// SPDX-License-Identifier: Apache-2.0
#include "guard.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>

namespace rdnasim {

namespace {

thread_local bool is_guarded = false;
struct sigaction former;

void on_fault(int signal, siginfo_t *info, void *context) {
    if (is_guarded) {
        fprintf(stderr, "rdnasim: memory access fault of a kernel, copy or fill at address %p\n",
                info->si_addr);
        abort();
    }
    if (former.sa_flags & SA_SIGINFO) {
        former.sa_sigaction(signal, info, context);
    } else {
        sigaction(SIGSEGV, &former, nullptr);  // happens again, now without us
    }
}

}  // namespace

FaultGuard::FaultGuard() {
    is_guarded = true;
    struct sigaction ours{};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &ours, &former);
}

}  // namespace rdnasim
