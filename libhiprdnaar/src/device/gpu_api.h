// SPDX-License-Identifier: Apache-2.0
// The functions of a GPU runtime that the library uses, as a table of pointers. The library has no
// dependency on a runtime at load time and includes none of its headers: the table is filled from
// whichever runtime the process has (runtime_library.h).
//
// HIP's runtime API and CUDA's driver API are nearly the same functions under two names. Those
// whose parameters are the same to the machine are listed here; what differs is in platform_hip.cpp
// and platform_cuda.cpp. Handles are pointers, a device and a device pointer have the size of int
// and void * in both. No struct crosses but the IPC handle, since hipDeviceProp_t and others
// changed their layout between major releases.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdnaar::gpu {

struct IpcHandle {  // hipIpcMemHandle_t, CUipcMemHandle
    char bytes[64];
};

// X(member, HIP name, CUDA name, parameters). All return an error code, 0 for success.
// clang-format off
#define RDNAAR_GPU_API(X)                                                                          \
    X(init, hipInit, cuInit, (unsigned flags))                                                     \
    X(device_count, hipGetDeviceCount, cuDeviceGetCount, (int *count))                             \
    X(device_name, hipDeviceGetName, cuDeviceGetName, (char *name, int size, int device))          \
    X(device_memory, hipDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *nbytes, int device))         \
    X(device_pci_bus_id, hipDeviceGetPCIBusId, cuDeviceGetPCIBusId,                                \
      (char *text, int size, int device))                                                          \
    X(device_attribute, hipDeviceGetAttribute, cuDeviceGetAttribute,                               \
      (int *value, int attribute, int device))                                                     \
    X(can_access_peer, hipDeviceCanAccessPeer, cuDeviceCanAccessPeer,                              \
      (int *can, int device, int peer))                                                            \
    X(module_load, hipModuleLoadData, cuModuleLoadData, (void **module, const void *image))        \
    X(module_function, hipModuleGetFunction, cuModuleGetFunction,                                  \
      (void **function, void *module, const char *name))                                           \
    X(function_attribute, hipFuncGetAttribute, cuFuncGetAttribute,                                 \
      (int *value, int attribute, void *function))                                                 \
    X(launch, hipModuleLaunchKernel, cuLaunchKernel,                                               \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, \
       void **extra))                                                                              \
    X(allocate, hipMalloc, cuMemAlloc_v2, (void **ptr, size_t nbytes))                             \
    X(release, hipFree, cuMemFree_v2, (void *ptr))                                                 \
    X(host_allocate, hipHostMalloc, cuMemHostAlloc, (void **ptr, size_t nbytes, unsigned flags))   \
    X(host_release, hipHostFree, cuMemFreeHost, (void *ptr))                                       \
    X(host_register, hipHostRegister, cuMemHostRegister_v2,                                        \
      (void *ptr, size_t nbytes, unsigned flags))                                                  \
    X(host_unregister, hipHostUnregister, cuMemHostUnregister, (void *ptr))                        \
    X(host_device_pointer, hipHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                  \
      (void **device_ptr, void *host_ptr, unsigned flags))                                         \
    X(pointer_attribute, hipPointerGetAttribute, cuPointerGetAttribute,                            \
      (void *value, int attribute, const void *ptr))                                               \
    X(ipc_export, hipIpcGetMemHandle, cuIpcGetMemHandle, (IpcHandle *handle, void *ptr))           \
    X(ipc_open, hipIpcOpenMemHandle, cuIpcOpenMemHandle_v2,                                        \
      (void **ptr, IpcHandle handle, unsigned flags))                                              \
    X(ipc_close, hipIpcCloseMemHandle, cuIpcCloseMemHandle, (void *ptr))                           \
    X(fill_words, hipMemsetD32Async, cuMemsetD32Async,                                             \
      (void *ptr, unsigned word, size_t count, void *stream))                                      \
    X(stream_create, hipStreamCreateWithFlags, cuStreamCreate, (void **stream, unsigned flags))    \
    X(stream_synchronize, hipStreamSynchronize, cuStreamSynchronize, (void *stream))               \
    X(stream_destroy, hipStreamDestroy, cuStreamDestroy_v2, (void *stream))                        \
    X(stream_wait_event, hipStreamWaitEvent, cuStreamWaitEvent,                                    \
      (void *stream, void *event, unsigned flags))                                                 \
    X(stream_is_capturing, hipStreamIsCapturing, cuStreamIsCapturing, (void *stream, int *status)) \
    X(capture_begin, hipStreamBeginCapture, cuStreamBeginCapture_v2, (void *stream, int mode))     \
    X(capture_end, hipStreamEndCapture, cuStreamEndCapture, (void *stream, void **graph))          \
    X(graph_instantiate, hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,                \
      (void **executable, void *graph, unsigned long long flags))                                  \
    X(graph_destroy, hipGraphDestroy, cuGraphDestroy, (void *graph))                               \
    X(graph_launch, hipGraphLaunch, cuGraphLaunch, (void *executable, void *stream))               \
    X(graph_executable_destroy, hipGraphExecDestroy, cuGraphExecDestroy, (void *executable))       \
    X(event_create, hipEventCreateWithFlags, cuEventCreate, (void **event, unsigned flags))        \
    X(event_record, hipEventRecord, cuEventRecord, (void *event, void *stream))                    \
    X(event_query, hipEventQuery, cuEventQuery, (void *event))                                     \
    X(event_synchronize, hipEventSynchronize, cuEventSynchronize, (void *event))                   \
    X(event_elapsed_ms, hipEventElapsedTime, cuEventElapsedTime,                                   \
      (float *milliseconds, void *start, void *stop))                                              \
    X(event_destroy, hipEventDestroy, cuEventDestroy_v2, (void *event))
// clang-format on

struct Api {
#define RDNAAR_GPU_MEMBER_(member, hip, cuda, parameters) int(*member) parameters;
    RDNAAR_GPU_API(RDNAAR_GPU_MEMBER_)
#undef RDNAAR_GPU_MEMBER_
};

// Values that are the same in both.
enum : int {
    kSuccess = 0,
    kErrorOutOfMemory = 2,
    kErrorNoDevice = 100,
    kErrorInvalidDevice = 101,
    kErrorInvalidHandle = 400,
    kErrorNotReady = 600,
    kErrorPeerAccessAlreadyEnabled = 704,
};
constexpr unsigned kHostPortable = 1, kHostMapped = 2;  // flags of host_allocate and host_register
constexpr unsigned kIpcLazyPeerAccess = 1;              // HIP 5.2, too old for slabs, has 0
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kCaptureThreadLocal = 1;  // other threads may go on with their own work
constexpr int kFunctionRegisters = 4;
constexpr int kPointerDevice = 9;

}  // namespace rdnaar::gpu
