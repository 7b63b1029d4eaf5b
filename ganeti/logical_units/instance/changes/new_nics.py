"""Network interfaces as asked for in an opcode, checked: plain decisions over plain values.

What is still to be drawn is marked: a MAC address by `MAC_GENERATE`, an address of a network by
`IP_FROM_POOL`.  Drawing them is up to `nic_addresses`.

Source: opcodes.json, "INicParams"; manual page gnt-instance(8), "--net"; design-2.1, "Non bridged
instances support".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, ParameterError, wrong_state
from ganeti.logical_units.instance.changes.device_changes import NICS, check_names
from ganeti.logical_units.instance.parameters import device_name
from ganeti.logical_units.networks import contains, is_conflict
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Cluster, Network, NodeGroup
from ganeti.objects.nic import (
    IP_FROM_POOL,
    MAC_AUTO,
    MAC_GENERATE,
    NIC,
    NICS_MAX,
    NicMode,
    mac_problem,
    parse_vlan,
)
from ganeti.objects.parameters import NICPARAMS, VALUE_DEFAULT, VALUE_NONE

IP_AUTO: Final = "auto"  # the address that the instance's name resolves to

NicSettings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Connections:
    """The networks that the network interfaces of an instance can be connected to.

    ``networks`` are those of the instance's group and those that the opcode names, by UUID;
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
    """Return a network interface with some settings changed.

    Raises:
        OpPrereqError: it cannot be so; names it.
    """
    settings = _given(given)
    network = _network(around, nic, settings)
    nicparams = _nicparams(around, what, nic, network, settings)
    changed = replace(
        nic,
        network=None if network is None else network.uuid,
        nicparams=nicparams,
        ip=_ip(what, settings["ip"], around.resolved_ip) if "ip" in settings else nic.ip,
        mac=normal_mac(what, settings["mac"]) if "mac" in settings else nic.mac,
        name=device_name(what, settings["name"]) if "name" in settings else nic.name,
    )
    _check_address(around, what, changed, network)
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
    given = _own_params(what, settings)
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


def _own_params(what: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return mode, link and VLAN as given, checked one by one."""
    given = {name: settings[name] for name in NICPARAMS if name in settings}
    bridge = settings.get("bridge")
    if bridge is not None:
        if "link" in given:
            raise OpPrereqError(f"{what}: 'bridge' and 'link' cannot be given together")
        mode = given.get("mode", NicMode.BRIDGED)
        if mode not in (VALUE_DEFAULT, NicMode.BRIDGED):
            raise OpPrereqError(f"{what}: 'bridge' can only be given in mode bridged, not {mode}")
        given["link"] = bridge
    known = [str(name) for name in NicMode if name is not NicMode.POOL]
    if given.get("mode", known[0]) not in (*known, VALUE_DEFAULT, NicMode.POOL):
        raise OpPrereqError(
            f"{what}: unknown mode {given['mode']!r}; known are: {', '.join(known)}"
        )
    if given.get("vlan", VALUE_DEFAULT) != VALUE_DEFAULT:
        try:
            given["vlan"] = str(parse_vlan(given["vlan"]))
        except ParameterError as err:
            raise OpPrereqError(f"{what}: {err.message}") from err
    return given


def _ip(what: str, ip: str, resolved_ip: str | None) -> str | None:
    if ip.lower() in (VALUE_NONE, ""):
        return None
    if ip.lower() == IP_FROM_POOL:
        return IP_FROM_POOL
    if ip.lower() == IP_AUTO:
        if resolved_ip is None:
            raise OpPrereqError(
                f"{what}: address 'auto' needs the name check (do not use --no-name-check)"
            )
        return resolved_ip
    try:
        return str(ipaddress.ip_address(ip))
    except ValueError as err:
        raise OpPrereqError(f"{what}: {ip!r} is not an IP address") from err


def _check_address(around: Connections, what: str, nic: NIC, network: Network | None) -> None:
    """Refuse an address that does not go together with mode, network or other networks."""
    filled = fill_nicparams(around.cluster, nic)
    if filled["mode"] == NicMode.ROUTED and nic.ip is None:
        raise OpPrereqError(f"{what}: mode routed needs an IP address (ip=...)")
    if filled["mode"] == NicMode.ROUTED and filled["vlan"]:
        raise OpPrereqError(f"{what}: a VLAN cannot be used in mode routed")
    if filled["mode"] != NicMode.ROUTED and not filled["link"]:
        raise OpPrereqError(f"{what}: mode {filled['mode']} needs a link (link=...)")
    if network is not None:
        if nic.ip not in (None, IP_FROM_POOL) and not contains(network, nic.ip):
            raise OpPrereqError(
                f"{what}: address {nic.ip} does not lie in network {network.name!r}"
                f" ({network.network}); give ip=pool or an address of it"
            )
        return
    if nic.ip == IP_FROM_POOL:
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
