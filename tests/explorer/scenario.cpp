// SPDX-License-Identifier: Apache-2.0
#include "scenario.h"

namespace explorer {

using namespace rdnaar;

namespace {

const char *kDtypeNames[] = {"fp16", "bf16", "fp32"};
const char *kOpNames[] = {"sum", "max", "min", "avg"};
const char *kTroubleNames[] = {"none", "late", "timeout", "user abort", "kill", "mismatch"};

// A thread that is alone in its grid may pass `ll` through in pieces: see protocol/ll.h.
bool may_have_pieces(const CallSpec &call) {
    return call.algo != kAlgoLl || call.blocks * call.threads == 1;
}

CallSpec random_call(Random &random, const Scenario &s, uint32_t index) {
    CallSpec call{};
    call.graph = index;
    call.algo = kAlgos[random.below(kAlgoCount)];
    call.dtype = Dtype(random.below(3));
    call.op = random.one_in(4) ? kAvg : kSum;
    const uint32_t vectors = random.one_in(3) ? random.between(1, 8) : random.between(1, 3);
    const uint32_t in_vector = kVectorBytes / element_bytes(call.dtype);
    call.count = (vectors - 1) * in_vector + random.between(1, in_vector);
    call.blocks = s.cpu_lane ? 1 : random.one_in(2) ? 1 : random.between(1, kBlocks);
    call.threads = s.cpu_lane         ? 1
                   : s.wave == 2      ? 2 * random.between(1, 2)
                   : s.wave == 3      ? 3
                   : random.one_in(2) ? 1
                                      : random.between(1, 3);
    call.piece_vectors = may_have_pieces(call) && random.one_in(2) ? random.between(1, 4) : 8;
    call.in_place = random.one_in(2);
    return call;
}

// A call that differs from `call` in one thing that the signature tells.
CallSpec another_call(Random &random, const Scenario &s, CallSpec call) {
    switch (random.below(4)) {
        case 0: call.count = call.count > 1 ? call.count - 1 : 2; break;
        case 1: call.op = call.op == kSum ? kAvg : kSum; break;
        case 2:
            call.dtype = call.dtype == Dtype::kFp16 ? Dtype::kBf16 : Dtype::kFp16;
            call.count = call.count > 16 ? 16 : call.count;
            break;
        default:
            for (const uint32_t before = call.algo; call.algo == before;)
                call.algo = kAlgos[random.below(kAlgoCount)];
    }
    if (!may_have_pieces(call)) call.piece_vectors = 8;
    call.graph = s.odd_call;
    return call;
}

// Repeats the launches of a stretch of calls, as a graph does.
void add_replays(Random &random, Scenario &s, uint32_t calls) {
    const uint32_t captured = uint32_t(s.calls.size());
    for (uint32_t i = captured; i < calls; i++) s.calls.push_back(s.calls[i % captured]);
    if (captured > 1 && random.one_in(2)) {  // an eager call between the replays
        const uint32_t at = calls - 1;
        s.calls[at] = random_call(random, s, at);
    }
}

uint64_t random_start(Random &random) {
    const uint64_t starts[] = {
        0, 1, (1ull << 31) - 2, (1ull << 32) - 3, (1ull << 32) - 2, (1ull << 32) - 1};
    return random.one_in(2) ? 0 : starts[random.below(6)];
}

}  // namespace

uint32_t element_bytes(Dtype dtype) { return dtype == Dtype::kFp32 ? 4 : 2; }

uint32_t CallSpec::pieces() const {
    return uint32_t(ceil_div(bytes(), piece_vectors * kVectorBytes));
}

uint64_t CallSpec::signature() const { return make_signature(count, uint32_t(dtype), op, algo); }

uint64_t Scenario::round_of(uint32_t index) const {
    uint64_t round = first_round;
    for (uint32_t i = 0; i < index; i++) round += calls[i].pieces();
    return round;
}

Scenario random_scenario(uint64_t seed) {
    Random random(seed);
    Scenario s;
    s.world = random.one_in(2) ? 2 : random.between(2, kRanks);
    s.cpu_lane = random.one_in(4);
    s.cumulative = random.one_in(2);
    s.stale = random.one_in(2);
    s.wave = s.cpu_lane || random.one_in(2) ? 1 : random.between(1, 3);
    for (uint32_t &resident : s.resident) resident = random.between(1, kBlocks);
    s.first_call = random_start(random);
    s.first_round = random.one_in(2) ? s.first_call : random_start(random);
    const uint32_t calls = random.one_in(2) ? random.between(2, 3) : random.between(2, 6);
    const bool graph = random.one_in(3);
    const uint32_t captured = graph ? random.between(1, calls - 1) : calls;
    for (uint32_t i = 0; i < captured; i++) s.calls.push_back(random_call(random, s, i));
    if (graph) add_replays(random, s, calls);
    s.trouble = random.one_in(2) ? Trouble::kNone : Trouble(random.between(1, 5));
    if (s.trouble == Trouble::kMismatch) {
        s.odd_rank = random.below(s.world);
        s.odd_call = random.below(calls);
        s.odd = another_call(random, s, s.calls[s.odd_call]);
        s.calls[s.odd_call].graph = s.odd_call;
        for (uint32_t i = s.odd_call + 1; i < calls; i++)
            s.calls[i].graph = i;  // a launch of the odd call is not repeated
    }
    return s;
}

Scenario smallest_scenario(const std::vector<uint32_t> &algos, uint32_t vectors, bool cumulative) {
    Scenario s;
    s.cumulative = cumulative;
    for (const uint32_t algo : algos)
        s.calls.push_back(CallSpec{algo, Dtype::kFp32, kSum, 2 * vectors, 1, 1, 8, false,
                                   uint32_t(s.calls.size())});
    return s;
}

const char *algo_name(uint32_t algo) {
    return algo == kAlgoLl              ? "ll"
           : algo == kAlgoOneshot       ? "oneshot"
           : algo == kAlgoTwoshot       ? "twoshot"
           : algo == kAlgoReduceScatter ? "reduce_scatter"
                                        : "all_gather";
}

static std::string describe(const CallSpec &call, uint32_t index) {
    char text[160];
    snprintf(text, sizeof text, "%s %s %s count %u, %u x %u threads, %u piece%s%s",
             algo_name(call.algo), kDtypeNames[uint32_t(call.dtype)], kOpNames[call.op], call.count,
             call.blocks, call.threads, call.pieces(), call.pieces() == 1 ? "" : "s",
             call.in_place ? ", in place" : "");
    std::string s = text;
    if (call.graph != index) s += ", launch of call " + std::to_string(call.graph);
    return s;
}

std::string describe(const Scenario &s) {
    char text[256];
    snprintf(text, sizeof text,
             "W %u, %s lane, %s, %s, wave %u, resident blocks %u %u %u %u, first call %llu, first "
             "round %llu, trouble: %s\n",
             s.world, s.cpu_lane ? "CPU" : "GPU",
             s.cumulative ? "cumulative release" : "drained stores",
             s.stale ? "stale loads" : "loads in order", s.wave, s.resident[0], s.resident[1],
             s.resident[2], s.resident[3], (unsigned long long)s.first_call,
             (unsigned long long)s.first_round, kTroubleNames[uint32_t(s.trouble)]);
    std::string all = text;
    for (uint32_t i = 0; i < s.calls.size(); i++)
        all += "  call " + std::to_string(i) + ": " + describe(s.calls[i], i) + "\n";
    if (s.trouble == Trouble::kMismatch)
        all += "  rank " + std::to_string(s.odd_rank) + " makes as call " +
               std::to_string(s.odd_call) + ": " + describe(s.odd, s.odd_call) + "\n";
    return all;
}

}  // namespace explorer
