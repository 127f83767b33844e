// SPDX-License-Identifier: Apache-2.0
// The exported functions of HIP: error codes, and what each function does first and last.
#pragma once

#include "streams.h"

#define HIP_EXPORT extern "C" __attribute__((visibility("default")))

namespace rdnasim {

// X(name, number, text)
#define RDNASIM_HIP_ERRORS(X)                                                                    \
    X(hipSuccess, 0, "no error")                                                                 \
    X(hipErrorInvalidValue, 1, "invalid argument")                                               \
    X(hipErrorOutOfMemory, 2, "out of memory")                                                   \
    X(hipErrorNoDevice, 100, "no ROCm-capable device is detected")                               \
    X(hipErrorInvalidDevice, 101, "invalid device ordinal")                                      \
    X(hipErrorInvalidContext, 201, "invalid device context")                                     \
    X(hipErrorNoBinaryForGpu, 209, "no kernel image is available for execution on the device")   \
    X(hipErrorPeerAccessUnsupported, 217,                                                        \
      "peer access is not supported between these two devices")                                  \
    X(hipErrorSharedObjectInitFailed, 303, "shared object initialization failed")                \
    X(hipErrorInvalidHandle, 400, "invalid resource handle")                                     \
    X(hipErrorNotFound, 500, "named symbol not found")                                           \
    X(hipErrorNotReady, 600, "device not ready")                                                 \
    X(hipErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                   \
    X(hipErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")                     \
    X(hipErrorHostMemoryAlreadyRegistered, 712,                                                  \
      "part or all of the requested memory range is already mapped")                             \
    X(hipErrorHostMemoryNotRegistered, 713,                                                      \
      "pointer does not correspond to a registered memory region")                               \
    X(hipErrorNotSupported, 801, "operation not supported")                                      \
    X(hipErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing") \
    X(hipErrorStreamCaptureInvalidated, 901,                                                     \
      "operation failed due to a previous error during capture")                                 \
    X(hipErrorIllegalState, 401, "the operation cannot be performed in the present state")       \
    X(hipErrorUnknown, 999, "unknown error")

enum HipError : int {
#define RDNASIM_VALUE_(name, number, text) name = number,
    RDNASIM_HIP_ERRORS(RDNASIM_VALUE_)
#undef RDNASIM_VALUE_
};

// Remembers a failure for hipGetLastError(), and gives it back.
HipError noted(HipError error);

int &current_device();
Device *device_at(int index);     // NULL: there is none
Stream *stream_of(void *handle);  // NULL: no such stream; the handle NULL is the null stream

}  // namespace rdnasim
