"""Network interfaces as asked for in an opcode: checked, and given their networks and addresses.

Values that are still to be drawn are marked: a MAC address by `MAC_GENERATE`, an address of a
network by `IP_FROM_POOL` or `IP_FROM_POOL6`.  Addresses that are reserved here become final with
the change of the instance that uses them, and go back by themselves when the job ends without one;
so do addresses that are released.

Source: opcodes.json, "INicParams"; manual page gnt-instance(8), "--net"; design-2.1, "Non bridged
instances support".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from msgspec.structs import replace

from ganeti.base.errors import (
    ErrorCode,
    OpPrereqError,
    ParameterError,
    ReservationError,
    refusing,
    wrong_state,
)
from ganeti.config.addresses.pool6 import canonical
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.changes.device_changes import NICS, check_names
from ganeti.logical_units.instance.parameters import device_name
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.logical_units.network.units import contains, is_conflict
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Cluster, Network, Node, NodeGroup
from ganeti.objects.nic import (
    FROM_POOLS,
    IP_FROM_POOL,
    IP_FROM_POOL6,
    MAC_AUTO,
    MAC_GENERATE,
    NIC,
    NICS_MAX,
    NicMode,
    mac_problem,
    parse_vlan,
)
from ganeti.objects.parameters import NICPARAMS, VALUE_DEFAULT, VALUE_NONE
from ganeti.protocol.wconfd import WConfCalls

BRIDGE_AUTO: Final = "auto"  # that of the cluster
IP_AUTO: Final = "auto"  # the address that the instance's name resolves to

_REMOVABLE: Final = ("ip", "name", "network")

NicSettings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Connections:
    """The networks that the network interfaces of an instance can be connected to.

    ``networks`` are the networks of the instance's group and of the opcode, by UUID;
    ``named`` says which UUID a name in the opcode means; ``resolved_ip`` is the address of the
    instance's name, if names are checked.
    """

    cluster: Cluster
    group: NodeGroup
    networks: Mapping[str, Network] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    resolved_ip: str | None = None
    conflicts_check: bool = True

    def connection(self, what: str, network: Network) -> dict[str, object]:
        """Return mode, link and VLAN of NICs in a network here.

        Raises:
            OpPrereqError: the network is not connected to the group.
        """
        params = self.group.networks.get(network.uuid)
        if params is None:
            raise wrong_state(
                f"{what}: network {network.name!r} is not connected to node group"
                f" {self.group.name!r}; use 'gnt-network connect {network.name}"
                f" {self.group.name}'"
            )
        return {**fill_nicparams(self.cluster, params)}


def plan_nics(
    around: Connections, settings: Sequence[NicSettings], new_uuid: Callable[[], str]
) -> list[NIC]:
    """Check the network interfaces of a new instance.

    Raises:
        OpPrereqError: one of them cannot be; names it by its index.
    """
    if len(settings) > NICS_MAX:
        raise OpPrereqError(
            f"an instance can have at most {NICS_MAX} NICs, {len(settings)} were given",
            ErrorCode.NORES,
        )
    nics = [plan_nic(around, f"nic/{index}", nic, new_uuid()) for index, nic in enumerate(settings)]
    check_names(NICS, nics)
    return nics


def plan_nic(around: Connections, what: str, given: NicSettings, uuid: str) -> NIC:
    """Check one new network interface; ``what`` is its name in errors."""
    return changed_nic(
        around, what, NIC(mac=MAC_GENERATE, uuid=uuid), {"mac": MAC_AUTO, **_given(given)}
    )


def changed_nic(around: Connections, what: str, nic: NIC, given: NicSettings) -> NIC:
    """Return a network interface with some settings changed; null removes one where that can be.

    Raises:
        OpPrereqError: it cannot be so; names it.
    """
    removed = {name: VALUE_NONE for name in _REMOVABLE if given.get(name, "") is None}
    settings = {**_given(given), **removed}
    network = _network(around, nic, settings)
    nicparams = _nicparams(around, what, nic, network, settings)
    changed = replace(
        nic,
        network=None if network is None else network.uuid,
        nicparams=nicparams,
        ip=(_ip(what, settings["ip"], around.resolved_ip, network) if "ip" in settings else nic.ip),
        mac=normal_mac(what, settings["mac"]) if "mac" in settings else nic.mac,
        name=device_name(what, settings["name"]) if "name" in settings else nic.name,
    )
    has_new_place = changed.ip != nic.ip or changed.network != nic.network
    _check_address(around, what, changed, network, has_new_place=has_new_place)
    return changed


def _given(settings: NicSettings) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items() if value is not None}


def _network(around: Connections, nic: NIC, settings: Mapping[str, str]) -> Network | None:
    """Return the network that the interface is in afterwards."""
    asked = settings.get("network")
    if asked is None:
        return None if nic.network is None else around.networks[nic.network]
    return None if asked in ("", VALUE_NONE) else around.networks[around.named[asked]]


def _nicparams(
    around: Connections, what: str, nic: NIC, network: Network | None, settings: Mapping[str, str]
) -> dict[str, object]:
    """Return the interface's own parameters; those of a network are copied from its connection."""
    given = own_nicparams(what, settings)
    if network is None:
        if given.get("mode") == NicMode.POOL:
            raise OpPrereqError(f"{what}: mode 'pool' needs a network")
        own = {**nic.nicparams, **given}
        return {name: value for name, value in own.items() if value != VALUE_DEFAULT}
    given = {name: value for name, value in given.items() if value not in (NicMode.POOL, "")}
    if given:
        raise OpPrereqError(
            f"{what}: {', '.join(given)} cannot be given: in network {network.name!r} they are"
            " those of its connection to the node group; use network=none to set them yourself"
        )
    if nic.network == network.uuid and "network" not in settings:
        return dict(nic.nicparams)
    return around.connection(what, network)


def own_nicparams(what: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return mode, link and VLAN as given, checked one by one.

    Raises:
        OpPrereqError: one cannot be.
    """
    given = {name: settings[name] for name in NICPARAMS if name in settings}
    bridge = settings.get("bridge")
    if bridge is not None:
        if "link" in given:
            raise OpPrereqError(f"{what}: 'bridge' and 'link' cannot be given together")
        mode = given.get("mode", NicMode.BRIDGED)
        if mode not in (VALUE_DEFAULT, NicMode.BRIDGED):
            raise OpPrereqError(f"{what}: 'bridge' can only be given in mode bridged, not {mode}")
        given["link"] = VALUE_DEFAULT if bridge == BRIDGE_AUTO else bridge
    known = [str(name) for name in NicMode if name is not NicMode.POOL]
    if given.get("mode", known[0]) not in (*known, VALUE_DEFAULT, NicMode.POOL):
        raise OpPrereqError(
            f"{what}: unknown mode {given['mode']!r}; known are: {', '.join(known)}"
        )
    if (problem := NICPARAMS["link"].problem(given.get("link", VALUE_DEFAULT))) is not None:
        raise OpPrereqError(f"{what}: link: {problem}")
    if given.get("vlan", VALUE_DEFAULT) != VALUE_DEFAULT:
        with refusing(ParameterError, prefix=f"{what}: "):
            given["vlan"] = str(parse_vlan(given["vlan"]))
    return given


def _ip(what: str, ip: str, resolved_ip: str | None, network: Network | None) -> str | None:
    if ip.lower() in (VALUE_NONE, ""):
        return None
    if ip.lower() in FROM_POOLS:
        only_6 = network is not None and network.ipv4 is None
        return IP_FROM_POOL6 if only_6 or ip.lower() == IP_FROM_POOL6 else IP_FROM_POOL
    if ip.lower() == IP_AUTO:
        if resolved_ip is None:
            raise OpPrereqError(
                f"{what}: address 'auto' needs the name check (do not use --no-name-check)"
            )
        return resolved_ip
    try:
        address = ipaddress.ip_address(ip)
    except ValueError as err:
        raise OpPrereqError(f"{what}: {ip!r} is not an IP address") from err
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise OpPrereqError(f"{what}: {ip!r} names an interface; leave out what is behind '%'")
    return str(address)


def _check_address(
    around: Connections, what: str, nic: NIC, network: Network | None, *, has_new_place: bool
) -> None:
    """Refuse an address that does not go together with mode, network or other networks.

    Args:
        has_new_place: address or network are new; if not, the network may have got others since.
    """
    filled = fill_nicparams(around.cluster, nic)
    if filled["mode"] == NicMode.ROUTED and nic.ip is None:
        raise OpPrereqError(f"{what}: mode routed needs an IP address (ip=...)")
    if filled["mode"] == NicMode.ROUTED and filled["vlan"]:
        raise OpPrereqError(f"{what}: a VLAN cannot be used in mode routed")
    if filled["mode"] != NicMode.ROUTED and not filled["link"]:
        raise OpPrereqError(f"{what}: mode {filled['mode']} needs a link (link=...)")
    if network is not None:
        if nic.ip == IP_FROM_POOL6 and network.network6 is None:
            raise OpPrereqError(
                f"{what}: network {network.name!r} has no IPv6 addresses; give it some by"
                f" 'gnt-network modify --network6=PREFIX {network.name}', or use ip=pool"
            )
        if nic.ip not in (None, *FROM_POOLS) and has_new_place and not contains(network, nic.ip):
            has = ", ".join(filter(None, (network.ipv4, network.network6)))
            raise OpPrereqError(
                f"{what}: address {nic.ip} does not lie in network {network.name!r}"
                f" ({has}); give ip=pool or an address of it"
            )
        return
    if nic.ip in FROM_POOLS:
        raise OpPrereqError(f"{what}: an address from a pool needs a network (network=...)")
    if nic.ip is not None and around.conflicts_check:
        _check_conflicts(around, what, nic)


def _check_conflicts(around: Connections, what: str, nic: NIC) -> None:
    for uuid, params in around.group.networks.items():
        found = around.networks.get(uuid)
        if found is not None and is_conflict(
            around.cluster, nic, found, fill_nicparams(around.cluster, params)
        ):
            raise wrong_state(
                f"{what}: address {nic.ip} lies in network {found.name!r}, which is connected to"
                f" this link; use network={found.name} or --no-conflicts-check"
            )


def normal_mac(what: str, mac: str) -> str:
    """Return a MAC address in lower case, or MAC_GENERATE if one is to be drawn.

    Raises:
        OpPrereqError: it is not the address of one card.
    """
    mac = mac.lower()
    if mac in (MAC_AUTO, MAC_GENERATE):
        return MAC_GENERATE
    problem = mac_problem(mac)
    if problem:
        raise OpPrereqError(f"{what}: {problem}, or 'generate'")
    return mac


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

    Other instances are looked through only for new addresses outside of networks: those inside
    are looked after by reserving them.

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
        if place not in had and nic.network is None:
            wanted[place] = f"nic/{index}"
    for other in lookup.present(config.get_instances(None)) if wanted else ():
        for nic in other.nics:
            place = _place(cluster, nic)
            if place is not None and place in wanted:
                _refuse(wanted[place], place, f"instance {other.name!r}")


def _place(cluster: Cluster, nic: NIC) -> tuple[str, str] | None:
    """Return where a NIC's address must be the only one; None if it has none yet."""
    if nic.ip is None or nic.ip in FROM_POOLS:
        return None
    return (nic.network or str(fill_nicparams(cluster, nic)["link"]), canonical(nic.ip))


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
    macs = {nic.mac for nic in before} | {MAC_GENERATE}
    # Given ones first: none of them is to be drawn for another NIC.
    for index, nic in enumerate(after):
        if nic.mac != MAC_GENERATE and any(nic.mac == other.mac for other in after[:index]):
            raise OpPrereqError(
                f"nic/{index}: MAC address {nic.mac} is that of another NIC of the instance",
                ErrorCode.NOTUNIQUE,
            )
        with refusing(ReservationError, prefix=f"nic/{index}: ", ecode=ErrorCode.NOTUNIQUE):
            if nic.mac not in macs:
                config.reserve_mac(nic.mac)
            for network, address in sorted(_addresses([nic]) - old):
                config.reserve_ip(network, address, conflicts_check)
    settled: list[NIC] = []
    for index, nic in enumerate(after):
        with refusing(ReservationError, prefix=f"nic/{index}: ", ecode=ErrorCode.STATE):
            settled.append(_drawn(config, nic))
    return settled


def _addresses(nics: Iterable[NIC]) -> set[tuple[str, str]]:
    """Return network and address of NICs that have one of a network."""
    return {
        (nic.network, canonical(nic.ip))
        for nic in nics
        if nic.network and nic.ip and nic.ip not in FROM_POOLS
    }


def _drawn(config: WConfCalls, nic: NIC) -> NIC:
    """Return a NIC with the addresses that are to be drawn for it."""
    if nic.mac == MAC_GENERATE:
        nic = replace(nic, mac=config.generate_mac(nic.network))
    if nic.network is not None and nic.ip == IP_FROM_POOL:
        return replace(nic, ip=config.generate_ip(nic.network))
    if nic.network is not None and nic.ip == IP_FROM_POOL6:
        return replace(nic, ip=config.generate_ip6(nic.network))
    return nic


def bridges_of(cluster: Cluster, nics: Iterable[NIC]) -> list[str]:
    """Return the bridges that NICs need."""
    filled = [fill_nicparams(cluster, nic) for nic in nics]
    return sorted({nic["link"] for nic in filled if nic["mode"] == NicMode.BRIDGED})


def check_bridges(context: JobContext, node: Node, bridges: Sequence[str]) -> None:
    """Refuse a node that does not have all these bridges.

    Raises:
        OpPrereqError: the node names the bridges that it lacks.
    """
    if bridges:
        context.nodes.check(node, "use the bridges of the NICs").bridges_exist(bridges)
