// SPDX-License-Identifier: Apache-2.0
// Every instruction set's kernels give the same bits: two ranks as threads, all pairs of edge values and
// every 16-bit pattern, for each algorithm, dtype and op. The machine's best set is what all other
// tests run; this one runs those that the machine could run but does not choose.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../../libhiprdnaar/src/host/kernels.h"

using namespace rdnaar;

namespace {

constexpr uint32_t kFp32 = 2;
constexpr uint64_t kStaged = 64 << 10;
const Layout kLayout = make_layout(2, {kStaged, kStaged, kStaged});

struct Rank {
    unsigned char *slab = static_cast<unsigned char *>(mmap(
        nullptr, kLayout.slab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    Counters counters{};
    AbortLine abort_line{};
    LateLine late_line{};
    Rank() { memset(slab + kLayout.ll, 0xFF, kLayout.oneshot - kLayout.ll); }
    ~Rank() { munmap(slab, kLayout.slab_bytes); }
};

using Bytes = std::vector<unsigned char>;

// Both ranks' outputs, which must be alike.
Bytes reduce(const HostKernels &kernels, const Bytes (&in)[2], uint32_t algo, uint32_t dtype,
             uint32_t op) {
    const uint64_t count = in[0].size() / (dtype == kFp32 ? 4 : 2);
    Rank ranks[2];
    Bytes out[2] = {Bytes(in[0].size()), Bytes(in[0].size())};
    auto work = [&](uint32_t r) {
        Call call{};
        call.in = in[r].data();
        call.out = out[r].data();
        call.count = count;
        call.slab[0] = ranks[r].slab;
        call.slab[1] = ranks[1 - r].slab;
        call.counters = &ranks[r].counters;
        call.abort_line = &ranks[r].abort_line;
        call.late_line = &ranks[r].late_line;
        call.layout = kLayout;
        call.signature = make_signature(count, dtype, op, algo);
        call.piece_bytes = kStaged;
        call.pieces = uint32_t(ceil_div(in[r].size(), kStaged));
        call.timeout_ticks = call.warmup_timeout_ticks = 60'000'000'000;
        call.late_ticks = call.timeout_ticks;
        call.rank = r;
        call.world = 2;
        call.algo = algo;
        call.op = op;
        kernels.find(algo, dtype, op, 2)(call, 1000);
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    if (out[0] != out[1]) {
        printf("%s: ranks differ: algo %u dtype %u op %u\n", kernels.isa, algo, dtype, op);
        exit(1);
    }
    return out[0];
}

// Rank 0: every 16-bit pattern in order; rank 1: the same, multiplied by an odd number, so that each
// meets a partner of every kind. As fp32 the pairs of halves are patterns like any other.
Bytes patterns(uint32_t rank) {
    std::vector<uint16_t> words(4 * 65536 + 5);
    for (size_t i = 0; i < words.size(); i++)
        words[i] = uint16_t(rank == 0 ? i : i * 40503 + i / 65536 * 257);
    Bytes bytes(words.size() / 2 * 4);
    memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
}

}  // namespace

int main() {
    const HostKernels *sets[] = {&kHostKernelsBaseline,
#if defined(__x86_64__)
                                 &kHostKernelsAvx2, &kHostKernelsAvx512
#endif
    };
    const Bytes in[2] = {patterns(0), patterns(1)};
    int compared = 0;
    for (const HostKernels *set : sets) {
        if (!runs_here(*set)) {
            printf("%s: not on this machine\n", set->isa);
            continue;
        }
        for (uint32_t algo = 1; algo <= 3; algo++)
            for (uint32_t dtype = 0; dtype < 3; dtype++)
                for (uint32_t op = 0; op < 4; op++) {
                    if (reduce(*set, in, algo, dtype, op) !=
                        reduce(kHostKernelsBaseline, in, algo, dtype, op)) {
                        printf("%s differs from Baseline: algo %u dtype %u op %u\n", set->isa, algo,
                               dtype, op);
                        return 1;
                    }
                    compared++;
                }
        printf("%s: as Baseline\n", set->isa);
    }
    printf("%d combinations compared\n", compared);
    return 0;
}
