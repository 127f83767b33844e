// SPDX-License-Identifier: Apache-2.0
#include "sequencer.h"

#include <unistd.h>

#include <chrono>
#include <set>

#include "memory.h"

namespace rdnaar {

using namespace gpu;

namespace {

struct Sequencers {
    std::mutex mutex;
    std::set<GpuSequencer *> all;
};

Sequencers &sequencers() {
    static Sequencers *const s = new Sequencers;
    return *s;
}

}  // namespace

GpuSequencer::GpuSequencer(uint32_t device) : device_(device) {
    const DeviceScope scope(device);
    check(api().event_create(&event_, kEventDisableTiming), "creating an event");
    const std::lock_guard<std::mutex> lock(sequencers().mutex);
    sequencers().all.insert(this);
}

GpuSequencer::~GpuSequencer() {
    {
        const std::lock_guard<std::mutex> lock(sequencers().mutex);
        sequencers().all.erase(this);
    }
    free_quietly(device_, [this] { return api().event_destroy(event_); });
}

void GpuSequencer::submit(const backend::Launch &launch, void *stream) {
    const DeviceScope scope(device_);
    const std::lock_guard<std::mutex> lock(mutex_);
    order(stream);
    Device::get(device_).launch(launch.call, launch.dtype,
                                GridShape{launch.grid.blocks, launch.grid.threads}, stream);
}

void GpuSequencer::order(void *stream) {
    if ((used_ && stream == last_) || backend::is_recording(stream)) return;
    if (used_ && !backend::is_recording(last_)) {
        check(api().event_record(event_, last_), "marking the end of the last call");
        check(api().stream_wait_event(stream, event_, 0), "ordering a call after the last one");
    }
    used_ = true;
    last_ = stream;
}

bool GpuSequencer::drain(uint32_t timeout_ms) {
    const DeviceScope scope(device_);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!used_) return true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    bool marked = false;
    do {
        if (!marked && !backend::is_recording(last_)) {
            check(api().event_record(event_, last_), "marking the end of the last call");
            marked = true;
        }
        if (marked) {
            const int error = api().event_query(event_);
            if (error != kErrorNotReady) {
                check(error, "waiting for the last call");
                return true;
            }
        }
        usleep(100);
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

void GpuSequencer::forget(void *stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (used_ && last_ == stream) used_ = false;
}

void forget_stream(void *stream) {
    const std::lock_guard<std::mutex> lock(sequencers().mutex);
    for (GpuSequencer *sequencer : sequencers().all) sequencer->forget(stream);
}

namespace backend {

bool is_recording(void *stream) {
    int status = 0;
    check(api().stream_is_capturing(stream, &status), "asking whether stream %p is captured",
          stream);
    return status != 0;
}

std::unique_ptr<Sequencer> create_sequencer(uint32_t device) {
    return std::make_unique<GpuSequencer>(device);
}

}  // namespace backend
}  // namespace rdnaar
