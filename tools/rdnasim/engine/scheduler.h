// SPDX-License-Identifier: Apache-2.0
// Runs the waves of all launches of this process, of all its devices, in turns on one thread.
//
// A turn ends after some operations, at a barrier, or when the wave sleeps, as all loops that poll
// do. When nothing but polling has happened for a while the thread gives its core away: what is
// waited for comes from another process, or from a launch that the host has yet to make.
#pragma once

#include <memory>
#include <vector>

#include "device.h"
#include "random.h"

namespace rdnasim {

class Scheduler {
public:
    Scheduler();

    void start(std::unique_ptr<Launch> launch);
    bool has_work() const { return !launches_.empty(); }
    // A turn for each wave, but for those that are slow; `all`: for these too. False if all that the
    // waves have done in their last turns was to poll.
    bool sweep(bool all);
    // Launches that have ended since the last call.
    std::vector<std::unique_ptr<Launch>> take_finished();

    u64 operations() const { return operations_; }

private:
    void start_blocks();
    void start_block(Launch &launch);
    void start_wave(Launch &launch, Block &block, u32 number);
    bool turn(Wave &w);
    void end(Wave &w);
    void finish_launches();

    Random random_;
    const bool seeded_;
    std::vector<std::unique_ptr<Launch>> launches_, finished_;
    std::vector<std::unique_ptr<Wave>> waves_, free_;
    u64 operations_ = 0;
};

}  // namespace rdnasim
