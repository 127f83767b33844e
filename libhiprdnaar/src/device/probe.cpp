// SPDX-License-Identifier: Apache-2.0
#include "../protocol/probe.h"

#include "../runtime/backend.h"
#include "device.h"

namespace rdnaar::backend {

namespace {

// Destroyed also when what is measured fails.
class Event {
public:
    explicit Event(uint32_t device) : event_(create_event(device)) {}
    ~Event() {
        try {
            destroy_event(event_);
        } catch (...) {  // the error that led here says more
        }
    }
    void *get() const { return event_; }

private:
    void *const event_;
};

}  // namespace

double run_probe(uint32_t device, const ProbeCall &call, const Grid &grid, void *stream) {
    const Event start(device), stop(device);
    record_event(start.get(), stream);
    {
        const gpu::DeviceScope scope(device);
        gpu::Device::get(device).launch(call, GridShape{grid.blocks, grid.threads}, stream);
    }
    record_event(stop.get(), stream);
    sync_event(stop.get());
    return elapsed_us(start.get(), stop.get());
}

}  // namespace rdnaar::backend
