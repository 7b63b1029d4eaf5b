"""The reservations as they stand in files.

``tempres.data`` has the shape of Ganeti 3.0, which rejects unknown keys; our own kinds (ports,
identifiers, owners of minors, memory and disk space, IPv6 addresses) stand in a second file.

Source: wconfd.json, "files".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ganeti.base.errors import ConfigurationError, GenericError
from ganeti.base.json import dumps, loads
from ganeti.config.addresses.pool6 import is_ipv6
from ganeti.config.reservations import IpAction, Kind, Reservations
from ganeti.protocol.wconfd import ClientId

EMPTY: Final = b'{"dRBD":[],"mACs":[],"dRBDSecrets":[],"lVs":[],"iPv4s":[]}'
EMPTY_OWN: Final = b'{"ids":[],"ports":[],"minors":[],"amounts":[],"iPv6s":[]}'

_V3_TEXTS: Final = {"mACs": Kind.MAC, "dRBDSecrets": Kind.SECRET, "lVs": Kind.LV}


def encode_reservations(reservations: Reservations) -> bytes:
    """Return the content of ``tempres.data``."""
    wire: dict[str, object] = {
        "dRBD": [[node, list(minors.items())] for node, minors in reservations.minors.items()]
    }
    for key, kind in _V3_TEXTS.items():
        wire[key] = _by_owner(reservations.texts[kind])
    wire["iPv4s"] = _addresses(reservations, of_6=False)
    return dumps(wire)


def _addresses(reservations: Reservations, *, of_6: bool) -> list[object]:
    found = {
        client: [action for action in reservations.ip_actions(client) if is_ipv6(action[1]) is of_6]
        for client in sorted(reservations.ips, key=str)
    }
    return [[client.to_wire(), actions] for client, actions in found.items() if actions]


def encode_own_reservations(reservations: Reservations) -> bytes:
    """Return the content of our own file beside it."""
    wire = {
        "ids": _by_owner(reservations.texts[Kind.ID]),
        "ports": _by_owner(reservations.ports),
        "minors": _by_owner(reservations.minor_owners),
        "amounts": [
            [client.to_wire(), [[node, *amounts] for node, amounts in nodes.items()]]
            for client, nodes in reservations.amounts.items()
        ],
        "iPv6s": _addresses(reservations, of_6=True),
    }
    return dumps(wire)


def _by_owner(owners: Mapping[Any, ClientId]) -> list[object]:
    grouped: dict[ClientId, list[object]] = {}
    for value, client in owners.items():
        grouped.setdefault(client, []).append(value)
    return [[client.to_wire(), values] for client, values in grouped.items()]


def decode_reservations(data: bytes, own_data: bytes | None) -> Reservations:
    """Return the reservations that the two files describe.

    Raises:
        ProtocolError: not JSON; the text names the byte.
        ConfigurationError: not of the right shape.
    """
    reservations = Reservations()
    _load_v3(reservations, loads(data))
    if own_data is not None:
        _load_own(reservations, loads(own_data))
    return reservations


def _load_v3(reservations: Reservations, wire: Any) -> None:
    try:
        for node, minors in wire["dRBD"]:
            reservations.minors[str(node)] = {int(minor): str(disk) for minor, disk in minors}
        for key, kind in _V3_TEXTS.items():
            for client, text in _owned(wire[key]):
                reservations.texts[kind][str(text)] = client
        _load_addresses(reservations, wire["iPv4s"])
    except (KeyError, TypeError, ValueError, GenericError) as err:
        raise ConfigurationError(f"tempres.data is not of the right shape: {err}") from err


def _load_own(reservations: Reservations, wire: Any) -> None:
    try:
        for client, text in _owned(wire["ids"]):
            reservations.texts[Kind.ID][str(text)] = client
        for client, port in _owned(wire["ports"]):
            reservations.ports[int(port)] = client
        for client, disk in _owned(wire["minors"]):
            reservations.minor_owners[str(disk)] = client
        for client, (node, memory, disk) in _owned(wire["amounts"]):
            amounts = reservations.amounts.setdefault(client, {})
            amounts[str(node)] = (int(memory), int(disk))
        _load_addresses(reservations, wire.get("iPv6s", ()))
    except (KeyError, TypeError, ValueError, GenericError) as err:
        raise ConfigurationError(f"our reservations are not of the right shape: {err}") from err


def _load_addresses(reservations: Reservations, wire: Any) -> None:
    for client, (action, address, network) in _owned(wire):
        actions = reservations.ips.setdefault(client, {})
        actions[str(network), str(address)] = IpAction(action)


def _owned(entries: Any) -> Iterable[tuple[ClientId, Any]]:
    for client, values in entries:
        owner = ClientId.from_wire(client)
        for value in values:
            yield owner, value
