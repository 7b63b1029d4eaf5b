"""The fields of networks.

Source: query_fields.json, "network".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.ids import InstanceUuid
from ganeti.config.tables import name_key
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Network, NodeGroup
from ganeti.objects.query_words import QueryResource
from ganeti.query.context import RunContext
from ganeti.query.fields import (
    UNAVAIL,
    FieldSpec,
    Get,
    Resource,
    count_of,
    field_table,
    instance_fields,
    number,
    other,
    stamp_fields,
    text,
)


def _of_ipv4(get: Get[Network]) -> Get[Network]:
    """Give a value of networks that have IPv4 addresses; others have none."""
    return lambda network, context: get(network, context) if network.ipv4 else UNAVAIL


def _size(network: Network) -> int:
    """Return the number of addresses, those of the network and for broadcast included."""
    return 1 << (32 - int(network.network.partition("/")[2]))


def _map(network: Network, _context: RunContext) -> str:
    """Return one character per address: X if it is taken, a dot if it is free."""
    size = _size(network)
    own = (network.reservations or "").ljust(size, "0")
    external = (network.ext_reservations or "").ljust(size, "0")
    return "".join(
        "X" if "1" in (one, other) else "." for one, other in zip(own, external, strict=False)
    )


def _address(network: Network, index: int) -> str:
    octets = network.network.partition("/")[0].split(".")
    number = int.from_bytes(bytes(map(int, octets)), "big") + index
    return ".".join(map(str, number.to_bytes(4, "big")))


def _external(network: Network, _context: RunContext) -> str:
    bits = network.ext_reservations or ""
    return ", ".join(_address(network, index) for index, bit in enumerate(bits) if bit == "1")


def _connected(network: Network, context: RunContext) -> list[NodeGroup]:
    groups = [group for group in context.groups.values() if network.uuid in group.networks]
    return sorted(groups, key=lambda group: name_key(group.name))


def _groups(network: Network, context: RunContext) -> object:
    """Return [group, mode, link, VLAN] for each group that the network is connected to."""

    def row(group: NodeGroup) -> list[str]:
        params = fill_nicparams(context.cluster, group.networks[network.uuid])
        return [group.name, params["mode"], params["link"], params["vlan"]]

    return list(map(row, _connected(network, context)))


def _external6(network: Network, _context: RunContext) -> str:
    return ", ".join(network.ext_reservations6 or ())


def _counted(mark: str) -> Get[Network]:
    return _of_ipv4(lambda network, context: _map(network, context).count(mark))


def _instances(network: Network, context: RunContext) -> Sequence[InstanceUuid]:
    return context.config.network_instances(network.uuid)


_FIELDS: Final[list[FieldSpec[Network]]] = [
    text("name", "Network", "Name of the network"),
    text("network", "Subnet", "IPv4 subnet", _of_ipv4(lambda network, _: network.network)),
    other("gateway", "Gateway", "IPv4 gateway"),
    other("network6", "IPv6Subnet", "IPv6 subnet"),
    other("gateway6", "IPv6Gateway", "IPv6 gateway"),
    other("mac_prefix", "MacPrefix", "Prefix of MAC addresses in this network"),
    number("free_count", "FreeCount", "Number of free addresses", _counted(".")),
    number("reserved_count", "ReservedCount", "Number of taken addresses", _counted("X")),
    text("map", "Map", "One character per address: X taken, . free", _of_ipv4(_map)),
    text(
        "external_reservations",
        "ExternalReservations",
        "Addresses that no instance gets",
        _of_ipv4(_external),
    ),
    text(
        "external_reservations6",
        "ExternalReservations6",
        "IPv6 addresses and ranges that no instance gets",
        _external6,
    ),
    number("group_cnt", "NodeGroups", "Number of connected node groups", count_of(_connected)),
    other("group_list", "GroupList", "Connected node groups, with mode, link and VLAN", _groups),
    *instance_fields("inst", ("Instances", "InstanceList"), "in the network", _instances),
    *stamp_fields(Network, "network"),
]

RESOURCE: Final = Resource(
    QueryResource.NETWORK, field_table(_FIELDS), lambda context: context.networks
)
