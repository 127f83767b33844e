// SPDX-License-Identifier: Apache-2.0
// The compiled kernels inside this library.
#pragma once

#include <string>
#include <vector>

namespace rdnaar::gpu {

// Fat binary with the code objects of all targets: of clang's offload bundle format for AMD, of
// nvcc's for NVIDIA. In the section where the platform's tools look for it.
const void *kernel_image();

// The targets in an offload bundle: "gfx1030", ...
std::vector<std::string> bundled_targets(const void *bundle);

}  // namespace rdnaar::gpu
