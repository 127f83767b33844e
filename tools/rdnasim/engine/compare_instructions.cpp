// SPDX-License-Identifier: Apache-2.0
// Comparisons of the vector unit: a bit a lane, into a scalar register (v_cmp) or exec (v_cmpx).
#include <type_traits>

#include "instructions.h"
#include "sources.h"

namespace rdnasim {

namespace {

template <class X>
X value(u32 low, u32 high) {
    if constexpr (sizeof(X) == 8)
        return X(join(low, high));
    else
        return bits_as<X>(low);
}

template <class X, auto F>
u32 compare(const Wave &w, const Step &t) {
    Lanes rooms[4];
    const u32 *a = vector32(w, t.source[0], rooms[0]), *b = vector32(w, t.source[1], rooms[1]);
    const u32 *a_high = a, *b_high = b;
    if constexpr (sizeof(X) == 8) {
        a_high = vector64_high(w, t.source[0], rooms[2]);
        b_high = vector64_high(w, t.source[1], rooms[3]);
    }
    u32 bits = 0;
    for (u32 l = 0; l < kWave; l++)
        bits |= (F(value<X>(a[l], a_high[l]), value<X>(b[l], b_high[l])) ? 1u : 0u) << l;
    return bits & w.exec();
}

template <class X, auto F>
const Step *to_scalar(Wave &w, const Step &t) {
    put_scalar32(w, t.destination, compare<X, F>(w, t));
    return &t + 1;
}

template <class X, auto F>
const Step *to_exec(Wave &w, const Step &t) {
    w.s[kExec] = compare<X, F>(w, t);
    return &t + 1;
}

#define COMPARE(name, X, type, ...)                                                 \
    {"v_cmp_" name "_" type, to_scalar<X, [](X a, X b) { return __VA_ARGS__; }>}, { \
        "v_cmpx_" name "_" type, to_exec<X, [](X a, X b) { return __VA_ARGS__; }>   \
    }
#define COMPARE_INTEGERS(X, type)                                                                  \
    COMPARE("lt", X, type, a < b), COMPARE("eq", X, type, a == b), COMPARE("le", X, type, a <= b), \
        COMPARE("gt", X, type, a > b), COMPARE("ne", X, type, a != b),                             \
        COMPARE("ge", X, type, a >= b)

}  // namespace

const InstructionTable &compare_instructions() {
    static const InstructionTable table = {
        COMPARE_INTEGERS(u32, "u32"),
        COMPARE_INTEGERS(i32, "i32"),
        COMPARE_INTEGERS(u64, "u64"),
        COMPARE_INTEGERS(i64, "i64"),
        COMPARE("lt", float, "f32", a < b),
        COMPARE("eq", float, "f32", a == b),
        COMPARE("le", float, "f32", a <= b),
        COMPARE("gt", float, "f32", a > b),
        COMPARE("lg", float, "f32", a<b || a> b),
        COMPARE("ge", float, "f32", a >= b),
        COMPARE("o", float, "f32", a == a && b == b),
        COMPARE("u", float, "f32", a != a || b != b),
        COMPARE("nge", float, "f32", !(a >= b)),
        COMPARE("nlg", float, "f32", !(a < b || a > b)),
        COMPARE("ngt", float, "f32", !(a > b)),
        COMPARE("nle", float, "f32", !(a <= b)),
        COMPARE("neq", float, "f32", !(a == b)),
        COMPARE("nlt", float, "f32", !(a < b)),
    };
    return table;
}

}  // namespace rdnasim
