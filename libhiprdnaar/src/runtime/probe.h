// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "communicator.h"

namespace rdnaar {

// Blocking; see rdnaar_probe().
rdnaar_probe_result run_probe(Communicator &comm, const rdnaar_probe_config &config, void *stream);

}  // namespace rdnaar
