// SPDX-License-Identifier: Apache-2.0
// Errors, versions, devices and who may reach whom.
#include <cstdio>
#include <utility>

#include "clock.h"
#include "hip_api.h"

namespace rdnasim {

namespace {

constexpr int kVersion = 60000000;  // 6.0.0

thread_local HipError last_error = hipSuccess;
thread_local int device_of_thread = 0;

// Numbers of hipDeviceAttribute_t.
enum Attribute : int {
    kIntegrated = 16,
    kMaxThreads = 56,
    kComputeUnits = 63,
    kWarpSize = 87,
    kWallClockRate = 10017,
};

}  // namespace

HipError noted(HipError error) {
    if (error != hipSuccess) last_error = error;
    return error;
}

int &current_device() { return device_of_thread; }

Device *device_at(int index) {
    auto &devices = Device::all();
    return index >= 0 && size_t(index) < devices.size() ? devices[size_t(index)].get() : nullptr;
}

}  // namespace rdnasim

using namespace rdnasim;

HIP_EXPORT const char *hipGetErrorName(int error) {
    switch (error) {
#define RDNASIM_CASE_(name, number, text) \
    case number: return #name;
        RDNASIM_HIP_ERRORS(RDNASIM_CASE_)
#undef RDNASIM_CASE_
        default: return "hipErrorUnknown";
    }
}

HIP_EXPORT const char *hipGetErrorString(int error) {
    switch (error) {
#define RDNASIM_CASE_(name, number, text) \
    case number: return text;
        RDNASIM_HIP_ERRORS(RDNASIM_CASE_)
#undef RDNASIM_CASE_
        default: return "unknown error";
    }
}

HIP_EXPORT int hipGetLastError() { return std::exchange(last_error, hipSuccess); }
HIP_EXPORT int hipPeekAtLastError() { return last_error; }

HIP_EXPORT int hipInit(unsigned flags) {
    if (flags != 0) return noted(hipErrorInvalidValue);
    return Device::all().empty() ? noted(hipErrorNoDevice) : hipSuccess;
}

HIP_EXPORT int hipRuntimeGetVersion(int *version) {
    if (version == nullptr) return noted(hipErrorInvalidValue);
    *version = kVersion;
    return hipSuccess;
}
HIP_EXPORT int hipDriverGetVersion(int *version) { return hipRuntimeGetVersion(version); }

HIP_EXPORT int hipGetDeviceCount(int *count) {
    if (count == nullptr) return noted(hipErrorInvalidValue);
    *count = int(Device::all().size());
    return *count > 0 ? hipSuccess : noted(hipErrorNoDevice);
}

HIP_EXPORT int hipDeviceGet(int *device, int ordinal) {
    if (device_at(ordinal) == nullptr) return noted(hipErrorInvalidDevice);
    *device = ordinal;
    return hipSuccess;
}

HIP_EXPORT int hipSetDevice(int device) {
    if (device_at(device) == nullptr) return noted(hipErrorInvalidDevice);
    current_device() = device;
    return hipSuccess;
}

HIP_EXPORT int hipGetDevice(int *device) {
    if (device == nullptr) return noted(hipErrorInvalidValue);
    if (Device::all().empty()) return noted(hipErrorNoDevice);
    *device = current_device();
    return hipSuccess;
}

HIP_EXPORT int hipDeviceGetName(char *name, int size, int device) {
    const Device *d = device_at(device);
    if (d == nullptr) return noted(hipErrorInvalidDevice);
    if (name == nullptr || size <= 0) return noted(hipErrorInvalidValue);
    snprintf(name, size_t(size), "%s", d->model.title);
    return hipSuccess;
}

HIP_EXPORT int hipDeviceTotalMem(size_t *nbytes, int device) {
    const Device *d = device_at(device);
    if (d == nullptr) return noted(hipErrorInvalidDevice);
    *nbytes = d->model.memory_bytes;
    return hipSuccess;
}

// Each device on a bus of its own, as behind a switch.
HIP_EXPORT int hipDeviceGetPCIBusId(char *text, int size, int device) {
    const Device *d = device_at(device);
    if (d == nullptr) return noted(hipErrorInvalidDevice);
    if (text == nullptr || size < 13) return noted(hipErrorInvalidValue);
    snprintf(text, size_t(size), "0000:%02x:00.0", 3 + 4 * d->index);
    return hipSuccess;
}

HIP_EXPORT int hipDeviceGetAttribute(int *value, int attribute, int device) {
    const Device *d = device_at(device);
    if (d == nullptr) return noted(hipErrorInvalidDevice);
    switch (attribute) {
        case kIntegrated: *value = 0; return hipSuccess;
        case kMaxThreads: *value = 1024; return hipSuccess;
        case kComputeUnits: *value = int(d->model.compute_units); return hipSuccess;
        case kWarpSize: *value = int(kWave); return hipSuccess;
        case kWallClockRate: *value = int(kRealTimeKhz); return hipSuccess;
        default: return noted(hipErrorInvalidValue);
    }
}

HIP_EXPORT int hipDeviceCanAccessPeer(int *can, int device, int peer) {
    if (device_at(device) == nullptr || device_at(peer) == nullptr)
        return noted(hipErrorInvalidDevice);
    *can = device != peer && settings().peer_access;
    return hipSuccess;
}

HIP_EXPORT int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    Device *d = device_at(current_device());
    if (flags != 0) return noted(hipErrorInvalidValue);
    if (d == nullptr || device_at(peer) == nullptr || peer == current_device())
        return noted(hipErrorInvalidDevice);
    if (!settings().peer_access) return noted(hipErrorPeerAccessUnsupported);
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    if (d->peers[size_t(peer)]) return noted(hipErrorPeerAccessAlreadyEnabled);
    d->peers[size_t(peer)] = true;
    Allocations::get().share_device(u32(peer));
    return hipSuccess;
}

HIP_EXPORT int hipDeviceSynchronize() {
    Queue::get().wait_all(u32(current_device()));
    return hipSuccess;
}
