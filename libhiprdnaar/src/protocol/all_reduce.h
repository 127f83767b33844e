// SPDX-License-Identifier: Apache-2.0
// One call on one lane: what a kernel, a host worker or a test's scheduler runs.
#pragma once

#include "ll.h"
#include "oneshot.h"
#include "twoshot.h"

#if RDNAAR_FAULTS
#include "../faults/faulty_lane.h"
#endif

namespace rdnaar {

RDNAAR_FN constexpr OpKind kind_of(uint32_t op) {
    return op == kMax || op == kMin ? kOpMax : kOpAdd;
}

// kAlgo (all-reduce by algorithm, or another collective), the element type, the kind of the operation and a bound of the world (kMaxW >= world) are
// compiled in; kMaxW bounds the vectors that a thread holds in registers.
template <class Lane, uint32_t kAlgo, class T, OpKind kOp, int kMaxW>
RDNAAR_FN void all_reduce(Lane &lane, const Call &call) {
    const Entry entry = read_entry(lane, call);
    const Tensor<Lane, T> tensor(call, kAlgo == kAlgoReduceScatter ? call.rank : 0,
                                 kAlgo == kAlgoAllGather ? call.rank : 0);
    const uint32_t flip = call.op == kMin ? 0x80000000u : 0u;
    const float divisor = call.op == kAvg ? float(call.world) : 1.0f;
    post_cards(lane, call, entry);
    bool ok;
    if constexpr (kAlgo == kAlgoLl) {
        ok = Ll<Lane, T, kOp, kMaxW>{lane, call, entry, tensor, flip, divisor, false}.run();
    } else if constexpr (kAlgo == kAlgoTwoshot) {
        ok = Twoshot<Lane, T, kOp, kMaxW>{lane, call, uniform(lane, entry), tensor, flip, divisor}
                 .run();
    } else {
        ok = Oneshot<Lane, T, kOp, kMaxW>{lane, call, uniform(lane, entry), tensor, flip, divisor}
                 .template run<kAlgo>();
    }
    if (ok) return;
    if constexpr (kAlgo == kAlgoAllGather) {
        for (uint32_t q = 0; q < call.world; q++)
            poison(lane, call, Tensor<Lane, T>(call, 0, q), 1);
    } else {
        poison(lane, call, tensor, kAlgo == kAlgoTwoshot ? call.world : 1);
    }
}

// What kernels and host workers run.
template <class Lane, uint32_t kAlgo, class T, OpKind kOp, int kMaxW>
RDNAAR_FN void run_all_reduce(Lane &lane, const Call &call) {
#if RDNAAR_FAULTS
    FaultyLane<Lane> faulty(lane, call);
    all_reduce<FaultyLane<Lane>, kAlgo, T, kOp, kMaxW>(faulty, call);
#else
    all_reduce<Lane, kAlgo, T, kOp, kMaxW>(lane, call);
#endif
}

}  // namespace rdnaar
