// SPDX-License-Identifier: Apache-2.0
// Errors inside the library are exceptions; the C ABI turns them into a status and a text.
#pragma once

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

}  // namespace rdnaar
