"""The disks of the whole cluster: are they there, and are they as large as is written down?

Each node is asked once for all disks of all its instances, never once per disk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, all_exclusive, exclusive, shared
from ganeti.logical_units.node_calls import target_of
from ganeti.objects.rpc_instance import build_rpc_disk
from ganeti.opcodes.cluster import OpClusterRepairDiskSizes, OpClusterVerifyDisks
from ganeti.opcodes.group import OpGroupVerifyDisks

if TYPE_CHECKING:
    from ganeti.clients.node_rpc import RpcResult
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node

_MIB: Final = 1 << 20
_SIZES: Final = "blockdev_getdimensions"
_STATES: Final = "blockdev_getmirrorstatus_multi"


@dataclass(frozen=True, slots=True)
class DiskOfInstance:
    """One disk, and whose it is."""

    instance: Instance
    index: int
    disk: Disk


def disks_of(config: WConfStub, instances: Sequence[Instance]) -> list[DiskOfInstance]:
    """Return all disks of instances, read in one call."""
    uuids = [uuid for instance in instances for uuid in instance.disks]
    known = {disk.uuid: disk for disk in lookup.present(config.get_disks(uuids) if uuids else [])}
    return [
        DiskOfInstance(instance, index, known[uuid])
        for instance in instances
        for index, uuid in enumerate(instance.disks)
        if uuid in known
    ]


def ask_nodes(
    context: JobContext, cluster: Cluster, call: str, places: Sequence[DiskOfInstance]
) -> list[tuple[Node, list[DiskOfInstance], RpcResult]]:
    """Ask the primary nodes about disks, all of one node in one call."""
    by_node: dict[str, list[DiskOfInstance]] = defaultdict(list)
    for place in places:
        by_node[place.instance.primary_node].append(place)
    nodes = lookup.present(context.config.get_nodes(list(by_node)) if by_node else [])
    wanted = list(dict.fromkeys(node.group for node in nodes))
    found = lookup.present(context.config.get_node_groups(wanted) if wanted else [])
    groups = {group.uuid: group for group in found}
    targets = {
        target_of(node): [
            [
                build_rpc_disk(cluster, groups[node.group], place.disk).to_wire()
                for place in by_node[node.uuid]
            ]
        ]
        for node in nodes
    }
    results = context.rpc.call(call, targets) if targets else {}
    return [(node, by_node[node.uuid], results[node.name]) for node in nodes]


class LUClusterRepairDiskSizes(LogicalUnit[OpClusterRepairDiskSizes]):
    """Write down the real sizes of disks; the result names those that were wrong."""

    def expand_names(self) -> None:
        """Look the instances up; all of them if none is named."""
        names = self.op.instances
        self.instances = (
            lookup.require_instances(self.config, names)
            if names
            else lookup.present(self.config.get_instances(None))
        )

        self.instances = [item for item in self.instances if not item.forthcoming]

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instances exclusively: their disks may be written down anew."""
        if level is LockLevel.INSTANCE:
            if not self.op.instances:
                return all_exclusive(level)
            return exclusive(level, [instance.name for instance in self.instances])
        if level is LockLevel.NODE:
            return shared(level, {instance.primary_node for instance in self.instances})
        return {}

    def exec(self) -> list[tuple[str, int, str, int]]:
        """Compare and correct; returns (instance, disk, "size", new size) of each change."""
        changed: list[tuple[str, int, str, int]] = []
        places = disks_of(self.config, self.instances)
        for node, mine, result in ask_nodes(self.context, self.cluster, _SIZES, places):
            if result.error is not None:
                self.context.warn(f"cannot look at disks on node {node.name}: {result.error}")
                continue
            answers = result.payload if isinstance(result.payload, list) else []
            for place, answer in zip(mine, answers, strict=False):
                changed += self._compare(place, answer)
        return changed

    def _compare(self, place: DiskOfInstance, answer: object) -> list[tuple[str, int, str, int]]:
        name, index, disk = place.instance.name, place.index, place.disk
        match answer:
            case [int(size_bytes), *_]:
                real_mib = size_bytes // _MIB
            case _:
                self.context.warn(f"disk {index} of instance {name} does not exist, ignoring")
                return []
        if real_mib == disk.size:
            return []
        self.context.info(
            f"disk {index} of instance {name} has {real_mib} MiB, {disk.size} are written down:"
            " correcting"
        )
        self.config.modify_disk(disk.uuid, {"size": real_mib})
        return [(name, index, "size", real_mib)]


class LUClusterVerifyDisks(LogicalUnit[OpClusterVerifyDisks]):
    """Submit one job for each group."""

    def exec(self) -> dict[str, object]:
        """Submit them."""
        config, name = self.config, self.op.group_name
        groups = (
            lookup.present(config.get_node_groups(None))
            if name is None
            else [lookup.require_group(config, name)]
        )
        jobs = [
            [OpGroupVerifyDisks(group_name=group.name, reason=self.op.reason)] for group in groups
        ]
        return {"jobs": [(True, job_id) for job_id in self.context.submit_jobs(jobs)]}


class LUGroupVerifyDisks(LogicalUnit[OpGroupVerifyDisks]):
    """Look for the disks of the instances of one group that are to be ready."""

    def expand_names(self) -> None:
        """Look the group up, with its instances."""
        self.group = lookup.require_group(self.config, self.op.group_name)
        [members] = self.config.get_group_members([self.group.uuid])
        uuids = members[1] if members else []
        found = lookup.present(self.config.get_instances(uuids)) if uuids else []
        self.instances = [instance for instance in found if instance.disks_active]

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instances, the group and their nodes shared."""
        match level:
            case LockLevel.INSTANCE:
                return shared(level, [instance.name for instance in self.instances])
            case LockLevel.NODEGROUP:
                return shared(level, [self.group.uuid])
            case LockLevel.NODE:
                return shared(level, {instance.primary_node for instance in self.instances})
            case _:
                return {}

    def exec(self) -> tuple[dict[str, str], list[str], dict[str, list[list[str]]]]:
        """Look.

        Returns:
            {node: why it could not be asked}, names of instances whose disks want to be activated,
            {instance: [[node, disk], ...] that are missing}.
        """
        failing: dict[str, str] = {}
        missing: dict[str, list[list[str]]] = {}
        places = disks_of(self.config, self.instances)
        for node, mine, result in ask_nodes(self.context, self.cluster, _STATES, places):
            if result.error is not None:
                if not result.offline:
                    failing[node.name] = result.error
                continue
            answers = result.payload if isinstance(result.payload, list) else []
            for place, answer in zip(mine, answers, strict=False):
                match answer:
                    case [True, _]:
                        continue
                    case _:
                        name = f"{place.disk.iv_name} ({place.disk.uuid})"
                        missing.setdefault(place.instance.name, []).append([node.name, name])
        return failing, [], missing
