"""Bridges, switches and taps of this node, by sysfs, ``ip``, ``bridge`` and ``ovs-vsctl``."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ganeti.base.errors import CommandError, GenericError, HypervisorError
from ganeti.netdev.attachment import OVS_TIMEOUT_S, Run, Step, Write, attach_steps, detach_steps
from ganeti.netdev.backends import NetworkAbilities, NicBackend
from ganeti.objects.nic import NicMode
from ganeti.objects.rpc_instance import RpcNIC
from ganeti.system import process

logger = logging.getLogger(__name__)

_INTERFACES: Final = "/sys/class/net"
_INTERFACE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_TUN_DEVICE: Final = "/dev/net/tun"
_CAP_NET_ADMIN: Final = 12
_COMMAND_TIMEOUT_S: Final = OVS_TIMEOUT_S + 5.0
_SCRIPT_TIMEOUT_S: Final = 60.0
_SCRIPT_PATH: Final = "/sbin:/bin:/usr/sbin:/usr/bin"
_SETTING_BYTES_MAX: Final = 64
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
    """Return those of the names that are no bridges of this node."""
    return [name for name in names if not is_bridge(name)]


def _bridge_setting(name: str, setting: str) -> int:
    """Return a number that a bridge is set to; 0 where this kernel has no such setting."""
    try:
        with open(f"{_INTERFACES}/{name}/bridge/{setting}", encoding="ascii") as file:
            text = file.read(_SETTING_BYTES_MAX).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def can_make_taps() -> bool:
    """Tell whether this process has the device and the right to make taps."""
    if not os.access(_TUN_DEVICE, os.R_OK | os.W_OK):
        return False
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
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            rows = [line.partition("#")[0].split() for line in file]
    except OSError:
        return []
    return [row[1] for row in rows if len(row) == 2]


def _switches(links: Iterable[str]) -> frozenset[str] | None:
    """Return which links are switches of Open vSwitch; None where there is none of its tools."""
    if shutil.which("ovs-vsctl") is None:
        return None
    command = ("ovs-vsctl", f"--timeout={OVS_TIMEOUT_S}", "br-exists")
    asked = ((link, process.run([*command, link], timeout_s=_COMMAND_TIMEOUT_S)) for link in links)
    return frozenset(link for link, result in asked if result.status == 0)


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
    command = ["ovs-vsctl", f"--timeout={OVS_TIMEOUT_S}", "--may-exist", "add-br", name]
    if link:
        command += ["--", "--may-exist", "add-port", name, link]
    try:
        process.run(command, timeout_s=_COMMAND_TIMEOUT_S).check()
    except CommandError as err:
        raise GenericError(f"switch {name} cannot be made: {err.message}") from err


def abilities(nics: Sequence[RpcNIC], *, script: str = "", is_virtual: bool) -> NetworkAbilities:
    """Look up the abilities of the node for the links of some network interfaces.

    Args:
        script: where the administrator's script would be.
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
        has_script=has_script(script),
        is_virtual=is_virtual,
    )


def has_script(path: str) -> bool:
    """Tell whether the administrator has a script for connecting taps."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _run(step: Step) -> None:
    if isinstance(step, Write):
        try:
            with open(step.path, "w", encoding="ascii") as file:
                file.write(step.value)
        except OSError as err:
            raise HypervisorError(f"cannot set {step.path}: {err.strerror}") from err
        return
    try:
        process.run(list(step.argv), timeout_s=_COMMAND_TIMEOUT_S).check()
    except CommandError as err:
        if not step.may_fail:
            raise HypervisorError(err.message) from err
        logger.debug("%s; ignoring", err.message)


def _ip(*words: str) -> None:
    _run(Run(("ip", *words)))


def create_tap(backend: NicBackend, *, vnet_hdr: bool, queues: int = 1, script: str = "") -> None:
    """Make a tap, switch it on and connect it to its link; one left over is replaced.

    Args:
        script: where the administrator's script would be; if it is there, it connects the tap.

    Raises:
        HypervisorError: a step failed; nothing is left of the tap.
    """
    if is_interface(backend.tap):
        remove_tap(backend.tap, backend.mode)
    options = (["vnet_hdr"] if vnet_hdr else []) + (["multi_queue"] if queues > 1 else [])
    _ip("tuntap", "add", "dev", backend.tap, "mode", "tap", *options)
    try:
        if has_script(script):
            _run_script(script, backend)
            return
        for step in attach_steps(backend, _bridge_setting(backend.link, "default_pvid")):
            _run(step)
    except HypervisorError:
        remove_tap(backend.tap, backend.mode)
        raise


def _run_script(script: str, backend: NicBackend) -> None:
    env = {"PATH": _SCRIPT_PATH, **backend.variables}
    try:
        process.run([script], timeout_s=_SCRIPT_TIMEOUT_S, env=env).check()
    except CommandError as err:
        raise HypervisorError(f"cannot connect {backend.tap}: {err.message}") from err


def remove_tap(name: str, mode: str = NicMode.BRIDGED) -> None:
    """Disconnect a tap and remove it, if it is there."""
    for step in detach_steps(name, mode):
        _run(step)
    if is_interface(name):
        _ip("link", "delete", "dev", name)


def open_tap(name: str, *, vnet_hdr: bool, queues: int = 1) -> list[int]:
    """Open a tap that is there, once per queue; the caller closes the descriptors.

    Raises:
        HypervisorError: it cannot be opened.
    """
    flags = _IFF_TAP | _IFF_NO_PI | (_IFF_VNET_HDR if vnet_hdr else 0)
    if queues > 1:
        flags |= _IFF_MULTI_QUEUE
    descriptors: list[int] = []
    try:
        for _ in range(queues):
            descriptor = os.open(_TUN_DEVICE, os.O_RDWR | os.O_CLOEXEC)
            descriptors.append(descriptor)
            fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
            os.set_blocking(descriptor, False)
    except OSError as err:
        for descriptor in descriptors:
            os.close(descriptor)
        raise HypervisorError(f"cannot open the tap {name}: {err.strerror}") from err
    return descriptors
