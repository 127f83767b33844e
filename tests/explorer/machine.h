// SPDX-License-Identifier: Apache-2.0
// The machine that the protocol runs on: ranks with their streams of calls, threads as fibers, slabs
// (memory.h), clocks. A strategy decides what happens next; the checks are in judge.cpp.
//
//   schedule.cpp   calls, blocks, threads, and the choice of the next step
//   trouble.cpp    clocks that jump, hosts that abort, ranks that stop
//   access.cpp     what a lane does to the machine
//   exhaustive.cpp what is different in the exhaustive search
//   judge.cpp      what must hold, after each step, at the end of each call and of the schedule
//   report.cpp     traces and wait graphs
#pragma once

#include "data.h"
#include "fiber.h"
#include "memory.h"
#include "place.h"

namespace explorer {

enum class Check : uint32_t {
    kResult,  // every element as the reference has it, or NaN where that is allowed
    kI1,
    kI2,
    kI3,
    kI4,
    kI5,
    kI6,
    kI8,  // the invariants; I7 shows as a deadlock
    kDeadlock,
    kClean,     // at the end: `ll` slots hold the sentinel; nothing written outside its place
    kCounters,  // at the end: the same number of calls and rounds everywhere
    kAbort,     // an abort is told to all, sticky, and gives its true reason
    kEndless,
};
const char *check_name(Check check);

struct Failure {
    Check check;
    std::string text;
};

enum class State : uint8_t {
    kIdle,
    kReady,
    kAtBarrier,
    kAtBarrierAny,
    kAtVote,
    kAtElect,
    kAtRelax,
    kDraining,
    kPolling,
    kEnded,
};

// What a thread does when it is chosen next.
enum class Op : uint8_t {
    kBegin,
    kLoad,
    kLoadAcquire,
    kGet,
    kGetLl,
    kPut,
    kPutLl,
    kClear,
    kWord,
    kFlag,
    kBarrier,
    kBarrierAny,
    kVote,
    kDrain,
    kRelax,
    kClock,
    kCounter,
    kRecord,
    kEnd,
};

struct Thread {
    static constexpr uint32_t kSeen = 24;
    Fiber fiber;
    uint8_t rank, block, index, local;  // local: block * kThreads + index
    State state;
    Op next;
    bool vote, result;  // of the last vote
    bool hidden;        // its next step concerns no other thread (exhaustive search)
    uint32_t place_in_ready;
    uint32_t priority;
    // Loads: nothing older than `fresh` may be seen, since something later was acquired.
    uint32_t fresh;
    // Stores of the block's threads that it knows of through barriers.
    uint32_t known[kThreads];
    // Since the last relax(): the first look at the slab, and what was looked at.
    bool looked, saw_old;
    uint32_t looked_at;
    struct {
        Place place;
        uint32_t since;
    } seen[kSeen];
    uint32_t seen_count;
    bool poll_failed;  // it looks at the abort word next (exhaustive search)
    uint64_t hash;     // of all that it has read (exhaustive search)
    const rdnaar::Call *call;
};

struct Rank {
    rdnaar::Counters counters;
    rdnaar::AbortLine abort_line;
    rdnaar::LateLine late_line;
    uint32_t call;                          // index of the one that runs
    uint32_t begun_blocks, running_blocks;  // of it
    uint32_t running[kBlocks];              // threads of each block that have not ended
    bool flushing;                          // all threads have ended, not all stores have arrived
    bool killed, struck, given_up_before;
    uint64_t clock;
    uint32_t polling;   // threads that wait for one of these:
    uint32_t arrivals;  // in its slab, or jumps of its clock: what wakes threads that poll
    std::vector<rdnaar::Call> calls;
    std::vector<uint32_t> launch;  // of each call: the element of `calls`
};

class Machine;

// Decides what happens next: a number below the number of threads that can go on plus that of
// stores that can arrive.
class Strategy {
public:
    virtual ~Strategy() = default;
    virtual void begin(Machine &machine, uint64_t seed) = 0;
    virtual uint32_t choose(Machine &machine) = 0;
    // Exhaustive search: one of so many ways in which a step can go.
    virtual uint32_t branch(uint32_t) { return 0; }
};

class Machine {
public:
    Machine();

    void prepare(const Scenario &scenario, uint64_t seed);
    // One schedule, from the start. False: *failure() says what was wrong.
    bool run(Strategy &strategy, uint64_t seed, bool tracing);
    const Failure &failure() const { return failure_; }
    bool pruned() const { return pruned_; }
    const std::vector<std::string> &trace() const { return trace_; }
    uint32_t steps() const { return time_; }
    uint32_t usual_length() const { return usual_length_; }  // of the scenario's schedules

    // ---- For strategies ----
    std::vector<Thread *> &ready() { return ready_; }
    template <class F>
    void each_thread(F f) {
        for (Thread &t : threads_) f(t);
    }
    Memory &memory() { return memory_; }
    Random &random() { return random_; }
    // Exhaustive search (exhaustive.cpp).
    void set_exhaustive(bool on) { exhaustive_ = on; }
    uint64_t fingerprint() const { return fingerprint_; }
    void prune();

    // ---- For lanes (access.cpp) ----
    const Scenario &scenario() const { return scenario_; }
    uint64_t load(Thread &t, const void *p, Op op);
    void store(Thread &t, const void *p, uint64_t value, StoreKind kind);
    void store_release(Thread &t, const void *p, uint64_t value);
    void drain(Thread &t);
    void barrier(Thread &t);
    bool barrier_any(Thread &t, bool vote);
    bool any(Thread &t, bool vote);
    bool elect(Thread &t, bool vote);
    bool relax(Thread &t);
    uint64_t now(Thread &t);
    void before_counter(Thread &t, const void *p, Op op = Op::kCounter);
    uint64_t counter_loaded(Thread &t, const void *p, uint64_t value);
    void claimed(Thread &t, uint32_t before);
    bool flip(uint32_t one_in) { return !exhaustive_ && random_.one_in(one_in); }

private:
    static constexpr uint32_t kGuardBytes = 16;
    static constexpr uint32_t kMaxSteps = 200000;

    // ---- schedule.cpp ----
    static void body(void *machine, uint32_t id);
    void reset(uint64_t seed);
    void make_calls();
    void begin_call(Rank &rank);
    void begin_block(Rank &rank);
    void end_thread(Thread &t);
    void end_call_if_flushed(uint32_t rank);
    void make_ready(Thread &t);
    void not_ready(Thread &t, State state);
    void point(Thread &t, Op op, bool hidden);
    void schedule(Thread &t);
    Thread *next_thread();
    Thread *hidden_thread();
    void arrive(uint32_t index);
    void wake(uint32_t rank);
    bool all_done() const;
    void meet_block(Thread &t, State state, bool vote);
    void meet_wave(Thread &t, State state, bool vote);
    bool has_news(const Thread &t) const;
    Thread &thread(uint32_t rank, uint32_t local) { return threads_[rank * kFibersOfRank + local]; }
    Rank &rank_of(const Thread &t) { return ranks_[t.rank]; }
    uint32_t call_of(const Thread &t) { return ranks_[t.rank].call; }
    uint32_t stale_version(Thread &t, const Cell &cell);

    // ---- trouble.cpp ----
    void strike();
    void user_abort(uint32_t rank);
    void store_of_host(uint32_t rank, uint32_t to, uint32_t reason, uint32_t because_of);
    bool stuck();

    // ---- exhaustive.cpp ----
    void arrivals_before_load(const Place &place);
    void hash_load(Thread &t, Cell &cell);
    void hash_arrival(const Store &store, Cell &cell);
    void after_failed_poll(Thread &t);
    bool has_seen(const Thread &t, const Place &place) const;
    void check_race(const Store &store);
    bool is_abort_word(const Place &place) const {
        return memory_.offset_of(place.cell) == rdnaar::kAbortWordOffset;
    }

    // ---- judge.cpp ----
    void fail(Check check, const char *format, ...);
    void check_loaded(Thread &t, const Place &place, const Version &version, Op op);
    void check_store_place(Thread &t, const Place &place, StoreKind kind);
    void check_arrival(const Store &store);
    void check_end_of_call(uint32_t rank);
    void check_output(uint32_t rank, uint32_t call);
    void check_surroundings(uint32_t rank, uint32_t call);
    void check_record(uint32_t rank);
    void check_end();
    bool quiet() const { return !disturbed_; }

    // ---- report.cpp ----
    void note(const Thread &t, Op op, const Place *place, uint64_t value) {
        if (tracing_) note_step(t, op, place, value);
    }
    void note_step(const Thread &t, Op op, const Place *place, uint64_t value);
    void note(const char *format, ...);
    std::string wait_graph();
    std::string who(uint32_t rank, uint32_t local) const;
    std::string describe_cell(const Place &place);

    unsigned char *buffer(uint32_t rank, uint32_t launch, bool output);
    unsigned char *output(uint32_t rank, uint32_t launch, const CallSpec &spec);
    unsigned char *input(uint32_t rank, uint32_t launch, const CallSpec &spec);

    Scenario scenario_;
    uint64_t data_seed_ = 0;
    Memory memory_;
    std::vector<Bytes> inputs_[kRanks];  // of each call
    std::vector<Bytes> expected_[kRanks];
    std::vector<unsigned char> buffers_;
    Rank ranks_[kRanks];
    Thread threads_[kRanks * kFibersOfRank];
    Thread *running_ = nullptr;
    std::vector<Thread *> ready_;
    Strategy *strategy_ = nullptr;
    Random random_;
    uint32_t time_ = 0, usual_length_ = 0;
    uint32_t strike_at_ = 0, strikes_when_stuck_ = 0;
    bool disturbed_ = false;  // an abort, or calls that differ: slots may hold remains
    bool exhaustive_ = false, tracing_ = false, failed_ = false, pruned_ = false;
    uint64_t fingerprint_ = 0;
    Failure failure_;
    std::vector<std::string> trace_;
};

}  // namespace explorer
