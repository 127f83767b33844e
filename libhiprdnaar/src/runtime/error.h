// SPDX-License-Identifier: Apache-2.0
// Errors inside the library are exceptions; the C ABI turns them into a status and a text.
#pragma once

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "rdnaar.h"

namespace rdnaar {

struct Error {
    rdnaar_status status;
    std::string text;
};

// fail(RDNAAR_E_..., "what, which value, which limit, what to do", ...)
[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(rdnaar_status status,
                                                                    const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Error{status, text};
}

// A field of a public configuration struct.
inline void check_range(const char *field, uint64_t value, uint64_t low, uint64_t high) {
    if (value < low || value > high)
        fail(RDNAAR_E_INVALID_ARGUMENT,
             "config.%s is %" PRIu64 ", but must be %" PRIu64 " to %" PRIu64, field, value, low,
             high);
}

}  // namespace rdnaar
