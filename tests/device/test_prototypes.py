# SPDX-License-Identifier: Apache-2.0
"""The library declares the runtimes' functions itself: here against the runtimes' own headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import DEVICE

# Same number of parameters, and each is passed in the same way: an integer, enumeration or pointer
# of the same size, or a struct of the same size.
CHECK = r"""
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include "gpu_api.h"
template <class A, class B>
constexpr bool alike = sizeof(A) == sizeof(B) &&
                       std::is_class<A>::value == std::is_class<B>::value &&
                       !std::is_floating_point<A>::value && !std::is_floating_point<B>::value;
template <class Ours, class Theirs>
struct Check;
template <class R, class S, class... A, class... B>
struct Check<R (*)(A...), S (*)(B...)> {
    static_assert(sizeof...(A) == sizeof...(B), "number of parameters");
    static_assert(sizeof(R) == sizeof(S), "result");
    static_assert((alike<A, B> && ...), "parameters");
    static constexpr bool ok = true;
};
#ifdef AS_C
#include <limits.h>
#include <stdlib.h>
#define _Bool bool
#undef __cplusplus
extern "C" {
#endif
#include HEADER
#ifdef AS_C
}
#define __cplusplus 201703L
#endif
using namespace rdnaar::gpu;
#define CHECK(member, hip, cuda, parameters) \
    static_assert(Check<decltype(Api::member), decltype(&::NAME(hip, cuda))>::ok, #hip);
RDNAAR_GPU_API(CHECK)
static_assert(kErrorOutOfMemory == int(ERROR(OutOfMemory, OUT_OF_MEMORY)), "");
static_assert(kErrorNoDevice == int(ERROR(NoDevice, NO_DEVICE)), "");
static_assert(kErrorInvalidDevice == int(ERROR(InvalidDevice, INVALID_DEVICE)), "");
static_assert(kErrorInvalidHandle == int(ERROR(InvalidHandle, INVALID_HANDLE)), "");
static_assert(kErrorNotReady == int(ERROR(NotReady, NOT_READY)), "");
static_assert(kErrorPeerAccessAlreadyEnabled ==
              int(ERROR(PeerAccessAlreadyEnabled, PEER_ACCESS_ALREADY_ENABLED)), "");
"""
# Read as C: which of the overloads that HIP adds for C++ is meant could not be told.
HIP = (
    r"""
#define AS_C
#define NAME(hip, cuda) hip
#define ERROR(hip, cuda) hipError##hip
#define HEADER <hip/hip_runtime_api.h>
"""
    + CHECK
    + r"""
static_assert(hipDeviceAttributeIntegrated == 16, "");
static_assert(hipDeviceAttributeMultiprocessorCount == 63, "");
static_assert(hipMemcpyDefault == 4 && hipHostMallocCoherent == 0x40000000, "");
static_assert(hipHostMallocPortable == kHostPortable && hipHostMallocMapped == kHostMapped, "");
static_assert(hipHostRegisterPortable == kHostPortable && hipHostRegisterMapped == kHostMapped, "");
static_assert(hipStreamNonBlocking == kStreamNonBlocking, "");
static_assert(hipEventDisableTiming == kEventDisableTiming, "");
static_assert(hipIpcMemLazyEnablePeerAccess <= kIpcLazyPeerAccess, "0 in HIP 5.2");
static_assert(hipStreamCaptureModeThreadLocal == kCaptureThreadLocal, "");
static_assert(HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL == kPointerDevice, "");
static_assert(HIP_FUNC_ATTRIBUTE_NUM_REGS == kFunctionRegisters, "");
"""
)
CUDA = (
    r"""
#define NAME(hip, cuda) cuda
#define ERROR(hip, cuda) CUDA_ERROR_##cuda
#define HEADER <cuda.h>
"""
    + CHECK
    + r"""
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == 16, "");
static_assert(CU_DEVICE_ATTRIBUTE_INTEGRATED == 18, "");
static_assert(CU_MEMHOSTALLOC_PORTABLE == kHostPortable, "");
static_assert(CU_MEMHOSTALLOC_DEVICEMAP == kHostMapped, "");
static_assert(CU_MEMHOSTREGISTER_PORTABLE == kHostPortable, "");
static_assert(CU_MEMHOSTREGISTER_DEVICEMAP == kHostMapped, "");
static_assert(CU_STREAM_NON_BLOCKING == kStreamNonBlocking, "");
static_assert(CU_EVENT_DISABLE_TIMING == kEventDisableTiming, "");
static_assert(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS == kIpcLazyPeerAccess, "");
static_assert(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL == kCaptureThreadLocal, "");
static_assert(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == kPointerDevice, "");
static_assert(CU_FUNC_ATTRIBUTE_NUM_REGS == kFunctionRegisters, "");
"""
)


def compile_check(source: str, *flags: str) -> str:
    command = ["g++", "-std=c++17", "-fsyntax-only", "-w", f"-I{DEVICE}", *flags, "-x", "c++", "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True, timeout=120)
    return result.stderr


def test_hip() -> None:
    if not Path("/usr/include/hip/hip_runtime_api.h").exists():
        pytest.skip("no HIP headers on this machine: on Debian, apt install libamdhip64-dev")
    assert compile_check(HIP, "-D__HIP_PLATFORM_AMD__") == ""


def test_cuda() -> None:
    found = sorted(Path("/usr/local").glob("cuda*/include/cuda.h"))
    if not found:
        pytest.skip("no CUDA headers on this machine")
    assert compile_check(CUDA, f"-I{found[-1].parent}") == ""


def test_a_wrong_prototype_is_found() -> None:
    found = sorted(Path("/usr/local").glob("cuda*/include/cuda.h"))
    if not found:
        pytest.skip("no CUDA headers on this machine")
    wrong = CUDA + 'static_assert(Check<int (*)(void *), decltype(&::cuInit)>::ok, "");'
    assert "parameters" in compile_check(wrong, f"-I{found[-1].parent}")
