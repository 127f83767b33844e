// SPDX-License-Identifier: Apache-2.0
// What a lane does to the machine.
#include <algorithm>

#include "machine.h"

namespace explorer {

using namespace rdnaar;

// ---- The slab -------------------------------------------------------------------------------

// Which version a load sees: 0 the present one, i the i-th before. An old one may be seen if it was
// there at a time that this thread has not been told to be past, and if this thread has not seen a
// later one already.
uint32_t Machine::stale_version(Thread &t, const Cell &cell) {
    if (!scenario_.stale || cell.olds == 0 || !flip(2)) return 0;
    const uint32_t bound = std::max(t.fresh, cell.read_at[t.local]);
    uint32_t allowed = 0;
    for (uint32_t i = 1; i <= cell.olds; i++) {
        const uint32_t until = i == 1 ? cell.now.since : cell.old[i - 2].since;
        if (until <= bound) break;
        allowed = i;
    }
    return allowed == 0 ? 0 : random_.below(allowed + 1);
}

uint64_t Machine::load(Thread &t, const void *p, Op op) {
    point(t, op, false);
    const Place place = memory_.place(p);
    if (place.rank != t.rank) {
        fail(Check::kI6, "%s loads from the slab of rank %u", who(t.rank, t.local).c_str(),
             place.rank);
        return 0;
    }
    if (memory_.has_pending_to_self(t.rank)) {  // a thread sees its own stores
        std::vector<Store> &ready = memory_.ready();
        for (uint32_t i = 0; i < ready.size(); i++)
            if (ready[i].origin.rank == t.rank && ready[i].origin.thread == t.local &&
                ready[i].to.rank == place.rank && ready[i].to.cell == place.cell) {
                arrive(i);
                break;
            }
    }
    if (exhaustive_) arrivals_before_load(place);
    Cell &cell = memory_.cell(place);
    const uint32_t back = stale_version(t, cell);
    const Version &version = back == 0 ? cell.now : cell.old[back - 1];
    if (!t.looked) {
        t.looked = true;
        t.looked_at = rank_of(t).arrivals;
        t.seen_count = 0;
    }
    if (t.seen_count < Thread::kSeen) t.seen[t.seen_count++] = {place, version.since};
    t.saw_old = t.saw_old || back != 0;
    cell.read_at[t.local] = std::max(cell.read_at[t.local], version.since);
    if (op == Op::kLoadAcquire) t.fresh = std::max(t.fresh, version.since);
    if (back == 0 && op == Op::kGet) cell.unread = false;
    if (exhaustive_) hash_load(t, cell);
    note(t, op, &place, version.value);
    check_loaded(t, place, version, op);
    const uint64_t value = version.value;
    if (t.poll_failed && is_abort_word(place)) {
        t.poll_failed = false;
        if (value == 0) after_failed_poll(t);
    }
    return value;
}

void Machine::store(Thread &t, const void *p, uint64_t value, StoreKind kind) {
    point(t,
          kind == StoreKind::kPut     ? Op::kPut
          : kind == StoreKind::kPutLl ? Op::kPutLl
          : kind == StoreKind::kClear ? Op::kClear
                                      : Op::kWord,
          true);
    const Place to = memory_.place(p);
    check_store_place(t, to, kind);
    Store store{};
    store.to = to;
    store.kind = kind;
    store.origin = Origin{t.rank, t.local, uint16_t(call_of(t))};
    store.value = value;
    store.number = memory_.issued(t.rank, t.local);
    store.priority = random_.next();
    store.hash = mix(t.hash, store.number);
    note(t, t.next, &to, value);
    memory_.issue(store);
    if (exhaustive_) check_race(store);
}

// On a machine whose release is cumulative, the flag arrives after all stores that its thread made or
// learned of through a barrier; on one that drains, the thread waits for its own stores and then
// sends it.
void Machine::store_release(Thread &t, const void *p, uint64_t value) {
    if (!scenario_.cumulative) drain(t);
    point(t, Op::kFlag, true);
    const Place to = memory_.place(p);
    check_store_place(t, to, StoreKind::kFlag);
    Store store{};
    store.to = to;
    store.kind = StoreKind::kFlag;
    store.origin = Origin{t.rank, t.local, uint16_t(call_of(t))};
    store.value = value;
    store.number = memory_.issued(t.rank, t.local);
    store.priority = random_.next();
    store.hash = mix(t.hash, store.number);
    store.release = scenario_.cumulative;
    std::copy(t.known, t.known + kThreads, store.after);
    store.after[t.index] = store.number;
    note(t, Op::kFlag, &to, value);
    memory_.issue(store);
    if (exhaustive_) check_race(store);
}

void Machine::drain(Thread &t) {
    point(t, Op::kDrain, true);
    if (!memory_.has_pending(t.rank, t.local)) return;
    if (exhaustive_) {  // a step of its own, which they all come before
        t.hidden = false;
        schedule(t);
        memory_.bring_all_of(t.rank, t.local, false, [&](uint32_t index) { arrive(index); });
    } else {
        not_ready(t, State::kDraining);
        schedule(t);
    }
}

// ---- Meetings -------------------------------------------------------------------------------

// All threads of the block have come: their votes are added up, and what one has acquired all have.
void Machine::meet_block(Thread &t, State state, bool vote) {
    const uint32_t threads = scenario_.call(t.rank, call_of(t)).threads;
    t.vote = vote;
    not_ready(t, state);
    bool any = false;
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < threads; i++) {
        const Thread &other = thread(t.rank, t.block * kThreads + i);
        if (other.state != state) {
            if (other.state == State::kAtBarrier || other.state == State::kAtBarrierAny)
                fail(Check::kI6, "%s and %s are at different barriers",
                     who(t.rank, t.local).c_str(), who(t.rank, other.local).c_str());
            schedule(t);
            return;
        }
        any = any || other.vote;
        fresh = std::max(fresh, other.fresh);
    }
    for (uint32_t i = 0; i < threads; i++) {
        Thread &other = thread(t.rank, t.block * kThreads + i);
        other.result = any;
        other.fresh = fresh;
        for (uint32_t k = 0; k < threads && state == State::kAtBarrier; k++)
            other.known[k] = memory_.issued(t.rank, t.block * kThreads + k);
        other.hidden = true;
        make_ready(other);
    }
    schedule(t);
}

void Machine::barrier(Thread &t) {
    point(t, Op::kBarrier, true);
    note(t, Op::kBarrier, nullptr, 0);
    meet_block(t, State::kAtBarrier, false);
}

bool Machine::barrier_any(Thread &t, bool vote) {
    point(t, Op::kBarrierAny, true);
    note(t, Op::kBarrierAny, nullptr, vote);
    meet_block(t, State::kAtBarrierAny, vote);
    return t.result;
}

// The lanes of a wave have come to the same vote. Of kAtElect the first that voted is elected; after
// kAtRelax they all wait if none has seen, or can see, anything new.
void Machine::meet_wave(Thread &t, State state, bool vote) {
    const uint32_t first = t.block * kThreads + t.index / scenario_.wave * scenario_.wave;
    t.vote = vote;
    not_ready(t, state);
    bool any = false;
    uint32_t elected = kFibersOfRank;
    for (uint32_t i = first; i < first + scenario_.wave; i++) {
        const Thread &other = thread(t.rank, i);
        if (other.state != state) {
            if (other.state >= State::kAtBarrier && other.state <= State::kAtRelax)
                fail(Check::kI6, "lanes of a wave have parted: %s and %s\n%s",
                     who(t.rank, t.local).c_str(), who(t.rank, i).c_str(), wait_graph().c_str());
            schedule(t);
            return;
        }
        const bool vote_of_other = state == State::kAtRelax ? has_news(other) : other.vote;
        if (vote_of_other && elected == kFibersOfRank) elected = i;
        any = any || vote_of_other;
    }
    for (uint32_t i = first; i < first + scenario_.wave; i++) {
        Thread &other = thread(t.rank, i);
        other.result = state == State::kAtElect ? i == elected : any;
        other.hidden = true;
        if (state == State::kAtRelax) other.looked = other.saw_old = false;
        if (state == State::kAtRelax && !any) {
            not_ready(other, State::kPolling);
        } else {
            make_ready(other);
        }
    }
    schedule(t);
}

bool Machine::any(Thread &t, bool vote) {
    if (scenario_.wave == 1) return vote;
    point(t, Op::kVote, true);
    meet_wave(t, State::kAtVote, vote);
    return t.result;
}

bool Machine::elect(Thread &t, bool vote) {
    if (scenario_.wave == 1) return vote;
    point(t, Op::kVote, true);
    meet_wave(t, State::kAtElect, vote);
    return t.result;
}

// Has it seen less than there is?
bool Machine::has_news(const Thread &t) const {
    return t.saw_old || (t.looked && t.looked_at != ranks_[t.rank].arrivals);
}

// After a poll that failed: nothing to do until something arrives in the slab, or the clock jumps.
// (A thread that would look again and again would make schedules long, and find nothing else.)
bool Machine::relax(Thread &t) {
    point(t, Op::kRelax, true);
    const bool looks = scenario_.trouble != Trouble::kNone;  // at the clock and the abort word
    if (exhaustive_) {
        t.poll_failed = looks;
        if (!looks) after_failed_poll(t);
        return looks;
    }
    if (scenario_.wave > 1) {
        meet_wave(t, State::kAtRelax, false);
        return looks;
    }
    const bool news = has_news(t);
    t.looked = t.saw_old = false;
    if (!news) {
        not_ready(t, State::kPolling);
        schedule(t);
    }
    return looks;
}

// ---- Clock and counters -----------------------------------------------------------------------

uint64_t Machine::now(Thread &t) {
    point(t, Op::kClock, true);
    return rank_of(t).clock;
}

void Machine::before_counter(Thread &t, const void *p, Op op) {
    point(t, op, true);
    const Rank &rank = rank_of(t);
    const unsigned char *at = static_cast<const unsigned char *>(p);
    auto within = [&](const void *object, size_t size) {
        const unsigned char *begin = static_cast<const unsigned char *>(object);
        return at >= begin && at < begin + size;
    };
    const bool right = op == Op::kCounter ? within(&rank.counters, sizeof rank.counters)
                                          : within(&rank.abort_line, sizeof rank.abort_line) ||
                                                within(&rank.late_line, sizeof rank.late_line);
    if (!right)
        fail(Check::kI8, "%s counts or records in memory that is not its own",
             who(t.rank, t.local).c_str());
    note(t, op, nullptr, 0);
}

void Machine::claimed(Thread &t, uint32_t before) {
    disturbed_ = true;
    if (before == 0) note("      %s gives up", who(t.rank, t.local).c_str());
}

}  // namespace explorer
