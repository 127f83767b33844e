// SPDX-License-Identifier: Apache-2.0
// Keeps the calls of a communicator in the order in which they were made, on whatever streams.
//
// Calls on one stream are in order anyway: nothing is done for them. When a call comes on another
// stream than the last, that stream is made to wait for the last one, through an event. A stream
// that is being captured is left alone: what is captured is ordered among itself by the capture,
// and the graph against everything else by the streams that it is launched on.
#pragma once

#include <mutex>

#include "../runtime/backend.h"

namespace rdnaar {

class GpuSequencer final : public backend::Sequencer {
public:
    explicit GpuSequencer(uint32_t device);
    ~GpuSequencer() override;
    void submit(const backend::Launch &launch, void *stream) override;
    bool drain(uint32_t timeout_ms) override;
    // `stream` is about to be destroyed, and its work is done.
    void forget(void *stream);

private:
    void order(void *stream);

    const uint32_t device_;
    std::mutex mutex_;
    void *event_ = nullptr;
    bool used_ = false;  // a call is, or was, on its way on last_
    void *last_ = nullptr;
};

// To all sequencers.
void forget_stream(void *stream);

}  // namespace rdnaar
