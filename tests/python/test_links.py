# SPDX-License-Identifier: Apache-2.0
"""What /sys says about IOMMU and ACS, on made-up trees of devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrdnaar.links import Isolation, isolation_of


def _space(*capabilities: tuple[int, int]) -> bytes:
    """Configuration space with extended capabilities (id, the two bytes at 6 of it)."""
    space = bytearray(4096)
    for index, (id_, control) in enumerate(capabilities):
        at = 0x100 + 0x20 * index
        following = at + 0x20 if index + 1 < len(capabilities) else 0
        space[at : at + 4] = (id_ | 1 << 16 | following << 20).to_bytes(4, "little")
        space[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(space)


def _tree(root: Path, bridge: bytes, group_type: str | None) -> Path:
    """A device behind one bridge; the folder that plays /sys/bus/pci/devices."""
    device = root / "pci0000:00" / "0000:00:01.0" / "0000:03:00.0"
    device.mkdir(parents=True)
    (device.parent / "config").write_bytes(bridge)
    (device / "config").write_bytes(_space())
    if group_type is not None:
        (device / "iommu_group").mkdir()
        (device / "iommu_group" / "type").write_text(group_type + "\n")
    devices = root / "devices"
    devices.mkdir()
    (devices / "0000:03:00.0").symlink_to(device)
    return devices


@pytest.mark.parametrize(
    ("bridge", "redirects", "said"),
    [
        (_space((1, 0), (0xD, 0b1100)), ("0000:00:01.0",), "ACS redirects at 0000:00:01.0"),
        (_space((0xD, 0b0100)), ("0000:00:01.0",), "ACS redirects at 0000:00:01.0"),
        (_space((0xD, 0b0011), (0xB, 0xFFFF)), (), "no ACS redirection"),
        (_space((0xB, 0xFFFF)), (), "no ACS redirection"),
        (_space()[:64], None, "ACS unknown"),
        # A list that goes in a circle.
        (
            (0x100).to_bytes(0x100, "little") + (1 | 0x100 << 20).to_bytes(4, "little") * 99,
            (),
            "no",
        ),
    ],
)
def test_acs(tmp_path: Path, bridge: bytes, redirects: tuple[str, ...] | None, said: str) -> None:
    devices = _tree(tmp_path, bridge, "DMA-FQ")
    isolation = isolation_of("0000:03:00.0", devices)
    assert isolation == Isolation("DMA-FQ", redirects)
    assert said in str(isolation)
    assert str(isolation).startswith("IOMMU DMA-FQ, ")


def test_no_iommu_and_no_such_device(tmp_path: Path) -> None:
    devices = _tree(tmp_path, _space(), None)
    assert isolation_of("0000:03:00.0", devices) == Isolation("off", ())
    assert isolation_of("0000:04:00.0", devices) is None
    assert isolation_of("", devices) is None
