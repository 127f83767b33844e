// SPDX-License-Identifier: Apache-2.0
// The protocol's own source, compiled for the lane of the explorer.
#pragma once

#include "machine.h"

namespace explorer {

using Kernel = void (*)(Machine &machine, Thread &thread, const rdnaar::Call &call, uint32_t blocks,
                        uint32_t threads);

Kernel find_kernel(bool cpu_lane, uint32_t algo, Dtype dtype, uint32_t world);

}  // namespace explorer
