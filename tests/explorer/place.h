// SPDX-License-Identifier: Apache-2.0
// What lies at an offset of a slab: for checks, traces and wait graphs.
#pragma once

#include <string>

#include "../../libhiprdnaar/src/protocol/layout.h"

namespace explorer {

// "scatter slot of rank 2, half 1, word 3"
std::string describe_place(const rdnaar::Layout &layout, uint32_t world, uint32_t offset);

// The rank whose writes the place is for; the world, if any rank may write there.
uint32_t source_of(const rdnaar::Layout &layout, uint32_t world, uint32_t offset);

}  // namespace explorer
