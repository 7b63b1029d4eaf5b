"""UEFI: its code, which is a file of the node, and its variables, which the instance keeps.

The variables are on a disk of the instance that is called `UEFI_VARS`, so all that is done with
disks is done with them.  A disk that has none yet gets those of the firmware's package; with secure
boot these have Microsoft's keys.  QEMU writes to the disk whatever the guest changes.

Source: UEFI Platform Initialization, volume 3, firmware volume header; documentation of OVMF.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import ErrorCode, HypervisorError, OpPrereqError, failing_as
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm.hardware.disks import kept_disk
from ganeti.hypervisor.params import missing_here
from ganeti.objects.disk_templates import UEFI_VARS
from ganeti.system.files import read_bytes

SECURE: Final = "uefi-secure"
_MIB: Final = 1 << 20
_VARS_BYTES_MAX: Final = 16 * _MIB
_HEADER_BYTES: Final = 56
_LENGTH: Final = slice(32, 40)
_SIGNATURE: Final = slice(40, 44)
_IS_VOLUME: Final = b"_FVH"

# Code and initial variables, as Debian, Fedora and Arch install them
_PLACES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "uefi": (
        ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
        ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
        ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
        ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ),
    SECURE: (
        ("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"),
        ("/usr/share/OVMF/OVMF_CODE.secboot.fd", "/usr/share/OVMF/OVMF_VARS.ms.fd"),
        ("/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd"),
    ),
}


class Firmware(msgspec.Struct, frozen=True, kw_only=True):
    """The firmware of a machine: the node's file with its code, and the size of its variables."""

    code: str
    vars_bytes: int
    secure: bool = False


def find(kind: str, hostname: str) -> tuple[str, str]:
    """Return the node's files with the code and the initial variables of a firmware.

    Raises:
        OpPrereqError: it has none.
    """
    places = _PLACES[kind]
    for code, initial in places:
        if os.path.isfile(code) and os.path.isfile(initial):
            return code, initial
    looked = ", ".join(code for code, _initial in places)
    text = f"{kind}: node {hostname} has no such firmware (package ovmf); looked for {looked}"
    raise missing_here("firmware", text)


def check_here(firmware: Firmware, name: str, hostname: str) -> None:
    """Check that a machine which comes from another node finds its firmware on this one.

    Raises:
        OpPrereqError: it does not.
    """
    if not os.path.isfile(firmware.code):
        raise OpPrereqError(
            f"instance {name}: its firmware {firmware.code} is not on node {hostname}; install the"
            " same package there (ovmf), or move the instance by 'gnt-instance failover'",
            ErrorCode.ENVIRON,
        )


def prepare(kind: str, name: str, hostname: str, disks: Sequence[AssembledDisk]) -> Firmware | None:
    """Return the firmware of an instance that is to start, its variables being ready on their disk.

    Raises:
        OpPrereqError: the node has no such firmware, or the instance no fitting disk for variables.
    """
    if not kind:
        return None
    code, initial = find(kind, hostname)
    content = read_bytes(initial, _VARS_BYTES_MAX)
    wish = f"firmware={kind} needs a disk for UEFI's variables"
    disk = kept_disk(name, UEFI_VARS, wish, disks, len(content))
    with failing_as(HypervisorError, f"instance {name}: UEFI's variables in {disk.dev_path}"):
        known = _fill(disk.dev_path, content)
    if known != len(content):
        raise OpPrereqError(
            f"instance {name}: disk {UEFI_VARS} has {known} bytes of variables, the firmware {code}"
            f" of node {hostname} has {len(content)}; install the same package (ovmf) on all nodes",
            ErrorCode.ENVIRON,
        )
    return Firmware(code=code, vars_bytes=len(content), secure=kind == SECURE)


def _fill(path: str, content: bytes) -> int:
    """Write the first variables to a place that has none; returns the size of those there."""
    with open(path, "r+b", buffering=0) as file:
        header = file.read(_HEADER_BYTES)
        if header[_SIGNATURE] == _IS_VOLUME:
            return int.from_bytes(header[_LENGTH], "little")
        # The header comes last: a write that is cut off leaves a place without variables.
        file.seek(_HEADER_BYTES)
        file.write(content[_HEADER_BYTES:])
        os.fsync(file.fileno())
        file.seek(0)
        file.write(content[:_HEADER_BYTES])
        os.fsync(file.fileno())
    return len(content)
