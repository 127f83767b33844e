// SPDX-License-Identifier: Apache-2.0
// Reading operands.
#pragma once

#include "wave.h"

namespace rdnasim {

// ---- Scalar -------------------------------------------------------------------------------------

inline u32 scalar32(const Wave &w, const Operand &o) {
    if (o.kind == kConstant) return o.value;
    return o.number == kNull ? 0 : w.s[o.number];
}

inline u64 scalar64(const Wave &w, const Operand &o) {
    if (o.kind == kConstant) return o.number != 0 ? u64(i64(i32(o.value))) : o.value;
    return o.number == kNull ? 0 : join(w.s[o.number], w.s[o.number + 1]);
}

inline void put_scalar32(Wave &w, const Operand &o, u32 x) {
    if (o.number != kNull) w.s[o.number] = x;
}

inline void put_scalar64(Wave &w, const Operand &o, u64 x) {
    if (o.number == kNull) return;
    w.s[o.number] = u32(x);
    w.s[o.number + 1] = u32(x >> 32);
}

// ---- Vector: 32 words, one a lane ---------------------------------------------------------------

inline const u32 *fill(Lanes &room, u32 x) {
    for (u32 l = 0; l < kWave; l++) room.x[l] = x;
    return room.x;
}

// The sign bit that the modifiers of a floating-point operand change.
constexpr u32 sign_bit(u32 bits) { return 1u << (bits - 1); }

// `room` holds what is not in registers as it is. `bits`: of a floating-point operand, 16 or 32.
RDNASIM_INLINE const u32 *vector32(const Wave &w, const Operand &o, Lanes &room, u32 bits = 32) {
    if (o.kind == kVector && o.modifiers == 0) [[likely]]
        return w.v[o.number].x;
    const u32 *from = o.kind == kVector ? w.v[o.number].x : fill(room, scalar32(w, o));
    if (o.modifiers == 0) return from;
    const u32 shift = o.modifiers & kHighHalf ? 16 : 0;
    const u32 size = o.modifiers & kLowByte ? 0xFF : ~0u;
    const u32 keep = size & (o.modifiers & kAbsolute ? ~sign_bit(bits) : ~0u);
    const u32 flip = o.modifiers & kNegate ? sign_bit(bits) : 0;
    for (u32 l = 0; l < kWave; l++) room.x[l] = ((from[l] >> shift) & keep) ^ flip;
    return room.x;
}

inline const u32 *vector64_high(const Wave &w, const Operand &o, Lanes &room) {
    if (o.kind == kVector) return w.v[o.number + 1].x;
    return fill(room, u32(scalar64(w, o) >> 32));
}

// Without a branch, which compilers would make of ?: here.
inline u32 either(u32 bit, u32 one, u32 zero) { return (one & (0 - bit)) | (zero & (bit - 1)); }

// Stores the lanes that exec has on.
RDNASIM_INLINE void put_vector(Wave &w, u32 number, const u32 *from) {
    u32 *to = w.v[number].x;
    const u32 exec = w.exec();
    if (exec == ~0u) [[likely]] {
        memcpy(to, from, sizeof(Lanes));
        return;
    }
    for (u32 l = 0; l < kWave; l++) to[l] = either(exec >> l & 1, from[l], to[l]);
}

}  // namespace rdnasim
