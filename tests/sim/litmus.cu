// SPDX-License-Identifier: Apache-2.0
// Small programs on two devices that go wrong when one wait, cache bit or write-back is missing.
// Each comes as it should be and with the fault; test_memory_models.py says what must be seen.
//
// Two kernels, the writer and the reader, each of one wave, or of two if its name begins with
// "block_". The writer's device stores to memory of the reader's device. The reader puts into *result
// how often it saw what it should not have. What one device does alone has the writer "idle".
#include <cstdint>

#if defined(__GFX10__)
#define LOAD16 "global_load_dwordx4 %0, %1, off"
#define STORE16 "global_store_dwordx4 %0, %1, off"
#define LOAD8 "global_load_dwordx2 %0, %1, off"
#define STORE8 "global_store_dwordx2 %0, %1, off"
#define LOAD4 "global_load_dword %0, %1, off"
#define STORE4 "global_store_dword %0, %1, off"
#define LOAD_SCALAR "s_load_dword %0, %2, 0x0"
#define LOAD_SHARED "ds_read_b32 %0, %1"
#define STORE_SHARED "ds_write_b32 %0, %1"
#else
#define LOAD16 "global_load_b128 %0, %1, off"
#define STORE16 "global_store_b128 %0, %1, off"
#define LOAD8 "global_load_b64 %0, %1, off"
#define STORE8 "global_store_b64 %0, %1, off"
#define LOAD4 "global_load_b32 %0, %1, off"
#define STORE4 "global_store_b32 %0, %1, off"
#define LOAD_SCALAR "s_load_b32 %0, %2, 0x0"
#define LOAD_SHARED "ds_load_b32 %0, %1"
#define STORE_SHARED "ds_store_b32 %0, %1"
#endif

// BYPASS: loads that look into no cache of the device. HALF_BYPASS: into the L1, or (gfx11, where glc
// is all there is) into both.
#if defined(__GFX10__)
#define BYPASS " glc dlc"
#define HALF_BYPASS " glc"
#define FAR ""
#elif defined(__GFX11__)
#define BYPASS " glc"
#define HALF_BYPASS " dlc"
#define FAR ""
#else
#define BYPASS " scope:SCOPE_SYS"
#define HALF_BYPASS " scope:SCOPE_SE"
#define FAR " scope:SCOPE_SYS"
#endif

#if defined(__GFX12__)
#define WAIT_LOADS "s_wait_loadcnt 0x0"
#define WAIT_STORES "s_wait_storecnt 0x0"
#define WAIT_SCALARS "s_wait_kmcnt 0x0"
#define WAIT_SHARED "s_wait_dscnt 0x0"
#define BARRIER "s_barrier_signal -1\n\ts_barrier_wait -1"
#define INVALIDATE "global_inv scope:SCOPE_SYS\n\ts_wait_loadcnt 0x0"
#define INVALIDATE_L0 "global_inv scope:SCOPE_SE\n\ts_wait_loadcnt 0x0"
#else
#define WAIT_LOADS "s_waitcnt vmcnt(0)"
#define WAIT_STORES "s_waitcnt_vscnt null, 0x0"
#define WAIT_SCALARS "s_waitcnt lgkmcnt(0)"
#define WAIT_SHARED "s_waitcnt lgkmcnt(0)"
#define BARRIER "s_barrier"
#define INVALIDATE "buffer_gl1_inv\n\tbuffer_gl0_inv"
#define INVALIDATE_L0 "buffer_gl0_inv"
#define INVALIDATE_L1 "buffer_gl1_inv"
#endif
#define NOTHING "s_nop 0"

#define FN __attribute__((device)) static inline __attribute__((always_inline))
#define KERNEL_OF(threads)             \
    extern "C" __attribute__((global)) \
    __attribute__((amdgpu_flat_work_group_size(threads, threads))) void
#define KERNEL KERNEL_OF(32)
#define BLOCK_KERNEL KERNEL_OF(64)

typedef uint32_t Vector __attribute__((ext_vector_type(4)));
typedef uint32_t Half __attribute__((ext_vector_type(2)));
typedef __attribute__((address_space(3))) uint32_t *Shared;

constexpr uint32_t kPatience = 20000;  // turns of a poll

struct Area {  // in memory of the reader's device
    uint32_t flag, pad[31], seen, more_pad[31];
    Vector payload[32];
};

FN uint32_t lane() { return __builtin_amdgcn_workitem_id_x() % 32; }
FN uint32_t wave() { return __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workitem_id_x() / 32); }
FN uint32_t load_word(const uint32_t *p) {
    uint32_t x;
    asm volatile(LOAD4 BYPASS "\n\t" WAIT_LOADS : "=v"(x) : "v"(p) : "memory");
    return __builtin_amdgcn_readfirstlane(x);
}
FN void store_word(uint32_t *p, uint32_t x) {
    if (lane() == 0) asm volatile(STORE4 FAR ::"v"(p), "v"(x) : "memory");
}
FN bool wait_for(const uint32_t *p, uint32_t x) {
    for (uint32_t turn = 0; turn != kPatience; turn++) {
        if (load_word(p) == x) return true;
        __builtin_amdgcn_s_sleep(1);
    }
    return false;
}
FN bool all_are(Vector v, uint32_t x) { return v.x == x && v.y == x && v.z == x && v.w == x; }
FN void count(uint32_t *result, bool wrong) {
    if (wrong) __hip_atomic_fetch_add(result, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Payload, then flag. The value is the launch's number, so that older payload is known.
#define WRITER(name, store, between)                                          \
    KERNEL name(Area *area, uint32_t *, uint32_t x) {                         \
        const Vector v = {x, x, x, x};                                        \
        asm volatile(store ::"v"(&area->payload[lane()]), "v"(v) : "memory"); \
        asm volatile(between ::: "memory");                                   \
        store_word(&area->flag, x);                                           \
    }
WRITER(write_and_wait, STORE16 FAR, WAIT_STORES)
WRITER(write_without_wait, STORE16 FAR, NOTHING)
#if defined(__GFX12__)
#define WRITE_BACK "global_wb scope:SCOPE_SYS"
WRITER(write_back, STORE16 " scope:SCOPE_DEV", WRITE_BACK "\n\t" WAIT_STORES)
WRITER(write_back_from_unit, STORE16, WRITE_BACK "\n\t" WAIT_STORES)
WRITER(write_without_write_back, STORE16 " scope:SCOPE_DEV", WAIT_STORES)
WRITER(write_back_without_wait, STORE16 " scope:SCOPE_DEV", WRITE_BACK)
WRITER(write_back_to_device, STORE16, "global_wb scope:SCOPE_DEV\n\t" WAIT_STORES)
#endif

// Likewise, but another wave of the block stores the flag, and it waits for its own stores.
#define BLOCK_WRITER(name, before_barrier)                                              \
    BLOCK_KERNEL name(Area *area, uint32_t *, uint32_t x) {                             \
        const Vector v = {x, x, x, x};                                                  \
        if (wave() == 0)                                                                \
            asm volatile(STORE16 FAR ::"v"(&area->payload[lane()]), "v"(v) : "memory"); \
        asm volatile(before_barrier "\n\t" BARRIER "\n\t" WAIT_STORES ::: "memory");    \
        if (wave() == 1) store_word(&area->flag, x);                                    \
    }
BLOCK_WRITER(block_writes_and_waits, WAIT_STORES)
BLOCK_WRITER(block_writes_without_wait, NOTHING)

// Looks at the payload, so that caches may hold it, then waits for the flag and looks again.
#define READER(name, again, load, after)                                                           \
    KERNEL name(Area *area, uint32_t *result, uint32_t x) {                                        \
        Vector v;                                                                                  \
        asm volatile(LOAD16 "\n\t" WAIT_LOADS : "=v"(v) : "v"(&area->payload[lane()]) : "memory"); \
        if (!wait_for(&area->flag, x)) count(result, true);                                        \
        asm volatile(again ::: "memory");                                                          \
        Vector old = {7u, 7u, 7u, 7u};                                                             \
        asm volatile(load "\n\t" after : "+v"(old) : "v"(&area->payload[lane()]) : "memory");      \
        count(result, !all_are(old, x));                                                           \
        asm volatile(WAIT_LOADS ::: "memory");                                                     \
    }
READER(read_past_caches, NOTHING, LOAD16 BYPASS, WAIT_LOADS)
READER(read_after_invalidate, INVALIDATE, LOAD16, WAIT_LOADS)
READER(read_from_cache, NOTHING, LOAD16, WAIT_LOADS)
READER(read_past_one_cache, NOTHING, LOAD16 HALF_BYPASS, WAIT_LOADS)
READER(read_after_invalidate_l0, INVALIDATE_L0, LOAD16, WAIT_LOADS)
#if !defined(__GFX12__)
READER(read_streaming, NOTHING, LOAD16 " slc", WAIT_LOADS)
READER(read_after_invalidate_l1, INVALIDATE_L1, LOAD16, WAIT_LOADS)
#endif
READER(read_without_wait, NOTHING, LOAD16 BYPASS, NOTHING)

// Drops all caches before each look, as a poll of acquire order would.
KERNEL read_and_invalidate(Area *area, uint32_t *result, uint32_t x) {
    bool there = false;
    for (uint32_t turn = 0; turn != kPatience && !there; turn++) {
        asm volatile(INVALIDATE ::: "memory");
        there = load_word(&area->flag) == x;
        __builtin_amdgcn_s_sleep(1);
    }
    Vector v;
    asm volatile(INVALIDATE "\n\t" LOAD16 BYPASS "\n\t" WAIT_LOADS
                 : "=&v"(v)
                 : "v"(&area->payload[lane()])
                 : "memory");
    count(result, !there || !all_are(v, x));
}

// Writes, and again when the reader says that it has read. The reader says so while loads are on
// their way: the last of many, since they come back in order.
KERNEL write_twice(Area *area, uint32_t *, uint32_t x) {
    for (uint32_t y = x; y != x + 2; y++) {
        const Vector v = {y, y, y, y};
        asm volatile(STORE16 FAR "\n\t" WAIT_STORES ::"v"(&area->payload[lane()]), "v"(v)
                     : "memory");
        if (y != x) return;
        store_word(&area->flag, x);
        wait_for(&area->seen, x);
    }
}
#define ANSWERING_READER(name, between)                                                      \
    KERNEL name(Area *area, uint32_t *result, uint32_t x) {                                  \
        if (!wait_for(&area->flag, x)) count(result, true);                                  \
        Vector v;                                                                            \
        asm volatile(".rept 40\n\t" LOAD16 BYPASS "\n\t.endr\n\t" between                    \
                     : "=&v"(v)                                                              \
                     : "v"(&area->payload[lane()])                                           \
                     : "memory");                                                            \
        if (lane() == 0) asm volatile(STORE4 FAR ::"v"(&area->seen), "v"(x) : "memory");     \
        asm volatile(".rept 40\n\ts_sleep 0x1\n\t.endr\n\t" WAIT_LOADS : "+v"(v)::"memory"); \
        count(result, !all_are(v, x));                                                       \
    }
ANSWERING_READER(read_and_answer, WAIT_LOADS)
ANSWERING_READER(read_and_answer_early, NOTHING)

// One place, written again and again, and looked at meanwhile: are its words ever of two writes?
// Each width has a place of its own, whose words are alike before.
#define OFTEN(name_of_writer, name_of_reader, V, place, store, load)                        \
    KERNEL name_of_writer(Area *area, uint32_t *, uint32_t x) {                             \
        for (uint32_t turn = 0; turn < 50; turn++) {                                        \
            const V v = x * 64 + turn;                                                      \
            asm volatile(store FAR "\n\t" WAIT_STORES ::"v"(&area->payload[place]), "v"(v)  \
                         : "memory");                                                       \
        }                                                                                   \
        store_word(&area->flag, x);                                                         \
    }                                                                                       \
    KERNEL name_of_reader(Area *area, uint32_t *result, uint32_t x) {                       \
        for (uint32_t turn = 0; turn != kPatience && load_word(&area->flag) != x; turn++) { \
            V v;                                                                            \
            asm volatile(load BYPASS "\n\t" WAIT_LOADS                                      \
                         : "=v"(v)                                                          \
                         : "v"(&area->payload[place])                                       \
                         : "memory");                                                       \
            bool torn = false;                                                              \
            for (uint32_t i = 1; i < sizeof(V) / 4; i++) torn |= v[i] != v[0];              \
            count(result, lane() == 0 && torn);                                             \
            __builtin_amdgcn_s_sleep(1);                                                    \
        }                                                                                   \
    }
OFTEN(write_16_often, read_16_often, Vector, 0, STORE16, LOAD16)
OFTEN(write_8_often, read_8_often, Half, 1, STORE8, LOAD8)

// ---- One device alone ---------------------------------------------------------------------------

KERNEL idle(Area *, uint32_t *, uint32_t) {}

#define SCALAR_READER(name, after)                                  \
    KERNEL name(Area *area, uint32_t *result, uint32_t) {           \
        uint32_t loaded, used;                                      \
        asm volatile("s_mov_b32 %0, 7\n\t" LOAD_SCALAR "\n\t" after \
                     "\n\ts_mov_b32 %1, %0\n\t" WAIT_SCALARS        \
                     : "=&s"(loaded), "=&s"(used)                   \
                     : "s"(area->pad)                               \
                     : "memory");                                   \
        count(result, used != loaded);                              \
    }
SCALAR_READER(read_scalar, WAIT_SCALARS)
SCALAR_READER(read_scalar_without_wait, NOTHING)

// From one wave to the other through LDS.
#define SHARING(name, before_barrier)                                               \
    BLOCK_KERNEL name(Area *, uint32_t *result, uint32_t x) {                       \
        static __attribute__((shared)) uint32_t word;                               \
        const Shared p = (Shared) & word;                                           \
        if (wave() == 0) asm volatile(STORE_SHARED ::"v"(p), "v"(x) : "memory");    \
        asm volatile(before_barrier "\n\t" BARRIER ::: "memory");                   \
        uint32_t y;                                                                 \
        asm volatile(LOAD_SHARED "\n\t" WAIT_SHARED : "=v"(y) : "v"(p) : "memory"); \
        count(result, y != x);                                                      \
    }
SHARING(block_shares, WAIT_SHARED)
SHARING(block_shares_without_wait, NOTHING)
