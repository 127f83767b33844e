// SPDX-License-Identifier: Apache-2.0
#include "allocations.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace rdnasim {

namespace {

constexpr u64 kMagic = 0x52444E4153494D31, kPage = 4096;
// A part of the address space that the kernel gives out last, dealt to the processes.
constexpr u64 kFirstPlace = 0x200000000000, kPerProcess = 1ull << 34, kProcesses = 4096;
// Between allocations, so that running over the end of one is a fault.
constexpr u64 kGap = 2ull << 20;

u64 round_up(u64 x, u64 to) { return (x + to - 1) / to * to; }

u64 inode_of(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

Allocations &Allocations::get() {
    static Allocations *const all = new Allocations;
    return *all;
}

u64 Allocations::next_place(u64 nbytes) {
    const u64 first = kFirstPlace + u64(getpid()) % kProcesses * kPerProcess;
    if (next_ < first || next_ + nbytes + kGap > first + kPerProcess) next_ = first;
    const u64 place = next_;
    next_ += round_up(nbytes, kGap) + kGap;
    return place;
}

// The wanted place may be taken: any other will do.
void *Allocations::map(Allocation &a) {
    for (const u64 wanted : {a.base, u64(0)}) {
        void *p = mmap(reinterpret_cast<void *>(wanted), a.nbytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | (wanted != 0 ? MAP_FIXED_NOREPLACE : 0), a.fd, 0);
        if (p == MAP_FAILED) continue;
        a.base = reinterpret_cast<u64>(p);
        by_base_[a.base] = a;
        generation_.fetch_add(1, std::memory_order_release);
        return p;
    }
    close(a.fd);
    return nullptr;
}

void *Allocations::allocate(u64 nbytes, u32 device, Memory memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Allocation a;
    a.nbytes = round_up(nbytes == 0 ? 1 : nbytes, kPage);
    a.base = next_place(a.nbytes);
    a.device = device;
    a.memory = memory;
    a.shared = shared_devices_[device];
    a.fd = memfd_create("rdnasim", MFD_CLOEXEC);
    if (a.fd < 0 || ftruncate(a.fd, off_t(a.nbytes)) != 0) {
        if (a.fd >= 0) close(a.fd);
        return nullptr;
    }
    return map(a);
}

bool Allocations::release(void *p, bool host) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = by_base_.find(reinterpret_cast<u64>(p));
    if (at == by_base_.end() || at->second.opened || at->second.registered ||
        (at->second.memory == Memory::kHost) != host)
        return false;
    munmap(p, at->second.nbytes);
    close(at->second.fd);
    by_base_.erase(at);
    generation_.fetch_add(1, std::memory_order_release);
    return true;
}

bool Allocations::add_registered(void *p, u64 nbytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Allocation a;
    a.base = reinterpret_cast<u64>(p);
    a.nbytes = nbytes;
    a.memory = Memory::kHost;
    a.registered = true;
    generation_.fetch_add(1, std::memory_order_release);
    return by_base_.emplace(a.base, a).second;
}

bool Allocations::remove_registered(void *p) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = by_base_.find(reinterpret_cast<u64>(p));
    if (at == by_base_.end() || !at->second.registered) return false;
    by_base_.erase(at);
    generation_.fetch_add(1, std::memory_order_release);
    return true;
}

bool Allocations::export_handle(void *p, ExportedHandle &handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = by_base_.find(reinterpret_cast<u64>(p));
    if (at == by_base_.end() || at->second.opened || at->second.memory == Memory::kHost)
        return false;
    Allocation &a = at->second;
    a.shared = true;
    generation_.fetch_add(1, std::memory_order_release);
    handle = ExportedHandle{kMagic,   a.base,        a.nbytes, inode_of(a.fd),
                            a.device, u32(a.memory), getpid(), a.fd};
    return true;
}

void *Allocations::open_handle(const ExportedHandle &handle) {
    if (handle.magic != kMagic) return nullptr;
    const std::string path =
        "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
    const std::lock_guard<std::mutex> lock(mutex_);
    Allocation a;
    a.fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (a.fd < 0) return nullptr;
    if (inode_of(a.fd) != handle.inode) {  // the number has come to stand for another file
        close(a.fd);
        return nullptr;
    }
    a.base = handle.base;
    a.nbytes = handle.nbytes;
    a.device = handle.device;
    a.memory = Memory(handle.memory);
    a.shared = a.opened = true;
    return map(a);
}

bool Allocations::close_handle(void *p) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = by_base_.find(reinterpret_cast<u64>(p));
    if (at == by_base_.end() || !at->second.opened) return false;
    munmap(p, at->second.nbytes);
    close(at->second.fd);
    by_base_.erase(at);
    generation_.fetch_add(1, std::memory_order_release);
    return true;
}

void Allocations::share_device(u32 device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    shared_devices_[device] = true;
    for (auto &entry : by_base_)
        if (entry.second.device == device) entry.second.shared = true;
    generation_.fetch_add(1, std::memory_order_release);
}

bool Allocations::find(u64 address, Allocation &found) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto at = by_base_.upper_bound(address);
    if (at == by_base_.begin()) return false;
    --at;
    if (address - at->first >= at->second.nbytes) return false;
    found = at->second;
    return true;
}

bool Allocations::drop_pages(void *p, u64 nbytes) {
    Allocation a;
    const u64 address = reinterpret_cast<u64>(p);
    if (address % kPage != 0 || nbytes % kPage != 0 || !find(address, a) || a.registered)
        return false;
    return madvise(p, nbytes, MADV_REMOVE) == 0;
}

std::vector<Allocation> Allocations::all() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Allocation> list;
    for (const auto &entry : by_base_) list.push_back(entry.second);
    return list;
}

}  // namespace rdnasim
