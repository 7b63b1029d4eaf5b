"""The ways to an instance's console."""

from __future__ import annotations

import pytest
from guests.instances import make_instance

from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import NodeEnv
from ganeti.hypervisor.kvm.consoles import consoles
from ganeti.objects.console import InstanceConsole

REAL = NodeEnv(Paths(""), "node1.example.com", "192.0.2.1")


def found(env: NodeEnv = REAL, **hvparams: object) -> list[InstanceConsole]:
    instance = make_instance(**hvparams)  # type: ignore[arg-type]  # hypervisor parameters
    return consoles(instance, env, node_name=env.hostname, node_address=env.address)


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
