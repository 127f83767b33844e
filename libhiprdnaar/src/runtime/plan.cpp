// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <cinttypes>

#include "../protocol/all_reduce.h"
#include "hash.h"

namespace rdnaar {

static_assert(kAlgoLl == uint32_t(RDNAAR_ALGO_LL) &&
                  kAlgoOneshot == uint32_t(RDNAAR_ALGO_ONESHOT) &&
                  kAlgoTwoshot == uint32_t(RDNAAR_ALGO_TWOSHOT) &&
                  kAlgoReduceScatter == uint32_t(RDNAAR_ALGO_REDUCE_SCATTER) &&
                  kAlgoAllGather == uint32_t(RDNAAR_ALGO_ALL_GATHER),
              "the protocol's values are the public ones");
static_assert(kSum == uint32_t(RDNAAR_SUM) && kMax == uint32_t(RDNAAR_MAX) &&
                  kMin == uint32_t(RDNAAR_MIN) && kAvg == uint32_t(RDNAAR_AVG),
              "the protocol's values are the public ones");
static_assert(kMaxWorld == RDNAAR_MAX_WORLD && kMaxBlocks == RDNAAR_MAX_BLOCKS,
              "the protocol's limits are the public ones");

namespace {

constexpr uint64_t kMaxTimeoutMs = 86400000;  // a day; longer is a typing error
constexpr uint32_t kMaxPace = 1000;

Plan refused(rdnaar_status status, const char *format, ...) {
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    Plan plan{};
    plan.status = status;
    plan.reason = text;
    return plan;
}

}  // namespace

Settings make_settings(const rdnaar_config &c) {
    check_range("world", c.world, 1, kMaxWorld);
    check_range("rank", c.rank, 0, c.world - 1);
    check_range("transport", c.transport, 0, RDNAAR_TRANSPORT_COUNT - 1);
    check_range("memory", c.memory, 0, RDNAAR_MEMORY_COUNT - 1);
    check_range("algo", c.algo, 0, RDNAAR_ALGO_TWOSHOT);
    check_range("blocks", c.blocks, 0, kMaxBlocks);
    check_range("pace", c.pace, 0, kMaxPace);
    check_range("max_bytes", c.max_bytes, 1, RDNAAR_MAX_BYTES_LIMIT);
    check_range("timeout_ms", c.timeout_ms, 1, kMaxTimeoutMs);
    check_range("warmup_timeout_ms", c.warmup_timeout_ms, 1, kMaxTimeoutMs);
    check_range("late_ms", c.late_ms, 0, kMaxTimeoutMs);
    Settings s{};
    s.config = c;
    s.staging = backend::staging_limits(c.world, c.max_bytes);
    const backend::Thresholds defaults = backend::default_thresholds(c.world);
    s.ll_max_bytes = c.ll_max_bytes == RDNAAR_AUTO ? defaults.ll : c.ll_max_bytes;
    s.oneshot_max_bytes =
        c.oneshot_max_bytes == RDNAAR_AUTO ? defaults.oneshot : c.oneshot_max_bytes;
    s.layout = make_layout(c.world, s.staging);
    return s;
}

uint32_t element_bytes(uint32_t dtype) { return dtype == RDNAAR_FP32 ? 4 : 2; }

namespace {

Plan refuse_types(uint32_t dtype, uint32_t op) {
    if (dtype >= RDNAAR_DTYPE_COUNT)
        return refused(RDNAAR_E_INVALID_ARGUMENT, "dtype is %u, but must be 0 to %d", dtype,
                       RDNAAR_DTYPE_COUNT - 1);
    if (op >= RDNAAR_OP_COUNT)
        return refused(RDNAAR_E_INVALID_ARGUMENT, "op is %u, but must be 0 to %d", op,
                       RDNAAR_OP_COUNT - 1);
    return Plan{};
}

// `count` elements in the larger of the two buffers.
Plan refuse_size(const Settings &s, uint64_t count, uint64_t chunks, uint32_t dtype) {
    if (count <= s.config.max_bytes / element_bytes(dtype) / chunks) return Plan{};
    return refused(RDNAAR_E_TOO_LARGE,
                   "count is %" PRIu64 " elements of %u bytes%s, but max_bytes is %" PRIu64
                   "; raise max_bytes (RDNAAR_MAX_KB) on all ranks",
                   count, element_bytes(dtype), chunks > 1 ? " for each rank" : "",
                   s.config.max_bytes);
}

}  // namespace

Plan make_chunk_plan(const Settings &s, uint64_t count, uint32_t dtype, uint32_t op,
                     uint32_t algo) {
    const rdnaar_config &c = s.config;
    Plan p = refuse_types(dtype, op);
    if (p.status == RDNAAR_OK) p = refuse_size(s, count, c.world, dtype);
    if (p.status != RDNAAR_OK) return p;
    const uint64_t nbytes = count * element_bytes(dtype);
    p.algo = c.world == 1 ? uint32_t(RDNAAR_ALGO_COPY) : algo;
    p.grid = backend::grid_for(RDNAAR_ALGO_ONESHOT, nbytes, c.world, c.blocks);
    p.piece_bytes = s.staging.oneshot;
    p.pieces = uint32_t(ceil_div(nbytes, p.piece_bytes));
    p.bytes_sent = (c.world - 1) * nbytes;
    return p;
}

Plan make_plan(const Settings &s, uint64_t count, uint32_t dtype, uint32_t op, uint32_t algo) {
    const rdnaar_config &c = s.config;
    Plan p = refuse_types(dtype, op);
    if (p.status == RDNAAR_OK && algo > RDNAAR_ALGO_TWOSHOT)
        return refused(RDNAAR_E_INVALID_ARGUMENT, "algo is %u, but must be 0 to %d", algo,
                       RDNAAR_ALGO_TWOSHOT);
    if (p.status == RDNAAR_OK) p = refuse_size(s, count, 1, dtype);
    if (p.status != RDNAAR_OK) return p;
    const uint64_t nbytes = count * element_bytes(dtype);
    if (c.world == 1) {
        p.algo = RDNAAR_ALGO_COPY;
        return p;
    }
    if (algo == RDNAAR_ALGO_AUTO) algo = c.algo;
    if (algo == RDNAAR_ALGO_AUTO)
        algo = nbytes <= s.ll_max_bytes        ? RDNAAR_ALGO_LL
               : nbytes <= s.oneshot_max_bytes ? RDNAAR_ALGO_ONESHOT
                                               : RDNAAR_ALGO_TWOSHOT;
    p.algo = algo;
    const uint64_t staged = algo == RDNAAR_ALGO_LL        ? s.staging.ll
                            : algo == RDNAAR_ALGO_ONESHOT ? s.staging.oneshot
                                                          : s.staging.twoshot;
    // ll passes a message through in pieces only on a grid of one thread (see protocol/ll.h).
    p.grid = backend::grid_for(algo, nbytes, c.world, c.blocks);
    if (algo == RDNAAR_ALGO_LL && nbytes > staged && p.grid.blocks * p.grid.threads > 1)
        return refused(RDNAAR_E_TOO_LARGE,
                       "algo ll takes %" PRIu64 " bytes, not %" PRIu64 "; use auto or twoshot",
                       staged, nbytes);
    p.piece_bytes = staged;
    p.pieces = uint32_t(ceil_div(nbytes, staged));
    p.bytes_sent = algo == RDNAAR_ALGO_TWOSHOT ? 2 * (c.world - 1) * ceil_div(nbytes, c.world)
                                               : (c.world - 1) * nbytes;
    return p;
}

uint64_t config_hash(const Settings &s) {
    const rdnaar_config &c = s.config;
    const uint64_t words[] = {c.world,
                              c.transport,
                              c.algo,
                              c.blocks,
                              c.pace,
                              c.max_bytes,
                              s.ll_max_bytes,
                              s.oneshot_max_bytes,
                              c.timeout_ms,
                              c.warmup_timeout_ms,
                              c.late_ms,
                              c.memory,
                              s.staging.ll,
                              s.staging.oneshot,
                              s.staging.twoshot,
                              s.layout.slab_bytes};
    return fnv1a(words, sizeof words);
}

}  // namespace rdnaar
