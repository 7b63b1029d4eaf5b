"""Networks: added, changed, connected to groups, removed."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import GROUP, FakeCluster, make_group
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.config.addresses.pool import AddressPool
from ganeti.logical_units.network import settings
from ganeti.logical_units.network.units import hook_values_of
from ganeti.objects.model import NO_IPV4, Network
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkSetParams

CONNECTION = {"network_mode": "bridged", "network_link": "br0"}


def add(cluster: FakeCluster, **params: Any) -> dict[str, Any]:
    cluster.execute(
        "OP_NETWORK_ADD", **{"network_name": "net1", "network": "192.0.2.0/28", **params}
    )
    return network(cluster)


def network(cluster: FakeCluster) -> dict[str, Any]:
    (found,) = cluster.config.networks.values()
    return found


def nic(**settings: str) -> dict[str, Any]:
    return {"mac": "aa:00:00:00:00:99", "uuid": "n", "nicparams": {}, **settings}


def instance(cluster: FakeCluster, *nics: dict[str, Any]) -> None:
    node = cluster.config.node(2)
    cluster.config.instances["i"] = {
        "name": "web1.example.com",
        "uuid": "i",
        "primary_node": node["uuid"],
        "os": "",
        "hypervisor": "fake",
        "admin_state": "down",
        "disks": [],
        "disks_active": False,
        "serial_no": 1,
        "nics": list(nics),
    }


def test_a_network_keeps_away_its_edges_gateway_and_what_is_asked(cluster: FakeCluster) -> None:
    made = add(
        cluster,
        gateway="192.0.2.14",
        add_reserved_ips=["192.0.2.13"],
        conflicts_check=False,
        mac_prefix="AA:bb:00",
        network6="2001:db8::/64",
        gateway6="2001:db8::1",
        tags=["a"],
    )
    assert made["ext_reservations"] == "1000000000000111"
    assert made["reservations"] == "0" * 16
    assert made["mac_prefix"] == "aa:bb:00"
    assert made["tags"] == ["a"]


def test_addresses_of_the_cluster_itself_are_kept_away(cluster: FakeCluster) -> None:
    assert add(cluster)["ext_reservations"] == "1111000000000001"  # nodes have .1, .2 and .3


def test_hooks_are_told_all_but_the_uuid(cluster: FakeCluster) -> None:
    made = Network.from_wire(add(cluster, gateway="192.0.2.1", tags=["a", "b"]))
    assert hook_values_of(made) == {
        "NETWORK_NAME": "net1",
        "NETWORK_TAGS": "a b",
        "NETWORK_SUBNET": "192.0.2.0/28",
        "NETWORK_GATEWAY": "192.0.2.1",
    }


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"network": "192.0.2.1/24"}, "has host bits set"),
        ({"network": "10.0.0.0/8"}, "10.0.0.0/8 is not supported"),
        ({"network": "192.0.2.0/31"}, "is not supported"),
        ({"gateway": "192.0.3.1"}, "gateway: 192.0.3.1 is not in network"),
        ({"gateway": "192.0.2.0"}, "gateway: 192.0.2.0 is the address of the network or for"),
        ({"gateway6": "2001:db8::1"}, "needs an IPv6 network"),
        ({"network6": "2001:db8::/64", "gateway6": "2001:db9::1"}, "does not lie in"),
        ({"network6": "2001:db8::1/64"}, "has host bits set"),
        ({"mac_prefix": "01:00:00"}, "is not a MAC prefix"),
        ({"add_reserved_ips": ["192.0.3.1"]}, "is not in network"),
        ({"network": None}, "it needs addresses"),
        ({"network": NO_IPV4}, "leave it out"),
        ({"add_reserved_ips": ["2001:db8::1"]}, "has no IPv6 addresses, and cannot have"),
        ({"network_name": "a b"}, "cannot be the name"),
        ({"tags": ["a b"]}, "a b"),
    ],
)
def test_networks_that_cannot_be(cluster: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text) as caught:
        add(cluster, **params)
    assert caught.value.ecode == "wrong_input"
    assert not cluster.config.networks


def test_a_name_is_given_once(cluster: FakeCluster) -> None:
    add(cluster)
    with pytest.raises(OpPrereqError, match="already used by network 'net1'") as caught:
        add(cluster)
    assert caught.value.ecode == "already_exists"


def test_a_network_is_not_removed_under_the_beginning_of_its_name(cluster: FakeCluster) -> None:
    add(cluster, network_name="lan.old")
    for name in ("lan", "LAN.OLD"):
        with pytest.raises(OpPrereqError, match=f"network '{name}' is not known"):
            cluster.execute("OP_NETWORK_REMOVE", network_name=name)
    cluster.execute("OP_NETWORK_REMOVE", network_name="lan.old")


def test_the_gateway_moves_and_frees_its_old_address(cluster: FakeCluster) -> None:
    add(cluster, gateway="192.0.2.14", conflicts_check=False)
    cluster.execute("OP_NETWORK_SET_PARAMS", network_name="net1", gateway="192.0.2.5")
    assert network(cluster)["gateway"] == "192.0.2.5"
    assert network(cluster)["ext_reservations"] == "1000010000000001"


def test_addresses_are_kept_away_and_given_back(cluster: FakeCluster) -> None:
    add(cluster, conflicts_check=False)
    change = {"network_name": "net1", "add_reserved_ips": ["192.0.2.3", "192.0.2.4"]}
    cluster.execute("OP_NETWORK_SET_PARAMS", **change)
    assert network(cluster)["ext_reservations"] == "1001100000000001"
    change = {"network_name": "net1", "remove_reserved_ips": ["192.0.2.4"]}
    cluster.execute("OP_NETWORK_SET_PARAMS", **change)
    assert network(cluster)["ext_reservations"] == "1001000000000001"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "at least one change"),
        ({"remove_reserved_ips": ["192.0.2.0"]}, "address of the network"),
        ({"remove_reserved_ips": ["192.0.2.9"]}, "192.0.2.9 is not reserved"),
        ({"add_reserved_ips": ["192.0.2.7"]}, "in use by an instance"),
        ({"gateway": "192.0.2.7"}, "in use by an instance"),
        ({"gateway": "192.0.2.15"}, "gateway: 192.0.2.15 is the address of the network or for"),
        ({"gateway6": "2001:db8::1"}, "needs an IPv6 network"),
    ],
)
def test_changes_that_cannot_be(cluster: FakeCluster, change: dict[str, Any], text: str) -> None:
    add(cluster, conflicts_check=False)["reservations"] = "0000000100000000"
    with pytest.raises(OpPrereqError, match=text):
        cluster.execute("OP_NETWORK_SET_PARAMS", network_name="net1", **change)


def connect(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute(
        "OP_NETWORK_CONNECT",
        **{"network_name": "net1", "group_name": "default", **CONNECTION, **params},
    )


def test_a_network_is_connected_disconnected_and_removed(cluster: FakeCluster) -> None:
    uuid = add(cluster)["uuid"]
    connect(cluster, network_vlan="7")
    groups = cluster.config.nodegroups
    assert groups[GROUP]["networks"] == {uuid: {"mode": "bridged", "link": "br0", "vlan": ".7"}}
    with pytest.raises(OpPrereqError, match=r"connected to node group\(s\) default"):
        cluster.execute("OP_NETWORK_REMOVE", network_name="net1")
    cluster.execute("OP_NETWORK_DISCONNECT", network_name="net1", group_name="default")
    assert groups[GROUP]["networks"] == {}
    cluster.execute("OP_NETWORK_REMOVE", network_name="net1")
    assert not cluster.config.networks


def test_hooks_of_a_connection_run_on_the_members(cluster: FakeCluster) -> None:
    add(cluster)
    cluster.config.nodegroups["g2"] = make_group("other", "g2")
    cluster.config.node(3)["group"] = "g2"
    connect(cluster, group_name="other")
    calls = cluster.rpc.called("hooks_runner")
    assert [(node, args[:2]) for node, args in calls] == [
        ("node3", ["network-connect", "pre"]),
        ("node3", ["network-connect", "post"]),
    ]
    assert calls[0][1][2]["GANETI_GROUP_NETWORK_LINK"] == "br0"
    assert calls[0][1][2]["GANETI_GROUP_NAME"] == "other"


def test_doing_it_twice_changes_nothing(cluster: FakeCluster) -> None:
    add(cluster)
    connect(cluster)
    before = dict(cluster.config.nodegroups[GROUP])
    connect(cluster, network_link="br1")
    assert cluster.config.nodegroups[GROUP] == before
    cluster.execute("OP_NETWORK_DISCONNECT", network_name="net1", group_name="default")
    cluster.execute("OP_NETWORK_DISCONNECT", network_name="net1", group_name="default")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"network_mode": "pool"}, "cannot be connected in mode 'pool'"),
        ({"network_vlan": "x"}, "is not a VLAN"),
        ({"network_link": "a\nb"}, "network 'net1': link: .* is not a name without blanks"),
        ({"network_mode": "routed", "network_vlan": "1"}, "VLAN cannot be used"),
        ({"network_name": "nix"}, "network 'nix' is not known"),
        ({"group_name": "nix"}, "node group 'nix' is not known"),
    ],
)
def test_connections_that_cannot_be(
    cluster: FakeCluster, params: dict[str, Any], text: str
) -> None:
    add(cluster)
    with pytest.raises(OpPrereqError, match=text):
        connect(cluster, **params)


def test_addresses_of_instances_on_the_same_link_are_in_conflict(cluster: FakeCluster) -> None:
    add(cluster)
    instance(cluster, nic(ip="192.0.2.9"))
    with pytest.raises(OpPrereqError, match=r"web1.example.com \(192.0.2.9\)"):
        connect(cluster)
    request = cluster.config.lock_history[-1]
    assert ("instance/web1.example.com", "shared") in request
    connect(cluster, network_link="br1")  # another link is another world
    cluster.execute("OP_NETWORK_DISCONNECT", network_name="net1", group_name="default")
    connect(cluster, conflicts_check=False)


def test_a_network_in_use_is_not_disconnected(cluster: FakeCluster) -> None:
    uuid = add(cluster)["uuid"]
    connect(cluster)
    instance(cluster, nic(ip="192.0.2.9", network=uuid))
    with pytest.raises(OpPrereqError, match=r"used by instance\(s\) web1"):
        cluster.execute("OP_NETWORK_DISCONNECT", network_name="net1", group_name="default")


def test_a_network_can_have_ipv6_addresses_alone(cluster: FakeCluster) -> None:
    made = add(
        cluster,
        network=None,
        network6="2001:db8::/64",
        gateway6="2001:db8::1",
        add_reserved_ips=["2001:db8::10-2001:DB8::1f", "2001:db8::20"],
    )
    assert made["ext_reservations6"] == ["2001:db8::10-2001:db8::20"]
    assert (made["network"], made["ext_reservations"]) == ("0.0.0.0/30", "1111")  # 3.0 needs one
    assert "NETWORK_SUBNET" not in hook_values_of(Network.from_wire(made))
    change(cluster, remove_reserved_ips=["2001:db8::10-2001:db8::20"])
    assert "ext_reservations6" not in network(cluster)
    change(cluster, add_reserved_ips=["2001:db8::7"])
    for params, text in (
        ({"network6": "2001:db9::/64", "gateway6": "2001:db9::1"}, "2001:db8::7 is reserved, and"),
        ({"gateway": "192.0.2.1"}, "has no IPv4 addresses, and cannot have 192.0.2.1"),
        ({"add_reserved_ips": ["192.0.2.1"]}, "has no IPv4 addresses"),
        ({"remove_reserved_ips": ["2001:db8::8"]}, "2001:db8::8 is not reserved"),
        ({"add_reserved_ips": ["2001:db9::8"]}, "is not in network"),
    ):
        with pytest.raises(OpPrereqError, match=text):
            change(cluster, **params)


def change(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_NETWORK_SET_PARAMS", network_name="net1", **params)


def test_a_gateway_is_not_that_of_an_instance(cluster: FakeCluster) -> None:
    uuid = add(cluster, network6="2001:db8::/64")["uuid"]
    instance(cluster, nic(ip="2001:db8::9", network=uuid))
    with pytest.raises(OpPrereqError, match="gateway 2001:db8::9 is in use by an instance"):
        change(cluster, gateway6="2001:db8::9")


def test_addresses_that_fall_out_of_a_network_are_named(cluster: FakeCluster) -> None:
    uuid = add(cluster, network6="2001:db8::/64")["uuid"]
    instance(cluster, nic(ip="2001:db8::9", network=uuid))
    change(cluster, network6="2001:db8::/56")
    assert not cluster.said("any more")
    change(cluster, network6="2001:db8:1::/64")
    assert cluster.said("do not lie in network 'net1' any more: 2001:db8::9;")
    cluster.messages.clear()
    change(cluster, gateway6="2001:db8:1::1")
    assert not cluster.said("any more")


ADDRESSES = st.lists(st.integers(1, 14).map(lambda n: f"192.0.2.{n}"), unique=True)


@given(ADDRESSES, ADDRESSES, st.integers(1, 14) | st.none())
def test_keeping_away_and_giving_back_is_no_change(
    kept: list[str], more: list[str], gateway: int | None
) -> None:
    """What is added and taken again leaves the map as it was; the gateway always stays."""
    address = None if gateway is None else f"192.0.2.{gateway}"
    op = OpNetworkAdd(
        network_name="n", network="192.0.2.0/28", gateway=address, add_reserved_ips=kept
    )
    made = settings.new_network(op, "uuid", [])
    new = [a for a in more if a not in kept and a != address]
    added = settings.network_changes(
        made, OpNetworkSetParams(network_name="n", add_reserved_ips=more)
    )
    after = Network.from_wire({**made.to_wire(), **added})
    back = settings.network_changes(
        after, OpNetworkSetParams(network_name="n", remove_reserved_ips=new)
    )
    final = Network.from_wire({**after.to_wire(), **back})
    assert final.ext_reservations == made.ext_reservations
    assert AddressPool(after).reserved_count == 2 + len(
        {*kept, *more, *([address] * bool(address))}
    )
