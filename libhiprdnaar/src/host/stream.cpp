// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <sched.h>

#include <chrono>
#include <cstring>
#include <set>

#include "../runtime/quiet_thread.h"
#include "kernels.h"
#include "lane.h"

namespace rdnaar {

namespace {

#if RDNAAR_TSAN  // takes a wait on the steady clock for one that never gave up the lock
using BoundClock = std::chrono::system_clock;
#else
using BoundClock = std::chrono::steady_clock;  // nobody sets it
#endif

// Streams and events that exist: a handle from outside is looked up before it is used.
template <class T>
class Live {
public:
    void add(T *object) {
        const std::lock_guard<std::mutex> lock(mutex_);
        objects_.insert(object);
    }
    bool remove(void *handle) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return objects_.erase(static_cast<T *>(handle)) != 0;
    }
    T &get(void *handle, const char *what) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (objects_.count(static_cast<T *>(handle)) == 0)
            fail(RDNAAR_E_INVALID_ARGUMENT, "%p is not a live %s of this library", handle, what);
        return *static_cast<T *>(handle);
    }

private:
    std::mutex mutex_;
    std::set<T *> objects_;
};

Live<HostStream> &streams() {
    static Live<HostStream> *const live = new Live<HostStream>;
    return *live;
}

Live<HostGraph> &graphs() {
    static Live<HostGraph> *const live = new Live<HostGraph>;
    return *live;
}

Live<HostEvent> &events() {
    static Live<HostEvent> *const live = new Live<HostEvent>;
    return *live;
}

}  // namespace

uint32_t spin_polls(uint32_t world) {
    static const uint32_t processors = [] {
        cpu_set_t set;
        return sched_getaffinity(0, sizeof set, &set) == 0 ? uint32_t(CPU_COUNT(&set)) : 1u;
    }();
    return world <= processors ? 4000 : 16;
}

HostStream &stream_of(void *handle) { return streams().get(handle, "stream"); }

// ---- Job, stream -------------------------------------------------------------------------------

void Job::run() {
    switch (kind) {
        case kCall: sequencer->run(launch, ticket); break;
        case kCopy: memcpy(dst, src, nbytes); break;
        case kEvent: event->pass(mark); break;
    }
}

HostStream::HostStream() : worker_(quiet_thread([this] { work(); })) {}

HostStream::~HostStream() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    worker_.join();
}

void HostStream::push(const Job &job) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (recording_) {
        recorded_.push_back(job);
        return;
    }
    changed_.wait(lock, [&] { return pushed_ - done_ < kCapacity; });
    ring_[pushed_++ % kCapacity] = job;
    lock.unlock();
    changed_.notify_all();
}

void HostStream::sync() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t goal = pushed_;
    changed_.wait(lock, [&] { return done_ >= goal; });
}

void HostStream::begin_recording() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (recording_) fail(RDNAAR_E_STATE, "the stream is being recorded already");
    recording_ = true;
}

std::vector<Job> HostStream::end_recording() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!recording_) fail(RDNAAR_E_STATE, "the stream is not being recorded");
    recording_ = false;
    return std::move(recorded_);
}

bool HostStream::recording() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return recording_;
}

void HostStream::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return pushed_ != done_ || closing_; });
        if (pushed_ == done_) return;
        Job &job = ring_[done_ % kCapacity];  // stays in place until done_ passes it
        lock.unlock();
        job.run();
        lock.lock();
        done_++;
        changed_.notify_all();
    }
}

// ---- Events ------------------------------------------------------------------------------------

uint64_t HostEvent::next_mark() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ++marks_;
}

void HostEvent::pass(uint64_t mark) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        passed_ = mark > passed_ ? mark : passed_;
        time_ns_ = HostLane::now();
        changed_.notify_all();  // under the lock: a waiter may destroy the event next
    }
}

void HostEvent::sync() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return passed_ == marks_; });
}

uint64_t HostEvent::time_ns() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (marks_ == 0) fail(RDNAAR_E_STATE, "the event was never recorded");
    if (passed_ != marks_) fail(RDNAAR_E_BUSY, "the stream has not passed the event yet");
    return time_ns_;
}

// ---- Sequencer ---------------------------------------------------------------------------------

void HostSequencer::submit(const backend::Launch &launch, void *stream) {
    if (stream == nullptr) {
        std::unique_lock<std::mutex> lock(submit_mutex_);
        const uint64_t ticket = next_++;
        lock.unlock();
        run(launch, ticket);
        return;
    }
    HostStream &to = stream_of(stream);
    Job job{};
    job.kind = Job::kCall;
    job.launch = launch;
    job.sequencer = this;
    const std::lock_guard<std::mutex> lock(submit_mutex_);
    if (!to.recording()) job.ticket = next_++;  // a recorded call gets one each time it is launched
    to.push(job);
}

void HostSequencer::run(const backend::Launch &launch, uint64_t ticket) {
    wait_turn(ticket);
    const Call &call = launch.call;
    host_kernels().find(call.algo, launch.dtype, call.op, call.world)(call, spin_polls(call.world));
    // A waiter counts itself before it looks at served_; this stores served_ before it looks for
    // waiters: in sequentially consistent order one of the two sees the other.
    __atomic_store_n(&served_, ticket + 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&waiting_, __ATOMIC_SEQ_CST) != 0) {
        const std::lock_guard<std::mutex> lock(mutex_);
        changed_.notify_all();
    }
    __atomic_fetch_add(&left_, 1u, __ATOMIC_RELEASE);  // the last touch: see drain()
}

void HostSequencer::wait_turn(uint64_t ticket) {
    if (__atomic_load_n(&served_, __ATOMIC_ACQUIRE) == ticket) return;
    std::unique_lock<std::mutex> lock(mutex_);
    __atomic_fetch_add(&waiting_, 1u, __ATOMIC_SEQ_CST);
    changed_.wait(lock, [&] { return __atomic_load_n(&served_, __ATOMIC_SEQ_CST) == ticket; });
    __atomic_fetch_sub(&waiting_, 1u, __ATOMIC_SEQ_CST);
}

bool HostSequencer::drain(uint32_t timeout_ms) {
    std::unique_lock<std::mutex> submit_lock(submit_mutex_);
    const uint64_t goal = next_;
    submit_lock.unlock();
    std::unique_lock<std::mutex> lock(mutex_);
    __atomic_fetch_add(&waiting_, 1u, __ATOMIC_SEQ_CST);
    const bool done =
        changed_.wait_until(lock, BoundClock::now() + std::chrono::milliseconds(timeout_ms),
                            [&] { return __atomic_load_n(&served_, __ATOMIC_SEQ_CST) == goal; });
    __atomic_fetch_sub(&waiting_, 1u, __ATOMIC_SEQ_CST);
    lock.unlock();
    // The caller may free this object next: the threads that ran the calls must have let go of it.
    while (done && __atomic_load_n(&left_, __ATOMIC_ACQUIRE) != goal) sched_yield();
    return done;
}

}  // namespace rdnaar

// ---- What the runtime asks for -----------------------------------------------------------------

namespace rdnaar::backend {

std::unique_ptr<Sequencer> create_sequencer(uint32_t) { return std::make_unique<HostSequencer>(); }

void copy(void *dst, const void *src, uint64_t nbytes, void *stream) {
    if (stream == nullptr) {
        memcpy(dst, src, nbytes);
        return;
    }
    Job job{};
    job.kind = Job::kCopy;
    job.dst = dst;
    job.src = src;
    job.nbytes = nbytes;
    stream_of(stream).push(job);
}

void *create_stream(uint32_t) {
    HostStream *stream = new HostStream;
    streams().add(stream);
    return stream;
}

void sync_stream(void *stream) {
    if (stream == nullptr) return;  // its work is done already
    HostStream &s = stream_of(stream);
    if (s.recording())
        fail(RDNAAR_E_STATE, "the stream is being recorded: it cannot be waited for");
    s.sync();
}

void destroy_stream(void *stream) {
    if (!streams().remove(stream))
        fail(RDNAAR_E_INVALID_ARGUMENT, "%p is not a live stream of this library", stream);
    delete static_cast<HostStream *>(stream);
}

bool is_recording(void *stream) { return stream != nullptr && stream_of(stream).recording(); }

void *create_event(uint32_t) {
    HostEvent *event = new HostEvent;
    events().add(event);
    return event;
}

void record_event(void *event, void *stream) {
    HostEvent &e = events().get(event, "event");
    if (stream == nullptr) {
        e.pass(e.next_mark());
        return;
    }
    HostStream &to = stream_of(stream);
    if (to.recording()) fail(RDNAAR_E_STATE, "events cannot be recorded into a graph");
    Job job{};
    job.kind = Job::kEvent;
    job.event = &e;
    job.mark = e.next_mark();
    to.push(job);
}

void sync_event(void *event) { events().get(event, "event").sync(); }

double elapsed_us(void *start, void *stop) {
    const uint64_t from = events().get(start, "event").time_ns();
    const uint64_t to = events().get(stop, "event").time_ns();
    return (double(to) - double(from)) / 1000.0;
}

void destroy_event(void *event) {
    events().get(event, "event").sync();  // a stream may still have to pass it
    if (!events().remove(event))
        fail(RDNAAR_E_INVALID_ARGUMENT, "%p is not a live event of this library", event);
    delete static_cast<HostEvent *>(event);
}

void begin_graph(void *stream) { stream_of(stream).begin_recording(); }

void *end_graph(void *stream) {
    HostGraph *graph = new HostGraph{stream_of(stream).end_recording()};
    graphs().add(graph);
    return graph;
}

void launch_graph(void *graph, void *stream) {
    for (const Job &job : graphs().get(graph, "graph").jobs) {
        if (job.kind == Job::kCall) {
            job.sequencer->submit(job.launch, stream);
        } else {
            copy(job.dst, job.src, job.nbytes, stream);
        }
    }
}

void destroy_graph(void *graph) {
    if (!graphs().remove(graph))
        fail(RDNAAR_E_INVALID_ARGUMENT, "%p is not a live graph of this library", graph);
    delete static_cast<HostGraph *>(graph);
}

}  // namespace rdnaar::backend
