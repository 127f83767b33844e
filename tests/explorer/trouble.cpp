// SPDX-License-Identifier: Apache-2.0
// Trouble at a moment that the adversary chooses: clocks that jump, hosts that abort, ranks that stop.
#include "machine.h"

namespace explorer {

using namespace rdnaar;

void Machine::strike() {
    const uint32_t r = random_.below(scenario_.world);
    Rank &rank = ranks_[r];
    strike_at_ = random_.one_in(2) ? 0 : time_ + 1 + random_.below(time_);
    switch (scenario_.trouble) {
        case Trouble::kLate:
        case Trouble::kTimeout:
            rank.clock += scenario_.trouble == Trouble::kLate ? kLateTicks + 1 : kTimeoutTicks + 1;
            rank.struck = rank.struck || scenario_.trouble == Trouble::kTimeout;
            note("      the clock of rank %u jumps", r);
            wake(r);
            break;
        case Trouble::kUserAbort: user_abort(r); break;
        case Trouble::kKill:
            rank.killed = true;
            for (uint32_t i = 0; i < kFibersOfRank; i++) {
                const State state = thread(r, i).state;
                if (state != State::kIdle && state != State::kEnded) thread(r, i).fiber.abandon();
                not_ready(thread(r, i), State::kIdle);
            }
            note("      rank %u is killed", r);
            strike_at_ = 0;
            if (random_.one_in(2)) break;
            for (uint32_t k = 1; k < scenario_.world; k++) {  // the others' hosts notice
                const uint32_t other = (r + k) % scenario_.world;
                store_of_host(other, other, kPeerDead, r);
            }
            disturbed_ = true;
            break;
        default: break;
    }
}

// As rdnaar_abort(): the own slab says why, the peers' that this rank has given up.
void Machine::user_abort(uint32_t r) {
    disturbed_ = true;
    note("      the host of rank %u aborts", r);
    for (uint32_t k = 0; k < scenario_.world; k++)
        store_of_host(r, (r + k) % scenario_.world, k == 0 ? kUser : kPeerAborted, r);
}

void Machine::store_of_host(uint32_t r, uint32_t to, uint32_t reason, uint32_t because_of) {
    Store store{};
    store.to = memory_.place(memory_.slab(to) + kAbortWordOffset);
    store.kind = StoreKind::kWord;
    store.origin = Origin{uint8_t(r), kHostThread, uint16_t(ranks_[r].call)};
    store.value = make_abort_word(reason, because_of);
    store.number = memory_.issued(r, kHostThread);
    store.priority = random_.next();
    store.hash = mix(r, to);
    memory_.issue(store);
}

// Nothing can go on. After a kill the clocks of the others run until their waits end; else the
// schedule is over, or hangs. True: go on.
bool Machine::stuck() {
    if (all_done()) return false;
    if (scenario_.trouble != Trouble::kKill || strikes_when_stuck_ == 8) {
        if (strikes_when_stuck_ == 8) {
            fail(Check::kI6, "a wait has no bound\n%s", wait_graph().c_str());
        } else {
            fail(Check::kDeadlock, "nothing can go on\n%s", wait_graph().c_str());
        }
        return false;
    }
    strikes_when_stuck_++;
    for (uint32_t r = 0; r < scenario_.world; r++) {
        ranks_[r].clock += kTimeoutTicks + 1;
        ranks_[r].struck = true;
        if (!ranks_[r].killed) wake(r);
    }
    note("      all clocks jump");
    return true;
}

}  // namespace explorer
