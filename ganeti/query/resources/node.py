"""The fields of nodes.

Source: query_fields.json, "node"; node_rpc.json, "node_info".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from ganeti.base.ids import InstanceUuid
from ganeti.objects.disk_templates import StorageType
from ganeti.objects.model import Node, role_of
from ganeti.objects.query_words import QueryResource
from ganeti.query.context import RunContext
from ganeti.query.fields import (
    NODATA,
    OFFLINE,
    UNAVAIL,
    Absent,
    FieldSpec,
    Get,
    Resource,
    Source,
    boolean,
    field_table,
    host_name,
    instance_fields,
    node_param_fields,
    number,
    or_unavailable,
    other,
    settings_fields,
    stamp_fields,
    text,
    unit,
)
from ganeti.query.view import NodeLive

_Get = Get[Node]


def _live_of(node: Node, context: RunContext) -> NodeLive | Absent:
    if node.offline:
        return OFFLINE
    if not node.vm_capable:
        return UNAVAIL
    live = context.view.node_live.get(node.uuid)
    return NODATA if live is None else live


def _boot_id(node: Node, context: RunContext) -> object:
    live = _live_of(node, context)
    return live if isinstance(live, Absent) else live.boot_id


def _hypervisor(what: str) -> _Get:
    """Read a value from the answer of the first hypervisor."""

    def get(node: Node, context: RunContext) -> object:
        live = _live_of(node, context)
        if isinstance(live, Absent):
            return live
        value = getattr(live.hypervisors[0], what) if live.hypervisors else None
        return NODATA if value is None else value

    return get


def _storage(what: str, *, spindles: bool) -> _Get:
    """Read a value from the first storage unit that counts MiB, or that counts spindles."""

    def get(node: Node, context: RunContext) -> object:
        live = _live_of(node, context)
        if isinstance(live, Absent):
            return live
        units = (each for each in live.storage if (each.type == StorageType.LVM_PV) is spindles)
        found = next(units, None)
        return UNAVAIL if found is None else or_unavailable(getattr(found, what))

    return get


_mib, _spindles = partial(_storage, spindles=False), partial(_storage, spindles=True)


def _group(what: str) -> _Get:
    def get(node: Node, context: RunContext) -> object:
        group = context.groups.get(node.group)
        return UNAVAIL if group is None else getattr(group, what)

    return get


def _powered(node: Node, context: RunContext) -> object:
    """Tell whether the node is powered; nobody knows without an out-of-band helper."""
    params = context.ndparams(node)
    return node.powered if params is not None and params["oob_program"] else UNAVAIL


def _role(node: Node, context: RunContext) -> object:
    return role_of(context.cluster, node)


def _is_master(node: Node, context: RunContext) -> object:
    return node.uuid == context.cluster.master_node


def _ndparams(node: Node, context: RunContext) -> object:
    return or_unavailable(context.ndparams(node))


def _primary(node: Node, context: RunContext) -> Sequence[InstanceUuid]:
    return context.config.primary_instances(node.uuid)


def _secondary(node: Node, context: RunContext) -> Sequence[InstanceUuid]:
    return context.config.secondary_instances(node.uuid)


_LIVE: Final = Source.NODE_LIVE

_FIELDS: Final[list[FieldSpec[Node]]] = [
    host_name("name", "Node", "Name of the node"),
    text("role", "Role", "M master, C master candidate, R regular, D drained, O offline", _role),
    boolean("master", "IsMaster", "Whether the node is the master", _is_master),
    boolean("master_candidate", "MasterC", "Whether the node is a master candidate"),
    boolean("master_capable", "MasterCapable", "Whether the node can become a master candidate"),
    boolean("vm_capable", "VMCapable", "Whether the node can have instances"),
    boolean("offline", "Offline", "Whether the node is marked offline"),
    boolean("drained", "Drained", "Whether the node is drained: no new instances"),
    boolean("powered", "Powered", "Whether the node is thought to be powered on", _powered),
    text("pip", "PrimaryIP", "Primary address", "primary_ip"),
    text("sip", "SecondaryIP", "Secondary address", "secondary_ip"),
    text("group", "Group", "Node group", _group("name")),
    text("group.uuid", "GroupUUID", "UUID of the node group", _group("uuid")),
    *instance_fields("pinst", ("Pinst", "PriInstances"), "with this primary node", _primary),
    *instance_fields("sinst", ("Sinst", "SecInstances"), "with this secondary node", _secondary),
    *settings_fields("ndparams", "NodeParameters", "Node parameters", _ndparams, thing="node"),
    *node_param_fields(lambda node, context: context.ndparams(node)),
    other("hv_state", "HypervisorState", "Recorded state of the hypervisors", "hv_state_static"),
    other("disk_state", "DiskState", "Recorded state of the disks", "disk_state_static"),
    # Live.
    text("bootid", "BootID", "Random text made at each boot", _boot_id, _LIVE),
    unit("mtotal", "MTotal", "Memory", _hypervisor("memory_total"), _LIVE),
    unit("mfree", "MFree", "Free memory", _hypervisor("memory_free"), _LIVE),
    unit("mnode", "MNode", "Memory used by the node itself", _hypervisor("memory_dom0"), _LIVE),
    number("ctotal", "CTotal", "Logical processors", _hypervisor("cpu_total"), _LIVE),
    number("cnos", "CNOs", "Processors used by the node itself", _hypervisor("cpu_dom0"), _LIVE),
    number("cnodes", "CNodes", "NUMA domains", _hypervisor("cpu_nodes"), _LIVE),
    number("csockets", "CSockets", "Processor sockets", _hypervisor("cpu_sockets"), _LIVE),
    unit("dtotal", "DTotal", "Disk space", _mib("storage_size"), _LIVE),
    unit("dfree", "DFree", "Free disk space", _mib("storage_free"), _LIVE),
    number("sptotal", "SpTotal", "Spindles", _spindles("storage_size"), _LIVE),
    number("spfree", "SpFree", "Free spindles", _spindles("storage_free"), _LIVE),
    *stamp_fields(Node, "node"),
]

RESOURCE: Final = Resource(QueryResource.NODE, field_table(_FIELDS), lambda context: context.nodes)
