// SPDX-License-Identifier: Apache-2.0
// The caller's tensors as vectors, and which thread works on which.
//
// I4: the share of a thread is one function, used by writers and readers in every phase: within a
// piece (or a slice of a piece) vector i belongs to the thread with first() == i mod stride(). So a
// thread only reads what its twins, the threads of the same number on the other ranks, have written,
// and a block only waits for its twin blocks.
#pragma once

#include "abort.h"

namespace rdnaar {

// A part of the message that passes through the slab in one round. Only the last vector of the last
// piece may be partial.
struct Piece {
    uint64_t offset;   // bytes from the start of the message
    uint32_t vectors;  // partial one included
    uint32_t full;     // partial one not included
    uint32_t tail;     // bytes of the partial one
};

template <class Lane, class T>
struct Tensor {
    using V = typename Lane::Vec;
    using Index = typename Lane::Index;
    const unsigned char *in;
    unsigned char *out;
    uint64_t nbytes;
    bool in_aligned, out_aligned;

    // `call.count` elements from chunk `from` of the input on, and to chunk `to` of the output.
    RDNAAR_FN Tensor(const Call &call, uint32_t from, uint32_t to)
        : in(static_cast<const unsigned char *>(call.in) + from * call.count * T::kBytes),
          out(static_cast<unsigned char *>(call.out) + to * call.count * T::kBytes),
          nbytes(call.count * T::kBytes),
          in_aligned(reinterpret_cast<uintptr_t>(in) % V::kBytes == 0),
          out_aligned(reinterpret_cast<uintptr_t>(out) % V::kBytes == 0) {}

    RDNAAR_FN Piece piece(const Call &call, uint32_t index) const {
        const uint64_t offset = index * call.piece_bytes;
        const uint64_t size = min_of(call.piece_bytes, nbytes - offset);
        return Piece{offset, uint32_t(ceil_div(size, V::kBytes)), uint32_t(size / V::kBytes),
                     uint32_t(size % V::kBytes)};
    }

    // Vector i of a piece; what is beyond the end of the message is zero.
    RDNAAR_FN V load(Lane &lane, const Piece &piece, Index i) const {
        const unsigned char *p = in + piece.offset;
        if (i < piece.full) return lane.load_tensor(p, i, in_aligned);
        return lane.template load_partial<T::kBytes>(p, i, piece.tail);
    }

    RDNAAR_FN void store(Lane &lane, const Piece &piece, Index i, const V &v) const {
        unsigned char *p = out + piece.offset;
        if (i < piece.full) {
            lane.store_tensor(p, i, v, out_aligned);
        } else {
            lane.template store_partial<T::kBytes>(p, i, v, piece.tail);
        }
    }
};

// Slice q of a piece in `slices` equal parts: the vectors [begin, end).
struct Slice {
    uint32_t begin, end;
};

RDNAAR_FN Slice slice_of(const Piece &piece, uint32_t slices, uint32_t q) {
    const uint32_t part = uint32_t(ceil_div(piece.vectors, slices));
    return Slice{min_of(part * q, piece.vectors), min_of(part * (q + 1), piece.vectors)};
}

// Fills this thread's share of a tensor's output with NaN. `slices` as the algorithm cuts its pieces.
template <class Lane, class T>
RDNAAR_FN void poison(Lane &lane, const Call &call, const Tensor<Lane, T> &tensor,
                      uint32_t slices) {
    typename Lane::Vec nan;
    for (int w = 0; w < Lane::Vec::kWords; w++)
        nan.w[w] = splat<typename Lane::Vec::Word>(nan_word<T>());
    for (uint32_t p = 0; p < call.pieces; p++) {
        const Piece piece = tensor.piece(call, p);
        for (uint32_t q = 0; q < slices; q++) {
            const Slice slice = slice_of(piece, slices, q);
            for (typename Lane::Index i = slice.begin + lane.first(); i < slice.end;
                 i += lane.stride())
                tensor.store(lane, piece, i, nan);
        }
    }
}

}  // namespace rdnaar
