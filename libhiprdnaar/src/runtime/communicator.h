// SPDX-License-Identifier: Apache-2.0
// A communicator: settings, slabs and the counters of one rank.
#pragma once

#include <mutex>

#include "blob.h"

namespace rdnaar {

class Communicator {
public:
    explicit Communicator(const rdnaar_config &config);

    // Ends the calls that are queued: waits, then aborts them. False when calls are still on their way
    // through a stream after that: the object must then stay, since they use its memory.
    bool close();

    void export_buffers(void *blob, uint64_t size);
    void register_buffers(const void *blobs, uint32_t world);
    Plan plan(uint64_t count, uint32_t dtype, uint32_t op, uint32_t algo) const;
    void all_reduce(const void *in, void *out, uint64_t count, uint32_t dtype, uint32_t op,
                    uint32_t algo, void *stream);
    void abort(const char *reason);
    rdnaar_abort_record_t abort_record() const;
    rdnaar_late_record_t late_record() const;

    const Settings &settings() const { return settings_; }
    uint32_t device() const { return device_; }
    bool aborted() const;

    // Fails unless the buffers of all ranks are registered.
    void check_ready() const;
    unsigned char *slab(uint32_t rank) const {
        const rdnaar_config &c = settings_.config;
        return call_.slab[(rank + c.world - c.rank) % c.world];
    }
    backend::PrivateState &state() const { return *state_; }

    void note_error(const std::string &text);
    std::string last_error() const;

private:
    const Settings settings_;
    const uint32_t device_;
    const uint64_t ticks_per_ms_;
    std::shared_ptr<backend::Slab> slab_;
    std::shared_ptr<backend::PrivateState> state_;
    std::unique_ptr<backend::Sequencer> sequencer_;
    std::shared_ptr<backend::Mapping> peers_[kMaxWorld];
    bool registered_ = false;
    uint32_t user_abort_ = 0;  // 1: rdnaar_abort() came before any other reason (atomic)
    Call call_{};              // what all calls have in common

    mutable std::mutex error_mutex_;
    std::string last_error_;
};

}  // namespace rdnaar

struct rdnaar_comm {
    rdnaar::Communicator impl;
};
