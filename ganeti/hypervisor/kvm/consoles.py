"""The ways to an instance's console, and the addresses that VNC and SPICE listen at.

A parameter says an address, or the name of a network interface, which stands for one of its
addresses; VNC also takes the path of a directory, for a socket.

Source: manual page gnt-instance(8), vnc_bind_address, spice_bind, spice_ip_version; node_rpc.json,
"InstanceConsole".
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import sys
from typing import Final

from ganeti.base.json import JsonValue
from ganeti.hypervisor.interface import GUEST_WAIT_S, ConsoleNode, NodeEnv
from ganeti.hypervisor.kvm.agent import AgentError, GuestAgent
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.params import VNC_BASE_PORT, KvmParams, ip_version
from ganeti.hypervisor.params import missing_here
from ganeti.netdev.backends import ssh_forward
from ganeti.objects.hypervisors import ConsoleKind
from ganeti.objects.model import Guest, InstanceConsole
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.store import ssconf
from ganeti.transport.addresses import addresses_of

logger = logging.getLogger(__name__)

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
_VERSIONS: Final = {str(int(socket.AF_INET)): 4, str(int(socket.AF_INET6)): 6}


def bound_by(params: KvmParams) -> tuple[str, str]:
    """Return (parameter, its value) of the one that says where to listen, ("", "") without."""
    for name in ("vnc_bind_address", "spice_bind"):
        if params.text(name):
            return name, params.text(name)
    return "", ""


def listen_address(params: KvmParams, env: NodeEnv) -> str:
    """Return the address that VNC or SPICE listens at on this node; "" when there is none of them.

    Virtual nodes share a machine, and an instance keeps its port when it moves: so there an
    address that is not the node's own is replaced by that, unless it was given as such.

    Raises:
        OpPrereqError: the parameter names an interface that this node does not have, or one
            without a fitting address.
    """
    name, bind = bound_by(params)
    if not bind or bind.startswith("/"):
        return ""
    if ip_version(bind) is None:
        address = _address_of(name, bind, params, env)
        return env.address if env.is_virtual else address
    shared = bind in _ANY_ADDRESS or ipaddress.ip_address(bind).is_loopback
    return env.address if env.is_virtual and shared else bind


def reached_at(params: KvmParams, env: NodeEnv, node_address: str) -> str:
    """Return the address at which VNC or SPICE of an instance of this node is reached."""
    address = listen_address(params, env)
    return node_address if address in (*_ANY_ADDRESS, env.address) else address


def check_on_node(params: KvmParams, env: NodeEnv) -> None:
    """Check that this node can listen where the parameters say.

    Raises:
        OpPrereqError: the interface or the address is not of this node.
    """
    address = listen_address(params, env)
    if not address:
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((address, 0))
    except OSError as err:
        text = f"{address} is no address of node {env.hostname}"
        if err.errno != errno.EADDRNOTAVAIL:
            text = f"cannot listen at {address} on node {env.hostname}: {err.strerror}"
        raise missing_here(bound_by(params)[0], text) from err


def _address_of(name: str, interface: str, params: KvmParams, env: NodeEnv) -> str:
    """Return one address of an interface, of the version wanted."""
    found = [text for text in addresses_of(interface) if "%" not in text]  # not link-local ones
    if not found:
        text = f"{interface!r} is neither an address nor an interface of node {env.hostname}"
        raise missing_here(name, f"{text} that has one")
    wanted = params.number("spice_ip_version") if name == "spice_bind" else 0
    family = ssconf.read_key_or_none(env.paths, "primary_ip_family") or ""
    version = wanted or _VERSIONS.get(family, 4)
    for address in found:
        if ip_version(address) == version:
            return address
    if not wanted:
        return found[0]
    text = f"interface {interface} of node {env.hostname} has no address of IP version {version}"
    raise missing_here(name, text)


_CONSOLE_USER: Final = "root"


def consoles(instance: RpcInstance, env: NodeEnv, node: ConsoleNode) -> list[InstanceConsole]:
    """Return every way to the console: serial, graphical, or a message that there is none."""
    params, name = KvmParams(instance.hvparams), instance.name
    found = []
    if params.flag("serial_console"):
        found.append(_serial(name, env, node.name))
    _parameter, bind = bound_by(params)
    if bind.startswith("/"):
        path = MachineFiles(env.paths, name).link("vnc")
        text = f"instance {name}: VNC listens on the socket {path} of node {node.name}"
        found.append(_message(name, text))
    elif bind and instance.network_port is not None:
        found.append(
            InstanceConsole(
                instance=name,
                kind=ConsoleKind.VNC if params.has_vnc else ConsoleKind.SPICE,
                host=reached_at(params, env, node.primary_ip),
                port=instance.network_port,
                display=instance.network_port - VNC_BASE_PORT if params.has_vnc else None,
            )
        )
    text = f"instance {name} has no console: no serial one, no VNC, no SPICE"
    return found or [_message(name, text)]


def vnc_socket(instance: RpcInstance, env: NodeEnv) -> str:
    """Return the path of the socket that VNC listens on, "" if it does not."""
    directory = KvmParams(instance.hvparams).vnc_directory
    return MachineFiles(env.paths, instance.name).link("vnc") if directory else ""


_TAIL_BYTES: Final = 2048
LOG_BYTES_MAX: Final = 16 << 20  # a guest that prints without end must not fill its node's disk
_LOG_KEPT_BYTES: Final = 1 << 16
_BLOCK_BYTES: Final = 512  # of st_blocks, on any file system
_FORWARD_TRIAL_S: Final = 1.0


def guest(instance: RpcInstance, env: NodeEnv, wait_s: float = GUEST_WAIT_S) -> Guest:
    """Return the signs of life of a guest: what its agent says, how to reach it, its console."""
    files = MachineFiles(env.paths, instance.name)
    answers, addresses = False, []
    with contextlib.suppress(AgentError), GuestAgent(files.socket_path("agent"), wait_s) as agent:
        answers = True
        addresses = agent.addresses()
    return Guest(
        agent=answers,
        addresses=addresses,
        forward=_way_in(instance, env),
        console=_end_of(files.serial_log),
    )


def _way_in(instance: RpcInstance, env: NodeEnv) -> list[JsonValue]:
    """Return where QEMU takes connections for the SSH port of the guest, if it does."""
    place = ssh_forward(env.address, instance.network_port) if env.is_virtual else None
    if place is None:
        return []
    try:
        socket.create_connection(place, _FORWARD_TRIAL_S).close()
    except OSError:
        return []
    return [*place]


def _end_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:  # it has no serial console
        return ""


def shorten_log(path: str) -> None:
    """Keep only the end of a serial console's log that is too large; QEMU goes on behind it.

    A QEMU that does not append, as before this version, leaves a hole: what counts is the room that
    the log takes.
    """
    with contextlib.suppress(OSError):  # none yet; the next look tries again
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        with open(descriptor, "r+b", buffering=0) as log:
            status = os.fstat(descriptor)
            if status.st_blocks * _BLOCK_BYTES <= LOG_BYTES_MAX:
                return
            log.seek(max(0, status.st_size - _LOG_KEPT_BYTES))
            end = log.read(_LOG_KEPT_BYTES)
            log.truncate(0)
            log.write(end)
            logger.info("%s was too large, and has only its end now", path)


def _message(name: str, text: str) -> InstanceConsole:
    return InstanceConsole(instance=name, kind=ConsoleKind.MESSAGE, message=text)


def _serial(name: str, env: NodeEnv, node_name: str) -> InstanceConsole:
    files = MachineFiles(env.paths, name)
    command = [
        *(sys.executable, "-m", "ganeti.hypervisor.serial_console"),
        *(name, files.socket_path("serial"), files.serial_log),
    ]
    return InstanceConsole(
        instance=name, kind=ConsoleKind.SSH, host=node_name, user=_CONSOLE_USER, command=command
    )
