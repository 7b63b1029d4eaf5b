"""The fields of networks.

Source: query_fields.json, "network".
"""

from __future__ import annotations

from typing import Final

from ganeti.objects.fill import fill_nicparams
from ganeti.objects.network import Network
from ganeti.objects.nodegroup import NodeGroup
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.query.context import RunContext, name_key, sorted_names
from ganeti.query.fields import FieldSpec, Resource, field_table, or_unavailable
from ganeti.query.fields_common import stamp_fields

_K = FieldKind


def _size(network: Network) -> int:
    """Return the number of addresses, those of the network and for broadcast included."""
    return 1 << (32 - int(network.network.partition("/")[2]))


def _map(network: Network) -> str:
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


def _external(network: Network) -> str:
    bits = network.ext_reservations or ""
    return ", ".join(_address(network, index) for index, bit in enumerate(bits) if bit == "1")


def _connected(network: Network, context: RunContext) -> list[NodeGroup]:
    groups = [group for group in context.view.groups.values() if network.uuid in group.networks]
    return sorted(groups, key=lambda group: name_key(group.name))


def _group_list(network: Network, context: RunContext) -> object:
    """Return [group, mode, link, VLAN] for each group that the network is connected to."""
    rows: list[list[str]] = []
    for group in _connected(network, context):
        params = fill_nicparams(context.view.cluster, group.networks[network.uuid])
        rows.append([group.name, params["mode"], params["link"], params["vlan"]])
    return rows


_FIELDS: Final[list[FieldSpec[Network]]] = [
    FieldSpec(
        "name", "Network", _K.TEXT, "Name of the network", lambda network, _context: network.name
    ),
    FieldSpec(
        "network", "Subnet", _K.TEXT, "IPv4 subnet", lambda network, _context: network.network
    ),
    FieldSpec(
        "gateway",
        "Gateway",
        _K.OTHER,
        "IPv4 gateway",
        lambda network, _context: or_unavailable(network.gateway),
    ),
    FieldSpec(
        "network6",
        "IPv6Subnet",
        _K.OTHER,
        "IPv6 subnet",
        lambda network, _context: or_unavailable(network.network6),
    ),
    FieldSpec(
        "gateway6",
        "IPv6Gateway",
        _K.OTHER,
        "IPv6 gateway",
        lambda network, _context: or_unavailable(network.gateway6),
    ),
    FieldSpec(
        "mac_prefix",
        "MacPrefix",
        _K.OTHER,
        "Prefix of MAC addresses in this network",
        lambda network, _context: or_unavailable(network.mac_prefix),
    ),
    FieldSpec(
        "free_count",
        "FreeCount",
        _K.NUMBER,
        "Number of free addresses",
        lambda network, _context: _map(network).count("."),
    ),
    FieldSpec(
        "reserved_count",
        "ReservedCount",
        _K.NUMBER,
        "Number of taken addresses",
        lambda network, _context: _map(network).count("X"),
    ),
    FieldSpec(
        "map",
        "Map",
        _K.TEXT,
        "One character per address: X taken, . free",
        lambda network, _context: _map(network),
    ),
    FieldSpec(
        "external_reservations",
        "ExternalReservations",
        _K.TEXT,
        "Addresses that are kept away from instances",
        lambda network, _context: _external(network),
    ),
    FieldSpec(
        "group_cnt",
        "NodeGroups",
        _K.NUMBER,
        "Number of node groups that the network is connected to",
        lambda network, context: len(_connected(network, context)),
    ),
    FieldSpec(
        "group_list",
        "GroupList",
        _K.OTHER,
        "Node groups that the network is connected to, with mode, link and VLAN",
        _group_list,
    ),
    FieldSpec(
        "inst_cnt",
        "Instances",
        _K.NUMBER,
        "Number of instances in the network",
        lambda network, context: len(context.network_instances(network)),
    ),
    FieldSpec(
        "inst_list",
        "InstanceList",
        _K.OTHER,
        "Instances in the network",
        lambda network, context: sorted_names(
            instance.name for instance in context.network_instances(network)
        ),
    ),
    *stamp_fields(Network, "network"),
]

RESOURCE: Final = Resource(
    name=QueryResource.NETWORK,
    fields=field_table(_FIELDS),
    items=lambda context: context.view.networks,
    name_field="name",
    sort_key=lambda network, _context: name_key(network.name),
)
