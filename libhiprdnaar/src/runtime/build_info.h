// SPDX-License-Identifier: Apache-2.0
// What the build wrote into the library about itself.
#pragma once

#include <string>

namespace rdnaar {

std::string source_digest();  // sha256 of the folder libhiprdnaar/, hex
std::string git_revision();
std::string compiler();

}  // namespace rdnaar
