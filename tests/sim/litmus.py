# SPDX-License-Identifier: Apache-2.0
"""Runs pairs of kernels of litmus.cu through the runtime's own interface. A program.

    python -m tests.sim.litmus CODE_BUNDLE LAUNCHES uncached|ordinary WRITER READER ...

The writer runs on device 0, the reader on device 1, whose memory they share. Prints for each pair
of them in how many of the launches the reader saw something wrong.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

HIP = ctypes.CDLL("libamdhip64.so")
AREA_BYTES, UNCACHED = 4096, 3


def check(status: int) -> None:
    assert status == 0, ctypes.c_char_p(HIP.hipGetErrorName(status)).value


def pointer() -> ctypes.c_void_p:
    return ctypes.c_void_p()


class Device:
    def __init__(self, index: int, image: bytes) -> None:
        self._index = index
        self._module, self.stream = pointer(), pointer()
        self.use()
        check(HIP.hipModuleLoadData(ctypes.byref(self._module), image))
        check(HIP.hipStreamCreateWithFlags(ctypes.byref(self.stream), 1))

    def use(self) -> None:
        check(HIP.hipSetDevice(self._index))

    def launch(self, name: str, area: ctypes.c_void_p, result: ctypes.c_void_p, x: int) -> None:
        function = pointer()
        check(HIP.hipModuleGetFunction(ctypes.byref(function), self._module, name.encode()))
        arguments = (ctypes.c_void_p(area.value), ctypes.c_void_p(result.value), ctypes.c_uint32(x))
        places = (ctypes.c_void_p * 3)(*(ctypes.addressof(a) for a in arguments))
        threads = 64 if name.startswith("block_") else 32
        self.use()
        check(
            HIP.hipModuleLaunchKernel(
                function, 1, 1, 1, threads, 1, 1, 0, self.stream, places, None
            )
        )


def main() -> int:
    bundle, launches, memory, *names = sys.argv[1:]
    HIP.hipGetErrorName.restype = ctypes.c_void_p
    image = Path(bundle).read_bytes()
    writer, reader = Device(0, image), Device(1, image)
    writer.use()
    check(HIP.hipDeviceEnablePeerAccess(1, 0))
    reader.use()
    area, result = pointer(), pointer()
    if memory == "uncached":
        check(HIP.hipExtMallocWithFlags(ctypes.byref(area), AREA_BYTES, UNCACHED))
    else:
        check(HIP.hipMalloc(ctypes.byref(area), AREA_BYTES))
    check(HIP.hipMalloc(ctypes.byref(result), 4))
    number = 1
    for write, read in zip(names[::2], names[1::2], strict=True):
        wrong = 0
        for _ in range(int(launches)):
            check(HIP.hipMemset(result, 0, 4))
            reader.launch(read, area, result, number)
            writer.launch(write, area, result, number)
            check(HIP.hipStreamSynchronize(writer.stream))
            check(HIP.hipStreamSynchronize(reader.stream))
            seen = ctypes.c_uint32()
            check(HIP.hipMemcpy(ctypes.byref(seen), result, 4, 0))
            wrong += seen.value != 0
            number += 1
        print(write, read, wrong)
    return 0


if __name__ == "__main__":
    sys.exit(main())
