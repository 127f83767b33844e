// SPDX-License-Identifier: Apache-2.0
#include "kernel_image.h"

#include <cstdint>
#include <cstring>

extern "C" const unsigned char rdnaar_kernel_image_start[];  // kernel_image.S

namespace rdnaar::gpu {

const void *kernel_image() { return rdnaar_kernel_image_start; }

// magic[24], u64 entries, then for each: u64 offset, u64 size, u64 length of its name, the name. An
// entry of a GPU is named like hipv4-amdgcn-amd-amdhsa--gfx1030; the first one, of the host, is
// empty.
std::vector<std::string> bundled_targets(const void *bundle) {
    static const char kMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
    static const char kBeforeTarget[] = "-amdgcn-amd-amdhsa--";
    const char *p = static_cast<const char *>(bundle);
    std::vector<std::string> targets;
    if (memcmp(p, kMagic, sizeof kMagic - 1) != 0) return targets;
    p += sizeof kMagic - 1;
    const auto next_word = [&p] {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        p += sizeof word;
        return word;
    };
    for (uint64_t entries = next_word(); entries > 0; entries--) {
        next_word();
        next_word();
        const uint64_t length = next_word();
        const std::string name(p, length);
        p += length;
        const size_t at = name.find(kBeforeTarget);
        if (at != std::string::npos) targets.push_back(name.substr(at + sizeof kBeforeTarget - 1));
    }
    return targets;
}

}  // namespace rdnaar::gpu
