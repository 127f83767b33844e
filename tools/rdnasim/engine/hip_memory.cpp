// SPDX-License-Identifier: Apache-2.0
// Memory: allocated, pinned, shared between processes, copied, filled.
#include "hip_api.h"

using namespace rdnasim;

namespace {

constexpr unsigned kDefault = 0, kFineGrained = 1, kUncached = 3;  // hipExtMallocWithFlags
constexpr int kPointerDevice = 9;  // HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL

int allocate(void **ptr, size_t nbytes, Memory memory) {
    if (ptr == nullptr) return noted(hipErrorInvalidValue);
    const Device *device = device_at(current_device());
    if (device == nullptr) return noted(hipErrorNoDevice);
    *ptr = nullptr;
    if (nbytes == 0) return hipSuccess;
    if (nbytes > device->model.memory_bytes) return noted(hipErrorOutOfMemory);
    *ptr = Allocations::get().allocate(nbytes, device->index, memory);
    return *ptr != nullptr ? hipSuccess : noted(hipErrorOutOfMemory);
}

bool is_known(const void *p) {
    Allocation a;
    return Allocations::get().find(reinterpret_cast<u64>(p), a);
}

int submit(void *handle, CommandPointer command, bool wait) {
    Stream *stream = stream_of(handle);
    if (stream == nullptr) return noted(hipErrorInvalidHandle);
    const bool captured = stream->capturing;
    if (!Queue::get().submit(stream, std::move(command)))
        return noted(hipErrorStreamCaptureUnsupported);
    if (wait && !captured) Queue::get().wait(stream);
    return hipSuccess;
}

// Memory that the runtime does not know is read or written before the call returns, as a copy
// through a buffer of the driver would be.
int copy(void *to, const void *from, size_t nbytes, void *stream, bool wait) {
    if (nbytes == 0) return hipSuccess;
    if (to == nullptr || from == nullptr) return noted(hipErrorInvalidValue);
    auto command = std::make_shared<Command>();
    command->kind = Command::kCopy;
    command->to = to;
    command->from = from;
    command->nbytes = nbytes;
    return submit(stream, command, wait || !is_known(to) || !is_known(from));
}

int fill(void *to, u32 word, u32 word_bytes, size_t nbytes, void *stream, bool wait) {
    if (nbytes == 0) return hipSuccess;
    if (to == nullptr || !is_known(to)) return noted(hipErrorInvalidValue);
    auto command = std::make_shared<Command>();
    command->kind = Command::kFill;
    command->to = to;
    command->word = word;
    command->word_bytes = word_bytes;
    command->nbytes = nbytes;
    return submit(stream, command, wait);
}

// Freeing waits for the device, as HIP's does: work may still use the memory.
int release(void *ptr, bool host) {
    if (ptr == nullptr) return hipSuccess;
    Allocation a;
    if (!Allocations::get().find(reinterpret_cast<u64>(ptr), a)) return noted(hipErrorInvalidValue);
    if (!host) Queue::get().wait_all(a.device);
    return Allocations::get().release(ptr, host) ? hipSuccess : noted(hipErrorInvalidValue);
}

}  // namespace

HIP_EXPORT int hipMalloc(void **ptr, size_t nbytes) {
    return allocate(ptr, nbytes, Memory::kOrdinary);
}

HIP_EXPORT int hipExtMallocWithFlags(void **ptr, size_t nbytes, unsigned flags) {
    if (flags == kDefault) return allocate(ptr, nbytes, Memory::kOrdinary);
    if (flags == kFineGrained || (flags == kUncached && settings().uncached))
        return allocate(ptr, nbytes, Memory::kUncached);
    return noted(hipErrorInvalidValue);
}

HIP_EXPORT int hipFree(void *ptr) { return release(ptr, false); }

HIP_EXPORT int hipHostMalloc(void **ptr, size_t nbytes, unsigned) {
    return allocate(ptr, nbytes, Memory::kHost);
}
HIP_EXPORT int hipHostFree(void *ptr) { return release(ptr, true); }

HIP_EXPORT int hipHostRegister(void *ptr, size_t nbytes, unsigned) {
    if (ptr == nullptr || nbytes == 0) return noted(hipErrorInvalidValue);
    return Allocations::get().add_registered(ptr, nbytes)
               ? hipSuccess
               : noted(hipErrorHostMemoryAlreadyRegistered);
}

HIP_EXPORT int hipHostUnregister(void *ptr) {
    return Allocations::get().remove_registered(ptr) ? hipSuccess
                                                     : noted(hipErrorHostMemoryNotRegistered);
}

HIP_EXPORT int hipHostGetDevicePointer(void **device_ptr, void *host_ptr, unsigned) {
    Allocation a;
    if (device_ptr == nullptr || !Allocations::get().find(reinterpret_cast<u64>(host_ptr), a) ||
        a.memory != Memory::kHost)
        return noted(hipErrorInvalidValue);
    *device_ptr = host_ptr;
    return hipSuccess;
}

HIP_EXPORT int hipPointerGetAttribute(void *value, int attribute, const void *ptr) {
    Allocation a;
    if (value == nullptr || attribute != kPointerDevice) return noted(hipErrorInvalidValue);
    if (!Allocations::get().find(reinterpret_cast<u64>(ptr), a)) return noted(hipErrorInvalidValue);
    *static_cast<int *>(value) = int(a.device);
    return hipSuccess;
}

HIP_EXPORT int hipMemGetInfo(size_t *free, size_t *total) {
    const Device *device = device_at(current_device());
    if (device == nullptr) return noted(hipErrorNoDevice);
    *total = device->model.memory_bytes;
    *free = *total;
    for (const Allocation &a : Allocations::get().all())
        if (a.device == device->index && a.memory != Memory::kHost && !a.opened) *free -= a.nbytes;
    return hipSuccess;
}

// ---- Between processes --------------------------------------------------------------------------

struct hipIpcMemHandle_st {
    char reserved[64];
};

HIP_EXPORT int hipIpcGetMemHandle(hipIpcMemHandle_st *handle, void *ptr) {
    ExportedHandle exported;
    if (handle == nullptr || !Allocations::get().export_handle(ptr, exported))
        return noted(hipErrorInvalidValue);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &exported, sizeof exported);
    return hipSuccess;
}

HIP_EXPORT int hipIpcOpenMemHandle(void **ptr, hipIpcMemHandle_st handle, unsigned) {
    ExportedHandle exported;
    memcpy(&exported, &handle, sizeof exported);
    if (ptr == nullptr) return noted(hipErrorInvalidValue);
    if (exported.pid == getpid()) return noted(hipErrorInvalidContext);
    if (int(exported.device) != current_device() && !settings().peer_access)
        return noted(hipErrorPeerAccessUnsupported);
    *ptr = Allocations::get().open_handle(exported);
    return *ptr != nullptr ? hipSuccess : noted(hipErrorInvalidValue);
}

HIP_EXPORT int hipIpcCloseMemHandle(void *ptr) {
    return Allocations::get().close_handle(ptr) ? hipSuccess : noted(hipErrorInvalidValue);
}

// ---- Copies and fills ---------------------------------------------------------------------------

HIP_EXPORT int hipMemcpy(void *to, const void *from, size_t nbytes, int) {
    return copy(to, from, nbytes, nullptr, true);
}
HIP_EXPORT int hipMemcpyAsync(void *to, const void *from, size_t nbytes, int, void *stream) {
    return copy(to, from, nbytes, stream, false);
}
HIP_EXPORT int hipMemset(void *to, int value, size_t nbytes) {
    return fill(to, u8(value), 1, nbytes, nullptr, true);
}
HIP_EXPORT int hipMemsetAsync(void *to, int value, size_t nbytes, void *stream) {
    return fill(to, u8(value), 1, nbytes, stream, false);
}
HIP_EXPORT int hipMemsetD32(void *to, int value, size_t count) {
    return fill(to, u32(value), 4, count * 4, nullptr, true);
}
HIP_EXPORT int hipMemsetD32Async(void *to, int value, size_t count, void *stream) {
    return fill(to, u32(value), 4, count * 4, stream, false);
}
