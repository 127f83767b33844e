// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "communicator.h"

namespace rdnaar {

// Collective, blocking; see rdnaar_self_test().
rdnaar_self_test_report run_self_test(Communicator &comm, const rdnaar_self_test_config &config,
                                      void *stream);

}  // namespace rdnaar
