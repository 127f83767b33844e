// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <cinttypes>
#include <cstring>

namespace rdnaar::gpu {

DeviceMemory::DeviceMemory(uint32_t device, uint64_t nbytes, bool shared) : device_(device) {
    const DeviceScope scope(device);
    void *p = nullptr;
    if (shared) {
        p = allocate_shared(nbytes);
    } else {
        check(api().allocate(&p, nbytes), "allocating %" PRIu64 " bytes of device memory", nbytes);
    }
    ptr_ = static_cast<unsigned char *>(p);
}

DeviceMemory::~DeviceMemory() {
    free_quietly(device_, [this] { return api().release(ptr_); });
}

PinnedMemory::PinnedMemory(uint32_t device, uint64_t nbytes) : device_(device) {
    const DeviceScope scope(device);
    void *host = nullptr, *on_device = nullptr;
    check(api().host_allocate(&host, nbytes, kHostPortable | kHostMapped | kHostCoherent),
          "allocating %" PRIu64 " bytes of pinned host memory", nbytes);
    host_ = static_cast<unsigned char *>(host);
    memset(host_, 0, nbytes);
    const int error = api().host_device_pointer(&on_device, host, 0);
    if (error != kSuccess) api().host_release(host);
    check(error, "mapping pinned host memory");
    device_ptr_ = static_cast<unsigned char *>(on_device);
}

PinnedMemory::~PinnedMemory() {
    free_quietly(device_, [this] { return api().host_release(host_); });
}

}  // namespace rdnaar::gpu
