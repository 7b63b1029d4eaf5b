"""Running instances: migration, devices that come and go, snapshots of disks.

Each is an optional part of a hypervisor.  ``hypervisor.interface`` says in which order the calls
of a migration come, and what holds at every cut.  What the guest overwrites while a snapshot is
copied is kept on the file system of the node's exports.

Source: node_rpc.json, accept_instance, instance_migrate, hotplug_device, ...; constants.json,
HOTPLUG_ALL_ACTIONS, HOTPLUG_ALL_TARGETS.
"""

from collections.abc import Callable, Mapping

from ganeti.base.errors import GenericError, HotplugError, HypervisorError
from ganeti.hypervisor.interface import AssembledDisk, Hotplug, Migration, Snapshots
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance, RpcNIC

_Device = Mapping[str, object]
_Change = Callable[[NodeContext, RpcInstance, _Device, int], str | None]


def _migration(context: NodeContext, instance: RpcInstance) -> Migration:
    driver = drivers.hypervisor_of(context, instance)
    if driver.migration is None:
        raise HypervisorError(
            f"instances of hypervisor {driver.name} cannot be migrated; use failover"
        )
    return driver.migration


class MigrationCalls(NodeHandler):
    """Migrations."""

    def instance_migratable(self, instance: RpcInstance) -> None:
        driver = drivers.hypervisor_of(self.context, instance)
        if driver.instance_info(instance.name) is None:
            raise HypervisorError(f"instance {instance.name!r} does not run on {self.hostname}")
        _migration(self.context, instance).check(instance)

    def migration_info(self, instance: RpcInstance) -> str:
        return _migration(self.context, instance).describe(instance)

    def accept_instance(self, instance: RpcInstance, info: str, target: str) -> object:
        migration = _migration(self.context, instance)
        try:
            disks = drivers.assemble_disks(self.context, instance)
            drivers.open_disks(
                self.context, instance, exclusive=False
            )  # the source has them open as well
            linked = drivers.with_links(self.context, instance.name, disks)
            return migration.accept(instance, info, target, linked)
        except GenericError:
            if drivers.hypervisor_of(self.context, instance).instance_info(instance.name) is None:
                drivers.unlink_disks(self.paths, instance.name)
            raise

    def instance_migrate(
        self, cluster_name: str, instance: RpcInstance, target: str, *, live: bool
    ) -> None:
        _migration(self.context, instance).send(instance, target, live=live)

    def instance_get_migration_status(self, instance: RpcInstance) -> dict[str, object]:
        return _migration(self.context, instance).status(instance).to_wire()

    def instance_finalize_migration_src(
        self, instance: RpcInstance, *, success: bool, live: bool
    ) -> None:
        _migration(self.context, instance).finish_source(instance, success=success, live=live)
        if success:
            drivers.unlink_disks(self.paths, instance.name)

    def instance_finalize_migration_dst(
        self, instance: RpcInstance, info: str, *, success: bool
    ) -> None:
        _migration(self.context, instance).finish_target(instance, info, success=success)
        if drivers.hypervisor_of(self.context, instance).instance_info(instance.name) is None:
            drivers.unlink_disks(self.paths, instance.name)


def snapshots_of(context: NodeContext, instance: RpcInstance) -> Snapshots:
    """Return the snapshots of an instance's hypervisor.

    Raises:
        HypervisorError: it has none.
    """
    driver = drivers.hypervisor_of(context, instance)
    if driver.snapshots is None:
        raise HypervisorError(
            f"hypervisor {driver.name}: snapshots of running instances are not supported"
        )
    return driver.snapshots


class SnapshotsCalls(NodeHandler):
    """Snapshots of running instances."""

    def instance_snapshot_supported(self, instance: RpcInstance) -> None:
        snapshots_of(self.context, instance).check(instance)

    def instance_snapshot(self, instance: RpcInstance) -> None:
        snapshots_of(self.context, instance).take(instance, self.paths.export_dir)

    def instance_snapshot_drop(self, instance: RpcInstance) -> None:
        snapshots = drivers.hypervisor_of(self.context, instance).snapshots
        if snapshots is not None:
            snapshots.drop(instance.name)


def _hotplug(context: NodeContext, instance: RpcInstance) -> Hotplug:
    driver = drivers.hypervisor_of(context, instance)
    if driver.hotplug is None:
        raise HotplugError(
            f"hypervisor {driver.name} has no devices to change while an instance runs"
        )
    return driver.hotplug


class HotplugCalls(NodeHandler):
    """Devices of running instances."""

    def hotplug_supported(self, instance: RpcInstance) -> None:
        _hotplug(self.context, instance).check(instance)

    def hotplug_device(
        self,
        instance: RpcInstance,
        action: str,
        dev_type: str,
        device: Mapping[str, object],
        extra: object,
        seq: int,
    ) -> str | None:
        change = _CHANGES.get((action, dev_type))
        if change is None:
            raise GenericError(f"hotplug of {dev_type!r} by {action!r} is not known")
        return change(self.context, instance, device, seq)


def _add_disk(
    context: NodeContext, instance: RpcInstance, device: _Device, index: int
) -> str | None:
    disk = _assembled(context, instance, device, index)
    return _hotplug(context, instance).add_disk(instance, disk)


def _resize_disk(
    context: NodeContext, instance: RpcInstance, device: _Device, index: int
) -> str | None:
    disk = _assembled(context, instance, device, index)
    drivers.hypervisor_of(context, instance).resize_disk(instance, disk)
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
    _hotplug(context, instance).remove_disk(instance, str(disk.uuid))
    return None


def _add_nic(context: NodeContext, instance: RpcInstance, device: _Device, index: int) -> str:
    nic = RpcNIC.from_wire(device)
    return _hotplug(context, instance).add_nic(instance, nic, index)


def _remove_nic(
    context: NodeContext, instance: RpcInstance, device: _Device, _index: int
) -> str | None:
    uuid = RpcNIC.from_wire(device).uuid
    _hotplug(context, instance).remove_nic(instance, uuid)
    return None


def _replace_nic(context: NodeContext, instance: RpcInstance, device: _Device, index: int) -> str:
    """Take an interface away and give it back changed, or as it was if that fails."""
    _remove_nic(context, instance, device, index)
    try:
        return _add_nic(context, instance, device, index)
    except GenericError:
        for place, nic in enumerate(instance.nics):
            if nic.uuid == device.get("uuid"):
                _hotplug(context, instance).add_nic(instance, nic, place)
        raise


_CHANGES: Mapping[tuple[str, str], _Change] = {
    ("hotadd", "disk"): _add_disk,
    ("hotadd", "nic"): _add_nic,
    ("hotmod", "disk"): _resize_disk,
    ("hotmod", "nic"): _replace_nic,
    ("hotremove", "disk"): _remove_disk,
    ("hotremove", "nic"): _remove_nic,
}
