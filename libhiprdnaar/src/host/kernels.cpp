// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set, with RDNAAR_ISA naming it (Baseline, Avx2, Avx512). All that it
// instantiates has the lane or a SIMD word in its name (see simd.h), so that the linker cannot merge
// a function compiled for one instruction set with that for another.
#include "kernels.h"

#include "lane.h"

#include "codec_f16c.h"

namespace rdnaar {
namespace {

template <uint32_t kAlgo, class T, OpKind kOp, int kMaxW>
void run(const Call &call, uint32_t spin_polls) {
    HostLane lane{spin_polls};
    run_all_reduce<HostLane, kAlgo, T, kOp, kMaxW>(lane, call);
}

template <uint32_t kAlgo, class T, OpKind kOp>
HostKernel by_world(uint32_t world) {
    return world == 2 ? run<kAlgo, T, kOp, 2> : run<kAlgo, T, kOp, int(kMaxWorld)>;
}

template <uint32_t kAlgo, class T>
HostKernel by_op(uint32_t op, uint32_t world) {
    return kind_of(op) == kOpMax ? by_world<kAlgo, T, kOpMax>(world)
                                 : by_world<kAlgo, T, kOpAdd>(world);
}

template <uint32_t kAlgo>
HostKernel by_dtype(uint32_t dtype, uint32_t op, uint32_t world) {
    if (dtype == 0) return by_op<kAlgo, Fp16>(op, world);
    if (dtype == 1) return by_op<kAlgo, Bf16>(op, world);
    return by_op<kAlgo, Fp32>(op, world);
}

HostKernel find(uint32_t algo, uint32_t dtype, uint32_t op, uint32_t world) {
    if (algo == kAlgoLl) return by_dtype<kAlgoLl>(dtype, op, world);
    if (algo == kAlgoOneshot) return by_dtype<kAlgoOneshot>(dtype, op, world);
    if (algo == kAlgoReduceScatter) return by_dtype<kAlgoReduceScatter>(dtype, op, world);
    if (algo == kAlgoAllGather) return by_dtype<kAlgoAllGather>(dtype, kSum, world);
    return by_dtype<kAlgoTwoshot>(dtype, op, world);
}

}  // namespace

#define RDNAAR_PASTE_(a, b) a##b
#define RDNAAR_PASTE(a, b) RDNAAR_PASTE_(a, b)
#define RDNAAR_TEXT_(a) #a
#define RDNAAR_TEXT(a) RDNAAR_TEXT_(a)
const HostKernels RDNAAR_PASTE(kHostKernels, RDNAAR_ISA) = {RDNAAR_TEXT(RDNAAR_ISA), find};

}  // namespace rdnaar
