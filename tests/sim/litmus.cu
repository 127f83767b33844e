// SPDX-License-Identifier: Apache-2.0
// Small programs on two devices that go wrong when one wait, cache bit or write-back is missing.
// Each comes as it should be and with the fault; test_memory_models.py says what must be seen.
//
// Two kernels of one wave each. The writer's device stores to memory of the reader's device. The
// reader puts into *result how often it saw what it should not have.
#include <cstdint>

#if defined(__GFX10__)
#define LOAD16 "global_load_dwordx4 %0, %1, off"
#define STORE16 "global_store_dwordx4 %0, %1, off"
#define LOAD4 "global_load_dword %0, %1, off"
#define STORE4 "global_store_dword %0, %1, off"
#define BYPASS " glc dlc"
#define FAR ""
#elif defined(__GFX11__)
#define LOAD16 "global_load_b128 %0, %1, off"
#define STORE16 "global_store_b128 %0, %1, off"
#define LOAD4 "global_load_b32 %0, %1, off"
#define STORE4 "global_store_b32 %0, %1, off"
#define BYPASS " glc"
#define FAR ""
#else
#define LOAD16 "global_load_b128 %0, %1, off"
#define STORE16 "global_store_b128 %0, %1, off"
#define LOAD4 "global_load_b32 %0, %1, off"
#define STORE4 "global_store_b32 %0, %1, off"
#define BYPASS " scope:SCOPE_SYS"
#define FAR " scope:SCOPE_SYS"
#endif
#if defined(__GFX12__)
#define WAIT_LOADS "s_wait_loadcnt 0x0"
#define WAIT_STORES "s_wait_storecnt 0x0"
#define INVALIDATE "global_inv scope:SCOPE_SYS\n\ts_wait_loadcnt 0x0"
#else
#define WAIT_LOADS "s_waitcnt vmcnt(0)"
#define WAIT_STORES "s_waitcnt_vscnt null, 0x0"
#define INVALIDATE "buffer_gl1_inv\n\tbuffer_gl0_inv"
#endif

#define FN __attribute__((device)) static inline __attribute__((always_inline))
#define KERNEL \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(32, 32))) void

typedef uint32_t Vector __attribute__((ext_vector_type(4)));

struct Area {  // in memory of the reader's device
    uint32_t flag, pad[31];
    Vector payload[32];
};

FN uint32_t lane() { return __builtin_amdgcn_workitem_id_x(); }
FN uint32_t load_flag(const Area *area) {
    uint32_t x;
    asm volatile(LOAD4 BYPASS "\n\t" WAIT_LOADS : "=v"(x) : "v"(&area->flag) : "memory");
    return __builtin_amdgcn_readfirstlane(x);
}
FN void store_flag(Area *area, uint32_t x) {
    if (lane() == 0) asm volatile(STORE4 FAR ::"v"(&area->flag), "v"(x) : "memory");
}
FN bool wait_for(const Area *area, uint32_t x) {
    for (uint32_t turn = 0; turn < 20000; turn++) {
        if (load_flag(area) == x) return true;
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
        store_flag(area, x);                                                  \
    }
WRITER(write_and_wait, STORE16 FAR, WAIT_STORES)
WRITER(write_without_wait, STORE16 FAR, "s_nop 0")
#if defined(__GFX12__)
WRITER(write_back, STORE16 " scope:SCOPE_DEV", "global_wb scope:SCOPE_SYS\n\ts_wait_storecnt 0x0")
WRITER(write_without_write_back, STORE16 " scope:SCOPE_DEV", WAIT_STORES)
#endif

// Looks at the payload, so that caches may hold it, then waits for the flag and looks again.
#define READER(name, before, again, load, after)                                              \
    KERNEL name(Area *area, uint32_t *result, uint32_t x) {                                   \
        Vector v;                                                                             \
        asm volatile(LOAD16 before "\n\t" WAIT_LOADS                                          \
                     : "=v"(v)                                                                \
                     : "v"(&area->payload[lane()])                                            \
                     : "memory");                                                             \
        if (!wait_for(area, x)) count(result, true);                                          \
        asm volatile(again ::: "memory");                                                     \
        Vector old = {7u, 7u, 7u, 7u};                                                        \
        asm volatile(load "\n\t" after : "+v"(old) : "v"(&area->payload[lane()]) : "memory"); \
        count(result, !all_are(old, x));                                                      \
        asm volatile(WAIT_LOADS ::: "memory");                                                \
    }
READER(read_past_caches, "", "s_nop 0", LOAD16 BYPASS, WAIT_LOADS)
READER(read_after_invalidate, "", INVALIDATE, LOAD16, WAIT_LOADS)
READER(read_from_cache, "", "s_nop 0", LOAD16, WAIT_LOADS)
READER(read_without_wait, "", "s_nop 0", LOAD16 BYPASS, "s_nop 0")

// One vector, written again and again, and looked at meanwhile: are its words ever of two writes?
KERNEL write_often(Area *area, uint32_t *, uint32_t x) {
    for (uint32_t turn = 0; turn < 50; turn++) {
        const uint32_t y = x * 64 + turn;
        const Vector v = {y, y, y, y};
        asm volatile(STORE16 FAR "\n\t" WAIT_STORES ::"v"(&area->payload[0]), "v"(v) : "memory");
    }
    store_flag(area, x);
}
KERNEL read_often(Area *area, uint32_t *result, uint32_t x) {
    for (uint32_t turn = 0; turn < 20000 && load_flag(area) != x; turn++) {
        Vector v;
        asm volatile(LOAD16 BYPASS "\n\t" WAIT_LOADS : "=v"(v) : "v"(&area->payload[0]) : "memory");
        count(result, lane() == 0 && !all_are(v, v.x));
        __builtin_amdgcn_s_sleep(1);
    }
}
