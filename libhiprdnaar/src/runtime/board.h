// SPDX-License-Identifier: Apache-2.0
// The board: a page of host memory beside a rank's slab, on which its peers write down whether they
// have the slab open. It lies in host memory on every backend, since a peer writes "closed" when it
// has let go of the slab itself.
//
//   offset
//   0          identity     16 B  random, written by the owner: a peer knows that it has the right one
//   64 + 64 r  mark of r    u32   written by rank r, read by the owner: kNever, kOpen, kClosed
#pragma once

#include "../host/shared_memory.h"
#include "identity.h"

namespace rdnaar {

struct BoardHandle {
    Identity identity;
    SharedMemoryAddress address;
};

enum class Mark : uint32_t { kNever = 0, kOpen = 1, kClosed = 2 };

// This rank's own.
class Board {
public:
    Board();
    BoardHandle handle() const { return BoardHandle{identity_, memory_.address()}; }
    Mark mark_of(uint32_t rank) const;

private:
    const SharedMemory memory_;
    const Identity identity_;
};

// That of a peer. `handle` comes from outside: all of it is checked.
class PeerBoard {
public:
    PeerBoard(const BoardHandle &handle, uint32_t peer);
    void write(uint32_t own_rank, Mark mark);

private:
    const SharedMemory memory_;
};

}  // namespace rdnaar
