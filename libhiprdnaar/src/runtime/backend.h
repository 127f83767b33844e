// SPDX-License-Identifier: Apache-2.0
// What the runtime needs from a machine. One library holds one backend: host/ or device/ defines all of
// this and the linker picks it; nothing is virtual.
//
// All functions throw Error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "../protocol/call.h"
#include "../protocol/probe.h"
#include "error.h"

namespace rdnaar::backend {

// ---- The library and the machine ---------------------------------------------------------------
const char *name();                 // "host", "hip", "cuda"
std::string targets();              // what was compiled for
std::string runtime_description();  // the GPU runtime in use; "" none
uint32_t device_count();
void device_info(uint32_t index, rdnaar_device_info_t &info);
bool peer_access(uint32_t from, uint32_t to);
uint32_t resolve_device(int32_t device);  // -1: the current one; checks the range

// ---- What is fixed by configuration and world ---------------------------------------------------
// How much of a message is in the slab at a time, at most.
StagingSizes staging_limits(uint32_t world, uint64_t max_bytes);

struct Thresholds {
    uint64_t ll, oneshot;  // bytes up to which AUTO uses the algorithm
};
Thresholds default_thresholds(uint32_t world);

struct Grid {
    uint32_t blocks, threads;
};
Grid grid_for(uint32_t algo, uint64_t nbytes, uint32_t world, uint32_t blocks_cap);

uint32_t vector_bytes();     // of Lane::Vec
uint32_t rate_floor_mb_s();  // of stores to a peer: less means that the link is broken

// ---- Memory that peers write to ------------------------------------------------------------------
constexpr size_t kHandleBytes = 160;  // room in the blob for the backend's own description
struct Handle {
    unsigned char bytes[kHandleBytes];
};

// A slab that is mapped into this rank's address space as long as the object lives.
class Mapping {
public:
    virtual ~Mapping() = default;
    virtual unsigned char *base() const = 0;  // as the device sees it
    // Its abort word, written from the host: asynchronous, never waits for the device's work.
    virtual void post_abort_word(uint64_t word) = 0;
};

// This rank's own slab: zeroed, but for the ll region, which holds the sentinel.
class Slab : public Mapping {
public:
    virtual Handle handle() const = 0;
    virtual uint32_t poll_pause() const = 0;  // for Call::poll_pause
    virtual uint32_t transport() const = 0;   // rdnaar_transport: where it lies
    // Whether the memory is gone for other processes that have it open once this object is.
    virtual bool peers_must_close_first() const = 0;
};
std::shared_ptr<Slab> create_slab(uint32_t device, const Layout &layout, uint32_t transport,
                                  uint32_t memory);

// A peer's slab. `handle` comes from outside: all of it is checked.
std::shared_ptr<Mapping> open_slab(uint32_t device, const Layout &layout, const Handle &handle,
                                   uint32_t peer);

// Counters in memory of the device, the two records in memory that the host reads at any time.
class PrivateState {
public:
    virtual ~PrivateState() = default;
    Counters *counters = nullptr;     // as the device sees it
    AbortLine *abort_line = nullptr;  // as the device sees it
    LateLine *late_line = nullptr;
    ProbeLine *probe_line = nullptr;
    AbortLine *host_abort_line = nullptr;  // as the host sees it
    LateLine *host_late_line = nullptr;
    ProbeLine *host_probe_line = nullptr;
};
std::shared_ptr<PrivateState> create_private_state(uint32_t device);

uint64_t ticks_per_ms(uint32_t device);  // of Lane::now()

// ---- Work --------------------------------------------------------------------------------------
struct Launch {
    Call call;
    uint32_t dtype;
    Grid grid;
    uint32_t device;
};

// Puts calls of one communicator in the order in which they were made, whatever their streams.
class Sequencer {
public:
    virtual ~Sequencer() = default;
    // Stream-ordered. Thread-safe. On the null stream of the host: when it returns, the call has run.
    virtual void submit(const Launch &launch, void *stream) = 0;
    // Waits until all submitted calls have ended; false after timeout_ms, which may be 0.
    virtual bool drain(uint32_t timeout_ms) = 0;
};
std::unique_ptr<Sequencer> create_sequencer(uint32_t device);

// Runs a probe to its end; microseconds are those of the device's work as a whole.
double run_probe(uint32_t device, const ProbeCall &call, const Grid &grid, void *stream);

// ---- Raw memory, streams, events -------------------------------------------------------------------
void *allocate(uint32_t device, uint64_t nbytes);
void release(void *ptr);
void copy(void *dst, const void *src, uint64_t nbytes, void *stream);
void *create_stream(uint32_t device);
void sync_stream(void *stream);
void destroy_stream(void *stream);
// Whether work given to the stream is recorded into a graph instead of run.
bool is_recording(void *stream);
void *create_event(uint32_t device);
void record_event(void *event, void *stream);
void sync_event(void *event);
double elapsed_us(void *start, void *stop);
void destroy_event(void *event);
void begin_graph(void *stream);
void *end_graph(void *stream);  // instantiated
void launch_graph(void *graph, void *stream);
void destroy_graph(void *graph);

}  // namespace rdnaar::backend
