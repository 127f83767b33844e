# SPDX-License-Identifier: Apache-2.0
"""Bad arguments of the C functions: an error that names the argument, its value and the limit."""

from __future__ import annotations

from ctypes import byref, sizeof

import pytest

import pyrdnaar
from pyrdnaar import _abi


@pytest.mark.parametrize("index", [1, 2**31 - 1, 2**31, 2**32 - 1])
def test_device_that_does_not_exist(lib: pyrdnaar.Library, index: int) -> None:
    info = _abi.DeviceInfo(struct_size=sizeof(_abi.DeviceInfo))
    assert lib.c.rdnaar_device_info(index, byref(info)) == _abi.Status.E_INVALID_ARGUMENT
    assert f"index is {index}, " in lib.c.rdnaar_last_error(None).decode()
    assert info.name == b""
