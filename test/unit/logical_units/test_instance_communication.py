"""The interface of an instance that leads to its node, and what the guest may be told there."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import OpPrereqError
from ganeti.objects.nic import NODE_ADDRESS

NAME = "web1.example.com"
OTHER = "db1.example.com"


@pytest.fixture
def talking(cluster: FakeCluster) -> FakeCluster:
    """A cluster with a network for communication."""
    network = {"network": "169.254.0.0/16", "mac_prefix": "52:54:00"}
    cluster.execute(
        "OP_NETWORK_ADD", network_name="talk", add_reserved_ips=[NODE_ADDRESS], **network
    )
    cluster.execute(
        "OP_NETWORK_CONNECT",
        group_name="default",
        network_name="talk",
        network_mode="routed",
        network_link="communication_rt",
    )
    cluster.config.cluster["instance_communication_network"] = "talk"
    return cluster


def modify(cluster: FakeCluster, **params: Any) -> Any:
    return cluster.execute("OP_INSTANCE_SET_PARAMS", instance_name="web1", **params)


def nics(cluster: FakeCluster, name: str = NAME) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.config.instance(name)["nics"]
    return found


def guests(cluster: FakeCluster, node: str = "node1") -> dict[str, Any]:
    return cluster.rpc.node(node).guests


def test_the_interface_is_the_last_one(talking: FakeCluster) -> None:
    talking.add_instance(instance_communication=True)
    talking.add_instance(OTHER, instance_communication=True, nics=[])
    usual, way = nics(talking)
    assert "name" not in usual
    assert way["name"] == f"ganeti:communication:{NAME}"
    assert way["mac"].startswith("52:54:00:")
    assert way["ip"].startswith("169.254.")
    assert way["nicparams"] == {"mode": "routed", "link": "communication_rt", "vlan": ""}
    [other] = nics(talking, OTHER)
    assert other["ip"] != way["ip"]


def test_without_a_network_it_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="modify --instance-communication-network=NAME"):
        cluster.add_instance(instance_communication=True)
    cluster.add_instance()
    with pytest.raises(OpPrereqError, match="modify --instance-communication-network=NAME"):
        modify(cluster, instance_communication=True)


def test_it_comes_and_goes_with_other_changes(talking: FakeCluster) -> None:
    talking.add_instance()
    assert modify(talking, instance_communication=False) == []
    result = modify(
        talking, instance_communication=True, nics=[["add", -1, {"name": "lan"}]], hotplug=True
    )
    assert [name for name, _change in result] == ["nic/1", "nic/2"]
    assert [nic.get("name") for nic in nics(talking)] == [
        *(None, "lan"),
        f"ganeti:communication:{NAME}",
    ]
    assert modify(talking, instance_communication=True) == []
    assert guests(talking)[NAME]["address"] == nics(talking)[2]["ip"]
    modify(talking, instance_communication=False, hotplug=True)
    assert [nic.get("name") for nic in nics(talking)] == [None, "lan"]


def test_the_node_learns_all_before_the_guest_asks(talking: FakeCluster) -> None:
    talking.config.cluster["osparams"] = {"debian": {"colour": "green", "size": "1"}}
    talking.config.cluster["osparams_private_cluster"] = {"debian": {"key": "hidden"}}
    talking.add_instance(
        instance_communication=True,
        nics=[{"ip": "192.0.2.7"}],
        osparams={"size": "2"},
        osparams_private={"own": "hidden too"},
        osparams_secret={"once": "never stored"},
        tags=["a"],
        start=False,
    )
    assert guests(talking) == {}
    talking.rpc.calls.clear()
    talking.execute("OP_INSTANCE_STARTUP", instance_name="web1", force=False)
    names = talking.rpc.names()
    assert names.index("instance_metadata_modify") < names.index("instance_start")
    found = guests(talking)[NAME]
    assert found["parameters"] == {
        "colour": ["green", "public"],
        "size": ["2", "public"],
        "key": ["hidden", "private"],
        "own": ["hidden too", "private"],
    }
    assert (found["os"], found["tags"], found["disks"]) == ("debian", ["a"], [1024])
    assert found["nics"][0]["ip"] == "192.0.2.7"
    assert found["nics"][1]["network"] == "169.254.0.0/16"
    assert found["address"] == found["nics"][1]["ip"]


def test_changes_reach_a_guest_that_runs(talking: FakeCluster) -> None:
    talking.add_instance(instance_communication=True)
    modify(talking, beparams={"maxmem": 777})
    assert guests(talking)[NAME]["memory"] == 777
    talking.execute("OP_INSTANCE_SHUTDOWN", instance_name="web1")
    modify(talking, beparams={"maxmem": 888})
    assert guests(talking)[NAME]["memory"] == 777, "it is told at the next start"


def test_a_change_that_was_made_is_no_failure_as_the_guest_cannot_be_told(
    talking: FakeCluster,
) -> None:
    talking.add_instance(instance_communication=True)
    memory_mib = 640

    def failure(_node: str, call: str, _args: Any) -> str | None:
        is_made = talking.config.instance(NAME)["beparams"].get("maxmem") == memory_mib
        return "connection refused" if call == "instance_info" and is_made else None

    talking.rpc.failure = failure
    modify(talking, beparams={"maxmem": memory_mib, "minmem": memory_mib})
    assert talking.said("connection refused; the changes are made, and a running guest")


def test_the_target_of_a_migration_knows_before_the_guest_arrives(talking: FakeCluster) -> None:
    talking.add_instance(instance_communication=True)
    talking.rpc.calls.clear()
    talking.execute("OP_INSTANCE_MIGRATE", instance_name="web1", target_node="node2")
    names = talking.rpc.names()
    assert names.index("instance_metadata_modify") < names.index("accept_instance")
    assert NAME in guests(talking, "node2")


def test_a_guest_starts_although_nobody_can_tell_it_anything(talking: FakeCluster) -> None:
    talking.rpc.fail("instance_metadata_modify")
    talking.add_instance(instance_communication=True)
    assert NAME in talking.rpc.node("node1").running
    talking.execute("OP_INSTANCE_REBOOT", instance_name="web1", reboot_type="full")
    assert talking.said("cannot tell node 'node1.example.com' the metadata of instance")


def test_the_name_of_the_interface_follows_that_of_the_instance(talking: FakeCluster) -> None:
    talking.add_instance(instance_communication=True, start=False)
    new = "web9.example.com"
    talking.execute(
        "OP_INSTANCE_RENAME", instance_name="web1", new_name=new, name_check=False, ip_check=False
    )
    assert [nic.get("name") for nic in nics(talking, new)] == [None, f"ganeti:communication:{new}"]


def test_instances_without_it_cost_nothing(talking: FakeCluster) -> None:
    talking.add_instance()
    talking.execute("OP_INSTANCE_REBOOT", instance_name="web1", reboot_type="full")
    assert not talking.rpc.called("instance_metadata_modify")


def test_the_daemons_stop_with_the_network(talking: FakeCluster) -> None:
    talking.context.submit_jobs = lambda jobs: list(range(len(jobs)))
    talking.execute("OP_CLUSTER_SET_PARAMS", instance_communication_network="")
    asked = talking.rpc.called("node_ensure_daemon")
    assert [node for node, _args in asked] == ["node1", "node2", "node3"]
    assert all(args == ["ganeti-metad", False] for _node, args in asked)
