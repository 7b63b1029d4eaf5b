"""The ways to an instance's console, and the addresses that VNC and SPICE listen at."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from guests.instances import make_instance

from ganeti.base.errors import OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import ConsoleNode, NodeEnv
from ganeti.hypervisor.kvm import consoles as consoles_module
from ganeti.hypervisor.kvm.consoles import (
    check_on_node,
    consoles,
    guest,
    listen_address,
    reached_at,
    shorten_log,
)
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.params import KvmParams
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.model import Guest, InstanceConsole

REAL = NodeEnv(Paths(""), "node1.example.com", "192.0.2.1")


def found(env: NodeEnv = REAL, **hvparams: object) -> list[InstanceConsole]:
    instance = make_instance(**hvparams)  # type: ignore[arg-type]  # hypervisor parameters
    return consoles(instance, env, ConsoleNode(env.hostname, env.address))


@pytest.mark.shows("backend/overview/console")
def test_serial_console_comes_first() -> None:
    serial, vnc = found(vnc_bind_address="0.0.0.0")
    assert serial.kind == "ssh"
    assert (serial.host, serial.user) == ("node1.example.com", "root")
    assert serial.command is not None
    assert serial.command[1:4] == ["-m", "ganeti.hypervisor.serial_console", "inst1.example.com"]
    assert (vnc.kind, vnc.host, vnc.port, vnc.display) == ("vnc", "192.0.2.1", 11000, 5100)


def test_graphical_consoles_at_their_own_address() -> None:
    (vnc,) = found(serial_console=False, vnc_bind_address="198.51.100.7")
    assert vnc.host == "198.51.100.7"
    (spice,) = found(serial_console=False, spice_bind="127.0.0.1")
    assert (spice.kind, spice.host, spice.display) == ("spice", "127.0.0.1", None)


def test_virtual_nodes_listen_at_their_own_address() -> None:
    env = NodeEnv(Paths("/vc/node1"), "node1", "127.9.9.1")
    (vnc,) = found(env, serial_console=False, vnc_bind_address="127.0.0.1")
    assert vnc.host == "127.9.9.1"


@pytest.mark.parametrize(
    ("hvparams", "text"),
    [({}, "has no console"), ({"vnc_bind_address": "/run/vnc"}, "VNC listens on the socket")],
)
def test_message_where_nothing_can_be_connected_to(hvparams: dict[str, object], text: str) -> None:
    (message,) = found(serial_console=False, **hvparams)
    assert message.kind == "msg"
    assert text in str(message.message)


HERE = NodeEnv(Paths(""), "node1.example.com", "192.0.2.1")
BOTH = ["192.0.2.7", "2001:db8::7", "fe80::1%eth0"]


@pytest.fixture(autouse=True)
def _interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"eth0": BOTH, "six0": ["2001:db8::8"], "bare0": []}
    monkeypatch.setattr(consoles_module, "addresses_of", lambda name: known.get(name, []))


def params(**changes: object) -> KvmParams:
    defaults = {name: spec.default for name, spec in HVPARAMS["kvm"].items()}
    return KvmParams({**defaults, **changes})


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({}, ""),
        ({"vnc_bind_address": "/var/run"}, ""),
        ({"vnc_bind_address": "198.51.100.1"}, "198.51.100.1"),
        ({"vnc_bind_address": "127.0.0.1"}, "127.0.0.1"),
        ({"vnc_bind_address": "eth0"}, "192.0.2.7"),
        ({"vnc_bind_address": "six0"}, "2001:db8::8"),
        ({"spice_bind": "::"}, "::"),
        ({"spice_bind": "eth0"}, "192.0.2.7"),
        ({"spice_bind": "eth0", "spice_ip_version": 4}, "192.0.2.7"),
        ({"spice_bind": "eth0", "spice_ip_version": 6}, "2001:db8::7"),
    ],
    ids=str,
)
def test_an_interface_stands_for_one_of_its_addresses(
    changes: dict[str, object], address: str
) -> None:
    assert listen_address(params(**changes), HERE) == address


def test_without_a_wish_the_version_is_that_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consoles_module.ssconf, "read_key_or_none", lambda _paths, _key: "10")
    assert listen_address(params(spice_bind="eth0"), HERE) == "2001:db8::7"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"spice_bind": "nosuch0"}, "spice_bind: 'nosuch0' is neither"),
        ({"vnc_bind_address": "bare0"}, "vnc_bind_address: 'bare0' is neither"),
        ({"spice_bind": "six0", "spice_ip_version": 4}, "six0 of node node1.example.com has no"),
    ],
    ids=str,
)
def test_what_the_interface_lacks_is_named(changes: dict[str, object], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        listen_address(params(**changes), HERE)


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "127.0.0.1", "::1", "eth0"])
def test_on_virtual_nodes_shared_addresses_are_replaced(bind: str) -> None:
    env = NodeEnv(Paths("/vc/node1"), "node1", "127.9.9.1")
    assert listen_address(params(vnc_bind_address=bind), env) == "127.9.9.1"


def test_any_address_is_reached_at_that_of_the_node() -> None:
    assert reached_at(params(vnc_bind_address="::"), HERE, "192.0.2.1") == "192.0.2.1"
    assert reached_at(params(spice_bind="eth0"), HERE, "192.0.2.1") == "192.0.2.7"


def test_an_address_of_another_machine_is_refused() -> None:
    """203.0.113.0/24 is for documents, and on no machine."""
    with pytest.raises(OpPrereqError, match=r"spice_bind: 203\.0\.113\.77 is no address of node"):
        check_on_node(params(spice_bind="203.0.113.77"), HERE)
    check_on_node(params(spice_bind="127.0.0.1"), HERE)
    check_on_node(params(), HERE)


def test_signs_of_life_of_a_guest(tmp_path: Path) -> None:
    env = NodeEnv(Paths(str(tmp_path)), "node1.example.com", "127.0.0.1")
    instance = make_instance()
    assert guest(instance, env) == Guest()
    log = Path(MachineFiles(env.paths, instance.name).serial_log)
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 5000 + b"\xffthe end\n")
    assert guest(instance, env).console.endswith("x\ufffdthe end\n")
    assert len(guest(instance, env).console) <= 2048
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        there = make_instance(network_port=port - 10_000)
        assert guest(there, env).forward == ["127.0.0.1", port]
        assert guest(there, NodeEnv(Paths(""), "n", "127.0.0.1")).forward == []


@pytest.mark.parametrize("appends", [True, False])
def test_a_log_that_is_too_large_keeps_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, appends: bool
) -> None:
    monkeypatch.setattr(consoles_module, "LOG_BYTES_MAX", 1 << 20)
    path = tmp_path / "web1.serial.log"
    shorten_log(str(path))
    with open(path, "ab" if appends else "wb", buffering=0) as qemu:
        qemu.write(b"early\n" + b"x" * (1 << 19))
        shorten_log(str(path))
        assert path.read_bytes().startswith(b"early\n")
        qemu.write(b"y" * (1 << 20) + b"login: ")
        shorten_log(str(path))
        assert path.stat().st_blocks * 512 < 1 << 18
        assert path.read_bytes().endswith(b"yy" + b"login: ")
        qemu.write(b"root\n")
        assert path.read_bytes().endswith(b"root\n")
        assert path.stat().st_blocks * 512 < 1 << 18
        shorten_log(str(path))
    assert b"early" not in path.read_bytes()
