// SPDX-License-Identifier: Apache-2.0
#include <cstdarg>

#include "platform.h"

namespace rdnaar::gpu {

void check(int error, const char *format, ...) {
    if (error == kSuccess) return;
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fail(error == kErrorOutOfMemory ? RDNAAR_E_OUT_OF_MEMORY : RDNAAR_E_RUNTIME, "%s: %s", what,
         error_text(error).c_str());
}

}  // namespace rdnaar::gpu
