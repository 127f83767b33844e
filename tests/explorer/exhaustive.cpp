// SPDX-License-Identifier: Apache-2.0
// The exhaustive search: which schedules it leaves out, and why nothing is lost.
//
// For scenarios of one thread a rank, where loads see the present value of memory.
//
//  - Only loads, and a drain that has something to wait for, are choices. All else concerns the
//    thread alone: what it stores is seen by nobody until it arrives.
//  - A store arrives just before the first step that can tell: a load of its word, a drain or a
//    release that waits for it, or at the end. Any schedule becomes one of these by moving arrivals
//    back past steps that do not concern them. So a load with a store on its way branches in two.
//  - Two stores of different threads on their way to one word could arrive in either order, and one
//    of the two is wrong: that is an error at once, with no need to try (check_race).
//  - A poll that fails changes nothing. If what it did not see comes later, the schedule is the same
//    without that poll, and is searched without it.
//  - Two schedules that come to the same state go on alike. A state is known by the events that led
//    to it and their order at each word: a sum of their hashes (64 bits; two states with one hash
//    would hide one of them: at 10^6 states, a chance of 3 in 10^8).
#include "machine.h"

namespace explorer {

using namespace rdnaar;

void Machine::arrivals_before_load(const Place &place) {
    const uint32_t pending = memory_.pending_to(place);
    if (pending == 0) return;
    const uint32_t come = strategy_->branch(pending + 1);
    for (uint32_t i = 0; i < come; i++)
        memory_.bring(place, [&](uint32_t index) { arrive(index); });
}

void Machine::hash_load(Thread &t, Cell &cell) {
    t.hash = mix(t.hash, cell.write_hash);
    cell.reads_hash += mix(t.hash);
    fingerprint_ += t.hash;
}

void Machine::hash_arrival(const Store &store, Cell &cell) {
    cell.write_hash = mix(mix(store.hash, cell.write_hash), cell.reads_hash);
    cell.reads_hash = 0;
    fingerprint_ += cell.write_hash;
    for (uint32_t i = 0; i < kFibersOfRank; i++)
        if (thread(store.to.rank, i).state == State::kPolling &&
            has_seen(thread(store.to.rank, i), store.to))
            prune();
}

bool Machine::has_seen(const Thread &t, const Place &place) const {
    for (uint32_t i = 0; i < t.seen_count; i++)
        if (t.seen[i].place.cell == place.cell) return true;
    return false;
}

// The thread has seen nothing to go on with. If there is news, or some is on its way, the schedule
// without this poll is another one; else the thread stays here until a store is made to what it has
// looked at, and if none ever is, this is a deadlock.
void Machine::after_failed_poll(Thread &t) {
    for (uint32_t i = 0; i < t.seen_count; i++)
        if (memory_.cell(t.seen[i].place).now.since != t.seen[i].since ||
            memory_.pending_to(t.seen[i].place) != 0)
            prune();
    if (t.seen_count == Thread::kSeen)
        fail(Check::kEndless, "a poll of more words than the search keeps in mind");
    t.looked = false;
    not_ready(t, State::kPolling);
    schedule(t);
}

// After a store was made.
void Machine::check_race(const Store &store) {
    for (uint32_t i = 0; i < kFibersOfRank; i++) {
        const Thread &reader = thread(store.to.rank, i);
        if (reader.state == State::kPolling && has_seen(reader, store.to)) prune();
    }
    if (is_abort_word(store.to) || !quiet()) return;  // any of its values is true
    const Store *other = memory_.other_writer(store);
    if (other != nullptr)
        fail(Check::kI2, "%s of rank %u: stores of %s and %s are on their way together",
             describe_cell(store.to).c_str(), store.to.rank,
             who(other->origin.rank, other->origin.thread).c_str(),
             who(store.origin.rank, store.origin.thread).c_str());
}

}  // namespace explorer
