"""The fields of nodes.

Source: query_fields.json, "node"; node_rpc.json, "node_info".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ganeti.objects.disk_templates import StorageType
from ganeti.objects.instance import Instance
from ganeti.objects.node import Node
from ganeti.objects.node_role import role_of
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.query.context import RunContext, name_key, sorted_names
from ganeti.query.fields import (
    NODATA,
    OFFLINE,
    UNAVAIL,
    Absent,
    Comparison,
    FieldSpec,
    Resource,
    Source,
    field_table,
    or_unavailable,
)
from ganeti.query.fields_common import node_param_fields, stamp_fields
from ganeti.query.view import NodeLive, StorageInfo

_K = FieldKind
_Get = Callable[[Node, RunContext], object]


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


def _from_hypervisor(what: str) -> _Get:
    """Read a value from what the first hypervisor says."""

    def get(node: Node, context: RunContext) -> object:
        live = _live_of(node, context)
        if isinstance(live, Absent):
            return live
        if not live.hypervisors:
            return NODATA
        value = getattr(live.hypervisors[0], what)
        return NODATA if value is None else value

    return get


def _from_storage(what: str, *, spindles: bool) -> _Get:
    """Read a value from the first storage unit that counts MiB, or that counts spindles."""

    def counts(info: StorageInfo) -> bool:
        return (info.type == StorageType.LVM_PV) is spindles

    def get(node: Node, context: RunContext) -> object:
        live = _live_of(node, context)
        if isinstance(live, Absent):
            return live
        found = next(filter(counts, live.storage), None)
        return UNAVAIL if found is None else or_unavailable(getattr(found, what))

    return get


def _group(what: str) -> _Get:
    def get(node: Node, context: RunContext) -> object:
        group = context.view.groups.get(node.group)
        return UNAVAIL if group is None else getattr(group, what)

    return get


def _powered(node: Node, context: RunContext) -> object:
    """Tell whether the node is powered; nobody knows without an out-of-band helper."""
    params = context.ndparams(node)
    return node.powered if params is not None and params["oob_program"] else UNAVAIL


def _names(instances: Sequence[Instance]) -> list[str]:
    return sorted_names(instance.name for instance in instances)


def _flag(name: str, title: str, doc: str) -> FieldSpec[Node]:
    return FieldSpec(name, title, _K.BOOL, doc, lambda node, _context: getattr(node, name))


def _live(name: str, title: str, kind: FieldKind, doc: str, get: _Get) -> FieldSpec[Node]:
    return FieldSpec(name, title, kind, doc, get, source=Source.NODE_LIVE)


_FIELDS: Final[list[FieldSpec[Node]]] = [
    FieldSpec(
        "name",
        "Node",
        _K.TEXT,
        "Name of the node",
        lambda node, _context: node.name,
        comparison=Comparison.HOST_NAME,
    ),
    FieldSpec(
        "role",
        "Role",
        _K.TEXT,
        "M master, C master candidate, R regular, D drained, O offline",
        lambda node, context: role_of(context.view.cluster, node),
    ),
    FieldSpec(
        "master",
        "IsMaster",
        _K.BOOL,
        "Whether the node is the master",
        lambda node, context: node.uuid == context.view.cluster.master_node,
    ),
    _flag("master_candidate", "MasterC", "Whether the node is a master candidate"),
    _flag("master_capable", "MasterCapable", "Whether the node can become a master candidate"),
    _flag("vm_capable", "VMCapable", "Whether the node can have instances"),
    _flag("offline", "Offline", "Whether the node is marked offline"),
    _flag("drained", "Drained", "Whether the node is drained: no new instances"),
    FieldSpec(
        "powered", "Powered", _K.BOOL, "Whether the node is thought to be powered on", _powered
    ),
    FieldSpec(
        "pip", "PrimaryIP", _K.TEXT, "Primary address", lambda node, _context: node.primary_ip
    ),
    FieldSpec(
        "sip", "SecondaryIP", _K.TEXT, "Secondary address", lambda node, _context: node.secondary_ip
    ),
    FieldSpec("group", "Group", _K.TEXT, "Node group", _group("name")),
    FieldSpec("group.uuid", "GroupUUID", _K.TEXT, "UUID of the node group", _group("uuid")),
    FieldSpec(
        "pinst_cnt",
        "Pinst",
        _K.NUMBER,
        "Number of instances with this primary node",
        lambda node, context: len(context.primary_instances(node.uuid)),
    ),
    FieldSpec(
        "sinst_cnt",
        "Sinst",
        _K.NUMBER,
        "Number of instances with this secondary node",
        lambda node, context: len(context.secondary_instances(node.uuid)),
    ),
    FieldSpec(
        "pinst_list",
        "PriInstances",
        _K.OTHER,
        "Instances with this primary node",
        lambda node, context: _names(context.primary_instances(node.uuid)),
    ),
    FieldSpec(
        "sinst_list",
        "SecInstances",
        _K.OTHER,
        "Instances with this secondary node",
        lambda node, context: _names(context.secondary_instances(node.uuid)),
    ),
    FieldSpec(
        "ndparams",
        "NodeParameters",
        _K.OTHER,
        "Node parameters, defaults filled in",
        lambda node, context: or_unavailable(context.ndparams(node)),
    ),
    FieldSpec(
        "custom_ndparams",
        "CustomNodeParameters",
        _K.OTHER,
        "Parameters set for this node",
        lambda node, _context: node.ndparams,
    ),
    *node_param_fields(lambda node, context: context.ndparams(node)),
    FieldSpec(
        "hv_state",
        "HypervisorState",
        _K.OTHER,
        "Recorded state of the hypervisors",
        lambda node, _context: node.hv_state_static,
    ),
    FieldSpec(
        "disk_state",
        "DiskState",
        _K.OTHER,
        "Recorded state of the disks",
        lambda node, _context: node.disk_state_static,
    ),
    # Live.
    _live("bootid", "BootID", _K.TEXT, "Random text made at each boot", _boot_id),
    _live("mtotal", "MTotal", _K.UNIT, "Memory", _from_hypervisor("memory_total")),
    _live("mfree", "MFree", _K.UNIT, "Free memory", _from_hypervisor("memory_free")),
    _live(
        "mnode", "MNode", _K.UNIT, "Memory used by the node itself", _from_hypervisor("memory_dom0")
    ),
    _live("ctotal", "CTotal", _K.NUMBER, "Logical processors", _from_hypervisor("cpu_total")),
    _live(
        "cnos",
        "CNOs",
        _K.NUMBER,
        "Logical processors used by the node itself",
        _from_hypervisor("cpu_dom0"),
    ),
    _live("cnodes", "CNodes", _K.NUMBER, "NUMA domains", _from_hypervisor("cpu_nodes")),
    _live("csockets", "CSockets", _K.NUMBER, "Processor sockets", _from_hypervisor("cpu_sockets")),
    _live("dtotal", "DTotal", _K.UNIT, "Disk space", _from_storage("storage_size", spindles=False)),
    _live(
        "dfree", "DFree", _K.UNIT, "Free disk space", _from_storage("storage_free", spindles=False)
    ),
    _live(
        "sptotal", "SpTotal", _K.NUMBER, "Spindles", _from_storage("storage_size", spindles=True)
    ),
    _live(
        "spfree", "SpFree", _K.NUMBER, "Free spindles", _from_storage("storage_free", spindles=True)
    ),
    *stamp_fields(Node, "node"),
]

RESOURCE: Final = Resource(
    name=QueryResource.NODE,
    fields=field_table(_FIELDS),
    items=lambda context: context.view.nodes,
    name_field="name",
    sort_key=lambda node, _context: name_key(node.name),
)
