"""Disks and network interfaces that come and go while a machine runs, and disks that grow under it.

The runtime file is written after QEMU has obeyed, so it describes the running machine; only a tap
is named there before it is made and until it is gone, so a call that is cut off leaves nothing
over.  QEMU gets the open tap, not its name: a QEMU that has given up its rights can use it all the
same.

Source: QEMU's QMP reference, blockdev-add, device_add, device_del, block_resize, getfd, netdev_add,
netdev_del; events DEVICE_DELETED and DEVICE_UNPLUG_GUEST_ERROR.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, HotplugError, HypervisorError, failing_as
from ganeti.hypervisor.interface import AssembledDisk, Hotplug
from ganeti.hypervisor.kvm import devices, snapshot
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.hardware import growth
from ganeti.hypervisor.kvm.hardware.disks import KEPT
from ganeti.hypervisor.kvm.launch import abilities_for, make_tap, uses_vnet_hdr
from ganeti.hypervisor.kvm.machine import (
    DiskDevice,
    Machine,
    NicDevice,
    new_disk_device,
    new_nic_device,
    port_name,
)
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.hypervisor.kvm.state import Machines, Runtime, save_runtime
from ganeti.netdev import taps
from ganeti.netdev.backends import BackendKind, NicBackend, choose_backend, tap_names
from ganeti.objects.nic import NicMode
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC
from ganeti.system import clock

UNPLUG_TIMEOUT_S: Final = 60.0  # a guest that is up lets go within a second
_IMAGE_TIMEOUT_S: Final = 10.0  # QEMU frees the image a moment after the device
_DELETED: Final = "DEVICE_DELETED"
_REFUSED: Final = "DEVICE_UNPLUG_GUEST_ERROR"
_MIB: Final = 1 << 20


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn a failure into a HotplugError."""
    try:
        yield
    except GenericError as err:
        raise HotplugError(err.message) from err


def devices_there(monitor: Monitor) -> set[str]:
    """Return the ids of all devices of a machine that have one."""
    answer = monitor.execute("qom-list", {"path": "/machine/peripheral"})
    rows = answer if isinstance(answer, list) else []
    return {str(row["name"]) for row in rows if isinstance(row, Mapping) and "name" in row}


def pci_slots_taken(monitor: Monitor, machine: Machine) -> set[int]:
    """Return the ports, or the places on the first PCI bus, that have a device."""
    buses = monitor.query_list("query-pci")
    rows = _rows(buses[0]) if buses else []
    if not machine.ports:
        return {int(str(row["slot"])) for row in rows if "slot" in row}
    numbers = {port_name(number): number for number in range(machine.ports)}
    return {
        numbers[name] for row in rows if (name := row.get("qdev_id")) in numbers and _below(row)
    }


def _rows(bus: object) -> list[Mapping[str, object]]:
    found = bus.get("devices") if isinstance(bus, Mapping) else None
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def _below(row: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the devices behind a port."""
    return _rows(row.get("pci_bridge"))


def add_disk(
    monitor: Monitor, machine: Machine, place: AssembledDisk
) -> tuple[Machine, DiskDevice]:
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
    with _refusals():
        disk = new_disk_device(machine, place, pci_slots_taken(monitor, machine))
        _add_image(monitor, machine, disk, place)
        try:
            monitor.execute("device_add", devices.disk_options(disk, machine))
        except HypervisorError:
            monitor.execute("blockdev-del", {"node-name": disk.node_name})
            raise
    return replace(machine, disks=(*machine.disks, disk)), disk


def _add_image(monitor: Monitor, machine: Machine, disk: DiskDevice, place: AssembledDisk) -> None:
    """Let QEMU open a disk; one that has become another user gets it open, as it may not itself."""
    options = devices.image_options(disk, place, machine.params)
    if machine.params.text("security_model") == "none" or place.uri is not None:
        monitor.execute("blockdev-add", options)
        return
    file = options["file"]
    assert isinstance(file, dict)
    with failing_as(HotplugError, f"cannot open {place.dev_path}"):
        mode = os.O_RDONLY if disk.read_only else os.O_RDWR
        descriptor = os.open(place.dev_path, mode | os.O_CLOEXEC)
    with monitor.lent(descriptor, closes=True) as path:
        monitor.execute("blockdev-add", {**options, "file": {**file, "filename": path}})


def remove_disk(monitor: Monitor, machine: Machine, uuid: str) -> Machine:
    """Take a disk away; returns the machine as it is now, the same when it has no such disk.

    Raises:
        HotplugError: the guest keeps it.
    """
    disk = next((disk for disk in machine.disks if disk.uuid == uuid), None)
    if disk is None:
        return machine
    if disk.driver in KEPT:
        raise HotplugError(f"instance {machine.name}: its machine keeps state on it while it runs")
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
    """Close the image of a disk after its device is gone."""
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


def resize_disk(monitor: Monitor, machine: Machine, place: AssembledDisk) -> None:
    """Let the guest see that a disk has grown.

    Raises:
        HotplugError: QEMU refuses.
    """
    disk = next((disk for disk in machine.disks if disk.uuid == place.uuid), None)
    if disk is None:
        raise HotplugError(f"the running instance {machine.name} does not have disk {place.uuid}")
    size = place.size_mib * _MIB
    with _refusals():
        monitor.execute("block_resize", {"node-name": disk.node_name, "size": size})


_VHOST_DEVICE: Final = "/dev/vhost-net"


def add_nic(
    monitor: Monitor, runtime: Runtime, nic: RpcNIC, backend: NicBackend, files: MachineFiles
) -> str:
    """Add a network interface; returns where it is on its bus.

    Raises:
        HotplugError: it was not added; nothing of it is left.
    """
    machine = runtime.machine
    if any(device.uuid == nic.uuid for device in machine.nics):
        raise HotplugError(f"instance {machine.name} has network interface {nic.uuid} already")
    with _refusals():
        device = new_nic_device(machine, nic, pci_slots_taken(monitor, machine))
        with_tap = _with_tap(runtime, backend)
        with contextlib.ExitStack() as undo:
            save_runtime(files, with_tap)
            undo.callback(save_runtime, files, runtime)
            make_tap(machine, backend, files.paths, undo)
            _add_netdev(monitor, machine, device, backend, undo)
            monitor.execute("device_add", devices.nic_options(device, machine))
            grown = replace(machine, nics=(*machine.nics, device))
            save_runtime(files, replace(with_tap, machine=grown))
            undo.pop_all()
    return devices.nic_place(device, machine)


def _with_tap(runtime: Runtime, backend: NicBackend) -> Runtime:
    if backend.kind is not BackendKind.TAP:
        return runtime
    names = dict.fromkeys((*runtime.taps, backend.tap))
    modes = {**runtime.modes, backend.tap: str(backend.mode)}
    return replace(runtime, taps=tuple(names), modes=modes)


def _add_netdev(
    monitor: Monitor,
    machine: Machine,
    device: NicDevice,
    backend: NicBackend,
    undo: contextlib.ExitStack,
) -> None:
    """Make the backend of a network interface in QEMU."""
    params = machine.params
    with contextlib.ExitStack() as opened:
        tap_files = None
        if backend.kind is BackendKind.TAP:
            queues = params.number("virtio_net_queues")
            tap = taps.open_tap(backend.tap, vnet_hdr=uses_vnet_hdr(params), queues=queues)
            opened.callback(taps.close_all, tap)
            with failing_as(HypervisorError, f"cannot open {_VHOST_DEVICE}"):
                count = queues if params.flag("vhost_net") else 0
                vhost = taps.open_queues(_VHOST_DEVICE, count)
            opened.callback(taps.close_all, vhost)
            tap_files = devices.TapFiles(
                _hand_over(monitor, f"tap-{device.device_id}", tap, undo),
                _hand_over(monitor, f"vhost-{device.device_id}", vhost, undo),
            )
        monitor.execute("netdev_add", devices.netdev_options(device, backend, params, tap_files))
    undo.callback(_remove_netdev, monitor, device)


def _hand_over(
    monitor: Monitor, name: str, descriptors: Sequence[int], undo: contextlib.ExitStack
) -> tuple[str, ...]:
    """Give QEMU open files; returns the names that it knows them by."""
    names = tuple(f"{name}-{index}" for index in range(len(descriptors)))
    for known_as, descriptor in zip(names, descriptors, strict=True):
        monitor.hand_over(known_as, descriptor)
        undo.callback(_take_back, monitor, known_as)
    return names


def _take_back(monitor: Monitor, name: str) -> None:
    with contextlib.suppress(MonitorError):  # gone already: the backend has taken it
        monitor.execute("closefd", {"fdname": name})


def _remove_netdev(monitor: Monitor, device: NicDevice) -> None:
    """Remove the backend of a network interface from QEMU, if it is still there."""
    try:
        monitor.execute("netdev_del", {"id": device.netdev_id})
    except MonitorError as err:
        if err.kind != "DeviceNotFound":
            raise


def remove_nic(monitor: Monitor, runtime: Runtime, uuid: str, files: MachineFiles) -> None:
    """Take a network interface away; one that the machine does not have is no error.

    Raises:
        HotplugError: the guest keeps it.
    """
    machine = runtime.machine
    device = next((device for device in machine.nics if device.uuid == uuid), None)
    if device is None:
        return
    remove_device(monitor, machine.name, device.device_id)
    own = [tap for tap in tap_names(uuid) if tap in runtime.taps]
    with _refusals():
        _remove_netdev(monitor, device)
        for tap in own:
            taps.remove_tap(tap, runtime.modes.get(tap, NicMode.BRIDGED))
    left = replace(machine, nics=tuple(other for other in machine.nics if other.uuid != uuid))
    names = tuple(name for name in runtime.taps if name not in own)
    modes = {name: mode for name, mode in runtime.modes.items() if name not in own}
    save_runtime(files, replace(runtime, machine=left, taps=names, modes=modes))


class KvmHotplug(Hotplug):
    """Changing devices of machines that run."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def check(self, instance: RpcInstance) -> None:
        """Check that the machine runs, was started by us, and nothing moves it."""
        with _refusals():
            self._machines.runtime(instance.name)
            self._machines.check_movable(instance.name)

    def _runtime(self, name: str) -> Runtime:
        with _refusals():
            return self._machines.runtime(name)

    def _save(self, runtime: Runtime, machine: Machine) -> None:
        save_runtime(self._machines.files(machine.name), replace(runtime, machine=machine))

    def add_disk(self, instance: RpcInstance, disk: AssembledDisk) -> str:
        """Add a disk to the running machine; returns its place on the bus."""
        runtime = self._runtime(instance.name)
        with snapshot.disks_alone(self._machines, instance.name) as monitor:
            machine, device = add_disk(monitor, runtime.machine, disk)
        self._save(runtime, machine)
        return devices.disk_place(device, machine)

    def remove_disk(self, instance: RpcInstance, uuid: str) -> None:
        """Take a disk away from the running machine."""
        runtime = self._runtime(instance.name)
        with snapshot.disks_alone(self._machines, instance.name) as monitor:
            machine = remove_disk(monitor, runtime.machine, uuid)
        self._save(runtime, machine)

    def add_nic(self, instance: RpcInstance, nic: RpcNIC, index: int) -> str:
        """Add a network interface to the running machine; returns its place on the bus."""
        runtime = self._runtime(instance.name)
        node = abilities_for(self._machines.env, [nic])
        backend = choose_backend(instance, index, nic, node)
        with self._machines.control(instance.name) as monitor:
            return add_nic(monitor, runtime, nic, backend, self._machines.files(instance.name))

    def remove_nic(self, instance: RpcInstance, uuid: str) -> None:
        """Take a network interface away from the running machine."""
        runtime = self._runtime(instance.name)
        with self._machines.control(instance.name) as monitor:
            remove_nic(monitor, runtime, uuid, self._machines.files(instance.name))

    def grow(self, instance: RpcInstance, *, vcpus: int, memory_mib: int) -> None:
        """Give the running machine processors and memory until it has so much of them."""
        with _refusals(), self._machines.control(instance.name) as monitor:
            runtime = self._runtime(instance.name)
            files = self._machines.files(instance.name)
            growth.grow(monitor, runtime, files, vcpus=vcpus, memory_mib=memory_mib)

    def resize_disk(self, instance: RpcInstance, disk: AssembledDisk) -> None:
        """Let the running machine see that a disk has grown."""
        with snapshot.disks_alone(self._machines, instance.name) as monitor:
            resize_disk(monitor, self._runtime(instance.name).machine, disk)
