// SPDX-License-Identifier: Apache-2.0
#include "shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "../runtime/descriptor.h"
#include "../runtime/error.h"

namespace rdnaar {

namespace {

// A peer that could cut the file short could crash this process.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail_errno(const char *what) {
    fail(RDNAAR_E_SYSTEM, "%s: %s", what, strerror(errno));
}

unsigned char *map_shared(int fd, uint64_t nbytes) {
    void *p = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (p == MAP_FAILED)
        fail(RDNAAR_E_OUT_OF_MEMORY, "mapping %" PRIu64 " bytes of shared memory: %s", nbytes,
             strerror(errno));
    return static_cast<unsigned char *>(p);
}

}  // namespace

uint64_t pid_namespace() {
    struct stat s;
    return stat("/proc/self/ns/pid", &s) == 0 ? uint64_t(s.st_ino) : 0;
}

SharedMemory::SharedMemory(const char *name, uint64_t nbytes) : nbytes_(nbytes) {
    Descriptor fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd.get() < 0) fail_errno("memfd_create");
    if (fchmod(fd.get(), 0600) != 0) fail_errno("fchmod");
    if (ftruncate(fd.get(), off_t(nbytes)) != 0)
        fail(RDNAAR_E_OUT_OF_MEMORY, "%" PRIu64 " bytes of shared memory: %s", nbytes,
             strerror(errno));
    if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) fail_errno("sealing shared memory");
    base_ = map_shared(fd.get(), nbytes);
    fd_ = fd.release();
}

SharedMemory::SharedMemory(const SharedMemoryAddress &address, uint64_t nbytes, uint32_t peer)
    : nbytes_(nbytes) {
    if (address.pid_namespace != pid_namespace())
        fail(RDNAAR_E_PEER,
             "rank %u runs in another pid namespace (a container of its own): start all ranks in "
             "one",
             peer);
    if (address.pid <= 0 || address.fd < 0)
        fail(RDNAAR_E_INVALID_ARGUMENT, "blob %u names process %d and descriptor %d", peer,
             address.pid, address.fd);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", address.pid, address.fd);
    // O_NONBLOCK: the name may lead to a pipe or a device, which must not hold us up.
    const Descriptor fd(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0)
        fail(RDNAAR_E_PEER,
             "the memory of rank %u (process %d) cannot be opened: %s; it has ended, or belongs to "
             "another user",
             peer, address.pid, strerror(errno));
    struct stat s;
    if (fstat(fd.get(), &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid() ||
        s.st_size != off_t(nbytes) || (fcntl(fd.get(), F_GET_SEALS) & kSeals) != kSeals)
        fail(RDNAAR_E_PEER, "process %d has ended: its descriptor %d is not memory of rank %u",
             address.pid, address.fd, peer);
    base_ = map_shared(fd.get(), nbytes);
}

SharedMemory::~SharedMemory() {
    munmap(base_, nbytes_);
    if (fd_ >= 0) close(fd_);
}

SharedMemoryAddress SharedMemory::address() const {
    return SharedMemoryAddress{pid_namespace(), getpid(), fd_};
}

}  // namespace rdnaar
