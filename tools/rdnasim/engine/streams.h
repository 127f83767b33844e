// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs: what is queued, in which order, and the thread that does it.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "scheduler.h"

namespace rdnasim {

class Stream;

// One recording of an event, or the end of a command.
struct Mark {
    bool done = false;
    u64 nanoseconds = 0;
};
using MarkPointer = std::shared_ptr<Mark>;

// What a stream holds. Never changed once it is made, so that a graph can queue it again and again.
struct Command {
    enum Kind { kLaunch, kCopy, kFill, kMark, kWait } kind;
    // kLaunch
    const Kernel *kernel = nullptr;
    u32 grid[3] = {}, block[3] = {};
    u32 shared_bytes = 0;
    std::vector<u8> arguments;
    // kCopy, kFill
    void *to = nullptr;
    const void *from = nullptr;
    size_t nbytes = 0;
    u32 word = 0, word_bytes = 4;
    // kMark: what it marks; kWait: what it waits for
    MarkPointer mark;
};
using CommandPointer = std::shared_ptr<const Command>;

struct Graph {
    std::vector<CommandPointer> commands;
};

class Stream {
public:
    Stream(u32 device, bool blocking) : device(device), blocking(blocking) {}
    const u32 device;
    const bool blocking;  // ordered with the null stream of its device
    bool capturing = false;
    bool broken_capture = false;
    Graph captured;

private:
    friend class Queue;
    struct Entry {
        CommandPointer command;
        std::vector<MarkPointer> after;  // marks of other streams that come first
        MarkPointer end;
    };
    std::deque<Entry> entries_;
    bool running_ = false;  // the first one is a launch under way
    MarkPointer last_;      // end of the newest
};

// All streams of the process, behind one lock.
class Queue {
public:
    static Queue &get();

    Stream *create(u32 device, bool blocking);
    void destroy(Stream *stream);
    bool exists(const Stream *stream);
    Stream *null_stream(u32 device);

    // Captured, if the stream is; else queued. False: the capture does not allow it.
    bool submit(Stream *stream, CommandPointer command);
    void launch_graph(Stream *stream, const Graph &graph);
    void begin_capture(Stream *stream);
    std::unique_ptr<Graph> end_capture(Stream *stream);

    void wait(Stream *stream);
    void wait(const MarkPointer &mark);
    bool is_idle(Stream *stream);
    bool is_done(const MarkPointer &mark);
    void wait_all(u32 device);
    u64 operations() const { return operations_; }
    u64 busy_nanoseconds() const { return busy_; }

private:
    Queue() = default;
    void push(Stream *stream, CommandPointer command);
    void start_thread();
    void work();
    void sweep(std::unique_lock<std::mutex> &lock);
    bool advance_all();
    bool advance(Stream &stream);
    void finish(Stream &stream);
    void start_launch(Stream &stream, const Command &command);

    std::mutex mutex_;
    std::condition_variable more_, less_;  // commands came; commands ended
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<Stream *> null_streams_;
    std::unique_ptr<Scheduler> scheduler_;
    bool started_ = false;
    u32 idle_rounds_ = 0;  // in a row, of the thread
    u64 idle_since_ = 0;
    u64 operations_ = 0, busy_ = 0;
};

}  // namespace rdnasim
