"""The disks of the whole cluster: do they exist, and are they as large as the configuration says?

Each node is asked once for all disks of all its instances, never once per disk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ganeti.clients.node_rpc import RpcResult, target_of
from ganeti.logical_units import lookup
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.locks import LockLevel, LockNeed, all_exclusive, exclusive, shared, union
from ganeti.objects.model import Cluster, Disk, Instance, Node, NodeGroup
from ganeti.objects.rpc_instance import RpcDisk, build_rpc_disk
from ganeti.opcodes.cluster import OpClusterRepairDiskSizes, OpClusterVerifyDisks
from ganeti.opcodes.group import OpGroupVerifyDisks
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind, WConfCalls

AnswerT = TypeVar("AnswerT")

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DiskOfInstance:
    """One disk, with its instance and its number there."""

    instance: Instance
    index: int
    disk: Disk


def disks_of(config: WConfCalls, instances: Sequence[Instance]) -> list[DiskOfInstance]:
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
    context: JobContext,
    cluster: Cluster,
    method: Callable[[NodeCalls, Sequence[RpcDisk]], AnswerT],
    places: Sequence[DiskOfInstance],
) -> list[tuple[Node, list[DiskOfInstance], RpcResult[AnswerT]]]:
    """Ask the primary nodes about disks, all of one node in one call."""
    if not places:
        return []
    by_node: dict[str, list[DiskOfInstance]] = defaultdict(list)
    for place in places:
        by_node[place.instance.primary_node].append(place)
    nodes = lookup.present(context.config.get_nodes(list(by_node)))
    group_uuids = list(dict.fromkeys(node.group for node in nodes))
    found = lookup.present(context.config.get_node_groups(group_uuids))
    groups = {group.uuid: group for group in found}
    targets = {
        target_of(node): (
            [
                build_rpc_disk(cluster, groups[node.group], place.disk)
                for place in by_node[node.uuid]
            ],
        )
        for node in nodes
    }
    results = context.nodes.call_each(method, targets)
    return [(node, by_node[node.uuid], results[node.name]) for node in nodes]


class LUClusterRepairDiskSizes(SimpleUnit[OpClusterRepairDiskSizes, Sequence[Instance]]):
    """Correct the sizes of disks in the configuration."""

    def resolve(self) -> list[Instance]:
        """Look the instances up; all of them if none is named."""
        names = self.op.instances
        found = (
            lookup.require_instances(self.config, names)
            if names
            else lookup.present(self.config.get_instances(None))
        )
        return [instance for instance in found if not instance.forthcoming]

    def locks(self, found: Sequence[Instance]) -> LockNeed:
        """Lock the instances exclusively: their disks may be changed in the configuration."""
        instances = (
            exclusive(LockLevel.INSTANCE, [instance.name for instance in found])
            if self.op.instances
            else all_exclusive(LockLevel.INSTANCE)
        )
        nodes = shared(LockLevel.NODE, {instance.primary_node for instance in found})
        return union(instances, nodes)

    def execute(self, plan: Sequence[Instance]) -> list[tuple[str, int, str, int]]:
        """Compare and correct; returns (instance, disk, "size", new size) of each change."""
        changed: list[tuple[str, int, str, int]] = []
        places, method = disks_of(self.config, plan), NodeCalls.blockdev_getdimensions
        for node, mine, result in ask_nodes(self.context, self.cluster, method, places):
            if result.error is not None:
                self.context.warn(f"cannot look at disks on node {node.name}: {result.error}")
                continue
            for place, answer in zip(mine, result.payload, strict=False):
                changed += self._compare(place, answer)
        return changed

    def _compare(
        self, place: DiskOfInstance, answer: tuple[int, int | None] | None
    ) -> list[tuple[str, int, str, int]]:
        name, index, disk = place.instance.name, place.index, place.disk
        if answer is None:
            self.context.warn(f"disk {index} of instance {name} does not exist, ignoring")
            return []
        real_mib = answer[0] // _MIB
        if real_mib == disk.size:
            return []
        self.context.info(
            f"disk {index} of instance {name} has {real_mib} MiB, {disk.size} are written down:"
            " correcting"
        )
        self.config.modify(ObjectKind.DISK, disk.uuid, {"size": real_mib})
        return [(name, index, "size", real_mib)]


class LUClusterVerifyDisks(SimpleUnit[OpClusterVerifyDisks, Sequence[NodeGroup]]):
    """Submit one job for each group."""

    def resolve(self) -> list[NodeGroup]:
        return lookup.groups_named(self.config, self.op.group_name)

    def execute(self, plan: Sequence[NodeGroup]) -> dict[str, object]:
        jobs = [
            [OpGroupVerifyDisks(group_name=group.name, reason=self.op.reason)] for group in plan
        ]
        return {"jobs": [(True, job_id) for job_id in self.context.submit_jobs(jobs)]}


@dataclass(frozen=True, slots=True)
class ActiveInstances:
    """A group, and its instances whose disks are to be ready."""

    group: NodeGroup
    instances: Sequence[Instance]


class LUGroupVerifyDisks(SimpleUnit[OpGroupVerifyDisks, ActiveInstances]):
    """Look for the disks of the instances of one group that are to be ready."""

    def resolve(self) -> ActiveInstances:
        group = lookup.require_group(self.config, self.op.group_name)
        _, instances = lookup.group_members(self.config, group)
        return ActiveInstances(group, [each for each in instances if each.disks_active])

    def locks(self, found: ActiveInstances) -> LockNeed:
        """Lock the instances, the group and their nodes shared."""
        return union(
            shared(LockLevel.INSTANCE, [instance.name for instance in found.instances]),
            shared(LockLevel.NODEGROUP, [found.group.uuid]),
            shared(LockLevel.NODE, {instance.primary_node for instance in found.instances}),
        )

    def execute(
        self, plan: ActiveInstances
    ) -> tuple[dict[str, str], list[str], dict[str, list[list[str]]]]:
        """Ask the nodes.

        Returns:
            {node: reason why it could not be asked}, names of instances whose disks must be
            activated, {instance: [[node, disk], ...] that are missing}.
        """
        failing: dict[str, str] = {}
        missing: dict[str, list[list[str]]] = {}
        places = disks_of(self.config, plan.instances)
        method = NodeCalls.blockdev_getmirrorstatus_multi
        for node, mine, result in ask_nodes(self.context, self.cluster, method, places):
            if result.error is not None:
                if not result.offline:
                    failing[node.name] = result.error
                continue
            for place, answer in zip(mine, result.payload, strict=False):
                match answer:
                    case [True, _]:
                        continue
                    case _:
                        name = f"{place.disk.iv_name} ({place.disk.uuid})"
                        missing.setdefault(place.instance.name, []).append([node.name, name])
        return failing, [], missing
