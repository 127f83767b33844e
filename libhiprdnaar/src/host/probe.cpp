// SPDX-License-Identifier: Apache-2.0
#include "../protocol/probe.h"

#include "../runtime/backend.h"
#include "lane.h"
#include "stream.h"

namespace rdnaar::backend {

double run_probe(uint32_t, const ProbeCall &call, const Grid &, void *stream) {
    sync_stream(stream);
    HostLane lane{spin_polls(2)};
    const uint64_t start = HostLane::now();
    Probe<HostLane>{lane, call}.run();
    return double(HostLane::now() - start) / 1000.0;
}

}  // namespace rdnaar::backend
