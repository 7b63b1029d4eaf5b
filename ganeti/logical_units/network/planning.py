"""Networks as asked for, checked: plain decisions over plain values.

Source: opcodes.json, OP_NETWORK_*; config.json, "network_reservations".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import AddressPoolError, ErrorCode, OpPrereqError, ParameterError, TagError
from ganeti.base.text import natural_sorted
from ganeti.config.address_pool import PREFIX_LENGTH_MAX, PREFIX_LENGTH_MIN, AddressPool
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Cluster, Instance, Network, NodeGroup
from ganeti.objects.nic import NIC, NicMode, mac_prefix_problem, parse_vlan
from ganeti.objects.tags import add_tags
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkConnect, OpNetworkSetParams

_NAME: Final = re.compile(r"[^\s/,]{1,255}")
NicParameters = Mapping[str, object]


def new_network(op: OpNetworkAdd, uuid: str, own_addresses: Iterable[str]) -> Network:
    """Decide a network that is to be added.

    Args:
        own_addresses: addresses of the cluster itself; those in the network are kept away from
            instances.

    Raises:
        OpPrereqError: it cannot be; says what is wrong.
    """
    name = op.network_name
    if _NAME.fullmatch(name) is None:
        raise _wrong(f"{name!r} cannot be the name of a network")
    _check_range(name, op.network)
    _check_ipv6(name, op.network6, op.gateway6)
    bare = Network.from_wire(
        {
            "name": name,
            "uuid": uuid,
            "network": op.network,
            "gateway": op.gateway,
            "network6": op.network6,
            "gateway6": op.gateway6,
            "mac_prefix": None if op.mac_prefix is None else mac_prefix(name, op.mac_prefix),
            "serial_no": 1,
            "tags": _tags(op.tags),
        }
    )
    pool = AddressPool(bare)
    for address in edges(pool):
        pool.reserve(address, external=True)
    if op.gateway is not None:
        _keep_away(pool, op.gateway, "gateway")
    for address in op.add_reserved_ips or ():
        _keep_away(pool, address, "reserved address")
    for address in own_addresses:
        if pool.contains(address) and not pool.is_external(address):
            pool.reserve(address, external=True)
    return _with_pool(bare, pool)


def _wrong(text: str) -> OpPrereqError:
    return OpPrereqError(text)


def _tags(given: Sequence[str]) -> list[str]:
    try:
        return add_tags([], given)
    except TagError as err:
        raise _wrong(err.message) from err


def _with_pool(network: Network, pool: AddressPool) -> Network:
    return replace(network, reservations=pool.reservations, ext_reservations=pool.ext_reservations)


def edges(pool: AddressPool) -> tuple[str, str]:
    """Return the addresses of the network itself and for broadcast: no instance gets them."""
    return pool.address_at(0), pool.address_at(pool.size - 1)


def _check_range(name: str, text: str) -> None:
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError as err:
        raise _wrong(f"network {name!r}: {err}") from err
    if not PREFIX_LENGTH_MIN <= found.prefixlen <= PREFIX_LENGTH_MAX:
        raise _wrong(
            f"network {name!r}: {text} is not supported; networks have from"
            f" /{PREFIX_LENGTH_MAX} (4 addresses) to /{PREFIX_LENGTH_MIN} (65536 addresses)"
        )


def _check_ipv6(name: str, network6: str | None, gateway6: str | None) -> None:
    try:
        found = None if network6 is None else ipaddress.IPv6Network(network6)
        gateway = None if gateway6 is None else ipaddress.IPv6Address(gateway6)
    except ValueError as err:
        raise _wrong(f"network {name!r}: {err}") from err
    if gateway is None:
        return
    if found is None:
        raise _wrong(f"network {name!r}: the gateway {gateway6} needs an IPv6 network (--network6)")
    if gateway not in found:
        raise _wrong(f"network {name!r}: the gateway {gateway6} does not lie in {network6}")


def mac_prefix(name: str, text: str) -> str:
    """Return the prefix of MAC addresses in lower case.

    Raises:
        OpPrereqError: it is not three bytes, or is for groups of cards.
    """
    problem = mac_prefix_problem(text)
    if problem:
        raise _wrong(f"network {name!r}: {problem}")
    return text.lower()


def _keep_away(pool: AddressPool, address: str, what: str) -> None:
    """Mark an address as not for instances; one that is marked already stays so.

    Raises:
        OpPrereqError: outside of the network, or an instance has it.
    """
    try:
        if pool.is_reserved(address):
            raise OpPrereqError(
                f"network {pool.name!r}: {what} {address} is in use by an instance",
                ErrorCode.NOTUNIQUE,
            )
        if not pool.is_external(address):
            pool.reserve(address, external=True)
    except AddressPoolError as err:
        raise _wrong(f"network {pool.name!r}: {what}: {err.message}") from err


def network_changes(network: Network, op: OpNetworkSetParams) -> dict[str, object]:
    """Return the new values of the fields of a network that an opcode changes.

    Raises:
        OpPrereqError: it cannot be; says what is wrong.
    """
    name = network.name
    changes: dict[str, object] = {}
    if op.mac_prefix is not None:
        changes["mac_prefix"] = mac_prefix(name, op.mac_prefix)
    if op.network6 is not None or op.gateway6 is not None:
        network6, gateway6 = op.network6 or network.network6, op.gateway6 or network.gateway6
        _check_ipv6(name, network6, gateway6)
        changes |= {"network6": network6, "gateway6": gateway6}
    pool = AddressPool(network)
    if op.gateway is not None and op.gateway != network.gateway:
        _keep_away(pool, op.gateway, "gateway")
        if network.gateway is not None and network.gateway not in edges(pool):
            pool.release(network.gateway, external=True)
        changes["gateway"] = op.gateway
    for address in op.add_reserved_ips or ():
        _keep_away(pool, address, "reserved address")
    for address in op.remove_reserved_ips or ():
        _give_to_instances(pool, address, op.gateway or network.gateway)
    if pool.ext_reservations != (network.ext_reservations or ""):
        changes["ext_reservations"] = pool.ext_reservations
    return changes


def _give_to_instances(pool: AddressPool, address: str, gateway: str | None) -> None:
    try:
        if not pool.is_external(address):
            raise OpPrereqError(f"network {pool.name!r}: address {address} is not reserved")
    except AddressPoolError as err:
        raise _wrong(f"network {pool.name!r}: {err.message}") from err
    if address in edges(pool) or address == gateway:
        raise _wrong(
            f"network {pool.name!r}: {address} is the address of the network, for broadcast or of"
            " the gateway; instances cannot have it"
        )
    pool.release(address, external=True)


# Connecting to groups.


def connection_params(op: OpNetworkConnect) -> dict[str, str]:
    """Return mode, link and VLAN that NICs get which join the network in a group.

    Raises:
        OpPrereqError: they make no sense.
    """
    if op.network_mode is NicMode.POOL:
        raise _wrong(
            f"network {op.network_name!r} cannot be connected in mode 'pool'; use bridged, routed"
            " or openvswitch"
        )
    try:
        vlan = str(parse_vlan(op.network_vlan))
    except ParameterError as err:
        raise _wrong(f"network {op.network_name!r}: {err.message}") from err
    if vlan and op.network_mode is NicMode.ROUTED:
        raise _wrong(f"network {op.network_name!r}: a VLAN cannot be used in mode routed")
    return {"mode": op.network_mode.value, "link": op.network_link, "vlan": vlan}


def is_conflict(cluster: Cluster, nic: NIC, network: Network, params: NicParameters) -> bool:
    """Tell whether a NIC has an address of a network on the same link without being in it."""
    if nic.ip is None or nic.network is not None or not contains(network, nic.ip):
        return False
    filled = fill_nicparams(cluster, nic)
    return (filled["mode"], filled["link"]) == (params["mode"], params["link"])


def contains(network: Network, address: str) -> bool:
    """Tell whether an address, IPv4 or IPv6, lies in a network."""
    parsed = ipaddress.ip_address(address)
    text = network.network if parsed.version == 4 else network.network6
    return text is not None and parsed in ipaddress.ip_network(text, strict=False)


def conflicts(
    cluster: Cluster, instances: Iterable[Instance], network: Network, params: NicParameters
) -> list[str]:
    """Return "instance (address)" of each NIC that a network would be in conflict with."""
    return natural_sorted(
        f"{instance.name} ({nic.ip})"
        for instance in instances
        for nic in instance.nics
        if is_conflict(cluster, nic, network, params)
    )


def users(instances: Iterable[Instance], network: Network) -> list[str]:
    """Return the names of instances with a NIC in a network."""
    return natural_sorted(
        instance.name
        for instance in instances
        if any(nic.network == network.uuid for nic in instance.nics)
    )


def groups_of(groups: Iterable[NodeGroup], network: Network) -> list[str]:
    """Return the names of the groups that a network is connected to."""
    return natural_sorted(group.name for group in groups if network.uuid in group.networks)
