// SPDX-License-Identifier: Apache-2.0
// Slabs of CPU ranks: shared memory.
#include <unistd.h>

#include <cstring>

#include "../protocol/ll.h"
#include "../runtime/backend.h"
#include "../runtime/identity.h"
#include "shared_memory.h"

namespace rdnaar::backend {

namespace {

struct HostHandle {
    Identity identity;
    SharedMemoryAddress address;
};
static_assert(sizeof(HostHandle) <= kHandleBytes, "fits into the blob");

void store_abort_word(unsigned char *slab, uint64_t word) {
    __atomic_store_n(reinterpret_cast<uint64_t *>(slab + kAbortWordOffset), word, __ATOMIC_RELAXED);
}

class OwnSlab final : public Slab {
public:
    explicit OwnSlab(const Layout &layout)
        : memory_("rdnaar-slab", layout.slab_bytes), identity_(new_identity()) {
        memset(memory_.base() + layout.ll, 0xFF, layout.oneshot - layout.ll);
        static_assert(kSentinel == 0xFFFFFFFFu, "as the memset above");
        memcpy(memory_.base() + kIdentityOffset, &identity_, sizeof identity_);
    }
    unsigned char *base() const override { return memory_.base(); }
    void post_abort_word(uint64_t word) override { store_abort_word(base(), word); }
    uint32_t poll_pause() const override { return 0; }
    uint32_t transport() const override { return RDNAAR_TRANSPORT_HOST; }
    bool peers_must_close_first() const override { return false; }
    const Identity &identity() const { return identity_; }
    Handle handle() const override {
        const HostHandle h{identity_, memory_.address()};
        Handle handle{};
        memcpy(handle.bytes, &h, sizeof h);
        return handle;
    }

private:
    const SharedMemory memory_;
    const Identity identity_;
};

class PeerSlab final : public Mapping {
public:
    PeerSlab(const HostHandle &h, uint64_t nbytes, uint32_t peer)
        : memory_(h.address, nbytes, peer) {
        if (memcmp(memory_.base() + kIdentityOffset, &h.identity, sizeof h.identity) != 0)
            fail(RDNAAR_E_PEER, "process %d does not hold the slab of rank %u any more",
                 h.address.pid, peer);
    }
    unsigned char *base() const override { return memory_.base(); }
    void post_abort_word(uint64_t word) override { store_abort_word(base(), word); }

private:
    const SharedMemory memory_;
};

SlabRegistry<OwnSlab> &registry() {
    static SlabRegistry<OwnSlab> *const r =
        new SlabRegistry<OwnSlab>;  // outlives all communicators
    return *r;
}

}  // namespace

std::shared_ptr<Slab> create_slab(uint32_t, const Layout &layout, uint32_t transport, uint32_t) {
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
    if (h.address.pid_namespace == pid_namespace() && h.address.pid == getpid()) {
        const std::shared_ptr<OwnSlab> slab = registry().find(h.identity, peer);
        if (memcmp(slab->handle().bytes, handle.bytes, kHandleBytes) != 0)
            fail(RDNAAR_E_INVALID_ARGUMENT, "the handle in blob %u is malformed", peer);
        return slab;
    }
    return std::make_shared<PeerSlab>(h, layout.slab_bytes, peer);
}

}  // namespace rdnaar::backend
