// SPDX-License-Identifier: Apache-2.0
// Raw memory, streams, events and graphs. A stream is the runtime's own, so that those of other
// libraries can be used; events and graphs are objects of this library.
#include <cinttypes>

#include "../runtime/backend.h"
#include "memory.h"
#include "sequencer.h"

namespace rdnaar::backend {

using namespace gpu;

namespace {

struct GpuEvent {
    uint32_t device;
    void *event;
};

struct GpuGraph {
    void *executable;
};

// The device of a pointer that the runtime knows, else -1.
int device_of(const void *ptr) {
    int device = -1;
    const int error = api().pointer_attribute(&device, kPointerDevice, ptr);
    if (error == kSuccess) return device;
    error_text(error);  // clears it
    return -1;
}

GpuEvent &event_of(void *event) { return *static_cast<GpuEvent *>(event); }

// Memory that the runtime does not know is pageable. A driver copies it through a buffer of its own, and
// waits for the stream while it holds that: another rank of this process that has to copy before its
// next call would wait too, and with it the call that this stream waits for (seen on one H200, ranks
// as threads). So the waiting is done first, out here. It costs nothing: the copy would wait anyway.
void wait_if_pageable(const void *dst, const void *src, void *stream) {
    if (device_of(dst) >= 0 && device_of(src) >= 0) return;
    if (!is_recording(stream))
        check(api().stream_synchronize(stream), "waiting for stream %p", stream);
}

void copy_on_null_stream(void *dst, const void *src, uint64_t nbytes) {
    int device = device_of(dst);
    if (device < 0) device = device_of(src);
    const DeviceScope scope(device < 0 ? current_device() : uint32_t(device));
    check(copy_async(dst, src, nbytes, nullptr), "copying %" PRIu64 " bytes", nbytes);
}

}  // namespace

void *allocate(uint32_t device, uint64_t nbytes) {
    const DeviceScope scope(device);
    void *p = nullptr;
    check(api().allocate(&p, nbytes), "allocating %" PRIu64 " bytes on device %u", nbytes, device);
    return p;
}

void release(void *ptr) {
    const int device = device_of(ptr);
    if (device < 0)
        fail(RDNAAR_E_INVALID_ARGUMENT, "%p is not memory that rdnaar_malloc() returned", ptr);
    const DeviceScope scope{uint32_t(device)};
    check(api().release(ptr), "freeing device memory");
}

void copy(void *dst, const void *src, uint64_t nbytes, void *stream) {
    if (stream == nullptr) return copy_on_null_stream(dst, src, nbytes);
    const DeviceScope scope(OfStream{stream});
    wait_if_pageable(dst, src, stream);
    check(copy_async(dst, src, nbytes, stream), "copying %" PRIu64 " bytes", nbytes);
}

// ---- Streams ------------------------------------------------------------------------------------

// Not ordered with the null stream: another rank's kernel may be waiting there for this stream's.
void *create_stream(uint32_t device) {
    Device::get(device);
    const DeviceScope scope(device);
    void *stream = nullptr;
    check(api().stream_create(&stream, kStreamNonBlocking), "creating a stream");
    return stream;
}

void sync_stream(void *stream) {
    if (stream != nullptr) {
        const DeviceScope scope(OfStream{stream});
        check(api().stream_synchronize(stream), "waiting for stream %p", stream);
        return;
    }
    for (uint32_t device : Device::opened()) {
        const DeviceScope scope(device);
        check(api().stream_synchronize(nullptr), "waiting for the null stream of device %u",
              device);
    }
}

void destroy_stream(void *stream) {
    const DeviceScope scope(OfStream{stream});
    check(api().stream_synchronize(stream), "waiting for stream %p", stream);
    forget_stream(stream);
    check(api().stream_destroy(stream), "destroying stream %p", stream);
}

// ---- Events -------------------------------------------------------------------------------------

void *create_event(uint32_t device) {
    const DeviceScope scope(device);
    std::unique_ptr<GpuEvent> e(new GpuEvent{device, nullptr});
    check(api().event_create(&e->event, 0), "creating an event");
    return e.release();
}

void record_event(void *event, void *stream) {
    const DeviceScope scope(event_of(event).device);
    check(api().event_record(event_of(event).event, stream), "recording an event on stream %p",
          stream);
}

void sync_event(void *event) {
    const DeviceScope scope(event_of(event).device);
    check(api().event_synchronize(event_of(event).event), "waiting for an event");
}

double elapsed_us(void *start, void *stop) {
    const DeviceScope scope(event_of(start).device);
    float ms = 0;
    const int error = api().event_elapsed_ms(&ms, event_of(start).event, event_of(stop).event);
    if (error == kErrorNotReady || error == kErrorInvalidHandle) {
        error_text(error);  // clears it
        fail(error == kErrorNotReady ? RDNAAR_E_BUSY : RDNAAR_E_STATE,
             error == kErrorNotReady ? "the stream has not passed the event yet"
                                     : "the event was never recorded");
    }
    check(error, "taking the time between two events");
    return double(ms) * 1000.0;
}

void destroy_event(void *event) {
    const std::unique_ptr<GpuEvent> e(&event_of(event));
    const DeviceScope scope(e->device);
    check(api().event_destroy(e->event), "destroying an event");
}

// ---- Graphs -------------------------------------------------------------------------------------

void begin_graph(void *stream) {
    const DeviceScope scope(OfStream{stream});
    check(api().capture_begin(stream, kCaptureThreadLocal), "capturing stream %p", stream);
}

void *end_graph(void *stream) {
    const DeviceScope scope(OfStream{stream});
    void *graph = nullptr;
    std::unique_ptr<GpuGraph> g(new GpuGraph{nullptr});
    check(api().capture_end(stream, &graph), "ending the capture of stream %p", stream);
    const int error = api().graph_instantiate(&g->executable, graph, 0);
    api().graph_destroy(graph);
    check(error, "making a graph executable");
    return g.release();
}

void launch_graph(void *graph, void *stream) {
    const DeviceScope scope(OfStream{stream});
    check(api().graph_launch(static_cast<GpuGraph *>(graph)->executable, stream),
          "launching a graph");
}

void destroy_graph(void *graph) {
    const std::unique_ptr<GpuGraph> g(static_cast<GpuGraph *>(graph));
    check(api().graph_executable_destroy(g->executable), "destroying a graph");
}

}  // namespace rdnaar::backend
