"""NICs of instances: in networks from the start, added, changed and removed."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import GROUP, FakeCluster

from ganeti.base.errors import OpExecError, OpPrereqError
from ganeti.protocol.wconfd import WConfCalls

NAME = "web1.example.com"


@pytest.fixture
def networks(cluster: FakeCluster) -> FakeCluster:
    """The cluster with net1 on br0 (addresses .4 to .14 are free) and far, not connected."""
    cluster.execute(
        "OP_NETWORK_ADD", network_name="net1", network="192.0.2.0/28", mac_prefix="aa:bb:00"
    )
    cluster.execute("OP_NETWORK_ADD", network_name="far", network="198.51.100.0/28")
    cluster.execute(
        "OP_NETWORK_CONNECT",
        network_name="net1",
        group_name="default",
        network_mode="bridged",
        network_link="br0",
    )
    return cluster


def create(cluster: FakeCluster, *nics: dict[str, str], **params: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "instance_name": NAME,
        "mode": "create",
        "pnode": "node2",
        "disk_template": "diskless",
        "disks": [],
        "nics": list(nics),
        "no_install": True,
        "start": False,
        "name_check": False,
        "ip_check": False,
        "hypervisor": "fake",
    }
    cluster.execute("OP_INSTANCE_CREATE", **{**given, **params})
    return cluster.config.instance(params.get("instance_name", NAME))


def modify(cluster: FakeCluster, *changes: list[Any], **params: Any) -> Any:
    return cluster.execute(
        "OP_INSTANCE_SET_PARAMS", instance_name=NAME, nics=list(changes), **params
    )


def nics(cluster: FakeCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.config.instance(NAME)["nics"]
    return found


def network_uuid(cluster: FakeCluster, name: str = "net1") -> str:
    (found,) = (n["uuid"] for n in cluster.config.networks.values() if n["name"] == name)
    return str(found)


def test_the_network_that_a_nic_stays_in_is_locked_while_its_address_is_drawn(
    networks: FakeCluster,
) -> None:
    create(networks, {"network": "net1"})
    modify(networks, ["modify", 0, {"ip": "pool"}])
    assert nics(networks)[0]["ip"] == "192.0.2.4"
    lock = (f"network/{network_uuid(networks)}", "shared")
    assert lock in networks.config.lock_history[-1]
    networks.execute("OP_INSTANCE_SET_PARAMS", instance_name=NAME, beparams={"vcpus": 2})
    assert lock not in networks.config.lock_history[-1]


def test_a_new_instance_gets_addresses_of_the_network(networks: FakeCluster) -> None:
    made = create(networks, {"network": "net1", "ip": "pool"}, {"network": "net1", "ip": "pool"})
    assert [nic["ip"] for nic in made["nics"]] == ["192.0.2.4", "192.0.2.5"]
    assert made["nics"][0]["mac"].startswith("aa:bb:00:")
    assert made["nics"][0]["nicparams"] == {"mode": "bridged", "link": "br0", "vlan": ""}
    uuid = network_uuid(networks)
    assert {nic["network"] for nic in made["nics"]} == {uuid}
    assert (f"network/{uuid}", "shared") in networks.config.lock_history[-1]


def test_an_address_that_is_given_is_not_drawn_for_another_interface(networks: FakeCluster) -> None:
    drawn, given = {"network": "net1", "ip": "pool"}, {"network": "net1", "ip": "192.0.2.4"}
    made = create(networks, drawn, given)
    assert [nic["ip"] for nic in made["nics"]] == ["192.0.2.5", "192.0.2.4"]
    modify(networks, ["add", -1, drawn], ["add", -1, {**given, "ip": "192.0.2.6"}])
    assert [nic["ip"] for nic in nics(networks)[2:]] == ["192.0.2.7", "192.0.2.6"]


def test_a_network_without_a_free_address_is_named(networks: FakeCluster) -> None:
    networks.execute("OP_NETWORK_ADD", network_name="full", network="203.0.113.0/30")
    link = {"network_mode": "bridged", "network_link": "br1"}
    networks.execute("OP_NETWORK_CONNECT", network_name="full", group_name="default", **link)
    drawn = {"network": "full", "ip": "pool"}
    with pytest.raises(OpPrereqError, match="nic/2: network full has no free address") as caught:
        create(networks, drawn, drawn, drawn)
    assert caught.value.ecode == "wrong_state"


def test_no_network_needs_no_lock_of_one(networks: FakeCluster) -> None:
    create(networks, {"link": "br1"})
    assert not [name for name, _ in networks.config.lock_history[-1] if "network" in name]


@pytest.mark.parametrize(
    ("nic", "text"),
    [
        ({"network": "far"}, "is not connected to node group"),
        ({"network": "net1", "ip": "192.0.2.1"}, "nic/0: .* externally reserved"),
        ({"network": "net1", "ip": "192.0.3.1"}, "does not lie in"),
        ({"ip": "192.0.2.9"}, "lies in network 'net1'"),
        ({"ip": "pool"}, "needs a network"),
    ],
)
def test_addresses_that_cannot_be(networks: FakeCluster, nic: dict[str, str], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        create(networks, nic)
    assert not networks.config.instances
    assert not networks.config.ips


def test_an_ipv6_only_instance_can_be_in_a_network(networks: FakeCluster) -> None:
    networks.execute("OP_NETWORK_SET_PARAMS", network_name="net1", network6="2001:db8::/64")
    made = create(networks, {"network": "net1", "ip": "2001:db8::9"})
    assert made["nics"][0]["ip"] == "2001:db8::9"
    with pytest.raises(OpPrereqError, match="does not lie in network 'net1'"):
        modify(networks, ["modify", 0, {"ip": "2001:db9::9"}])
    again = {"network": "net1", "ip": "2001:db8::9"}
    with pytest.raises(OpPrereqError, match="already in use in network net1"):
        create(networks, again, instance_name="web2.example.com")


def test_ipv6_addresses_come_from_the_pool_and_go_back(networks: FakeCluster) -> None:
    networks.execute(
        "OP_NETWORK_SET_PARAMS",
        network_name="net1",
        network6="2001:db8::/64",
        gateway6="2001:db8::1",
        add_reserved_ips=["2001:db8::3-2001:db8::f"],
    )
    asked = {"network": "net1", "ip": "pool6"}
    assert create(networks, asked)["nics"][0]["ip"] == "2001:db8::2"
    second = create(networks, asked, instance_name="web2.example.com")
    assert second["nics"][0]["ip"] == "2001:db8::10"
    with pytest.raises(OpPrereqError, match="address 2001:db8::2 is in use by an instance"):
        networks.execute(
            "OP_NETWORK_SET_PARAMS", network_name="net1", add_reserved_ips=["2001:db8::2"]
        )
    modify(networks, ["modify", 0, {"ip": "pool"}])
    assert nics(networks)[0]["ip"] == "192.0.2.4"
    third = create(networks, asked, instance_name="web3.example.com")
    assert third["nics"][0]["ip"] == "2001:db8::2"
    with pytest.raises(OpPrereqError, match="2001:db8::5 is externally reserved"):
        modify(networks, ["modify", 0, {"ip": "2001:db8::5"}])
    taken = {"ip": "2001:db8::5"}
    modify(networks, ["modify", 0, taken], conflicts_check=False)
    assert nics(networks)[0]["ip"] == taken["ip"]


def test_an_address_is_given_once(networks: FakeCluster) -> None:
    create(networks, {"network": "net1", "ip": "192.0.2.9"})
    with pytest.raises(OpPrereqError, match="already in use") as caught:
        create(networks, {"network": "net1", "ip": "192.0.2.9"}, instance_name="web2.example.com")
    assert caught.value.ecode == "resource_not_unique"


def test_reserved_addresses_can_be_insisted_on(networks: FakeCluster) -> None:
    nic = {"network": "net1", "ip": "192.0.2.1"}
    assert create(networks, nic, conflicts_check=False)["nics"][0]["ip"] == "192.0.2.1"


@pytest.mark.shows(
    "2.0/background/nics",
    "2.0/variable-nics/any-number",
    "2.0/add-devices/add",
    "2.0/modify-devices/number",
)
def test_nics_come_change_and_go(networks: FakeCluster) -> None:
    create(networks, {})
    result = modify(networks, ["add", -1, {"network": "net1", "ip": "pool", "name": "inner"}])
    assert [nic.get("ip") for nic in nics(networks)] == [None, "192.0.2.4"]
    mac = nics(networks)[1]["mac"]
    assert result == [("nic/1", f"add:mac={mac},ip=192.0.2.4,mode=bridged,link=br0,network=net1")]
    result = modify(networks, ["modify", "inner", {"ip": "192.0.2.9"}])
    assert result == [("nic.ip/1", "192.0.2.9")]
    assert (nics(networks)[1]["ip"], nics(networks)[1]["mac"]) == ("192.0.2.9", mac)
    assert modify(networks, ["remove", 0, {}]) == [("nic/0", "remove")]
    assert [nic["name"] for nic in nics(networks)] == ["inner"]


def test_an_address_passes_from_one_nic_to_the_next(networks: FakeCluster) -> None:
    create(networks, {"network": "net1", "ip": "192.0.2.9"})
    modify(networks, ["remove", 0, {}], ["add", -1, {"network": "net1", "ip": "192.0.2.9"}])
    assert [nic["ip"] for nic in nics(networks)] == ["192.0.2.9"]


@pytest.mark.shows("2.1/routed/routed-ip")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (["remove", 3, {}], "nic 3 not found"),
        (["modify", 0, {"mode": "routed"}], "nic/0: mode routed needs an IP"),
        (["modify", 0, {"mac": "x"}], "nic/0: 'x' is not a MAC address"),
        (["attach", 0, {"name": "x"}], "for disks only"),
        (["add", -1, {"network": "nix"}], "network 'nix' is not known"),
        (["add", -1, {"mac": "aa:00:00:00:00:01"}], "nic/1: MAC address aa:00:00:00:00:01"),
    ],
)
def test_changes_that_cannot_be(networks: FakeCluster, change: list[Any], text: str) -> None:
    create(networks, {"mac": "aa:00:00:00:00:01"})
    before = nics(networks)
    with pytest.raises(OpPrereqError, match=text):
        modify(networks, change)
    assert nics(networks) == before


def test_an_address_has_one_place_on_a_link(networks: FakeCluster) -> None:
    same = {"ip": "203.0.113.1", "link": "br5"}
    with pytest.raises(OpPrereqError, match=r"nic/1: .* nic/0 of the same instance"):
        create(networks, same, same)
    create(networks, same)
    with pytest.raises(OpPrereqError, match=r"203.0.113.1 is that of instance 'web1"):
        create(networks, same, instance_name="web2.example.com")
    create(networks, same | {"link": "br6"}, instance_name="web2.example.com")
    modify(networks, ["modify", 0, {"name": "its own stays"}])


@pytest.mark.shows("2.0/net/bridge-exists")
def test_bridges_are_asked_for_when_they_are_new(networks: FakeCluster) -> None:
    create(networks, {})
    networks.rpc.calls.clear()
    modify(networks, ["modify", 0, {"name": "a"}])
    assert not networks.rpc.called("bridges_exist")
    modify(networks, ["add", -1, {"link": "br9"}])
    assert networks.rpc.called("bridges_exist") == [("node2", [["br9"]])]


# The running guest.


def run(cluster: FakeCluster) -> None:
    cluster.rpc.node("node2").running[NAME] = 0


def plugged(cluster: FakeCluster) -> list[tuple[str, object, int]]:
    """Return action, address and index of each hotplug of a NIC."""
    return [
        (args[1], args[3].get("ip"), args[5])
        for _, args in cluster.rpc.called("hotplug_device")
        if args[2] == "nic"
    ]


def test_the_running_guest_follows(networks: FakeCluster) -> None:
    create(networks, {"ip": "203.0.113.1"}, {"ip": "203.0.113.2"})
    run(networks)
    modify(
        networks,
        ["remove", 0, {}],
        ["modify", 0, {"ip": "203.0.113.3"}],
        ["add", -1, {"network": "net1", "ip": "pool"}],
        hotplug=True,
    )
    assert plugged(networks) == [
        ("hotremove", "203.0.113.1", 0),
        ("hotmod", "203.0.113.3", 0),
        ("hotadd", "192.0.2.4", 1),
    ]
    last = networks.rpc.called("hotplug_device")[-1][1][3]
    assert last["netinfo"]["name"] == "net1"


def test_a_new_name_is_nothing_for_the_guest(networks: FakeCluster) -> None:
    create(networks, {})
    run(networks)
    modify(networks, ["modify", 0, {"name": "a"}], hotplug=True)
    assert plugged(networks) == []


def test_without_hotplug_the_guest_stays_as_it_is(networks: FakeCluster) -> None:
    create(networks, {})
    run(networks)
    modify(networks, ["add", -1, {}])
    assert plugged(networks) == []


def test_a_guest_that_keeps_its_nics_undoes_the_change(networks: FakeCluster) -> None:
    create(networks, {"ip": "203.0.113.1"})
    run(networks)
    before = nics(networks)
    networks.rpc.failure = lambda _node, call, args: (
        "no room" if call == "hotplug_device" and args[1] == "hotadd" and args[5] == 1 else None
    )
    with pytest.raises(OpExecError, match=r"give NIC 1 to the running instance.*no room"):
        modify(
            networks,
            ["modify", 0, {"ip": "203.0.113.7"}],
            ["add", -1, {"ip": "203.0.113.8"}],
            hotplug=True,
        )
    assert nics(networks) == before
    assert plugged(networks) == [
        ("hotmod", "203.0.113.7", 0),
        ("hotadd", "203.0.113.8", 1),
        ("hotmod", "203.0.113.1", 0),
    ]


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        (["add", -1, {"ip": "203.0.113.8"}], ["hotadd", "hotremove"]),
        (["modify", 0, {"ip": "203.0.113.7"}], ["hotmod", "hotmod"]),
        (["remove", 0, {}], ["hotremove", "hotadd"]),
    ],
)
def test_a_hotplug_without_an_answer_is_undone_too(
    networks: FakeCluster, change: list[Any], calls: list[str]
) -> None:
    create(networks, {"ip": "203.0.113.1"})
    run(networks)
    before, answers = nics(networks), ["gone"]
    networks.rpc.lost_answer = lambda _node, call, _args: (
        answers.pop() if call == "hotplug_device" and answers else None
    )
    with pytest.raises(OpExecError, match="it may have done its work"):
        modify(networks, change, hotplug=True)
    assert nics(networks) == before
    assert [action for action, _ip, _index in plugged(networks)] == calls


def test_a_change_whose_answer_is_lost_is_undone(networks: FakeCluster) -> None:
    create(networks, {"network": "net1", "ip": "pool"})
    before, answers = nics(networks), ["gone"]

    def lose(*args: Any) -> Any:
        answer = networks.config.serve(WConfCalls.calls["modifyObjects"], list(args))
        if answers:
            raise OpExecError(answers.pop())
        return answer

    networks.config.stand_ins["modify_objects"] = lose
    with pytest.raises(OpExecError, match="gone"):
        modify(networks, ["modify", 0, {"ip": "none"}])
    assert nics(networks) == before


def test_where_hotplug_fails_the_change_waits_for_the_next_start(networks: FakeCluster) -> None:
    create(networks, {})
    run(networks)
    networks.rpc.fail("hotplug_device")
    modify(networks, ["add", -1, {}], hotplug_if_possible=True)
    assert len(nics(networks)) == 2
    with pytest.raises(OpExecError, match="take NIC 0 from the running instance"):
        modify(networks, ["remove", 0, {}], hotplug=True)
    modify(networks, ["remove", 0, {}], hotplug_if_possible=True)
    assert len(nics(networks)) == 1
    assert networks.said("the instance has NIC 0 until it is restarted")


def test_groups_know_their_networks(networks: FakeCluster) -> None:
    assert list(networks.config.nodegroups[GROUP]["networks"]) == [network_uuid(networks)]
