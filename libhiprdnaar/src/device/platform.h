// SPDX-License-Identifier: Apache-2.0
// The GPU platform of this build: platform_hip.cpp or platform_cuda.cpp.
#pragma once

#include <string>

#include "../runtime/error.h"
#include "gpu_api.h"

namespace rdnaar::gpu {

// ---- The runtime --------------------------------------------------------------------------------
const Api &api();       // loads the runtime on first use; throws E_NO_RUNTIME
bool runtime_exists();  // likewise; false: this machine has none
bool runtime_is_loaded();
void require_one_runtime();         // throws if a second one has come into the process since
std::string runtime_description();  // name, version, file; the runtime is loaded

// "name (text)" of an error code; also clears what the runtime remembers of it, since a framework
// would take it for its own at its next check.
std::string error_text(int error);

// Throws if `error` is not kSuccess: E_OUT_OF_MEMORY or E_RUNTIME with what was done and why not.
__attribute__((format(printf, 2, 3))) void check(int error, const char *format, ...);

// ---- Devices ------------------------------------------------------------------------------------
constexpr uint32_t kMaxDevices = 64;

const char *backend_name();
std::string compiled_targets();             // of the kernels in this library
std::string architecture(uint32_t device);  // "" where it cannot be told without using the device
bool is_integrated(uint32_t device);
uint32_t compute_units(uint32_t device);
uint64_t ticks_per_ms(uint32_t device);   // of gpu::real_time()
bool uncached_possible(uint32_t device);  // may create a context on the device
uint32_t current_device();

struct OfStream {
    void *stream;
};

// Makes a device current for this thread as long as it lives, then the former one again.
class DeviceScope {
public:
    explicit DeviceScope(uint32_t device);
    explicit DeviceScope(OfStream s);  // the stream's device; of the null stream: the current one
    ~DeviceScope();
    DeviceScope(const DeviceScope &) = delete;
    DeviceScope &operator=(const DeviceScope &) = delete;

private:
    void *former_ = nullptr;  // CUDA: a context; HIP: the number of a device
    bool changed_ = false;
};

// ---- On the current device ----------------------------------------------------------------------
// Memory that peers write to while a kernel of this device reads it.
void *allocate_shared(uint64_t nbytes);
int enable_peer_access(uint32_t peer);
int copy_async(void *dst, const void *src, uint64_t nbytes, void *stream);
extern const unsigned kHostCoherent;  // flag of host_allocate: the host sees stores during a kernel

}  // namespace rdnaar::gpu
