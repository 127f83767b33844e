// SPDX-License-Identifier: Apache-2.0
// Notices that a peer's process has ended: a thread sleeps until the kernel says so (pidfd).
#pragma once

#include <array>
#include <functional>
#include <thread>

#include "../protocol/layout.h"
#include "descriptor.h"

namespace rdnaar {

// Refers to a process as long as it is kept, whatever its number is used for later. Empty on a kernel
// without it (Linux before 5.3): the death of a peer is then found by the bound of a wait.
Descriptor open_process(int32_t pid);

class PeerWatch {
public:
    // By rank; empty where there is none to watch.
    using Processes = std::array<Descriptor, kMaxWorld>;

    // `on_death(rank)` is called once for each, from the thread.
    PeerWatch(Processes processes, std::function<void(uint32_t)> on_death);
    ~PeerWatch();  // no call of on_death() is running or will come any more

    // Whether the process of a rank has ended; false also if it is not known.
    bool ended(uint32_t rank) const;

    // Ends the thread; ended() goes on to work.
    void stop();

private:
    void work();

    const Processes processes_;
    const std::function<void(uint32_t)> on_death_;
    const Descriptor stop_;
    std::thread thread_;
};

}  // namespace rdnaar
