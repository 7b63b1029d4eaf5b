"""Disks that come and go while a machine runs, and that grow under it.

The runtime file is written after QEMU has obeyed, so it describes what runs.

Source: QEMU's QMP reference, blockdev-add, device_add, device_del, block_resize; events
DEVICE_DELETED and DEVICE_UNPLUG_GUEST_ERROR.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, HotplugError, HypervisorError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm.devices import disk_options, image_options
from ganeti.hypervisor.kvm.machine import DiskDevice, Machine, new_disk_device
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.system import clock

UNPLUG_TIMEOUT_S: Final = 60.0  # a guest that is up lets go within a second
_IMAGE_TIMEOUT_S: Final = 10.0  # QEMU frees the image a moment after the device
_DELETED: Final = "DEVICE_DELETED"
_REFUSED: Final = "DEVICE_UNPLUG_GUEST_ERROR"
_MIB: Final = 1 << 20


def devices_there(monitor: Monitor) -> set[str]:
    """Return the ids of all devices of a machine that have one."""
    answer = monitor.execute("qom-list", {"path": "/machine/peripheral"})
    rows = answer if isinstance(answer, list) else []
    return {str(row["name"]) for row in rows if isinstance(row, Mapping) and "name" in row}


def pci_slots_taken(monitor: Monitor) -> set[int]:
    """Return the places on the first PCI bus that have a device."""
    buses = monitor.query_list("query-pci")
    devices = buses[0].get("devices") if buses else []
    rows = devices if isinstance(devices, list) else []
    return {int(row["slot"]) for row in rows if isinstance(row, Mapping) and "slot" in row}


def plug(monitor: Monitor, machine: Machine, place: AssembledDisk) -> tuple[Machine, DiskDevice]:
    """Add a disk; returns the machine as it is now, and the disk in it.

    A disk that the machine has already is left as it is.

    Raises:
        HotplugError: it was not added.
    """
    present = devices_there(monitor)
    for known in machine.disks:
        if known.uuid == place.uuid and known.device_id in present:
            return machine, known
    others = tuple(other for other in machine.disks if other.uuid != place.uuid)
    machine = replace(machine, disks=others)
    try:
        disk = new_disk_device(machine, place, pci_slots_taken(monitor))
    except GenericError as err:
        raise HotplugError(err.message) from err
    try:
        _add_image(monitor, machine, disk, place)
        try:
            monitor.execute("device_add", disk_options(disk, machine))
        except HypervisorError:
            monitor.execute("blockdev-del", {"node-name": disk.node_name})
            raise
    except MonitorError as err:
        raise HotplugError(err.message) from err
    return replace(machine, disks=(*machine.disks, disk)), disk


def _add_image(monitor: Monitor, machine: Machine, disk: DiskDevice, place: AssembledDisk) -> None:
    """Let QEMU open a disk; one that has become another user gets it open, as it may not itself."""
    options = image_options(disk, place, machine.params)
    if machine.params.text("security_model") == "none" or place.uri is not None:
        monitor.execute("blockdev-add", options)
        return
    file = options["file"]
    assert isinstance(file, dict)
    try:
        mode = os.O_RDONLY if disk.read_only else os.O_RDWR
        descriptor = os.open(place.dev_path, mode | os.O_CLOEXEC)
    except OSError as err:
        raise HotplugError(f"cannot open {place.dev_path}: {err.strerror}") from err
    try:
        number = monitor.lend_file(descriptor)
    finally:
        os.close(descriptor)
    try:
        there = {**file, "filename": f"/dev/fdset/{number}"}
        monitor.execute("blockdev-add", {**options, "file": there})
    finally:
        monitor.execute("remove-fd", {"fdset-id": number})


def unplug(monitor: Monitor, machine: Machine, uuid: str) -> Machine:
    """Take a disk away; returns the machine as it is now, the same when it has no such disk.

    Raises:
        HotplugError: the guest keeps it.
    """
    disk = next((disk for disk in machine.disks if disk.uuid == uuid), None)
    if disk is None:
        return machine
    remove_device(monitor, machine.name, disk.device_id)
    _remove_image(monitor, disk.node_name)
    rest = tuple(other for other in machine.disks if other.uuid != uuid)
    return replace(machine, disks=rest)


def remove_device(monitor: Monitor, name: str, device_id: str) -> None:
    """Ask the guest to let a device go and wait until it has; one that is gone is no error.

    Raises:
        HotplugError: the guest refuses, or does nothing within `UNPLUG_TIMEOUT_S`.
    """
    if device_id not in devices_there(monitor):
        return
    try:
        monitor.execute("device_del", {"id": device_id})
    except MonitorError as err:
        # An earlier request that the guest has not answered yet is as good as this one.
        if "in the process of unplug" not in err.message:
            raise HotplugError(err.message) from err
    deadline = clock.monotonic() + UNPLUG_TIMEOUT_S
    while (left_s := deadline - clock.monotonic()) > 0:
        event = monitor.wait_event(frozenset({_DELETED, _REFUSED}), left_s)
        if event is None or event.data.get("device") != device_id:
            continue
        if event.name == _DELETED:
            return
        raise HotplugError(f"instance {name}: the guest refuses to let device {device_id} go")
    if device_id in devices_there(monitor):
        raise HotplugError(
            f"instance {name}: the guest did not let device {device_id} go within"
            f" {UNPLUG_TIMEOUT_S:.0f} s; is its operating system up?  Try again, or shut the"
            " instance down first"
        )


def _remove_image(monitor: Monitor, node_name: str) -> None:
    """Close the image of a disk whose device is gone."""
    deadline = clock.monotonic() + _IMAGE_TIMEOUT_S
    while True:
        nodes = {str(row.get("node-name")) for row in monitor.query_list("query-named-block-nodes")}
        if node_name not in nodes:
            return
        try:
            monitor.execute("blockdev-del", {"node-name": node_name})
        except MonitorError as err:
            if clock.monotonic() > deadline:
                raise HotplugError(err.message) from err
            monitor.wait_event(frozenset({_DELETED}), 0.05)


def resize(monitor: Monitor, machine: Machine, place: AssembledDisk) -> None:
    """Let the guest see that a disk has grown.

    Raises:
        HotplugError: QEMU refuses.
    """
    disk = next((disk for disk in machine.disks if disk.uuid == place.uuid), None)
    if disk is None:
        raise HotplugError(f"the running instance {machine.name} does not have disk {place.uuid}")
    try:
        monitor.execute(
            "block_resize", {"node-name": disk.node_name, "size": place.size_mib * _MIB}
        )
    except MonitorError as err:
        raise HotplugError(err.message) from err
