// SPDX-License-Identifier: Apache-2.0
#include "peer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"
#include "quiet_thread.h"

namespace rdnaar {

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // the same on all architectures; headers older than Linux 5.3 lack it
#endif

Descriptor open_process(int32_t pid) { return Descriptor(int(syscall(SYS_pidfd_open, pid, 0))); }

PeerWatch::PeerWatch(Processes processes, std::function<void(uint32_t)> on_death)
    : processes_(std::move(processes)),
      on_death_(std::move(on_death)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
    if (stop_.get() < 0) fail(RDNAAR_E_SYSTEM, "eventfd: %s", strerror(errno));
    for (const Descriptor &process : processes_)
        if (process.get() >= 0 && !thread_.joinable()) thread_ = quiet_thread([this] { work(); });
}

PeerWatch::~PeerWatch() { stop(); }

void PeerWatch::stop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    // An eventfd refuses a write only when its counter is full.
    [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof one);
    thread_.join();
}

bool PeerWatch::ended(uint32_t rank) const {
    pollfd p{processes_[rank].get(), POLLIN, 0};
    return p.fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}

void PeerWatch::work() {
    pollfd watched[kMaxWorld + 1];
    for (uint32_t r = 0; r < kMaxWorld; r++) watched[r] = {processes_[r].get(), POLLIN, 0};
    watched[kMaxWorld] = {stop_.get(), POLLIN, 0};
    for (;;) {
        if (poll(watched, kMaxWorld + 1, -1) < 0) {
            if (errno == EINTR) continue;
            return;  // no memory in the kernel: deaths are found by the bound of a wait
        }
        if (watched[kMaxWorld].revents != 0) return;
        for (uint32_t r = 0; r < kMaxWorld; r++) {
            const short seen = watched[r].revents;
            if (seen == 0) continue;
            watched[r].fd = -1;  // poll() passes over it
            watched[r].revents = 0;
            if ((seen & POLLIN) != 0) on_death_(r);  // else somebody has closed our descriptor
        }
    }
}

}  // namespace rdnaar
