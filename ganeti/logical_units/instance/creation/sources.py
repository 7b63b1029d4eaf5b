"""An instance made from an export, or from a forthcoming one: settings come from there.

Parameters of the opcode come first; the settings that it leaves out are as they were when the
instance was exported, or planned.

``gnt-instance add --forthcoming`` records an instance with everything that the configuration can
keep for it (name, node, MAC and IP addresses) and asks no node for more than an opinion;
``gnt-instance add --commit`` makes it.  A job that dies while it fills the disks of a new instance
leaves a forthcoming one as well, with disks that are there already: committing it begins anew.

Source: opcodes.json, OP_INSTANCE_CREATE "forthcoming", "commit"; config.json, "Instance", "Disk".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.backup.chains import disk_in_chain, points_of, require_point
from ganeti.logical_units.backup.exports import EXPORT_DIR, read_description, require_export
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.copying import (
    Place,
    check_compression,
    copy_disk,
    disk_by_script,
    dump_file,
)
from ganeti.logical_units.instance.storage.planner import DEV_TYPE, SIZE_AUTO
from ganeti.logical_units.instance.storage.planning import on_nodes, planner_of
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.disk_templates import DiskTemplate, binding_template
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor, lending_nothing
from ganeti.objects.model import AdminState, Disk, Instance, Node
from ganeti.objects.nic import NIC
from ganeti.objects.parameters import cluster_wide_only
from ganeti.objects.record import PrivateParams
from ganeti.objects.tags import REHEARSAL_TAG, inherited
from ganeti.opcodes.instance import InstanceCreateMode, OpInstanceCreate
from ganeti.protocol.export_description import DumpedDisk, ExportDescription, point_directory

_OF_CONNECTION: Final = ("mode", "link", "vlan")  # NICs in a network have them from there


@dataclass(frozen=True, slots=True)
class Export:
    """An export that an instance is made from; ``path`` is its directory on the node.

    ``first`` is the number of the point at which its chain begins now.
    """

    node: Node
    path: str
    description: ExportDescription
    first: int = 0


def find_export(context: JobContext, op: OpInstanceCreate) -> Export:
    """Find the export that an opcode means; without a node all of them are asked.

    Raises:
        OpPrereqError: there is none, or its description is damaged.
    """
    check_compression(op.compress)
    path = op.src_path or op.instance_name
    key = op.src_node_uuid or op.src_node
    if key is not None:
        node = lookup.require_node(context.config, key)
    elif "/" in path:
        raise OpPrereqError(f"give the node that has the export {path!r}, with --src-node")
    else:
        nodes = require_export(context, path)
        if len(nodes) > 1:
            names = ", ".join(node.name for node in nodes)
            raise OpPrereqError(
                f"nodes {names} have an export {path!r} each; name one with --src-node",
                ErrorCode.NOTUNIQUE,
            )
        node = nodes[0]
    directory = path if "/" in path else f"{EXPORT_DIR}/{path}"
    points = points_of(context, node, path)
    if op.src_point is not None:
        require_point(points, op.src_point, f"export {path!r} on node {node.name!r}")
    if len(points) < 2:
        return Export(node, directory, read_description(context, node, path))
    first, last = points[0].number, points[-1].number
    number = last if op.src_point is None else op.src_point
    at_point = point_directory(directory, number, first)
    return Export(node, directory, read_description(context, node, at_point), first)


def _filled(
    op: OpInstanceCreate,
    old: Instance | ExportDescription,
    hypervisor: Hypervisor,
    disk_template: DiskTemplate,
    **others: object,
) -> OpInstanceCreate:
    """Return the opcode; parameters that it leaves out, and others given, come from elsewhere.

    A rehearsal gets nothing from the node that the original may be using.
    """
    hvparams = old.hvparams if hypervisor == old.hypervisor else {}
    shared = cluster_wide_only(hvparams, HVPARAMS[hypervisor])
    own = lending_nothing(hypervisor) if REHEARSAL_TAG in op.tags else {}
    limits = ("minmem", "maxmem") if "memory" in op.beparams else ()  # "memory" means both
    private = PrivateParams().merged(old.osparams_private)
    return replace(
        op,
        hypervisor=hypervisor,
        hvparams={**_without(hvparams, shared), **own, **op.hvparams},
        beparams={**_without(old.beparams, limits), **op.beparams},
        os_type=op.os_type or old.os or None,
        osparams={**old.osparams, **op.osparams},
        osparams_private=private.merged(op.osparams_private or {}),
        disk_template=disk_template,
        tags=op.tags or list(old.tags),
        **others,
    )


def _without(params: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: value for name, value in params.items() if name not in names}


def filled_from_export(op: OpInstanceCreate, export: Export) -> OpInstanceCreate:
    """Return the opcode; parameters that it leaves out come from the export.

    Raises:
        OpPrereqError: the export has no such setting either, or one that means nothing here.
    """
    found = export.description
    hypervisor = op.hypervisor or _hypervisor(found)
    template = op.disk_template or _template(found)
    nics = op.nics or ([] if op.no_nics else _exported_nics(op, found))
    return _filled(op, found, hypervisor, template, disks=_disks(op, found), nics=nics)


def tags_left_out(op: OpInstanceCreate, export: Export | None, name: str) -> list[str]:
    """Return the tags of the export that the new instance does not get.

    Args:
        op: the opcode as it was submitted; tags that it names are all taken.
    """
    if export is None or op.tags:
        return []
    found = export.description
    return inherited(found.tags, is_other=name != found.name)[1]


def _hypervisor(found: ExportDescription) -> Hypervisor:
    try:
        return Hypervisor(found.hypervisor)
    except ValueError as err:
        raise OpPrereqError(
            f"the export names hypervisor {found.hypervisor!r}, which means nothing here; give one"
            " with -H"
        ) from err


def _template(found: ExportDescription) -> DiskTemplate:
    templates = [disk.dev_type for disk in found.disks if disk.dev_type]
    try:
        return DiskTemplate(binding_template(templates) if templates else found.disk_template)
    except ValueError as err:
        raise OpPrereqError("the export names no disk template; give one with -t") from err


def _disks(op: OpInstanceCreate, found: ExportDescription) -> list[dict[str, object]]:
    """Return the settings of the disks: at least as large as those of the export, and as many.

    Raises:
        OpPrereqError: fewer or smaller ones are wanted.
    """
    exported: list[dict[str, object]] = [
        {
            "size": disk.size_mib,
            **({"name": disk.name} if disk.name else {}),
            **({DEV_TYPE: disk.dev_type} if disk.dev_type and not op.disk_template else {}),
        }
        for disk in found.disks
    ]
    if not op.disks:
        return exported
    if len(op.disks) < len(exported):
        raise OpPrereqError(
            f"the export has {len(exported)} disk(s), {len(op.disks)} given: none may be left out"
        )
    for index, (wanted, disk) in enumerate(zip(op.disks, found.disks, strict=False)):
        size = wanted.get("size")
        if isinstance(size, int) and size < disk.size_mib:
            raise OpPrereqError(
                f"disk {index} had {disk.size_mib} MiB when it was exported, {size} MiB are too few"
            )
    filled = [
        {**old, **new, "size": old["size"]} if new.get("size") == SIZE_AUTO else {**old, **new}
        for old, new in zip(exported, op.disks, strict=False)
    ]
    return filled + [dict(new) for new in op.disks[len(exported) :]]


def _exported_nics(op: OpInstanceCreate, found: ExportDescription) -> list[dict[str, object]]:
    """Return the settings of the NICs; another instance than the exported one gets new MACs."""
    always = () if op.instance_name == found.name else ("mac",)
    return [
        _without(nic, (*always, *(_OF_CONNECTION if nic.get("network") else ())))
        for nic in found.nics
    ]


def restore(context: JobContext, view: InstanceView, export: Export, compress: str) -> None:
    """Fill the disks from the export.

    Raises:
        OpExecError: one was not filled completely.
    """
    for index, disk in enumerate(export.description.disks):
        if not disk.dump:
            context.warn(f"disk {index} was not dumped when the instance was exported, it is empty")
            continue
        context.check_canceled()
        copy_disk(
            context,
            view,
            index,
            source=_dump_of(export, disk),
            target=disk_by_script(view, index),
            compress=compress,
        )


def _dump_of(export: Export, disk: DumpedDisk) -> Place:
    """Return the file of a disk, or those that it is put together from."""
    if disk.root:
        return disk_in_chain(export.node, export.path, export.description.number, disk.dump)
    return dump_file(export.node, f"{export.path}/{disk.dump}", disk.sha256)


def check_options(op: OpInstanceCreate) -> None:
    """Refuse options that contradict each other.

    Raises:
        OpPrereqError: names them.
    """
    name = op.instance_name
    if op.forthcoming and op.commit:
        raise OpPrereqError(
            f"instance {name!r}: --forthcoming plans and --commit makes it; give one of them"
        )
    if (op.forthcoming or op.commit) and op.mode is not InstanceCreateMode.CREATE:
        raise OpPrereqError(
            f"instance {name!r}: only new instances can be forthcoming, not imported ones"
        )


def find_planned(context: JobContext, name: str, uuid: str | None = None) -> InstanceView:
    """Return the forthcoming instance that is to be made.

    Raises:
        OpPrereqError: there is no such instance, or it is a real one already.
    """
    planned = InstanceView.of(lookup.require_instance_context(context.config, name, uuid))
    if not planned.instance.forthcoming:
        raise wrong_state(
            f"instance {name!r} is not forthcoming, so it cannot be committed: it was made already"
        )
    return planned


def still_planned(context: JobContext, planned: InstanceView) -> InstanceView:
    """Return the forthcoming instance again, as it is now that it is locked.

    Raises:
        OpPrereqError: it was made, or changed, since it was read.
    """
    now = find_planned(context, planned.instance.name, planned.instance.uuid)
    if now.instance.serial_no != planned.instance.serial_no:
        raise wrong_state(f"instance {planned.instance.name!r} was changed meanwhile; try again")
    return now


def filled_from_planned(op: OpInstanceCreate, planned: InstanceView) -> OpInstanceCreate:
    """Return the opcode; parameters that it leaves out come from the planned instance."""
    old = planned.instance
    hypervisor = op.hypervisor or Hypervisor(old.hypervisor)
    template = op.disk_template or DiskTemplate(binding_template(planned.templates))
    has_place = op.pnode or op.pnode_uuid or op.iallocator
    node_uuid = op.pnode_uuid if has_place else old.primary_node
    second = op.snode_uuid
    if not (has_place or op.snode or second) and planned.needs_own_nodes:
        second = next((node.uuid for node in planned.nodes[1:]), None)
    nics = op.nics or ([] if op.no_nics else [_nic_settings(nic) for nic in old.nics])
    return _filled(
        op, old, hypervisor, template, pnode_uuid=node_uuid, snode_uuid=second, nics=nics
    )


def with_planned_disks(op: OpInstanceCreate, planned: InstanceView | None) -> OpInstanceCreate:
    """Return the opcode as an allocator needs it: with the planned disks, if it keeps them."""
    if planned is None or not keeps_disks(op, planned):
        return op
    settings = [
        {**planner_of(disk.dev_type).settings_of(disk), DEV_TYPE: disk.dev_type}
        for disk in planned.disks
    ]
    return replace(op, disks=settings)


def keeps_disks(op: OpInstanceCreate, planned: InstanceView) -> bool:
    """Tell whether the disks are to be as planned."""
    return not op.disks and op.disk_template == binding_template(planned.templates)


def _nic_settings(nic: NIC) -> dict[str, str]:
    """Return the settings of a NIC as they are asked for; a network brings its own parameters."""
    own = {} if nic.network else {name: nic.nicparams.get(name) for name in _OF_CONNECTION}
    settings = {"mac": nic.mac, "ip": nic.ip, "network": nic.network, "name": nic.name, **own}
    return {name: str(value) for name, value in settings.items() if value}


def planned_disks(
    op: OpInstanceCreate, planned: InstanceView, nodes: Sequence[Node]
) -> list[Disk] | None:
    """Return the disks as planned; None if others are wanted."""
    if not keeps_disks(op, planned):
        return None
    return [on_nodes(replace(disk, forthcoming=False), nodes) for disk in planned.disks]


def plan_only(context: JobContext, view: InstanceView) -> None:
    """Record an instance that is not made yet."""
    name = view.name
    context.feedback(f"adding forthcoming instance {name} to cluster config")
    instance = replace(
        view.instance, forthcoming=True, admin_state=AdminState.DOWN, disks_active=False
    )
    planned = [replace(disk, forthcoming=True) for disk in view.disks]
    context.config.create_instance(instance.to_wire(), [disk.to_wire() for disk in planned])


def clear_remains(context: JobContext, planned: InstanceView) -> None:
    """Remove disks that an earlier try made, so that making them begins anew."""
    if any(not disk.forthcoming for disk in planned.disks):
        context.info(f"removing the disks that an earlier try left of {planned.instance.name}")
        disks.remove(context, planned)


def plan_again(context: JobContext, planned: InstanceView) -> None:
    """Make an instance planned again, after its disks were removed."""
    instance = replace(planned.instance, network_port=None)
    as_planned = [replace(disk, forthcoming=True).to_wire() for disk in planned.disks]
    context.config.put_instance(instance.uuid, instance.to_wire(), as_planned)
