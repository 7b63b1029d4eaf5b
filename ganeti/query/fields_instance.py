"""The fields of instances.

Source: query_fields.json, "instance".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

from ganeti.objects.admin_state import AdminState
from ganeti.objects.disk import Disk
from ganeti.objects.disk_templates import DISKS_MAX, DRBD_META_SIZE_MIB, DiskTemplate
from ganeti.objects.fill import fill_osparams
from ganeti.objects.instance import Instance
from ganeti.objects.parameters import BEPARAMS, HVPARAMS, ParamSpec
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.objects.rpc_instance import disk_template
from ganeti.query.context import RunContext, name_key
from ganeti.query.fields import (
    UNAVAIL,
    Absent,
    Comparison,
    FieldSpec,
    Resource,
    Source,
    field_table,
    or_unavailable,
)
from ganeti.query.fields_common import param_fields, stamp_fields
from ganeti.query.fields_nic import NIC_FIELDS
from ganeti.query.instance_status import Found, find_live, instance_status

_K = FieldKind
_Get = Callable[[Instance, RunContext], object]

_HV_TITLES: Final[Mapping[str, str]] = {
    "acpi": "ACPI",
    "boot_order": "Boot_order",
    "cdrom_image_path": "CDROM_image_path",
    "cpu_type": "cpu_type",
    "disk_type": "Disk_type",
    "initrd_path": "Initrd_path",
    "kernel_path": "Kernel_path",
    "nic_type": "NIC_type",
    "pae": "PAE",
    "pci_pass": "pci_pass",
    "vnc_bind_address": "VNC_bind_address",
}
_BE_TITLES: Final[Mapping[str, str]] = {
    "auto_balance": "Auto_balance",
    "maxmem": "ConfigMaxMem",
    "minmem": "ConfigMinMem",
    "vcpus": "ConfigVCPUs",
}


def _instance_hvparams() -> dict[str, ParamSpec]:
    """Return the parameters of all hypervisors that an instance can have of its own."""
    return {
        name: spec
        for table in HVPARAMS.values()
        for name, spec in table.items()
        if not spec.cluster_wide
    }


def _own_hvparams(instance: Instance, context: RunContext) -> dict[str, object]:
    table = HVPARAMS.get(instance.hypervisor, {})
    return {
        name: value
        for name, value in context.hvparams(instance).items()
        if name not in table or not table[name].cluster_wide
    }


def _hvparam(name: str) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        own = instance.hvparams
        return own[name] if name in own else context.hv_defaults(instance).get(name, UNAVAIL)

    return get


def _beparam(name: str) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        own = instance.beparams
        return own[name] if name in own else context.be_defaults[name]

    return get


def _node_group(what: str) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        group = context.group_of(instance.primary_node)
        return UNAVAIL if group is None else getattr(group, what)

    return get


def _secondary_groups(what: str) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        groups = [context.group_of(uuid) for uuid in context.secondaries(instance)]
        return [None if group is None else getattr(group, what) for group in groups]

    return get


def _disk(what: str, index: int) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        disks = context.disks(instance)
        return or_unavailable(getattr(disks[index], what)) if index < len(disks) else UNAVAIL

    return get


def _all_disks(what: str) -> _Get:
    get_what = attrgetter(what)
    return lambda instance, context: list(map(get_what, context.disks(instance)))


def _disk_fields() -> list[FieldSpec[Instance]]:
    fields: list[FieldSpec[Instance]] = []
    for index in range(DISKS_MAX):
        fields += [
            FieldSpec(
                f"disk.size/{index}",
                f"Disk/{index}",
                _K.UNIT,
                f"Size of disk {index}",
                _disk("size", index),
            ),
            FieldSpec(
                f"disk.spindles/{index}",
                f"DiskSpindles/{index}",
                _K.NUMBER,
                f"Spindles of disk {index}",
                _disk("spindles", index),
            ),
            FieldSpec(
                f"disk.name/{index}",
                f"DiskName/{index}",
                _K.TEXT,
                f"Name of disk {index}",
                _disk("name", index),
            ),
            FieldSpec(
                f"disk.uuid/{index}",
                f"DiskUUID/{index}",
                _K.TEXT,
                f"UUID of disk {index}",
                _disk("uuid", index),
            ),
        ]
    return fields


def _space_on_node(disk: Disk) -> int:
    """Return the MiB that a disk takes on each of its nodes."""
    match disk.dev_type:
        case DiskTemplate.DRBD:
            return disk.size + DRBD_META_SIZE_MIB
        case DiskTemplate.RBD | DiskTemplate.BLOCKDEV:
            return 0  # not space of a node
    return disk.size


def _disk_usage(instance: Instance, context: RunContext) -> object:
    return sum(map(_space_on_node, context.disks(instance)))


def _live(get: Callable[[Found], object], not_running: object) -> _Get:
    def value(instance: Instance, context: RunContext) -> object:
        found = find_live(instance, context)
        if isinstance(found, Absent):
            return found
        return get(found) if found is not None and found.is_running else not_running

    return value


def _console(instance: Instance, context: RunContext) -> object:
    found = find_live(instance, context)
    if isinstance(found, Absent):
        return found
    if found is None or not found.is_running:
        return UNAVAIL
    console = context.view.consoles.get(instance.uuid)
    return UNAVAIL if console is None else console.to_wire()


_FIELDS: Final[list[FieldSpec[Instance]]] = [
    FieldSpec(
        "name",
        "Instance",
        _K.TEXT,
        "Name of the instance",
        lambda instance, _context: instance.name,
        comparison=Comparison.HOST_NAME,
    ),
    FieldSpec(
        "status",
        "Status",
        _K.TEXT,
        "What the instance does, compared with what it is meant to do",
        instance_status,
        source=Source.INSTANCE_LIVE,
    ),
    FieldSpec(
        "admin_state",
        "InstanceState",
        _K.TEXT,
        "What the instance is meant to do",
        lambda instance, _context: instance.admin_state,
    ),
    FieldSpec(
        "admin_state_source",
        "InstanceStateSource",
        _K.TEXT,
        "Who decided what the instance is meant to do",
        lambda instance, _context: instance.admin_state_source,
    ),
    FieldSpec(
        "admin_up",
        "Autostart",
        _K.BOOL,
        "Whether the instance is meant to run",
        lambda instance, _context: instance.admin_state is AdminState.UP,
    ),
    FieldSpec(
        "disks_active",
        "DisksActive",
        _K.BOOL,
        "Whether the disks are meant to be active",
        lambda instance, _context: instance.disks_active,
    ),
    FieldSpec(
        "forthcoming",
        "Forthcoming",
        _K.BOOL,
        "Whether the instance is planned only",
        lambda instance, _context: instance.forthcoming,
    ),
    FieldSpec(
        "os",
        "OS",
        _K.TEXT,
        "Operating system",
        lambda instance, _context: instance.os,
    ),
    FieldSpec(
        "hypervisor",
        "Hypervisor",
        _K.TEXT,
        "Name of the hypervisor",
        lambda instance, _context: instance.hypervisor,
    ),
    FieldSpec(
        "network_port",
        "Network_port",
        _K.OTHER,
        "Port of the graphical console",
        lambda instance, _context: or_unavailable(instance.network_port),
    ),
    # Nodes.
    FieldSpec(
        "pnode",
        "Primary_node",
        _K.TEXT,
        "Primary node",
        lambda instance, context: context.node_name(instance.primary_node),
        comparison=Comparison.HOST_NAME,
    ),
    FieldSpec(
        "pnode.group",
        "PrimaryNodeGroup",
        _K.TEXT,
        "Group of the primary node",
        _node_group("name"),
    ),
    FieldSpec(
        "pnode.group.uuid",
        "PrimaryNodeGroupUUID",
        _K.TEXT,
        "UUID of the primary node's group",
        _node_group("uuid"),
    ),
    FieldSpec(
        "snodes",
        "Secondary_Nodes",
        _K.OTHER,
        "Secondary nodes; usually there is one or none",
        lambda instance, context: list(map(context.node_name, context.secondaries(instance))),
    ),
    FieldSpec(
        "snodes.group",
        "SecondaryNodesGroups",
        _K.OTHER,
        "Groups of the secondary nodes",
        _secondary_groups("name"),
    ),
    FieldSpec(
        "snodes.group.uuid",
        "SecondaryNodesGroupsUUID",
        _K.OTHER,
        "UUIDs of the secondary nodes' groups",
        _secondary_groups("uuid"),
    ),
    # Parameters.
    FieldSpec(
        "hvparams",
        "HypervisorParameters",
        _K.OTHER,
        "Hypervisor parameters, defaults filled in",
        _own_hvparams,
    ),
    FieldSpec(
        "custom_hvparams",
        "CustomHypervisorParameters",
        _K.OTHER,
        "Hypervisor parameters set for this instance",
        lambda instance, _context: instance.hvparams,
    ),
    *param_fields(
        "hv",
        _instance_hvparams().items(),
        _HV_TITLES,
        "hypervisor parameter",
        _hvparam,
    ),
    FieldSpec(
        "beparams",
        "BackendParameters",
        _K.OTHER,
        "Backend parameters, defaults filled in",
        lambda instance, context: context.beparams(instance),
    ),
    FieldSpec(
        "custom_beparams",
        "CustomBackendParameters",
        _K.OTHER,
        "Backend parameters set for this instance",
        lambda instance, _context: instance.beparams,
    ),
    *param_fields(
        "be",
        BEPARAMS.items(),
        _BE_TITLES,
        "backend parameter",
        _beparam,
    ),
    FieldSpec(
        "be/memory",
        "ConfigMaxMem",
        _K.UNIT,
        "Old name of be/maxmem",
        _beparam("maxmem"),
    ),
    FieldSpec(
        "vcpus",
        "ConfigVCPUs",
        _K.NUMBER,
        "Old name of be/vcpus",
        _beparam("vcpus"),
    ),
    FieldSpec(
        "osparams",
        "OpSysParameters",
        _K.OTHER,
        "Operating system parameters, defaults filled in",
        lambda instance, context: fill_osparams(
            context.view.cluster, instance.os, instance.osparams
        ),
    ),
    FieldSpec(
        "custom_osparams",
        "CustomOpSysParameters",
        _K.OTHER,
        "Operating system parameters set for this instance",
        lambda instance, _context: instance.osparams,
    ),
    # Disks.
    FieldSpec(
        "disk_template",
        "Disk_template",
        _K.TEXT,
        "How the disks are made",
        lambda instance, context: disk_template(context.disks(instance)),
    ),
    FieldSpec(
        "disk_usage",
        "DiskUsage",
        _K.UNIT,
        "Space that the disks take on each of their nodes",
        _disk_usage,
    ),
    FieldSpec(
        "disk.count",
        "Disks",
        _K.NUMBER,
        "Number of disks",
        lambda instance, _context: len(instance.disks),
    ),
    FieldSpec("disk.sizes", "Disk_sizes", _K.OTHER, "Sizes of the disks", _all_disks("size")),
    FieldSpec(
        "disk.spindles", "Disk_spindles", _K.OTHER, "Spindles of the disks", _all_disks("spindles")
    ),
    FieldSpec("disk.names", "Disk_names", _K.OTHER, "Names of the disks", _all_disks("name")),
    FieldSpec("disk.uuids", "Disk_UUIDs", _K.OTHER, "UUIDs of the disks", _all_disks("uuid")),
    FieldSpec("sda_size", "Disk/0", _K.UNIT, "Old name of disk.size/0", _disk("size", 0)),
    FieldSpec("sdb_size", "Disk/1", _K.UNIT, "Old name of disk.size/1", _disk("size", 1)),
    *_disk_fields(),
    *NIC_FIELDS,
    # Live.
    FieldSpec(
        "oper_state",
        "Running",
        _K.BOOL,
        "Whether the instance runs",
        _live(lambda _found: True, False),
        source=Source.INSTANCE_LIVE,
    ),
    FieldSpec(
        "oper_ram",
        "Memory",
        _K.UNIT,
        "Memory that the instance has now",
        _live(lambda found: found.live.memory, UNAVAIL),
        source=Source.INSTANCE_LIVE,
    ),
    FieldSpec(
        "oper_vcpus",
        "VCPUs",
        _K.NUMBER,
        "Processors that the instance has now",
        _live(lambda found: found.live.vcpus, UNAVAIL),
        source=Source.INSTANCE_LIVE,
    ),
    FieldSpec(
        "console",
        "Console",
        _K.OTHER,
        "How to reach the console",
        _console,
        source=Source.CONSOLE,
    ),
    *stamp_fields(Instance, "instance"),
]

RESOURCE: Final = Resource(
    name=QueryResource.INSTANCE,
    fields=field_table(_FIELDS),
    items=lambda context: context.view.instances,
    name_field="name",
    sort_key=lambda instance, _context: name_key(instance.name),
)
