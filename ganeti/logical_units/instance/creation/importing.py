"""An instance made from an export: settings come from there, and its disks are filled.

What the opcode says comes first; what it leaves out is as it was when the instance was exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.backup.finding import EXPORT_DIR, nodes_with_export, read_description
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.copying import (
    check_compression,
    copy_disk,
    disk_by_script,
    dump_file,
)
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.objects.model import Node
from ganeti.objects.parameters import cluster_wide_only
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.protocol.export_description import ExportDescription

_MAC: Final = "mac"
_OF_CONNECTION: Final = frozenset(
    {"mode", "link", "vlan"}
)  # NICs in a network have them from there


@dataclass(frozen=True, slots=True)
class Export:
    """An export that an instance is made from; ``path`` is its directory on the node."""

    node: Node
    path: str
    description: ExportDescription


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
        nodes = nodes_with_export(context, lookup.all_nodes(context.config), path)
        if not nodes:
            raise OpPrereqError(
                f"no node has an export {path!r}; see 'gnt-backup list'", ErrorCode.NOENT
            )
        if len(nodes) > 1:
            names = ", ".join(node.name for node in nodes)
            raise OpPrereqError(
                f"nodes {names} have an export {path!r} each; name one with --src-node",
                ErrorCode.NOTUNIQUE,
            )
        node = nodes[0]
    description = read_description(context, node, path)
    return Export(node, path if "/" in path else f"{EXPORT_DIR}/{path}", description)


def filled_from(op: OpInstanceCreate, export: Export) -> OpInstanceCreate:
    """Return the opcode; parameters that it leaves out come from the export.

    Raises:
        OpPrereqError: the export does not say either, or says what means nothing here.
    """
    found = export.description
    hypervisor = op.hypervisor or _hypervisor(found)
    own_hvparams = found.hvparams if hypervisor == found.hypervisor else {}
    shared = cluster_wide_only(own_hvparams, HVPARAMS[hypervisor])
    kept = {name: value for name, value in own_hvparams.items() if name not in shared}
    private = PrivateParams(
        {**found.osparams_private, **(op.osparams_private.reveal() if op.osparams_private else {})}
    )
    return replace(
        op,
        hypervisor=hypervisor,
        hvparams={**kept, **op.hvparams},
        beparams=_backend(found, op.beparams),
        os_type=op.os_type or found.os or None,
        osparams={**found.osparams, **op.osparams},
        osparams_private=private,
        disk_template=op.disk_template or _template(found),
        disks=_disks(op, found),
        nics=op.nics or _nics(op, found),
        tags=op.tags or list(found.tags),
    )


def _hypervisor(found: ExportDescription) -> Hypervisor:
    try:
        return Hypervisor(found.hypervisor)
    except ValueError as err:
        raise OpPrereqError(
            f"the export names hypervisor {found.hypervisor!r}, which means nothing here; give one"
            " with -H"
        ) from err


def _template(found: ExportDescription) -> DiskTemplate:
    try:
        return DiskTemplate(found.disk_template)
    except ValueError as err:
        raise OpPrereqError("the export names no disk template; give one with -t") from err


def _backend(found: ExportDescription, own: Mapping[str, object]) -> dict[str, object]:
    """Lay own back-end parameters over those of the export; ``memory`` means both limits."""
    limits = ("minmem", "maxmem") if "memory" in own else ()
    kept = {name: value for name, value in found.beparams.items() if name not in limits}
    return {**kept, **own}


def _disks(op: OpInstanceCreate, found: ExportDescription) -> list[dict[str, object]]:
    """Return the settings of the disks: at least as large as those of the export, and as many.

    Raises:
        OpPrereqError: fewer or smaller ones are wanted.
    """
    exported: list[dict[str, object]] = [
        {"size": disk.size_mib, **({"name": disk.name} if disk.name else {})}
        for disk in found.disks
    ]
    if not op.disks:
        return exported
    if len(op.disks) < len(exported):
        raise OpPrereqError(
            f"the export has {len(exported)} disk(s), {len(op.disks)} given: none may be left out"
        )
    for index, (wanted, disk) in enumerate(zip(op.disks, found.disks, strict=False)):
        size = wanted.get("size", disk.size_mib)
        if isinstance(size, int) and size < disk.size_mib:
            raise OpPrereqError(
                f"disk {index} had {disk.size_mib} MiB when it was exported, {size} MiB are too few"
            )
    filled = [{**old, **new} for old, new in zip(exported, op.disks, strict=False)]
    return filled + [dict(new) for new in op.disks[len(exported) :]]


def _nics(op: OpInstanceCreate, found: ExportDescription) -> list[dict[str, str]]:
    """Return the settings of the NICs; another instance than the exported one gets new MACs."""
    always = frozenset() if op.instance_name == found.name else {_MAC}
    return [
        {
            name: value
            for name, value in nic.items()
            if name not in (always | _OF_CONNECTION if nic.get("network") else always)
        }
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
            source=dump_file(export.node, f"{export.path}/{disk.dump}", disk.sha256),
            target=disk_by_script(view, index),
            compress=compress,
        )
