"""PCI devices of a node that are given to a guest.

A device reads and writes memory by itself, so a guest gets one only through an IOMMU, which keeps
the device within the guest's memory.  Devices that the IOMMU cannot tell apart are one group: while
a guest has one of them, no driver of the node may use another.

Source: documentation of the kernel, "VFIO - Virtual Function I/O" and "ABI: sysfs-bus-pci".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.hypervisor.params import missing_here
from ganeti.system.files import read_bytes_or_none

PARAMETER: Final = "pci_pass"
DRIVER: Final = "vfio-pci"
ADDRESS: Final = re.compile(r"(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]")
_DEVICES: Final = "/sys/bus/pci/devices"
_HARMLESS: Final = frozenset({"", DRIVER, "pci-stub"})  # nothing of these uses memory of the node
_BRIDGE: Final = b"0x0604"  # of class; part of a group, but the node's for good
_CLASS_BYTES_MAX: Final = 64
_NO_IOMMU: Final = (
    "the kernel has no IOMMU for it; switch on VT-d or AMD-Vi in the firmware, and boot with"
    " intel_iommu=on where the processor is Intel's"
)


def full_address(text: str) -> str:
    """Return an address as the kernel writes it, with its domain."""
    address = text.lower()
    return address if address.count(":") == 2 else f"0000:{address}"


def check_here(addresses: Iterable[str], hostname: str, devices: str = _DEVICES) -> None:
    """Check that this node can give devices to a guest.

    Raises:
        OpPrereqError: names the first that it cannot give, why, and what to do.
    """
    for each in addresses:
        address = full_address(each)
        directory = os.path.join(devices, address)
        if not os.path.isdir(directory):
            raise _refusal(address, hostname, "it does not exist there; 'lspci -D' shows those")
        group = _names(os.path.join(directory, "iommu_group", "devices"))
        if not group:
            raise _refusal(address, hostname, _NO_IOMMU)
        used_by = _driver(directory)
        if used_by != DRIVER:
            how = f"'driverctl set-override {address} {DRIVER}' binds it to {DRIVER}"
            used = f"driver {used_by} has it" if used_by else "no driver has it"
            raise _refusal(address, hostname, f"{used}; {how}")
        for other in group:
            path = os.path.join(devices, other)
            if not _is_bridge(path) and (driver := _driver(path)) not in _HARMLESS:
                text = f"driver {driver} has {other}, which is in the same group of the IOMMU"
                raise _refusal(address, hostname, text)


def _refusal(address: str, hostname: str, text: str) -> OpPrereqError:
    what = f"node {hostname} cannot give PCI device {address} to a guest"
    return missing_here(PARAMETER, f"{what}: {text}")


def _names(directory: str) -> Sequence[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return ()


def _driver(directory: str) -> str:
    """Return the name of the driver that has a device; "" for none."""
    try:
        return os.path.basename(os.readlink(os.path.join(directory, "driver")))
    except OSError:
        return ""


def _is_bridge(directory: str) -> bool:
    found = read_bytes_or_none(os.path.join(directory, "class"), _CLASS_BYTES_MAX)
    return found is not None and found.startswith(_BRIDGE)
