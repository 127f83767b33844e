// SPDX-License-Identifier: Apache-2.0
// Links between devices that are broken on purpose.
#pragma once

#include "store_queue.h"

namespace rdnasim {

bool peer_faults_exist();

// What becomes of a store from one device to memory of another: changed, or (false) lost.
bool pass_faulty_link(u32 from, u32 to, Store &store);

}  // namespace rdnasim
