// SPDX-License-Identifier: Apache-2.0
// Memory that processes of one user share: anonymous (memfd), opened by peers through the owner's
// file descriptor. It has no name in any file system, so nothing is left after a kill, and the
// kernel lets only processes of the same user, in the same pid namespace, open another's
// descriptors.
#pragma once

#include <cstdint>

namespace rdnaar {

// Where another process finds the memory.
struct SharedMemoryAddress {
    uint64_t pid_namespace;
    int32_t pid, fd;
};

class SharedMemory {
public:
    // New, zeroed. `name` is what /proc shows.
    SharedMemory(const char *name, uint64_t nbytes);
    // That of rank `peer`. Nothing in `address` is trusted.
    SharedMemory(const SharedMemoryAddress &address, uint64_t nbytes, uint32_t peer);
    ~SharedMemory();
    SharedMemory(const SharedMemory &) = delete;
    SharedMemory &operator=(const SharedMemory &) = delete;

    unsigned char *base() const { return base_; }
    uint64_t nbytes() const { return nbytes_; }
    SharedMemoryAddress address() const;

private:
    const uint64_t nbytes_;
    int fd_ = -1;  // kept open by the owner alone, for peers to come
    unsigned char *base_ = nullptr;
};

// Of this process. The numbers of processes mean something only inside it.
uint64_t pid_namespace();

}  // namespace rdnaar
