// SPDX-License-Identifier: Apache-2.0
// Calls, blocks and threads of each rank, and the choice of the next step.
#include <cstring>

#include "kernels.h"

namespace explorer {

using namespace rdnaar;

namespace {
constexpr uint32_t kBufferBytes = kRanks * kMessageBytes + 64;  // with guards before and after
constexpr uint32_t kMaxCalls = 8;
constexpr uint32_t kFirstGuess = 300;  // of the length of a schedule, in steps
constexpr unsigned char kGuard = 0x5A, kUnwritten = 0xA5;
}  // namespace

Machine::Machine() : buffers_(kRanks * kMaxCalls * 2 * kBufferBytes) {
    for (uint32_t id = 0; id < kRanks * kFibersOfRank; id++) {
        Thread &t = threads_[id];
        t.fiber.prepare(body, this, id);
        t.rank = uint8_t(id / kFibersOfRank);
        t.local = uint8_t(id % kFibersOfRank);
        t.block = t.local / kThreads;
        t.index = t.local % kThreads;
        t.state = State::kIdle;
    }
}

unsigned char *Machine::buffer(uint32_t rank, uint32_t launch, bool output) {
    return buffers_.data() + ((rank * kMaxCalls + launch) * 2 + output) * kBufferBytes +
           kGuardBytes;
}

// In place, a reduce-scatter leaves its chunk in the input, and an all-gather finds its own in the output.
unsigned char *Machine::input(uint32_t rank, uint32_t launch, const CallSpec &spec) {
    if (spec.in_place && spec.algo == kAlgoAllGather)
        return buffer(rank, launch, true) + rank * spec.bytes();
    return buffer(rank, launch, false);
}

unsigned char *Machine::output(uint32_t rank, uint32_t launch, const CallSpec &spec) {
    if (!spec.in_place || spec.algo == kAlgoAllGather) return buffer(rank, launch, true);
    return buffer(rank, launch, false) +
           (spec.algo == kAlgoReduceScatter ? rank * spec.bytes() : 0);
}

// ---- A scenario -----------------------------------------------------------------------------

void Machine::prepare(const Scenario &scenario, uint64_t seed) {
    scenario_ = scenario;
    usual_length_ = 0;
    memory_.prepare(scenario);
    for (uint32_t r = 0; r < kRanks; r++) {
        expected_[r].clear();
        inputs_[r].clear();
    }
    const uint32_t world = scenario.world;
    for (uint32_t c = 0; c < scenario.calls.size(); c++) {
        std::vector<Bytes> of_ranks;
        for (uint32_t r = 0; r < world; r++) {
            inputs_[r].push_back(make_input(scenario.call(r, c), world, r, mix(seed, c)));
            of_ranks.push_back(make_input(scenario.calls[c], world, r, mix(seed, c)));
        }
        for (uint32_t r = 0; r < world; r++)
            expected_[r].push_back(make_output(scenario.calls[c], r, of_ranks));
    }
    make_calls();
}

void Machine::make_calls() {
    for (uint32_t r = 0; r < scenario_.world; r++) {
        Rank &rank = ranks_[r];
        rank.launch.clear();
        rank.calls.clear();
        for (uint32_t c = 0; c < scenario_.calls.size(); c++) {
            const CallSpec &spec = scenario_.call(r, c);
            rank.launch.push_back(spec.graph);
            Call call{};
            call.in = input(r, c, spec);
            call.out = output(r, c, spec);
            call.count = spec.count;
            for (uint32_t k = 0; k < scenario_.world; k++)
                call.slab[k] = memory_.slab((r + k) % scenario_.world);
            call.counters = &rank.counters;
            call.abort_line = &rank.abort_line;
            call.late_line = &rank.late_line;
            call.layout = memory_.layout();
            call.signature = spec.signature();
            call.piece_bytes = spec.piece_vectors * kVectorBytes;
            call.pieces = spec.pieces();
            call.timeout_ticks = call.warmup_timeout_ticks = kTimeoutTicks;
            call.late_ticks = kLateTicks;
            call.rank = r;
            call.world = scenario_.world;
            call.algo = spec.algo;
            call.op = spec.op;
            rank.calls.push_back(call);
        }
    }
}

// ---- A schedule -----------------------------------------------------------------------------

void Machine::reset(uint64_t seed) {
    random_ = Random(seed);
    memory_.reset();
    ready_.clear();
    trace_.clear();
    time_ = 0;
    fingerprint_ = 0;
    strikes_when_stuck_ = 0;
    failed_ = pruned_ = disturbed_ = false;
    const bool strikes = scenario_.trouble != Trouble::kNone &&
                         scenario_.trouble != Trouble::kMismatch && !exhaustive_;
    strike_at_ = strikes ? 1 + random_.below(usual_length_ == 0 ? kFirstGuess : usual_length_) : 0;
    for (Thread &t : threads_) {
        if (t.state != State::kIdle && t.state != State::kEnded) t.fiber.abandon();
        t.state = State::kIdle;
        t.hash = mix(t.rank, t.local);
    }
    for (uint32_t r = 0; r < scenario_.world; r++) {
        Rank &rank = ranks_[r];
        rank.counters = Counters{};
        rank.counters.call = scenario_.first_call;
        rank.counters.round = scenario_.first_round;
        rank.abort_line = AbortLine{};
        rank.late_line = LateLine{};
        rank.call = 0;
        rank.killed = rank.struck = rank.given_up_before = false;
        rank.clock = 1000;
        rank.arrivals = rank.polling = 0;
        begin_call(rank);
    }
}

bool Machine::run(Strategy &strategy, uint64_t seed, bool tracing) {
    strategy_ = &strategy;
    tracing_ = tracing;
    reset(seed);
    strategy.begin(*this, seed);
    if (exhaustive_ && scenario_.trouble == Trouble::kUserAbort) user_abort(0);
    running_ = next_thread();
    if (running_ != nullptr) running_->fiber.enter_from_main();
    if (!failed_ && !pruned_) check_end();
    if (usual_length_ == 0) usual_length_ = time_;
    return !failed_;
}

// What comes before the first kernel of a call: new input, and an output that nobody has written.
void Machine::begin_call(Rank &rank) {
    if (rank.call == scenario_.calls.size()) return;
    const uint32_t r = uint32_t(&rank - ranks_), launch = rank.launch[rank.call];
    const CallSpec &spec = scenario_.call(r, rank.call);
    for (const bool output : {false, true}) {
        unsigned char *p = buffer(r, launch, output);
        memset(p - kGuardBytes, kGuard, kBufferBytes);
    }
    const Bytes &data = inputs_[r][rank.call];
    memset(output(r, launch, spec), kUnwritten, spec.bytes() * spec.out_chunks(scenario_.world));
    memcpy(input(r, launch, spec), data.data(), data.size());
    if (scenario_.trouble == Trouble::kMismatch && rank.call == scenario_.odd_call)
        disturbed_ = true;
    rank.begun_blocks = rank.running_blocks = 0;
    rank.flushing = false;
    rank.given_up_before = rank.counters.claimed != 0;
    while (rank.begun_blocks < spec.blocks && rank.begun_blocks < scenario_.resident[r])
        begin_block(rank);
}

// Blocks start in the order of their numbers: a device promises no more.
void Machine::begin_block(Rank &rank) {
    const uint32_t r = uint32_t(&rank - ranks_), block = rank.begun_blocks++;
    const CallSpec &spec = scenario_.call(r, rank.call);
    rank.running_blocks++;
    rank.running[block] = spec.threads;
    for (uint32_t i = 0; i < spec.threads; i++) {
        Thread &t = thread(r, block * kThreads + i);
        t.call = &rank.calls[rank.launch[rank.call]];
        t.next = Op::kBegin;
        t.hidden = true;
        t.fresh = time_;
        t.looked = t.saw_old = t.poll_failed = false;
        t.seen_count = 0;
        memset(t.known, 0, sizeof t.known);
        make_ready(t);
    }
}

void Machine::body(void *machine, uint32_t id) {
    Machine &m = *static_cast<Machine *>(machine);
    Thread &t = m.threads_[id];
    const CallSpec &spec = m.scenario_.call(t.rank, m.call_of(t));
    m.note(t, Op::kBegin, nullptr, 0);
    find_kernel(m.scenario_.cpu_lane, spec.algo, spec.dtype, m.scenario_.world)(
        m, t, *t.call, spec.blocks, spec.threads);
    m.end_thread(t);
}

void Machine::end_thread(Thread &t) {
    note(t, Op::kEnd, nullptr, 0);
    not_ready(t, State::kEnded);
    Rank &rank = rank_of(t);
    if (--rank.running[t.block] == 0) {
        rank.running_blocks--;
        if (rank.begun_blocks < scenario_.call(t.rank, rank.call).blocks) {
            begin_block(rank);
        } else if (rank.running_blocks == 0) {
            rank.flushing = true;
            if (exhaustive_)  // before the next call, which the thread itself begins
                memory_.bring_all_of(t.rank, t.local, true, [&](uint32_t i) { arrive(i); });
            end_call_if_flushed(t.rank);
        }
    }
    schedule(t);
}

// A kernel ends when its stores to memory of its own device are there. Those to peers may be on
// their way still.
void Machine::end_call_if_flushed(uint32_t r) {
    Rank &rank = ranks_[r];
    if (!rank.flushing || rank.killed || memory_.has_pending_to_self(r)) return;
    check_end_of_call(r);
    rank.flushing = false;
    rank.call++;
    begin_call(rank);
}

// ---- Steps ----------------------------------------------------------------------------------

void Machine::make_ready(Thread &t) {
    t.state = State::kReady;
    t.place_in_ready = uint32_t(ready_.size());
    ready_.push_back(&t);
}

void Machine::not_ready(Thread &t, State state) {
    if (t.state == State::kReady) {
        ready_[t.place_in_ready] = ready_.back();
        ready_[t.place_in_ready]->place_in_ready = t.place_in_ready;
        ready_.pop_back();
    }
    if (state == State::kPolling) rank_of(t).polling++;
    t.state = state;
}

void Machine::point(Thread &t, Op op, bool hidden) {
    t.next = op;
    if (exhaustive_ && hidden) return;
    t.hidden = hidden;
    schedule(t);
}

void Machine::schedule(Thread &t) {
    Thread *next = next_thread();
    if (next == nullptr) {
        Fiber::leave_to_main(t.fiber);
    } else if (next != &t) {
        running_ = next;
        Fiber::hand_over(t.fiber, next->fiber);
    }
}

// Lets stores arrive and trouble strike until a thread is to go on; null: the schedule is over.
Thread *Machine::next_thread() {
    for (;;) {
        if (failed_ || pruned_) return nullptr;
        if (++time_ > kMaxSteps) {
            fail(Check::kEndless, "no end after %u steps\n%s", kMaxSteps, wait_graph().c_str());
            return nullptr;
        }
        if (strike_at_ != 0 && time_ >= strike_at_) strike();
        if (exhaustive_)
            if (Thread *hidden = hidden_thread()) return hidden;
        const uint32_t threads = uint32_t(ready_.size());
        const uint32_t all = threads + uint32_t(memory_.ready().size());
        if (exhaustive_ && threads == 0 && all != 0) {  // no thread's step can show their order
            arrive(0);
            continue;
        }
        if (all == 0) {
            if (stuck()) continue;
            return nullptr;
        }
        const uint32_t choice = strategy_->choose(*this);
        if (pruned_) return nullptr;
        if (choice < threads) return ready_[choice];
        arrive(choice - threads);
    }
}

Thread *Machine::hidden_thread() {
    for (Thread *t : ready_)
        if (t->hidden) return t;
    return nullptr;
}

void Machine::prune() { pruned_ = true; }

void Machine::arrive(uint32_t index) {
    const Store store = memory_.take(index);
    check_arrival(store);
    memory_.arrive(store, time_);
    Cell &cell = memory_.cell(store.to);
    if (store.to.rank == store.origin.rank && store.origin.thread != kHostThread)
        cell.read_at[store.origin.thread] = time_;
    if (exhaustive_) hash_arrival(store, cell);
    if (tracing_)
        note("      arrives: %s of rank %u = %llx, from %s",
             describe_place(memory_.layout(), scenario_.world, memory_.offset_of(store.to.cell))
                 .c_str(),
             store.to.rank, (unsigned long long)store.value,
             who(store.origin.rank, store.origin.thread).c_str());
    if (!exhaustive_) wake(store.to.rank);
    if (store.origin.thread != kHostThread) {
        Thread &from = thread(store.origin.rank, store.origin.thread);
        if (from.state == State::kDraining &&
            !memory_.has_pending(store.origin.rank, store.origin.thread)) {
            from.hidden = true;
            make_ready(from);
        }
    }
    end_call_if_flushed(store.origin.rank);
}

// Threads that poll have something new to look at.
void Machine::wake(uint32_t r) {
    ranks_[r].arrivals++;
    for (uint32_t i = 0; i < kFibersOfRank && ranks_[r].polling != 0; i++) {
        Thread &t = thread(r, i);
        if (t.state == State::kPolling) {
            ranks_[r].polling--;
            t.hidden = true;
            make_ready(t);
        }
    }
}

bool Machine::all_done() const {
    for (uint32_t r = 0; r < scenario_.world; r++)
        if (!ranks_[r].killed && ranks_[r].call != scenario_.calls.size()) return false;
    return true;
}

}  // namespace explorer
