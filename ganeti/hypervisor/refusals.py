"""What drivers say that cannot do a thing at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Never

from ganeti.base.errors import HotplugError, HypervisorError
from ganeti.hypervisor.interface import (
    AssembledDisk,
    HypervisorInfo,
    MigrationStatus,
    SnapshotAddress,
)
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC


class WithoutHotplug:
    """A hypervisor whose instances keep their devices while they run."""

    info: HypervisorInfo

    def hotplug_supported(self, instance: RpcInstance) -> Never:
        """Refuse."""
        raise HotplugError(
            f"hypervisor {self.info.name} has no devices to change while an instance runs"
        )

    def plug_disk(self, instance: RpcInstance, disk: AssembledDisk) -> Never:
        """Refuse."""
        self.hotplug_supported(instance)

    def unplug_disk(self, instance: RpcInstance, uuid: str) -> Never:
        """Refuse."""
        self.hotplug_supported(instance)

    def plug_nic(self, instance: RpcInstance, nic: RpcNIC, index: int) -> Never:
        """Refuse."""
        self.hotplug_supported(instance)

    def unplug_nic(self, instance: RpcInstance, uuid: str) -> Never:
        """Refuse."""
        self.hotplug_supported(instance)


class WithoutMigration:
    """A hypervisor whose instances stay on the node where they were started."""

    info: HypervisorInfo

    def migratable(self, instance: RpcInstance) -> Never:
        """Refuse."""
        raise HypervisorError(
            f"instances of hypervisor {self.info.name} cannot be migrated; use failover"
        )

    def migration_info(self, instance: RpcInstance) -> Never:
        """Refuse."""
        self.migratable(instance)

    def accept_instance(
        self,
        instance: RpcInstance,
        info: str,
        target_address: str,
        disks: Sequence[AssembledDisk],
    ) -> Never:
        """Refuse."""
        self.migratable(instance)

    def migrate(self, instance: RpcInstance, target_address: str, *, live: bool) -> Never:
        """Refuse."""
        self.migratable(instance)

    def migration_status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> MigrationStatus:
        """Refuse."""
        self.migratable(instance)

    def finalize_migration_src(self, instance: RpcInstance, *, success: bool, live: bool) -> Never:
        """Refuse."""
        self.migratable(instance)

    def finalize_migration_dst(self, instance: RpcInstance, info: str, *, success: bool) -> Never:
        """Refuse."""
        self.migratable(instance)


class WithoutSnapshots:
    """A hypervisor that cannot show what disks held at one instant while it goes on writing."""

    info: HypervisorInfo

    def snapshot_supported(self, instance: RpcInstance) -> Never:
        """Refuse."""
        self._refuse()

    def snapshot_disks(self, instance: RpcInstance, directory: str) -> Never:
        """Refuse."""
        self._refuse()

    def snapshot_address(self, name: str, uuid: str) -> SnapshotAddress:
        """Refuse."""
        self._refuse()

    def drop_snapshots(self, name: str) -> None:
        """Do nothing: there are none."""

    def _refuse(self) -> Never:
        raise HypervisorError(
            f"hypervisor {self.info.name}: snapshots of running instances are not supported"
        )
