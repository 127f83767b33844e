// SPDX-License-Identifier: Apache-2.0
// A communicator: settings, slabs and the counters of one rank.
//
// Why it is aborted is known in two places. A call that gives up writes the abort line and claims it,
// once, on the device. The host's own reasons (the caller, a dead peer, a call that the runtime
// refused) are in host_abort_, the first of them, and go to the slabs as abort words, so that calls
// end and record the same reason with their own details.
#pragma once

#include <mutex>

#include "blob.h"
#include "peer_watch.h"

#if RDNAAR_FAULTS
#include "../faults/injection.h"
#endif

namespace rdnaar {

class Communicator {
public:
    explicit Communicator(const rdnaar_config &config);

    // Ends the calls that are queued, waiting for at most `wait_ms`, and if there is time to wait for
    // the end of that, aborts them; then lets go of the peers' slabs and says so. The text is empty
    // when all is done; otherwise it tells why memory must be kept:
    enum class Kept { kNothing, kSlab, kAll };
    Kept close(uint32_t wait_ms, std::string &why);
    // kSlab: never freed, since a peer still has it open.
    void keep_slab();

    void export_buffers(void *blob, uint64_t size);
    void register_buffers(const void *blobs, uint32_t world);
    Plan plan(uint64_t count, uint32_t dtype, uint32_t op, uint32_t algo) const;
    void all_reduce(const void *in, void *out, uint64_t count, uint32_t dtype, uint32_t op,
                    uint32_t algo, void *stream);
    void reduce_scatter(const void *in, void *out, uint64_t count, uint32_t dtype, uint32_t op,
                        void *stream);
    void all_gather(const void *in, void *out, uint64_t count, uint32_t dtype, void *stream);
    void abort(const char *reason);
    rdnaar_abort_record_t abort_record() const;
    rdnaar_late_record_t late_record() const;

    const Settings &settings() const { return settings_; }
    uint32_t device() const { return device_; }
    bool aborted() const;
    uint32_t transport() const;

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
    struct Buffers {
        const void *in;
        void *out;
        uint64_t in_bytes, out_bytes;
        int64_t out_in_place;  // where `out` is in a call in place, from `in`
        bool in_place() const { return static_cast<const char *>(in) + out_in_place == out; }
    };
    struct Peer;  // what is open of another process, or of another rank of this one

    static void check_buffers(const Buffers &buffers, uint64_t count, uint32_t dtype);
    void run(const Plan &plan, const Buffers &buffers, uint64_t count, uint32_t dtype, uint32_t op,
             void *stream);
    void submit(backend::Launch &launch, void *stream);
    void abort(uint32_t reason, uint32_t because_of, const std::string &text);
    void abort_quietly(uint32_t reason, uint32_t because_of, const std::string &text);
    void peer_died(uint32_t rank);
    std::string who_keeps_slab_open() const;

    const Settings settings_;
    const uint32_t device_;
    const uint64_t ticks_per_ms_;
    std::shared_ptr<backend::Slab> slab_;
    std::shared_ptr<Board> board_;
    std::shared_ptr<backend::PrivateState> state_;
    std::unique_ptr<backend::Sequencer> sequencer_;
    std::mutex peers_mutex_;  // a thread may abort while another registers
    std::shared_ptr<Peer> peers_[kMaxWorld];
    bool registered_ = false;
    uint64_t host_abort_ = 0;             // an abort word (atomic); 0: none
    mutable uint64_t settled_abort_ = 0;  // the one that abort_record() has told first; likewise
    Call call_{};                         // what all calls have in common
    std::unique_ptr<PeerWatch> watch_;    // uses what is above
#if RDNAAR_FAULTS
    Injection faults_{settings_.config.rank, settings_.config.world};
#endif

    mutable std::mutex error_mutex_;
    std::string last_error_;
};

}  // namespace rdnaar

struct rdnaar_comm {
    rdnaar::Communicator impl;
};
