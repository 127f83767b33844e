// SPDX-License-Identifier: Apache-2.0
// Streams of the host backend: a worker thread that runs jobs in order.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "../runtime/backend.h"

namespace rdnaar {

class HostSequencer;
class HostEvent;

// What a stream can be given. A plain struct, so that queueing allocates nothing.
struct Job {
    enum Kind { kCall, kCopy, kEvent } kind;
    // kCall
    backend::Launch launch;
    HostSequencer *sequencer;
    uint64_t ticket;
    // kCopy
    void *dst;
    const void *src;
    uint64_t nbytes;
    // kEvent
    HostEvent *event;
    uint64_t mark;

    void run();
};

class HostStream {
public:
    HostStream();
    ~HostStream();              // after all its work
    void push(const Job &job);  // waits while the queue is full
    void sync();

    // Between the two, push() records.
    void begin_recording();
    std::vector<Job> end_recording();
    bool recording();

private:
    void work();

    static constexpr uint64_t kCapacity = 256;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::unique_ptr<Job[]> ring_{new Job[kCapacity]};
    uint64_t pushed_ = 0, done_ = 0;
    bool closing_ = false, recording_ = false;
    std::vector<Job> recorded_;
    std::thread worker_;
};

struct HostGraph {
    std::vector<Job> jobs;
};

// Times are taken when the stream passes the mark.
class HostEvent {
public:
    uint64_t next_mark();
    void pass(uint64_t mark);
    void sync();
    uint64_t time_ns();  // fails when it has not been passed

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t marks_ = 0, passed_ = 0, time_ns_ = 0;
};

// Tickets: a call runs when all earlier calls of the communicator have run, on whatever streams.
class HostSequencer final : public backend::Sequencer {
public:
    void submit(const backend::Launch &launch, void *stream) override;
    bool drain(uint32_t timeout_ms) override;
    void run(const backend::Launch &launch, uint64_t ticket);

private:
    void wait_turn(uint64_t ticket);

    std::mutex submit_mutex_;  // a ticket is taken and queued in one step
    uint64_t next_ = 0;        // guarded by submit_mutex_
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t served_ = 0;   // calls that have ended; atomic, changed under mutex_ if waited for
    uint32_t waiting_ = 0;  // atomic
    uint64_t left_ = 0;     // calls after which this object is not touched any more; atomic
};

// Polls before a waiting rank lends its processor: many when every rank can have one, few when they
// share, since then the peer that is waited for may need this one.
uint32_t spin_polls(uint32_t world);

// The live stream that `handle` is, or an error.
HostStream &stream_of(void *handle);

}  // namespace rdnaar
