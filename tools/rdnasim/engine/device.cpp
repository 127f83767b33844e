// SPDX-License-Identifier: Apache-2.0
#include "device.h"

namespace rdnasim {

Device::Device(u32 i, const Model &m) : index(i), model(m), peers(settings().devices.size()) {
    if (settings().weak)
        memory = std::make_unique<DeviceMemoryModel>(index, settings().seed * 64 + index);
}

std::vector<std::unique_ptr<Device>> &Device::all() {
    static auto *const devices = [] {
        auto *list = new std::vector<std::unique_ptr<Device>>;
        for (const Model *model : settings().devices)
            list->push_back(std::make_unique<Device>(u32(list->size()), *model));
        return list;
    }();
    return *devices;
}

}  // namespace rdnasim
