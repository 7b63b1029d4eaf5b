"""Problems of volume groups, physical and logical volumes.  Pure, over the answers of the nodes.

Source: node_rpc.json, "node_verify_checks"; constants.json, "verify_error_codes_with_item_kind",
PART_MARGIN, MIN_VG_SIZE.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.text import shown
from ganeti.logical_units.cluster.block_storage import MIN_GROUP_MIB
from ganeti.logical_units.cluster.findings import Finding, Severity, as_mapping, as_sequence
from ganeti.logical_units.cluster.group_findings import Guest
from ganeti.logical_units.instance.storage.lvm_disks import volumes_of
from ganeti.objects.disk_templates import StorageType, volume_of_kept
from ganeti.objects.model import Cluster, Disk, Node, NodeGroup
from ganeti.objects.verify_errors import VerifyErrorCode

_Code = VerifyErrorCode
_SIZE_MARGIN: Final = 0.01  # PART_MARGIN: physical volumes that differ by less are of one size
# Names that Ganeti gives; while a job makes disks, these are not recorded yet.
_OWN_NAME: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\..*")


def checks(cluster: Cluster, *, exclusive: bool) -> dict[str, object]:
    """Return the checks of LVM that nodes are asked for, with arguments; none without a group.

    Args:
        exclusive: the nodes give whole physical volumes to their instances.
    """
    group = cluster.volume_group_name
    if not group:
        return {}
    asked: dict[str, object] = {"vglist": None, "lvlist": group, "pvlist": [group]}
    return {**asked, "exclusive-pvs": True} if exclusive else asked


def judge_groups(node: Node, group: str, answer: Mapping[str, object]) -> Iterator[Finding]:
    """Say whether a node lacks the cluster's volume group, or has too small or a broken one."""
    sizes = answer.get("vglist")
    if isinstance(sizes, str):
        yield Finding(_Code.ENODELVM, node.name, f"cannot look at volume groups: {sizes}")
    elif isinstance(sizes, Mapping):
        yield from _judge_size(node.name, group, sizes)
    for row in map(as_mapping, as_sequence(answer.get("pvlist"))):
        name, attributes = str(row.get("name")), str(row.get("attributes"))
        if attributes[2:3] == "m":
            text = (
                f"a physical volume of volume group {group!r} is missing; see 'gnt-node"
                f" list-storage -t {StorageType.LVM_PV} {node.name}'; if it is lost: 'gnt-node"
                f" repair-storage {node.name} {StorageType.LVM_VG} {group}'"
            )
            yield Finding(_Code.ENODELVM, node.name, text)
        if ":" in name:
            text = f"physical volume {name!r} of {group!r} has a colon in its name"
            yield Finding(_Code.ENODELVM, node.name, text)
    for pair in as_sequence(answer.get("exclusive-pvs")):
        match pair:
            case [str(name), [*volumes]]:
                text = f"several volumes share physical volume {name}: {shown(map(str, volumes))}"
                yield Finding(_Code.ENODELVM, node.name, text)


def _judge_size(node_name: str, group: str, sizes: Mapping[object, object]) -> Iterator[Finding]:
    size_mib = sizes.get(group)
    if not isinstance(size_mib, int | float):
        there = ", ".join(sorted(map(str, sizes))) or "none"
        text = f"has no volume group {group!r} (it has: {there}); make it there with 'vgcreate'"
        yield Finding(_Code.ENODELVM, node_name, text)
    elif size_mib < MIN_GROUP_MIB:
        text = f"volume group {group!r} has {size_mib:.0f} MiB, less than {MIN_GROUP_MIB} MiB"
        yield Finding(_Code.ENODELVM, node_name, text, Severity.WARNING)


def judge_sizes(group: NodeGroup, answers: Mapping[str, Mapping[str, object]]) -> Iterator[Finding]:
    """Say whether physical volumes of a node group that gives them out whole differ in size."""
    sizes = [
        (size, node_name)
        for node_name, answer in answers.items()
        for row in map(as_mapping, as_sequence(answer.get("pvlist")))
        if isinstance(size := row.get("size"), int | float)
    ]
    if sizes and (smallest := min(sizes))[0] < (largest := max(sizes))[0] * (1 - _SIZE_MARGIN):
        text = (
            f"physical volumes differ in size: {smallest[0]:.0f} MiB on node {smallest[1]},"
            f" {largest[0]:.0f} MiB on node {largest[1]}; exclusive storage needs equal ones"
        )
        yield Finding(_Code.EGROUPDIFFERENTPVSIZE, group.name, text)


def judge_volumes(
    cluster: Cluster,
    guests: Sequence[Guest],
    disks: Sequence[Disk],
    answers: Mapping[str, Mapping[str, object]],
    *,
    node_names: Mapping[str, str],
    is_busy: bool,
) -> Iterator[Finding]:
    """Say which volumes of instances are missing, and which volumes belong to nothing.

    Args:
        guests: instances that no job works on.
        disks: all disks of the cluster.
        answers: those of the nodes, by their names.
        is_busy: jobs work on instances, so there may be volumes that are not recorded yet.
    """
    found: dict[str, Collection[str]] = {}
    for name, answer in answers.items():
        volumes = answer.get("lvlist")
        if isinstance(volumes, str):
            yield Finding(_Code.ENODELVM, name, f"cannot look at logical volumes: {volumes}")
        elif isinstance(volumes, Mapping):
            found[name] = [str(path) for path in volumes]
    for guest in guests:
        for uuid, path, disk in volumes_of(guest.disks):
            name = node_names.get(uuid, uuid)
            if name in found and path not in found[name] and _is_of(cluster, path):
                index = guest.instance.disks.index(disk)  # type: ignore[arg-type]  # its UUID
                text = (
                    f"volume {path} of disk/{index} is missing on node {name}; see 'gnt-instance"
                    f" recreate-disks --disk {index} {guest.name}' once its data is given up"
                )
                yield Finding(_Code.EINSTANCEMISSINGDISK, guest.name, text)
    owned = {(node_names.get(uuid), path) for uuid, path, _disk in volumes_of(disks)}
    for name, paths in found.items():
        for path in sorted(paths):
            is_being_made = is_busy and _OWN_NAME.fullmatch(path.partition("/")[2])
            is_owned = (name, volume_of_kept(path)) in owned
            if is_owned or is_being_made or _is_reserved(cluster, path):
                continue
            text = (
                f"volume {path} belongs to no instance; 'lvremove {path}' there removes it, and"
                " 'gnt-cluster modify --reserved-lvs' lets it be"
            )
            yield Finding(_Code.ENODEORPHANLV, name, text)


def _is_of(cluster: Cluster, path: str) -> bool:
    return path.partition("/")[0] == cluster.volume_group_name


def _is_reserved(cluster: Cluster, path: str) -> bool:
    return any(re.fullmatch(pattern, path) for pattern in cluster.reserved_lvs)
