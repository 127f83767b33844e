// SPDX-License-Identifier: Apache-2.0
// Modules: the code object of a device's architecture, out of a fat binary, translated.
#pragma once

#include <memory>
#include <string>

#include "program.h"

namespace rdnasim {

struct Module {
    std::shared_ptr<Program> program;
};

enum class LoadResult { kLoaded, kNoCodeForDevice, kFailed };

// `image`: an offload bundle, or a code object. What fails is said on stderr.
LoadResult load_module(const void *image, const std::string &target, Module &module);

}  // namespace rdnasim
