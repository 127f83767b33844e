// SPDX-License-Identifier: Apache-2.0
// Loads, stores and atomics of memory and LDS, scalar loads.
//
// In the strong model an access is done at once. In the weak model the device's memory model keeps
// it until the wave waits (weak_memory.h).
#include "device.h"
#include "instructions.h"
#include "sources.h"

namespace rdnasim {

namespace {

// Parameter: bytes of a lane, and how they lie in the register.
constexpr u32 kSigned = 0x100, kToHighHalf = 0x200, kToLowHalf = 0x400, kFromHighHalf = 0x800;

u32 bytes_of(const Step &t) { return t.parameter & 0xFF; }

DeviceMemoryModel &model(Wave &w) { return *w.launch->device->memory; }

// ---- Where --------------------------------------------------------------------------------------

Places global_places(const Wave &w, const Step &t) {
    Places p;
    p.lanes = w.exec();
    const Operand &address = t.source[0], &base = t.source[2];
    const u32 *low = w.v[address.number].x;
    const u64 offset = u64(i64(t.offset));
    if (t.flags & kShortAddress) {
        const u64 from = (base.kind == kNone ? 0 : scalar64(w, base)) + offset;
        for (u32 l = 0; l < kWave; l++) p.at[l] = from + low[l];
    } else {
        const u32 *high = w.v[address.number + 1].x;
        for (u32 l = 0; l < kWave; l++) p.at[l] = join(low[l], high[l]) + offset;
    }
    return p;
}

// A plain range of bytes: no stride, no swizzle. What is outside loads 0 and stores nothing.
Places buffer_places(const Wave &w, const Step &t) {
    Places p;
    const Operand &descriptor = t.source[2];
    const u32 *words = &w.s[descriptor.number];
    if (words[1] >> 16 != 0)
        die("a buffer descriptor with a stride or swizzle: word 1 is %#x", words[1]);
    const u64 base = join(words[0], words[1] & 0xFFFF) + scalar32(w, t.source[3]);
    p.lanes = w.exec();
    for (u32 l = 0; l < kWave; l++) {
        const u32 start = t.flags & kOffen ? w.v[t.source[0].number].x[l] : 0;
        const u64 offset = u64(start) + u64(i64(t.offset));
        if (offset + bytes_of(t) > words[2]) p.lanes &= ~(1u << l);
        p.at[l] = base + offset;
    }
    return p;
}

// ---- Loads --------------------------------------------------------------------------------------

u32 narrow_value(const Step &t, const u8 *data) {
    if (bytes_of(t) == 1) return t.parameter & kSigned ? u32(i32(int8_t(*data))) : *data;
    u16 x;
    memcpy(&x, data, 2);
    return t.parameter & kSigned ? u32(i32(i16(x))) : x;
}

template <u32 kWords>
void load_words(Wave &w, u32 first, const Places &p) {
    const auto one = [&](u32 l) {
        u32 words[kWords];
        memcpy(words, reinterpret_cast<const void *>(p.at[l]), sizeof words);
        for (u32 i = 0; i < kWords; i++) w.v[first + i].x[l] = words[i];
    };
    if (p.lanes == ~0u) {
        for (u32 l = 0; l < kWave; l++) one(l);
    } else {
        for (u32 lanes = p.lanes; lanes != 0; lanes &= lanes - 1) one(u32(__builtin_ctz(lanes)));
    }
}

// Four lanes of four words: between the lanes' order in memory and the registers'.
typedef u32 Quad __attribute__((vector_size(16)));
struct Square {
    Quad row[4];
};
RDNASIM_INLINE Square transposed(const Square &s) {
    const Quad a = __builtin_shufflevector(s.row[0], s.row[1], 0, 4, 1, 5);
    const Quad b = __builtin_shufflevector(s.row[0], s.row[1], 2, 6, 3, 7);
    const Quad c = __builtin_shufflevector(s.row[2], s.row[3], 0, 4, 1, 5);
    const Quad d = __builtin_shufflevector(s.row[2], s.row[3], 2, 6, 3, 7);
    return Square{
        {__builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
         __builtin_shufflevector(b, d, 0, 1, 4, 5), __builtin_shufflevector(b, d, 2, 3, 6, 7)}};
}

void load_quads(Wave &w, u32 first, const Places &p) {
    if (p.lanes != ~0u) return load_words<4>(w, first, p);
    for (u32 l = 0; l < kWave; l += 4) {
        Square s;
        for (u32 i = 0; i < 4; i++)
            memcpy(&s.row[i], reinterpret_cast<const void *>(p.at[l + i]), 16);
        s = transposed(s);
        for (u32 i = 0; i < 4; i++) memcpy(&w.v[first + i].x[l], &s.row[i], 16);
    }
}

void load_at_once(Wave &w, const Step &t, const Places &p) {
    const u32 first = t.destination.number;
    switch (bytes_of(t)) {
        case 4: return load_words<1>(w, first, p);
        case 8: return load_words<2>(w, first, p);
        case 12: return load_words<3>(w, first, p);
        case 16: return load_quads(w, first, p);
        default:
            for (u32 l = 0; l < kWave; l++)
                if (p.lanes >> l & 1) put_loaded(w, t, l, reinterpret_cast<const u8 *>(p.at[l]));
    }
}

const Step *load(Wave &w, const Step &t, const Places &p) {
    if (w.memory != nullptr)
        model(w).load(w, t, p);
    else
        load_at_once(w, t, p);
    return &t + 1;
}

const Step *global_load(Wave &w, const Step &t) { return load(w, t, global_places(w, t)); }

const Step *buffer_load(Wave &w, const Step &t) {
    const Places p = buffer_places(w, t);
    if (const u32 outside = w.exec() & ~p.lanes)
        for (u32 i = 0; i < (bytes_of(t) + 3) / 4; i++)
            for (u32 l = 0; l < kWave; l++)
                if (outside >> l & 1) w.v[t.destination.number + i].x[l] = 0;
    return load(w, t, p);
}

// ---- Stores -------------------------------------------------------------------------------------

RDNASIM_INLINE void store_at_once(u64 address, const u8 *data, u32 bytes) {
    u8 *to = reinterpret_cast<u8 *>(address);
    switch (bytes) {
        case 1: __atomic_store_n(to, *data, __ATOMIC_RELEASE); return;
        case 16: memcpy(to, data, 16); return;
        default: break;
    }
    u64 x = 0;
    memcpy(&x, data, bytes > 8 ? 8 : bytes);
    if (bytes > 8 || address % bytes != 0)
        memcpy(to, data, bytes);
    else if (bytes == 2)
        __atomic_store_n(reinterpret_cast<u16 *>(to), u16(x), __ATOMIC_RELEASE);
    else if (bytes == 4)
        __atomic_store_n(reinterpret_cast<u32 *>(to), u32(x), __ATOMIC_RELEASE);
    else
        __atomic_store_n(reinterpret_cast<u64 *>(to), x, __ATOMIC_RELEASE);
}

template <u32 kWords>
void store_words(Wave &w, u32 first, const Places &p) {
    const auto one = [&](u32 l) {
        u32 words[kWords];
        for (u32 i = 0; i < kWords; i++) words[i] = w.v[first + i].x[l];
        store_at_once(p.at[l], reinterpret_cast<const u8 *>(words), sizeof words);
    };
    if (p.lanes == ~0u) {
        for (u32 l = 0; l < kWave; l++) one(l);
    } else {
        for (u32 lanes = p.lanes; lanes != 0; lanes &= lanes - 1) one(u32(__builtin_ctz(lanes)));
    }
}

void store_quads(Wave &w, u32 first, const Places &p) {
    if (p.lanes != ~0u) return store_words<4>(w, first, p);
    for (u32 l = 0; l < kWave; l += 4) {
        Square s;
        for (u32 i = 0; i < 4; i++) memcpy(&s.row[i], &w.v[first + i].x[l], 16);
        s = transposed(s);
        for (u32 i = 0; i < 4; i++) memcpy(reinterpret_cast<void *>(p.at[l + i]), &s.row[i], 16);
    }
}

// Each lane's bytes to `to`.
template <class To>
void store_lanes(const Wave &w, const Step &t, const Places &p, To to) {
    const u32 first = t.source[1].number, words = (bytes_of(t) + 3) / 4;
    const u32 shift = t.parameter & kFromHighHalf ? 16 : 0;
    for (u32 lanes = p.lanes; lanes != 0; lanes &= lanes - 1) {
        const u32 l = u32(__builtin_ctz(lanes));
        u32 data[4];
        for (u32 i = 0; i < words; i++) data[i] = w.v[first + i].x[l] >> shift;
        to(p.at[l], reinterpret_cast<const u8 *>(data));
    }
}

const Step *store(Wave &w, const Step &t, const Places &p) {
    const u32 first = t.source[1].number, bytes = bytes_of(t);
    w.progressed = true;
    if (w.memory != nullptr) {
        w.memory->store_instructions++;
        store_lanes(w, t, p,
                    [&](u64 at, const u8 *data) { model(w).store(w, t, at, data, bytes); });
        return &t + 1;
    }
    switch (bytes) {
        case 4: store_words<1>(w, first, p); break;
        case 8: store_words<2>(w, first, p); break;
        case 12: store_words<3>(w, first, p); break;
        case 16: store_quads(w, first, p); break;
        default:
            store_lanes(w, t, p, [=](u64 at, const u8 *data) { store_at_once(at, data, bytes); });
    }
    return &t + 1;
}

const Step *global_store(Wave &w, const Step &t) { return store(w, t, global_places(w, t)); }
const Step *buffer_store(Wave &w, const Step &t) { return store(w, t, buffer_places(w, t)); }

// ---- Atomics ------------------------------------------------------------------------------------

enum AtomicOperation : u32 { kAtomicAdd, kAtomicSubtract, kAtomicSwap, kAtomicAnd, kAtomicOr };
constexpr u32 kOperationShift = 16;
constexpr u32 atomic(AtomicOperation operation, u32 bytes) {
    return u32(operation) << kOperationShift | bytes;
}

template <class X>
X atomic_at(u64 address, u32 operation, X x) {
    X *p = reinterpret_cast<X *>(address);
    switch (operation) {
        case kAtomicAdd: return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST);
        case kAtomicSubtract: return __atomic_fetch_sub(p, x, __ATOMIC_SEQ_CST);
        case kAtomicAnd: return __atomic_fetch_and(p, x, __ATOMIC_SEQ_CST);
        case kAtomicOr: return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST);
        default: return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST);
    }
}

const Step *global_atomic(Wave &w, const Step &t) {
    const Places p = global_places(w, t);
    const u32 bytes = bytes_of(t), operation = t.parameter >> kOperationShift;
    const u32 data = t.source[1].number;
    std::vector<u8> old(kWave * 16);
    w.progressed = true;
    for (u32 l = 0; l < kWave; l++) {
        if (!(p.lanes >> l & 1)) continue;
        if (w.memory != nullptr) model(w).before_atomic(w, p.at[l], bytes);
        if (bytes == 4) {
            const u32 x = atomic_at<u32>(p.at[l], operation, w.v[data].x[l]);
            memcpy(&old[l * 16], &x, 4);
        } else {
            const u64 operand = join(w.v[data].x[l], w.v[data + 1].x[l]);
            const u64 x = atomic_at<u64>(p.at[l], operation, operand);
            memcpy(&old[l * 16], &x, 8);
        }
    }
    if (!(t.flags & kReturns)) return &t + 1;
    if (w.memory != nullptr) {
        model(w).after_atomic(w, t, p, std::move(old));
    } else {
        for (u32 l = 0; l < kWave; l++)
            if (p.lanes >> l & 1) put_loaded(w, t, l, &old[l * 16]);
    }
    return &t + 1;
}

// ---- LDS ----------------------------------------------------------------------------------------

constexpr u32 kLdsStore = 0x1000;

const Step *shared_access(Wave &w, const Step &t) {
    Places p;
    p.lanes = w.exec();
    const u32 *at = w.v[t.source[0].number].x;
    for (u32 l = 0; l < kWave; l++) p.at[l] = at[l] + u32(t.offset);
    std::vector<u8> data(kWave * 16);
    if (t.parameter & kLdsStore)
        for (u32 l = 0; l < kWave; l++)
            for (u32 i = 0; i < (bytes_of(t) + 3) / 4; i++)
                memcpy(&data[l * 16 + i * 4], &w.v[t.source[1].number + i].x[l], 4);
    if (w.memory != nullptr)
        w.memory->shared.push_back(PendingAccess{&t, p, false, std::move(data)});
    else
        access_shared(w, t, p, data.data());
    w.progressed |= (t.parameter & kLdsStore) != 0;
    return &t + 1;
}

// ---- Scalar loads -------------------------------------------------------------------------------

// The scalar cache is not modelled: kernels read their arguments with it, which nobody changes.
const Step *scalar_load(Wave &w, const Step &t) {
    const Operand &offset = t.source[1];
    const u64 from = scalar64(w, t.source[0]) + u64(i64(t.offset)) +
                     (offset.kind == kNone       ? 0
                      : offset.kind == kConstant ? u64(i64(i32(offset.value)))
                                                 : u64(scalar32(w, offset)));
    PendingScalar pending{&t, {}};
    memcpy(pending.words.data(), reinterpret_cast<const void *>(from & ~u64(3)), t.parameter * 4);
    if (w.memory != nullptr)
        w.memory->scalars.push_back(pending);
    else
        put_scalars(w, t, pending.words.data());
    return &t + 1;
}

}  // namespace

void put_loaded(Wave &w, const Step &t, u32 lane, const u8 *data) {
    const u32 first = t.destination.number, bytes = bytes_of(t);
    if (bytes < 4) {
        const u32 x = narrow_value(t, data), old = w.v[first].x[lane];
        w.v[first].x[lane] = t.parameter & kToHighHalf  ? (old & 0xFFFF) | x << 16
                             : t.parameter & kToLowHalf ? (old & 0xFFFF0000) | (x & 0xFFFF)
                                                        : x;
        return;
    }
    for (u32 i = 0; i < bytes / 4; i++) memcpy(&w.v[first + i].x[lane], data + i * 4, 4);
}

void put_scalars(Wave &w, const Step &t, const u32 *words) {
    for (u32 i = 0; i < t.destination.value; i++)
        if (t.destination.number != kNull) w.s[t.destination.number + i] = words[i];
}

// Beyond the end of the block's share: reads 0, writes nothing.
void access_shared(Wave &w, const Step &t, const Places &p, u8 *data) {
    std::vector<u8> &lds = w.block->lds;
    const u32 bytes = bytes_of(t);
    for (u32 l = 0; l < kWave; l++) {
        if (!(p.lanes >> l & 1)) continue;
        const bool inside = p.at[l] + bytes <= lds.size();
        if (t.parameter & kLdsStore) {
            if (inside) memcpy(&lds[p.at[l]], data + l * 16, bytes);
        } else {
            if (inside) memcpy(data + l * 16, &lds[p.at[l]], bytes);
            put_loaded(w, t, l, data + l * 16);
        }
    }
}

// The names of gfx10 and those of gfx11 and gfx12, for global and flat accesses alike: flat ones
// that mean LDS or scratch do not occur without their apertures, which nothing here gives.
#define EVERYWHERE(old_name, new_name, run, parameter)                          \
    {"global_" old_name, run, parameter}, {"global_" new_name, run, parameter}, \
        {"flat_" old_name, run, parameter}, {                                   \
        "flat_" new_name, run, parameter                                        \
    }
#define LOAD(old_name, new_name, parameter) \
    EVERYWHERE("load_" old_name, "load_" new_name, global_load, parameter)
#define STORE(old_name, new_name, parameter) \
    EVERYWHERE("store_" old_name, "store_" new_name, global_store, parameter)
#define ATOMIC(old_name, new_name, parameter) \
    EVERYWHERE("atomic_" old_name, "atomic_" new_name, global_atomic, parameter)
#define BUFFER(old_name, new_name, parameter)                  \
    {"buffer_load_" old_name, buffer_load, parameter},         \
        {"buffer_load_" new_name, buffer_load, parameter},     \
        {"buffer_store_" old_name, buffer_store, parameter}, { \
        "buffer_store_" new_name, buffer_store, parameter      \
    }
#define LDS(type, parameter)                                                                  \
    {"ds_read_" type, shared_access, parameter}, {"ds_load_" type, shared_access, parameter}, \
        {"ds_write_" type, shared_access, (parameter) | kLdsStore}, {                         \
        "ds_store_" type, shared_access, (parameter) | kLdsStore                              \
    }
#define SCALAR(old_name, new_name, words) \
    {"s_load_" old_name, scalar_load, words}, { "s_load_" new_name, scalar_load, words }

const InstructionTable &memory_instructions() {
    static const InstructionTable table = {
        LOAD("ubyte", "u8", 1),
        LOAD("sbyte", "i8", 1 | kSigned),
        LOAD("ushort", "u16", 2),
        LOAD("sshort", "i16", 2 | kSigned),
        LOAD("short_d16", "d16_b16", 2 | kToLowHalf),
        LOAD("short_d16_hi", "d16_hi_b16", 2 | kToHighHalf),
        LOAD("dword", "b32", 4),
        LOAD("dwordx2", "b64", 8),
        LOAD("dwordx3", "b96", 12),
        LOAD("dwordx4", "b128", 16),
        STORE("byte", "b8", 1),
        STORE("short", "b16", 2),
        STORE("byte_d16_hi", "d16_hi_b8", 1 | kFromHighHalf),
        STORE("short_d16_hi", "d16_hi_b16", 2 | kFromHighHalf),
        STORE("dword", "b32", 4),
        STORE("dwordx2", "b64", 8),
        STORE("dwordx3", "b96", 12),
        STORE("dwordx4", "b128", 16),
        ATOMIC("add", "add_u32", atomic(kAtomicAdd, 4)),
        ATOMIC("add_x2", "add_u64", atomic(kAtomicAdd, 8)),
        ATOMIC("sub", "sub_u32", atomic(kAtomicSubtract, 4)),
        ATOMIC("swap", "swap_b32", atomic(kAtomicSwap, 4)),
        ATOMIC("swap_x2", "swap_b64", atomic(kAtomicSwap, 8)),
        ATOMIC("and", "and_b32", atomic(kAtomicAnd, 4)),
        ATOMIC("or", "or_b32", atomic(kAtomicOr, 4)),
        BUFFER("dword", "b32", 4),
        BUFFER("dwordx2", "b64", 8),
        BUFFER("dwordx4", "b128", 16),
        LDS("b32", 4),
        LDS("b64", 8),
        LDS("b128", 16),
        SCALAR("dword", "b32", 1),
        SCALAR("dwordx2", "b64", 2),
        SCALAR("dwordx4", "b128", 4),
        SCALAR("dwordx8", "b256", 8),
        SCALAR("dwordx16", "b512", 16),
    };
    return table;
}

}  // namespace rdnasim
