# SPDX-License-Identifier: Apache-2.0
"""What the kernel's tables in /sys say about the link of a PCI device, and what may bend it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys/bus/pci/devices")

# Payload rate per lane in GB/s after line coding, by transfer rate in GT/s: 8b/10b up to 5 GT/s,
# 128b/130b after that (PCI Express Base Specification).
LANE_GB_S = {2.5: 0.25, 5.0: 0.5, 8.0: 0.985, 16.0: 1.969, 32.0: 3.938, 64.0: 7.563}


@dataclass(frozen=True)
class Link:
    """A PCIe link as it is trained now, and what the device and slot could do."""

    gt_s: float
    width: int
    max_gt_s: float
    max_width: int

    @property
    def gb_s(self) -> float:
        """Bytes per second of one direction, before packet headers."""
        return LANE_GB_S.get(self.gt_s, self.gt_s / 8) * self.width


def link_of(pci_bus_id: str, sysfs: Path = SYSFS) -> Link | None:
    """The link of a device by its PCI bus id; None where /sys does not tell (virtual machines)."""
    folder = sysfs / pci_bus_id.lower()
    try:
        speed, width, max_speed, max_width = (
            (folder / name).read_text().split()[0]
            for name in (
                "current_link_speed",
                "current_link_width",
                "max_link_speed",
                "max_link_width",
            )
        )
        return Link(float(speed), int(width), float(max_speed), int(max_width))
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True)
class Isolation:
    """What makes stores from one PCI device to another go through the root of the tree, or fail.

    `iommu` is the kind of translation ("DMA", "DMA-FQ", "identity"; "off"), and
    `redirects` are the bridges above the device whose Access Control Services send requests
    between devices upwards. None: /sys does not tell; the bridges' registers are root's to read.
    """

    iommu: str
    redirects: tuple[str, ...] | None

    def __str__(self) -> str:
        if self.redirects is None:
            acs = "ACS unknown (its registers are readable by root)"
        elif self.redirects:
            acs = f"ACS redirects at {', '.join(self.redirects)}"
        else:
            acs = "no ACS redirection"
        return f"IOMMU {self.iommu}, {acs}"


def isolation_of(pci_bus_id: str, sysfs: Path = SYSFS) -> Isolation | None:
    """For a device by its PCI bus id; None where /sys does not know it."""
    device = sysfs / pci_bus_id.lower()
    if not pci_bus_id or not device.exists():
        return None
    bridges = [p for p in device.resolve().parents if (p / "config").exists()]
    acs = {bridge.name: _acs_redirects(bridge / "config") for bridge in bridges}
    redirects = tuple(name for name, redirects in acs.items() if redirects)
    known = all(redirects is not None for redirects in acs.values())
    return Isolation(_iommu(device), redirects if known else None)


def _iommu(device: Path) -> str:
    try:
        return (device / "iommu_group" / "type").read_text().strip()
    except OSError:
        return "on" if (device / "iommu_group").exists() else "off"


# Of the PCI Express Base Specification: extended capabilities begin at 0x100, each with a header of
# id (16 bits), version (4) and next (12); Access Control Services have id 0xD, and a control
# register at 6 whose bits 2 and 3 are P2P Request Redirect and P2P Completion Redirect.
_EXTENDED, _ACS_ID, _ACS_CONTROL, _ACS_REDIRECT = 0x100, 0x000D, 6, 0b1100


def _acs_redirects(config: Path) -> bool | None:
    """None: the extended part of the configuration space cannot be read."""
    try:
        space = config.read_bytes()
    except OSError:
        return None
    if len(space) <= 64:  # what others than root get
        return None
    at, seen = _EXTENDED, set()
    while _EXTENDED <= at <= len(space) - 8 and at not in seen:
        seen.add(at)
        header = int.from_bytes(space[at : at + 4], "little")
        if header & 0xFFFF == _ACS_ID:
            control = int.from_bytes(space[at + _ACS_CONTROL : at + _ACS_CONTROL + 2], "little")
            return control & _ACS_REDIRECT != 0
        at = header >> 20
    return False
