// SPDX-License-Identifier: Apache-2.0
// The only file that is compiled anew when digest or revision change.
#include "build_info.h"

#if !defined(RDNAAR_SOURCE_DIGEST) || !defined(RDNAAR_GIT_REVISION)
#error "the Makefile defines the digest and the revision"
#endif

namespace rdnaar {

std::string source_digest() { return RDNAAR_SOURCE_DIGEST; }
std::string git_revision() { return RDNAAR_GIT_REVISION; }

std::string compiler() {
#if defined(__clang__)
    return __VERSION__;  // names itself
#else
    return "GCC " __VERSION__;
#endif
}

}  // namespace rdnaar
