"""How a network interface of an instance is connected to its node: deciding, not doing.

Source: constants.json, "nic_modes"; design-2.1, "Non bridged instances support".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.objects.model import network_variables
from ganeti.objects.nic import NicMode, leads_to_node
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC

MAIN_TABLES: Final = frozenset({"", "main", "default", "local"})  # they are the machine's own


class BackendKind(StrEnum):
    """The kind of a backend."""

    TAP = "tap"  # an interface of the node
    USER = "user"  # the hypervisor's own network: outgoing connections only, needs no rights


@dataclass(frozen=True, slots=True)
class NicBackend:
    """The backend of one network interface; all but ``uuid``, ``kind`` and ``user`` is for TAP.

    ``is_table``: in mode routed, ``link`` is a routing table, not an interface of the node;
    ``variables`` are the environment of the administrator's script; ``user`` are QEMU's settings of
    its own network; ``to_node``: the guest talks with its node, and with nobody else.
    """

    uuid: str
    kind: BackendKind
    tap: str = ""
    mode: str = NicMode.BRIDGED
    link: str = ""
    vlan: str = ""
    ip: str = ""
    is_table: bool = False
    to_node: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    user: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NetworkAbilities:
    """The abilities of the node for some links.

    ``switches`` are those of Open vSwitch, None where its tools are missing; ``tables`` are routing
    tables by name or number; ``has_script``: the administrator's script connects the taps, so it
    alone knows the meaning of a link; ``is_virtual``: the node shares its machine, so a missing
    link is no mistake, and guests are reached at ``address``.
    """

    can_make_taps: bool
    bridges: frozenset[str] = frozenset()
    vlan_bridges: frozenset[str] = frozenset()
    switches: frozenset[str] | None = None
    interfaces: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    has_script: bool = False
    is_virtual: bool = False
    address: str = ""


_TAP_NAME_LENGTH: Final = 15  # the kernel takes no more
_TAP_PREFIX: Final = "gnt"
_TO_NODE_PREFIX: Final = "gnt.com."  # firewalls of nodes tell them by it


def tap_names(nic_uuid: str) -> tuple[str, str]:
    """Return the names that the tap of a network interface can have: usual, and to the node."""
    digits = nic_uuid.replace("-", "")
    usual, to_node = (
        prefix + digits[len(prefix) - _TAP_NAME_LENGTH :]
        for prefix in (_TAP_PREFIX, _TO_NODE_PREFIX)
    )
    return usual, to_node


def choose_backends(instance: RpcInstance, node: NetworkAbilities) -> list[NicBackend]:
    """Decide how each network interface of an instance is connected.

    Where the link is missing, or the right to make a tap, a virtual node falls back to user-mode
    networking and a real one refuses.

    Raises:
        OpPrereqError: a real node lacks the link, or the right to make taps.
    """
    return [choose_backend(instance, index, nic, node) for index, nic in enumerate(instance.nics)]


def choose_backend(
    instance: RpcInstance, index: int, nic: RpcNIC, node: NetworkAbilities
) -> NicBackend:
    """Decide how one network interface is connected, as `choose_backends`."""
    to_node = leads_to_node(nic.name)
    problem = _problem_to_node(nic, node) if to_node else _problem(nic, node)
    if problem is None and to_node:
        _usual, tap = tap_names(nic.uuid)
        mode = NicMode.ROUTED
        return NicBackend(
            nic.uuid, BackendKind.TAP, tap=tap, mode=mode, ip=nic.ip or "", to_node=True
        )
    if problem is None:
        return _tap(instance, index, nic, node)
    if node.is_virtual:
        return NicBackend(
            nic.uuid, BackendKind.USER, user=_user_network(instance, index, nic, node)
        )
    raise OpPrereqError(f"network interface {index}: {problem}", ErrorCode.ENVIRON)


_SSH_PORT: Final = 22
_FORWARD_PORTS: Final = 10_000  # that far above the instance's network port, which VNC may have


def ssh_forward(address: str, network_port: int | None) -> tuple[str, int] | None:
    """Return where a virtual node takes connections for the SSH port of an instance's guest.

    Only an address of the machine itself will do, and an instance that has a port of its own.
    """
    if network_port is None or not address.startswith("127."):
        return None
    return address, network_port + _FORWARD_PORTS


def _user_network(
    instance: RpcInstance, index: int, nic: RpcNIC, node: NetworkAbilities
) -> dict[str, object]:
    """Return the settings of QEMU's own network: the addresses of ours, the way in by SSH."""
    settings: dict[str, object] = {}
    if nic.ip and ":" not in nic.ip and nic.netinfo is not None and nic.netinfo.ipv4:
        network = ipaddress.ip_network(nic.netinfo.ipv4)
        taken = {nic.ip, nic.netinfo.gateway}
        free = [str(network[n]) for n in (-2, -3, -4, -5) if network.num_addresses > _SMALL]
        rest = [address for address in free if address not in taken]
        if rest:
            gateway = nic.netinfo.gateway or rest.pop()
            settings = {"net": str(network), "host": gateway, "dns": rest[0], "dhcpstart": nic.ip}
    way_in = ssh_forward(node.address, instance.network_port)
    if way_in is not None and index == 0:
        host, port = way_in
        guest = nic.ip if settings else ""
        settings["hostfwd"] = [{"str": f"tcp:{host}:{port}-{guest}:{_SSH_PORT}"}]
    return settings


_SMALL: Final = 8  # addresses: such a network has no room for those that QEMU needs


def _tap(instance: RpcInstance, index: int, nic: RpcNIC, node: NetworkAbilities) -> NicBackend:
    params = nic.nicparams
    mode, link = params["mode"], params["link"]
    name, _to_node = tap_names(nic.uuid)
    return NicBackend(
        nic.uuid,
        BackendKind.TAP,
        tap=name,
        mode=mode,
        link=link,
        vlan=params["vlan"],
        ip=nic.ip or "",
        is_table=mode == NicMode.ROUTED and link not in node.interfaces,
        variables=_variables(instance, index, nic, name) if node.has_script else {},
    )


def _problem(nic: RpcNIC, node: NetworkAbilities) -> str | None:
    """Return the obstacle to making and connecting a tap; None if there is none."""
    link = nic.nicparams["link"]
    if not node.has_script:
        problem = _LINK_PROBLEMS[nic.nicparams["mode"]](nic, node, link)
        if problem is not None:
            return problem
    if not node.can_make_taps:
        return f"no right to make a tap for {link}; the node daemon must run as root"
    return None


def _problem_to_node(nic: RpcNIC, node: NetworkAbilities) -> str | None:
    """Return the obstacle to a tap that leads to the node alone; it needs no link there."""
    if not nic.ip:
        return "instance communication needs an IP address"
    if not node.can_make_taps or node.is_virtual:
        return "no right to make a tap for instance communication; the node daemon must run as root"
    return None


def _bridged(nic: RpcNIC, node: NetworkAbilities, link: str) -> str | None:
    if link not in node.bridges:
        return f"the node has no bridge {link}"
    if nic.nicparams["vlan"] and link not in node.vlan_bridges:
        return (
            f"bridge {link} does not tell VLANs apart; switch that on with"
            f" 'ip link set {link} type bridge vlan_filtering 1'"
        )
    return None


def _routed(nic: RpcNIC, node: NetworkAbilities, link: str) -> str | None:
    if not nic.ip:
        return "mode routed needs an IP address"
    if link in MAIN_TABLES and node.is_virtual:
        return "a virtual node has no routing table of its own"
    if link not in node.interfaces and link not in node.tables:
        return f"{link!r} is neither an interface nor a routing table of the node"
    return None


def _openvswitch(_nic: RpcNIC, node: NetworkAbilities, link: str) -> str | None:
    if node.switches is None:
        return "mode openvswitch needs the program ovs-vsctl, which the node does not have"
    return None if link in node.switches else f"the node has no Open vSwitch switch {link}"


_LINK_PROBLEMS: Final[Mapping[str, Callable[[RpcNIC, NetworkAbilities, str], str | None]]] = {
    NicMode.BRIDGED: _bridged,
    NicMode.ROUTED: _routed,
    NicMode.OPENVSWITCH: _openvswitch,
}


def _variables(instance: RpcInstance, index: int, nic: RpcNIC, tap: str) -> dict[str, str]:
    """Return the variables of one tap for the administrator's script."""
    mode, link = nic.nicparams["mode"], nic.nicparams["link"]
    values = {
        "INSTANCE": instance.name,
        "TAGS": " ".join(instance.tags),
        "INTERFACE": tap,
        "INTERFACE_INDEX": str(index),
        "INTERFACE_NAME": nic.name or "",
        "INTERFACE_UUID": nic.uuid,
        "MAC": nic.mac,
        "IP": nic.ip or "",
        "MODE": mode,
        "LINK": link,
        "VLAN": nic.nicparams["vlan"],
    }
    if mode == NicMode.BRIDGED:
        values["BRIDGE"] = link
    return values | (network_variables(nic.netinfo) if nic.netinfo is not None else {})
