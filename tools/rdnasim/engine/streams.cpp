// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "clock.h"
#include "guard.h"

namespace rdnasim {

namespace {

// Nothing but polling: after some rounds the core is offered, after some time given away for a while.
// Long enough for a kernel to notice what the host has just done, as it would on a GPU.
constexpr u32 kRoundsUntilYield = 4;
constexpr u64 kNanosecondsUntilNap = 200000;
constexpr auto kNap = std::chrono::microseconds(30);

void copy(const Command &c) { memcpy(c.to, c.from, c.nbytes); }

void fill(const Command &c) {
    if (c.word == 0 && c.nbytes >= (1 << 16) && Allocations::get().drop_pages(c.to, c.nbytes))
        return;
    u8 *to = static_cast<u8 *>(c.to);
    if (c.word_bytes == 1 || c.word == (c.word & 0xFF) * 0x01010101u) {
        memset(to, int(c.word & 0xFF), c.nbytes);
        return;
    }
    for (size_t at = 0; at + 4 <= c.nbytes; at += 4) memcpy(to + at, &c.word, 4);
}

void print_statistics() {
    const Queue &queue = Queue::get();
    const double seconds = double(queue.busy_nanoseconds()) / 1e9;
    fprintf(stderr, "rdnasim: %llu wave operations in %.3f s of one core, %.1f million a second\n",
            static_cast<unsigned long long>(queue.operations()), seconds,
            seconds > 0 ? double(queue.operations()) / seconds / 1e6 : 0.0);
}

}  // namespace

Queue &Queue::get() {
    static Queue *const queue = new Queue;  // outlives everything: its thread never ends
    return *queue;
}

void Queue::start_thread() {
    if (started_) return;
    started_ = true;
    scheduler_ = std::make_unique<Scheduler>();
    if (settings().statistics) atexit(print_statistics);
    std::thread([this] { work(); }).detach();
}

// ---- Streams ------------------------------------------------------------------------------------

Stream *Queue::create(u32 device, bool blocking) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.push_back(std::make_unique<Stream>(device, blocking));
    return streams_.back().get();
}

Stream *Queue::null_stream(u32 device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    null_streams_.resize(std::max(null_streams_.size(), size_t(device) + 1));
    if (null_streams_[device] == nullptr) {
        streams_.push_back(std::make_unique<Stream>(device, true));
        null_streams_[device] = streams_.back().get();
    }
    return null_streams_[device];
}

bool Queue::exists(const Stream *stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(streams_.begin(), streams_.end(),
                       [=](const auto &s) { return s.get() == stream; });
}

void Queue::destroy(Stream *stream) {
    wait(stream);
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(streams_, [=](const auto &s) { return s.get() == stream; });
}

// The null stream of a device waits for its blocking streams, and they for it.
void Queue::push(Stream *stream, CommandPointer command) {
    Stream::Entry entry;
    entry.command = std::move(command);
    entry.end = std::make_shared<Mark>();
    const bool is_null =
        stream->device < null_streams_.size() && null_streams_[stream->device] == stream;
    for (const auto &other : streams_) {
        if (other.get() == stream || other->device != stream->device || !other->blocking ||
            !stream->blocking || other->last_ == nullptr)
            continue;
        const bool other_is_null =
            stream->device < null_streams_.size() && null_streams_[stream->device] == other.get();
        if (is_null || other_is_null) entry.after.push_back(other->last_);
    }
    if (entry.command->kind == Command::kWait) entry.after.push_back(entry.command->mark);
    stream->last_ = entry.end;
    stream->entries_.push_back(std::move(entry));
}

bool Queue::submit(Stream *stream, CommandPointer command) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stream->capturing) {
        // Events inside a capture would tie streams together, which no graph here can hold.
        if (command->kind == Command::kMark || command->kind == Command::kWait) {
            stream->broken_capture = true;
            return false;
        }
        stream->captured.commands.push_back(std::move(command));
        return true;
    }
    start_thread();
    push(stream, std::move(command));
    more_.notify_one();
    return true;
}

void Queue::launch_graph(Stream *stream, const Graph &graph) {
    const std::lock_guard<std::mutex> lock(mutex_);
    start_thread();
    for (const CommandPointer &command : graph.commands) push(stream, command);
    more_.notify_one();
}

void Queue::begin_capture(Stream *stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stream->capturing = true;
    stream->broken_capture = false;
    stream->captured.commands.clear();
}

std::unique_ptr<Graph> Queue::end_capture(Stream *stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stream->capturing = false;
    if (stream->broken_capture) return nullptr;
    return std::make_unique<Graph>(std::exchange(stream->captured, {}));
}

// ---- Waiting ------------------------------------------------------------------------------------

void Queue::wait(Stream *stream) {
    std::unique_lock<std::mutex> lock(mutex_);
    const MarkPointer last = stream->last_;
    less_.wait(lock, [&] { return last == nullptr || last->done; });
}

void Queue::wait(const MarkPointer &mark) {
    std::unique_lock<std::mutex> lock(mutex_);
    less_.wait(lock, [&] { return mark->done; });
}

void Queue::wait_all(u32 device) {
    std::unique_lock<std::mutex> lock(mutex_);
    less_.wait(lock, [&] {
        return std::all_of(streams_.begin(), streams_.end(), [=](const auto &s) {
            return s->device != device || s->entries_.empty();
        });
    });
}

bool Queue::is_idle(Stream *stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stream->entries_.empty();
}

bool Queue::is_done(const MarkPointer &mark) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return mark->done;
}

// ---- The thread ---------------------------------------------------------------------------------

void Queue::start_launch(Stream &stream, const Command &c) {
    auto launch = std::make_unique<Launch>();
    launch->kernel = c.kernel;
    launch->device = Device::all()[stream.device].get();
    std::copy(std::begin(c.grid), std::end(c.grid), launch->grid);
    std::copy(std::begin(c.block), std::end(c.block), launch->block);
    launch->arguments = c.arguments;
    launch->group_bytes = c.kernel->group_bytes + c.shared_bytes;
    launch->owner = &stream;
    stream.running_ = true;
    scheduler_->start(std::move(launch));
}

void Queue::finish(Stream &stream) {
    Stream::Entry &entry = stream.entries_.front();
    entry.end->done = true;
    if (entry.command->kind == Command::kMark) {
        entry.command->mark->nanoseconds = nanoseconds();
        entry.command->mark->done = true;
    }
    stream.running_ = false;
    stream.entries_.pop_front();
}

// Does what can be done at once. True if anything was.
bool Queue::advance(Stream &stream) {
    bool any = false;
    while (!stream.entries_.empty() && !stream.running_) {
        const Stream::Entry &entry = stream.entries_.front();
        if (!std::all_of(entry.after.begin(), entry.after.end(),
                         [](const MarkPointer &mark) { return mark->done; }))
            break;
        any = true;
        const CommandPointer command = entry.command;
        if (command->kind == Command::kLaunch) {
            start_launch(stream, *command);
            break;
        }
        if (command->kind == Command::kCopy) copy(*command);
        if (command->kind == Command::kFill) fill(*command);
        finish(stream);
    }
    return any;
}

bool Queue::advance_all() {
    bool any = false, again = true;
    while (again) {
        again = false;
        for (const auto &stream : streams_) again |= advance(*stream);
        any |= again;
    }
    return any;
}

// A turn for every wave, without the lock.
void Queue::sweep(std::unique_lock<std::mutex> &lock) {
    lock.unlock();
    const u64 start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    const bool progressed = scheduler_->sweep(idle_rounds_ > kRoundsUntilYield);
    const u64 took = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start;
    idle_rounds_ = progressed ? 0 : idle_rounds_ + 1;
    if (idle_rounds_ == 1) idle_since_ = nanoseconds();
    if (idle_rounds_ > kRoundsUntilYield) sched_yield();
    lock.lock();
    busy_ += took;
    operations_ = scheduler_->operations();
}

void Queue::work() {
    const FaultGuard guard;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        if (advance_all()) {
            less_.notify_all();
            idle_rounds_ = 0;
        }
        if (!scheduler_->has_work()) {
            more_.wait(lock);
            continue;
        }
        sweep(lock);
        const auto finished = scheduler_->take_finished();
        for (const auto &launch : finished) finish(*static_cast<Stream *>(launch->owner));
        if (!finished.empty()) {
            less_.notify_all();
            idle_rounds_ = 0;
        }
        if (idle_rounds_ > kRoundsUntilYield && nanoseconds() - idle_since_ > kNanosecondsUntilNap)
            more_.wait_for(lock, kNap);
    }
}

}  // namespace rdnasim
