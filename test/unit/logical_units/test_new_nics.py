"""Network interfaces as asked for: plain decisions."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import make_cluster

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.instance.hooks_env import instance_env
from ganeti.logical_units.instance.new_nics import plan_nic
from ganeti.objects.cluster import Cluster
from ganeti.objects.disk import Disk
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.nic_modes import MAC_GENERATE
from ganeti.objects.node import Node

CLUSTER = Cluster.from_wire(make_cluster())


def plan(resolved: str | None = None, **settings: str | None) -> Any:
    return plan_nic(CLUSTER, "nic/0", settings, resolved)


def test_nothing_given_follows_the_cluster() -> None:
    nic = plan()
    assert (nic.mac, nic.ip, nic.nicparams, nic.name) == (MAC_GENERATE, None, {}, None)


def test_the_old_word_for_link() -> None:
    assert plan(bridge="br7").nicparams == {"link": "br7"}
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
    env = instance_env(CLUSTER, instance, [disk], nodes, {"net": network})
    assert env["INSTANCE_SECONDARIES"] == "node2.example.com"
    assert env["INSTANCE_NIC0_NETWORK_NAME"] == "net1"
    assert env["INSTANCE_NIC0_NETWORK_GATEWAY"] == "192.0.2.1"
    assert "INSTANCE_NIC0_NETWORK_SUBNET6" not in env
    assert (env["INSTANCE_DISK0_PNODE"], env["INSTANCE_DISK0_SMINOR"]) == ("a", 1)
    assert (env["INSTANCE_DISK0_DATA_ID"], env["INSTANCE_DISK0_META_ID"]) == ("lv", "meta")
    assert "secret" not in str(env)
