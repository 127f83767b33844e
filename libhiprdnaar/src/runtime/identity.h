// SPDX-License-Identifier: Apache-2.0
// The identity of a slab: random bytes that its owner writes into it and into its handle, so that a
// peer knows that what it opened is what was meant, and that ranks of one process find each other's
// slabs.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "error.h"

namespace rdnaar {

struct Identity {
    uint64_t word[2];
    bool operator<(const Identity &o) const {
        return word[0] != o.word[0] ? word[0] < o.word[0] : word[1] < o.word[1];
    }
    bool operator==(const Identity &o) const {
        return word[0] == o.word[0] && word[1] == o.word[1];
    }
};

inline Identity new_identity() {
    Identity identity;
    if (getrandom(&identity, sizeof identity, 0) != sizeof identity)
        fail(RDNAAR_E_SYSTEM, "getrandom: %s", strerror(errno));
    return identity;
}

// The slabs of this process, for ranks that are threads of it: they share the object, and it stays
// until the last of them lets go.
template <class OwnSlab>
class SlabRegistry {
public:
    void add(const std::shared_ptr<OwnSlab> &slab) {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto i = slabs_.begin(); i != slabs_.end();)
            i = i->second.expired() ? slabs_.erase(i) : std::next(i);
        slabs_[slab->identity()] = slab;
    }
    std::shared_ptr<OwnSlab> find(const Identity &identity, uint32_t peer) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto i = slabs_.find(identity);
        const std::shared_ptr<OwnSlab> slab = i == slabs_.end() ? nullptr : i->second.lock();
        if (slab == nullptr)
            fail(RDNAAR_E_PEER, "rank %u, of this process, has destroyed its communicator", peer);
        return slab;
    }

private:
    std::mutex mutex_;
    std::map<Identity, std::weak_ptr<OwnSlab>> slabs_;
};

}  // namespace rdnaar
