"""The cluster's volume group, and the program that DRBD calls on its nodes.

Source: opcodes.json, OP_CLUSTER_SET_PARAMS; constants.json, MIN_VG_SIZE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units.context import JobContext
from ganeti.objects.disk_templates import DiskTemplate, StorageType, traits_of
from ganeti.objects.model import Cluster, Node
from ganeti.protocol.node_calls import NodeCalls

MIN_GROUP_MIB: Final = 20480
_GROUP_NAME: Final = re.compile("[a-zA-Z0-9+_.][a-zA-Z0-9+_.-]*")  # lvm(8), "Valid names"


def of_volumes(templates: Iterable[str]) -> list[str]:
    """Return those of the templates whose disks are made of logical volumes."""
    return [name for name in templates if traits_of(name).storage is StorageType.LVM_VG]


def check_settings(before: Cluster, after: Cluster) -> None:
    """Refuse settings that leave an enabled template without what it needs.

    Raises:
        OpPrereqError: names the option that is missing.
    """
    for field, option, needing in (
        ("volume_group_name", "--vg-name", of_volumes),
        ("drbd_usermode_helper", "--drbd-usermode-helper", of_drbd),
    ):
        if getattr(after, field):
            continue
        names = needing(after.enabled_disk_templates)
        if names and (getattr(before, field) or names != needing(before.enabled_disk_templates)):
            raise OpPrereqError(f"the disk template {names[0]} is enabled and needs {option}")


def of_drbd(templates: Iterable[str]) -> list[str]:
    """Return those of the templates whose disks DRBD mirrors."""
    return [name for name in templates if name == DiskTemplate.DRBD]


def volume_group(name: str) -> str | None:
    """Return the name of a volume group; None, as it is stored, for none."""
    if name and (_GROUP_NAME.fullmatch(name) is None or name in (".", "..")):
        raise OpPrereqError(f"vg_name: {name!r} cannot be the name of a volume group")
    return name or None


def helper(path: str) -> str | None:
    """Return the path of a program that DRBD calls; None, as it is stored, for none."""
    if path and not path.startswith("/"):
        raise OpPrereqError(f"drbd_helper: {path!r} is not an absolute path")
    return path or None


def group_problem(name: str, size_mib: int | None) -> str:
    """Return what is wrong with a volume group of a node, "" if nothing; None: there is none."""
    if size_mib is None:
        return f"there is no volume group {name!r}; 'vgs' lists those that there are"
    if size_mib < MIN_GROUP_MIB:
        return f"volume group {name!r} has {size_mib} MiB, and needs {MIN_GROUP_MIB}"
    return ""


def helper_problem(wanted: str, found: str) -> str:
    """Return what is wrong with the program that DRBD calls on a node, "" if nothing."""
    if found == wanted:
        return ""
    return f"DRBD calls {found!r}, not {wanted!r}: 'modprobe drbd usermode_helper={wanted}'"


def check_nodes(
    context: JobContext, before: Cluster, after: Cluster, nodes: Sequence[Node]
) -> None:
    """Refuse a volume group or a helper that nodes do not have.

    Raises:
        OpPrereqError: names the nodes, and what each has instead.
    """
    problems = []
    if (group := after.volume_group_name) and group != before.volume_group_name:
        kind: tuple[str, list[object]] = (StorageType.LVM_VG, [])
        for node, units in context.nodes.call_all(
            NodeCalls.storage_list, nodes, *kind, group, ["size"]
        ).items():
            sizes = [size for (size,) in units.payload or [] if isinstance(size, int)]
            problems.append((node, units.error or group_problem(group, next(iter(sizes), None))))
    if (helper := after.drbd_usermode_helper) and helper != before.drbd_usermode_helper:
        for node, found in context.nodes.call_all(NodeCalls.drbd_helper, nodes).items():
            problems.append((node, found.error or helper_problem(helper, found.payload)))
    if said := [f"node {node}: {problem}" for node, problem in problems if problem]:
        raise OpPrereqError("; ".join(said), ErrorCode.ENVIRON)
