// SPDX-License-Identifier: Apache-2.0
// What must hold: after each step, at the end of each call and of the schedule.
#include <cstdarg>
#include <cstring>

#include "machine.h"

namespace explorer {

using namespace rdnaar;

const char *check_name(Check check) {
    const char *names[] = {"result", "I1",       "I2",    "I3",       "I4",    "I5",     "I6",
                           "I8",     "deadlock", "clean", "counters", "abort", "endless"};
    return names[uint32_t(check)];
}

// The first thing that is wrong. The schedule ends at the next step.
void Machine::fail(Check check, const char *format, ...) {
    if (failed_) return;
    failed_ = true;
    std::vector<char> text(16 << 10);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    failure_ = Failure{check, text.data()};
}

// ---- Steps: loads and stores ----------------------------------------------------------------

// I3: the number of the call, and with it the half in use, is the same for all threads of a rank.
uint64_t Machine::counter_loaded(Thread &t, const void *p, uint64_t value) {
    const Rank &rank = rank_of(t);
    if (!quiet()) return value;
    const bool is_call = p == &rank.counters.call;
    if (!is_call && p != &rank.counters.round) return value;
    const uint64_t right =
        is_call ? scenario_.first_call + rank.call : scenario_.round_of(rank.call);
    if (value != right)
        fail(Check::kI3, "%s begins with %s %llu, but it is %llu", who(t.rank, t.local).c_str(),
             is_call ? "call" : "round", (unsigned long long)value, (unsigned long long)right);
    return value;
}

void Machine::check_loaded(Thread &t, const Place &place, const Version &version, Op op) {
    if (!quiet() || (op != Op::kGet && op != Op::kGetLl)) return;
    const Origin &from = version.origin;
    if (op == Op::kGetLl && version.value == kSentinel) return;  // nothing yet
    const bool of_call = from.rank != 0xFF && from.call == call_of(t);
    const bool announced = op == Op::kGetLl || memory_.cell(place).now.since == version.since;
    if (of_call && from.thread == t.local && announced) return;
    const std::string what = who(t.rank, t.local) + " reads " + describe_cell(place);
    if (!of_call)
        fail(op == Op::kGet ? Check::kI5 : Check::kI2, "%s: %s, not data of call %u", what.c_str(),
             from.rank == 0xFF ? "never written"
                               : ("data of call " + std::to_string(from.call)).c_str(),
             call_of(t));
    else if (from.thread != t.local)
        fail(Check::kI4, "%s: written by %s, which is not its twin", what.c_str(),
             who(from.rank, from.thread).c_str());
    else
        fail(Check::kI5, "%s: an old value, since no flag has announced the new one", what.c_str());
}

// Every word has one kind of writer: see protocol/layout.h.
void Machine::check_store_place(Thread &t, const Place &to, StoreKind kind) {
    const Layout &l = memory_.layout();
    const uint64_t offset = memory_.offset_of(to.cell);
    auto within = [&](uint64_t begin, uint64_t size) {
        return offset >= begin && offset < begin + size;
    };
    const uint64_t slots = 2 * scenario_.world;
    const uint32_t algo = scenario_.call(t.rank, call_of(t)).algo;
    const uint32_t source = source_of(l, scenario_.world, uint32_t(offset));
    bool right = true;
    switch (kind) {
        case StoreKind::kPut:
            right = to.rank != t.rank && source == t.rank && algo != kAlgoLl &&
                    (algo == kAlgoTwoshot ? within(l.scatter, 2 * slots * l.slice_slot)
                                          : within(l.oneshot, slots * l.oneshot_slot));
            break;
        case StoreKind::kPutLl:
            right = to.rank != t.rank && source == t.rank && algo == kAlgoLl &&
                    within(l.ll, slots * l.ll_slot);
            break;
        case StoreKind::kClear:
            right = to.rank == t.rank && source != t.rank && within(l.ll, slots * l.ll_slot);
            break;
        case StoreKind::kFlag:
            right = to.rank != t.rank && source == t.rank && within(kFlagsOffset, kFlagsBytes) &&
                    (offset - kFlagsOffset) / kLine % kMaxBlocks == t.block;
            break;
        case StoreKind::kWord:
            right = offset == kAbortWordOffset ||
                    (to.rank != t.rank && source == t.rank &&
                     (within(kCardsOffset, kIdentityOffset - kCardsOffset) ||
                      within(kFlagsOffset, kFlagsBytes)));
            break;
    }
    if (!right)
        fail(Check::kClean, "%s stores to %s of rank %u, which is not its place",
             who(t.rank, t.local).c_str(), describe_cell(to).c_str(), to.rank);
}

// I2: a word is written again only after its reader has taken what was there, and a clear takes
// nothing away but that.
void Machine::check_arrival(const Store &store) {
    if (!quiet()) return;
    const Cell &cell = memory_.cell(store.to);
    const char *wrong = nullptr;
    if (store.kind == StoreKind::kPut && cell.unread)
        wrong = "was not read yet";
    else if (store.kind == StoreKind::kPutLl && cell.now.value != kSentinel)
        wrong = "was not cleared yet";
    else if (store.kind == StoreKind::kClear && cell.now.origin.call != store.origin.call)
        wrong = "was data of another call, which is cleared unread";
    if (wrong != nullptr)
        fail(Check::kI2, "%s of rank %u %s when a store of %s arrived",
             describe_cell(store.to).c_str(), store.to.rank, wrong,
             who(store.origin.rank, store.origin.thread).c_str());
}

// ---- The end of a call ------------------------------------------------------------------------

void Machine::check_end_of_call(uint32_t r) {
    const Rank &rank = ranks_[r];
    if (quiet())
        for (uint32_t p = 0; p < scenario_.world; p++)
            if (ranks_[p].call < rank.call)
                fail(Check::kI1, "rank %u has ended call %u, which rank %u has not begun", r,
                     rank.call, p);
    check_record(r);
    check_output(r, rank.call);
}

// NaN exactly where the rank gave up: all of it in later calls, what was not finished in this one.
void Machine::check_output(uint32_t r, uint32_t c) {
    const Rank &rank = ranks_[r];
    const CallSpec &spec = scenario_.call(r, c);
    const uint32_t launch = rank.launch[c];
    const unsigned char *out = output(r, launch, spec);
    const uint32_t count = spec.count * spec.out_chunks(scenario_.world);
    const uint32_t nan = nan_bits(spec.dtype);
    const bool no_result = rank.given_up_before ||
                           (scenario_.trouble == Trouble::kMismatch && c >= scenario_.odd_call);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t is = element_at(spec.dtype, out, i);
        if (is == nan && (no_result || rank.counters.claimed != 0)) continue;
        const uint32_t right = no_result ? nan : element_at(spec.dtype, expected_[r][c].data(), i);
        if (is == right) continue;
        fail(no_result || is == nan ? Check::kAbort : Check::kResult,
             "rank %u, call %u, element %u of %u is %x, but must be %x%s", r, c, i, count, is,
             right, no_result ? ": the call was aborted" : "");
        return;
    }
    check_surroundings(r, c);
}

// Nothing but the output has changed.
void Machine::check_surroundings(uint32_t r, uint32_t c) {
    const CallSpec &spec = scenario_.call(r, c);
    const uint32_t launch = ranks_[r].launch[c];
    const Bytes &data = inputs_[r][c];
    const uint32_t out_bytes = spec.bytes() * spec.out_chunks(scenario_.world);
    auto kept = [](const unsigned char *p, uint32_t nbytes) {
        for (uint32_t i = 0; i < kGuardBytes; i++)
            if (p[-int(i) - 1] != 0x5A || p[nbytes + i] != 0x5A) return false;
        return true;
    };
    const bool shared = spec.in_place;
    const bool out_holds_in = shared && spec.algo == kAlgoAllGather;
    if (!out_holds_in && !kept(input(r, launch, spec), uint32_t(data.size())))
        fail(Check::kClean, "rank %u, call %u: written beside the input", r, c);
    if ((!shared || out_holds_in) && !kept(output(r, launch, spec), out_bytes))
        fail(Check::kClean, "rank %u, call %u: written beside the output", r, c);
    for (uint32_t i = 0; i < data.size(); i++) {
        const unsigned char *p = input(r, launch, spec) + i;
        const unsigned char *out = output(r, launch, spec);
        if (p >= out && p < out + out_bytes) continue;
        if (*p != data[i]) fail(Check::kClean, "rank %u, call %u: the input has changed", r, c);
    }
}

// The reason that a record gives is true.
void Machine::check_record(uint32_t r) {
    const Rank &rank = ranks_[r];
    const AbortLine &line = rank.abort_line;
    if ((rank.counters.claimed != 0) != (line.valid != 0)) {
        fail(Check::kAbort, "rank %u has given up %s a record", r,
             line.valid != 0 ? "no more, but has" : "without");
        return;
    }
    if (line.valid == 0) return;
    const bool mismatch = scenario_.trouble == Trouble::kMismatch;
    const bool user = scenario_.trouble == Trouble::kUserAbort;
    bool right = line.peer >= 0 && line.peer < int32_t(scenario_.world);
    switch (line.reason) {
        case kTimeout: right = right && rank.struck; break;
        case kMismatch:
            right =
                right && mismatch && line.call == scenario_.first_call + scenario_.odd_call &&
                line.seen == scenario_.call(uint32_t(line.peer), scenario_.odd_call).signature() &&
                line.seen != line.expected;
            break;
        case kPeerAborted: right = right && (user || disturbed_); break;
        case kPeerDead: right = right && ranks_[line.peer].killed; break;
        case kUser: right = right && user && line.peer == int32_t(r); break;
        default: right = false;
    }
    if (!right)
        fail(Check::kAbort,
             "rank %u records reason %u, peer %d, call %llu, signatures %llx and %llx, which is "
             "not what happened",
             r, line.reason, line.peer, (unsigned long long)line.call,
             (unsigned long long)line.expected, (unsigned long long)line.seen);
}

// ---- The end of the schedule ------------------------------------------------------------------

void Machine::check_end() {
    bool told = false, any_given_up = false;
    for (uint32_t r = 0; r < scenario_.world; r++) {
        const uint64_t word =
            memory_.cell(memory_.place(memory_.slab(r) + kAbortWordOffset)).now.value;
        any_given_up = any_given_up || ranks_[r].counters.claimed != 0;
        told = told || word != 0;
    }
    for (uint32_t r = 0; r < scenario_.world; r++) {
        const Counters &counters = ranks_[r].counters;
        const uint64_t word =
            memory_.cell(memory_.place(memory_.slab(r) + kAbortWordOffset)).now.value;
        if ((told || any_given_up) && word == 0 && !ranks_[r].killed)
            fail(Check::kAbort, "rank %u was not told of the abort", r);
        if (!quiet() || ranks_[r].killed || scenario_.trouble == Trouble::kKill) continue;
        const uint32_t calls = uint32_t(scenario_.calls.size());
        if (counters.call != scenario_.first_call + calls ||
            counters.round != scenario_.round_of(calls) || counters.arrived != 0)
            fail(Check::kCounters, "rank %u ends with call %llu, round %llu, arrived %u", r,
                 (unsigned long long)counters.call, (unsigned long long)counters.round,
                 counters.arrived);
        const Layout &l = memory_.layout();
        for (uint32_t c = 0; c < memory_.cells(); c++) {
            const uint32_t offset = memory_.offset_of(c);
            if (offset < l.ll || offset >= l.ll + 2 * scenario_.world * l.ll_slot) continue;
            const Place place{r, c};
            if (memory_.cell(place).now.value != kSentinel)
                fail(Check::kClean, "%s of rank %u is left uncleared", describe_cell(place).c_str(),
                     r);
        }
    }
}

}  // namespace explorer
