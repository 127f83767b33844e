// SPDX-License-Identifier: Apache-2.0
#include "data.h"

#include <cmath>
#include <cstring>

namespace explorer {

namespace {

float to_float(Dtype dtype, uint32_t bits) {
    if (dtype == Dtype::kFp16) {
        const uint16_t half = uint16_t(bits);
        _Float16 value;
        memcpy(&value, &half, sizeof value);
        return float(value);
    }
    if (dtype == Dtype::kBf16) bits <<= 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint32_t from_float(Dtype dtype, float value) {
    if (std::isnan(value)) return nan_bits(dtype);
    if (dtype == Dtype::kFp16) {
        const _Float16 half = _Float16(value);
        uint16_t bits;
        memcpy(&bits, &half, sizeof bits);
        return bits;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == Dtype::kFp32) return bits;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;  // to nearest, ties to even
}

uint32_t random_bits(Dtype dtype, Random &random) {
    if (random.one_in(24)) return dtype == Dtype::kFp32 ? 0xFFFFFFFFu : 0xFFFFu;
    if (random.one_in(48)) return from_float(dtype, random.one_in(2) ? -0.0f : INFINITY);
    const float scale = std::ldexp(1.0f, int(random.below(9)) - 4);
    const float value = (1.0f + float(random.next() >> 9) / 8388608.0f) * scale;
    return from_float(dtype, random.one_in(2) ? value : -value);
}

}  // namespace

uint32_t nan_bits(Dtype dtype) {
    return dtype == Dtype::kFp16 ? 0x7E00 : dtype == Dtype::kBf16 ? 0x7FC0 : 0x7FC00000;
}

uint32_t element_at(Dtype dtype, const unsigned char *bytes, uint32_t index) {
    const uint32_t size = element_bytes(dtype);
    uint32_t bits = 0;
    memcpy(&bits, bytes + index * size, size);
    return bits;
}

Bytes make_input(const CallSpec &call, uint32_t world, uint32_t rank, uint64_t seed) {
    Random random(mix(seed, rank));
    const uint32_t count = call.count * call.in_chunks(world);
    const uint32_t size = element_bytes(call.dtype);
    Bytes bytes(count * size);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bits = random_bits(call.dtype, random);
        memcpy(bytes.data() + i * size, &bits, size);
    }
    // Sixteen bits that equal half of the sentinel make none: now and then the whole word.
    if (size == 2 && call.count > 1 && random.one_in(8)) memset(bytes.data(), 0xFF, 4);
    return bytes;
}

Bytes make_output(const CallSpec &call, uint32_t rank, const std::vector<Bytes> &inputs) {
    if (call.algo == rdnaar::kAlgoAllGather) {
        Bytes all;
        for (const Bytes &input : inputs) all.insert(all.end(), input.begin(), input.end());
        return all;
    }
    const uint32_t first = call.algo == rdnaar::kAlgoReduceScatter ? rank * call.count : 0;
    Bytes result(call.bytes());
    const uint32_t size = element_bytes(call.dtype);
    for (uint32_t i = 0; i < call.count; i++) {
        float sum = to_float(call.dtype, element_at(call.dtype, inputs[0].data(), first + i));
        for (size_t r = 1; r < inputs.size(); r++)
            sum = sum + to_float(call.dtype, element_at(call.dtype, inputs[r].data(), first + i));
        if (call.op == rdnaar::kAvg) sum = sum / float(inputs.size());
        const uint32_t bits = from_float(call.dtype, sum);
        memcpy(result.data() + i * size, &bits, size);
    }
    return result;
}

}  // namespace explorer
