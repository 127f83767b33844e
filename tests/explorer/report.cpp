// SPDX-License-Identifier: Apache-2.0
// Traces and wait graphs: what a person reads when a check has failed.
#include <cstdarg>

#include "machine.h"

namespace explorer {

using namespace rdnaar;

namespace {
const char *kOpTexts[] = {"begins",  "loads",       "acquires", "gets",   "polls",
                          "puts",    "puts",        "clears",   "stores", "posts",
                          "barrier", "block votes", "votes",    "drains", "relaxes",
                          "clock",   "counter",     "record",   "ends"};
const char *kStateTexts[] = {"has not begun",
                             "can go on",
                             "waits at a barrier",
                             "waits at a barrier with a vote",
                             "waits for the vote of its wave",
                             "waits for the vote of its wave",
                             "waits for its wave",
                             "waits for its stores",
                             "polls",
                             "has ended"};
}  // namespace

std::string Machine::who(uint32_t rank, uint32_t local) const {
    char text[64];
    if (local == kHostThread) {
        snprintf(text, sizeof text, "host of rank %u", rank);
    } else {
        snprintf(text, sizeof text, "rank %u block %u thread %u", rank, local / kThreads,
                 local % kThreads);
    }
    return text;
}

std::string Machine::describe_cell(const Place &place) {
    return describe_place(memory_.layout(), scenario_.world, memory_.offset_of(place.cell));
}

void Machine::note(const char *format, ...) {
    if (!tracing_) return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    trace_.push_back(std::to_string(time_) + " " + text);
}

void Machine::note_step(const Thread &t, Op op, const Place *place, uint64_t value) {
    const std::string where = place == nullptr ? "" : describe_cell(*place);
    if (place == nullptr) {
        note("%s, call %u: %s", who(t.rank, t.local).c_str(), call_of(t), kOpTexts[uint32_t(op)]);
        return;
    }
    const bool to_peer = place->rank != t.rank;
    note("%s, call %u: %s %s%s = %llx", who(t.rank, t.local).c_str(), call_of(t),
         kOpTexts[uint32_t(op)], where.c_str(),
         to_peer ? (" of rank " + std::to_string(place->rank)).c_str() : "",
         (unsigned long long)value);
}

// Who waits for what, one line a thread that has not ended; for a poll, the last words it saw and the
// ranks that write them.
std::string Machine::wait_graph() {
    std::string graph;
    for (uint32_t r = 0; r < scenario_.world; r++) {
        if (ranks_[r].killed) graph += "  rank " + std::to_string(r) + " was killed\n";
        for (uint32_t i = 0; i < kFibersOfRank; i++) {
            const Thread &t = thread(r, i);
            if (t.state == State::kIdle || t.state == State::kEnded) continue;
            graph += "  " + who(r, i) + ", call " + std::to_string(call_of(t)) + " (" +
                     algo_name(scenario_.call(r, call_of(t)).algo) + ", call number " +
                     std::to_string(scenario_.first_call + call_of(t)) + ") " +
                     kStateTexts[uint32_t(t.state)] + "\n";
            for (uint32_t k = 0; t.state == State::kPolling && k < t.seen_count; k++) {
                const Place &place = t.seen[k].place;
                const uint32_t source =
                    source_of(memory_.layout(), scenario_.world, memory_.offset_of(place.cell));
                char text[160];
                snprintf(text, sizeof text, "    -> %s: %s is %llx\n",
                         source == scenario_.world ? "any rank"
                                                   : ("rank " + std::to_string(source)).c_str(),
                         describe_cell(place).c_str(),
                         (unsigned long long)memory_.cell(place).now.value);
                graph += text;
            }
        }
    }
    return graph;
}

}  // namespace explorer
