// SPDX-License-Identifier: Apache-2.0
// The lane: all that an algorithm may do to the machine. One lane is one thread of one block of one
// rank. Every platform has a class with these members; the algorithms are templates over it.
//
//   using Vec                      Vec<U, N>, the unit of payload: N words U, where U is a 32-bit
//                                  word (GPU) or a SIMD register of them (CPU)
//   using Index                    an unsigned integer for vectors of a piece, 32 or 64 bits
//   has_word(v, x)                 is one of the 32-bit words equal to x?
//   static constexpr kBatch        vectors that a thread of `ll` pushes before it polls the first
//   static constexpr kKeepsOwn     own contribution stays in registers (kBatch of them)
//   static constexpr kLoadsTogether        a thread's loads are on their way at once if no branch
//                                  comes between them
//
//   thread() threads()             index in the block, block size
//   block()  blocks()              index in the grid, grid size
//   wave()                         threads of a wave: those that vote together
//   first() stride()               the share of this thread: vectors first(), first()+stride(), ...
//
//   barrier()                      block barrier. Guarantees: all threads of the block have come
//                                  here, and what they wrote to memory of their own device before is
//                                  seen by the block after. Promises nothing about peers.
//   any(b)                         wave vote: true on all lanes if b is true on one
//   elect(b)                       true on one of the lanes of the wave on which b is true
//   barrier_any(b)                 all threads of the block have come here, with the values of their
//                                  loads in hand, and vote. Promises nothing about stores
//
// A vector is named by an address that is the same on all threads and its number from there: a GPU
// keeps the one in scalar registers and adds the other in the access. In a slab the address is that
// of the slab and the offset of a slot.
//   load_tensor(p, i, aligned)     a vector of the caller's tensor; `aligned` to the vector or not
//   store_tensor(p, i, v, aligned)
//   load_partial<E>(p, i, n)       its first n bytes, in elements of E bytes, and zeros;
//   store_partial<E>(p, i, v, n)   0 < n < the size of a vector
//
//   put(slab, slot, i, v)          payload to a peer's slab. Ordered by nothing but drain() + a flag
//   get(slab, slot, i)             payload from the own slab that a flag has announced; never from
//                                  a cache that the peer's store has bypassed
//   put_ll(slab, slot, i, v)       payload that is its own flag: each 32-bit word arrives whole, the
//   get_ll(slab, slot, i)          words in any order. put_ll is not ordered before anything
//   clear_ll(slab, slot, i, v)     puts back the sentinel in the own slab
//   order_clears()                 clears so far reach memory before any later put_ll of this thread
//   drain()                        returns when the stores of this thread's wave have arrived at the
//                                  peers; with a block barrier after it: those of the block
//   pushed()                       a thread's pushes of `ll` are issued. before_read(): flags have
//                                  been seen and payload is read next. Nothing depends on either:
//                                  they let a CPU keep from reading lines that are still being
//                                  written, which would take them from the writer
//   store_flag_release(p, x)       64-bit flag or card word to a peer, system scope, after all that
//                                  this thread stored or learned of through a barrier
//   load_flag_acquire(p)           64-bit word of the own slab, system scope, past all caches
//   store_word(p, x) load_word(p)  32 or 64 bits, whole, relaxed, system scope, past all caches; the store
//                                  to any slab, the load from the own
//   load_counter store_counter fetch_add exchange       counters of this rank, device scope
//   uniform(x)                     x, which is the same on all threads of the wave. Here, not
//                                  before, is a load of x waited for
//   store_record(p, x)             a word of a record, whole
//   store_record_release(p, x)     likewise, after what this thread wrote to the record before
//   now()                          real time, in ticks that never stop or wrap
//   relax(polls)                   called after each failed poll, with their number; returns true
//                                  when it is time to look at the clock and the abort word
//   pace(n)                        idles n units between pushes
//   fresh(call)                    the call, as if read for the first time: for the inside of a loop,
//                                  where a compiler would else keep dozens of addresses and
//                                  conditions in registers and run out of them (gfx1030 has 106
//                                  scalar ones)
#pragma once

#include "portable.h"

namespace rdnaar {

template <class U, int N>
struct alignas(sizeof(U) * N) Vec {
    using Word = U;
    static constexpr int kWords = N;
    static constexpr uint32_t kBytes = sizeof(U) * N;
    U w[N];
};

}  // namespace rdnaar
