"""The steps that connect taps."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ganeti.netdev import taps
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.netdev.taps import Run, Write, attach_steps, detach_steps


def lines(mode: str, **settings: object) -> list[str]:
    """Return the steps, commands as one would type them and settings as path=value."""
    backend = NicBackend("u", BackendKind.TAP, tap="gnt0", mode=mode, **settings)  # type: ignore[arg-type]
    return [text(step) for step in attach_steps(backend)]


def text(step: Run | Write) -> str:
    return f"{step.path}={step.value}" if isinstance(step, Write) else " ".join(step.argv)


@pytest.mark.shows("2.1/routed/mode", "2.1/routed/bridged-link")
def test_a_bridge() -> None:
    assert lines("bridged", link="br0") == [
        "ip link set dev gnt0 master br0",
        "ip link set dev gnt0 up",
    ]
    assert detach_steps("gnt0", "bridged") == []


def test_vlans_of_a_bridge() -> None:
    assert lines("bridged", link="br0", vlan=".10:20:30") == [
        "ip link set dev gnt0 master br0",
        "bridge vlan del dev gnt0 vid 1",
        "bridge vlan add dev gnt0 vid 20",
        "bridge vlan add dev gnt0 vid 30",
        "bridge vlan add dev gnt0 vid 10 pvid untagged",
        "ip link set dev gnt0 up",
    ]


def test_a_bridge_without_default_vlan() -> None:
    backend = NicBackend("u", BackendKind.TAP, tap="gnt0", link="br0", vlan=".10")
    assert not [step for step in attach_steps(backend, 0) if "del" in text(step)]


def ovs(vlan: str) -> str:
    command, up = lines("openvswitch", link="s1", vlan=vlan)
    assert up == "ip link set dev gnt0 up"
    start = "ovs-vsctl --timeout=30 -- --if-exists del-port gnt0 -- add-port s1 gnt0"
    assert command.startswith(start)
    return command.removeprefix(start).strip()


def test_a_switch_and_its_vlans() -> None:
    assert ovs("") == ""
    assert ovs(".10") == "-- set Port gnt0 tag=10 vlan_mode=access"
    assert ovs(":20:30") == "-- set Port gnt0 trunks=20,30 vlan_mode=trunk"
    assert ovs(".10:20") == "-- set Port gnt0 tag=10 trunks=20 vlan_mode=native-untagged"
    (step,) = detach_steps("gnt0", "openvswitch")
    assert text(step) == "ovs-vsctl --timeout=30 --if-exists del-port gnt0"


@pytest.mark.shows("2.1/routed/mode")
def test_a_route_in_the_main_table() -> None:
    assert lines("routed", link="eth0", ip="192.0.2.9") == [
        "/proc/sys/net/ipv4/conf/gnt0/proxy_arp=1",
        "/proc/sys/net/ipv4/conf/gnt0/forwarding=1",
        "ip link set dev gnt0 up",
        "ip -4 route replace 192.0.2.9/32 dev gnt0 proto static",
    ]


def test_a_way_to_the_node_alone() -> None:
    assert lines("routed", ip="169.254.0.9", to_node=True) == [
        "/proc/sys/net/ipv6/conf/gnt0/disable_ipv6=1",
        "/proc/sys/net/ipv4/conf/gnt0/forwarding=0",
        "/proc/sys/net/ipv4/conf/gnt0/rp_filter=1",
        "ip -4 address replace 169.254.169.254/32 dev gnt0",
        "ip link set dev gnt0 up",
        "ip -4 route replace 169.254.0.9/32 dev gnt0 proto static src 169.254.169.254",
    ]


def test_a_kernel_without_ipv6_has_nothing_to_switch_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, missing, other = (str(tmp_path / name) for name in ("there", "missing", "other"))
    Path(there).touch()
    steps = [Write(missing, "0", may_miss=True), Write(there, "1", may_miss=True)]
    steps.append(Write(other, "2"))
    monkeypatch.setattr(taps, "attach_steps", lambda *_: steps)
    backend = NicBackend("u", BackendKind.TAP, tap="gnt0", mode="routed", to_node=True)
    subprocess.run(["sh", "-c", taps.connecting_script(backend)], check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "there": "1\n",
        "other": "2\n",
    }
    for step in steps:
        taps._run(step)
    assert sorted(os.listdir(tmp_path)) == ["other", "there"]
    assert Path(there).read_text() == "1"


@pytest.mark.shows("2.1/routed/routed-link")
def test_a_route_in_a_table_of_its_own() -> None:
    found = lines("routed", link="7", ip="2001:db8::1", is_table=True)
    assert found == [
        "/proc/sys/net/ipv6/conf/gnt0/proxy_ndp=1",
        "/proc/sys/net/ipv6/conf/gnt0/forwarding=1",
        "ip link set dev gnt0 up",
        "ip -6 route replace 2001:db8::1/128 dev gnt0 proto static table 7",
        "ip -6 rule del iif gnt0",
        "ip -6 rule add iif gnt0 table 7",
    ]
    assert [text(step) for step in detach_steps("gnt0", "routed")] == [
        "ip -4 rule del iif gnt0",
        "ip -6 rule del iif gnt0",
    ]
