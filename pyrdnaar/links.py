# SPDX-License-Identifier: Apache-2.0
"""What the kernel's tables in /sys say about the link of a PCI device."""

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
