// SPDX-License-Identifier: Apache-2.0
// The handle blob that ranks exchange, and the distrust with which it is read.
#pragma once

#include "backend.h"
#include "board.h"
#include "plan.h"

namespace rdnaar {

struct Blob {
    char magic[8];
    uint32_t blob_version;
    uint32_t abi_version;
    char source_digest[64];
    char backend[8];
    uint64_t config_hash;
    uint8_t group_id[16];
    uint32_t rank, world;
    uint64_t slab_bytes;
    backend::Handle handle;
    BoardHandle board;
    uint8_t reserved[512 - 8 - 8 - 64 - 8 - 8 - 16 - 8 - 8 - backend::kHandleBytes -
                     sizeof(BoardHandle) - 8];
    uint64_t checksum;  // of all bytes before it
};
static_assert(sizeof(Blob) == RDNAAR_BLOB_BYTES, "the blob fills its size without padding");

Blob make_blob(const Settings &settings, const backend::Handle &handle, const BoardHandle &board);

// Throws unless the blob is that of rank `expected_rank` of this group, made by the same library
// with the same configuration.
void check_blob(const Blob &blob, const Settings &settings, uint32_t expected_rank);

}  // namespace rdnaar
