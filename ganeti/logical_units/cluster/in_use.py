"""Whether new settings of the cluster fit what is in it: plain decisions over plain values.

Everything here compares the cluster as it would be with its instances, disks and groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.logical_units.instance.policy import spec_of
from ganeti.logical_units.ipolicy import templates_not_enabled
from ganeti.logical_units.node.candidates import is_capable
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.fill import fill_ipolicy, fill_nicparams
from ganeti.objects.instance_policy import violations
from ganeti.objects.nic_modes import NicMode

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup

NAMES_SHOWN_MAX: Final = 10
STORAGE_DIRECTORIES: Final[Mapping[DiskTemplate, str]] = {
    DiskTemplate.FILE: "file_storage_dir",
    DiskTemplate.SHAREDFILE: "shared_file_storage_dir",
}


class Inhabitants(Protocol):
    """What is in a cluster besides its settings; read only as far as somebody looks."""

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes."""

    @property
    def groups(self) -> Sequence[NodeGroup]:
        """All node groups."""

    @property
    def instances(self) -> Sequence[Instance]:
        """All instances."""

    @property
    def disks(self) -> Mapping[str, Disk]:
        """All disks, by UUID."""


def disks_of(inside: Inhabitants, instance: Instance) -> list[Disk]:
    """Return the disks of an instance that are known."""
    return [inside.disks[uuid] for uuid in instance.disks if uuid in inside.disks]


def shown(names: Collection[str]) -> str:
    """Return some names in order, and how many there are besides."""
    ordered = natural_sorted(names)
    more = len(ordered) - NAMES_SHOWN_MAX
    return ", ".join(ordered[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def check_settings(before: Cluster, after: Cluster, inside: Inhabitants) -> None:
    """Refuse settings that what is in the cluster contradicts, or that contradict each other.

    Raises:
        OpPrereqError: names what is in the way.
    """
    _check_hypervisors(before, after, inside)
    _check_templates(before, after, inside)
    _check_policy_templates(before, after, inside.groups)
    _check_directories(before, after)
    _check_nics(before, after, inside)


def _check_hypervisors(before: Cluster, after: Cluster, inside: Inhabitants) -> None:
    gone = set(map(str, before.enabled_hypervisors)) - set(map(str, after.enabled_hypervisors))
    if not gone:
        return
    users = [instance.name for instance in inside.instances if instance.hypervisor in gone]
    _refuse_if_used("hypervisor(s)", gone, users)


def _check_templates(before: Cluster, after: Cluster, inside: Inhabitants) -> None:
    left = set(map(str, after.enabled_disk_templates))
    gone = set(map(str, before.enabled_disk_templates)) - left
    if not gone:
        return
    users = [
        instance.name
        for instance in inside.instances
        if gone & ({str(disk.dev_type) for disk in disks_of(inside, instance)} or {"diskless"})
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
    """A policy must not allow what is disabled; one that did before may go on."""
    policies = [("the cluster", before.ipolicy, after.ipolicy)]
    policies += [(f"node group {group.name!r}", group.ipolicy, group.ipolicy) for group in groups]
    for whose, policy_before, policy in policies:
        found = templates_not_enabled(policy, after)
        if found and found != templates_not_enabled(policy_before, before):
            raise OpPrereqError(
                f"the instance policy of {whose} allows the disk template(s) {', '.join(found)},"
                " which would not be enabled; change --ipolicy-disk-templates as well",
                ErrorCode.INVAL,
            )


def _check_directories(before: Cluster, after: Cluster) -> None:
    """A template that keeps disks in files needs a directory."""
    for template, field in STORAGE_DIRECTORIES.items():
        if template not in after.enabled_disk_templates or getattr(after, field):
            continue
        if template not in before.enabled_disk_templates or getattr(before, field):
            raise OpPrereqError(
                f"the disk template {template!s} is enabled and needs a directory:"
                f" --{field.replace('_', '-')}",
                ErrorCode.INVAL,
            )


def _check_nics(before: Cluster, after: Cluster, inside: Inhabitants) -> None:
    """Defaults of NICs must suit the NICs that use them."""
    if before.nicparams == after.nicparams:
        return
    problems = [
        f"{instance.name}: {problem}"
        for instance in inside.instances
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


def remarks(before: Cluster, after: Cluster, inside: Inhabitants) -> Iterator[str]:
    """Say what the operator should know of settings that are accepted."""
    for template, field in STORAGE_DIRECTORIES.items():
        old, new = getattr(before, field), getattr(after, field)
        if new and new != old and template not in after.enabled_disk_templates:
            yield f"{field} is set, but the disk template {template!s} is not enabled"
        elif new != old and _has_template(inside, template):
            yield (f"{field} changes for new disks only; those of existing instances stay in {old}")
    if after.candidate_pool_size > before.candidate_pool_size:
        possible = sum(map(is_capable, inside.nodes))
        if after.candidate_pool_size > possible:
            yield (
                f"the candidate pool is to have {after.candidate_pool_size} nodes, but only"
                f" {possible} can be master candidates now"
            )
    if newly := newly_violating(before, after, inside):
        yield f"with the new policy these instances violate it: {shown(newly)}"


def _has_template(inside: Inhabitants, template: str) -> bool:
    return any(disk.dev_type == template for disk in inside.disks.values())


def newly_violating(before: Cluster, after: Cluster, inside: Inhabitants) -> list[str]:
    """Return the names of the instances that fit their group's policy now, but would not."""
    if (before.ipolicy, before.beparams) == (after.ipolicy, after.beparams):
        return []
    now = violators(before, inside, inside.groups)
    return [name for name in violators(after, inside, inside.groups) if name not in now]


def violators(
    cluster: Cluster,
    inside: Inhabitants,
    groups: Sequence[NodeGroup],
    moved: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the names of the instances on nodes of these groups that do not fit the policy there.

    Args:
        moved: {node UUID: group UUID} where that is another one than the configuration says.
    """
    by_uuid = {str(group.uuid): group for group in groups}
    homes = {str(node.uuid): moved.get(node.uuid, node.group) for node in inside.nodes}
    found = []
    for instance in inside.instances:
        group = by_uuid.get(homes.get(instance.primary_node, ""))
        if group is None:
            continue
        spec = spec_of(cluster, instance, disks_of(inside, instance))
        if violations(fill_ipolicy(cluster, group), spec):
            found.append(instance.name)
    return found
