// SPDX-License-Identifier: Apache-2.0
#include "strategy.h"

namespace explorer {

void RandomWalk::begin(Machine &, uint64_t seed) {
    random_ = Random(seed);
    eagerness_ = random_.between(1, 8);
}

uint32_t RandomWalk::choose(Machine &machine) {
    const uint32_t threads = uint32_t(machine.ready().size());
    const uint32_t stores = uint32_t(machine.memory().ready().size());
    if (threads == 0) return random_.below(stores);
    if (stores != 0 && random_.below(16) < eagerness_) return threads + random_.below(stores);
    return random_.below(threads);
}

void ByPriority::begin(Machine &machine, uint64_t seed) {
    random_ = Random(seed);
    next_priority_ = kChanges;
    for (uint32_t &at : change_at_) at = random_.below(machine.usual_length() + 1);
    machine.each_thread([&](Thread &t) { t.priority = random_.next() | 1u << 31; });
}

uint32_t ByPriority::choose(Machine &machine) {
    const std::vector<Thread *> &threads = machine.ready();
    std::vector<Store> &stores = machine.memory().ready();
    uint32_t best = 0, priority = 0;
    auto find = [&] {
        priority = 0;
        for (uint32_t i = 0; i < threads.size(); i++)
            if (threads[i]->priority >= priority) best = i, priority = threads[i]->priority;
        for (uint32_t i = 0; i < stores.size(); i++)
            if (stores[i].priority > priority)
                best = uint32_t(threads.size()) + i, priority = stores[i].priority;
    };
    find();
    for (uint32_t &at : change_at_) {
        if (at == 0 || machine.steps() < at) continue;
        at = 0;
        (best < threads.size() ? threads[best]->priority : stores[best - threads.size()].priority) =
            --next_priority_;
        find();
    }
    return best;
}

void Exhaustive::begin(Machine &, uint64_t) { depth_ = 0; }

uint32_t Exhaustive::choose(Machine &machine) {
    if (depth_ < path_.size()) return path_[depth_++].taken;
    if (!seen_.insert(machine.fingerprint()).second) {
        machine.prune();
        return 0;
    }
    return branch(uint32_t(machine.ready().size()));
}

uint32_t Exhaustive::branch(uint32_t options) {
    if (depth_ < path_.size()) return path_[depth_++].taken;
    path_.push_back(Branch{0, options});
    depth_++;
    return 0;
}

bool Exhaustive::advance() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().of) path_.pop_back();
    if (path_.empty()) return false;
    path_.back().taken++;
    return true;
}

}  // namespace explorer
