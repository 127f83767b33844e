// SPDX-License-Identifier: Apache-2.0
#include "blob.h"

#include <cinttypes>
#include <cstddef>
#include <cstring>

#include "build_info.h"
#include "hash.h"

namespace rdnaar {

namespace {

constexpr char kMagic[8] = {'R', 'D', 'N', 'A', 'A', 'R', 'B', '\n'};
constexpr uint32_t kBlobVersion = 2;

uint64_t checksum_of(const Blob &blob) { return fnv1a(&blob, offsetof(Blob, checksum)); }

// At most N characters: text in a blob need not end with a zero.
template <size_t N>
std::string text_of(const char (&field)[N]) {
    std::string text(field, strnlen(field, N));
    for (char &c : text)
        if (c < ' ' || c > '~') c = '?';
    return text;
}

template <size_t N>
bool same_text(const char (&field)[N], const std::string &text) {
    return strnlen(field, N) == text.size() && memcmp(field, text.data(), text.size()) == 0;
}

}  // namespace

Blob make_blob(const Settings &s, const backend::Handle &handle, const BoardHandle &board) {
    Blob b{};
    memcpy(b.magic, kMagic, sizeof kMagic);
    b.blob_version = kBlobVersion;
    b.abi_version = RDNAAR_ABI_VERSION;
    const std::string digest = source_digest(), backend = backend::name();
    memcpy(b.source_digest, digest.data(), min_of(digest.size(), sizeof b.source_digest));
    memcpy(b.backend, backend.data(), min_of(backend.size(), sizeof b.backend));
    b.config_hash = config_hash(s);
    memcpy(b.group_id, s.config.group_id, sizeof b.group_id);
    b.rank = s.config.rank;
    b.world = s.config.world;
    b.slab_bytes = s.layout.slab_bytes;
    b.handle = handle;
    b.board = board;
    b.checksum = checksum_of(b);
    return b;
}

void check_blob(const Blob &b, const Settings &s, uint32_t expected_rank) {
    const rdnaar_config &c = s.config;
    if (memcmp(b.magic, kMagic, sizeof kMagic) != 0 || b.blob_version != kBlobVersion)
        fail(RDNAAR_E_INVALID_ARGUMENT, "blob %u is not a handle blob of version %u", expected_rank,
             kBlobVersion);
    if (b.checksum != checksum_of(b))
        fail(RDNAAR_E_INVALID_ARGUMENT, "blob %u is damaged: its checksum does not match",
             expected_rank);
    if (b.abi_version >> 16 != RDNAAR_ABI_MAJOR)
        fail(RDNAAR_E_MISMATCH, "rank %u runs ABI %u.%u, this rank %u.%u: install one version",
             expected_rank, b.abi_version >> 16, b.abi_version & 0xFFFF, RDNAAR_ABI_MAJOR,
             RDNAAR_ABI_MINOR);
    if (!same_text(b.source_digest, source_digest()) || !same_text(b.backend, backend::name()))
        fail(RDNAAR_E_MISMATCH,
             "rank %u runs another library (backend %s, digest %.12s...; this rank %s, %.12s...): "
             "use the same file on all ranks",
             expected_rank, text_of(b.backend).c_str(), text_of(b.source_digest).c_str(),
             backend::name(), source_digest().c_str());
    if (b.world != c.world || b.rank != expected_rank)
        fail(RDNAAR_E_MISMATCH,
             "blob %u is of rank %u of %u, this is rank %u of %u: blobs must be in rank order",
             expected_rank, b.rank, b.world, c.rank, c.world);
    const uint8_t none[16] = {};
    if (memcmp(c.group_id, none, 16) != 0 && memcmp(b.group_id, c.group_id, 16) != 0)
        fail(RDNAAR_E_MISMATCH, "blob %u belongs to another group or an earlier run",
             expected_rank);
    if (b.config_hash != config_hash(s) || b.slab_bytes != s.layout.slab_bytes)
        fail(RDNAAR_E_MISMATCH,
             "rank %u has another configuration (hash %016" PRIx64 ", this rank %016" PRIx64
             "): set the same RDNAAR_* variables on all ranks",
             expected_rank, b.config_hash, config_hash(s));
    // All the rest, padding included, is known as well.
    Blob known = make_blob(s, b.handle, b.board);
    known.rank = expected_rank;
    memcpy(known.group_id, b.group_id, sizeof known.group_id);
    known.checksum = checksum_of(known);
    if (memcmp(&known, &b, sizeof b) != 0)
        fail(RDNAAR_E_INVALID_ARGUMENT, "blob %u is malformed", expected_rank);
}

}  // namespace rdnaar
