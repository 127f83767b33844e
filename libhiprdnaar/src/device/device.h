// SPDX-License-Identifier: Apache-2.0
// A GPU that this process uses: its kernels, and a stream of the library's own for small transfers
// beside the caller's work.
#pragma once

#include <mutex>
#include <vector>

#include "../protocol/probe.h"
#include "grid.h"
#include "platform.h"

namespace rdnaar::gpu {

class Device {
public:
    // Opened on first use, kept until the process ends.
    static Device &get(uint32_t index);
    // Devices opened so far.
    static std::vector<uint32_t> opened();

    uint32_t index() const { return index_; }

    // Puts a call on a stream of this device, which is current.
    void launch(const Call &call, uint32_t dtype, const GridShape &shape, void *stream) const;
    void launch(const ProbeCall &call, const GridShape &shape, void *stream) const;

    // On the own stream; they return when it is done.
    void fill(void *device_ptr, uint32_t word, uint64_t nbytes);
    void read(void *host, const void *device_ptr, uint32_t nbytes);  // at most kScratchBytes
    void write(void *device_ptr, const void *host, uint32_t nbytes);
    // Likewise, but returns at once, and is done soon whatever kernels are running.
    void post_word(void *device_ptr, uint64_t word);

    static constexpr uint32_t kScratchBytes = 64;

private:
    explicit Device(uint32_t index);
    void load_kernels();
    static void launch(void *function, const void *call, const GridShape &shape, void *stream);
    void synchronize();

    static constexpr uint32_t kAlgos = kAlgoAllGather + 1, kDtypes = 3, kOps = 2, kWorlds = 3;
    static constexpr uint32_t kPostedWords = 256;  // that may be on their way at once

    const uint32_t index_;
    void *functions_[kAlgos][kDtypes][kOps][kWorlds] = {};
    void *probe_ = nullptr;
    void *stream_ = nullptr;
    std::mutex mutex_;                  // guards what is below
    unsigned char *scratch_ = nullptr;  // pinned
    uint64_t *posted_ = nullptr;        // pinned; a ring
    uint32_t next_posted_ = 0;
};

}  // namespace rdnaar::gpu
