"""Networks, groups and instances as the cluster has them: from queries, and as a file.

`export` writes what `ganeti.desired.plan` compares: its file leaves nothing to be done.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.json import JsonValue
from ganeti.base.text import natural_sorted
from ganeti.objects.disk_templates import DiskMode

Params = Mapping[str, JsonValue]


@dataclass(frozen=True)
class LivingNetwork:
    """A network; ``reserved`` are the addresses that the administrator keeps."""

    name: str
    network: str | None = None
    gateway: str | None = None
    network6: str | None = None
    gateway6: str | None = None
    mac_prefix: str | None = None
    reserved: frozenset[str] = frozenset()
    groups: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LivingGroup:
    """A node group with its own parameters."""

    name: str
    alloc_policy: str
    ndparams: Params = field(default_factory=dict)
    diskparams: Mapping[str, Params] = field(default_factory=dict)
    ipolicy: Params = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LivingDisk:
    """A disk; MiB."""

    size: int
    mode: str = DiskMode.RW
    name: str | None = None


@dataclass(frozen=True)
class LivingNic:
    """A network interface: its effective parameters, and those of its own."""

    mac: str
    ip: str | None = None
    network: str | None = None
    mode: str = ""
    link: str = ""
    vlan: str = ""
    name: str | None = None
    own: Params = field(default_factory=dict)


@dataclass(frozen=True)
class LivingInstance:
    """An instance with its own parameters."""

    name: str
    os: str
    hypervisor: str
    disk_template: str
    admin_state: str
    node: str
    secondary: str | None = None
    beparams: Params = field(default_factory=dict)
    hvparams: Params = field(default_factory=dict)
    osparams: Params = field(default_factory=dict)
    disks: tuple[LivingDisk, ...] = ()
    nics: tuple[LivingNic, ...] = ()
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Living:
    """What a cluster has, by names."""

    groups: Mapping[str, LivingGroup] = field(default_factory=dict)
    networks: Mapping[str, LivingNetwork] = field(default_factory=dict)
    instances: Mapping[str, LivingInstance] = field(default_factory=dict)

    @property
    def nodes(self) -> Mapping[str, str]:
        """The group of each node."""
        return {node: group.name for group in self.groups.values() for node in group.nodes}


NETWORK_FIELDS: Final = (
    *("name", "network", "gateway", "network6", "gateway6", "mac_prefix"),
    *("external_reservations", "external_reservations6", "group_list", "tags"),
)
GROUP_FIELDS: Final = (
    *("name", "alloc_policy", "custom_ndparams", "custom_diskparams", "custom_ipolicy"),
    *("node_list", "tags"),
)
INSTANCE_FIELDS: Final = (
    *("name", "os", "hypervisor", "disk_template", "admin_state", "pnode", "snodes"),
    *("custom_beparams", "custom_hvparams", "custom_osparams", "tags"),
    *("disk.sizes", "disk.modes", "disk.names"),
    *("nic.macs", "nic.ips", "nic.networks.names", "nic.modes", "nic.links", "nic.vlans"),
    *("nic.names", "custom_nicparams"),
)


def from_rows(
    groups: Sequence[Sequence[object]],
    networks: Sequence[Sequence[object]],
    instances: Sequence[Sequence[object]],
) -> Living:
    """Return what a cluster has, from the answers to questions for the fields above."""
    return Living(
        {str(row[0]): _group(dict(zip(GROUP_FIELDS, row, strict=True))) for row in groups},
        {str(row[0]): _network(dict(zip(NETWORK_FIELDS, row, strict=True))) for row in networks},
        {str(row[0]): _instance(dict(zip(INSTANCE_FIELDS, row, strict=True))) for row in instances},
    )


def _group(row: Mapping[str, object]) -> LivingGroup:
    disk = _params(row["custom_diskparams"])
    return LivingGroup(
        str(row["name"]),
        str(row["alloc_policy"]),
        _params(row["custom_ndparams"]),
        {template: _params(params) for template, params in disk.items()},
        _params(row["custom_ipolicy"]),
        frozenset(map(str, _list(row["node_list"]))),
        frozenset(map(str, _list(row["tags"]))),
    )


def _network(row: Mapping[str, object]) -> LivingNetwork:
    own = {str(row["gateway"])}
    if row["network"]:
        subnet = ipaddress.IPv4Network(str(row["network"]))
        own |= {str(subnet[0]), str(subnet[-1])}
    both = (row["external_reservations"], row["external_reservations6"])
    outside = [text for texts in both for text in str(texts or "").split(", ") if text]
    connected: dict[str, tuple[str, str, str]] = {}
    for entry in _list(row["group_list"]):
        name, mode, link, vlan = map(str, _list(entry))
        connected[name] = (mode, link, vlan)
    return LivingNetwork(
        str(row["name"]),
        _text(row["network"]),
        _text(row["gateway"]),
        _text(row["network6"]),
        _text(row["gateway6"]),
        _text(row["mac_prefix"]),
        frozenset(outside) - own,
        connected,
        frozenset(map(str, _list(row["tags"]))),
    )


def _instance(row: Mapping[str, object]) -> LivingInstance:
    columns = [_list(row[f"disk.{each}"]) for each in ("sizes", "modes", "names")]
    disks = [
        LivingDisk(int(str(size)), str(mode), _text(name))
        for size, mode, name in zip(*columns, strict=True)
    ]
    nic_fields = ("macs", "ips", "networks.names", "modes", "links", "vlans", "names")
    columns = [_list(row[f"nic.{each}"]) for each in nic_fields]
    nics = [
        LivingNic(
            mac=str(mac),
            ip=_text(ip),
            network=_text(network),
            mode=_text(mode) or "",
            link=_text(link) or "",
            vlan=_text(vlan) or "",
            name=_text(name),
            own=_params(own),
        )
        for mac, ip, network, mode, link, vlan, name, own in zip(
            *columns, _list(row["custom_nicparams"]), strict=True
        )
    ]
    secondaries = _list(row["snodes"])
    return LivingInstance(
        name=str(row["name"]),
        os=str(row["os"]),
        hypervisor=str(row["hypervisor"]),
        disk_template=str(row["disk_template"]),
        admin_state=str(row["admin_state"]),
        node=str(row["pnode"]),
        secondary=str(secondaries[0]) if secondaries else None,
        beparams=_params(row["custom_beparams"]),
        hvparams=_params(row["custom_hvparams"]),
        osparams=_params(row["custom_osparams"]),
        disks=tuple(disks),
        nics=tuple(nics),
        tags=frozenset(map(str, _list(row["tags"]))),
    )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _params(value: object) -> Params:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def export(living: Living) -> dict[str, object]:
    """Return the file that describes a cluster; what has its default is left out."""
    return {
        "groups": {name: _group_entry(each) for name, each in sorted(living.groups.items())},
        "networks": {name: _network_entry(each) for name, each in sorted(living.networks.items())},
        "instances": {
            name: _instance_entry(each) for name, each in sorted(living.instances.items())
        },
    }


def _filled(entry: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in entry.items() if value not in (None, "", {}, [])}


def _group_entry(group: LivingGroup) -> dict[str, object]:
    return _filled(
        {
            "alloc_policy": group.alloc_policy,
            "nodes": sorted(group.nodes),
            "ndparams": dict(group.ndparams),
            "diskparams": {name: dict(each) for name, each in group.diskparams.items() if each},
            "ipolicy": dict(group.ipolicy),
            "tags": sorted(group.tags),
        }
    )


def _network_entry(network: LivingNetwork) -> dict[str, object]:
    return _filled(
        {
            "network": network.network,
            "gateway": network.gateway,
            "network6": network.network6,
            "gateway6": network.gateway6,
            "mac_prefix": network.mac_prefix,
            "reserved": natural_sorted(network.reserved),
            "groups": {
                name: _filled({"mode": mode, "link": link, "vlan": vlan})
                for name, (mode, link, vlan) in sorted(network.groups.items())
            },
            "tags": sorted(network.tags),
        }
    )


def _instance_entry(instance: LivingInstance) -> dict[str, object]:
    entry = _filled(
        {
            "os": instance.os,
            "hypervisor": instance.hypervisor,
            "disk_template": instance.disk_template,
            "node": instance.node,
            "secondary": instance.secondary,
            "state": instance.admin_state,
            "beparams": dict(instance.beparams),
            "hvparams": dict(instance.hvparams),
            "osparams": dict(instance.osparams),
            "tags": sorted(instance.tags),
        }
    )
    entry["disks"] = [
        _filled(
            {
                "size": disk.size,
                "mode": None if disk.mode == DiskMode.RW else str(disk.mode),
                "name": disk.name,
            }
        )
        for disk in instance.disks
    ]
    entry["nics"] = [_nic_entry(nic) for nic in instance.nics]
    return entry


def _nic_entry(nic: LivingNic) -> dict[str, object]:
    entry = _filled({"mac": nic.mac, "ip": nic.ip, "network": nic.network, "name": nic.name})
    if nic.network is None:  # a network brings its parameters with it
        entry |= {name: str(value) for name, value in nic.own.items()}
    return entry
