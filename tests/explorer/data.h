// SPDX-License-Identifier: Apache-2.0
// Inputs of a scenario and the results they must have, by plain scalar arithmetic of its own.
#pragma once

#include "scenario.h"

namespace explorer {

using Bytes = std::vector<unsigned char>;

// Values of many signs and sizes, so that the order of a sum shows; now and then a word that equals
// the sentinel of `ll`, an infinity, a zero.
Bytes make_input(const CallSpec &call, uint32_t world, uint32_t rank, uint64_t seed);

// The output of a rank: the contributions in rank order, in fp32, rounded once; or, of an all-gather, one
// after the other.
Bytes make_output(const CallSpec &call, uint32_t rank, const std::vector<Bytes> &inputs);

uint32_t element_at(Dtype dtype, const unsigned char *bytes, uint32_t index);
uint32_t nan_bits(Dtype dtype);  // the one that results have

}  // namespace explorer
