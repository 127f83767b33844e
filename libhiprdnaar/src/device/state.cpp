// SPDX-License-Identifier: Apache-2.0
// The private state of a rank on a GPU: counters in its memory, the records in pinned host memory,
// which the host reads at any time without asking the device.
#include "../runtime/backend.h"
#include "memory.h"

namespace rdnaar::backend {

namespace {

class GpuState final : public PrivateState {
public:
    explicit GpuState(uint32_t device)
        : counters_(device, sizeof(Counters), false), records_(device, sizeof(Records)) {
        gpu::Device::get(device).fill(counters_.get(), 0, sizeof(Counters));
        counters = reinterpret_cast<Counters *>(counters_.get());
        Records *seen_by_device = reinterpret_cast<Records *>(records_.device());
        abort_line = &seen_by_device->abort;
        late_line = &seen_by_device->late;
        probe_line = &seen_by_device->probe;
        Records *seen_by_host = reinterpret_cast<Records *>(records_.host());
        host_abort_line = &seen_by_host->abort;
        host_late_line = &seen_by_host->late;
        host_probe_line = &seen_by_host->probe;
    }

private:
    struct Records {
        AbortLine abort;
        LateLine late;
        ProbeLine probe;
    };

    const gpu::DeviceMemory counters_;
    const gpu::PinnedMemory records_;
};

}  // namespace

std::shared_ptr<PrivateState> create_private_state(uint32_t device) {
    gpu::Device::get(device);  // its kernels first: an error there says most
    return std::make_shared<GpuState>(device);
}

}  // namespace rdnaar::backend
