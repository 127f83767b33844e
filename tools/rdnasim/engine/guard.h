// SPDX-License-Identifier: Apache-2.0
// A kernel that touches memory which is not there ends the process, with a message that says where.
#pragma once

namespace rdnasim {

// For the thread that made it, as long as it lives.
class FaultGuard {
public:
    FaultGuard();
};

}  // namespace rdnasim
