// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: what it is, its memory, and the sizes that suit it.
#include <sys/utsname.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "../runtime/backend.h"
#include "../runtime/text.h"
#include "kernels.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are packed little-endian");

namespace rdnaar {

bool runs_here(const HostKernels &set) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (&set == &kHostKernelsAvx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (&set == &kHostKernelsAvx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#endif
    return &set == &kHostKernelsBaseline;
}

const HostKernels &host_kernels() {
    static const HostKernels *const best = []() -> const HostKernels * {
#if defined(__x86_64__)
        if (runs_here(kHostKernelsAvx512)) return &kHostKernelsAvx512;
        if (runs_here(kHostKernelsAvx2)) return &kHostKernelsAvx2;
#endif
        return &kHostKernelsBaseline;
    }();
    return *best;
}

}  // namespace rdnaar

namespace rdnaar::backend {

const char *name() { return "host"; }

std::string targets() {
#if defined(__x86_64__)
    return "x86-64 avx2 avx512";
#else
    utsname u;
    return uname(&u) == 0 ? u.machine : "unknown";
#endif
}

std::string runtime_description() { return ""; }

uint32_t device_count() { return 1; }

void device_info(uint32_t index, rdnaar_device_info_t &info) {
    resolve_device(int32_t(index));
    utsname u;
    put_text(info.architecture, uname(&u) == 0 ? u.machine : "unknown");
    std::string model = "CPU", line;
    for (std::ifstream cpuinfo("/proc/cpuinfo"); std::getline(cpuinfo, line);)
        if (line.compare(0, 10, "model name") == 0 && line.find(": ") != std::string::npos) {
            model = line.substr(line.find(": ") + 2);
            break;
        }
    put_text(info.name, model + " (" + host_kernels().isa + " kernels)");
    info.memory_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    info.compute_units = uint32_t(sysconf(_SC_NPROCESSORS_ONLN));
    info.integrated = 1;
}

bool peer_access(uint32_t, uint32_t) { return true; }

uint32_t resolve_device(int32_t device) {
    if (device > 0 || device < -1)
        fail(RDNAAR_E_INVALID_ARGUMENT, "device is %d, but the host library has only device 0",
             device);
    return 0;
}

// Pieces of a size that stays in the cache of a core: measured on a Xeon of family 6 model 207 (2 MiB
// of L2), W = 2, twoshot over 16 MiB: 32 KiB 4.5 ms, 128 KiB 3.8 ms, 256 KiB 4.6 ms.
StagingSizes staging_limits(uint32_t, uint64_t max_bytes) {
    const uint64_t kib = 1024;
    return StagingSizes{min_of(max_bytes, 64 * kib), min_of(max_bytes, 128 * kib),
                        min_of(max_bytes, 128 * kib)};
}

// The same machine: a flag costs one line, clearing costs every line once more, so ll never won. At
// W = 2 both others move the same bytes and oneshot waits once: 15 % faster at 4 KiB, 5 % at 32 KiB,
// equal at 128 KiB, slower at 4 MiB (2026-12-01).
Thresholds default_thresholds(uint32_t world) { return Thresholds{0, world == 2 ? 32768u : 4096u}; }

Grid grid_for(uint32_t, uint64_t, uint32_t, uint32_t) { return Grid{1, 1}; }

uint32_t vector_bytes() { return 64; }  // HostVec (simd.h) on every instruction set

// Far below what any machine copies, far above what a rank that gets a hundredth of a core does.
uint32_t rate_floor_mb_s() { return 20; }

namespace {
class HostState final : public PrivateState {
public:
    HostState() {
        counters = &counters_;
        abort_line = host_abort_line = &abort_line_;
        late_line = host_late_line = &late_line_;
        probe_line = host_probe_line = &probe_line_;
    }

private:
    Counters counters_{};
    AbortLine abort_line_{};
    LateLine late_line_{};
    ProbeLine probe_line_{};
};
}  // namespace

std::shared_ptr<PrivateState> create_private_state(uint32_t) {
    return std::make_shared<HostState>();
}

uint64_t ticks_per_ms(uint32_t) { return 1000000; }  // HostLane::now() is in nanoseconds

void *allocate(uint32_t, uint64_t nbytes) {
    void *p = nbytes < SIZE_MAX / 2 ? aligned_alloc(64, round_up(nbytes, 64)) : nullptr;
    if (p == nullptr) fail(RDNAAR_E_OUT_OF_MEMORY, "%" PRIu64 " bytes of host memory", nbytes);
    return p;
}

void release(void *ptr) { free(ptr); }

}  // namespace rdnaar::backend
