"""Devices that come to and go from an instance while it runs.

Source: node_rpc.json, hotplug_device; constants.json, HOTPLUG_ALL_ACTIONS, HOTPLUG_ALL_TARGETS.
"""

from collections.abc import Callable, Mapping

from ganeti.base.errors import GenericError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance, RpcNIC

_Device = dict[str, object]
_Change = Callable[[NodeContext, RpcInstance, _Device, int], str | None]


def hotplug_device(
    context: NodeContext,
    instance: RpcInstance,
    action: str,
    dev_type: str,
    device: _Device,
    _extra: object,
    seq: int,
) -> str | None:
    """Add a device to a running instance, take it away or change it; ``seq`` is its index.

    Of a disk only the size can change; it has grown before this is called.  A network interface
    that changes goes and comes back.

    Returns:
        Where an added device is on its bus, as the hypervisor calls it.

    Raises:
        HotplugError: the guest keeps its devices as they were.
        GenericError: no such action or kind of device.
    """
    change = _CHANGES.get((action, dev_type))
    if change is None:
        raise GenericError(f"hotplug of {dev_type!r} by {action!r} is not known")
    return change(context, instance, device, seq)


def _add_disk(
    context: NodeContext, instance: RpcInstance, device: _Device, index: int
) -> str | None:
    disk = _assembled(context, instance, device, index)
    return drivers.hypervisor(context, instance.hypervisor).plug_disk(instance, disk)


def _resize_disk(
    context: NodeContext, instance: RpcInstance, device: _Device, index: int
) -> str | None:
    disk = _assembled(context, instance, device, index)
    drivers.hypervisor(context, instance.hypervisor).resize_disk(instance, disk)
    return None


def _assembled(
    context: NodeContext, instance: RpcInstance, device: _Device, index: int
) -> AssembledDisk:
    disk = drivers.assemble_disk(context, instance.name, index, RpcDisk.from_wire(device))
    [linked] = drivers.with_links(context, instance.name, [disk])
    return linked


def _remove_disk(
    context: NodeContext, instance: RpcInstance, device: _Device, _index: int
) -> str | None:
    disk = RpcDisk.from_wire(device)
    drivers.hypervisor(context, instance.hypervisor).unplug_disk(instance, str(disk.uuid))
    return None


def _add_nic(context: NodeContext, instance: RpcInstance, device: _Device, index: int) -> str:
    nic = RpcNIC.from_wire(device)
    return drivers.hypervisor(context, instance.hypervisor).plug_nic(instance, nic, index)


def _remove_nic(
    context: NodeContext, instance: RpcInstance, device: _Device, _index: int
) -> str | None:
    uuid = RpcNIC.from_wire(device).uuid
    drivers.hypervisor(context, instance.hypervisor).unplug_nic(instance, uuid)
    return None


def _replace_nic(context: NodeContext, instance: RpcInstance, device: _Device, index: int) -> str:
    """Take an interface away and give it back changed, or as it was if that fails."""
    _remove_nic(context, instance, device, index)
    try:
        return _add_nic(context, instance, device, index)
    except GenericError:
        for place, nic in enumerate(instance.nics):
            if nic.uuid == device.get("uuid"):
                drivers.hypervisor(context, instance.hypervisor).plug_nic(instance, nic, place)
        raise


_CHANGES: Mapping[tuple[str, str], _Change] = {
    ("hotadd", "disk"): _add_disk,
    ("hotadd", "nic"): _add_nic,
    ("hotmod", "disk"): _resize_disk,
    ("hotmod", "nic"): _replace_nic,
    ("hotremove", "disk"): _remove_disk,
    ("hotremove", "nic"): _remove_nic,
}
