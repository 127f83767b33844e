// SPDX-License-Identifier: Apache-2.0
#include "probe.h"

#include <cinttypes>

namespace rdnaar {

static_assert(kProbeStore == uint32_t(RDNAAR_PROBE_STORE) &&
                  kProbeLoad == uint32_t(RDNAAR_PROBE_LOAD) &&
                  kProbeLatency == uint32_t(RDNAAR_PROBE_LATENCY) &&
                  kProbeOrder == uint32_t(RDNAAR_PROBE_ORDER) &&
                  kProbeVisible == uint32_t(RDNAAR_PROBE_VISIBLE),
              "the protocol's values are the public ones");

namespace {

bool moves_bytes(uint32_t kind) { return kind == kProbeStore || kind == kProbeLoad; }

void check(const rdnaar_probe_config &c, uint32_t rank, uint32_t world, uint64_t room) {
    check_range("kind", c.kind, 0, RDNAAR_PROBE_COUNT - 1);
    check_range("source", c.source, 0, world - 1);
    check_range("target", c.target, 0, world - 1);
    check_range("iterations", c.iterations, 1, 65535);
    check_range("nbytes", c.nbytes, 0, room);
    if (c.nbytes % 64 != 0)
        fail(RDNAAR_E_INVALID_ARGUMENT, "config.nbytes is %" PRIu64 ", not a multiple of 64",
             c.nbytes);
    if (moves_bytes(c.kind)) {
        if (c.width != 4 && c.width != 8 && c.width != 16)
            fail(RDNAAR_E_INVALID_ARGUMENT, "config.width is %u, but must be 4, 8 or 16", c.width);
        if (rank != c.source)
            fail(RDNAAR_E_INVALID_ARGUMENT, "this is rank %u: rank %u makes this probe", rank,
                 c.source);
        return;
    }
    check_range("timeout_ms", c.timeout_ms, 1, 60000);
    if (c.source == c.target || (rank != c.source && rank != c.target))
        fail(RDNAAR_E_INVALID_ARGUMENT,
             "rank %u has no part in a probe from rank %u to rank %u; it takes two", rank, c.source,
             c.target);
}

}  // namespace

rdnaar_probe_result run_probe(Communicator &comm, const rdnaar_probe_config &c, void *stream) {
    const Settings &s = comm.settings();
    const uint32_t rank = s.config.rank, world = s.config.world;
    if (world < 2) fail(RDNAAR_E_STATE, "a probe needs a group of at least 2 ranks");
    comm.check_ready();
    // The payload that flags guard: see protocol/probe.h.
    const uint64_t end = s.layout.gather + 2 * world * s.layout.slice_slot;
    check(c, rank, world, end - s.layout.oneshot);
    const uint32_t other = rank == c.source ? c.target : c.source;
    const uint64_t ticks_per_ms = backend::ticks_per_ms(comm.device());

    ProbeCall call{};
    call.own = comm.slab(rank);
    call.target = comm.slab(other);
    call.line = comm.state().probe_line;
    call.region = s.layout.oneshot;
    call.nbytes = c.nbytes == 0 ? end - s.layout.oneshot : c.nbytes;
    call.session = c.session;
    call.timeout_ticks = c.timeout_ms * ticks_per_ms;
    call.kind = c.kind;
    call.width = c.width;
    call.iterations = c.iterations;
    call.rank = rank;
    call.other = other;
    call.active = rank == c.source;
    ProbeLine &line = *comm.state().host_probe_line;
    line = ProbeLine{};
    // Rates want the whole device, the rest a single block.
    const backend::Grid whole =
        backend::grid_for(RDNAAR_ALGO_TWOSHOT, call.nbytes, world, s.config.blocks);
    const backend::Grid grid = moves_bytes(c.kind) ? whole : backend::Grid{1, whole.threads};
    const double microseconds = backend::run_probe(comm.device(), call, grid, stream);

    rdnaar_probe_result r{};
    r.timed_out = line.timed_out;
    if (r.timed_out) return r;
    const double ticks_us = double(line.ticks) * 1000.0 / double(ticks_per_ms);
    if (moves_bytes(c.kind)) {
        r.nbytes = call.nbytes * c.iterations;
        r.microseconds = microseconds;
    } else if (c.kind == kProbeLatency) {
        // The first round trip waits for the other side and is not counted.
        r.microseconds = c.iterations > 1 ? ticks_us / (c.iterations - 1) : 0.0;
    } else if (c.kind == kProbeOrder) {
        r.wrong = line.wrong;
    } else if (!call.active) {
        r.microseconds = ticks_us;
    }
    return r;
}

}  // namespace rdnaar
