// SPDX-License-Identifier: Apache-2.0
// The algorithms compiled for the instruction sets of a CPU family; one is chosen at run time.
#pragma once

#include "../protocol/call.h"

namespace rdnaar {

// Runs one call to its end on the calling thread.
using HostKernel = void (*)(const Call &call, uint32_t spin_polls);

struct HostKernels {
    const char *isa;
    HostKernel (*find)(uint32_t algo, uint32_t dtype, uint32_t op, uint32_t world);
};

// Defined by kernels.cpp, compiled once for each of them.
extern const HostKernels kHostKernelsBaseline;
#if defined(__x86_64__)
extern const HostKernels kHostKernelsAvx2;
extern const HostKernels kHostKernelsAvx512;
#endif

// Whether this machine has the instructions of a set.
bool runs_here(const HostKernels &set);

// The best set for this machine.
const HostKernels &host_kernels();

}  // namespace rdnaar
