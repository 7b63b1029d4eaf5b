"""The fields of instances.

Source: query_fields.json, "instance".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

from ganeti.base.ids import NetworkUuid
from ganeti.config.tables import name_key
from ganeti.objects.disk_templates import DISKS_MAX
from ganeti.objects.fill import fill_osparams
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.model import AdminState, Disk, Instance
from ganeti.objects.nic import NIC, NICS_MAX, NicMode
from ganeti.objects.parameters import BEPARAMS, ParamSpec
from ganeti.objects.query_words import QueryResource
from ganeti.objects.rpc_instance import disk_template
from ganeti.query.context import RunContext
from ganeti.query.fields import (
    UNAVAIL,
    Absent,
    FieldSpec,
    Resource,
    Source,
    field_table,
    or_unavailable,
)
from ganeti.query.instance_status import Found, find_live, instance_status
from ganeti.query.resources.common import (
    Get,
    boolean,
    host_name,
    number,
    other,
    param_fields,
    stamp_fields,
    text,
    unit,
)

_NicGet = Get[NIC]


def _param(name: str) -> _NicGet:
    def get(nic: NIC, context: RunContext) -> object:
        own = nic.nicparams
        return own[name] if name in own else context.nic_defaults[name]

    return get


_mode, _link = _param("mode"), _param("link")


def _bridge(nic: NIC, context: RunContext) -> object:
    return _link(nic, context) if _mode(nic, context) == NicMode.BRIDGED else None


def _network(nic: NIC, _context: RunContext) -> object:
    return nic.network


def _network_name(nic: NIC, context: RunContext) -> object:
    if nic.network is None:
        return None
    network = context.networks.get(NetworkUuid(nic.network))
    return None if network is None else network.name


# Name of the field for one NIC, of the field for all, and their titles.
_VALUES: Final[tuple[tuple[str, str, str, str, str, _NicGet], ...]] = (
    ("ip", "ips", "NicIP", "NIC_IPs", "IP address", lambda nic, _context: nic.ip),
    ("mac", "macs", "NicMAC", "NIC_MACs", "MAC address", lambda nic, _context: nic.mac),
    ("name", "names", "NicName", "NIC_Names", "name", lambda nic, _context: nic.name),
    ("uuid", "uuids", "NicUUID", "NIC_UUIDs", "UUID", lambda nic, _context: nic.uuid),
    ("mode", "modes", "NicMode", "NIC_modes", "mode", _mode),
    ("link", "links", "NicLink", "NIC_links", "link", _link),
    ("vlan", "vlans", "NicVLAN", "NIC_VLANs", "VLAN", _param("vlan")),
    ("bridge", "bridges", "NicBridge", "NIC_bridges", "bridge", _bridge),
    ("network", "networks", "NicNetwork", "NIC_networks", "network's UUID", _network),
    (
        "network.name",
        "networks.names",
        "NicNetworkName",
        "NIC_networks_names",
        "network's name",
        _network_name,
    ),
)
# Old fields about the first NIC.
_FIRST: Final = {
    "ip": "ip",
    "mac": "mac",
    "bridge": "bridge",
    "mode": "nic_mode",
    "link": "nic_link",
    "network": "nic_network",
}


def _of_one(get: _NicGet, index: int) -> Get[Instance]:
    def value(instance: Instance, context: RunContext) -> object:
        if index >= len(instance.nics):
            return UNAVAIL
        return or_unavailable(get(instance.nics[index], context))

    return value


def _of_all(get: _NicGet) -> Get[Instance]:
    return lambda instance, context: [get(nic, context) for nic in instance.nics]


def _own_params(instance: Instance, _context: RunContext) -> object:
    return [nic.nicparams for nic in instance.nics]


def _fields() -> list[FieldSpec[Instance]]:
    fields: list[FieldSpec[Instance]] = [
        number(
            "nic.count",
            "NICs",
            "Number of network interfaces",
            lambda instance, _: len(instance.nics),
        ),
        other(
            "custom_nicparams",
            "CustomNicParameters",
            "Parameters set for each network interface",
            _own_params,
        ),
    ]
    for one, every, title, title_of_all, what, get in _VALUES:
        doc = f"{what[0].upper()}{what[1:]} of"
        fields.append(
            other(f"nic.{every}", title_of_all, f"{doc} each network interface", _of_all(get))
        )
        names = [(f"nic.{one}/{index}", index) for index in range(NICS_MAX)]
        if one in _FIRST:
            names.append((_FIRST[one], 0))
        fields += [
            text(name, f"{title}/{index}", f"{doc} network interface {index}", _of_one(get, index))
            for name, index in names
        ]
    return fields


NIC_FIELDS: Final = _fields()


_Get = Get[Instance]
_LIVE: Final = Source.INSTANCE_LIVE

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
        disks = context.disks_of(instance)
        return or_unavailable(getattr(disks[index], what)) if index < len(disks) else UNAVAIL

    return get


def _all_disks(what: str) -> _Get:
    get_what = attrgetter(what)
    return lambda instance, context: list(map(get_what, context.disks_of(instance)))


def _disk_fields() -> list[FieldSpec[Instance]]:
    fields: list[FieldSpec[Instance]] = []
    for index in range(DISKS_MAX):
        fields += [
            unit(
                f"disk.size/{index}", f"Disk/{index}", f"Size of disk {index}", _disk("size", index)
            ),
            number(
                f"disk.spindles/{index}",
                f"DiskSpindles/{index}",
                f"Spindles of disk {index}",
                _disk("spindles", index),
            ),
            text(
                f"disk.name/{index}",
                f"DiskName/{index}",
                f"Name of disk {index}",
                _disk("name", index),
            ),
            text(
                f"disk.uuid/{index}",
                f"DiskUUID/{index}",
                f"UUID of disk {index}",
                _disk("uuid", index),
            ),
        ]
    return fields


def _space_on_node(disk: Disk) -> int:
    """Return the MiB that a disk takes on each of its nodes."""
    traits = disk.traits
    return disk.size + traits.extra_mib if traits.counts_as_usage else 0


def _disk_usage(instance: Instance, context: RunContext) -> object:
    return sum(map(_space_on_node, context.disks_of(instance)))


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
    host_name("name", "Instance", "Name of the instance"),
    text(
        "status",
        "Status",
        "What the instance does, compared with what it is meant to do",
        instance_status,
        _LIVE,
    ),
    text("admin_state", "InstanceState", "What the instance is meant to do"),
    text(
        "admin_state_source", "InstanceStateSource", "Who decided what the instance is meant to do"
    ),
    boolean(
        "admin_up",
        "Autostart",
        "Whether the instance is meant to run",
        lambda instance, _: instance.admin_state is AdminState.UP,
    ),
    boolean("disks_active", "DisksActive", "Whether the disks are meant to be active"),
    boolean("forthcoming", "Forthcoming", "Whether the instance is planned only"),
    text("os", "OS", "Operating system"),
    text("hypervisor", "Hypervisor", "Name of the hypervisor"),
    other("network_port", "Network_port", "Port of the graphical console"),
    # Nodes.
    host_name(
        "pnode",
        "Primary_node",
        "Primary node",
        lambda instance, context: context.node_name(instance.primary_node),
    ),
    text("pnode.group", "PrimaryNodeGroup", "Group of the primary node", _node_group("name")),
    text(
        "pnode.group.uuid",
        "PrimaryNodeGroupUUID",
        "UUID of the primary node's group",
        _node_group("uuid"),
    ),
    other(
        "snodes",
        "Secondary_Nodes",
        "Secondary nodes; usually there is one or none",
        lambda instance, context: list(map(context.node_name, context.secondaries(instance))),
    ),
    other(
        "snodes.group",
        "SecondaryNodesGroups",
        "Groups of the secondary nodes",
        _secondary_groups("name"),
    ),
    other(
        "snodes.group.uuid",
        "SecondaryNodesGroupsUUID",
        "UUIDs of the secondary nodes' groups",
        _secondary_groups("uuid"),
    ),
    # Parameters.
    other(
        "hvparams",
        "HypervisorParameters",
        "Hypervisor parameters, defaults filled in",
        _own_hvparams,
    ),
    other(
        "custom_hvparams",
        "CustomHypervisorParameters",
        "Hypervisor parameters set for this instance",
        "hvparams",
    ),
    *param_fields("hv", _instance_hvparams().items(), _HV_TITLES, "hypervisor parameter", _hvparam),
    other(
        "beparams",
        "BackendParameters",
        "Backend parameters, defaults filled in",
        lambda instance, context: context.beparams(instance),
    ),
    other(
        "custom_beparams",
        "CustomBackendParameters",
        "Backend parameters set for this instance",
        "beparams",
    ),
    *param_fields("be", BEPARAMS.items(), _BE_TITLES, "backend parameter", _beparam),
    unit("be/memory", "ConfigMaxMem", "Old name of be/maxmem", _beparam("maxmem")),
    number("vcpus", "ConfigVCPUs", "Old name of be/vcpus", _beparam("vcpus")),
    other(
        "osparams",
        "OpSysParameters",
        "Operating system parameters, defaults filled in",
        lambda instance, context: fill_osparams(context.cluster, instance.os, instance.osparams),
    ),
    other(
        "custom_osparams",
        "CustomOpSysParameters",
        "Operating system parameters set for this instance",
        "osparams",
    ),
    # Disks.
    text(
        "disk_template",
        "Disk_template",
        "How the disks are made",
        lambda instance, context: disk_template(context.disks_of(instance)),
    ),
    unit(
        "disk_usage", "DiskUsage", "Space that the disks take on each of their nodes", _disk_usage
    ),
    number("disk.count", "Disks", "Number of disks", lambda instance, _: len(instance.disks)),
    other("disk.sizes", "Disk_sizes", "Sizes of the disks", _all_disks("size")),
    other("disk.spindles", "Disk_spindles", "Spindles of the disks", _all_disks("spindles")),
    other("disk.names", "Disk_names", "Names of the disks", _all_disks("name")),
    other("disk.uuids", "Disk_UUIDs", "UUIDs of the disks", _all_disks("uuid")),
    unit("sda_size", "Disk/0", "Old name of disk.size/0", _disk("size", 0)),
    unit("sdb_size", "Disk/1", "Old name of disk.size/1", _disk("size", 1)),
    *_disk_fields(),
    *NIC_FIELDS,
    # Live.
    boolean(
        "oper_state",
        "Running",
        "Whether the instance runs",
        _live(lambda _found: True, False),
        _LIVE,
    ),
    unit(
        "oper_ram",
        "Memory",
        "Memory that the instance has now",
        _live(lambda found: found.live.memory, UNAVAIL),
        _LIVE,
    ),
    number(
        "oper_vcpus",
        "VCPUs",
        "Processors that the instance has now",
        _live(lambda found: found.live.vcpus, UNAVAIL),
        _LIVE,
    ),
    other("console", "Console", "How to reach the console", _console, Source.CONSOLE),
    *stamp_fields(Instance, "instance"),
]

RESOURCE: Final = Resource(
    name=QueryResource.INSTANCE,
    fields=field_table(_FIELDS),
    items=lambda context: context.instances,
    name_field="name",
    sort_key=lambda instance, _context: name_key(instance.name),
)
