// SPDX-License-Identifier: Apache-2.0
// Slabs of CPU ranks: anonymous shared memory (memfd), opened by peers through the owner's file
// descriptor. It has no name in any file system, so nothing is left after a kill, and the kernel lets
// only processes of the same user, in the same pid namespace, open another's descriptors.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <map>
#include <mutex>

#include "../protocol/ll.h"
#include "../runtime/backend.h"

namespace rdnaar::backend {

namespace {

struct Identity {
    uint64_t word[2];
    bool operator<(const Identity &o) const {
        return word[0] != o.word[0] ? word[0] < o.word[0] : word[1] < o.word[1];
    }
    bool operator==(const Identity &o) const { return word[0] == o.word[0] && word[1] == o.word[1]; }
};

struct HostHandle {
    Identity identity;
    uint64_t pid_namespace;
    int32_t pid, fd;
};
static_assert(sizeof(HostHandle) <= kHandleBytes, "fits into the blob");

[[noreturn]] void fail_errno(const char *what) {
    fail(RDNAAR_E_SYSTEM, "%s: %s", what, strerror(errno));
}

uint64_t pid_namespace() {
    struct stat s;
    return stat("/proc/self/ns/pid", &s) == 0 ? uint64_t(s.st_ino) : 0;
}

class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) close(fd_);
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    int get() const { return fd_; }

private:
    const int fd_;
};

unsigned char *map_shared(int fd, uint64_t nbytes) {
    void *p = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (p == MAP_FAILED)
        fail(RDNAAR_E_OUT_OF_MEMORY, "mapping %" PRIu64 " bytes of shared memory: %s", nbytes,
             strerror(errno));
    return static_cast<unsigned char *>(p);
}

Identity identity_in(const unsigned char *slab) {
    Identity identity;
    memcpy(&identity, slab + kIdentityOffset, sizeof identity);
    return identity;
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

class OwnSlab final : public Slab {
public:
    explicit OwnSlab(const Layout &layout)
        : nbytes_(layout.slab_bytes), fd_(memfd_create("rdnaar", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
        if (fd_.get() < 0) fail_errno("memfd_create");
        if (fchmod(fd_.get(), 0600) != 0) fail_errno("fchmod");
        if (ftruncate(fd_.get(), off_t(nbytes_)) != 0)
            fail(RDNAAR_E_OUT_OF_MEMORY, "%" PRIu64 " bytes of shared memory: %s", nbytes_,
                 strerror(errno));
        // A peer that could cut the file short could crash this process.
        if (fcntl(fd_.get(), F_ADD_SEALS, kSeals) != 0) fail_errno("sealing shared memory");
        if (getrandom(&identity_, sizeof identity_, 0) != sizeof identity_) fail_errno("getrandom");
        base_ = map_shared(fd_.get(), nbytes_);
        memset(base_ + layout.ll, 0xFF, layout.oneshot - layout.ll);
        static_assert(kSentinel == 0xFFFFFFFFu, "as the memset above");
        memcpy(base_ + kIdentityOffset, &identity_, sizeof identity_);
    }
    ~OwnSlab() override { munmap(base_, nbytes_); }
    unsigned char *base() const override { return base_; }
    const Identity &identity() const { return identity_; }
    Handle handle() const override {
        const HostHandle h{identity_, pid_namespace(), getpid(), fd_.get()};
        Handle handle{};
        memcpy(handle.bytes, &h, sizeof h);
        return handle;
    }

private:
    const uint64_t nbytes_;
    const Descriptor fd_;
    Identity identity_;
    unsigned char *base_;
};

class MappedSlab final : public Mapping {
public:
    MappedSlab(unsigned char *base, uint64_t nbytes) : base_(base), nbytes_(nbytes) {}
    ~MappedSlab() override { munmap(base_, nbytes_); }
    unsigned char *base() const override { return base_; }

private:
    unsigned char *const base_;
    const uint64_t nbytes_;
};

// Slabs of this process, for ranks that are threads of it: they share the mapping, and it stays until
// the last of them lets go.
class Registry {
public:
    void add(const std::shared_ptr<OwnSlab> &slab) {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto i = slabs_.begin(); i != slabs_.end();)
            i = i->second.expired() ? slabs_.erase(i) : std::next(i);
        slabs_[slab->identity()] = slab;
    }
    std::shared_ptr<OwnSlab> find(const Identity &identity) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto i = slabs_.find(identity);
        return i == slabs_.end() ? nullptr : i->second.lock();
    }

private:
    std::mutex mutex_;
    std::map<Identity, std::weak_ptr<OwnSlab>> slabs_;
};

Registry &registry() {
    static Registry *const r = new Registry;  // outlives every communicator
    return *r;
}

}  // namespace

std::shared_ptr<Slab> create_slab(uint32_t, const Layout &layout, uint32_t transport) {
    if (transport == RDNAAR_TRANSPORT_P2P)
        fail(RDNAAR_E_UNSUPPORTED,
             "transport p2p needs devices; the host library knows auto and host");
    const auto slab = std::make_shared<OwnSlab>(layout);
    registry().add(slab);
    return slab;
}

std::shared_ptr<Mapping> open_slab(uint32_t, const Layout &layout, const Handle &handle,
                                   uint32_t peer) {
    HostHandle h;
    memcpy(&h, handle.bytes, sizeof h);
    if (h.pid_namespace != pid_namespace())
        fail(RDNAAR_E_PEER,
             "rank %u runs in another pid namespace (a container of its own): start all ranks in "
             "one",
             peer);
    if (h.pid == getpid()) {
        const std::shared_ptr<OwnSlab> slab = registry().find(h.identity);
        if (slab == nullptr)
            fail(RDNAAR_E_PEER, "rank %u, of this process, has destroyed its communicator", peer);
        if (memcmp(slab->handle().bytes, handle.bytes, kHandleBytes) != 0)
            fail(RDNAAR_E_INVALID_ARGUMENT, "the handle in blob %u is malformed", peer);
        return slab;
    }
    if (h.pid <= 0 || h.fd < 0)
        fail(RDNAAR_E_INVALID_ARGUMENT, "blob %u names process %d and descriptor %d", peer, h.pid,
             h.fd);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    // O_NONBLOCK: the name may lead to a pipe or a device, which must not hold us up.
    const Descriptor fd(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0)
        fail(RDNAAR_E_PEER,
             "the memory of rank %u (process %d) cannot be opened: %s; it has ended, or belongs to "
             "another user",
             peer, h.pid, strerror(errno));
    struct stat s;
    if (fstat(fd.get(), &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid() ||
        s.st_size != off_t(layout.slab_bytes) || (fcntl(fd.get(), F_GET_SEALS) & kSeals) != kSeals)
        fail(RDNAAR_E_PEER, "process %d has ended: its descriptor %d is not the slab of rank %u",
             h.pid, h.fd, peer);
    const auto slab = std::make_shared<MappedSlab>(map_shared(fd.get(), layout.slab_bytes),
                                                   layout.slab_bytes);
    if (!(identity_in(slab->base()) == h.identity))
        fail(RDNAAR_E_PEER, "process %d does not hold the slab of rank %u any more", h.pid, peer);
    return slab;
}

void post_abort_word(unsigned char *slab, uint64_t word) {
    __atomic_store_n(reinterpret_cast<uint64_t *>(slab + kAbortWordOffset), word,
                     __ATOMIC_RELAXED);
}

}  // namespace rdnaar::backend
