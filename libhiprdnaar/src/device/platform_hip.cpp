// SPDX-License-Identifier: Apache-2.0
// What is AMD's own: the functions of HIP without a CUDA twin, uncached memory, the architecture.
#include <cinttypes>
#include <cstring>
#include <fstream>

#include "kernel_image.h"
#include "platform.h"
#include "runtime_library.h"
#include "tuning.h"

namespace rdnaar::gpu {

namespace {

// X(member, symbol, parameters), as RDNAAR_GPU_API.
#define RDNAAR_HIP_API(X)                                                                 \
    X(runtime_version, hipRuntimeGetVersion, (int *version))                              \
    X(set_device, hipSetDevice, (int device))                                             \
    X(get_device, hipGetDevice, (int *device))                                            \
    X(last_error, hipGetLastError, ())                                                    \
    X(enable_peer, hipDeviceEnablePeerAccess, (int peer, unsigned flags))                 \
    X(allocate_flags, hipExtMallocWithFlags, (void **ptr, size_t nbytes, unsigned flags)) \
    X(copy, hipMemcpyAsync, (void *dst, const void *src, size_t nbytes, int kind, void *stream))

struct HipApi : Api {
#define RDNAAR_MEMBER_(member, symbol, parameters) int(*member) parameters;
    RDNAAR_HIP_API(RDNAAR_MEMBER_)
#undef RDNAAR_MEMBER_
    const char *(*error_name)(int error);
    const char *(*error_string)(int error);
};

// Numbers of hipDeviceAttribute_t. The enumeration has only been appended to since HIP 5.0, which
// put placeholders where it dropped an attribute.
constexpr int kIntegrated = 16, kComputeUnits = 63, kWallClockKhz = 10017;
constexpr unsigned kUncached = 3;  // hipDeviceMallocUncached
constexpr int kCopyDefault = 4;    // hipMemcpyDefault: the runtime sees what the pointers are
constexpr uint64_t kDefaultClockKhz = 100000;

const RuntimeNames &names() {
    static const RuntimeNames *const n = new RuntimeNames{
        "HIP runtime",
        "libamdhip64.so",
        "RDNAAR_HIP_RUNTIME",
        {"libamdhip64.so", "libamdhip64.so.10", "libamdhip64.so.9", "libamdhip64.so.8",
         "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}};
    return *n;
}

template <class F>
void find(void *runtime, F &function, const char *symbol) {
    function = reinterpret_cast<F>(runtime_symbol(runtime, symbol, names()));
}

void fill(HipApi &h, void *runtime) {
#define RDNAAR_FIND_(member, hip, cuda, parameters) find(runtime, h.member, #hip);
    RDNAAR_GPU_API(RDNAAR_FIND_)
#undef RDNAAR_FIND_
#define RDNAAR_FIND_(member, symbol, parameters) find(runtime, h.member, #symbol);
    RDNAAR_HIP_API(RDNAAR_FIND_)
#undef RDNAAR_FIND_
    find(runtime, h.error_name, "hipGetErrorName");
    find(runtime, h.error_string, "hipGetErrorString");
}

LazyTable<HipApi> &table() {
    static LazyTable<HipApi> *const t = new LazyTable<HipApi>(names(), fill);
    return *t;
}

const HipApi &hip() { return table().get(); }

std::string text_of_version(int version) {
    char text[48];
    snprintf(text, sizeof text, "%d.%d.%d", version / 10000000, version / 100000 % 100,
             version % 100000);
    return text;
}

int attribute(uint32_t device, int number, const char *what) {
    int value = 0;
    check(hip().device_attribute(&value, number, int(device)), "asking for %s", what);
    return value;
}

// "gfx1030" of the kernel driver's number 100300: decimal major, minor and stepping of two digits.
std::string architecture_name(unsigned version) {
    char text[16];
    snprintf(text, sizeof text, "gfx%u%x%x", version / 10000, version / 100 % 100, version % 100);
    return text;
}

// The kernel driver's description of a GPU. hipDeviceProp_t has the name of the architecture too,
// but at another place in each major release.
std::string architecture_in_topology(const std::string &pci_bus_id) {
    unsigned domain, bus, slot, function;
    if (sscanf(pci_bus_id.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return "";
    const uint64_t location = bus << 8 | slot << 3 | function;
    for (int node = 0;; node++) {
        std::ifstream properties("/sys/class/kfd/kfd/topology/nodes/" + std::to_string(node) +
                                 "/properties");
        if (!properties) return "";
        std::string name;
        uint64_t value, seen_domain = 0, seen_location = UINT64_MAX, version = 0;
        while (properties >> name >> value) {
            if (name == "domain") seen_domain = value;
            if (name == "location_id") seen_location = value;
            if (name == "gfx_target_version") version = value;
        }
        if (version != 0 && seen_domain == domain && seen_location == location)
            return architecture_name(unsigned(version));
    }
}

}  // namespace

const Api &api() { return hip(); }

bool runtime_exists() { return table().find() != nullptr; }

bool runtime_is_loaded() { return table().is_loaded(); }

void require_one_runtime() { require_one_runtime(names()); }

std::string runtime_description() {
    int version = 0;
    hip().runtime_version(&version);
    return "HIP " + text_of_version(version) + " (" +
           file_of(reinterpret_cast<const void *>(hip().init)) + ")";
}

std::string error_text(int error) {
    hip().last_error();
    return std::string(hip().error_name(error)) + " (" + hip().error_string(error) + ")";
}

const char *backend_name() { return "hip"; }

const Tuning &tuning() { return kHipTuning; }

std::string architecture(uint32_t device) {
    char pci[32] = {};
    if (hip().device_pci_bus_id(pci, sizeof pci, int(device)) != kSuccess) return "";
    return architecture_in_topology(pci);
}

bool is_integrated(uint32_t device) { return attribute(device, kIntegrated, "its kind") != 0; }

uint32_t compute_units(uint32_t device) {
    return uint32_t(attribute(device, kComputeUnits, "its compute units"));
}

uint64_t ticks_per_ms(uint32_t device) {
    int khz = 0;
    if (hip().device_attribute(&khz, kWallClockKhz, int(device)) != kSuccess || khz <= 0) {
        hip().last_error();
        return kDefaultClockKhz;
    }
    return uint64_t(khz);
}

bool uncached_possible(uint32_t device) {
    const DeviceScope scope(device);
    void *p = nullptr;
    if (hip().allocate_flags(&p, 4096, kUncached) != kSuccess) {
        hip().last_error();
        return false;
    }
    hip().release(p);
    return true;
}

uint32_t current_device() {
    int device = 0;
    check(hip().get_device(&device), "asking for the current device");
    return uint32_t(device);
}

DeviceScope::DeviceScope(uint32_t device) {
    const uint32_t former = current_device();
    if (former == device) return;
    check(hip().set_device(int(device)), "making device %u current", device);
    former_ = reinterpret_cast<void *>(uintptr_t(former));
    changed_ = true;
}

DeviceScope::DeviceScope(OfStream) {}  // a HIP stream knows its device

DeviceScope::~DeviceScope() {
    if (changed_) hip().set_device(int(reinterpret_cast<uintptr_t>(former_)));
}

void *allocate_shared(uint64_t nbytes) {
    void *p = nullptr;
    const int error = hip().allocate_flags(&p, nbytes, kUncached);
    if (error == kSuccess) return p;
    if (error != kErrorOutOfMemory)
        fail(RDNAAR_E_NO_RUNTIME,
             "this HIP runtime cannot allocate uncached device memory (hipDeviceMallocUncached: "
             "%s), "
             "without which a GPU does not see what its peers write: use a newer one than %s",
             error_text(error).c_str(), runtime_description().c_str());
    check(error, "allocating %" PRIu64 " bytes of uncached device memory", nbytes);
    return nullptr;
}

int enable_peer_access(uint32_t peer) { return hip().enable_peer(int(peer), 0); }

int copy_async(void *dst, const void *src, uint64_t nbytes, void *stream) {
    return hip().copy(dst, src, nbytes, kCopyDefault, stream);
}

const unsigned kHostCoherent = 0x40000000;  // hipHostMallocCoherent

std::string compiled_targets() {
    std::string targets;
    for (const std::string &target : bundled_targets(kernel_image()))
        targets += (targets.empty() ? "" : " ") + target;
    return targets;
}

}  // namespace rdnaar::gpu
