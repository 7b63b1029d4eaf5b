"""The fields of instances that are about their network interfaces.

Source: query_fields.json, "instance", names that begin with nic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ganeti.base.ids import NetworkUuid
from ganeti.objects.instance import Instance
from ganeti.objects.nic import NIC
from ganeti.objects.nic_modes import NICS_MAX, NicMode
from ganeti.objects.query_words import FieldKind
from ganeti.query.context import RunContext
from ganeti.query.fields import UNAVAIL, FieldSpec, or_unavailable

_NicGet = Callable[[NIC, RunContext], object]


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
    network = context.view.networks.get(NetworkUuid(nic.network))
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
    (
        "network",
        "networks",
        "NicNetwork",
        "NIC_networks",
        "network's UUID",
        lambda nic, _context: nic.network,
    ),
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


def _of_one(get: _NicGet, index: int) -> Callable[[Instance, RunContext], object]:
    def value(instance: Instance, context: RunContext) -> object:
        if index >= len(instance.nics):
            return UNAVAIL
        return or_unavailable(get(instance.nics[index], context))

    return value


def _of_all(get: _NicGet) -> Callable[[Instance, RunContext], object]:
    return lambda instance, context: [get(nic, context) for nic in instance.nics]


def _fields() -> list[FieldSpec[Instance]]:
    fields: list[FieldSpec[Instance]] = [
        FieldSpec(
            "nic.count",
            "NICs",
            FieldKind.NUMBER,
            "Number of network interfaces",
            lambda instance, _context: len(instance.nics),
        ),
        FieldSpec(
            "custom_nicparams",
            "CustomNicParameters",
            FieldKind.OTHER,
            "Parameters set for each network interface",
            lambda instance, _context: [nic.nicparams for nic in instance.nics],
        ),
    ]
    for one, every, title, title_of_all, what, get in _VALUES:
        doc = f"{what[0].upper()}{what[1:]} of"
        fields.append(
            FieldSpec(
                f"nic.{every}",
                title_of_all,
                FieldKind.OTHER,
                f"{doc} each network interface",
                _of_all(get),
            )
        )
        names = [(f"nic.{one}/{index}", index) for index in range(NICS_MAX)]
        if one in _FIRST:
            names.append((_FIRST[one], 0))
        fields += [
            FieldSpec(
                name,
                f"{title}/{index}",
                FieldKind.TEXT,
                f"{doc} network interface {index}",
                _of_one(get, index),
            )
            for name, index in names
        ]
    return fields


NIC_FIELDS: Final = _fields()
