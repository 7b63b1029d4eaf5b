"""Network interfaces that come and go while a machine runs.

QEMU gets the open tap, not its name: a QEMU that has given up its rights can use it all the same.
The runtime file names the tap before it is made and until it is gone, so nothing is left over by a
call that is cut off.

Source: QEMU's QMP reference, getfd, netdev_add, netdev_del, device_add, device_del.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, HotplugError, HypervisorError
from ganeti.hypervisor.kvm.devices import TapFiles, netdev_options, nic_options, nic_place
from ganeti.hypervisor.kvm.disk_hotplug import pci_slots_taken, remove_device
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.launch import make_tap, uses_vnet_hdr
from ganeti.hypervisor.kvm.machine import Machine, NicDevice, new_nic_device
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.hypervisor.kvm.runtime import Runtime, save_runtime
from ganeti.netdev import taps
from ganeti.netdev.backends import BackendKind, NicBackend, tap_name
from ganeti.objects.nic_modes import NicMode
from ganeti.objects.rpc_instance import RpcNIC

_VHOST_DEVICE: Final = "/dev/vhost-net"


def plug(
    monitor: Monitor, runtime: Runtime, nic: RpcNIC, backend: NicBackend, files: MachineFiles
) -> str:
    """Add a network interface; returns where it is on its bus.

    Raises:
        HotplugError: it was not added; nothing of it is left.
    """
    machine = runtime.machine
    if any(device.uuid == nic.uuid for device in machine.nics):
        raise HotplugError(f"instance {machine.name} has network interface {nic.uuid} already")
    try:
        device = new_nic_device(machine, nic, pci_slots_taken(monitor))
        with_tap = _with_tap(runtime, backend)
        with contextlib.ExitStack() as undo:
            save_runtime(files, with_tap)
            undo.callback(save_runtime, files, runtime)
            make_tap(machine, backend, files.paths, undo)
            _add_netdev(monitor, machine, device, backend, undo)
            monitor.execute("device_add", nic_options(device, machine))
            grown = replace(machine, nics=(*machine.nics, device))
            save_runtime(files, replace(with_tap, machine=grown))
            undo.pop_all()
    except GenericError as err:
        raise HotplugError(err.message) from err
    return nic_place(device, machine)


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
    """Let QEMU know what stands behind a network interface."""
    params = machine.params
    with contextlib.ExitStack() as opened:
        tap_files = None
        if backend.kind is BackendKind.TAP:
            queues = params.number("virtio_net_queues")
            tap = taps.open_tap(backend.tap, vnet_hdr=uses_vnet_hdr(params), queues=queues)
            _close_later(opened, tap)
            vhost = _open_vhost(queues) if params.flag("vhost_net") else []
            _close_later(opened, vhost)
            tap_files = TapFiles(
                _hand_over(monitor, f"tap-{device.device_id}", tap, undo),
                _hand_over(monitor, f"vhost-{device.device_id}", vhost, undo),
            )
        monitor.execute("netdev_add", netdev_options(device, backend, params, tap_files))
    undo.callback(_remove_netdev, monitor, device)


def _close_later(opened: contextlib.ExitStack, descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        opened.callback(os.close, descriptor)


def _open_vhost(queues: int) -> list[int]:
    descriptors: list[int] = []
    try:
        for _ in range(queues):
            descriptors.append(os.open(_VHOST_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as err:
        for descriptor in descriptors:
            os.close(descriptor)
        raise HypervisorError(f"cannot open {_VHOST_DEVICE}: {err.strerror}") from err
    return descriptors


def _hand_over(
    monitor: Monitor, name: str, descriptors: Sequence[int], undo: contextlib.ExitStack
) -> tuple[str, ...]:
    """Give QEMU open files; returns the names that it knows them by."""
    names = []
    for index, descriptor in enumerate(descriptors):
        known_as = f"{name}-{index}"
        monitor.hand_over(known_as, descriptor)
        undo.callback(_take_back, monitor, known_as)
        names.append(known_as)
    return tuple(names)


def _take_back(monitor: Monitor, name: str) -> None:
    with contextlib.suppress(MonitorError):  # it is gone: what used it has taken it
        monitor.execute("closefd", {"fdname": name})


def _remove_netdev(monitor: Monitor, device: NicDevice) -> None:
    """Let QEMU forget what stood behind an interface; it may have done so before."""
    try:
        monitor.execute("netdev_del", {"id": device.netdev_id})
    except MonitorError as err:
        if err.kind != "DeviceNotFound":
            raise


def unplug(monitor: Monitor, runtime: Runtime, uuid: str, files: MachineFiles) -> None:
    """Take a network interface away; one that the machine does not have is no error.

    Raises:
        HotplugError: the guest keeps it.
    """
    machine = runtime.machine
    device = next((device for device in machine.nics if device.uuid == uuid), None)
    if device is None:
        return
    remove_device(monitor, machine.name, device.device_id)
    try:
        _remove_netdev(monitor, device)
        tap = tap_name(uuid)
        if tap in runtime.taps:
            taps.remove_tap(tap, runtime.modes.get(tap, NicMode.BRIDGED))
    except HypervisorError as err:
        raise HotplugError(err.message) from err
    rest = tuple(other for other in machine.nics if other.uuid != uuid)
    save_runtime(
        files,
        replace(
            runtime,
            machine=replace(machine, nics=rest),
            taps=tuple(name for name in runtime.taps if name != tap),
            modes={name: mode for name, mode in runtime.modes.items() if name != tap},
        ),
    )
