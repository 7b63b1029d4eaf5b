"""The networks and addresses of an instance's NICs, as the configuration knows them.

What is reserved here becomes final with the change of the instance that uses it, and goes back by
itself when the job ends without one; so does what is released.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, ReservationError
from ganeti.logical_units import lookup
from ganeti.logical_units.instance.changes.new_nics import Connections
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Cluster, Network, NodeGroup
from ganeti.objects.nic import IP_FROM_POOL, MAC_GENERATE, NIC, NicMode
from ganeti.objects.parameters import VALUE_NONE
from ganeti.protocol.wconfd import WConfCalls

Settings = Iterable[Mapping[str, object]]


def named_networks(config: WConfCalls, settings: Settings) -> dict[str, Network]:
    """Return the networks that settings of NICs name, by the names used there.

    Raises:
        OpPrereqError: one is unknown.
    """
    names = {str(nic["network"]) for nic in settings if nic.get("network")} - {VALUE_NONE}
    return {name: lookup.require_network(config, name) for name in sorted(names)}


def network_locks(networks: Iterable[Network]) -> LockNeed:
    """Lock networks shared: they stay as they are and connected until the NIC is stored."""
    return shared(LockLevel.NETWORK, [network.uuid for network in networks])


def read_connections(
    config: WConfCalls,
    cluster: Cluster,
    group: NodeGroup,
    named: Mapping[str, Network],
    *,
    used: Iterable[NIC] = (),
    resolved_ip: str | None = None,
    conflicts_check: bool = True,
) -> Connections:
    """Read the networks that matter for the NICs of an instance in a group.

    Args:
        used: the NICs that it has.
    """
    keys = {*group.networks, *(nic.network for nic in used if nic.network)}
    found = lookup.present(config.get_networks(sorted(keys))) if keys else []
    return Connections(
        cluster,
        group,
        {str(network.uuid): network for network in (*found, *named.values())},
        {name: network.uuid for name, network in named.items()},
        resolved_ip,
        conflicts_check,
    )


def check_places(
    config: WConfCalls, cluster: Cluster, before: Sequence[NIC], after: Sequence[NIC]
) -> None:
    """Refuse an address that another NIC has in the same place: network, or link without one.

    Other instances are looked through only for new addresses outside of the pools of networks:
    those inside are looked after by reserving them.

    Raises:
        OpPrereqError: names both.
    """
    seen: dict[tuple[str, str], str] = {}
    had = {_place(cluster, nic) for nic in before}
    wanted: dict[tuple[str, str], str] = {}
    for index, nic in enumerate(after):
        place = _place(cluster, nic)
        if place is None:
            continue
        if place in seen:
            _refuse(f"nic/{index}", place, seen[place])
        seen[place] = f"nic/{index} of the same instance"
        if place not in had and (nic.network is None or not _is_ipv4(place[1])):
            wanted[place] = f"nic/{index}"
    for other in lookup.present(config.get_instances(None)) if wanted else ():
        for nic in other.nics:
            place = _place(cluster, nic)
            if place is not None and place in wanted:
                _refuse(wanted[place], place, f"instance {other.name!r}")


def _place(cluster: Cluster, nic: NIC) -> tuple[str, str] | None:
    """Return where a NIC's address must be the only one; None if it has none yet."""
    if nic.ip is None or nic.ip == IP_FROM_POOL:
        return None
    return (nic.network or str(fill_nicparams(cluster, nic)["link"]), nic.ip)


def _refuse(what: str, place: tuple[str, str], holder: str) -> NoReturn:
    raise OpPrereqError(f"{what}: IP address {place[1]} is that of {holder}", ErrorCode.NOTUNIQUE)


def settle_addresses(
    config: WConfCalls, before: Sequence[NIC], after: Sequence[NIC], *, conflicts_check: bool
) -> list[NIC]:
    """Reserve the addresses of new NICs, release those given up; returns the NICs with addresses.

    Raises:
        OpPrereqError: an address is taken, or there is none left; names the NIC.
    """
    old, new = _addresses(before), _addresses(after)
    for network, address in sorted(old - new):
        config.release_ip(network, address)
    known = {nic.mac for nic in before}
    settled: list[NIC] = []
    for index, nic in enumerate(after):
        if any(nic.mac == other.mac for other in settled):
            raise OpPrereqError(
                f"nic/{index}: MAC address {nic.mac} is that of another NIC of the instance",
                ErrorCode.NOTUNIQUE,
            )
        try:
            settled.append(_settle(config, nic, old, known, conflicts_check=conflicts_check))
        except ReservationError as err:
            raise OpPrereqError(f"nic/{index}: {err.message}", ErrorCode.NOTUNIQUE) from err
    return settled


def _addresses(nics: Iterable[NIC]) -> set[tuple[str, str]]:
    """Return network and address of NICs that have one of a pool; IPv6 has no pools."""
    return {
        (nic.network, nic.ip)
        for nic in nics
        if nic.network and nic.ip and nic.ip != IP_FROM_POOL and _is_ipv4(nic.ip)
    }


def _is_ipv4(address: str) -> bool:
    return ipaddress.ip_address(address).version == 4


def _settle(
    config: WConfCalls,
    nic: NIC,
    old: set[tuple[str, str]],
    macs: set[str],
    *,
    conflicts_check: bool,
) -> NIC:
    if nic.mac == MAC_GENERATE:
        nic = replace(nic, mac=config.generate_mac(nic.network))
    elif nic.mac not in macs:
        config.reserve_mac(nic.mac)
    if nic.network is None or nic.ip is None:
        return nic
    if nic.ip == IP_FROM_POOL:
        return replace(nic, ip=config.generate_ip(nic.network))
    if _is_ipv4(nic.ip) and (nic.network, nic.ip) not in old:
        config.reserve_ip(nic.network, nic.ip, conflicts_check)
    return nic


def bridges_of(cluster: Cluster, nics: Iterable[NIC]) -> list[str]:
    """Return the bridges that NICs need."""
    filled = [fill_nicparams(cluster, nic) for nic in nics]
    return sorted({nic["link"] for nic in filled if nic["mode"] == NicMode.BRIDGED})
