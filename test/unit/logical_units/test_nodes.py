"""Adding, removing and changing nodes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, make_group, make_node, uuid_of
from fakes.fake_nodes import FakeNode

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.logical_units.node.candidates import has_room
from ganeti.logical_units.node.set_params import plan_flags
from ganeti.objects.model import Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.store import ssconf
from ganeti.system.filelock import FileLock


def add(cluster: FakeCluster, name: str = "node4", **params: Any) -> None:
    cluster.execute("OP_NODE_ADD", node_name=name, **params)


def by_name(cluster: FakeCluster, name: str) -> dict[str, Any]:
    (found,) = (n for n in cluster.config.nodes.values() if n["name"] == name)
    return found


@pytest.mark.shows("backend/roles/pool-kept", "backend/roles/vm-capable")
def test_a_node_is_added_as_candidate_while_there_is_room(cluster: FakeCluster) -> None:
    add(cluster)
    node = by_name(cluster, "node4.example.com")
    assert node["primary_ip"] == "192.0.2.4"
    assert (node["master_candidate"], node["vm_capable"]) == (True, True)
    assert cluster.config.cluster["candidate_certs"][node["uuid"]] == "DIGEST:node4.example.com"
    assert " - INFO: Node will be a master candidate" in cluster.messages


@pytest.mark.shows("2.0/candidate/automatic")
def test_a_node_is_an_ordinary_one_when_the_pool_is_full(cluster: FakeCluster) -> None:
    cluster.config.cluster["candidate_pool_size"] = 3
    add(cluster)
    node = by_name(cluster, "node4.example.com")
    assert node["master_candidate"] is False
    assert node["uuid"] not in cluster.config.cluster["candidate_certs"]
    assert not cluster.said("master candidate")


@pytest.mark.shows("backend/certificates/new-nodes", "2.1/redist/node-add")
def test_files_of_the_cluster_go_to_the_new_node(cluster: FakeCluster) -> None:
    path = cluster.context.paths.known_hosts
    with open(path, "w") as file:
        file.write("hosts")
    add(cluster)
    assert "/var/lib/ganeti/known_hosts" in cluster.rpc.node("node4").files


@pytest.mark.parametrize(
    ("params", "text", "ecode"),
    [
        ({"name": "nowhere"}, "'nowhere' cannot be resolved", "resolver_error"),
        ({"name": "node2"}, "already in the configuration; use --readd", "already_exists"),
        ({"readd": True}, "add it without --readd", "unknown_entity"),
        (
            {"primary_ip": "192.0.2.2"},
            "already used by node 'node2.example.com'",
            "resource_not_unique",
        ),
        ({"primary_ip": "x"}, "is not an IP address", "wrong_input"),
        ({"secondary_ip": "198.51.100.4"}, "unlike the master node", "wrong_input"),
        ({"group": "nogroup"}, "'nogroup' is not known", "unknown_entity"),
        ({"ndparams": {"nix": 1}}, "nix", "wrong_input"),
        ({"ndparams": {"oob_program": "power"}}, "not an absolute path", "wrong_input"),
        ({"ndparams": {"exclusive_storage": True}}, "group or the cluster", "wrong_input"),
    ],
)
def test_what_cannot_be_added(
    cluster: FakeCluster, params: dict[str, Any], text: str, ecode: str
) -> None:
    with pytest.raises(OpPrereqError) as caught:
        add(cluster, **params)
    assert text in str(caught.value)
    assert caught.value.ecode == ecode
    assert len(cluster.config.nodes) == 3


def test_a_node_of_another_version_is_refused(cluster: FakeCluster) -> None:
    cluster.rpc.answers["version"] = 2160000
    with pytest.raises(OpPrereqError, match="2160000"):
        add(cluster)


def test_a_node_that_does_not_answer_is_refused(cluster: FakeCluster) -> None:
    cluster.rpc.fail("version", text="connection refused")
    with pytest.raises(OpPrereqError, match=r"node 'node4.example.com', call version: connection"):
        add(cluster)


def test_with_several_groups_one_must_be_named(cluster: FakeCluster) -> None:
    cluster.config.nodegroups["g2"] = make_group("other", "g2")
    with pytest.raises(OpPrereqError, match="2 node groups; say with -g"):
        add(cluster)
    add(cluster, group="other")
    assert by_name(cluster, "node4.example.com")["group"] == "g2"


@pytest.mark.parametrize("failing", ["createObject", "setCandidateCert"])
def test_a_failed_add_leaves_no_node(cluster: FakeCluster, failing: str) -> None:
    calls = {"n": 0}
    original = cluster.config.invoke

    def invoke(call: Any, args: Any) -> Any:
        if call.name == failing and not calls["n"]:
            calls["n"] += 1
            raise GenericError("disk full")
        return original(call, args)

    cluster.config.invoke = invoke  # type: ignore[method-assign]
    cluster.config.cluster["modify_etc_hosts"] = True
    with pytest.raises(GenericError, match="disk full"):
        add(cluster)
    assert len(cluster.config.nodes) == 3
    assert not cluster.rpc.called("etc_hosts_modify")


def test_a_node_that_cannot_be_entered_into_the_hosts_file_is_not_added(
    cluster: FakeCluster,
) -> None:
    cluster.config.cluster["modify_etc_hosts"] = True
    cluster.rpc.fail("etc_hosts_modify", text="No space left on device")
    with pytest.raises(OpExecError, match="No space left"):
        add(cluster)
    assert len(cluster.config.nodes) == 3


def test_a_known_node_is_taken_in_again(cluster: FakeCluster) -> None:
    cluster.config.node(2).update(offline=True, master_candidate=False)
    add(cluster, "node2", readd=True)
    node = cluster.config.node(2)
    assert (node["offline"], node["master_candidate"]) == (False, True)
    assert cluster.said("readding node node2.example.com")
    assert cluster.config.cluster["candidate_certs"][node["uuid"]]


def test_parameters_are_laid_over_those_of_a_node_that_is_taken_in_again(
    cluster: FakeCluster,
) -> None:
    cluster.config.node(2).update(ndparams={"ssh_port": 2222, "spindle_count": 4})
    cluster.config.node(2).update(hv_state_static={"kvm": {"mem_node": 512}})
    add(
        cluster,
        "node2",
        readd=True,
        ndparams={"ssh_port": "default", "oob_program": "/oob"},
        hv_state={"kvm": {"mem_total": 4096}},
        disk_state={"plain": {"vg": {"disk_total": 5}}},
    )
    node = cluster.config.node(2)
    assert node["ndparams"] == {"spindle_count": 4, "oob_program": "/oob"}
    assert node["hv_state_static"] == {"kvm": {"mem_node": 512, "mem_total": 4096}}
    assert node["disk_state_static"] == {"plain": {"vg": {"disk_total": 5}}}
    without = {"kvm": {"mem_node": "default", "mem_total": "default"}}
    add(cluster, "node2", readd=True, hv_state=without)
    assert not cluster.config.node(2).get("hv_state_static")


@pytest.mark.parametrize("rounds", [2, 99])
def test_a_node_that_has_booted_asks_first_whether_it_is_the_master(
    cluster: FakeCluster, rounds: int
) -> None:
    """Its daemons of a master end by themselves; those that stay are a second master."""
    cluster.config.node(2).update(offline=True, master_candidate=False)

    def facts(node: FakeNode, *_args: object) -> dict[str, object]:
        nonlocal rounds
        rounds -= node.name.startswith("node2")
        is_asking = node.name.startswith("node2") and rounds >= 0
        daemons = ["ganeti-wconfd"] if is_asking else []
        return {"master_name": "node1.example.com", "daemons": daemons}

    cluster.rpc.do_master_facts = facts  # type: ignore[attr-defined]
    if rounds == 2:
        cluster.execute("OP_NODE_SET_PARAMS", node_name="node2", offline=False)
        assert cluster.waits == [1.0, 1.0]
        assert not cluster.config.node(2)["offline"]
    else:
        with pytest.raises(OpPrereqError, match=r"node 'node2.* runs ganeti-wconfd, as if it were"):
            cluster.execute("OP_NODE_SET_PARAMS", node_name="node2", offline=False)
        assert cluster.config.node(2)["offline"]


def test_hooks_of_an_addition(cluster: FakeCluster) -> None:
    add(cluster)
    asked = [(node, args[1]) for node, args in cluster.rpc.called("hooks_runner")]
    assert ("node4", "pre") not in asked
    assert ("node4", "post") in asked


def remove(cluster: FakeCluster, name: str = "node3") -> None:
    cluster.execute("OP_NODE_REMOVE", node_name=name)


def test_a_removed_node_is_forgotten_and_told(cluster: FakeCluster) -> None:
    cluster.config.cluster["candidate_certs"][uuid_of("node3")] = "X"
    remove(cluster)
    assert uuid_of("node3") not in cluster.config.nodes
    assert cluster.rpc.node("node3").has_left


@pytest.mark.shows("backend/roles/promoted", "2.0/candidate/automatic")
def test_another_node_becomes_candidate_instead(cluster: FakeCluster) -> None:
    cluster.config.cluster["candidate_pool_size"] = 2
    cluster.config.node(2)["master_candidate"] = False
    remove(cluster)
    assert cluster.config.node(2)["master_candidate"]
    assert cluster.said("promoted nodes to master candidate role: node2.example.com")


@pytest.mark.parametrize("leave", ["remove", "offline"])
def test_a_dead_node_that_is_chosen_as_candidate_is_not_one(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    monkeypatch.setattr(random, "sample", lambda found, number: sorted(found)[:number])
    cluster.config.cluster.update(candidate_pool_size=2, modify_etc_hosts=True)
    cluster.config.nodes[uuid_of("node4")] = make_node(4, master_candidate=False)
    cluster.config.node(2)["master_candidate"] = False
    dead, alive = sorted(("node2", "node4"), key=uuid_of)
    cluster.rpc.node(dead).is_dead = True
    if leave == "remove":
        remove(cluster)
        assert cluster.rpc.called("etc_hosts_modify")
    else:
        modify(cluster, "node3", offline=True, auto_promote=True)
    assert cluster.config.nodes[uuid_of(alive)]["master_candidate"]
    assert uuid_of(alive) in cluster.config.cluster["candidate_certs"]
    assert not cluster.config.nodes[uuid_of(dead)]["master_candidate"]
    assert cluster.said(f"node {dead}.example.com does not become a master candidate: ")
    assert cluster.said(f"promoted nodes to master candidate role: {alive}.example.com")


def test_a_candidate_without_a_certificate_gets_one_when_it_is_asked_for(
    cluster: FakeCluster,
) -> None:
    assert modify(cluster, master_candidate=True) == []
    assert uuid_of("node2") in cluster.config.cluster["candidate_certs"]
    cluster.rpc.calls.clear()
    modify(cluster, master_candidate=True)
    modify(cluster, "node1", master_candidate=True)
    assert not cluster.rpc.called("node_crypto_tokens")


@pytest.mark.shows("backend/cluster-node/empty-nodes")
def test_the_master_and_nodes_with_instances_stay(cluster: FakeCluster) -> None:
    cluster.add_instance(pnode="node3")
    with pytest.raises(OpPrereqError, match=r"master-failover"):
        remove(cluster, "node1")
    with pytest.raises(OpPrereqError, match=r"primary node of instance\(s\) web1.example.com"):
        remove(cluster)


def test_a_node_with_a_detached_disk_stays_as_it_is(cluster: FakeCluster) -> None:
    disks = [{"size": 1}, {"size": 2, "name": "data"}]
    cluster.add_instance(pnode="node3", start=False, disk_template="file", disks=disks)
    instance = {"instance_name": "web1.example.com"}
    cluster.execute("OP_INSTANCE_SET_PARAMS", **instance, disks=[["detach", "data", {}]])
    cluster.execute("OP_INSTANCE_REMOVE", **instance)
    [uuid] = cluster.config.disks
    cluster.rpc.calls.clear()
    with pytest.raises(OpPrereqError, match=rf"belong to no instance: {uuid} \(data, 2 MiB\); att"):
        remove(cluster)
    assert cluster.rpc.names() == []
    cluster.add_instance(pnode="node3", start=False, disk_template="diskless", disks=[])
    for change in (["attach", {"uuid": uuid}], ["remove", {}]):
        cluster.execute("OP_INSTANCE_SET_PARAMS", **instance, disks=[change])
    cluster.execute("OP_INSTANCE_REMOVE", **instance)
    remove(cluster)
    assert uuid_of("node3") not in cluster.config.nodes


@pytest.mark.parametrize("offline", [False, True])
def test_a_node_that_cannot_be_told_is_removed_all_the_same(
    cluster: FakeCluster, offline: bool
) -> None:
    cluster.config.node(3)["offline"] = offline
    cluster.rpc.fail("node_leave_cluster")
    remove(cluster)
    assert uuid_of("node3") not in cluster.config.nodes
    assert cluster.said("node-cleanup" if offline else "has left the cluster")


def modify(cluster: FakeCluster, name: str = "node2", **params: Any) -> Any:
    return cluster.execute("OP_NODE_SET_PARAMS", node_name=name, **params)


@pytest.mark.shows(
    "backend/roles/offline-known",
    "backend/roles/offline-demotes",
    "2.0/offline/no-candidate",
    "2.0/offline/demotes",
)
def test_setting_a_node_offline_takes_its_role(cluster: FakeCluster) -> None:
    result = modify(cluster, offline=True)
    node = cluster.config.node(2)
    assert (node["offline"], node["master_candidate"]) == (True, False)
    assert ("master_candidate", "auto-unset due to offline") in result
    assert ("offline", True) in result
    assert not cluster.rpc.called("node_demote_from_mc")


@pytest.mark.shows("2.0/candidate/no-file")
def test_a_drained_candidate_gives_its_files_back(cluster: FakeCluster) -> None:
    modify(cluster, drained=True)
    assert cluster.rpc.called("node_demote_from_mc")


def test_a_node_that_comes_back_is_promoted_when_there_is_room(cluster: FakeCluster) -> None:
    cluster.config.node(2).update(offline=True, master_candidate=False)
    modify(cluster, offline=False)
    assert cluster.config.node(2)["master_candidate"]
    assert uuid_of("node2") in cluster.config.cluster["candidate_certs"]
    assert cluster.said("without being re-added")


def test_a_node_that_is_to_come_back_needs_its_daemon(cluster: FakeCluster) -> None:
    cluster.config.node(2).update(offline=True, master_candidate=False)
    cluster.rpc.node("node2").is_dead = True
    with pytest.raises(OpPrereqError, match="'systemctl start ganeti-noded'") as caught:
        modify(cluster, offline=False)
    assert "--offline" not in caught.value.message
    assert "no route to host" in caught.value.message
    assert caught.value.ecode == "environment_error"


def write_config(cluster: FakeCluster, name: str, serial: int, uuid: str = "the-cluster") -> Path:
    path = cluster.rpc.node(name).config_data
    content = json.dumps({"serial_no": serial, "cluster": {"uuid": uuid}})
    cluster.rpc.node(name).write("/var/lib/ganeti/config.data", content)
    return Path(path)


def follow(cluster: FakeCluster, master: str, *names: str) -> None:
    for name in names:
        cluster.rpc.node(name).write("/var/lib/ganeti/ssconf_master_node", f"{master}.example.com")


def back_from_repair(cluster: FakeCluster) -> Path:
    """Let node2, which was master once, be offline; its configuration is the newest."""
    cluster.config.node(2).update(offline=True, master_candidate=False)
    write_config(cluster, "node1", 20)
    follow(cluster, "node1", "node1", "node3")
    follow(cluster, "node2", "node2")
    return write_config(cluster, "node2", 10_020)


def come_back(cluster: FakeCluster) -> None:
    modify(cluster, offline=False)


def readd(cluster: FakeCluster) -> None:
    add(cluster, "node2", readd=True)


@pytest.mark.parametrize("bring", [come_back, readd])
def test_a_newer_configuration_of_a_node_that_comes_back_is_set_aside(
    cluster: FakeCluster, bring: Callable[[FakeCluster], None]
) -> None:
    path = back_from_repair(cluster)
    bring(cluster)
    assert not path.exists()
    (kept,) = path.parent.glob("config.data.aside-10020-*")
    assert json.loads(kept.read_text())["serial_no"] == 10_020
    assert cluster.said("has serial number 10020, higher than that of the cluster (20)")
    assert cluster.said(f"/var/lib/ganeti/{kept.name}")
    assert not cluster.config.node(2)["offline"]


def test_an_older_configuration_of_a_node_that_comes_back_stays(cluster: FakeCluster) -> None:
    back_from_repair(cluster)
    path = write_config(cluster, "node2", 20)
    come_back(cluster)
    assert path.exists()


def test_the_configuration_of_another_cluster_is_set_aside(cluster: FakeCluster) -> None:
    back_from_repair(cluster)
    path = write_config(cluster, "node2", 3, "another")
    come_back(cluster)
    assert not path.exists()
    assert cluster.said("is that of another cluster (another)")


@pytest.mark.parametrize("bring", [come_back, readd])
def test_a_node_that_comes_back_follows_the_master_before_anything_is_asked_of_it(
    cluster: FakeCluster, bring: Callable[[FakeCluster], None]
) -> None:
    back_from_repair(cluster)
    bring(cluster)
    assert ssconf.read_key(cluster.rpc.node("node2"), "master_node") == "node1.example.com"
    changes = [
        name
        for node, name, _ in cluster.rpc.calls
        if node == "node2.example.com" and NodeCalls.calls[name].rules.changes
    ]
    assert changes[:2] == ["config_set_aside", "ssconf_accept"]
    assert "node_crypto_tokens" in changes[2:]


def test_a_node_that_follows_a_later_master_does_not_come_back(cluster: FakeCluster) -> None:
    back_from_repair(cluster)
    cluster.rpc.fail("ssconf_accept", "node2", "node node1.example.com is not the master any more")
    with pytest.raises(OpExecError, match=r"whom to follow: .* not the master any more"):
        come_back(cluster)
    assert cluster.config.node(2)["offline"]


@pytest.mark.parametrize("bring", [come_back, readd])
def test_a_newer_configuration_that_others_may_need_keeps_a_node_away(
    cluster: FakeCluster, bring: Callable[[FakeCluster], None]
) -> None:
    path = back_from_repair(cluster)
    follow(cluster, "node2", "node3")
    with pytest.raises(OpPrereqError, match=r"do not agree .*: 1 of 2 nodes say"):
        bring(cluster)
    assert path.exists()
    assert cluster.config.node(2)["offline"]


def test_a_node_on_which_a_master_runs_does_not_come_back(cluster: FakeCluster) -> None:
    back_from_repair(cluster)
    node = cluster.rpc.node("node2")
    node.write("/var/run/ganeti/ganeti-wconfd.pid", "1\n")
    with FileLock(node.pid_file("ganeti-wconfd")), pytest.raises(OpPrereqError, match="stop them"):
        come_back(cluster)


@pytest.mark.shows("backend/roles/offline-demotes", "2.0/offline/demotes")
def test_too_few_candidates_need_auto_promote(cluster: FakeCluster) -> None:
    cluster.config.cluster["candidate_pool_size"] = 2
    cluster.config.node(3)["master_candidate"] = False
    with pytest.raises(OpPrereqError, match="--auto-promote"):
        modify(cluster, offline=True)
    modify(cluster, offline=True, auto_promote=True)
    assert cluster.config.node(3)["master_candidate"]


@pytest.mark.shows("2.0/interaction/exclusive")
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "at least one change"),
        ({"offline": True, "drained": True}, "only one of drained and offline"),
        ({"master_candidate": True, "master_capable": False}, "not master_capable"),
        ({"powered": True}, "out-of-band"),
        ({"ndparams": {"oob_program": 3}}, "oob_program"),
        ({"ndparams": {"oob_program": "/a\nb"}}, "'oob_program': .* is not an absolute path"),
        ({"ndparams": {"ovs_name": "a\nb"}}, "'ovs_name': .* is not a name without blanks"),
        ({"secondary_ip": "192.0.2.3"}, "already used"),
        ({"secondary_ip": "what"}, "not an IP address"),
    ],
)
def test_changes_that_cannot_be(cluster: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        modify(cluster, **params)


def test_the_record_of_power_can_be_put_right(cluster: FakeCluster) -> None:
    cluster.config.node(2)["ndparams"] = {"oob_program": "/bin/oob"}
    with pytest.raises(OpPrereqError, match="not marked offline"):
        modify(cluster, powered=False)
    modify(cluster, powered=False, offline=True)
    assert cluster.config.node(2)["powered"] is False
    with pytest.raises(OpPrereqError, match="gnt-node power on"):
        modify(cluster, offline=False)
    modify(cluster, powered=True, offline=False)
    assert cluster.config.node(2)["powered"] is True
    modify(cluster, powered=True)  # as it is: no error


def test_a_node_without_a_helper_comes_back_whatever_was_recorded(cluster: FakeCluster) -> None:
    cluster.config.node(2).update(powered=False, offline=True, master_candidate=False)
    modify(cluster, offline=False)
    assert cluster.config.node(2)["offline"] is False


@pytest.mark.shows("2.0/offline/not-master")
@pytest.mark.parametrize(
    "params", [{"offline": True}, {"drained": True}, {"master_candidate": False}]
)
def test_the_master_keeps_its_role(cluster: FakeCluster, params: dict[str, Any]) -> None:
    with pytest.raises(OpPrereqError, match="is the master node"):
        modify(cluster, "node1", **params)


@pytest.mark.shows("backend/roles/vm-capable")
def test_a_node_with_instances_stays_vm_capable(cluster: FakeCluster) -> None:
    cluster.add_instance(pnode="node2")
    with pytest.raises(OpPrereqError, match="web1"):
        modify(cluster, vm_capable=False)


def test_a_node_that_is_taken_in_again_stays_vm_capable(pair: FakeCluster) -> None:
    before = dict(pair.config.node(2))
    with pytest.raises(OpPrereqError, match=r"has the instance\(s\) web1.*move them first"):
        add(pair, "node2", readd=True, vm_capable=False)
    assert pair.config.node(2) == before


def test_node_parameters_are_merged(cluster: FakeCluster) -> None:
    cluster.config.node(2)["ndparams"] = {"spindle_count": 4}
    modify(cluster, ndparams={"spindle_count": "default", "ssh_port": 2222})
    assert cluster.config.node(2)["ndparams"] == {"ssh_port": 2222}


ORDINARY = Node.from_wire(make_node(1, master_candidate=False))


def test_an_ordinary_node_stays_one_when_nothing_frees_it() -> None:
    plan = plan_flags(ORDINARY, {"vm_capable": False}, is_master=False, has_room=True)
    assert plan.changes == {"vm_capable": False}


@pytest.mark.shows("backend/roles/not-capable")
def test_room_in_the_pool_counts_capable_nodes_only() -> None:
    nodes = [Node.from_wire(make_node(n)) for n in (1, 2)]
    ordinary = Node.from_wire(make_node(3, master_candidate=False, master_capable=False))
    assert has_room(nodes, 10)
    assert not has_room(nodes, 2)
    assert has_room([*nodes, ordinary], 3)


def test_a_certificate_that_is_not_made_is_named(cluster: FakeCluster) -> None:
    cluster.rpc.fail("node_crypto_tokens", text="no openssl")
    with pytest.raises(OpExecError, match=r"node4.example.com.*node_crypto_tokens: no openssl"):
        add(cluster)
    assert len(cluster.config.nodes) == 3


def test_a_node_has_an_address_of_the_ip_version_of_the_cluster(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match=r"has the address 2001:db8::4, and .* uses IPv4"):
        add(cluster, primary_ip="2001:db8::4")
    cluster.config.cluster.update(primary_ip_family=10, master_netmask=128)
    with pytest.raises(OpPrereqError, match=r"has the address 192.0.2.4, and .* uses IPv6"):
        add(cluster)
    add(cluster, "node2", readd=True)  # whose address is as it was


def dual(cluster: FakeCluster) -> None:
    for number in (1, 2, 3):
        cluster.config.node(number)["secondary_ip"] = f"198.51.100.{number}"


def test_secondary_addresses_are_asked_for(cluster: FakeCluster) -> None:
    dual(cluster)
    with pytest.raises(OpPrereqError, match="no secondary address, unlike the master"):
        add(cluster)
    cluster.rpc.has_ip = False
    with pytest.raises(OpPrereqError, match=r"does not have the secondary address 198.51.100.4"):
        add(cluster, secondary_ip="198.51.100.4")
    cluster.rpc.has_ip = True
    add(cluster, secondary_ip="198.51.100.4")


def test_a_secondary_address_is_changed(cluster: FakeCluster) -> None:
    dual(cluster)
    modify(cluster, secondary_ip="198.51.100.99")
    assert cluster.config.node(2)["secondary_ip"] == "198.51.100.99"
    assert modify(cluster, secondary_ip="198.51.100.99") == []
    with pytest.raises(OpPrereqError, match="no secondary address, unlike the master"):
        modify(cluster, secondary_ip="192.0.2.2")
    cluster.rpc.has_ip = False
    with pytest.raises(OpPrereqError, match="does not have the secondary address"):
        modify(cluster, secondary_ip="198.51.100.98")


@pytest.mark.parametrize("readd", [False, True])
def test_an_address_stays_while_disks_are_copied_through_it(pair: FakeCluster, readd: bool) -> None:
    def move(address: str) -> None:
        if readd:
            add(pair, "node2", readd=True, secondary_ip=address)
        else:
            modify(pair, secondary_ip=address)

    with pytest.raises(OpPrereqError, match=r"while the disks of web1.* are active") as caught:
        move("198.51.100.99")
    assert caught.value.ecode == "wrong_state"
    assert ("instance/web1.example.com", "shared") in pair.config.lock_history[-1]
    move("198.51.100.2")  # as it is
    pair.execute("OP_INSTANCE_SHUTDOWN", instance_name="web1")
    move("198.51.100.99")
    assert pair.config.node(2)["secondary_ip"] == "198.51.100.99"


def test_the_hosts_file_is_kept_where_that_is_wanted(cluster: FakeCluster) -> None:
    cluster.config.cluster["modify_etc_hosts"] = True
    add(cluster)
    remove(cluster, "node4")
    assert [args[:2] for _, args in cluster.rpc.called("etc_hosts_modify")] == [
        ["add", "node4.example.com"],
        ["remove", "node4.example.com"],
    ]
    sent = [
        node
        for node, args in cluster.rpc.called("upload_file")
        if args[0][0].endswith("/etc/hosts")
    ]
    # To the new node with its other files, to the rest when it comes and when it goes.
    assert sent == ["node4", "node2", "node3", "node2", "node3"]


@pytest.mark.shows("backend/roles/not-capable")
def test_one_that_is_no_longer_capable_is_demoted(cluster: FakeCluster) -> None:
    modify(cluster, master_capable=False)
    assert not cluster.config.node(2)["master_candidate"]


def test_states_are_stored(cluster: FakeCluster) -> None:
    modify(
        cluster, hv_state={"kvm": {"mem_node": 1}}, disk_state={"plain": {"vg": {"disk_total": 5}}}
    )
    assert cluster.config.node(2)["hv_state_static"] == {"kvm": {"mem_node": 1}}
    assert cluster.config.node(2)["disk_state_static"] == {"plain": {"vg": {"disk_total": 5}}}


def test_figures_of_states_are_added_and_go_back_to_the_default(cluster: FakeCluster) -> None:
    modify(
        cluster,
        hv_state={"kvm": {"mem_total": 4096, "mem_node": 512}, "lxc": {"cpu_total": 2}},
        disk_state={"plain": {"vg": {"disk_total": 5, "disk_reserved": 1}}},
    )
    modify(
        cluster,
        hv_state={"kvm": {"cpu_total": 4, "mem_node": "default"}, "lxc": {"cpu_total": "default"}},
        disk_state={"plain": {"vg": {"disk_reserved": "default"}, "vg2": {"disk_total": 7}}},
    )
    node = cluster.config.node(2)
    assert node["hv_state_static"] == {"kvm": {"mem_total": 4096, "cpu_total": 4}}
    stored = {"plain": {"vg": {"disk_total": 5}, "vg2": {"disk_total": 7}}}
    assert node["disk_state_static"] == stored
    modify(cluster, disk_state={"plain": {n: {"disk_total": "default"} for n in stored["plain"]}})
    assert not cluster.config.node(2).get("disk_state_static")


def test_a_new_node_has_no_default_among_its_parameters(cluster: FakeCluster) -> None:
    add(
        cluster,
        hv_state={"kvm": {"mem_node": 1, "mem_total": "default"}},
        ndparams={"ssh_port": "default", "spindle_count": 4},
    )
    node = by_name(cluster, "node4.example.com")
    assert node["hv_state_static"] == {"kvm": {"mem_node": 1}}
    assert node["ndparams"] == {"spindle_count": 4}


@pytest.mark.parametrize(
    ("name", "params", "text"),
    [("node1", {}, "is the master"), ("node2", {"group": "default"}, "assign-nodes")],
)
def test_readds_that_cannot_be(
    cluster: FakeCluster, name: str, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OpPrereqError, match=text):
        add(cluster, name, readd=True, **params)


def test_a_failed_readd_restores_the_flags(cluster: FakeCluster) -> None:
    cluster.config.node(2).update(offline=True, master_candidate=False)
    cluster.rpc.fail("node_crypto_tokens")
    with pytest.raises(OpExecError):
        add(cluster, "node2", readd=True, hv_state={"kvm": {"mem_total": 4096}})
    assert cluster.config.node(2)["offline"] is True
    assert not cluster.config.node(2).get("hv_state_static")
