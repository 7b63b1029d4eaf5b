"""The volume groups of nodes put right: one, when somebody asks, or any, when it is safe.

Source: design-2.0, "LVM self-repair"; design-2.1, "Fix node volume group"; opcodes.json,
OP_REPAIR_NODE_STORAGE.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.base import NamelessUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.disk_states import ask_disks
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared, exclusive, union
from ganeti.logical_units.node import volume_group_repair as repair
from ganeti.logical_units.node.base import NodeUnit, instances_of
from ganeti.logical_units.node.storage import STATUS, check_storage, unit_arguments
from ganeti.objects.disk_templates import StorageType
from ganeti.objects.model import Cluster, Disk, Instance, Node
from ganeti.opcodes.cluster import OpClusterRepairVolumeGroups
from ganeti.opcodes.node import OpRepairNodeStorage
from ganeti.protocol.node_calls import NodeCalls
from ganeti.store import volume_group_health

logger = logging.getLogger(__name__)

_OK: Final = "ok"
_KIND: Final = StorageType.LVM_VG


def look_at_groups(context: JobContext, cluster: Cluster, nodes: Sequence[Node]) -> repair.Groups:
    """Ask nodes whether the cluster's volume group is consistent there, all at once."""
    arguments = unit_arguments(cluster, None, _KIND)
    results = context.nodes.call_all(
        NodeCalls.storage_list, nodes, *arguments, None, ["name", STATUS]
    )
    broken, silent = {}, []
    for name, result in results.items():
        if result.error is not None:
            silent.append(name)
            continue
        problems = [
            f"{group}: {status}"
            for group, status in result.payload
            if status != _OK and "/" not in str(group)  # a thin pool lost nothing: it is full
        ]
        if problems:
            broken[name] = "; ".join(problems)
    return repair.Groups(broken, silent)


def disks_without_copy(context: JobContext, cluster: Cluster, node: Node) -> list[str]:
    """Return the disks in the volume group of a node that have no good copy on another node."""
    disks = disks_of_node(context, node)
    uuids = {uuid for instance, disk in disks for uuid in (instance.primary_node, *disk.nodes)}
    found = lookup.present(context.config.get_nodes(sorted(uuids))) if uuids else []
    groups = lookup.groups_of(context.config, found)
    nodes = {each.uuid: each for each in found}
    states = ask_disks(context, cluster, nodes, groups, disks)
    return repair.without_copy(node.uuid, disks, states)


def disks_of_node(context: JobContext, node: Node) -> list[tuple[Instance, Disk]]:
    """Return the disks of the instances of a node, primary or secondary."""
    primary, secondary = instances_of(context.config, node)
    instances = [each for each in (*primary, *secondary) if not each.forthcoming]
    found = lookup.disks_of_each(context.config, instances)
    return [(each, disk) for each, own in zip(instances, found, strict=True) for disk in own]


class LURepairNodeStorage(NodeUnit[OpRepairNodeStorage, Node]):
    """Repair a storage unit: only volume groups can be."""

    def locks(self, found: Node) -> LockNeed:
        """Lock the node, and what it has, exclusively."""
        return union(
            exclusive(LockLevel.NODE, [found.uuid]), exclusive(LockLevel.NODE_RES, [found.uuid])
        )

    def plan(self, found: Node) -> Node:
        """Refuse storage that cannot be repaired, and where data may be lost."""
        op = self.op
        if op.storage_type is not _KIND:
            raise OpPrereqError(
                f"storage units of type {op.storage_type.value!r} cannot be repaired; those of"
                f" {_KIND.value} can"
            )
        check_storage(op.storage_type)
        self._check_exists(found)
        if not op.ignore_consistency:
            self._check_copies(found)
        return found

    def _check_exists(self, node: Node) -> None:
        name = self.op.name or ""
        asked = self.context.nodes.check(node, f"look at volume group {name!r}")
        [[size_mib]] = asked.storage_list(_KIND.value, [], name, ["size"])
        if size_mib is None:
            raise OpPrereqError(
                f"there is no volume group {name!r} on node {node.name!r}; see 'gnt-node"
                f" list-storage -t {_KIND.value} {node.name}'",
                ErrorCode.NOENT,
            )

    def _check_copies(self, node: Node) -> None:
        """Refuse unless all data is good on other nodes, whose groups are consistent."""
        what = f"the volume group of node {node.name!r} is not repaired (--ignore-consistency does)"
        disks = disks_of_node(self.context, node)
        uuids = {uuid for _, disk in disks for uuid in disk.nodes if uuid != node.uuid}
        others = lookup.present(self.config.get_nodes(sorted(uuids))) if uuids else []
        groups = look_at_groups(self.context, self.cluster, others)
        if groups.silent:
            raise wrong_state(f"{what}: no answer of {', '.join(sorted(groups.silent))}")
        for name, problem in sorted(groups.broken.items()):
            raise wrong_state(f"{what}: that of node {name!r} is not consistent either: {problem}")
        uncopied = disks_without_copy(self.context, self.cluster, node)
        if uncopied:
            raise wrong_state(
                f"{what}: there is no good copy elsewhere of {', '.join(uncopied)}; see"
                " 'gnt-instance info', and replace these disks or move them away first"
            )

    def execute(self, plan: Node) -> None:
        op = self.op
        self.context.nodes.on(plan, f"repair storage unit {op.name!r}").storage_execute(
            *unit_arguments(self.cluster, None, op.storage_type), op.name or "", "fix-consistency"
        )


class LUClusterRepairVolumeGroups(NamelessUnit[OpClusterRepairVolumeGroups]):
    """Look at the volume groups of all nodes, and have one put right if that is safe."""

    def locks(self, found: None) -> LockNeed:
        """Lock all nodes shared: none comes or goes meanwhile."""
        return all_shared(LockLevel.NODE)

    def execute(self, plan: None) -> dict[str, object]:
        """Decide, remember, and submit the repair as a job, which looks once more.

        Returns:
            The state, the action and its reason, and the jobs that were submitted.
        """
        if not self.cluster.volume_group_name:
            raise wrong_state(
                "the cluster has no volume group; give one with 'gnt-cluster modify --vg-name'"
            )
        nodes = [
            each for each in lookup.all_nodes(self.config) if each.vm_capable and not each.offline
        ]
        before = repair.Health(volume_group_health.read(self.context.paths))
        groups = look_at_groups(self.context, self.cluster, nodes)
        decision = repair.decide(before, groups)
        if decision.action is repair.Action.REPAIR:
            node = next(each for each in nodes if each.name == decision.node)
            uncopied = disks_without_copy(self.context, self.cluster, node)
            decision = repair.decide(before, groups, uncopied)
        self.context.info(decision.line)
        logger.log(_LEVELS[decision.action], "%s", decision.line)
        if decision.health is not before:
            volume_group_health.write(self.context.paths, decision.health)
        jobs: list[tuple[bool, int]] = []
        if decision.action is repair.Action.REPAIR:
            op = OpRepairNodeStorage(
                node_name=decision.node,
                storage_type=_KIND,
                name=self.cluster.volume_group_name,
                reason=self.op.reason,
            )
            jobs = [(True, job_id) for job_id in self.context.submit_jobs([[op]])]
        return {
            "health": decision.health.value,
            "action": decision.action.value,
            "why": decision.why,
            "jobs": jobs,
        }


_LEVELS: Final = {
    repair.Action.NOTHING: logging.INFO,
    repair.Action.REMEMBER: logging.WARNING,
    repair.Action.REPAIR: logging.WARNING,
}
