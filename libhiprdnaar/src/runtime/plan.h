// SPDX-License-Identifier: Apache-2.0
// Which algorithm and grid a call uses: a pure function, so that all ranks decide alike.
#pragma once

#include "backend.h"

namespace rdnaar {

// What is fixed for the life of a communicator.
struct Settings {
    rdnaar_config config;
    StagingSizes staging;
    uint64_t ll_max_bytes, oneshot_max_bytes;  // resolved
    Layout layout;
};

// Checks every field of *config; throws E_INVALID_ARGUMENT naming the field.
Settings make_settings(const rdnaar_config &config);

struct Plan {
    rdnaar_status status;
    uint32_t algo;
    backend::Grid grid;
    uint32_t pieces;
    uint64_t piece_bytes;
    uint64_t bytes_sent;
    std::string reason;
};

uint32_t element_bytes(uint32_t dtype);  // dtype is valid

Plan make_plan(const Settings &settings, uint64_t count, uint32_t dtype, uint32_t op,
               uint32_t algo);

// Likewise of reduce-scatter and all-gather, whose smaller buffer has `count` elements.
Plan make_chunk_plan(const Settings &settings, uint64_t count, uint32_t dtype, uint32_t op,
                     uint32_t algo);

// What all ranks must have in common.
uint64_t config_hash(const Settings &settings);

}  // namespace rdnaar
