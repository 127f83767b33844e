// SPDX-License-Identifier: Apache-2.0
// What goes wrong, and where: read from the environment when a communicator is made. Only in builds
// with FAULTS=1.
//
//   RDNAAR_FAULT=POINT[,rank=R][,peer=P][,call=N][,transport=p2p|host]
//
//   init export register   that function fails on rank R
//   launch                 the N-th call of rank R fails as if the runtime had refused it
//   corrupt drop stall     what rank R sends to rank P from call N on (see faulty_lane.h)
//
// R is 0 unless given, P is 0, N is 0; a transport limits it to slabs that lie there.
#pragma once

#include <string>

#include "fault.h"

namespace rdnaar {

class Injection {
public:
    // Throws E_INVALID_ARGUMENT if the variable is not understood.
    Injection(uint32_t rank, uint32_t world);
    // Where this rank's slab lies, once there is one.
    void set_transport(uint32_t transport) { transport_ = transport; }

    // Throws if this is the point that is to fail.
    void at(const char *point) const;
    // The link of the next call; throws if the call is to fail.
    Fault next_call();

private:
    bool meant() const;

    const uint32_t rank_, world_;
    std::string point_;
    uint32_t at_rank_ = 0, peer_ = 0, at_transport_ = 0;
    uint64_t at_call_ = 0, call_ = 0;  // counts calls; atomic
    uint32_t transport_ = 0;
};

}  // namespace rdnaar
