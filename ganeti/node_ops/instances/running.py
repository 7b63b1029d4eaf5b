"""Running instances: migration, devices that come and go, snapshots of disks.

Each is an optional part of a hypervisor.  ``hypervisor.interface`` says in which order the calls
of a migration come, and the state at every cut.  Data that the guest overwrites while a snapshot is
copied is kept on the file system of the node's exports.

Source: node_rpc.json, accept_instance, instance_migrate, hotplug_device, ...; constants.json,
HOTPLUG_ALL_ACTIONS, HOTPLUG_ALL_TARGETS.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Final

from ganeti.base.errors import GenericError, HotplugError, HypervisorError
from ganeti.hypervisor.interface import (
    AssembledDisk,
    Hotplug,
    InstanceState,
    Instant,
    Migration,
    Snapshots,
)
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.node_ops.instances import communication, departures
from ganeti.node_ops.leftovers import alone
from ganeti.objects.disk_templates import DiskFormat, traits_of
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance, RpcNIC
from ganeti.protocol.node_rpc_values import KeptSnapshot
from ganeti.storage import registry

_Device = Mapping[str, object]


def snapshots_of(context: NodeContext, instance: RpcInstance) -> Snapshots:
    """Return the snapshots of an instance's hypervisor.

    Raises:
        HypervisorError: it has none.
    """
    driver = context.hypervisor_of(instance)
    if driver.snapshots is None:
        what = "snapshots of running instances are not supported"
        raise HypervisorError(f"hypervisor {driver.name}: {what}")
    return driver.snapshots


def _in_images(disks: Sequence[RpcDisk], beside: Sequence[RpcDisk]) -> bool:
    """Tell whether a hypervisor has a file open that can have snapshots within itself."""
    return any(disk.format is not DiskFormat.RAW for disk in disks if disk not in beside)


class RunningInstances(NodeHandler):
    """Migrations, snapshots and hotplug."""

    # Migration

    def _migration(self, instance: RpcInstance) -> Migration:
        driver = self.node.hypervisor_of(instance)
        if driver.migration is None:
            instances = f"instances of hypervisor {driver.name}"
            raise HypervisorError(f"{instances} cannot be migrated; use failover")
        return driver.migration

    def _runs_here(self, instance: RpcInstance) -> bool:
        return self.node.hypervisor_of(instance).instance_info(instance.name) is not None

    def instance_migratable(self, instance: RpcInstance) -> None:
        if not self._runs_here(instance):
            raise HypervisorError(f"instance {instance.name!r} does not run on {self.hostname}")
        self._migration(instance).check(instance)

    def migration_info(self, instance: RpcInstance) -> str:
        return self._migration(instance).describe(instance)

    def accept_instance(self, instance: RpcInstance, info: str, target: str) -> object:
        migration = self._migration(instance)
        try:
            disks = self.node.linked_disks(instance)
            self.node.open_disks(instance, exclusive=False)  # the source has them open as well
            return migration.accept(instance, info, target, disks)
        except GenericError:
            if not self._runs_here(instance):
                self.node.unlink_disks(instance.name)
            raise

    def instance_migrate(
        self, cluster_name: str, instance: RpcInstance, target: str, *, live: bool
    ) -> None:
        migration = self._migration(instance)
        departures.note(self.paths, instance, target)
        migration.send(instance, target, live=live)

    def instance_get_migration_status(self, instance: RpcInstance) -> dict[str, object]:
        return self._migration(instance).status(instance).to_wire()

    def instance_finalize_migration_src(
        self, instance: RpcInstance, *, success: bool, live: bool
    ) -> None:
        # First: the master knows where it runs, also when nothing here can be made to run again.
        departures.forget(self.paths, instance)
        self._migration(instance).finish_source(instance, success=success, live=live)
        if success:
            self.node.unlink_disks(instance.name)
            communication.forget(self.paths, instance.name)

    def instance_finalize_migration_dst(
        self, instance: RpcInstance, info: str, *, success: bool
    ) -> bool:
        departures.forget(self.paths, instance)
        never_ran = self._migration(instance).finish_target(instance, info, success=success)
        if not self._runs_here(instance):
            self.node.unlink_disks(instance.name)
            communication.forget(self.paths, instance.name)
        return never_ran

    def instance_departed(self, instance: RpcInstance) -> str:
        info = self.node.hypervisor_of(instance).instance_info(instance.name)
        if info is not None and info.state is InstanceState.RUNNING:
            return ""
        return departures.address(self.paths, instance)

    # Snapshots

    def instance_snapshot_supported(self, instance: RpcInstance) -> None:
        snapshots_of(self.node, instance).check(instance)

    def instance_snapshot(
        self, instance: RpcInstance, since: str = "", point: str = "", *, quiesce: bool = False
    ) -> list[str]:
        snapshots = snapshots_of(self.node, instance)
        place = self.paths.export_dir
        return list(snapshots.take(instance, place, Instant(since, point, quiesce)))

    def instance_record_since(self, instance: RpcInstance, point: str) -> None:
        snapshots = self.node.hypervisor_of(instance).snapshots
        if snapshots is not None:
            snapshots.record_since(instance.name, point)

    def instance_snapshot_drop(self, instance: RpcInstance) -> None:
        snapshots = self.node.hypervisor_of(instance).snapshots
        if snapshots is not None:
            snapshots.drop(instance.name)

    # Snapshots that disks keep

    def _beside(self, instance: RpcInstance, *, runs: bool) -> list[RpcDisk]:
        """Return the disks whose snapshots are not the matter of a hypervisor that has them open.

        Those in files of ours are: nobody else may look into such a file.
        """
        return [
            disk
            for disk in instance.disks_info
            if not runs or traits_of(disk.dev_type).keeps_snapshots
        ]

    def kept_snapshots(self, instance: RpcInstance) -> list[list[tuple[str, float]]]:
        runs = self._runs_here(instance)
        beside = self._beside(instance, runs=runs)
        disks = instance.disks_info
        found: dict[str, list[KeptSnapshot]] = {disk.uuid: [] for disk in disks}
        if _in_images(disks, beside):
            in_files = snapshots_of(self.node, instance).kept(instance)
            found = {disk.uuid: own for disk, own in zip(disks, in_files, strict=True)}
        of_beside = registry.snapshots(beside, self.node.env)
        found |= {disk.uuid: own for disk, own in zip(beside, of_beside, strict=True)}
        return [[(each.name, each.ctime) for each in found[disk.uuid]] for disk in disks]

    def kept_snapshot_take(self, instance: RpcInstance, name: str, *, quiesce: bool) -> bool:
        runs = self._runs_here(instance)
        volumes = [self.node.volume(disk) for disk in self._beside(instance, runs=runs)]
        with ExitStack() as undo:

            def keep_beside() -> None:
                for volume in volumes:
                    volume.keep(name)
                    undo.callback(volume.forget, name)

            if runs:
                driver = snapshots_of(self.node, instance)
                beside = keep_beside if volumes else None
                is_still = driver.keep(instance, name, quiesce=quiesce, beside=beside)
            else:
                is_still = False
                with alone(self.node, instance.name):
                    keep_beside()
            undo.pop_all()
        return is_still

    def kept_snapshot_restore(self, instance: RpcInstance, name: str) -> None:
        if self._runs_here(instance):
            raise HypervisorError(f"instance {instance.name!r} runs on {self.hostname}")
        departures.check(self.paths, instance)
        with alone(self.node, instance.name):
            for disk in instance.disks_info:
                self.node.volume(disk).restore(name)

    def kept_snapshot_remove(self, instance: RpcInstance, name: str) -> None:
        runs = self._runs_here(instance)
        beside = self._beside(instance, runs=runs)
        if _in_images(instance.disks_info, beside):
            snapshots_of(self.node, instance).forget(instance, name)
        with nullcontext() if runs else alone(self.node, instance.name):
            for disk in beside:
                self.node.volume(disk).forget(name)

    # Hotplug

    def _hotplug(self, instance: RpcInstance) -> Hotplug:
        driver = self.node.hypervisor_of(instance)
        if driver.hotplug is None:
            what = "has no devices to change while an instance runs"
            raise HotplugError(f"hypervisor {driver.name} {what}")
        return driver.hotplug

    def hotplug_supported(self, instance: RpcInstance) -> None:
        self._hotplug(instance).check(instance)

    def hotplug_device(
        self,
        instance: RpcInstance,
        action: str,
        dev_type: str,
        device: _Device,
        extra: object,
        seq: int,
    ) -> str | None:
        change = _CHANGES.get((action, dev_type))
        if change is None:
            raise GenericError(f"hotplug of {dev_type!r} by {action!r} is not known")
        return change(self, instance, device, seq)

    def _assembled(self, instance: RpcInstance, device: _Device, index: int) -> AssembledDisk:
        disk = self.node.assemble_disk(instance.name, index, RpcDisk.from_wire(device))
        return self.node.linked(instance.name, disk)

    def add_disk(self, instance: RpcInstance, device: _Device, index: int) -> str:
        """Assemble a disk and add it."""
        disk = self._assembled(instance, device, index)
        return self._hotplug(instance).add_disk(instance, disk)

    def resize_disk(self, instance: RpcInstance, device: _Device, index: int) -> None:
        """Tell the instance that a disk has grown."""
        disk = self._assembled(instance, device, index)
        self.node.hypervisor_of(instance).resize_disk(instance, disk)

    def remove_disk(self, instance: RpcInstance, device: _Device, _index: int) -> None:
        """Take a disk away."""
        self._hotplug(instance).remove_disk(instance, str(RpcDisk.from_wire(device).uuid))

    def add_nic(self, instance: RpcInstance, device: _Device, index: int) -> str:
        """Add a network interface."""
        return self._hotplug(instance).add_nic(instance, RpcNIC.from_wire(device), index)

    def remove_nic(self, instance: RpcInstance, device: _Device, _index: int) -> None:
        """Take a network interface away."""
        self._hotplug(instance).remove_nic(instance, RpcNIC.from_wire(device).uuid)

    def replace_nic(self, instance: RpcInstance, device: _Device, index: int) -> str:
        """Take an interface away and give it back changed, or as it was if that fails."""
        self.remove_nic(instance, device, index)
        try:
            return self.add_nic(instance, device, index)
        except GenericError:
            for place, nic in enumerate(instance.nics):
                if nic.uuid == device.get("uuid"):
                    self._hotplug(instance).add_nic(instance, nic, place)
            raise

    def grow(self, instance: RpcInstance, device: _Device, _index: int) -> None:
        """Give the instance processors and memory."""
        vcpus, memory_mib = device.get("vcpus"), device.get("memory")
        if not isinstance(vcpus, int) or not isinstance(memory_mib, int):
            raise HotplugError(f"not a size of an instance: {dict(device)}")
        self._hotplug(instance).grow(instance, vcpus=vcpus, memory_mib=memory_mib)


_Change = Callable[[RunningInstances, RpcInstance, _Device, int], str | None]
_CHANGES: Final[Mapping[tuple[str, str], _Change]] = {
    ("hotadd", "disk"): RunningInstances.add_disk,
    ("hotadd", "nic"): RunningInstances.add_nic,
    ("hotmod", "disk"): RunningInstances.resize_disk,
    ("hotmod", "nic"): RunningInstances.replace_nic,
    ("hotmod", "size"): RunningInstances.grow,  # ours
    ("hotremove", "disk"): RunningInstances.remove_disk,
    ("hotremove", "nic"): RunningInstances.remove_nic,
}
