"""What a network is to be: new, or with changed settings.

Plain decisions over plain values.  IPv4 addresses that are kept away from instances are bits of a
map, which holds those that instances have as well; IPv6 addresses kept away are ranges, and
the NICs tell which ones instances have.

Source: opcodes.json, OP_NETWORK_*; config.json, "network_reservations".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from ganeti.base import errors
from ganeti.base.errors import OpPrereqError, refusing
from ganeti.config.addresses.pool import PREFIX_LENGTH_MAX, PREFIX_LENGTH_MIN, AddressPool
from ganeti.config.addresses.pool6 import AddressPool6, is_ipv6, parse_range
from ganeti.objects.model import NO_IPV4, Network
from ganeti.objects.nic import mac_prefix_problem
from ganeti.objects.tags import add_tags
from ganeti.opcodes import network as opcodes

_NAME: Final = re.compile(r"[^\s/,]{1,255}")


def new_network(op: opcodes.OpNetworkAdd, uuid: str, own_addresses: Iterable[str]) -> Network:
    """Decide a network that is to be added.

    Args:
        own_addresses: addresses of the cluster itself; those in the network are kept away from
            instances.

    Raises:
        OpPrereqError: it cannot be; the message has the reason.
    """
    name = op.network_name
    check_name(name)
    if op.network is not None:
        _check_range(name, op.network)
    elif op.network6 is None:
        raise _wrong(name, "it needs addresses: IPv4 (--network), IPv6 (--network6) or both")
    _check_ipv6(name, op.network6, op.gateway6)
    with refusing(errors.TagError):
        tags = add_tags([], op.tags)
    bare = Network.from_wire(
        {
            "name": name,
            "uuid": uuid,
            "network": op.network or NO_IPV4,
            **{key: getattr(op, key) for key in ("gateway", "network6", "gateway6")},
            "mac_prefix": None if op.mac_prefix is None else mac_prefix(name, op.mac_prefix),
            "serial_no": 1,
            "tags": tags,
        }
    )
    added4, added6 = _by_family(bare, op.gateway, op.add_reserved_ips)
    pool = AddressPool(bare)
    for address in edges(pool) if bare.ipv4 else map(pool.address_at, range(pool.size)):
        pool.reserve(address, external=True)
    if op.gateway is not None:
        _set_gateway(pool, op.gateway)
    for address in added4:
        _keep_away(pool, address, "reserved address")
    own = list(own_addresses)
    for address in own:
        if pool.contains(address) and not pool.is_external(address):
            pool.reserve(address, external=True)
    return replace(
        bare,
        reservations=pool.reservations,
        ext_reservations=pool.ext_reservations,
        ext_reservations6=_kept6(bare, added6, own),
    )


def _kept6(
    network: Network, added: Iterable[str], own_addresses: Iterable[str]
) -> list[str] | None:
    """Return the IPv6 addresses of a new network that are kept away from instances."""
    if network.network6 is None:
        return None
    pool = AddressPool6(network)
    with refusing(errors.AddressPoolError, prefix=f"network {network.name!r}: reserved address: "):
        for text in added:
            pool.keep(text)
    for address in own_addresses:
        if pool.contains(address) and not pool.is_external(address):
            pool.keep(address)
    return pool.ext_reservations or None


def _by_family(
    network: Network, gateway: str | None, *changed: Iterable[str] | None
) -> list[list[str]]:
    """Return each list of addresses as two: those of IPv4, and those of IPv6.

    Raises:
        OpPrereqError: the network has none of that kind.
    """
    found = [
        [text for text in texts or () if is_ipv6(text) is of_6]
        for texts in changed
        for of_6 in (False, True)
    ]
    for kind, has, texts in (
        ("IPv4", network.ipv4, [gateway or "", *(text for four in found[::2] for text in four)]),
        ("IPv6", network.network6, [text for six in found[1::2] for text in six]),
    ):
        if has is None and any(texts):
            named = ", ".join(filter(None, texts))
            raise _wrong(network.name, f"it has no {kind} addresses, and cannot have {named}")
    return found


def check_name(name: str) -> None:
    """Refuse a text that cannot be the name of a network.

    Raises:
        OpPrereqError: it is too long, or has blanks, slashes or commas.
    """
    if _NAME.fullmatch(name) is None:
        raise OpPrereqError(f"{name!r} cannot be the name of a network")


def _wrong(name: str, text: str) -> OpPrereqError:
    return OpPrereqError(f"network {name!r}: {text}")


def edges(pool: AddressPool) -> tuple[str, str]:
    """Return the addresses of the network itself and for broadcast: no instance gets them."""
    return pool.address_at(0), pool.address_at(pool.size - 1)


def _check_range(name: str, text: str) -> None:
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError as err:
        raise _wrong(name, str(err)) from err
    if text == NO_IPV4:
        raise _wrong(name, f"{text} is not supported; for IPv6 addresses alone leave it out")
    if not PREFIX_LENGTH_MIN <= found.prefixlen <= PREFIX_LENGTH_MAX:
        raise _wrong(
            name,
            f"{text} is not supported; networks have from /{PREFIX_LENGTH_MAX} (4 addresses) to"
            f" /{PREFIX_LENGTH_MIN} (65536 addresses)",
        )


def _check_ipv6(name: str, network6: str | None, gateway6: str | None) -> None:
    try:
        found = None if network6 is None else ipaddress.IPv6Network(network6)
        gateway = None if gateway6 is None else ipaddress.IPv6Address(gateway6)
    except ValueError as err:
        raise _wrong(name, str(err)) from err
    if gateway is None:
        return
    if found is None:
        raise _wrong(name, f"the gateway {gateway6} needs an IPv6 network (--network6)")
    if gateway not in found:
        raise _wrong(name, f"the gateway {gateway6} does not lie in {network6}")


def mac_prefix(name: str, text: str) -> str:
    """Return the prefix of MAC addresses in lower case.

    Raises:
        OpPrereqError: it is not three bytes, or is for groups of cards.
    """
    problem = mac_prefix_problem(text)
    if problem:
        raise _wrong(name, problem)
    return text.lower()


def _set_gateway(pool: AddressPool, address: str) -> None:
    """Keep the address of a gateway away from instances.

    Raises:
        OpPrereqError: outside of the network, not for a machine, or an instance has it.
    """
    if address in edges(pool):
        raise _wrong(
            pool.name, f"gateway: {address} is the address of the network or for broadcast"
        )
    _keep_away(pool, address, "gateway")


def _keep_away(pool: AddressPool, address: str, what: str) -> None:
    """Mark an address as not for instances; one that is marked already stays so.

    Raises:
        OpPrereqError: outside of the network, or an instance has it.
    """
    with refusing(errors.AddressPoolError, prefix=f"network {pool.name!r}: {what}: "):
        if pool.is_reserved(address):
            raise OpPrereqError(
                f"network {pool.name!r}: {what} {address} is in use by an instance",
                errors.ErrorCode.NOTUNIQUE,
            )
        if not pool.is_external(address):
            pool.reserve(address, external=True)


def network_changes(
    network: Network, op: opcodes.OpNetworkSetParams, used6: Iterable[str] = ()
) -> dict[str, object]:
    """Return the new values of the fields of a network that an opcode changes.

    Args:
        used6: the IPv6 addresses that instances have in it.

    Raises:
        OpPrereqError: it cannot be; the message has the reason.
    """
    name = network.name
    changes: dict[str, object] = {}
    if op.mac_prefix is not None:
        changes["mac_prefix"] = mac_prefix(name, op.mac_prefix)
    after = replace(
        network, network6=op.network6 or network.network6, gateway6=op.gateway6 or network.gateway6
    )
    if op.network6 is not None or op.gateway6 is not None:
        _check_ipv6(name, after.network6, after.gateway6)
        changes |= {"network6": after.network6, "gateway6": after.gateway6}
    added4, added6, removed4, removed6 = _by_family(
        after, op.gateway, op.add_reserved_ips, op.remove_reserved_ips
    )
    if op.network6 is not None or op.gateway6 is not None or added6 or removed6:
        changes |= _changes6(network, after, added6, removed6, used6)
    pool = AddressPool(network)
    if op.gateway is not None and op.gateway != network.gateway:
        _set_gateway(pool, op.gateway)
        if network.gateway is not None and network.gateway not in edges(pool):
            pool.release(network.gateway, external=True)
        changes["gateway"] = op.gateway
    for address in added4:
        _keep_away(pool, address, "reserved address")
    for address in removed4:
        _give_to_instances(pool, address, op.gateway or network.gateway)
    if pool.ext_reservations != (network.ext_reservations or ""):
        changes["ext_reservations"] = pool.ext_reservations
    return changes


def _changes6(
    network: Network,
    after: Network,
    added: Iterable[str],
    removed: Iterable[str],
    used: Iterable[str],
) -> dict[str, object]:
    """Return the changed IPv6 addresses that are kept away from instances."""
    with refusing(errors.AddressPoolError, prefix=f"network {network.name!r}: "):
        pool = AddressPool6(after)
        for text in network.ext_reservations6 or ():
            if not pool.contains(text):
                raise _wrong(
                    network.name,
                    f"{text} is reserved, and does not lie in {after.network6}; give it back first"
                    f" (--remove-reserved-ips={text})",
                )
        if after.gateway6 is not None and after.gateway6 != network.gateway6:
            _check_unused6(network.name, after.gateway6, "gateway", used)
        for text in added:
            pool.keep(text)
            _check_unused6(network.name, text, "reserved address", used)
        for text in removed:
            pool.give_back(text)
    kept = pool.ext_reservations
    return {} if kept == (network.ext_reservations6 or []) else {"ext_reservations6": kept or None}


def _check_unused6(name: str, text: str, what: str, used: Iterable[str]) -> None:
    first, last = parse_range(text)
    for address in used:
        if first <= parse_range(address)[0] <= last:
            raise OpPrereqError(
                f"network {name!r}: {what} {address} is in use by an instance",
                errors.ErrorCode.NOTUNIQUE,
            )


def _give_to_instances(pool: AddressPool, address: str, gateway: str | None) -> None:
    with refusing(errors.AddressPoolError, prefix=f"network {pool.name!r}: "):
        is_reserved = pool.is_external(address)
    if not is_reserved:
        raise _wrong(pool.name, f"address {address} is not reserved")
    if address in edges(pool) or address == gateway:
        raise _wrong(
            pool.name,
            f"{address} is the address of the network, for broadcast or of the gateway; instances"
            " cannot have it",
        )
    pool.release(address, external=True)
