"""The fields of instances that are about their network interfaces.

Source: query_fields.json, "instance", names that begin with nic.
"""

from __future__ import annotations

from typing import Final

from ganeti.base.ids import NetworkUuid
from ganeti.objects.model import Instance
from ganeti.objects.nic import NIC, NICS_MAX, NicMode
from ganeti.query.context import RunContext
from ganeti.query.fields import UNAVAIL, FieldSpec, or_unavailable
from ganeti.query.resources.common import Get, number, other, text

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
