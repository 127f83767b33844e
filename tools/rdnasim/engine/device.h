// SPDX-License-Identifier: Apache-2.0
// A simulated GPU, as this process sees it.
#pragma once

#include "settings.h"
#include "weak_memory.h"

namespace rdnasim {

class Device {
public:
    Device(u32 index, const Model &model);
    static std::vector<std::unique_ptr<Device>> &all();

    const u32 index;
    const Model &model;
    std::unique_ptr<DeviceMemoryModel> memory;  // NULL in the strong model
    u32 resident_blocks = 0;
    std::vector<bool> peers;  // that access was given to
};

}  // namespace rdnasim
