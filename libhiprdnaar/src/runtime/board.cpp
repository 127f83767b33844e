// SPDX-License-Identifier: Apache-2.0
#include "board.h"

#include "../protocol/layout.h"

namespace rdnaar {

namespace {

constexpr uint64_t kBoardBytes = 4096;
static_assert(kLine + kMaxWorld * kLine <= kBoardBytes, "one line for each rank");

uint32_t *place_of(const SharedMemory &memory, uint32_t rank) {
    return reinterpret_cast<uint32_t *>(memory.base() + kLine + rank * kLine);
}

}  // namespace

Board::Board() : memory_("rdnaar-board", kBoardBytes), identity_(new_identity()) {
    memcpy(memory_.base(), &identity_, sizeof identity_);
}

Mark Board::mark_of(uint32_t rank) const {
    return Mark(__atomic_load_n(place_of(memory_, rank), __ATOMIC_ACQUIRE));
}

PeerBoard::PeerBoard(const BoardHandle &handle, uint32_t peer)
    : memory_(handle.address, kBoardBytes, peer) {
    if (memcmp(memory_.base(), &handle.identity, sizeof handle.identity) != 0)
        fail(RDNAAR_E_PEER, "process %d does not hold the memory of rank %u any more",
             handle.address.pid, peer);
}

// Release: what this rank did to the slab before has been done.
void PeerBoard::write(uint32_t own_rank, Mark mark) {
    __atomic_store_n(place_of(memory_, own_rank), uint32_t(mark), __ATOMIC_RELEASE);
}

}  // namespace rdnaar
