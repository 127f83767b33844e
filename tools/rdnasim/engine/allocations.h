// SPDX-License-Identifier: Apache-2.0
// The memory of the simulated machine. Each allocation is a memory file without a name, mapped at
// an address that no other process of the machine gives out, so that a process which opens it finds
// that place free and all see it at the same address.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base.h"

namespace rdnasim {

enum class Memory : u32 {
    kOrdinary,  // device memory that its L2 may keep lines of during a kernel
    kUncached,  // device memory that no L2 keeps lines of
    kHost,      // pinned
};

struct Allocation {
    u64 base = 0, nbytes = 0;
    u32 device = 0;
    Memory memory = Memory::kOrdinary;
    bool shared = false;      // peers may write to it
    bool opened = false;      // belongs to another process
    bool registered = false;  // host memory that the program allocated itself
    int fd = -1;
};

struct ExportedHandle {  // fits in hipIpcMemHandle_t
    u64 magic, base, nbytes, inode;
    u32 device, memory;
    i32 pid, fd;
};
static_assert(sizeof(ExportedHandle) <= 64);

class Allocations {
public:
    static Allocations &get();

    void *allocate(u64 nbytes, u32 device, Memory memory);  // NULL: no memory
    bool release(void *p, bool host);
    bool add_registered(void *p, u64 nbytes);
    bool remove_registered(void *p);
    bool export_handle(void *p, ExportedHandle &handle);
    void *open_handle(const ExportedHandle &handle);
    bool close_handle(void *p);
    // Some other device was given access to memory of this one.
    void share_device(u32 device);

    bool find(u64 address, Allocation &found);
    // Of the allocation that holds the address up to its end; for a memset that drops pages.
    bool drop_pages(void *p, u64 nbytes);

    u64 generation() const { return generation_.load(std::memory_order_acquire); }
    std::vector<Allocation> all();

private:
    void *map(Allocation &a);
    u64 next_place(u64 nbytes);

    std::mutex mutex_;
    std::map<u64, Allocation> by_base_;
    std::vector<bool> shared_devices_ = std::vector<bool>(64);
    std::atomic<u64> generation_{1};
    u64 next_ = 0;
};

}  // namespace rdnasim
