// SPDX-License-Identifier: Apache-2.0
#include "injection.h"

#include <cstdlib>
#include <sstream>

#include "../runtime/error.h"

namespace rdnaar {

namespace {

uint32_t number_of(const std::string &text) {
    char *end = nullptr;
    const unsigned long value = strtoul(text.c_str(), &end, 10);
    if (text.empty() || *end != 0)
        fail(RDNAAR_E_INVALID_ARGUMENT, "RDNAAR_FAULT: %s is not a number", text.c_str());
    return uint32_t(value);
}

}  // namespace

Injection::Injection(uint32_t rank, uint32_t world) : rank_(rank), world_(world) {
    const char *text = getenv("RDNAAR_FAULT");
    std::istringstream parts(text == nullptr ? "" : text);
    std::getline(parts, point_, ',');
    for (std::string part; std::getline(parts, part, ',');) {
        const size_t equals = part.find('=');
        const std::string key = part.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
        if (key == "rank") {
            at_rank_ = number_of(value);
        } else if (key == "peer") {
            peer_ = number_of(value);
        } else if (key == "call") {
            at_call_ = number_of(value);
        } else if (key == "transport" && (value == "p2p" || value == "host")) {
            at_transport_ = value == "p2p" ? RDNAAR_TRANSPORT_P2P : RDNAAR_TRANSPORT_HOST;
        } else {
            fail(RDNAAR_E_INVALID_ARGUMENT, "RDNAAR_FAULT: %s is not understood", part.c_str());
        }
    }
}

bool Injection::meant() const {
    return rank_ == at_rank_ && (at_transport_ == 0 || at_transport_ == transport_);
}

void Injection::at(const char *point) const {
    if (point_ == point && meant()) fail(RDNAAR_E_SYSTEM, "injected fault at %s", point);
}

Fault Injection::next_call() {
    const uint64_t call = __atomic_fetch_add(&call_, 1u, __ATOMIC_RELAXED);
    if (!meant()) return Fault{kNoFault, 0};
    if (point_ == "launch" && call == at_call_)
        fail(RDNAAR_E_RUNTIME, "injected fault at launch of call %u", uint32_t(call));
    const uint32_t kind = point_ == "corrupt" ? kCorrupt
                          : point_ == "drop"  ? kDrop
                          : point_ == "stall" ? kStall
                                              : kNoFault;
    if (kind == kNoFault || call < at_call_ || peer_ == rank_ || peer_ >= world_)
        return Fault{kNoFault, 0};
    return Fault{kind, (peer_ + world_ - rank_) % world_};
}

}  // namespace rdnaar
