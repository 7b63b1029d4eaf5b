"""Disks as asked for in an opcode, checked and named, whatever their template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.base.ids import DiskUuid
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.parameters import check_enabled, device_name
from ganeti.logical_units.instance.storage.planner import (
    AdoptedDisks,
    DiskSettings,
    ExternalDisks,
    FileDisks,
    FilePlace,
    NewDisk,
    Planner,
)
from ganeti.objects.disk_templates import (
    DISKS_MAX,
    DiskMode,
    DiskTemplate,
    supported_templates,
    traits_of,
)
from ganeti.objects.model import Cluster, Disk, Node

# Templates whose disks have settings, names or checks of their own.
_PLANNERS: Final[Mapping[DiskTemplate, type[Planner]]] = {
    DiskTemplate.BLOCKDEV: AdoptedDisks,
    DiskTemplate.EXT: ExternalDisks,
    DiskTemplate.FILE: FileDisks,
    DiskTemplate.SHAREDFILE: FileDisks,
}


def planner_of(template: str) -> Planner:
    """Return how the disks of a template are planned."""
    known = DiskTemplate(template)
    return _PLANNERS.get(known, Planner)(known)


def choose_template(cluster: Cluster, asked: str | None) -> DiskTemplate:
    """Return the disk template asked for, or the cluster's first.

    Raises:
        OpPrereqError: it is not enabled, or not supported.
    """
    template = asked or cluster.enabled_disk_templates[0]
    enabled = [str(name) for name in cluster.enabled_disk_templates]
    check_enabled("disk template", template, enabled, "--enabled-disk-templates")
    if not traits_of(template).is_supported:
        known = ", ".join(supported_templates())
        raise NotSupportedError(
            f"disk template {str(template)!r} is not supported yet; supported are: {known}"
        )
    return DiskTemplate(template)


def plan_disks(template: DiskTemplate, settings: Sequence[DiskSettings]) -> list[NewDisk]:
    """Check the disks asked for.

    Raises:
        OpPrereqError: one of them cannot be; names it by its index.
    """
    if not template.traits.has_disks and settings:
        raise OpPrereqError(
            "an instance with disk template 'diskless' cannot have disks; give another template"
            " with -t, or no disks"
        )
    if template.traits.has_disks and not settings:
        raise OpPrereqError(
            f"disk template {str(template)!r} needs at least one disk (--disk 0:size=...)"
        )
    if len(settings) > DISKS_MAX:
        raise OpPrereqError(
            f"an instance can have at most {DISKS_MAX} disks, {len(settings)} were given",
            ErrorCode.NORES,
        )
    planned = [plan_disk(template, f"disk/{index}", disk) for index, disk in enumerate(settings)]
    names = [disk.name for disk in planned if disk.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise OpPrereqError(f"several disks are to be called {name!r}", ErrorCode.NOTUNIQUE)
    return planned


def plan_disk(template: DiskTemplate, what: str, settings: DiskSettings) -> NewDisk:
    """Check one disk.

    Args:
        what: its name in errors.
    """
    planner = planner_of(template)
    planner.check_settings(what, settings)
    new = NewDisk(
        size_mib=planner.size_mib(what, settings),
        mode=disk_mode(what, settings.get("mode", DiskMode.RW.value)),
        name=device_name(what, settings.get("name")),
    )
    return planner.plan(what, settings, new)


def disk_mode(what: str, mode: object) -> DiskMode:
    """Return whether an instance may write.

    Raises:
        OpPrereqError: it is neither rw nor ro.
    """
    try:
        return DiskMode(str(mode))
    except ValueError as err:
        raise OpPrereqError(f"{what}: the mode must be rw or ro, got {mode!r}") from err


def nodes_of(template: DiskTemplate, node_uuid: str) -> list[str]:
    """Return the nodes that hold a disk: none in particular if all can reach it."""
    return [] if template.traits.shared else [node_uuid]


def describe_disk(
    new: NewDisk,
    index: int,
    template: DiskTemplate,
    place: FilePlace | None,
    node_uuid: str,
    new_uuid: Callable[[], str],
    *,
    uuid: str | None = None,
) -> Disk:
    """Return the disk object, with the identity of its device decided.

    Args:
        uuid: that of the disk whose place it takes.
    """
    disk = Disk(
        uuid=DiskUuid(uuid or new_uuid()),
        logical_id=[],
        dev_type=template.value,
        iv_name=f"disk/{index}",
        size=new.size_mib,
        mode=new.mode,
        name=new.name,
        params=dict(new.params or {}),
        nodes=nodes_of(template, node_uuid),
        serial_no=1,
    )
    name = f"{new_uuid()}.{template.value}.disk{index}"
    return planner_of(template).make(disk, new, name, place)


def check_on_node(context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
    """Let the node check disks that come from outside, before anything is made.

    Returns:
        The disks, those that exist already with their sizes.

    Raises:
        OpPrereqError: one is not there, or is taken, or a parameter is not its provider's.
    """
    checked = list(disks)
    for template in dict.fromkeys(disk.dev_type for disk in disks):
        checked = planner_of(template).check_on_node(context, node, checked)
    return checked
