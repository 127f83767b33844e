// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include "lane.h"

namespace explorer {

using namespace rdnaar;

namespace {

template <bool kCpu, uint32_t kAlgo, class T, int kMaxW>
void run(Machine &machine, Thread &thread, const Call &call, uint32_t blocks, uint32_t threads) {
    ExplorerLane<kCpu> lane(machine, thread, blocks, threads);
    all_reduce<ExplorerLane<kCpu>, kAlgo, T, kOpAdd, kMaxW>(lane, call);
}

// EXPLORER_QUICK: for planted faults, which are compiled one by one, fewer kernels will do: those
// of the GPUs' lane for the largest world.
#if defined(EXPLORER_QUICK)
constexpr bool kCpuLane = false;
constexpr int kSmallWorld = kRanks;
#else
constexpr bool kCpuLane = true;
constexpr int kSmallWorld = 2;
#endif

template <bool kCpu, uint32_t kAlgo, class T>
Kernel by_world(uint32_t world) {
    return world == 2 ? run<kCpu, kAlgo, T, kSmallWorld> : run<kCpu, kAlgo, T, int(kRanks)>;
}

template <bool kCpu, uint32_t kAlgo>
Kernel by_dtype(Dtype dtype, uint32_t world) {
    return dtype == Dtype::kFp16   ? by_world<kCpu, kAlgo, Fp16>(world)
           : dtype == Dtype::kBf16 ? by_world<kCpu, kAlgo, Bf16>(world)
                                   : by_world<kCpu, kAlgo, Fp32>(world);
}

template <bool kCpu>
Kernel by_algo(uint32_t algo, Dtype dtype, uint32_t world) {
    return algo == kAlgoLl              ? by_dtype<kCpu, kAlgoLl>(dtype, world)
           : algo == kAlgoOneshot       ? by_dtype<kCpu, kAlgoOneshot>(dtype, world)
           : algo == kAlgoTwoshot       ? by_dtype<kCpu, kAlgoTwoshot>(dtype, world)
           : algo == kAlgoReduceScatter ? by_dtype<kCpu, kAlgoReduceScatter>(dtype, world)
                                        : by_dtype<kCpu, kAlgoAllGather>(dtype, world);
}

}  // namespace

Kernel find_kernel(bool cpu_lane, uint32_t algo, Dtype dtype, uint32_t world) {
    return cpu_lane ? by_algo<kCpuLane>(algo, dtype, world) : by_algo<false>(algo, dtype, world);
}

}  // namespace explorer
