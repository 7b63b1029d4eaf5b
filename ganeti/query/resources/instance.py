"""The fields of instances.

Source: query_fields.json, "instance".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Final

from ganeti.base.ids import NetworkUuid
from ganeti.objects.disk_templates import DISKS_MAX
from ganeti.objects.fill import fill_osparams, without_cluster_wide
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
    Get,
    Resource,
    Source,
    boolean,
    field_table,
    host_name,
    number,
    or_unavailable,
    other,
    param_fields,
    settings_fields,
    stamp_fields,
    text,
    unit,
)
from ganeti.query.instance_status import Found, find_live, instance_status
from ganeti.query.view import INACTIVE, MISSING, UNKNOWN, UP_TO_DATE, Copy

_NicGet = Get[NIC]


def _param(name: str) -> _NicGet:
    def get(nic: NIC, context: RunContext) -> object:
        own = nic.nicparams
        return own[name] if name in own else context.nic_defaults[name]

    return get


_mode, _link = _param("mode"), _param("link")


def _bridge(nic: NIC, context: RunContext) -> object:
    return _link(nic, context) if _mode(nic, context) == NicMode.BRIDGED else None


def _network_name(nic: NIC, context: RunContext) -> object:
    if nic.network is None:
        return None
    network = context.networks.get(NetworkUuid(nic.network))
    return None if network is None else network.name


# Name of the field for one NIC, of the field for all, their titles, the old field about the first.
_NIC_VALUES: Final[tuple[tuple[str, str, str, str, str, _NicGet, str], ...]] = (
    ("ip", "ips", "NicIP", "NIC_IPs", "IP address", lambda nic, _: nic.ip, "ip"),
    ("mac", "macs", "NicMAC", "NIC_MACs", "MAC address", lambda nic, _: nic.mac, "mac"),
    ("name", "names", "NicName", "NIC_Names", "name", lambda nic, _: nic.name, ""),
    ("uuid", "uuids", "NicUUID", "NIC_UUIDs", "UUID", lambda nic, _: nic.uuid, ""),
    ("mode", "modes", "NicMode", "NIC_modes", "mode", _mode, "nic_mode"),
    ("link", "links", "NicLink", "NIC_links", "link", _link, "nic_link"),
    ("vlan", "vlans", "NicVLAN", "NIC_VLANs", "VLAN", _param("vlan"), ""),
    ("bridge", "bridges", "NicBridge", "NIC_bridges", "bridge", _bridge, "bridge"),
    (
        "network",
        "networks",
        "NicNetwork",
        "NIC_networks",
        "network's UUID",
        lambda nic, _: nic.network,
        "nic_network",
    ),
    (
        "network.name",
        "networks.names",
        "NicNetworkName",
        "NIC_networks_names",
        "network's name",
        _network_name,
        "",
    ),
)


def _of_one(get: _NicGet, index: int) -> Get[Instance]:
    def value(instance: Instance, context: RunContext) -> object:
        if index >= len(instance.nics):
            return UNAVAIL
        return or_unavailable(get(instance.nics[index], context))

    return value


def _of_all(get: _NicGet) -> Get[Instance]:
    return lambda instance, context: [get(nic, context) for nic in instance.nics]


def _nic_fields() -> Iterator[FieldSpec[Instance]]:
    for one, every, title, title_of_all, what, get, first in _NIC_VALUES:
        doc = f"{what[0].upper()}{what[1:]} of"
        yield other(f"nic.{every}", title_of_all, f"{doc} each network interface", _of_all(get))
        names = [(f"nic.{one}/{index}", index) for index in range(NICS_MAX)]
        for name, index in [*names, (first, 0)] if first else names:
            heading = f"{title}/{index}"
            yield text(name, heading, f"{doc} network interface {index}", _of_one(get, index))


_Get = Get[Instance]
_LIVE: Final = Source.INSTANCE_LIVE
_COPIES: Final = Source.COPIES
_STATES: Final = "up to date, syncing, degraded, faulty, unknown or inactive"

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


_settings = partial(settings_fields, thing="instance")


def _instance_hvparams() -> dict[str, ParamSpec]:
    """Return the parameters of all hypervisors that an instance can have of its own."""
    return {
        name: spec
        for table in HVPARAMS.values()
        for name, spec in table.items()
        if not spec.cluster_wide
    }


def _own_hvparams(instance: Instance, context: RunContext) -> dict[str, object]:
    return without_cluster_wide(instance.hypervisor, context.hvparams(instance))


def _hvparam(name: str) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        own = instance.hvparams
        if name in own:
            return own[name]
        spec = HVPARAMS[instance.hypervisor].get(name)  # one of ours may be nowhere
        default = spec.default if spec is not None and spec.is_ours else UNAVAIL
        return context.hv_defaults(instance).get(name, default)

    return get


def _beparam(name: str) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        own = instance.beparams
        return own[name] if name in own else context.be_defaults[name]

    return get


def _group(what: str) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        group = context.group_of(instance.primary_node)
        return UNAVAIL if group is None else getattr(group, what)

    return get


def _groups(what: str) -> _Get:
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


def _copies(what: str) -> _Get:
    """Return a fact of each disk about its copy on a second node; null for one without."""

    def of(disk: Disk, instance: Instance, context: RunContext) -> object:
        if not disk.traits.mirrored:
            return None
        copy = _state(disk, instance, context)
        return getattr(UNKNOWN if copy is MISSING else copy, what)

    return lambda instance, context: [
        of(disk, instance, context) for disk in context.disks_of(instance)
    ]


def _state(disk: Disk, instance: Instance, context: RunContext) -> Copy:
    untold = UNKNOWN if instance.disks_active else INACTIVE
    return context.view.copies.get(disk.uuid, untold)


def _disk_states(instance: Instance, context: RunContext) -> list[str]:
    states = (_state(disk, instance, context) for disk in context.disks_of(instance))
    return ["ok" if state is UP_TO_DATE else state.state for state in states]


def _disk_fields() -> Iterator[FieldSpec[Instance]]:
    for index in range(DISKS_MAX):
        for field, what, title, doc in (
            (unit, "size", "Disk", "Size"),
            (number, "spindles", "DiskSpindles", "Spindles"),
            (text, "name", "DiskName", "Name"),
            (text, "uuid", "DiskUUID", "UUID"),
        ):
            name, heading = f"disk.{what}/{index}", f"{title}/{index}"
            yield field(name, heading, f"{doc} of disk {index}", _disk(what, index))


def _space_on_node(disk: Disk) -> int:
    """Return the MiB that a disk takes on each of its nodes."""
    traits = disk.traits
    return disk.size + traits.extra_mib if traits.counts_as_usage else 0


def _disk_usage(instance: Instance, context: RunContext) -> object:
    return sum(map(_space_on_node, context.disks_of(instance)))


def _found(instance: Instance, context: RunContext) -> Found | Absent:
    """Return a node's answer about an instance that runs."""
    found = find_live(instance, context)
    if isinstance(found, Absent):
        return found
    return found if found is not None and found.is_running else UNAVAIL


def _live(what: str) -> _Get:
    def get(instance: Instance, context: RunContext) -> object:
        found = _found(instance, context)
        return found if isinstance(found, Absent) else getattr(found.live, what)

    return get


def _runs(instance: Instance, context: RunContext) -> object:
    found = find_live(instance, context)
    return found if isinstance(found, Absent) else found is not None and found.is_running


def _console(instance: Instance, context: RunContext) -> object:
    found = _found(instance, context)
    if isinstance(found, Absent):
        return found
    console = context.view.consoles.get(instance.uuid)
    return UNAVAIL if console is None else console.to_wire()


def _guest(instance: Instance, context: RunContext) -> object:
    found = _found(instance, context)
    if isinstance(found, Absent):
        return found
    guest = context.view.guests.get(instance.uuid)
    return UNAVAIL if guest is None else guest.to_wire()


def _primary(instance: Instance, context: RunContext) -> object:
    return context.node_name(instance.primary_node)


def _secondaries(instance: Instance, context: RunContext) -> object:
    return list(map(context.node_name, context.secondaries(instance)))


def _beparams(instance: Instance, context: RunContext) -> object:
    return context.beparams(instance)


def _osparams(instance: Instance, context: RunContext) -> object:
    return fill_osparams(context.cluster, instance.os, instance.osparams)


def _template(instance: Instance, context: RunContext) -> object:
    return disk_template(context.disks_of(instance))


def _nicparams(instance: Instance, _context: RunContext) -> object:
    return [nic.nicparams for nic in instance.nics]


def _is_up(instance: Instance, _context: RunContext) -> object:
    return instance.admin_state is AdminState.UP


def _rehearsal(instance: Instance, _context: RunContext) -> object:
    return None if instance.rehearsal is None else instance.rehearsal.to_wire()


_FIELDS: Final[list[FieldSpec[Instance]]] = [
    host_name("name", "Instance", "Name of the instance"),
    text("status", "Status", "State now, compared with the wanted one", instance_status, _LIVE),
    text("admin_state", "InstanceState", "What the instance is meant to do"),
    text("admin_state_source", "InstanceStateSource", "Who decided on admin_state"),
    boolean("admin_up", "Autostart", "Whether the instance is meant to run", _is_up),
    boolean("disks_active", "DisksActive", "Whether the disks are meant to be active"),
    boolean("forthcoming", "Forthcoming", "Whether the instance is planned only"),
    text("os", "OS", "Operating system"),
    text("hypervisor", "Hypervisor", "Name of the hypervisor"),
    other("network_port", "Network_port", "Port of the graphical console"),
    other("rehearsal", "Rehearsal", "What came of the last rehearsal of a backup", _rehearsal),
    # Nodes.
    host_name("pnode", "Primary_node", "Primary node", _primary),
    text("pnode.group", "PrimaryNodeGroup", "Group of the primary node", _group("name")),
    text("pnode.group.uuid", "PrimaryNodeGroupUUID", "UUID of pnode.group", _group("uuid")),
    other(
        "snodes", "Secondary_Nodes", "Secondary nodes; usually there is one or none", _secondaries
    ),
    other("snodes.group", "SecondaryNodesGroups", "Groups of the secondary nodes", _groups("name")),
    other(
        "snodes.group.uuid", "SecondaryNodesGroupsUUID", "UUIDs of snodes.group", _groups("uuid")
    ),
    # Parameters.
    *_settings("hvparams", "HypervisorParameters", "Hypervisor parameters", _own_hvparams),
    *param_fields("hv", _instance_hvparams().items(), _HV_TITLES, "hypervisor parameter", _hvparam),
    *_settings("beparams", "BackendParameters", "Backend parameters", _beparams),
    *param_fields("be", BEPARAMS.items(), _BE_TITLES, "backend parameter", _beparam),
    unit("be/memory", "ConfigMaxMem", "Old name of be/maxmem", _beparam("maxmem")),
    number("vcpus", "ConfigVCPUs", "Old name of be/vcpus", _beparam("vcpus")),
    *_settings("osparams", "OpSysParameters", "Operating system parameters", _osparams),
    # Disks.
    text("disk_template", "Disk_template", "How the disks are made", _template),
    unit("disk_usage", "DiskUsage", "Space that the disks take on each node", _disk_usage),
    number("disk.count", "Disks", "Number of disks", lambda instance, _: len(instance.disks)),
    other("disk.sizes", "Disk_sizes", "Sizes of the disks", _all_disks("size")),
    other("disk.spindles", "Disk_spindles", "Spindles of the disks", _all_disks("spindles")),
    other("disk.names", "Disk_names", "Names of the disks", _all_disks("name")),
    other("disk.uuids", "Disk_UUIDs", "UUIDs of the disks", _all_disks("uuid")),
    other("disk.modes", "Disk_modes", "Modes of the disks: rw or ro", _all_disks("mode")),
    other("disk.templates", "Disk_templates", "Templates of the disks", _all_disks("dev_type")),
    other(
        "disk.copies", "Disk_copies", f"Copies of the disks: {_STATES}", _copies("state"), _COPIES
    ),
    other(
        "disk.copied",
        "Disk_copied",
        "Percent of the disks that are copied, while that is done",
        _copies("percent"),
        _COPIES,
    ),
    other(
        "disk.status",
        "Disk_status",
        "States of the disks, as their primary nodes see them: ok, syncing, degraded, faulty,"
        " missing, unknown or inactive",
        _disk_states,
        Source.DISKS,
    ),
    unit("sda_size", "Disk/0", "Old name of disk.size/0", _disk("size", 0)),
    unit("sdb_size", "Disk/1", "Old name of disk.size/1", _disk("size", 1)),
    *_disk_fields(),
    # Network interfaces.
    number("nic.count", "NICs", "Number of network interfaces", lambda it, _: len(it.nics)),
    other(
        "custom_nicparams", "CustomNicParameters", "Parameters set for each interface", _nicparams
    ),
    *_nic_fields(),
    # Live.
    boolean("oper_state", "Running", "Whether the instance runs", _runs, _LIVE),
    unit("oper_ram", "Memory", "Memory that the instance has now", _live("memory"), _LIVE),
    number("oper_vcpus", "VCPUs", "Processors that the instance has now", _live("vcpus"), _LIVE),
    other("console", "Console", "How to reach the console", _console, Source.CONSOLE),
    other(
        "guest",
        "Guest",
        "Signs of life: whether the guest agent answers, the addresses that it tells, where the"
        " node forwards to its SSH port, the end of its serial console",
        _guest,
        Source.GUEST,
    ),
    *stamp_fields(Instance, "instance"),
]

RESOURCE: Final = Resource(
    QueryResource.INSTANCE, field_table(_FIELDS), lambda context: context.instances
)
