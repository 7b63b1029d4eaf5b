"""Network interfaces as asked for: plain decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.fake_cluster import make_cluster, make_group
from msgspec.structs import asdict
from msgspec.structs import replace as replace_struct

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.instance.changes.nics import Connections, changed_nic, plan_nic, plan_nics
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import NO_IPV4, Cluster, Disk, Instance, Network, Node, NodeGroup
from ganeti.objects.nic import MAC_GENERATE, NIC

CLUSTER = Cluster.from_wire(make_cluster())
NETWORK = Network.from_wire(
    {
        "name": "net1",
        "network": "192.0.2.0/24",
        "network6": "2001:db8::/64",
        "uuid": "n1",
        "serial_no": 1,
    }
)
FAR = Network.from_wire({"name": "far", "network": "198.51.100.0/24", "uuid": "n2", "serial_no": 1})
CONNECTION = {"mode": "bridged", "link": "br7", "vlan": ".7"}
GROUP = NodeGroup.from_wire(make_group(networks={"n1": CONNECTION}))
AROUND = Connections(CLUSTER, GROUP, {"n1": NETWORK, "n2": FAR}, {"net1": "n1", "far": "n2"})


def plan(resolved: str | None = None, **settings: str | None) -> Any:
    return plan_nic(replace(AROUND, resolved_ip=resolved), "nic/0", settings, "u")


def change(nic: NIC, **settings: str | None) -> NIC:
    return changed_nic(AROUND, "nic/0", nic, settings)


@pytest.mark.shows("2.0/net/mac", "2.0/net/bridge")
def test_nothing_given_follows_the_cluster() -> None:
    nic = plan()
    assert (nic.mac, nic.ip, nic.nicparams, nic.name) == (MAC_GENERATE, None, {}, None)


@pytest.mark.shows("2.0/net/bridge", "2.0/net/bridge-auto")
def test_the_old_word_for_link() -> None:
    assert plan(bridge="br7").nicparams == {"link": "br7"}
    assert plan(bridge="auto").nicparams == {}
    own = NIC(mac="aa:00:00:11:22:33", uuid="u", nicparams={"link": "br7"})
    assert change(own, bridge="auto").nicparams == {}
    with pytest.raises(OpPrereqError, match="cannot be given together"):
        plan(bridge="a", link="b")
    with pytest.raises(OpPrereqError, match="only be given in mode bridged"):
        plan(bridge="a", mode="routed", ip="192.0.2.9")


def test_addresses() -> None:
    assert plan(ip="none").ip is None
    assert plan(ip="2001:DB8::1").ip == "2001:db8::1"
    assert plan("192.0.2.7", ip="auto").ip == "192.0.2.7"
    with pytest.raises(OpPrereqError, match="needs the name check"):
        plan(ip="auto")
    with pytest.raises(OpPrereqError, match="needs a network"):
        plan(ip="pool")


def test_the_pool_of_a_network_with_one_kind_of_addresses_is_of_that_kind() -> None:
    assert plan(ip="pool", network="net1").ip == "pool"
    assert plan(ip="Pool6", network="net1").ip == "pool6"
    only = Network.from_wire({**NETWORK.to_wire(), "network": NO_IPV4})
    around = replace(AROUND, networks={"n1": only})
    nic = plan_nic(around, "nic/0", {"ip": "pool", "network": "net1"}, "u")
    assert nic.ip == "pool6"
    with pytest.raises(OpPrereqError, match=r"lie in network 'net1' \(2001:db8::/64\)"):
        changed_nic(around, "nic/0", nic, {"ip": "0.0.0.1"})
    group = NodeGroup.from_wire(make_group(networks={"n2": CONNECTION}))
    with pytest.raises(OpPrereqError, match="network 'far' has no IPv6 addresses"):
        plan_nic(replace(AROUND, group=group), "nic/0", {"ip": "pool6", "network": "far"}, "u")
    with pytest.raises(OpPrereqError, match="needs a network"):
        plan(ip="pool6")


@pytest.mark.shows("2.1/diskparams/mode-link", "2.1/routed/mode")
def test_modes_and_vlans() -> None:
    given = {"mode": "openvswitch", "link": "s1", "vlan": ".5"}
    assert plan(**given).nicparams == given
    assert plan(mode="default", link="default").nicparams == {}
    with pytest.raises(OpPrereqError, match="mode 'pool' needs a network"):
        plan(mode="pool")
    with pytest.raises(OpPrereqError, match="VLAN cannot be used"):
        plan(mode="routed", ip="192.0.2.9", vlan="5")


@pytest.mark.parametrize("mac", ["01:00:00:00:00:00", "aa:00:00:00:00", "zz:00:00:00:00:00"])
def test_addresses_of_no_card(mac: str) -> None:
    with pytest.raises(OpPrereqError, match="is not a MAC address"):
        plan(mac=mac)


def test_names() -> None:
    assert plan(name="inner").name == "inner"
    assert plan(name="none").name is None


def test_too_many() -> None:
    with pytest.raises(OpPrereqError, match="at most 8"):
        plan_nics(AROUND, [{}] * 9, lambda: "u")


def test_a_network_gives_its_parameters() -> None:
    nic = plan(network="net1", ip="pool")
    assert (nic.network, nic.ip, nic.nicparams) == ("n1", "pool", CONNECTION)
    assert plan(network="net1", mode="pool").ip is None
    assert plan(network="net1", ip="2001:db8::5").ip == "2001:db8::5"
    assert plan(network="none").network is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"network": "far"}, "network 'far' is not connected to node group 'default'"),
        ({"network": "net1", "link": "br0"}, "link cannot be given: in network 'net1'"),
        ({"network": "net1", "mode": "bridged"}, "mode cannot be given"),
        ({"network": "net1", "ip": "192.0.3.1"}, "does not lie in network 'net1'"),
        ({"network": "net1", "ip": "2001:db9::1"}, "does not lie in network 'net1'"),
        ({"link": "br7", "ip": "192.0.2.8"}, "lies in network 'net1'"),
        ({"ip": "fe80::1%br0"}, "nic/0: 'fe80::1%br0' names an interface"),
        ({"mode": "nix"}, "unknown mode 'nix'"),
        ({"vlan": "5000"}, "between 1 and 4094"),
        ({"link": "a\n  evil: yes"}, "nic/0: link: .* is not a name without blanks"),
        ({"link": "a b"}, "link: 'a b' is not a name without blanks"),
        ({"link": "a\x1b[31m"}, "is not a name without blanks"),
        ({"bridge": "a\tb"}, "is not a name without blanks"),
        ({"mode": "bridged", "link": ""}, "needs a link"),
        ({"name": "x" * 129}, "longer than 128 characters"),
        ({"name": "a\nb"}, "cannot be printed"),
    ],
)
def test_interfaces_that_cannot_be(settings: dict[str, str], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        plan(**settings)


def test_conflicts_can_be_accepted() -> None:
    unchecked = replace(AROUND, conflicts_check=False)
    given = {"link": "br7", "ip": "192.0.2.8"}
    assert plan_nic(unchecked, "nic/0", given, "u").ip == "192.0.2.8"


def test_only_what_is_given_changes() -> None:
    nic = NIC(mac="aa:00:00:00:00:01", uuid="u", ip="203.0.113.1", nicparams={"link": "br3"})
    assert change(nic, name="x") == NIC(**{**asdict(nic), "name": "x"})
    assert change(nic, mode="routed", link="default").nicparams == {"mode": "routed"}
    assert change(nic, ip="none").ip is None
    assert change(nic, mac="generate").mac == MAC_GENERATE
    with pytest.raises(OpPrereqError, match="mode routed needs an IP"):
        change(nic, mode="routed", ip="none")


def test_null_removes_what_can_be_removed() -> None:
    """As programs that use the remote API say it; commands say none."""
    nic = NIC(mac="aa:00:00:00:00:01", uuid="u", ip="192.0.2.9", network="n1", name="a")
    assert change(nic, ip=None) == NIC(mac=nic.mac, uuid="u", network="n1", name="a")
    assert change(nic, ip=None, network=None, name=None) == NIC(mac=nic.mac, uuid="u")
    assert change(nic, mac=None, link=None, name="b") == replace_struct(nic, name="b")


def test_an_address_that_its_network_does_not_have_any_more_may_stay() -> None:
    nic = NIC(mac="aa:00:00:00:00:01", uuid="u", network="n1", ip="2001:db9::1")
    assert change(nic, name="x").ip == "2001:db9::1"
    with pytest.raises(OpPrereqError, match="does not lie in network 'net1'"):
        change(nic, ip="2001:db9::2")


def test_a_network_is_joined_and_left() -> None:
    nic = NIC(mac="aa:00:00:00:00:01", uuid="u", ip="203.0.113.1", nicparams={"link": "br3"})
    with pytest.raises(OpPrereqError, match="give ip=pool or an address of it"):
        change(nic, network="net1")
    joined = change(nic, network="net1", ip="192.0.2.9")
    assert (joined.network, joined.nicparams) == ("n1", CONNECTION)
    assert change(joined, ip="192.0.2.10").nicparams == CONNECTION
    with pytest.raises(OpPrereqError, match="link cannot be given"):
        change(joined, link="br0")
    left = change(joined, network="none", link="br0", vlan="")
    assert (left.network, left.ip) == (None, "192.0.2.9")
    assert left.nicparams == {"mode": "bridged", "link": "br0", "vlan": ""}


def test_hooks_are_told_of_networks_and_mirrors() -> None:
    from fakes.fake_cluster import make_node

    network = Network.from_wire(
        {
            "name": "net1",
            "network": "192.0.2.0/24",
            "gateway": "192.0.2.1",
            "uuid": "net",
            "serial_no": 1,
        }
    )
    instance = Instance.from_wire(
        {
            "name": "i",
            "uuid": "i",
            "primary_node": "a",
            "os": "",
            "hypervisor": "fake",
            "admin_state": "up",
            "disks_active": True,
            "serial_no": 1,
            "nics": [{"mac": "aa:00:00:00:00:01", "uuid": "n", "network": "net"}],
        }
    )
    child = {
        "logical_id": ["vg", "lv"],
        "dev_type": "plain",
        "size": 1,
        "uuid": "c",
        "serial_no": 1,
    }
    disk = Disk.from_wire(
        {
            "logical_id": ["a", "b", 11000, 0, 1, "secret"],
            "dev_type": "drbd",
            "size": 1,
            "uuid": "d",
            "serial_no": 1,
            "children": [child, {**child, "logical_id": ["vg", "meta"]}],
        }
    )
    nodes = [Node.from_wire(make_node(n)) for n in (1, 2)]
    env = InstanceView(CLUSTER, instance, [disk], nodes, [], {"net": network}).env()
    assert env["INSTANCE_SECONDARIES"] == "node2.example.com"
    assert env["INSTANCE_NIC0_NETWORK_NAME"] == "net1"
    assert env["INSTANCE_NIC0_NETWORK_GATEWAY"] == "192.0.2.1"
    assert "INSTANCE_NIC0_NETWORK_SUBNET6" not in env
    assert (env["INSTANCE_DISK0_PNODE"], env["INSTANCE_DISK0_SMINOR"]) == ("a", 1)
    assert (env["INSTANCE_DISK0_DATA_ID"], env["INSTANCE_DISK0_META_ID"]) == ("lv", "meta")
    assert "secret" not in str(env)
