// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs.
#include "clock.h"
#include "hip_api.h"

using namespace rdnasim;

namespace {

constexpr unsigned kNonBlocking = 1;  // hipStreamNonBlocking

struct Event {
    MarkPointer mark;  // of the newest recording; NULL: none
};

// What hipGraphExec_t stands for: graphs are run as they were captured.
struct Executable {
    Graph graph;
};

HipError queue_mark(Stream *stream, Command::Kind kind, const MarkPointer &mark) {
    auto command = std::make_shared<Command>();
    command->kind = kind;
    command->mark = mark;
    return Queue::get().submit(stream, command) ? hipSuccess : hipErrorStreamCaptureUnsupported;
}

}  // namespace

Stream *rdnasim::stream_of(void *handle) {
    if (handle == nullptr) {
        const Device *device = device_at(current_device());
        return device == nullptr ? nullptr : Queue::get().null_stream(device->index);
    }
    Stream *stream = static_cast<Stream *>(handle);
    return Queue::get().exists(stream) ? stream : nullptr;
}

// ---- Streams ------------------------------------------------------------------------------------

HIP_EXPORT int hipStreamCreateWithFlags(void **stream, unsigned flags) {
    const Device *device = device_at(current_device());
    if (stream == nullptr || flags > kNonBlocking) return noted(hipErrorInvalidValue);
    if (device == nullptr) return noted(hipErrorNoDevice);
    *stream = Queue::get().create(device->index, flags != kNonBlocking);
    return hipSuccess;
}
HIP_EXPORT int hipStreamCreate(void **stream) { return hipStreamCreateWithFlags(stream, 0); }

HIP_EXPORT int hipStreamDestroy(void *handle) {
    Stream *stream = handle == nullptr ? nullptr : stream_of(handle);
    if (stream == nullptr) return noted(hipErrorInvalidHandle);
    Queue::get().destroy(stream);
    return hipSuccess;
}

HIP_EXPORT int hipStreamSynchronize(void *handle) {
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return noted(hipErrorInvalidHandle);
    if (stream->capturing) return noted(hipErrorStreamCaptureUnsupported);
    Queue::get().wait(stream);
    return hipSuccess;
}

HIP_EXPORT int hipStreamQuery(void *handle) {
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return noted(hipErrorInvalidHandle);
    return Queue::get().is_idle(stream) ? hipSuccess : noted(hipErrorNotReady);
}

HIP_EXPORT int hipStreamWaitEvent(void *handle, void *event, unsigned) {
    Stream *stream = stream_of(handle);
    if (stream == nullptr || event == nullptr) return noted(hipErrorInvalidHandle);
    const MarkPointer mark = static_cast<Event *>(event)->mark;
    if (mark == nullptr) return hipSuccess;
    return noted(queue_mark(stream, Command::kWait, mark));
}

// ---- Events -------------------------------------------------------------------------------------

HIP_EXPORT int hipEventCreateWithFlags(void **event, unsigned) {
    if (event == nullptr) return noted(hipErrorInvalidValue);
    *event = new Event;
    return hipSuccess;
}
HIP_EXPORT int hipEventCreate(void **event) { return hipEventCreateWithFlags(event, 0); }

HIP_EXPORT int hipEventDestroy(void *event) {
    if (event == nullptr) return noted(hipErrorInvalidHandle);
    delete static_cast<Event *>(event);
    return hipSuccess;
}

HIP_EXPORT int hipEventRecord(void *event, void *handle) {
    Stream *stream = stream_of(handle);
    if (event == nullptr || stream == nullptr) return noted(hipErrorInvalidHandle);
    const auto mark = std::make_shared<Mark>();
    const HipError error = queue_mark(stream, Command::kMark, mark);
    if (error == hipSuccess) static_cast<Event *>(event)->mark = mark;
    return noted(error);
}

HIP_EXPORT int hipEventQuery(void *event) {
    if (event == nullptr) return noted(hipErrorInvalidHandle);
    const MarkPointer mark = static_cast<Event *>(event)->mark;
    return mark == nullptr || Queue::get().is_done(mark) ? hipSuccess : noted(hipErrorNotReady);
}

HIP_EXPORT int hipEventSynchronize(void *event) {
    if (event == nullptr) return noted(hipErrorInvalidHandle);
    if (const MarkPointer mark = static_cast<Event *>(event)->mark) Queue::get().wait(mark);
    return hipSuccess;
}

HIP_EXPORT int hipEventElapsedTime(float *milliseconds, void *start, void *stop) {
    if (milliseconds == nullptr || start == nullptr || stop == nullptr)
        return noted(hipErrorInvalidHandle);
    const MarkPointer from = static_cast<Event *>(start)->mark;
    const MarkPointer to = static_cast<Event *>(stop)->mark;
    if (from == nullptr || to == nullptr) return noted(hipErrorInvalidHandle);
    if (!Queue::get().is_done(from) || !Queue::get().is_done(to)) return noted(hipErrorNotReady);
    *milliseconds = float(double(i64(to->nanoseconds - from->nanoseconds)) / 1e6);
    return hipSuccess;
}

// ---- Graphs -------------------------------------------------------------------------------------

HIP_EXPORT int hipStreamBeginCapture(void *handle, int) {
    Stream *stream = handle == nullptr ? nullptr : stream_of(handle);
    if (stream == nullptr) return noted(hipErrorStreamCaptureUnsupported);
    if (stream->capturing) return noted(hipErrorIllegalState);
    Queue::get().begin_capture(stream);
    return hipSuccess;
}

HIP_EXPORT int hipStreamIsCapturing(void *handle, int *status) {
    if (status == nullptr) return noted(hipErrorInvalidValue);
    const Stream *stream = stream_of(handle);
    if (stream == nullptr) return noted(hipErrorInvalidHandle);
    *status = stream->capturing;
    return hipSuccess;
}

HIP_EXPORT int hipStreamEndCapture(void *handle, void **graph) {
    Stream *stream = handle == nullptr ? nullptr : stream_of(handle);
    if (stream == nullptr || graph == nullptr) return noted(hipErrorInvalidHandle);
    if (!stream->capturing) return noted(hipErrorIllegalState);
    *graph = Queue::get().end_capture(stream).release();
    return *graph != nullptr ? hipSuccess : noted(hipErrorStreamCaptureInvalidated);
}

HIP_EXPORT int hipGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) {
    if (executable == nullptr || graph == nullptr) return noted(hipErrorInvalidValue);
    *executable = new Executable{*static_cast<Graph *>(graph)};
    return hipSuccess;
}

HIP_EXPORT int hipGraphDestroy(void *graph) {
    if (graph == nullptr) return noted(hipErrorInvalidValue);
    delete static_cast<Graph *>(graph);
    return hipSuccess;
}

HIP_EXPORT int hipGraphLaunch(void *executable, void *handle) {
    Stream *stream = stream_of(handle);
    if (executable == nullptr || stream == nullptr) return noted(hipErrorInvalidHandle);
    Queue::get().launch_graph(stream, static_cast<Executable *>(executable)->graph);
    return hipSuccess;
}

HIP_EXPORT int hipGraphExecDestroy(void *executable) {
    if (executable == nullptr) return noted(hipErrorInvalidValue);
    delete static_cast<Executable *>(executable);
    return hipSuccess;
}
