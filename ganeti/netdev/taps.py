"""Bridges, switches and taps of this node, by sysfs, ``ip``, ``bridge`` and ``ovs-vsctl``.

The steps that connect a tap to its link, and the steps that undo them, are plain values:

    bridged      the tap becomes a port of the bridge; VLANs are set on that port
    openvswitch  the tap becomes a port of the switch, with its tag and trunks
    routed       the guest's address is routed to the tap, in the main routing table or in one of
                 its own, which then routes the packets from the tap; the node answers ARP and
                 neighbour requests of the guest for all addresses that it can reach
    to the node  the tap has the address that the node answers guests at, the guest's address is
                 routed to it, and nothing is forwarded: the guest reaches the node, nobody else

Source: design-2.1, "Non bridged instances support"; manual pages ip-link(8), ip-rule(8),
bridge(8), ovs-vsctl(8); the kernel's ip-sysctl.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import logging
import os
import re
import shlex
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ganeti.base.errors import CommandError, GenericError, HypervisorError, failing_as
from ganeti.netdev.backends import MAIN_TABLES, NetworkAbilities, NicBackend
from ganeti.objects.nic import NODE_ADDRESS, NicMode, Vlan, parse_vlan
from ganeti.objects.rpc_instance import RpcNIC
from ganeti.system import process
from ganeti.system.programs import is_runnable

OVS_TIMEOUT_S: Final = 30
_DEFAULT_VLAN: Final = 1  # of a port of a bridge, unless the bridge says otherwise


@dataclass(frozen=True, slots=True)
class Run:
    """Run a command; ``may_fail``: the thing that it removes need not be there."""

    argv: tuple[str, ...]
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Write a setting of the kernel; ``may_miss``: it need not have one of that name."""

    path: str
    value: str
    may_miss: bool = False


Step = Run | Write


def attach_steps(backend: NicBackend, default_vlan: int = _DEFAULT_VLAN) -> list[Step]:
    """Return how a tap that is there is connected and switched on.

    Args:
        default_vlan: the VLAN that the bridge gives its ports by itself; 0 for none.
    """
    if backend.to_node:
        return list(_to_node(backend))
    match backend.mode:
        case NicMode.ROUTED:
            return list(_routed(backend))
        case NicMode.OPENVSWITCH:
            return [_ovs_port(backend), _up(backend)]
        case _:
            joined = _ip("link", "set", "dev", backend.tap, "master", backend.link)
            return [joined, *_bridge_vlans(backend, default_vlan), _up(backend)]


def detach_steps(tap: str, mode: str) -> list[Step]:
    """Return the steps that disconnect a tap, as far as its removal does not."""
    match mode:
        case NicMode.ROUTED:
            return [Run(_rule(version, "del", tap), may_fail=True) for version in (4, 6)]
        case NicMode.OPENVSWITCH:
            # A switch that does not answer keeps no instance from stopping: the
            # port that remains there is replaced when a tap of that name comes again.
            return [Run(_ovs("--if-exists", "del-port", tap), may_fail=True)]
        case _:
            return []


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


def _to_node(backend: NicBackend) -> Iterator[Step]:
    tap, guest = backend.tap, f"{ipaddress.ip_address(backend.ip)}/32"
    # Other nodes and guests may be reached by IPv6, which the address of the node has no part in.
    yield Write(f"/proc/sys/net/ipv6/conf/{tap}/disable_ipv6", "1", may_miss=True)
    settings = f"/proc/sys/net/ipv4/conf/{tap}"
    yield Write(f"{settings}/forwarding", "0")
    yield Write(f"{settings}/rp_filter", "1")  # the guest cannot take the address of another
    # Of all interfaces like it, each has the address, and says so to its own guest alone.
    yield Run(("ip", "-4", "address", "replace", f"{NODE_ADDRESS}/32", "dev", tap))
    yield _up(backend)
    source = ("proto", "static", "src", NODE_ADDRESS)
    yield Run(("ip", "-4", "route", "replace", guest, "dev", tap, *source))


logger = logging.getLogger(__name__)

_INTERFACES: Final = "/sys/class/net"
_INTERFACE_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,15}")  # no option of a program
_TUN_DEVICE: Final = "/dev/net/tun"
_CAP_NET_ADMIN: Final = 12
_COMMAND_TIMEOUT_S: Final = OVS_TIMEOUT_S + 5.0
_SCRIPT_TIMEOUT_S: Final = 60.0
_SCRIPT_PATH: Final = "/sbin:/bin:/usr/sbin:/usr/bin"
_TABLE_FILES: Final = ("/usr/share/iproute2/rt_tables", "/etc/iproute2/rt_tables")
_TABLES_BUILT_IN: Final = frozenset({"default", "local", "main"})
_TABLE_MAX: Final = (1 << 32) - 1

# linux/if_tun.h
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP: Final = 0x0002
_IFF_NO_PI: Final = 0x1000
_IFF_VNET_HDR: Final = 0x4000
_IFF_MULTI_QUEUE: Final = 0x0100


def is_interface_name(name: str) -> bool:
    """Tell whether a text can be the name of a network interface."""
    return bool(_INTERFACE_NAME.fullmatch(name)) and name not in (".", "..")


def is_interface(name: str) -> bool:
    """Tell whether the node has a network interface of that name."""
    return is_interface_name(name) and os.path.isdir(f"{_INTERFACES}/{name}")


def is_bridge(name: str) -> bool:
    """Tell whether the node has a bridge of that name."""
    return is_interface(name) and os.path.isdir(f"{_INTERFACES}/{name}/bridge")


def missing_bridges(names: Iterable[str]) -> list[str]:
    """Return the names that are no bridges of this node."""
    return [name for name in names if not is_bridge(name)]


def _bridge_setting(name: str, setting: str) -> int:
    """Return a number that a bridge is set to; 0 where this kernel has no such setting."""
    with contextlib.suppress(OSError):
        text = Path(f"{_INTERFACES}/{name}/bridge/{setting}").read_text(encoding="ascii").strip()
        return int(text) if text.isdigit() else 0
    return 0


def can_make_taps() -> bool:
    """Tell whether this process has the device and the right to make taps."""
    return os.access(_TUN_DEVICE, os.R_OK | os.W_OK) and can_make_interfaces()


def can_make_interfaces() -> bool:
    """Tell whether this process has the right to make network interfaces."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        found = re.search(r"^CapEff:\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _CAP_NET_ADMIN & 1)


def is_routing_table(name: str) -> bool:
    """Tell whether a text is the number or the name of a routing table."""
    if name.isascii() and name.isdigit():
        return int(name) <= _TABLE_MAX
    return name in _TABLES_BUILT_IN or name == "" or name in _named_tables()


def _named_tables() -> Iterator[str]:
    """Yield the names that the administrator gave to routing tables."""
    for base in _TABLE_FILES:
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = [f"{base}.d/{name}" for name in sorted(os.listdir(f"{base}.d"))]
        for path in (base, *names):
            yield from _names_in(path)


def _names_in(path: str) -> list[str]:
    """Return the names in one file of lines "number name"; a missing file has none."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        rows = (line.partition("#")[0].split() for line in file)
        return [row[1] for row in rows if len(row) == 2]
    return []


def _switches(links: Iterable[str]) -> frozenset[str] | None:
    """Return the links that are switches of Open vSwitch; None where its tools are missing."""
    if shutil.which("ovs-vsctl") is None:
        return None
    commands = {link: _ovs("br-exists", link) for link in links if link[:1] != "-"}
    return frozenset(
        link
        for link, command in commands.items()
        if process.run(command, timeout_s=_COMMAND_TIMEOUT_S).status == 0
    )


def ensure_switch(name: str, link: str) -> None:
    """Make a switch, and connect it to an interface of the node; both may be so already.

    Args:
        link: the interface that leads outside; "" for a switch of this node alone.

    Raises:
        GenericError: a name is none, the interface is not there, or Open vSwitch refuses.
    """
    for text in (name, link):
        if text and not is_interface_name(text):
            raise GenericError(f"{text!r} cannot be the name of a switch or interface")
    if link and not is_interface(link):
        raise GenericError(f"switch {name}: there is no interface {link} to connect it to")
    port = ("--", "--may-exist", "add-port", name, link) if link else ()
    with failing_as(GenericError, f"switch {name} cannot be made"):
        command = _ovs("--may-exist", "add-br", name, *port)
        process.run(command, timeout_s=_COMMAND_TIMEOUT_S).check()


def abilities(
    nics: Sequence[RpcNIC], *, script: str = "", is_virtual: bool, address: str = ""
) -> NetworkAbilities:
    """Look up the abilities of the node for the links of some network interfaces.

    Args:
        script: where the administrator's script would be.
        address: the node's own.
    """
    links: dict[str, set[str]] = {mode: set() for mode in NicMode}
    for nic in nics:
        links[nic.nicparams["mode"]].add(nic.nicparams["link"])
    bridges = frozenset(link for link in links[NicMode.BRIDGED] if is_bridge(link))
    routed = links[NicMode.ROUTED]
    return NetworkAbilities(
        can_make_taps=can_make_taps(),
        bridges=bridges,
        vlan_bridges=frozenset(b for b in bridges if _bridge_setting(b, "vlan_filtering")),
        switches=_switches(links[NicMode.OPENVSWITCH]) if links[NicMode.OPENVSWITCH] else None,
        interfaces=frozenset(link for link in routed if is_interface(link)),
        tables=frozenset(link for link in routed if is_routing_table(link)),
        has_script=is_runnable(script),
        is_virtual=is_virtual,
        address=address,
    )


def _run(step: Step) -> None:
    if isinstance(step, Write):
        if step.may_miss and not os.path.exists(step.path):
            return
        with failing_as(HypervisorError, f"cannot set {step.path}"):
            Path(step.path).write_text(step.value, encoding="ascii")
        return
    try:
        process.run(list(step.argv), timeout_s=_COMMAND_TIMEOUT_S).check()
    except CommandError as err:
        if not step.may_fail:
            raise HypervisorError(err.message) from err
        logger.debug("%s; ignoring", err.message)


def _ip(*words: str) -> Run:
    return Run(("ip", *words))


def create_tap(
    backend: NicBackend, *, vnet_hdr: bool, queues: int = 1, script: str = "", connects: bool = True
) -> None:
    """Make a tap, switch it on and connect it to its link; one left over is replaced.

    Args:
        script: where the administrator's script would be; if it is there, it connects the tap.
        connects: the tap is used at once; if not, `connect_tap` is left for later.

    Raises:
        HypervisorError: a step failed; nothing is left of the tap.
    """
    if is_interface(backend.tap):
        remove_tap(backend.tap, backend.mode)
    options = (["vnet_hdr"] if vnet_hdr else []) + (["multi_queue"] if queues > 1 else [])
    _run(_ip("tuntap", "add", "dev", backend.tap, "mode", "tap", *options))
    if not connects:
        return
    try:
        connect_tap(backend, script=script)
    except HypervisorError:
        remove_tap(backend.tap, backend.mode)
        raise


def connect_tap(backend: NicBackend, *, script: str = "") -> None:
    """Switch on a tap that is there, and connect it to its link, as `create_tap`.

    Raises:
        HypervisorError: a step failed.
    """
    if is_runnable(script) and not backend.to_node:
        _run_script(script, backend)
        return
    for step in attach_steps(backend, _bridge_setting(backend.link, "default_pvid")):
        _run(step)


def connecting_script(backend: NicBackend, script: str = "") -> str:
    """Return a program for the shell that connects an interface once somebody has made it.

    Args:
        script: where the administrator's script would be, as for `create_tap`.
    """
    lines = ["#!/bin/sh", "set -e", f"export PATH={_SCRIPT_PATH}"]
    if is_runnable(script) and not backend.to_node:
        lines += [f"export {key}={shlex.quote(value)}" for key, value in backend.variables.items()]
        return "\n".join([*lines, f"exec {shlex.quote(script)}", ""])
    for step in attach_steps(backend, _bridge_setting(backend.link, "default_pvid")):
        if isinstance(step, Write):
            path = shlex.quote(step.path)
            missing = f"[ ! -e {path} ] || " if step.may_miss else ""
            lines.append(f"{missing}echo {shlex.quote(step.value)} > {path}")
        else:
            lines.append(shlex.join(step.argv) + (" || :" if step.may_fail else ""))
    return "\n".join([*lines, ""])


def _run_script(script: str, backend: NicBackend) -> None:
    env = {"PATH": _SCRIPT_PATH, **backend.variables}
    with failing_as(HypervisorError, f"cannot connect {backend.tap}"):
        process.run([script], timeout_s=_SCRIPT_TIMEOUT_S, env=env).check()


def remove_tap(name: str, mode: str = NicMode.BRIDGED) -> None:
    """Disconnect a tap and remove it, if it is there."""
    for step in detach_steps(name, mode):
        _run(step)
    if is_interface(name):
        _run(_ip("link", "delete", "dev", name))


def open_tap(name: str, *, vnet_hdr: bool, queues: int = 1) -> list[int]:
    """Open a tap that is there, once per queue; the caller closes the descriptors.

    Raises:
        HypervisorError: it cannot be opened.
    """
    flags = _IFF_TAP | _IFF_NO_PI | (_IFF_VNET_HDR if vnet_hdr else 0)
    if queues > 1:
        flags |= _IFF_MULTI_QUEUE
    request = struct.pack("16sH22x", name.encode(), flags)
    with failing_as(HypervisorError, f"cannot open the tap {name}"):
        descriptors = open_queues(_TUN_DEVICE, queues)
        try:
            for descriptor in descriptors:
                fcntl.ioctl(descriptor, _TUNSETIFF, request)
                os.set_blocking(descriptor, False)
        except OSError:
            close_all(descriptors)
            raise
    return descriptors


def open_queues(device: str, count: int) -> list[int]:
    """Open a device several times, once per queue of a network interface; all or none.

    Raises:
        OSError: it cannot be opened.
    """
    descriptors: list[int] = []
    try:
        for _ in range(count):
            descriptors.append(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        close_all(descriptors)
        raise
    return descriptors


def close_all(descriptors: Iterable[int]) -> None:
    """Close some descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)
