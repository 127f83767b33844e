// SPDX-License-Identifier: Apache-2.0
// What is NVIDIA's own: contexts. The library works in the primary context of a device, as PyTorch
// and all other users of the CUDA runtime do, and makes it current for the time of a call.
#include <cinttypes>
#include <cstring>
#include <mutex>

#include "platform.h"
#include "runtime_library.h"
#include "tuning.h"

namespace rdnaar::gpu {

namespace {

// X(member, symbol, parameters), as RDNAAR_GPU_API.
#define RDNAAR_CUDA_API(X)                                                     \
    X(driver_version, cuDriverGetVersion, (int *version))                      \
    X(error_name, cuGetErrorName, (int error, const char **text))              \
    X(error_string, cuGetErrorString, (int error, const char **text))          \
    X(primary_context, cuDevicePrimaryCtxRetain, (void **context, int device)) \
    X(set_context, cuCtxSetCurrent, (void *context))                           \
    X(get_context, cuCtxGetCurrent, (void **context))                          \
    X(context_device, cuCtxGetDevice, (int *device))                           \
    X(stream_context, cuStreamGetCtx, (void *stream, void **context))          \
    X(enable_peer, cuCtxEnablePeerAccess, (void *context, unsigned flags))     \
    X(copy, cuMemcpyAsync, (void *dst, const void *src, size_t nbytes, void *stream))

struct CudaApi : Api {
#define RDNAAR_MEMBER_(member, symbol, parameters) int(*member) parameters;
    RDNAAR_CUDA_API(RDNAAR_MEMBER_)
#undef RDNAAR_MEMBER_
};

constexpr int kComputeUnits = 16, kIntegrated = 18, kMajor = 75, kMinor = 76;  // CUdevice_attribute

const RuntimeNames &names() {
    static const RuntimeNames *const n =
        new RuntimeNames{"CUDA driver", "libcuda.so", nullptr, {"libcuda.so.1"}};
    return *n;
}

std::mutex context_mutex;
void *primary_contexts[kMaxDevices];  // retained for good; atomic, written under the mutex

template <class F>
void find(void *driver, F &function, const char *symbol) {
    function = reinterpret_cast<F>(runtime_symbol(driver, symbol, names()));
}

void fill(CudaApi &c, void *driver){
#define RDNAAR_FIND_(member, hip, cuda, parameters) find(driver, c.member, #cuda);
    RDNAAR_GPU_API(RDNAAR_FIND_)
#undef RDNAAR_FIND_
#define RDNAAR_FIND_(member, symbol, parameters) find(driver, c.member, #symbol);
        RDNAAR_CUDA_API(RDNAAR_FIND_)
#undef RDNAAR_FIND_
}

LazyTable<CudaApi> &table() {
    static LazyTable<CudaApi> *const t = new LazyTable<CudaApi>(names(), fill);
    return *t;
}

const CudaApi &cuda() { return table().get(); }

void *primary_context(uint32_t device) {
    void *context = __atomic_load_n(&primary_contexts[device], __ATOMIC_ACQUIRE);
    if (context != nullptr) return context;
    const std::lock_guard<std::mutex> lock(context_mutex);
    if (primary_contexts[device] == nullptr) {
        check(cuda().primary_context(&context, int(device)), "opening device %u", device);
        __atomic_store_n(&primary_contexts[device], context, __ATOMIC_RELEASE);
    }
    return primary_contexts[device];
}

void *current_context() {
    void *context = nullptr;
    check(cuda().get_context(&context), "asking for the current context");
    return context;
}

// True if another one was current; it is put into `former`.
bool make_current(void *context, void *&former) {
    former = current_context();
    if (former == context) return false;
    check(cuda().set_context(context), "making a context current");
    return true;
}

int attribute(uint32_t device, int number, const char *what) {
    int value = 0;
    check(cuda().device_attribute(&value, number, int(device)), "asking for %s", what);
    return value;
}

}  // namespace

const Api &api() { return cuda(); }

bool runtime_exists() { return table().find() != nullptr; }

bool runtime_is_loaded() { return table().is_loaded(); }

void require_one_runtime() { require_one_runtime(names()); }

std::string runtime_description() {
    int version = 0;
    cuda().driver_version(&version);
    char text[48];
    snprintf(text, sizeof text, "CUDA driver %d.%d (", version / 1000, version / 10 % 100);
    return text + file_of(reinterpret_cast<const void *>(cuda().init)) + ")";
}

std::string error_text(int error) {
    const char *name = nullptr, *text = nullptr;
    if (cuda().error_name(error, &name) != kSuccess || name == nullptr)
        return "unknown error " + std::to_string(error);
    cuda().error_string(error, &text);
    return std::string(name) + " (" + (text != nullptr ? text : "") + ")";
}

const char *backend_name() { return "cuda"; }

const Tuning &tuning() { return kCudaTuning; }

std::string architecture(uint32_t device) {
    return "sm_" + std::to_string(attribute(device, kMajor, "its compute capability")) +
           std::to_string(attribute(device, kMinor, "its compute capability"));
}

bool is_integrated(uint32_t device) { return attribute(device, kIntegrated, "its kind") != 0; }

uint32_t compute_units(uint32_t device) {
    return uint32_t(attribute(device, kComputeUnits, "its multiprocessors"));
}

uint64_t ticks_per_ms(uint32_t) { return 1000000; }  // %globaltimer counts nanoseconds

bool uncached_possible(uint32_t) {
    return false;
}  // and not needed: peers write through the owner's L2

uint32_t current_device() {
    if (current_context() == nullptr) return 0;  // as the CUDA runtime has it
    int device = 0;
    check(cuda().context_device(&device), "asking for the current device");
    return uint32_t(device);
}

DeviceScope::DeviceScope(uint32_t device)
    : changed_(make_current(primary_context(device), former_)) {}

DeviceScope::DeviceScope(OfStream s) {
    void *context = nullptr;
    if (s.stream != nullptr) {
        check(cuda().stream_context(s.stream, &context), "asking for the device of stream %p",
              s.stream);
    } else {
        context = current_context();
        if (context == nullptr) context = primary_context(0);
    }
    changed_ = make_current(context, former_);
}

DeviceScope::~DeviceScope() {
    if (changed_) cuda().set_context(former_);
}

void *allocate_shared(uint64_t nbytes) {
    void *p = nullptr;
    check(cuda().allocate(&p, nbytes), "allocating %" PRIu64 " bytes of device memory", nbytes);
    return p;
}

int enable_peer_access(uint32_t peer) { return cuda().enable_peer(primary_context(peer), 0); }

int copy_async(void *dst, const void *src, uint64_t nbytes, void *stream) {
    return cuda().copy(dst, src, nbytes, stream);
}

const unsigned kHostCoherent = 0;  // all mapped host memory is

std::string compiled_targets() { return RDNAAR_CUDA_TARGETS; }

}  // namespace rdnaar::gpu
