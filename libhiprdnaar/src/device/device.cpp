// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <cinttypes>
#include <cstring>

#include "../protocol/all_reduce.h"
#include "kernel_image.h"

namespace rdnaar::gpu {

namespace {

// As kernels.cu names and bounds them.
constexpr struct {
    uint32_t algo;
    const char *name;
    uint32_t ops;  // that have a kernel of their own
} kCollectives[] = {{kAlgoLl, "ll", 2},
                    {kAlgoOneshot, "oneshot", 2},
                    {kAlgoTwoshot, "twoshot", 2},
                    {kAlgoReduceScatter, "reducescatter", 2},
                    {kAlgoAllGather, "allgather", 1}};
constexpr const char *kDtypeNames[] = {"fp16", "bf16", "fp32"};
constexpr const char *kOpNames[] = {"add", "max"};
constexpr uint32_t kWorldBounds[] = {2, 4, 8};
static_assert(RDNAAR_FP16 == 0 && RDNAAR_BF16 == 1 && RDNAAR_FP32 == 2, "the order of kDtypeNames");
static_assert(kOpAdd == 0 && kOpMax == 1, "the order of kOpNames");

struct Slot {
    std::mutex mutex;
    Device *device = nullptr;  // atomic; written under the mutex
};
Slot slots[kMaxDevices];

std::string describe(uint32_t index) {
    char name[96] = {};
    if (api().device_name(name, sizeof name, int(index)) != kSuccess) name[0] = 0;
    const std::string arch = architecture(index);
    return "device " + std::to_string(index) + " (" + name + (arch.empty() ? "" : ", " + arch) +
           ")";
}

}  // namespace

Device &Device::get(uint32_t index) {
    Slot &slot = slots[index];
    Device *device = __atomic_load_n(&slot.device, __ATOMIC_ACQUIRE);
    if (device != nullptr) return *device;
    const std::lock_guard<std::mutex> lock(slot.mutex);
    if (slot.device == nullptr) __atomic_store_n(&slot.device, new Device(index), __ATOMIC_RELEASE);
    return *slot.device;
}

std::vector<uint32_t> Device::opened() {
    std::vector<uint32_t> indices;
    for (uint32_t i = 0; i < kMaxDevices; i++)
        if (__atomic_load_n(&slots[i].device, __ATOMIC_ACQUIRE) != nullptr) indices.push_back(i);
    return indices;
}

Device::Device(uint32_t index) : index_(index) {
    const DeviceScope scope(index);
    load_kernels();
    check(api().stream_create(&stream_, kStreamNonBlocking), "creating a stream");
    void *pinned = nullptr;
    check(api().host_allocate(&pinned, kScratchBytes + kPostedWords * sizeof(uint64_t),
                              kHostPortable),
          "allocating pinned host memory");
    scratch_ = static_cast<unsigned char *>(pinned);
    posted_ = reinterpret_cast<uint64_t *>(scratch_ + kScratchBytes);
}

// All kernels now, none at its first launch: loading one can wait for the device, whose kernels may
// be waiting for that very launch. Asking for an attribute is what makes CUDA's lazy loader load
// it.
void Device::load_kernels() {
    void *module = nullptr;
    const int error = api().module_load(&module, kernel_image());
    if (error != kSuccess)
        fail(error == kErrorOutOfMemory ? RDNAAR_E_OUT_OF_MEMORY : RDNAAR_E_UNSUPPORTED,
             "this library has no kernels that %s can run: it was built for %s (%s)",
             describe(index_).c_str(), compiled_targets().c_str(), error_text(error).c_str());
    const auto find = [&](const char *name) {
        void *function = nullptr;
        int registers = 0;
        check(api().module_function(&function, module, name), "finding kernel %s", name);
        check(api().function_attribute(&registers, kFunctionRegisters, function),
              "loading kernel %s", name);
        return function;
    };
    for (const auto &c : kCollectives)
        for (uint32_t d = 0; d < kDtypes; d++)
            for (uint32_t o = 0; o < c.ops; o++)
                for (uint32_t w = 0; w < kWorlds; w++) {
                    char name[64];
                    snprintf(name, sizeof name, "rdnaar_%s_%s_%s_w%u", c.name, kDtypeNames[d],
                             kOpNames[o], kWorldBounds[w]);
                    functions_[c.algo][d][o][w] = find(name);
                }
    probe_ = find("rdnaar_probe");
}

void Device::launch(const Call &call, uint32_t dtype, const GridShape &shape, void *stream) const {
    const uint32_t w = call.world <= kWorldBounds[0] ? 0 : call.world <= kWorldBounds[1] ? 1 : 2;
    launch(functions_[call.algo][dtype][kind_of(call.op)][w], &call, shape, stream);
}

void Device::launch(const ProbeCall &call, const GridShape &shape, void *stream) const {
    launch(probe_, &call, shape, stream);
}

void Device::launch(void *function, const void *call, const GridShape &shape, void *stream) {
    void *parameters[] = {const_cast<void *>(call), const_cast<GridShape *>(&shape)};
    check(api().launch(function, shape.blocks, 1, 1, shape.threads, 1, 1, 0, stream, parameters,
                       nullptr),
          "launching a kernel on %u blocks of %u threads", shape.blocks, shape.threads);
}

void Device::synchronize() {
    check(api().stream_synchronize(stream_), "waiting for a transfer on device %u", index_);
}

void Device::fill(void *device_ptr, uint32_t word, uint64_t nbytes) {
    const DeviceScope scope(index_);
    check(api().fill_words(device_ptr, word, nbytes / sizeof word, stream_),
          "filling %" PRIu64 " bytes of device memory", nbytes);
    synchronize();
}

void Device::read(void *host, const void *device_ptr, uint32_t nbytes) {
    const DeviceScope scope(index_);
    const std::lock_guard<std::mutex> lock(mutex_);
    check(copy_async(scratch_, device_ptr, nbytes, stream_), "reading device memory");
    synchronize();
    memcpy(host, scratch_, nbytes);
}

void Device::write(void *device_ptr, const void *host, uint32_t nbytes) {
    const DeviceScope scope(index_);
    const std::lock_guard<std::mutex> lock(mutex_);
    memcpy(scratch_, host, nbytes);
    check(copy_async(device_ptr, scratch_, nbytes, stream_), "writing device memory");
    synchronize();
}

// A copy from pinned memory: a copy engine does it beside kernels that fill the GPU. A word stays
// in the ring long after it has been copied.
void Device::post_word(void *device_ptr, uint64_t word) {
    const DeviceScope scope(index_);
    const std::lock_guard<std::mutex> lock(mutex_);
    uint64_t *place = &posted_[next_posted_++ % kPostedWords];
    *place = word;
    check(copy_async(device_ptr, place, sizeof word, stream_), "writing a word of device memory");
}

}  // namespace rdnaar::gpu
