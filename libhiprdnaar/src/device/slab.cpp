// SPDX-License-Identifier: Apache-2.0
// Slabs of GPU ranks. Two places for one:
//
//   p2p   device memory of the owner. Peers of the same process use its address, others open it
//         through an IPC handle.
//   host  pinned host memory that all devices map, for boards whose devices cannot reach each
//         other.
//         Processes share it as CPU ranks do; each registers it with its own device.
//
// Each slab says in its handle which it is, so ranks may differ.
#include <unistd.h>

#include <cstring>

#include "../host/shared_memory.h"
#include "../protocol/ll.h"
#include "../runtime/backend.h"
#include "../runtime/identity.h"
#include "memory.h"
#include "tuning.h"

namespace rdnaar::backend {

using namespace gpu;

namespace {

struct GpuHandle {
    Identity identity;
    SharedMemoryAddress process;  // fd: -1 unless the slab is in host memory
    IpcHandle ipc;                // of device memory
    char pci_bus_id[16];
    uint32_t transport;
    uint32_t reserved;
};
static_assert(sizeof(GpuHandle) <= kHandleBytes, "fits into the blob");

std::string pci_bus_id(uint32_t device) {
    char text[32] = {};
    check(api().device_pci_bus_id(text, sizeof text, int(device)),
          "asking for the PCI bus id of device %u", device);
    return text;
}

// ---- Host memory for a slab ---------------------------------------------------------------------

// Shared memory, pinned and mapped into one device.
class MappedMemory {
public:
    MappedMemory(uint32_t device, uint64_t nbytes)
        : device_(device), memory_("rdnaar-slab", nbytes) {
        map();
    }
    MappedMemory(uint32_t device, const SharedMemoryAddress &address, uint64_t nbytes,
                 uint32_t peer)
        : device_(device), memory_(address, nbytes, peer) {
        map();
    }
    ~MappedMemory() {
        free_quietly(device_, [this] { return api().host_unregister(memory_.base()); });
    }
    MappedMemory(const MappedMemory &) = delete;
    MappedMemory &operator=(const MappedMemory &) = delete;

    const SharedMemory &memory() const { return memory_; }

    // Registered for all devices; each may see it at an address of its own.
    unsigned char *seen_by(uint32_t device) const {
        const DeviceScope scope(device);
        void *p = nullptr;
        check(api().host_device_pointer(&p, memory_.base(), 0),
              "mapping host memory into device %u", device);
        return static_cast<unsigned char *>(p);
    }

private:
    void map() {
        const DeviceScope scope(device_);
        check(api().host_register(memory_.base(), memory_.nbytes(), kHostPortable | kHostMapped),
              "pinning host memory for the slab");
    }

    const uint32_t device_;
    const SharedMemory memory_;
};

void store_abort_word(unsigned char *slab, uint64_t word) {
    __atomic_store_n(reinterpret_cast<uint64_t *>(slab + kAbortWordOffset), word, __ATOMIC_RELAXED);
}

// ---- Own slabs ----------------------------------------------------------------------------------

// What a peer in the same process needs beside the slab's interface.
class OwnSlab : public Slab {
public:
    OwnSlab(uint32_t device, uint32_t transport)
        : device_(device), transport_(transport), identity_(new_identity()) {}
    const Identity &identity() const { return identity_; }
    uint32_t device() const { return device_; }
    uint32_t transport() const override { return transport_; }
    // The address for a rank on `device` of this process.
    virtual unsigned char *seen_by(uint32_t device) const = 0;
    Handle handle() const override {
        GpuHandle h{};
        h.identity = identity_;
        h.process = SharedMemoryAddress{pid_namespace(), getpid(), -1};
        h.transport = transport_;
        const std::string pci = pci_bus_id(device_);
        memcpy(h.pci_bus_id, pci.c_str(), min_of(pci.size(), sizeof h.pci_bus_id - 1));
        complete(h);
        Handle handle{};
        memcpy(handle.bytes, &h, sizeof h);
        return handle;
    }

private:
    virtual void complete(GpuHandle &h) const = 0;

    const uint32_t device_, transport_;
    const Identity identity_;
};

class OwnDeviceSlab final : public OwnSlab {
public:
    OwnDeviceSlab(uint32_t device, const Layout &layout, bool shared)
        : OwnSlab(device, RDNAAR_TRANSPORT_P2P), memory_(device, layout.slab_bytes, shared) {
        Device &d = Device::get(device);
        d.fill(base(), 0, layout.slab_bytes);
        d.fill(base() + layout.ll, kSentinel, layout.oneshot - layout.ll);
        d.write(base() + kIdentityOffset, &identity(), sizeof(Identity));
    }
    unsigned char *base() const override { return memory_.get(); }
    void post_abort_word(uint64_t word) override {
        Device::get(device()).post_word(base() + kAbortWordOffset, word);
    }
    uint32_t poll_pause() const override { return 0; }
    bool peers_must_close_first() const override { return true; }
    unsigned char *seen_by(uint32_t peer_device) const override {
        if (peer_device != device()) reach(peer_device);
        return base();
    }

private:
    void reach(uint32_t from) const {
        const DeviceScope scope(from);
        const int error = enable_peer_access(device());
        if (error == kErrorPeerAccessAlreadyEnabled) {
            error_text(error);  // clears it: it was not an error
        } else {
            check(error, "giving device %u access to device %u", from, device());
        }
    }
    void complete(GpuHandle &h) const override {
        const DeviceScope scope(device());
        check(api().ipc_export(&h.ipc, base()), "exporting device memory to other processes");
    }

    const DeviceMemory memory_;
};

class OwnHostSlab final : public OwnSlab {
public:
    OwnHostSlab(uint32_t device, const Layout &layout)
        : OwnSlab(device, RDNAAR_TRANSPORT_HOST), memory_(device, layout.slab_bytes) {
        unsigned char *host = memory_.memory().base();
        memset(host + layout.ll, 0xFF, layout.oneshot - layout.ll);
        static_assert(kSentinel == 0xFFFFFFFFu, "as the memset above");
        memcpy(host + kIdentityOffset, &identity(), sizeof(Identity));
        base_ = memory_.seen_by(device);
    }
    unsigned char *base() const override { return base_; }
    void post_abort_word(uint64_t word) override {
        store_abort_word(memory_.memory().base(), word);
    }
    uint32_t poll_pause() const override { return tuning().host_poll_pause; }
    bool peers_must_close_first() const override { return false; }
    unsigned char *seen_by(uint32_t device) const override { return memory_.seen_by(device); }

private:
    void complete(GpuHandle &h) const override { h.process = memory_.memory().address(); }

    const MappedMemory memory_;
    unsigned char *base_;
};

SlabRegistry<OwnSlab> &registry() {
    // Outlives all communicators.
    static SlabRegistry<OwnSlab> *const r = new SlabRegistry<OwnSlab>;
    return *r;
}

// ---- Peers' slabs -------------------------------------------------------------------------------

// Of a rank in the same process.
class NeighbourSlab final : public Mapping {
public:
    NeighbourSlab(std::shared_ptr<OwnSlab> slab, uint32_t device)
        : slab_(std::move(slab)), base_(slab_->seen_by(device)) {}
    unsigned char *base() const override { return base_; }
    void post_abort_word(uint64_t word) override { slab_->post_abort_word(word); }

private:
    const std::shared_ptr<OwnSlab> slab_;
    unsigned char *const base_;
};

// Device memory of another process.
class IpcSlab final : public Mapping {
public:
    IpcSlab(uint32_t device, const IpcHandle &handle, uint32_t peer) : device_(device) {
        const DeviceScope scope(device);
        void *p = nullptr;
        const int error = api().ipc_open(&p, handle, kIpcLazyPeerAccess);
        if (error != kSuccess)
            fail(RDNAAR_E_PEER,
                 "the device memory of rank %u cannot be opened: %s; it has ended, or its GPU is "
                 "not visible to this process, or the GPUs cannot reach each other "
                 "(RDNAAR_TRANSPORT=host does without)",
                 peer, error_text(error).c_str());
        base_ = static_cast<unsigned char *>(p);
    }
    ~IpcSlab() override {
        free_quietly(device_, [this] { return api().ipc_close(base_); });
    }
    unsigned char *base() const override { return base_; }
    void post_abort_word(uint64_t word) override {
        Device::get(device_).post_word(base_ + kAbortWordOffset, word);
    }
    Identity identity() const {
        Identity identity;
        Device::get(device_).read(&identity, base_ + kIdentityOffset, sizeof identity);
        return identity;
    }

private:
    const uint32_t device_;
    unsigned char *base_;
};

// Host memory of another process.
class HostSlab final : public Mapping {
public:
    HostSlab(uint32_t device, const SharedMemoryAddress &address, uint64_t nbytes, uint32_t peer)
        : memory_(device, address, nbytes, peer), base_(memory_.seen_by(device)) {}
    unsigned char *base() const override { return base_; }
    void post_abort_word(uint64_t word) override {
        store_abort_word(memory_.memory().base(), word);
    }
    Identity identity() const {
        Identity identity;
        memcpy(&identity, memory_.memory().base() + kIdentityOffset, sizeof identity);
        return identity;
    }

private:
    const MappedMemory memory_;
    unsigned char *const base_;
};

// ---- Who can reach whom -------------------------------------------------------------------------

bool can_reach(uint32_t from, uint32_t to) {
    int can = 0;
    const int error = api().can_access_peer(&can, int(from), int(to));
    if (error != kSuccess) error_text(error);  // clears it
    return error == kSuccess && can != 0;
}

// AUTO: as far as the runtime says. Integrated GPUs are not counted, since no rank is meant to run
// there.
bool reaches_all(uint32_t device) {
    const uint32_t count = device_count();
    for (uint32_t other = 0; other < count; other++)
        if (other != device && !is_integrated(other) &&
            !(can_reach(device, other) && can_reach(other, device)))
            return false;
    return true;
}

void require_reach(uint32_t device, const GpuHandle &h, uint32_t peer) {
    const std::string theirs(h.pci_bus_id, strnlen(h.pci_bus_id, sizeof h.pci_bus_id));
    const std::string ours = pci_bus_id(device);
    if (theirs == ours) return;
    const uint32_t count = device_count();
    for (uint32_t other = 0; other < count; other++)
        if (pci_bus_id(other) == theirs && !can_reach(device, other))
            fail(RDNAAR_E_PEER,
                 "GPU %s of this rank cannot access the memory of GPU %s of rank %u: set "
                 "RDNAAR_TRANSPORT=host on all ranks",
                 ours.c_str(), theirs.c_str(), peer);
}

template <class PeerSlab>
std::shared_ptr<Mapping> proven(const std::shared_ptr<PeerSlab> &slab, const GpuHandle &h,
                                uint32_t peer) {
    if (!(slab->identity() == h.identity))
        fail(RDNAAR_E_PEER, "process %d does not hold the slab of rank %u any more", h.process.pid,
             peer);
    return slab;
}

}  // namespace

bool peer_access(uint32_t from, uint32_t to) { return from == to || can_reach(from, to); }

std::shared_ptr<Slab> create_slab(uint32_t device, const Layout &layout, uint32_t transport,
                                  uint32_t memory) {
    gpu::require_one_runtime();
    if (transport == RDNAAR_TRANSPORT_AUTO)
        transport = reaches_all(device) ? RDNAAR_TRANSPORT_P2P : RDNAAR_TRANSPORT_HOST;
    Device::get(device);  // its kernels first: an error there says most
    std::shared_ptr<OwnSlab> slab;
    if (transport == RDNAAR_TRANSPORT_P2P) {
        slab = std::make_shared<OwnDeviceSlab>(device, layout, memory == RDNAAR_MEMORY_AUTO);
    } else {
        slab = std::make_shared<OwnHostSlab>(device, layout);
    }
    registry().add(slab);
    return slab;
}

std::shared_ptr<Mapping> open_slab(uint32_t device, const Layout &layout, const Handle &handle,
                                   uint32_t peer) {
    GpuHandle h;
    memcpy(&h, handle.bytes, sizeof h);
    if (h.transport != RDNAAR_TRANSPORT_P2P && h.transport != RDNAAR_TRANSPORT_HOST)
        fail(RDNAAR_E_INVALID_ARGUMENT, "blob %u names transport %u", peer, h.transport);
    if (h.transport == RDNAAR_TRANSPORT_P2P) require_reach(device, h, peer);
    if (h.process.pid_namespace == pid_namespace() && h.process.pid == getpid())
        return std::make_shared<NeighbourSlab>(registry().find(h.identity, peer), device);
    if (h.transport == RDNAAR_TRANSPORT_P2P)
        return proven(std::make_shared<IpcSlab>(device, h.ipc, peer), h, peer);
    return proven(std::make_shared<HostSlab>(device, h.process, layout.slab_bytes, peer), h, peer);
}

}  // namespace rdnaar::backend
