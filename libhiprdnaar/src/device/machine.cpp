// SPDX-License-Identifier: Apache-2.0
// GPUs as devices: what they are, and the sizes that suit them.
#include <cinttypes>

#include "../runtime/backend.h"
#include "../runtime/text.h"
#include "device.h"
#include "tuning.h"

namespace rdnaar::backend {

using namespace gpu;

namespace {

// The runtime is there.
uint32_t count_devices() {
    int count = 0;
    int error = api().init(0);
    if (error == kSuccess) error = api().device_count(&count);
    // hipInit() of HIP 5.2 calls the device invalid when there is none.
    if (error == kErrorNoDevice || error == kErrorInvalidDevice) {
        error_text(error);  // clears it
        return 0;
    }
    check(error, "looking for GPUs");
    return min_of(uint32_t(count), kMaxDevices);
}

uint64_t by_world(const uint64_t (&values)[3], uint32_t world) {
    return values[world <= 2 ? 0 : world <= 4 ? 1 : 2];
}

}  // namespace

const char *name() { return backend_name(); }

std::string targets() { return compiled_targets(); }

std::string runtime_description() { return runtime_is_loaded() ? gpu::runtime_description() : ""; }

uint32_t device_count() { return runtime_exists() ? count_devices() : 0; }

void device_info(uint32_t index, rdnaar_device_info_t &info) {
    const uint32_t device = resolve_device(int32_t(index));
    char text[96] = {};
    check(api().device_name(text, sizeof text, int(device)), "asking for the name of device %u",
          device);
    put_text(info.name, text);
    char pci[32] = {};
    check(api().device_pci_bus_id(pci, sizeof pci, int(device)),
          "asking for the PCI bus id of device %u", device);
    put_text(info.pci_bus_id, pci);
    size_t nbytes = 0;
    check(api().device_memory(&nbytes, int(device)), "asking for the memory of device %u", device);
    info.memory_bytes = nbytes;
    put_text(info.architecture, architecture(device));
    info.compute_units = compute_units(device);
    info.integrated = is_integrated(device);
    info.uncached = uncached_possible(device);
}

uint32_t resolve_device(int32_t device) {
    const uint32_t count = count_devices();
    if (count == 0)
        fail(RDNAAR_E_NO_DEVICE, "%s finds no GPU on this machine",
             gpu::runtime_description().c_str());
    if (device < -1 || device >= int32_t(count))
        fail(RDNAAR_E_INVALID_ARGUMENT, "device is %d, but must be -1 to %u", device, count - 1);
    return device == -1 ? current_device() : uint32_t(device);
}

uint64_t ticks_per_ms(uint32_t device) { return gpu::ticks_per_ms(device); }

StagingSizes staging_limits(uint32_t, uint64_t max_bytes) {
    const StagingSizes &most = tuning().staging;
    return StagingSizes{min_of(max_bytes, most.ll), min_of(max_bytes, most.oneshot),
                        min_of(max_bytes, most.twoshot)};
}

Thresholds default_thresholds(uint32_t world) {
    return Thresholds{by_world(tuning().ll_bytes, world), by_world(tuning().oneshot_bytes, world)};
}

// Up to one vector a thread for what waits for a trip; more for what waits for the link.
Grid grid_for(uint32_t algo, uint64_t nbytes, uint32_t world, uint32_t blocks_cap) {
    constexpr uint32_t kVector = 16, kWave = 32;
    uint64_t vectors = ceil_div(nbytes, kVector);
    if (algo == RDNAAR_ALGO_TWOSHOT)
        vectors = ceil_div(min_of(vectors, tuning().staging.twoshot / kVector),
                           world * tuning().vectors_per_thread);
    const uint32_t most = blocks_cap != 0 ? min_of(blocks_cap, tuning().blocks) : tuning().blocks;
    const uint64_t threads = min_of(round_up(vectors, kWave), uint64_t(tuning().threads));
    const uint64_t blocks = min_of(ceil_div(vectors, tuning().threads), uint64_t(most));
    return Grid{uint32_t(blocks), uint32_t(threads)};
}

uint32_t vector_bytes() { return 16; }

// A fifth of what one lane of PCIe 3.0 carries: a link that is slower is not as it should be.
uint32_t rate_floor_mb_s() { return 200; }

}  // namespace rdnaar::backend
