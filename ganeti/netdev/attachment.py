"""The steps that connect a tap to its link, and the steps that undo them: plain values.

    bridged      the tap becomes a port of the bridge; VLANs are set on that port
    openvswitch  the tap becomes a port of the switch, with its tag and trunks
    routed       the guest's address is routed to the tap, in the main routing table or in one of
                 its own that then answers what comes from the tap; the node answers ARP and
                 neighbour requests of the guest for all addresses that it can reach

Source: design-2.1, "Non bridged instances support"; manual pages ip-link(8), ip-rule(8),
bridge(8), ovs-vsctl(8); the kernel's ip-sysctl.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ganeti.netdev.backends import MAIN_TABLES, NicBackend
from ganeti.objects.nic import NicMode, Vlan, parse_vlan

OVS_TIMEOUT_S: Final = 30
_DEFAULT_VLAN: Final = 1  # of a port of a bridge, unless the bridge says otherwise


@dataclass(frozen=True, slots=True)
class Run:
    """Run a command; ``may_fail``: the thing that it removes need not be there."""

    argv: tuple[str, ...]
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Write a setting of the kernel."""

    path: str
    value: str


Step = Run | Write


def attach_steps(backend: NicBackend, default_vlan: int = _DEFAULT_VLAN) -> list[Step]:
    """Return how a tap that is there is connected and switched on.

    Args:
        default_vlan: the VLAN that the bridge gives its ports by itself; 0 for none.
    """
    match backend.mode:
        case NicMode.ROUTED:
            return list(_routed(backend))
        case NicMode.OPENVSWITCH:
            return [_ovs_port(backend), _up(backend)]
        case _:
            joined = _ip("link", "set", "dev", backend.tap, "master", backend.link)
            return [joined, *_bridge_vlans(backend, default_vlan), _up(backend)]


def detach_steps(tap: str, mode: str) -> list[Step]:
    """Return how a tap is disconnected, beyond what ends with the tap itself."""
    match mode:
        case NicMode.ROUTED:
            return [Run(_rule(version, "del", tap), may_fail=True) for version in (4, 6)]
        case NicMode.OPENVSWITCH:
            # A switch that does not answer keeps no instance from stopping: the
            # port that remains there is replaced when a tap of that name comes again.
            return [Run(_ovs("--if-exists", "del-port", tap), may_fail=True)]
        case _:
            return []


def _ip(*words: str) -> Run:
    return Run(("ip", *words))


def _up(backend: NicBackend) -> Run:
    return _ip("link", "set", "dev", backend.tap, "up")


def _bridge_vlans(backend: NicBackend, default_vlan: int) -> Iterator[Run]:
    vlan = parse_vlan(backend.vlan)
    if vlan == Vlan():
        return
    port = ("bridge", "vlan")
    if default_vlan:
        yield Run((*port, "del", "dev", backend.tap, "vid", str(default_vlan)))
    for trunk in vlan.trunks:
        yield Run((*port, "add", "dev", backend.tap, "vid", str(trunk)))
    if vlan.access is not None:
        access = ("vid", str(vlan.access), "pvid", "untagged")
        yield Run((*port, "add", "dev", backend.tap, *access))


def _ovs(*words: str) -> tuple[str, ...]:
    return ("ovs-vsctl", f"--timeout={OVS_TIMEOUT_S}", *words)


def _ovs_port(backend: NicBackend) -> Run:
    vlan = parse_vlan(backend.vlan)
    settings: list[str] = []
    if vlan.access is not None:
        settings.append(f"tag={vlan.access}")
    if vlan.trunks:
        settings.append(f"trunks={','.join(map(str, vlan.trunks))}")
    if settings:
        kinds = {(True, False): "access", (False, True): "trunk", (True, True): "native-untagged"}
        kind = kinds[vlan.access is not None, bool(vlan.trunks)]
        settings = ["--", "set", "Port", backend.tap, *settings, f"vlan_mode={kind}"]
    old = ("--", "--if-exists", "del-port", backend.tap)  # of a run that was cut off
    return Run(_ovs(*old, "--", "add-port", backend.link, backend.tap, *settings))


def _rule(version: int, action: str, tap: str, *rest: str) -> tuple[str, ...]:
    return ("ip", f"-{version}", "rule", action, "iif", tap, *rest)


def _routed(backend: NicBackend) -> Iterator[Step]:
    address = ipaddress.ip_address(backend.ip)
    tap, version = backend.tap, address.version
    own_table = backend.is_table and backend.link not in MAIN_TABLES
    table = ("table", backend.link) if own_table else ()
    proxy = "proxy_arp" if version == 4 else "proxy_ndp"
    for name in (proxy, "forwarding"):
        yield Write(f"/proc/sys/net/ipv{version}/conf/{tap}/{name}", "1")
    yield _up(backend)
    length = address.max_prefixlen
    route = ("route", "replace", f"{address}/{length}", "dev", tap, "proto", "static")
    yield Run(("ip", f"-{version}", *route, *table))
    if own_table:
        yield Run(_rule(version, "del", tap), may_fail=True)  # of a run that was cut off
        yield Run(_rule(version, "add", tap, *table))
