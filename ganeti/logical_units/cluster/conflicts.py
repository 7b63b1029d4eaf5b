"""Conflicts of new settings with the instances, disks and groups of the cluster.

The functions compare the cluster as it is and as it would be with its objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.instance.policy import spec_of
from ganeti.logical_units.ipolicy import templates_not_enabled
from ganeti.logical_units.node.candidates import is_capable
from ganeti.objects.disk_templates import file_templates
from ganeti.objects.fill import fill_ipolicy, fill_nicparams
from ganeti.objects.instance_policy import violations
from ganeti.objects.model import Cluster, Disk, Instance, Node, NodeGroup
from ganeti.objects.nic import NicMode
from ganeti.protocol.wconfd import WConfCalls

NAMES_SHOWN_MAX: Final = 10


class ClusterObjects:
    """All objects of the cluster; each kind is read once, when it is first looked at."""

    def __init__(self, config: WConfCalls) -> None:
        self._config = config

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return lookup.all_nodes(self._config)

    @cached_property
    def groups(self) -> list[NodeGroup]:
        """All node groups."""
        return lookup.present(self._config.get_node_groups(None))

    @cached_property
    def instances(self) -> list[Instance]:
        """All instances."""
        return lookup.present(self._config.get_instances(None))

    @cached_property
    def disks(self) -> dict[str, Disk]:
        """All disks, by UUID."""
        return {disk.uuid: disk for disk in lookup.present(self._config.get_disks(None))}

    def disks_of(self, instance: Instance) -> list[Disk]:
        """Return the disks of an instance that are known."""
        return [self.disks[uuid] for uuid in instance.disks if uuid in self.disks]


def shown(names: Collection[str]) -> str:
    """Return some names in order, and how many there are besides."""
    ordered = natural_sorted(names)
    more = len(ordered) - NAMES_SHOWN_MAX
    return ", ".join(ordered[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def check_settings(before: Cluster, after: Cluster, objects: ClusterObjects) -> None:
    """Refuse settings that contradict the objects of the cluster, or each other.

    Raises:
        OpPrereqError: names the objects in the way.
    """
    _check_hypervisors(before, after, objects)
    _check_templates(before, after, objects)
    _check_policy_templates(before, after, objects.groups)
    _check_directories(before, after)
    _check_nics(before, after, objects)


def _check_hypervisors(before: Cluster, after: Cluster, objects: ClusterObjects) -> None:
    gone = set(map(str, before.enabled_hypervisors)) - set(map(str, after.enabled_hypervisors))
    if not gone:
        return
    users = [instance.name for instance in objects.instances if instance.hypervisor in gone]
    _refuse_if_used("hypervisor(s)", gone, users)


def _check_templates(before: Cluster, after: Cluster, objects: ClusterObjects) -> None:
    left = set(map(str, after.enabled_disk_templates))
    gone = set(map(str, before.enabled_disk_templates)) - left
    if not gone:
        return
    users = [
        instance.name
        for instance in objects.instances
        if gone & ({str(disk.dev_type) for disk in objects.disks_of(instance)} or {"diskless"})
    ]
    _refuse_if_used("disk template(s)", gone, users)


def _refuse_if_used(what: str, names: set[str], users: list[str]) -> None:
    if users:
        raise OpPrereqError(
            f"the {what} {', '.join(sorted(names))} cannot be disabled, there are instances that"
            f" use them: {shown(users)}",
            ErrorCode.STATE,
        )


def _check_policy_templates(before: Cluster, after: Cluster, groups: Sequence[NodeGroup]) -> None:
    """A policy must not allow a disabled template; one that did before may go on."""
    policies = [("the cluster", before.ipolicy, after.ipolicy)]
    policies += [(f"node group {group.name!r}", group.ipolicy, group.ipolicy) for group in groups]
    for whose, policy_before, policy in policies:
        found = templates_not_enabled(policy, after)
        if found and found != templates_not_enabled(policy_before, before):
            raise OpPrereqError(
                f"the instance policy of {whose} allows the disk template(s) {', '.join(found)},"
                " which would not be enabled; change --ipolicy-disk-templates as well"
            )


def _check_directories(before: Cluster, after: Cluster) -> None:
    """A template that keeps disks in files needs a directory."""
    for template in file_templates():
        field = template.traits.directory_setting
        if template not in after.enabled_disk_templates or getattr(after, field):
            continue
        if template not in before.enabled_disk_templates or getattr(before, field):
            raise OpPrereqError(
                f"the disk template {template!s} is enabled and needs a directory:"
                f" --{field.replace('_', '-')}"
            )


def _check_nics(before: Cluster, after: Cluster, objects: ClusterObjects) -> None:
    """Defaults of NICs must suit the NICs that use them."""
    if before.nicparams == after.nicparams:
        return
    problems = [
        f"{instance.name}: {problem}"
        for instance in objects.instances
        for problem in _nic_problems(before, after, instance)
    ]
    if problems:
        raise OpPrereqError(
            f"the network interface parameters do not suit these instances: {shown(problems)}",
            ErrorCode.STATE,
        )


def _nic_problems(before: Cluster, after: Cluster, instance: Instance) -> Iterator[str]:
    for index, nic in enumerate(instance.nics):
        old, new = fill_nicparams(before, nic), fill_nicparams(after, nic)
        if old == new or nic.network:
            continue
        if new["mode"] == NicMode.ROUTED and not nic.ip:
            yield f"nic/{index} has no IP address, mode routed needs one"
        elif new["mode"] == NicMode.ROUTED and new["vlan"]:
            yield f"nic/{index} would have a VLAN, mode routed has none"
        elif new["mode"] == NicMode.BRIDGED and not new["link"]:
            yield f"nic/{index} would have no link, mode bridged needs one"


def remarks(before: Cluster, after: Cluster, objects: ClusterObjects) -> Iterator[str]:
    """Yield remarks to the operator about settings that are accepted."""
    for template in file_templates():
        field = template.traits.directory_setting
        old, new = getattr(before, field), getattr(after, field)
        if new and new != old and template not in after.enabled_disk_templates:
            yield f"{field} is set, but the disk template {template!s} is not enabled"
        elif new != old and _has_template(objects, template):
            yield (f"{field} changes for new disks only; those of existing instances stay in {old}")
    if after.candidate_pool_size > before.candidate_pool_size:
        possible = sum(map(is_capable, objects.nodes))
        if after.candidate_pool_size > possible:
            yield (
                f"the candidate pool is to have {after.candidate_pool_size} nodes, but only"
                f" {possible} can be master candidates now"
            )
    if newly := newly_violating(before, after, objects):
        yield f"with the new policy these instances violate it: {shown(newly)}"


def _has_template(objects: ClusterObjects, template: str) -> bool:
    return any(disk.dev_type == template for disk in objects.disks.values())


def newly_violating(before: Cluster, after: Cluster, objects: ClusterObjects) -> list[str]:
    """Return the names of the instances that fit their group's policy now, but no longer would."""
    if (before.ipolicy, before.beparams) == (after.ipolicy, after.beparams):
        return []
    now = violators(before, objects, objects.groups)
    return [name for name in violators(after, objects, objects.groups) if name not in now]


def violators(
    cluster: Cluster,
    objects: ClusterObjects,
    groups: Sequence[NodeGroup],
    moved: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the names of the instances on nodes of these groups that do not fit the policy there.

    Args:
        moved: {node UUID: group UUID} of nodes that are to be in another group.
    """
    by_uuid = {str(group.uuid): group for group in groups}
    homes = {str(node.uuid): moved.get(node.uuid, node.group) for node in objects.nodes}
    found = []
    for instance in objects.instances:
        group = by_uuid.get(homes.get(instance.primary_node, ""))
        if group is None:
            continue
        spec = spec_of(cluster, instance, objects.disks_of(instance))
        if violations(fill_ipolicy(cluster, group), spec):
            found.append(instance.name)
    return found
