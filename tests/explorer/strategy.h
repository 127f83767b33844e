// SPDX-License-Identifier: Apache-2.0
// How schedules are chosen.
#pragma once

#include <unordered_set>

#include "machine.h"

namespace explorer {

// Each step at random. How eager stores are to arrive is chosen once a schedule.
class RandomWalk final : public Strategy {
public:
    void begin(Machine &machine, uint64_t seed) override;
    uint32_t choose(Machine &machine) override;

private:
    Random random_;
    uint32_t eagerness_ = 0;
};

// Priorities, and a few moments at which the first loses its own: probabilistic concurrency testing
// (Burckhardt, Kothari, Musuvathi, Nagarakatte: A randomized scheduler with probabilistic guarantees
// of finding bugs, 2010). A store on its way has a priority like a thread.
class ByPriority final : public Strategy {
public:
    void begin(Machine &machine, uint64_t seed) override;
    uint32_t choose(Machine &machine) override;

private:
    static constexpr uint32_t kChanges = 4;
    Random random_;
    uint32_t change_at_[kChanges];
    uint32_t next_priority_ = 0;
};

// All schedules, but one of each set that differs only in the order of steps that do not concern
// each other: depth first, leaving out what leads to a state that was there before. See
// exhaustive.cpp.
class Exhaustive final : public Strategy {
public:
    void begin(Machine &machine, uint64_t seed) override;
    uint32_t choose(Machine &machine) override;
    uint32_t branch(uint32_t options) override;
    bool advance();  // to the next schedule; false: that was the last
    uint64_t states() const { return seen_.size(); }

private:
    struct Branch {
        uint32_t taken, of;
    };
    std::vector<Branch> path_;
    size_t depth_ = 0;
    std::unordered_set<uint64_t> seen_;
};

}  // namespace explorer
