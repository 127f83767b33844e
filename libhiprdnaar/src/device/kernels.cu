// SPDX-License-Identifier: Apache-2.0
// The kernels: one for each algorithm, dtype, kind of operation and bound of the world, named
// rdnaar_<algo>_<dtype>_<op>_w<bound>; module.cpp finds them by that name.
//
// Compiled to device code only, once per target, by clang as HIP or by nvcc as CUDA.
#include "../protocol/probe.h"
#include "lane.h"

namespace rdnaar {

template <uint32_t kAlgo, class T, OpKind kOp, int kMaxW>
RDNAAR_FN void run(const Call &call, const GridShape &shape) {
    GpuLane<kMaxW> lane(shape, call.poll_pause);
    run_all_reduce<GpuLane<kMaxW>, kAlgo, T, kOp, kMaxW>(lane, call);
}

#define KERNEL(algo, kAlgo, dtype, T, op, kOp, w)                                    \
    RDNAAR_KERNEL(kMaxThreads)                                                       \
    rdnaar_##algo##_##dtype##_##op##_w##w(RDNAAR_KERNEL_PARAMETER Call call,         \
                                          RDNAAR_KERNEL_PARAMETER GridShape shape) { \
        run<kAlgo, T, kOp, w>(gpu::argument(call), shape);                           \
    }
#define BY_WORLD(...) KERNEL(__VA_ARGS__, 2) KERNEL(__VA_ARGS__, 4) KERNEL(__VA_ARGS__, 8)
#define BY_OP(...) BY_WORLD(__VA_ARGS__, add, kOpAdd) BY_WORLD(__VA_ARGS__, max, kOpMax)
#define BY_DTYPE(...) \
    BY_OP(__VA_ARGS__, fp16, Fp16) BY_OP(__VA_ARGS__, bf16, Bf16) BY_OP(__VA_ARGS__, fp32, Fp32)

BY_DTYPE(ll, kAlgoLl)
BY_DTYPE(oneshot, kAlgoOneshot)
BY_DTYPE(twoshot, kAlgoTwoshot)
BY_DTYPE(reducescatter, kAlgoReduceScatter)
// Folds nothing: one for all operations.
BY_WORLD(allgather, kAlgoAllGather, fp16, Fp16, add, kOpAdd)
BY_WORLD(allgather, kAlgoAllGather, bf16, Bf16, add, kOpAdd)
BY_WORLD(allgather, kAlgoAllGather, fp32, Fp32, add, kOpAdd)

// No part of an algorithm: measures a link (protocol/probe.h).
RDNAAR_KERNEL(kMaxThreads)
rdnaar_probe(RDNAAR_KERNEL_PARAMETER ProbeCall call, RDNAAR_KERNEL_PARAMETER GridShape shape) {
    GpuLane<2> lane(shape, 0);
    Probe<GpuLane<2>>{lane, call}.run();
}

}  // namespace rdnaar
