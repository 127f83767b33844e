/*
 * rdnaar.h: all-reduce over 2 to 8 devices of one machine, for links without a fabric.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * This header is the specification. Three libraries are built from the same sources and export
 * exactly the functions below: libhiprdnaar.so (AMD), libhiprdnaar_cuda.so (NVIDIA) and
 * libhiprdnaar_host.so (CPU ranks: processes or threads that share memory).
 *
 * The life of a communicator, in five calls; every rank of the group makes the same ones:
 *
 *     rdnaar_config cfg;
 *     rdnaar_config_init(&cfg, sizeof cfg);
 *     cfg.rank = rank; cfg.world = world;
 *     rdnaar_comm *comm;
 *     rdnaar_init(&cfg, &comm);                                        // 1 local: allocates
 *     rdnaar_export_buffers(comm, blob, RDNAAR_BLOB_BYTES);            // 2 local: my handle
 *     ... the caller gathers all ranks' blobs, in rank order, by any means (sockets, MPI) ...
 *     rdnaar_register_buffers(comm, all_blobs, world);                 // 3 opens the peers
 *     ... the caller makes sure that every rank has come this far ...
 *     rdnaar_all_reduce(comm, in, out, count, RDNAAR_FP16, RDNAAR_SUM,
 *                       RDNAAR_ALGO_AUTO, stream);                     // 4 as often as you like
 *     rdnaar_destroy(comm);                                            // 5
 *
 * Conventions
 *  - Every function that can fail returns an rdnaar_status (int32_t; 0 is success) and leaves its
 *    reason in rdnaar_last_error(). Nothing is printed, nothing throws, nothing exits.
 *  - "Local" functions concern this rank alone. "Collective" ones must be called by every rank of
 *    the group, in the same order, with the same count, dtype, op and algo.
 *  - A stream is a `void *`: a hipStream_t, a cudaStream_t, or on the host library what
 *    rdnaar_stream_create() returned. NULL is the null stream; on the host library a call on NULL
 *    completes before it returns.
 *  - `count` is in elements, `nbytes` and `*_bytes` in bytes, `*_ms` in milliseconds.
 *  - Every struct begins with `uint32_t struct_size`, which the caller sets to sizeof the struct it
 *    was compiled with. The library reads and writes min(struct_size, its own size): fields are
 *    only ever appended. A struct_size under 8 is RDNAAR_E_ABI.
 *  - Threads: a communicator may be used from several threads; its calls are serialised in the
 *    order in which they are made. Different communicators are independent. Structs and buffers
 *    that are passed in belong to the caller and are only used during the call, except `in` and
 *    `out` of stream-ordered calls, which must stay valid until the stream has passed them.
 *  - A child of fork() must not use or destroy what its parent made.
 */
#ifndef RDNAAR_H
#define RDNAAR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RDNAAR_API __attribute__((visibility("default")))
#else
#define RDNAAR_API
#endif

/* ---- Versions ------------------------------------------------------------------------------ */

/* The ABI: same major = compatible; a higher minor only adds. The soname carries the major. */
#define RDNAAR_ABI_MAJOR 1u
#define RDNAAR_ABI_MINOR 1u
#define RDNAAR_ABI_VERSION ((RDNAAR_ABI_MAJOR << 16) | RDNAAR_ABI_MINOR)

/* The release (semantic version) of these sources. */
#define RDNAAR_VERSION_STRING "0.1.0"

/* The ABI version of the library that is running, major << 16 | minor. */
RDNAAR_API uint32_t rdnaar_abi_version(void);

/* ---- Limits -------------------------------------------------------------------------------- */

#define RDNAAR_MAX_WORLD 8u    /* ranks in a group */
#define RDNAAR_MAX_BLOCKS 128u /* blocks of a grid: one flag line each, per peer and phase */
#define RDNAAR_BLOB_BYTES 512u /* size of an exported handle blob */
#define RDNAAR_MAX_BYTES_LIMIT (1ull << 36) /* largest accepted config.max_bytes: 64 GiB */
#define RDNAAR_AUTO UINT64_MAX              /* "let the library choose", for thresholds */

/* ---- Status -------------------------------------------------------------------------------- */

/* X(value, NAME, text). Values are part of the ABI and never change. */
#define RDNAAR_STATUS_MAP(X)                                                       \
    X(0, OK, "success")                                                            \
    X(1, E_INVALID_ARGUMENT, "an argument is not valid")                           \
    X(2, E_TOO_LARGE, "the message is larger than the configured limit")           \
    X(3, E_UNSUPPORTED, "not supported by this library or device")                 \
    X(4, E_NO_DEVICE, "no usable device")                                          \
    X(5, E_NO_RUNTIME, "no usable GPU runtime library")                            \
    X(6, E_OUT_OF_MEMORY, "out of memory")                                         \
    X(7, E_ABI, "the caller was compiled against another ABI")                     \
    X(8, E_MISMATCH, "ranks disagree about library, configuration, group or call") \
    X(9, E_STATE, "not allowed in this state of the communicator")                 \
    X(10, E_BUSY, "the object is in use")                                          \
    X(11, E_ABORTED, "the communicator has been aborted")                          \
    X(12, E_TIMEOUT, "not finished within the time limit")                         \
    X(13, E_PEER, "a peer's memory cannot be opened")                              \
    X(14, E_RUNTIME, "the GPU runtime reported an error")                          \
    X(15, E_SYSTEM, "the operating system reported an error")                      \
    X(16, E_SELF_TEST, "the self test found a wrong result")

#define RDNAAR_STATUS_ENUM_(value, name, text) RDNAAR_##name = value,
typedef enum rdnaar_status_code {
    RDNAAR_STATUS_MAP(RDNAAR_STATUS_ENUM_) RDNAAR_STATUS_COUNT
} rdnaar_status_code;
#undef RDNAAR_STATUS_ENUM_
typedef int32_t rdnaar_status; /* one of rdnaar_status_code */

typedef struct rdnaar_comm rdnaar_comm; /* opaque */

/* "E_TOO_LARGE" and the text above. Never NULL; an unknown code gives "E_UNKNOWN". Static. */
RDNAAR_API const char *rdnaar_status_name(rdnaar_status code);
RDNAAR_API const char *rdnaar_status_string(rdnaar_status code);

/*
 * What went wrong, with the argument, its value and the limit. `comm` NULL: the last failure on
 * this thread of a function that took no communicator; otherwise the last failure of that
 * communicator, on any thread. "" when nothing failed. Never NULL. The text stays valid until the
 * same thread calls this function again.
 */
RDNAAR_API const char *rdnaar_last_error(rdnaar_comm *comm);

/* ---- Enumerations -------------------------------------------------------------------------- */

typedef enum rdnaar_dtype {
    RDNAAR_FP16 = 0, /* IEEE binary16 */
    RDNAAR_BF16 = 1,
    RDNAAR_FP32 = 2,
    RDNAAR_DTYPE_COUNT
} rdnaar_dtype;

typedef enum rdnaar_op {
    RDNAAR_SUM = 0,
    RDNAAR_MAX = 1, /* NaN wins; -0 is below +0 (IEEE 754-2019 maximum) */
    RDNAAR_MIN = 2, /* NaN wins; -0 is below +0 (IEEE 754-2019 minimum) */
    RDNAAR_AVG = 3, /* the sum, divided by the world size, then rounded */
    RDNAAR_OP_COUNT
} rdnaar_op;

typedef enum rdnaar_algo {
    RDNAAR_ALGO_AUTO = 0,           /* by size, world and the configured thresholds */
    RDNAAR_ALGO_LL = 1,             /* the payload is its own flag; small messages */
    RDNAAR_ALGO_ONESHOT = 2,        /* push all to all, flag, sum */
    RDNAAR_ALGO_TWOSHOT = 3,        /* reduce-scatter and all-gather by push */
    RDNAAR_ALGO_COPY = 4,           /* world 1: reported by rdnaar_plan(), never asked for */
    RDNAAR_ALGO_REDUCE_SCATTER = 5, /* in records and signatures: those collectives */
    RDNAAR_ALGO_ALL_GATHER = 6,
    RDNAAR_ALGO_COUNT
} rdnaar_algo;

typedef enum rdnaar_transport {
    RDNAAR_TRANSPORT_AUTO = 0,
    RDNAAR_TRANSPORT_P2P = 1,  /* stores to the peer's device memory */
    RDNAAR_TRANSPORT_HOST = 2, /* the slab lies in host memory that all devices map */
    RDNAAR_TRANSPORT_COUNT
} rdnaar_transport;

typedef enum rdnaar_memory {
    RDNAAR_MEMORY_AUTO = 0, /* what peers' stores are seen in during a kernel: uncached on AMD */
    RDNAAR_MEMORY_ORDINARY =
        1, /* what rdnaar_malloc() gives; for probes alone: on AMD GPUs a running
                                   kernel need not see a peer's store to it */
    RDNAAR_MEMORY_COUNT
} rdnaar_memory;

/* Why a communicator was aborted. */
typedef enum rdnaar_reason {
    RDNAAR_REASON_NONE = 0,
    RDNAAR_REASON_TIMEOUT = 1,      /* a peer did not arrive in time */
    RDNAAR_REASON_MISMATCH = 2,     /* a peer made another call (count, dtype, op or algo) */
    RDNAAR_REASON_PEER_ABORTED = 3, /* a peer gave up and said so */
    RDNAAR_REASON_PEER_DEAD = 4,    /* a peer's process is gone */
    RDNAAR_REASON_USER = 5,         /* rdnaar_abort() or rdnaar_destroy() during a call */
    RDNAAR_REASON_RUNTIME = 6,      /* the GPU runtime refused a call that the peers make */
    RDNAAR_REASON_COUNT
} rdnaar_reason;

/* What a wait was waiting for. */
typedef enum rdnaar_phase {
    RDNAAR_PHASE_NONE = 0,
    RDNAAR_PHASE_OWN_BLOCKS = 1, /* this rank's own earlier work */
    RDNAAR_PHASE_PEER_FLAG = 2,  /* a peer's data flag */
    RDNAAR_PHASE_GATHER_BARRIER = 3,
    RDNAAR_PHASE_GATHER_FLAG = 4, /* a peer's gathered part */
    RDNAAR_PHASE_LL_WORD = 5,     /* a payload word of RDNAAR_ALGO_LL */
    RDNAAR_PHASE_COUNT
} rdnaar_phase;

/* ---- The library and the machine ----------------------------------------------------------- */

typedef struct rdnaar_build_info_t {
    uint32_t struct_size;
    uint32_t abi_version;
    char version[32];
    char source_digest[72]; /* sha256 of the folder libhiprdnaar/, 64 hex digits; "" unknown */
    char git_revision[48];  /* commit, "-dirty" appended where it was; "" outside a checkout */
    char backend[16];       /* "hip", "cuda" or "host" */
    char targets[256];      /* what was compiled for: "gfx1030", "x86-64 avx2 avx512" */
    char compiler[128];
    char runtime[128]; /* the GPU runtime in use and its version; "" none or not loaded */
} rdnaar_build_info_t;

/* Local. Fills *info. Loads no GPU context. */
RDNAAR_API rdnaar_status rdnaar_build_info(rdnaar_build_info_t *info);

typedef struct rdnaar_device_info_t {
    uint32_t struct_size;
    uint32_t index;
    char architecture[32]; /* "gfx1030", "sm_90", "x86-64" */
    char name[96];
    char pci_bus_id[24]; /* "0000:03:00.0"; "" where there is none */
    uint64_t memory_bytes;
    uint32_t compute_units;
    uint32_t integrated; /* 1: shares the host's memory */
    uint32_t uncached;   /* 1: uncached allocation is possible */
    uint32_t reserved;
} rdnaar_device_info_t;

/* Local. Number of devices into *count; 0 devices is not an error. */
RDNAAR_API rdnaar_status rdnaar_device_count(uint32_t *count);

/* Local. Describes device `index`. Never creates a context on another device. */
RDNAAR_API rdnaar_status rdnaar_device_info(uint32_t index, rdnaar_device_info_t *info);

/* Local. 1 into *access if device `from` can reach the memory of device `to`, which may be itself. */
RDNAAR_API rdnaar_status rdnaar_peer_access(uint32_t from, uint32_t to, uint32_t *access);

typedef enum rdnaar_struct {
    RDNAAR_STRUCT_BUILD_INFO = 0,
    RDNAAR_STRUCT_DEVICE_INFO = 1,
    RDNAAR_STRUCT_CONFIG = 2,
    RDNAAR_STRUCT_PLAN = 3,
    RDNAAR_STRUCT_SELF_TEST_CONFIG = 4,
    RDNAAR_STRUCT_SELF_TEST_REPORT = 5,
    RDNAAR_STRUCT_ABORT_RECORD = 6,
    RDNAAR_STRUCT_LATE_RECORD = 7,
    RDNAAR_STRUCT_PROBE_CONFIG = 8,
    RDNAAR_STRUCT_PROBE_RESULT = 9,
    RDNAAR_STRUCT_COUNT
} rdnaar_struct;

/* sizeof the struct as the library was compiled, for bindings to check; 0: unknown `which`. */
RDNAAR_API uint32_t rdnaar_sizeof(uint32_t which);

/* ---- Configuration ------------------------------------------------------------------------- */

/* All but rank, device and debug must be the same on all ranks of a group. */
typedef struct rdnaar_config {
    uint32_t struct_size;
    uint32_t rank;              /* 0 .. world-1 */
    uint32_t world;             /* 1 .. RDNAAR_MAX_WORLD */
    int32_t device;             /* device index; -1: the current one */
    uint32_t transport;         /* rdnaar_transport */
    uint32_t algo;              /* rdnaar_algo used when a call says AUTO */
    uint32_t blocks;            /* largest grid, 0 = the library's choice, at most MAX_BLOCKS */
    uint32_t pace;              /* idle units between pushes, 0 = none, at most 1000 */
    uint64_t max_bytes;         /* largest message; default 20 MiB */
    uint64_t ll_max_bytes;      /* AUTO uses ll up to here; RDNAAR_AUTO: by world */
    uint64_t oneshot_max_bytes; /* AUTO uses oneshot up to here, twoshot above; likewise */
    uint32_t timeout_ms;        /* bound of each wait; default 120000, 1 .. 86400000 */
    uint32_t warmup_timeout_ms; /* bound in the first call; default 300000 */
    uint32_t late_ms;           /* a longer wait is noted in the late record; default 2000 */
    uint32_t debug;             /* reserved for diagnostics; 0 */
    uint8_t group_id[16];       /* the same random bytes on all ranks; blobs of another group are
                                    refused. All zero: not checked. */
    uint32_t memory;            /* rdnaar_memory of the slab */
    uint32_t reserved;
} rdnaar_config;

/*
 * Local. Fills the first `struct_size` bytes of *config with the defaults, struct_size included.
 * rank and world become 0 and 1.
 */
RDNAAR_API rdnaar_status rdnaar_config_init(rdnaar_config *config, uint32_t struct_size);

/* ---- Set-up -------------------------------------------------------------------------------- */

/*
 * Local. Checks *config and allocates this rank's slab: the memory that peers write to. Its size
 * depends on the configuration alone, never on a message. With W = world and [x] = x rounded up to
 * 64 bytes, the slab is
 *
 *     C + 2 W L + 2 W O + 4 W [T / W]    rounded up to 2 MiB
 *
 * where C is control and flags (under 512 KiB) and L, O, T are the staging sizes of ll, oneshot
 * and twoshot: at most max_bytes each, and capped per backend (host: 64 KiB, 128 KiB and 128 KiB),
 * since a longer message passes through the same memory piece by piece.
 *
 * On success *comm is a communicator, to be given to rdnaar_destroy() one day; on failure it is
 * NULL and nothing is left allocated. E_INVALID_ARGUMENT, E_ABI, E_NO_DEVICE, E_OUT_OF_MEMORY,
 * E_SYSTEM, E_RUNTIME.
 */
RDNAAR_API rdnaar_status rdnaar_init(const rdnaar_config *config, rdnaar_comm **comm);

/*
 * Local. Writes this rank's handle to blob[0 .. RDNAAR_BLOB_BYTES). `size` is the room in bytes.
 * The blob carries ABI version, source digest, a hash of the configuration, the group id and where
 * the slab is; it is meant for the other ranks of the same machine and user, and for them only.
 */
RDNAAR_API rdnaar_status rdnaar_export_buffers(rdnaar_comm *comm, void *blob, uint64_t size);

/*
 * Local. `blobs` holds `world` blobs of RDNAAR_BLOB_BYTES each, in rank order, this rank's own
 * included. Opens every peer's slab. Nothing in a blob is trusted: a malformed one is
 * E_INVALID_ARGUMENT; one of another ABI, source digest, configuration or group E_MISMATCH; a slab
 * that cannot be opened E_PEER. After a failure nothing stays open and a second try is allowed.
 * Every rank must have returned from here before any rank starts its first collective.
 */
RDNAAR_API rdnaar_status rdnaar_register_buffers(rdnaar_comm *comm, const void *blobs,
                                                 uint32_t world);

/* Where this rank's slab lies, into *transport: P2P device memory, HOST host memory; AUTO: world 1. */
RDNAAR_API rdnaar_status rdnaar_transport_used(rdnaar_comm *comm, uint32_t *transport);

/* ---- The work ------------------------------------------------------------------------------ */

typedef struct rdnaar_plan_t {
    uint32_t struct_size;
    int32_t status; /* what rdnaar_all_reduce() would answer: RDNAAR_OK, E_TOO_LARGE, ... */
    uint32_t algo;  /* rdnaar_algo */
    uint32_t blocks;
    uint32_t threads;     /* per block */
    uint32_t pieces;      /* rounds in which the message passes through the slab */
    uint64_t bytes_sent;  /* this rank's stores to peers, payload only */
    uint64_t limit_bytes; /* the configured max_bytes */
    char reason[160];     /* why not; "" when status is OK */
} rdnaar_plan_t;

/*
 * Local. What a call would do: a pure function of its arguments, the configuration and the world,
 * so every rank gets the same answer. Returns the same as plan->status unless `plan` itself is bad.
 */
RDNAAR_API rdnaar_status rdnaar_plan(rdnaar_comm *comm, uint64_t count, uint32_t dtype, uint32_t op,
                                     uint32_t algo, rdnaar_plan_t *plan);

/*
 * Collective, stream-ordered, capture-safe: out[i] = op over the ranks' in[i], i < count.
 *
 * The contributions are combined in rank order 0 .. world-1 in fp32 and rounded once, to nearest
 * even, so all ranks get the same bits, whatever the algorithm, grid or alignment. A sum starts
 * from rank 0's value (-0 + -0 = -0). NaN in, NaN out (one canonical NaN); subnormals are kept.
 * world = 1 is a copy. count = 0 does nothing.
 *
 * `in` and `out` need the alignment of their element only. in == out is in place; any other overlap
 * is E_INVALID_ARGUMENT. count * element size over max_bytes is E_TOO_LARGE. Both are found
 * before anything is touched. Never allocates, never synchronises the device.
 *
 * A peer whose process ends without rdnaar_destroy() aborts the communicator (PEER_DEAD), within
 * milliseconds (Linux 5.3 and newer). So does a runtime that refuses a call (RUNTIME): the peers
 * would take this rank's next call for it.
 *
 * Once the communicator is aborted, out is filled with NaN by calls already queued, and new calls
 * return E_ABORTED at once without touching out. On the host library's NULL stream a call that
 * itself aborts returns E_ABORTED. A stream that was not made by rdnaar_stream_create() must live
 * until the communicator's next call on another stream, or until it is destroyed.
 */
RDNAAR_API rdnaar_status rdnaar_all_reduce(rdnaar_comm *comm, const void *in, void *out,
                                           uint64_t count, uint32_t dtype, uint32_t op,
                                           uint32_t algo, void *stream);

/*
 * Collective, stream-ordered, capture-safe: the same rules, bits and failures as rdnaar_all_reduce().
 *
 * reduce_scatter: `in` has world chunks of `count` elements; out[i] = op over the ranks' chunk
 * `rank`, element i. In place: out == in + rank * count.
 *
 * all_gather: `out` has world chunks of `count` elements; chunk r is rank r's `in`. In place:
 * in == out + rank * count. Bits are copied as they are.
 *
 * The larger buffer may have max_bytes. An all-gather of what a reduce-scatter gave is an all-reduce.
 */
RDNAAR_API rdnaar_status rdnaar_reduce_scatter(rdnaar_comm *comm, const void *in, void *out,
                                               uint64_t count, uint32_t dtype, uint32_t op,
                                               void *stream);
RDNAAR_API rdnaar_status rdnaar_all_gather(rdnaar_comm *comm, const void *in, void *out,
                                           uint64_t count, uint32_t dtype, void *stream);

/* ---- Self test ----------------------------------------------------------------------------- */

typedef enum rdnaar_self_test_level {
    RDNAAR_SELF_TEST_FULL = 0,  /* all dtypes and ops around all limits up to max_bytes */
    RDNAAR_SELF_TEST_QUICK = 1, /* what a start-up can afford: see below */
    RDNAAR_SELF_TEST_LEVEL_COUNT
} rdnaar_self_test_level;

typedef struct rdnaar_self_test_config {
    uint32_t struct_size;
    uint32_t seed;
    uint64_t max_bytes; /* largest message tried; 0: the communicator's max_bytes */
    uint32_t repeats;   /* calls per case, with new data each; 0: 2, so that both halves are used */
    uint32_t level;     /* rdnaar_self_test_level */
    uint32_t floor_mb_s; /* a pair of ranks whose store rate is below fails; 0: 20 on the host
                            library, 200 on GPUs; UINT32_MAX: rates are not measured */
    uint32_t reserved;
} rdnaar_self_test_config;

typedef struct rdnaar_self_test_report {
    uint32_t struct_size;
    uint32_t cases; /* calls made and checked */
    uint64_t wrong; /* wrong elements in total */
    /* the first wrong element, if any */
    uint32_t algo;
    uint32_t dtype;
    uint32_t op;
    uint32_t repeat;
    uint64_t count;
    uint64_t index;
    uint32_t expected_bits;
    uint32_t seen_bits;
    uint64_t elapsed_us;
    char text[256]; /* one sentence: the verdict of this rank */
    int32_t source; /* the rank whose data came wrong to this one, as far as that is known; -1 */
    uint32_t slow;  /* pairs with this rank as source whose store rate was below the floor */
    uint32_t slowest_target; /* of this rank's pairs, and its rate in MB/s; 0 if not measured */
    uint32_t slowest_mb_s;
} rdnaar_self_test_report;

/*
 * Collective and blocking; bounded by the time limits of its calls. On memory from rdnaar_malloc(),
 * with pseudo-random data that each rank can predict for all ranks:
 *  - every algorithm over sizes around every limit, each configured one included, and through the
 *    band from 64 KiB to 1 MiB; FULL: every dtype and op; QUICK: fp16, sum, up to 1 MiB;
 *    where an element is wrong, what the peers have sent tells whose data is;
 *  - the store rate of each ordered pair, one after the other.
 * `config` NULL: defaults. E_SELF_TEST when an element was wrong or a pair below the floor,
 * E_ABORTED when a call was. Every rank judges its own results: the caller combines the verdicts.
 */
RDNAAR_API rdnaar_status rdnaar_self_test(rdnaar_comm *comm, const rdnaar_self_test_config *config,
                                          rdnaar_self_test_report *report, void *stream);

/* ---- Probe ------------------------------------------------------------------------------------- */

/* What a probe measures on the ordered pair (source, target). Rank `source` is the active side. */
typedef enum rdnaar_probe_kind {
    RDNAAR_PROBE_STORE = 0,   /* rate of `source`'s stores to the slab of `target`, or its own */
    RDNAAR_PROBE_LOAD = 1,    /* rate of `source`'s loads from the slab of `target`; likewise */
    RDNAAR_PROBE_LATENCY = 2, /* round trip of one word between the two */
    RDNAAR_PROBE_ORDER = 3,   /* payload, then flag: does `target` ever see the flag first? */
    RDNAAR_PROBE_VISIBLE =
        4, /* does a running kernel of `target` see `source`'s store, and when? */
    RDNAAR_PROBE_COUNT
} rdnaar_probe_kind;

typedef struct rdnaar_probe_config {
    uint32_t struct_size;
    uint32_t kind;   /* rdnaar_probe_kind */
    uint32_t source; /* ranks; this rank is one of them */
    uint32_t target;
    uint32_t width;      /* STORE, LOAD: bytes per access of a thread, 4, 8 or 16 */
    uint32_t iterations; /* turns over nbytes, or round trips; 1 .. 65535 */
    uint64_t nbytes;     /* STORE, LOAD, ORDER: a multiple of 64; 0: all the room there is */
    uint32_t session;    /* larger than in every earlier probe of this communicator; the same on
                            both sides */
    uint32_t timeout_ms; /* LATENCY, ORDER, VISIBLE: for the other side to come; 1 .. 60000 */
} rdnaar_probe_config;

typedef struct rdnaar_probe_result {
    uint32_t struct_size;
    uint32_t timed_out; /* 1: the other side, or the store, did not come; all else is 0 */
    uint64_t nbytes;    /* STORE, LOAD: moved in total */
    uint64_t wrong;     /* ORDER, on `target`: > 0 if payload was older than its flag */
    double
        microseconds; /* STORE, LOAD: for all of it; LATENCY: per round trip; VISIBLE, on `target`:
                            from telling `source` to seeing its store */
} rdnaar_probe_result;

/*
 * Blocking. Measures with the accesses that the algorithms use, on the slabs of registered ranks.
 * STORE and LOAD: called by `source` alone. The others: by `source` and `target` at the same time. No
 * rank of the group may be in another call meanwhile. On the host library a width of 16 is 64.
 */
RDNAAR_API rdnaar_status rdnaar_probe(rdnaar_comm *comm, const rdnaar_probe_config *config,
                                      rdnaar_probe_result *result, void *stream);

/* ---- Failure ------------------------------------------------------------------------------- */

typedef struct rdnaar_abort_record_t {
    uint32_t struct_size;
    uint32_t valid;  /* 0: not aborted, all else is 0 */
    uint32_t reason; /* rdnaar_reason */
    uint32_t phase;  /* rdnaar_phase */
    int32_t peer;    /* the rank that was waited for or that aborted; -1 none */
    uint32_t rank;
    uint32_t block;
    uint32_t algo;
    uint64_t epoch; /* number of the call, from 0 */
    uint64_t waited_ms;
    uint64_t expected; /* MISMATCH: signature of this rank's call ... */
    uint64_t seen;     /* ... and of the peer's: count | dtype << 40 | op << 48 | algo << 56 */
} rdnaar_abort_record_t;

/* 1 if the communicator is aborted; 0 if not, or for NULL. A few nanoseconds: may be asked at every
 * step. Never blocks, never touches the device, and leaves the last error alone. */
RDNAAR_API uint32_t rdnaar_is_aborted(rdnaar_comm *comm);

/*
 * Plain host read of the record: never blocks, never touches the device. OK either way. A call that
 * gives up adds phase, block, epoch and time; until then, and if no call was running, those are 0.
 */
RDNAAR_API rdnaar_status rdnaar_abort_record(rdnaar_comm *comm, rdnaar_abort_record_t *record);

typedef struct rdnaar_late_record_t {
    uint32_t struct_size;
    uint32_t count; /* waits that took longer than late_ms so far; 0: all else is 0 */
    int32_t peer;   /* the last of them */
    uint32_t phase;
    uint64_t epoch;
    uint64_t waited_ms;
} rdnaar_late_record_t;

/* Plain host read, likewise. */
RDNAAR_API rdnaar_status rdnaar_late_record(rdnaar_comm *comm, rdnaar_late_record_t *record);

/*
 * Local, asynchronous. This rank gives up: the communicator becomes aborted (reason USER) and the
 * peers are told, so that their waits end with PEER_ABORTED. `reason` is kept as the last error's
 * text; may be NULL. Aborting twice is fine: the first record stays.
 */
RDNAAR_API rdnaar_status rdnaar_abort(rdnaar_comm *comm, const char *reason);

/*
 * Local, not a collective; NULL is fine. Waits up to 2 s for calls still queued, then aborts them
 * and waits up to 2 s more. Then it closes the peers' memory, tells them so, and waits up to 2 s for
 * peers in other processes to close this rank's, or to end, where it would be gone with its owner
 * (device memory). Afterwards the handle is gone: no other thread may be using it.
 *
 * E_BUSY: calls are stuck in a stream behind other work, or a peer did not close this rank's memory.
 * The handle is gone too; what is in use is kept until the process ends, and the text names it.
 */
RDNAAR_API rdnaar_status rdnaar_destroy(rdnaar_comm *comm);

/* The same without any wait, for finalizers: queued calls are not aborted, they keep everything. */
RDNAAR_API rdnaar_status rdnaar_destroy_now(rdnaar_comm *comm);

/* ---- Raw memory, streams and events: the same on every backend -------------------------------- */

/* Local. nbytes >= 1 of ordinary memory of device `device` (-1: current), at least 64-byte aligned. */
RDNAAR_API rdnaar_status rdnaar_malloc(int32_t device, uint64_t nbytes, void **ptr);
RDNAAR_API rdnaar_status rdnaar_free(void *ptr); /* NULL is fine */

/* Stream-ordered copy between any two of host and device memory; the ranges must not overlap. */
RDNAAR_API rdnaar_status rdnaar_copy(void *dst, const void *src, uint64_t nbytes, void *stream);

/*
 * A stream runs what it is given in order, beside the caller. A stream of the host library holds 256
 * calls: giving it more waits for room, so one thread cannot queue without end for several ranks.
 */
RDNAAR_API rdnaar_status rdnaar_stream_create(int32_t device, void **stream);
RDNAAR_API rdnaar_status rdnaar_stream_sync(void *stream);    /* waits for all given so far */
RDNAAR_API rdnaar_status rdnaar_stream_destroy(void *stream); /* after its work; NULL is fine */

/* An event marks a point of a stream and the time when it was passed. */
RDNAAR_API rdnaar_status rdnaar_event_create(int32_t device, void **event);
RDNAAR_API rdnaar_status rdnaar_event_record(void *event, void *stream);
RDNAAR_API rdnaar_status rdnaar_event_sync(void *event); /* waits until it was passed */
RDNAAR_API rdnaar_status rdnaar_event_elapsed_us(void *start, void *stop, double *microseconds);
RDNAAR_API rdnaar_status rdnaar_event_destroy(void *event); /* NULL is fine */

/*
 * A graph: what a stream is given between begin and end is recorded instead of run, and then run as
 * often as the graph is launched, in the order of the stream that it is launched on. Calls of
 * rdnaar_all_reduce() and copies can be recorded, on one stream and from one thread; each launch reads
 * the buffers anew. Communicators and buffers must outlive the graph. An end after a failed call
 * may fail: the stream is usable again all the same. If a launch is refused, this rank has not made
 * calls that its peers make: abort the graph's communicators (rdnaar_abort()).
 */
RDNAAR_API rdnaar_status rdnaar_graph_begin(void *stream);
RDNAAR_API rdnaar_status rdnaar_graph_end(void *stream, void **graph);
RDNAAR_API rdnaar_status rdnaar_graph_launch(void *graph, void *stream);
RDNAAR_API rdnaar_status rdnaar_graph_destroy(void *graph); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif /* RDNAAR_H */
