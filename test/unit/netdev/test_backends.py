"""How network interfaces are connected."""

from __future__ import annotations

import pytest
from guests.instances import make_instance

from ganeti.base.errors import OpPrereqError
from ganeti.netdev.backends import (
    BackendKind,
    NetworkAbilities,
    NicBackend,
    choose_backends,
    ssh_forward,
    tap_names,
)
from ganeti.netdev.taps import is_bridge, is_routing_table, missing_bridges
from ganeti.objects.model import NO_IPV4
from ganeti.objects.rpc_instance import RpcInstance

UUID = "a8ea3c51-895c-49a4-ba49-3cf1863fbc41"


def instance(
    mode: str = "bridged",
    link: str = "br0",
    vlan: str = "",
    ip: str | None = None,
    name: str = "inner",
) -> RpcInstance:
    nic = {
        "mac": "aa:00:00:00:00:01",
        "uuid": UUID,
        "nicparams": {"mode": mode, "link": link, "vlan": vlan},
        "ip": ip,
        "name": name,
        "netinfo": {"name": "net1", "network": "192.0.2.0/24", "uuid": "n1", "serial_no": 1},
    }
    bare = make_instance().to_wire()
    return RpcInstance.from_wire({**bare, "nics": [nic], "tags": ["a", "b"]})


def node(*bridges: str, taps: bool = True, virtual: bool = False, **more: object) -> object:
    return NetworkAbilities(
        can_make_taps=taps,
        bridges=frozenset(bridges),
        is_virtual=virtual,
        **more,  # type: ignore[arg-type]
    )


def choose(wanted: RpcInstance, abilities: object) -> NicBackend:
    assert isinstance(abilities, NetworkAbilities)
    (backend,) = choose_backends(wanted, abilities)
    return backend


@pytest.mark.shows("2.1/routed/kvm")
@pytest.mark.parametrize("virtual", [True, False])
def test_what_is_there_is_used(virtual: bool) -> None:
    backend = choose(instance(), node("br0", virtual=virtual))
    assert (backend.kind, backend.mode, backend.link) == (BackendKind.TAP, "bridged", "br0")
    assert backend.tap == "gnt3cf1863fbc41"
    assert tap_names(UUID) == (backend.tap, "gnt.com.63fbc41")
    assert {len(name) for name in tap_names(UUID)} == {15}
    assert backend.variables == {}


@pytest.mark.shows("2.1/routed/kvm")
def test_vlans_switches_and_routes() -> None:
    vlan = node("br0", vlan_bridges=frozenset({"br0"}))
    assert choose(instance(vlan=".7"), vlan).vlan == ".7"
    switch = node(switches=frozenset({"s1"}))
    assert choose(instance("openvswitch", "s1"), switch).mode == "openvswitch"
    table = node(tables=frozenset({"7"}))
    assert choose(instance("routed", "7", ip="192.0.2.9"), table).is_table
    interface = node(interfaces=frozenset({"eth0"}), virtual=True)
    assert not choose(instance("routed", "eth0", ip="192.0.2.9"), interface).is_table


@pytest.mark.parametrize(
    ("wanted", "abilities"),
    [
        (instance(), node(virtual=True)),
        (instance(), node("br0", taps=False, virtual=True)),
        (instance(vlan=".100"), node("br0", virtual=True)),
        (instance("routed", ip="192.0.2.9"), node("br0", virtual=True)),
        (
            instance("routed", "main", ip="192.0.2.9"),
            node(tables=frozenset({"main"}), virtual=True),
        ),
        (instance("openvswitch"), node("br0", virtual=True)),
    ],
)
def test_virtual_node_falls_back_to_user_mode(wanted: RpcInstance, abilities: object) -> None:
    assert choose(wanted, abilities).kind is BackendKind.USER


def test_guests_of_virtual_nodes_have_the_addresses_of_their_network_and_a_way_in() -> None:
    virtual = node(virtual=True, address="127.9.9.1")
    network = {"name": "net1", "network": "192.0.2.0/24", "uuid": "n1", "serial_no": 1}

    def user(ip: str | None, **of_network: object) -> object:
        wire = instance(ip=ip).to_wire()
        wire["nics"] = [{**nic, "netinfo": network | of_network} for nic in wire["nics"]]  # type: ignore[attr-defined]
        return choose(RpcInstance.from_wire(wire), virtual).user

    assert user(None) == {"hostfwd": [{"str": "tcp:127.9.9.1:21000-:22"}]}
    assert user("192.0.2.9", gateway="192.0.2.254") == {
        "net": "192.0.2.0/24",
        "host": "192.0.2.254",
        "dns": "192.0.2.253",
        "dhcpstart": "192.0.2.9",
        "hostfwd": [{"str": "tcp:127.9.9.1:21000-192.0.2.9:22"}],
    }
    way_in = {"hostfwd": [{"str": "tcp:127.9.9.1:21000-:22"}]}
    assert user("2001:db8::9", network6="2001:db8::/64") == way_in
    assert user("2001:db8::9", network=NO_IPV4, network6="2001:db8::/64") == way_in
    without = user("192.0.2.254")
    assert isinstance(without, dict)
    assert (without["host"], without["dns"]) == ("192.0.2.251", "192.0.2.253")
    # Not at an address that others reach, nor for instances without a port.
    assert choose(instance(), node(virtual=True, address="192.0.2.1")).user == {}
    assert ssh_forward("127.9.9.1", None) is None


@pytest.mark.shows("2.0/net/bridge-exists")
@pytest.mark.parametrize(
    ("wanted", "abilities", "text"),
    [
        (instance(), node(), "no bridge br0"),
        (instance(), node("br0", taps=False), "must run as root"),
        (instance(vlan=".7"), node("br0"), "vlan_filtering 1"),
        (instance("routed"), node(), "needs an IP address"),
        (instance("routed", ip="192.0.2.9"), node(), "neither an interface nor a routing table"),
        (instance("openvswitch"), node(), "ovs-vsctl, which the node does not have"),
        (instance("openvswitch"), node(switches=frozenset()), "no Open vSwitch switch br0"),
    ],
)
def test_real_node_refuses_what_it_lacks(wanted: RpcInstance, abilities: object, text: str) -> None:
    with pytest.raises(OpPrereqError, match=f"network interface 0: .*{text}"):
        choose(wanted, abilities)


@pytest.mark.shows("2.1/routed/script")
def test_the_script_of_the_administrator_knows_better() -> None:
    backend = choose(instance("routed", "anything", ip="192.0.2.9"), node(has_script=True))
    assert backend.kind is BackendKind.TAP
    assert backend.variables == {
        "INSTANCE": "inst1.example.com",
        "TAGS": "a b",
        "INTERFACE": "gnt3cf1863fbc41",
        "INTERFACE_INDEX": "0",
        "INTERFACE_NAME": "inner",
        "INTERFACE_UUID": UUID,
        "MAC": "aa:00:00:00:00:01",
        "IP": "192.0.2.9",
        "MODE": "routed",
        "LINK": "anything",
        "VLAN": "",
        "NETWORK_NAME": "net1",
        "NETWORK_UUID": "n1",
        "NETWORK_TAGS": "",
        "NETWORK_SUBNET": "192.0.2.0/24",
    }
    assert choose(instance(), node(has_script=True)).variables["BRIDGE"] == "br0"


def test_the_way_to_the_node_needs_neither_link_nor_script() -> None:
    wanted = instance("routed", "communication_rt", ip="169.254.0.9", name="ganeti:communication:x")
    backend = choose(wanted, node(has_script=True))
    assert backend == NicBackend(
        UUID, BackendKind.TAP, tap="gnt.com.63fbc41", mode="routed", ip="169.254.0.9", to_node=True
    )
    assert choose(wanted, node(virtual=True)).kind is BackendKind.USER
    with pytest.raises(OpPrereqError, match="no right to make a tap for instance comm"):
        choose(wanted, node(taps=False))
    without = instance("routed", "communication_rt", name="ganeti:communication:x")
    with pytest.raises(OpPrereqError, match="needs an IP address"):
        choose(without, node())


def test_names_that_lead_elsewhere_are_no_bridges() -> None:
    assert not is_bridge("../net/lo")
    assert missing_bridges(["no-such-bridge", ".."]) == ["no-such-bridge", ".."]


@pytest.mark.shows("2.1/routed/routed-link")
def test_routing_tables() -> None:
    known = [
        name for name in ("main", "", "7", "4294967296", "nix", "-1") if is_routing_table(name)
    ]
    assert known == ["main", "", "7"]
