// SPDX-License-Identifier: Apache-2.0
// Copying text into the fixed fields of public structs.
#pragma once

#include <cstring>
#include <string>

namespace rdnaar {

// Truncates; always ends with a zero.
template <size_t N>
void put_text(char (&field)[N], const std::string &text) {
    const size_t n = text.size() < N - 1 ? text.size() : N - 1;
    memcpy(field, text.data(), n);
    memset(field + n, 0, N - n);
}

}  // namespace rdnaar
