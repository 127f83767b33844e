// SPDX-License-Identifier: Apache-2.0
// Memory that frees itself. Freeing never throws: at worst the memory stays until the process ends.
#pragma once

#include "device.h"

namespace rdnaar::gpu {

template <class Free>
void free_quietly(uint32_t device, Free free) noexcept {
    try {
        const DeviceScope scope(device);
        const int error = free();
        if (error != kSuccess) error_text(error);  // clears it
    } catch (...) {
    }
}

class DeviceMemory {
public:
    // `shared`: peers write to it while a kernel reads it.
    DeviceMemory(uint32_t device, uint64_t nbytes, bool shared);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;
    unsigned char *get() const { return ptr_; }

private:
    const uint32_t device_;
    unsigned char *ptr_;
};

// Host memory, zeroed, that the device and the host read and write at the same time.
class PinnedMemory {
public:
    PinnedMemory(uint32_t device, uint64_t nbytes);
    ~PinnedMemory();
    PinnedMemory(const PinnedMemory &) = delete;
    PinnedMemory &operator=(const PinnedMemory &) = delete;
    unsigned char *host() const { return host_; }
    unsigned char *device() const { return device_ptr_; }

private:
    const uint32_t device_;
    unsigned char *host_, *device_ptr_;
};

}  // namespace rdnaar::gpu
