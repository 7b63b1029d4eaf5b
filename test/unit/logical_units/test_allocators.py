"""Nodes chosen by an allocator: what it is told, what becomes of its answer, who holds which locks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, make_group, uuid_of

from ganeti.base.errors import JobCanceled, OpPrereqError
from ganeti.logical_units.locks import PriorityChangedError
from ganeti.protocol.wconfd import ClientId

OTHER = ClientId(8, "/other", 1)
NEW = {
    "instance_name": "new.example.com",
    "mode": "create",
    "disk_template": "file",
    "disks": [{"size": "1g"}],
    "nics": [{}, {"mac": "aa:00:00:11:11:11", "mode": "routed", "ip": "192.0.2.9"}],
    "os_type": "debian",
    "name_check": False,
    "ip_check": False,
}
Answer = Callable[[dict[str, Any]], Any]


class Allocator:
    """Plays ``hail``: keeps what it was asked, answers what a test gives."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.asked: list[dict[str, Any]] = []
        self.options: list[dict[str, Any]] = []
        self.answer: Answer = lambda _question: ["node2.example.com"]
        cluster.rpc.allocators["hail"] = self._run

    def _run(self, question: dict[str, Any], options: dict[str, Any]) -> str:
        self.asked.append(question)
        self.options.append(options)
        return json.dumps({"success": True, "info": "", "result": self.answer(question)})

    @property
    def request(self) -> Any:
        """What was wanted last."""
        return self.asked[-1]["request"]


@pytest.fixture
def hail(cluster: FakeCluster) -> Allocator:
    return Allocator(cluster)


def create(cluster: FakeCluster, **params: Any) -> Any:
    return cluster.execute("OP_INSTANCE_CREATE", **{**NEW, **params})


def name(number: int) -> str:
    return f"node{number}.example.com"


# What it is told.


@pytest.mark.shows("backend/iallocator/external")
def test_a_new_instance_as_it_is_told(cluster: FakeCluster, hail: Allocator) -> None:
    create(cluster, tags=["t"], beparams={"memory": 256, "vcpus": 2}, group_name="default")
    assert hail.request == {
        "type": "allocate",
        "name": "new.example.com",
        "memory": 256,
        "vcpus": 2,
        "spindle_use": 1,
        "disks": [{"size": 1024, "mode": "rw", "dev_type": "file"}],
        "disk_space_total": 1024,
        "disk_template": "file",
        "group_name": "default",
        "os": "debian",
        "tags": ["t"],
        "nics": [
            {"mac": "auto", "ip": None, "mode": "bridged", "link": "br0", "bridge": "br0"},
            {"mac": "aa:00:00:11:11:11", "ip": "192.0.2.9", "mode": "routed", "link": "br0"},
        ],
        "required_nodes": 1,
        "hypervisor": "fake",
    }


@pytest.mark.parametrize("spindles", [2, "2"])
def test_spindles_are_told_as_a_number(pairs: FakeCluster, spindles: int | str) -> None:
    hail = Allocator(pairs)
    hail.answer = lambda _question: [name(1)]
    disk = {"size": "1g", "spindles": spindles}
    with pytest.raises(OpPrereqError, match="has no exclusive storage"):
        create(pairs, disk_template="plain", disks=[disk], iallocator="hail")
    assert [disk["spindles"] for disk in hail.request["disks"]] == [2]


def test_a_network_is_told_by_its_uuid(cluster: FakeCluster, hail: Allocator) -> None:
    params = {"mode": "bridged", "link": "br7"}
    group = cluster.config.nodegroups[cluster.config.node(1)["group"]]
    cluster.config.networks["n1"] = {
        "name": "lan",
        "network": "192.0.2.0/24",
        "uuid": "n1",
        "serial_no": 1,
    }
    group["networks"] = {"n1": params}
    create(cluster, nics=[{"network": "lan"}])
    assert hail.request["nics"] == [{"mac": "auto", "ip": None, "network": "n1"}]
    assert hail.asked[0]["nodegroups"][group["uuid"]]["networks"] == ["n1"]


@pytest.mark.shows("2.0/interaction/in-iallocator")
def test_the_cluster_as_it_is_told(cluster: FakeCluster, hail: Allocator) -> None:
    cluster.add_instance("up.example.com", pnode="node1", beparams={"memory": 512})
    cluster.add_instance("down.example.com", pnode="node1", start=False)
    cluster.config.node(3)["vm_capable"] = False
    create(cluster)
    question = hail.asked[-1]
    one, three = question["nodes"][name(1)], question["nodes"][name(3)]
    assert one["i_pri_memory"] == 640
    assert one["i_pri_up_memory"] == 512
    # It reports 4096 - 128; the instance has 128 of its 512 yet, the rest is not free.
    assert one["free_memory"] == 4096 - 512
    assert question["nodes"][name(2)]["free_memory"] == 4096
    assert "free_memory" not in three
    assert not three["vm_capable"]
    up = question["instances"]["up.example.com"]
    assert (up["nodes"], up["memory"], up["admin_state"]) == ([name(1)], 512, "up")
    assert up["disks"] == [{"dev_type": "sharedfile", "size": 1024, "mode": "rw", "spindles": None}]
    assert set(question["nodegroups"]) == {cluster.config.node(1)["group"]}


def test_one_pass_asks_each_node_once(cluster: FakeCluster, hail: Allocator) -> None:
    for number in range(4):
        cluster.add_instance(f"web{number}.example.com", pnode="node1")
    cluster.execute("OP_TEST_ALLOCATOR", direction="in", mode="relocate", name="web1.example.com")
    assert sorted(node for node, _args in cluster.rpc.called("node_info")) == [
        "node1",
        "node2",
        "node3",
    ]
    assert [node for node, _args in cluster.rpc.called("all_instances_info")] == ["node1"]
    assert not hail.asked


def test_a_node_that_does_not_answer_is_told_as_offline(
    cluster: FakeCluster, hail: Allocator
) -> None:
    cluster.rpc.fail("node_info", name(3))
    create(cluster)
    node = hail.asked[0]["nodes"][name(3)]
    assert node["offline"]
    assert "total_memory" not in node
    assert cluster.said("it broke; the allocator is told that node node3.example.com is offline")


def test_options_are_those_of_the_default_allocator(cluster: FakeCluster, hail: Allocator) -> None:
    cluster.config.cluster["default_iallocator_params"] = {"x": 1, "y": None}
    create(cluster, nics=[])
    create(cluster, nics=[], instance_name="b", iallocator=".")
    cluster.rpc.allocators["other"] = cluster.rpc.allocators["hail"]
    create(cluster, nics=[], instance_name="c", iallocator="other")
    assert hail.options == [{"x": 1, "y": None}, {"x": 1, "y": None}, {}]


@pytest.mark.shows("2.1/allocator-default/none")
def test_without_a_default_it_is_said_what_to_do(cluster: FakeCluster) -> None:
    cluster.config.cluster["default_iallocator"] = ""
    for params in ({}, {"iallocator": "."}):
        with pytest.raises(OpPrereqError, match="no default allocator; give one"):
            create(cluster, **params)


def test_an_allocator_explains_where_it_is_asked_to(cluster: FakeCluster, hail: Allocator) -> None:
    def answer(question: dict[str, Any], options: dict[str, Any]) -> str:
        said = {"success": False, "info": "full", "result": [], "explanation": ["node x: memory"]}
        return json.dumps(said if "explain" in options else {**said, "explanation": 7})

    cluster.rpc.allocators["hail"] = answer
    with pytest.raises(OpPrereqError, match="mode allocate: full"):
        create(cluster, explain=True)
    assert cluster.said("node x: memory")
    cluster.messages.clear()
    with pytest.raises(OpPrereqError, match="mode allocate: full"):
        create(cluster)
    assert not cluster.said("node x")
    ask = {"direction": "out", "mode": "relocate", "name": "web1.example.com", "explain": True}
    cluster.add_instance()
    assert "node x: memory" in cluster.execute("OP_TEST_ALLOCATOR", **ask)


# Several default allocators.


def say(word: str) -> Callable[[dict[str, Any], dict[str, Any]], str]:
    return lambda _question, _options: word


NO_PLACE = '{"success": false, "info": "no place", "result": []}'


@pytest.mark.shows("2.1/allocator-default/several")
def test_default_allocators_are_tried_in_their_order(cluster: FakeCluster, hail: Allocator) -> None:
    cluster.config.cluster["default_iallocators"] = {"default": ["hail", "full", "mad", "good"]}
    cluster.config.cluster["default_iallocator_params"] = {"x": 1}
    asked: list[dict[str, Any]] = []

    def good(_question: dict[str, Any], options: dict[str, Any]) -> str:
        asked.append(options)
        return json.dumps({"success": True, "info": "", "result": [name(3)]})

    cluster.rpc.allocators |= {"full": say(NO_PLACE), "mad": say("what?"), "good": good}
    cluster.rpc.allocators["hail"] = say('{"success": true, "info": "", "result": ["nowhere"]}')
    assert create(cluster, nics=[]) == [name(3)]
    assert asked == [{}], "the options are those of the first one"
    assert cluster.said("there is no node 'nowhere'; asking the next one")
    assert cluster.said("allocator 'full', mode allocate: no place; asking the next one")
    assert cluster.said("allocator good chose node3.example.com")
    # Who is named is asked alone; "." are the defaults.
    with pytest.raises(OpPrereqError, match=r"'mad'.*invalid JSON") as caught:
        create(cluster, instance_name="b", iallocator="mad")
    assert caught.value.ecode == "internal_error"
    assert create(cluster, instance_name="b", iallocator=".", nics=[]) == [name(3)]


def test_if_no_default_allocator_finds_a_place_each_says_why(
    cluster: FakeCluster, hail: Allocator
) -> None:
    cluster.config.cluster["default_iallocators"] = {"allocate": ["mad", "full"]}
    cluster.rpc.allocators |= {"full": say(NO_PLACE), "mad": say("what?")}
    with pytest.raises(OpPrereqError, match=r"'mad'.*; allocator 'full'.*no place$") as caught:
        create(cluster)
    assert caught.value.ecode == "insufficient_resources"
    assert not hail.asked


def test_each_kind_of_request_can_have_its_own_default_allocators(
    cluster: FakeCluster, hail: Allocator
) -> None:
    config = cluster.config.cluster
    config["default_iallocators"] = {"default": ["hail", "full"], "relocate": ["other"]}
    cluster.rpc.allocators |= {"full": say(NO_PLACE), "other": say("asked")}
    cluster.add_instance()
    ask = {"direction": "out", "name": "web1.example.com"}
    assert cluster.execute("OP_TEST_ALLOCATOR", mode="relocate", **ask) == "asked"
    assert not hail.asked
    config["default_iallocator"] = "full"  # by somebody who knows nothing of the lists
    with pytest.raises(OpPrereqError, match=r"^allocator 'full', mode allocate: no place$"):
        create(cluster)


# What becomes of the answer.


def test_only_the_own_objects_are_locked(cluster: FakeCluster, hail: Allocator) -> None:
    assert create(cluster) == [name(2)]
    assert cluster.config.lock_history == [
        [
            ("cluster/BGL", "shared"),
            ("instance/new.example.com", "exclusive"),
            (f"node/{uuid_of('node2')}", "shared"),
            (f"node-res/{uuid_of('node2')}", "exclusive"),
        ]
    ]
    assert len(hail.asked) == 1
    assert not cluster.config.held
    assert not cluster.config.resources


@pytest.mark.shows("backend/roles/drained-no-new", "2.0/drained/race")
def test_a_node_that_is_gone_under_the_locks_is_chosen_anew(
    cluster: FakeCluster, hail: Allocator
) -> None:
    def drain() -> None:
        cluster.config.node(2)["drained"] = True
        hail.answer = lambda _question: [name(3)]

    cluster.config.before_grant.append(drain)
    assert create(cluster) == [name(3)]
    assert len(cluster.config.lock_history) == 2
    assert not cluster.config.held


def test_the_policy_of_the_group_is_looked_at_once_more(
    cluster: FakeCluster, hail: Allocator
) -> None:
    with pytest.raises(OpPrereqError, match="violates the instance policy"):
        create(cluster, beparams={"vcpus": 64})
    assert hail.asked
    assert not cluster.config.instances
    assert not cluster.config.resources


def test_who_was_quicker_is_seen_the_second_time(cluster: FakeCluster, hail: Allocator) -> None:
    """Another job takes the node's memory while the allocator thinks."""

    def most_free(question: dict[str, Any]) -> list[str]:
        if len(hail.asked) == 1:
            cluster.config.reserved.reserve_amounts(OTHER, {uuid_of("node1"): (4000, 7)}, {})
        nodes = question["nodes"]
        return [min(nodes, key=lambda node: (-nodes[node]["free_memory"], node))]

    hail.answer = most_free
    assert create(cluster) == [name(2)]
    first, second = (asked["nodes"][name(1)]["free_memory"] for asked in hail.asked)
    assert (first, second) == (4096, 96)
    assert cluster.said("other jobs have reserved 4000 MiB")
    assert [owner for owner, *_ in cluster.config.reserved.listed_amounts()] == [OTHER]


def test_an_allocator_that_insists_on_a_full_node_is_given_up(
    cluster: FakeCluster, hail: Allocator
) -> None:
    with pytest.raises(OpPrereqError, match="not enough memory on node 'node2") as caught:
        create(cluster, beparams={"memory": 8000})
    assert caught.value.ecode == "insufficient_resources"
    assert 1 < len(hail.asked) < 20
    assert not cluster.config.resources


def test_a_name_that_is_taken_is_refused_before_anybody_is_asked(
    cluster: FakeCluster, hail: Allocator
) -> None:
    cluster.add_instance("new.example.com")
    with pytest.raises(OpPrereqError, match="already in the cluster"):
        create(cluster)
    assert not hail.asked


@pytest.mark.shows("2.1/allocator-dry/nodes")
def test_a_rehearsal_names_the_node_that_was_chosen(cluster: FakeCluster, hail: Allocator) -> None:
    hail.answer = lambda _question: [name(3)]
    assert create(cluster, dry_run=True) == [name(3)]
    assert not cluster.config.instances
    assert not cluster.config.resources


@pytest.mark.shows(
    "backend/locks/released-early",
    "backend/opportunistic/available",
    "backend/opportunistic/allocator",
)
def test_free_nodes_only(cluster: FakeCluster, hail: Allocator) -> None:
    cluster.config.lock_by_another(f"node/{uuid_of('node1')}")
    held: list[dict[str, str]] = []
    keeps: list[dict[str, str]] = []

    def answer(_question: dict[str, Any]) -> Any:
        held.append(dict(cluster.config.held))
        cluster.config.before_grant.append(lambda: keeps.append(dict(cluster.config.held)))
        return [name(2)]

    hail.answer = answer
    create(cluster, opportunistic_locking=True)
    assert hail.request["restrict-to-nodes"] == [name(2), name(3)]
    own = {"cluster/BGL": "shared", "instance/new.example.com": "exclusive"}
    two, three = (
        {f"node/{uuid_of(node)}": "shared", f"node-res/{uuid_of(node)}": "exclusive"}
        for node in ("node2", "node3")
    )
    assert held == [own | two | three]
    assert keeps == [own | two]  # nobody can come in between
    assert len(cluster.config.lock_history) == 2  # the name, then all: nothing was given back
    assert not cluster.config.held


def temporary(cluster: FakeCluster, words: str, **params: Any) -> None:
    with pytest.raises(OpPrereqError, match=words) as caught:
        create(cluster, opportunistic_locking=True, **params)
    assert caught.value.ecode == "temp_insufficient_resources"
    assert not cluster.config.held
    assert not cluster.config.resources


def test_where_disks_are_being_made_no_more_are_put(cluster: FakeCluster, hail: Allocator) -> None:
    hail.answer = lambda _question: [name(3)]
    for node in ("node1", "node2"):
        cluster.config.lock_by_another(f"node-res/{uuid_of(node)}")
    create(cluster, opportunistic_locking=True)
    assert hail.request["restrict-to-nodes"] == [name(3)]
    cluster.config.lock_by_another(f"node-res/{uuid_of('node3')}")
    temporary(cluster, "'b': every node is locked by other jobs just now; try", instance_name="b")
    assert len(hail.asked) == 1
    diskless = {"disk_template": "diskless", "disks": [], "nics": [], "instance_name": "c"}
    create(cluster, opportunistic_locking=True, **diskless)
    assert hail.request["restrict-to-nodes"] == [name(1), name(2), name(3)]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_others_hold_the_allocator_sees_just_what_is_locked(
    cluster: FakeCluster, hail: Allocator, seed: int
) -> None:
    chance = random.Random(seed)
    taken = {
        lock
        for number in (1, 2, 3)
        for lock in (f"node/{uuid_of(f'node{number}')}", f"node-res/{uuid_of(f'node{number}')}")
        if chance.random() < 0.3
    }
    for lock in sorted(taken, key=lambda lock: (lock.startswith("node-res"), lock)):
        cluster.config.lock_by_another(lock)
    free = [
        number
        for number in (1, 2, 3)
        if not {f"{kind}/{uuid_of(f'node{number}')}" for kind in ("node", "node-res")} & taken
    ]
    if not free:
        temporary(cluster, "every node is locked")
        return
    choice = name(chance.choice(free))
    held: list[set[str]] = []

    def answer(_question: dict[str, Any]) -> Any:
        held.append({lock for lock, mode in cluster.config.held.items() if mode == "exclusive"})
        return [choice]

    hail.answer = answer
    assert create(cluster, opportunistic_locking=True) == [choice]
    assert hail.request["restrict-to-nodes"] == [name(number) for number in free]
    resources = {f"node-res/{uuid_of(f'node{number}')}" for number in free}
    assert {lock for lock in held[0] if lock.startswith("node-res/")} >= resources
    assert not held[0] & taken


def test_it_is_for_now_only_that_free_nodes_do_not_suffice(
    cluster: FakeCluster, hail: Allocator
) -> None:
    def no_place(_question: dict[str, Any], _options: dict[str, Any]) -> str:
        return json.dumps({"success": False, "info": "too small", "result": []})

    cluster.rpc.allocators["hail"] = no_place
    with pytest.raises(OpPrereqError, match=r"too small$") as caught:
        create(cluster, opportunistic_locking=True)
    assert caught.value.ecode == "insufficient_resources"  # all were free: it is no use to wait
    cluster.config.lock_by_another(f"node/{uuid_of('node1')}")
    temporary(cluster, r"too small \(with 2 of 3 nodes to choose from.*; try again")
    east = uuid_of("east")
    cluster.config.nodegroups[east] = make_group("east", east)
    cluster.config.node(1)["group"] = east
    temporary(cluster, "every node is locked", group_name="east")


def test_a_node_drained_before_it_could_be_locked_is_not_chosen(
    cluster: FakeCluster, hail: Allocator
) -> None:
    def drain_first(*args: Any) -> Any:
        cluster.config.node(2)["drained"] = True
        del cluster.config.stand_ins["opportunistic_lock_union"]
        return cluster.config.opportunistic_lock_union(*args)

    cluster.config.stand_ins["opportunistic_lock_union"] = drain_first
    hail.answer = lambda _question: [name(3)]
    create(cluster, opportunistic_locking=True)
    assert hail.request["restrict-to-nodes"] == [name(1), name(3)]


def test_a_job_is_canceled_while_the_allocator_thinks(
    cluster: FakeCluster, hail: Allocator
) -> None:
    cluster.cancel_after = 0
    with pytest.raises(JobCanceled):
        create(cluster)
    assert not cluster.config.resources
    assert not cluster.config.held


def test_a_new_priority_that_comes_while_the_allocator_thinks(
    cluster: FakeCluster, hail: Allocator
) -> None:
    def answer(_question: dict[str, Any]) -> Any:
        if len(hail.asked) == 1:  # as a signal handler does, as no request for locks waits
            raise PriorityChangedError
        return [name(2)]

    hail.answer = answer
    assert create(cluster) == [name(2)]
    assert len(hail.asked) == 2


@pytest.mark.shows("2.1/balance/balance", "2.1/capacity/capacity")
def test_the_two_requests_that_3_0_does_not_have(cluster: FakeCluster, hail: Allocator) -> None:
    def show(mode: str, **params: Any) -> Any:
        question = cluster.execute("OP_TEST_ALLOCATOR", direction="in", mode=mode, **params)
        return json.loads(question)["request"]

    group = cluster.config.node(1)["group"]
    wanted = {"type": "balance", "groups": [group], "moves_max": 10}
    assert show("balance", name="default") == wanted
    assert show("balance", name="default", instances=[group], limit=3) == {**wanted, "moves_max": 3}
    with pytest.raises(OpPrereqError, match="east"):
        show("balance", name="default", instances=["default", "east"])
    size = {"memory": 512, "vcpus": 2, "disks": [{"size": 1024}], "disk_template": "file"}
    found = show("capacity", name="more", limit=7, **size)
    place = show("allocate", name="more", **size)
    assert found == {**place, "type": "capacity", "count_max": 7}
    assert not hail.asked


# Moves.


@pytest.fixture
def moving(cluster: FakeCluster, hail: Allocator) -> FakeCluster:
    """A running instance on node1, and a second group with node3."""
    cluster.add_instance()
    east = uuid_of("east")
    cluster.config.nodegroups[east] = make_group("east", east)
    cluster.config.node(3)["group"] = east
    hail.answer = lambda _question: [name(2)]
    return cluster


@pytest.mark.shows("backend/iallocator/moves")
@pytest.mark.parametrize("op_id", ["OP_INSTANCE_MIGRATE", "OP_INSTANCE_FAILOVER"])
def test_an_instance_is_relocated(moving: FakeCluster, hail: Allocator, op_id: str) -> None:
    moving.execute(op_id, instance_name="web1.example.com")
    assert hail.request == {
        "type": "relocate",
        "name": "web1.example.com",
        "disk_space_total": 1024,
        "required_nodes": 1,
        "relocate_from": [name(1)],
    }
    assert moving.config.instance("web1.example.com")["primary_node"] == uuid_of("node2")
    assert not moving.config.resources


def test_a_clean_up_asks_no_allocator(moving: FakeCluster, hail: Allocator) -> None:
    with pytest.raises(OpPrereqError, match="an allocator cannot tell"):
        moving.execute("OP_INSTANCE_MIGRATE", instance_name="web1", cleanup=True, iallocator="hail")
    assert not hail.asked


def test_lost_disks_find_another_node(cluster: FakeCluster, hail: Allocator) -> None:
    cluster.add_instance(disk_template="file", start=False)
    cluster.rpc.node("node1").disks.clear()
    hail.answer = lambda _question: [name(3)]
    cluster.execute(
        "OP_INSTANCE_RECREATE_DISKS",
        instance_name="web1",
        iallocator="hail",
        disks=[[0, {"size": 2048}]],
    )
    assert hail.request["type"] == "allocate"
    assert hail.request["disks"] == [{"size": 2048, "mode": "rw", "dev_type": "file"}]
    assert hail.request["disk_space_total"] == 2048
    assert not hail.asked[-1]["instances"]  # it is asked about as if it were new
    assert cluster.config.instance("web1.example.com")["primary_node"] == uuid_of("node3")


def plan(_question: Any) -> Any:
    """Move web1 to node3, and say that web2 cannot move."""
    op = {
        "OP_ID": "OP_INSTANCE_MIGRATE",
        "instance_name": "web1.example.com",
        "target_node": name(3),
    }
    return [[["web1.example.com", "east", [name(3)]]], [["web2.example.com", "full"]], [[op]]]


EXPECTED = {"jobs": [(True, 100), (False, "instance web2.example.com cannot be moved: full")]}


@pytest.mark.shows("backend/iallocator/evacuations", "2.1/evacuate-node/allocator")
def test_a_node_is_evacuated(moving: FakeCluster, hail: Allocator) -> None:
    moving.add_instance("web2.example.com")
    hail.answer = plan
    result = moving.execute(
        "OP_NODE_EVACUATE", node_name="node1", mode="all", ignore_soft_errors=True
    )
    assert result == EXPECTED
    assert hail.options[-1] == {"ignore-soft-errors": None}
    assert hail.request == {
        "type": "node-evacuate",
        "instances": ["web1.example.com", "web2.example.com"],
        "evac_mode": "all",
    }
    [[op]] = moving.jobs
    assert (op.instance_name, op.target_node) == ("web1.example.com", name(3))
    assert moving.config.lock_history[-1] == [
        ("cluster/BGL", "shared"),
        (f"node/{uuid_of('node1')}", "shared"),
    ]


def test_a_node_is_migrated_by_jobs_that_ask_for_themselves(
    moving: FakeCluster, hail: Allocator
) -> None:
    moving.execute("OP_NODE_MIGRATE", node_name="node1")
    [[op]] = moving.jobs
    assert (op.iallocator, op.target_node) == (".", None)  # it tries the defaults in their order
    assert not hail.asked


def test_an_instance_changes_its_group(moving: FakeCluster, hail: Allocator) -> None:
    hail.answer = lambda question: [plan(question)[0], [], plan(question)[2]]
    result = moving.execute("OP_INSTANCE_CHANGE_GROUP", instance_name="web1")
    assert result == {"jobs": [(True, 100)]}
    assert hail.request == {
        "type": "change-group",
        "instances": ["web1.example.com"],
        "target_groups": [uuid_of("east")],
    }


def test_a_group_is_evacuated(moving: FakeCluster, hail: Allocator) -> None:
    moving.add_instance("web2.example.com", pnode="node2")
    moving.add_instance("web3.example.com", pnode="node3")
    hail.answer = plan
    result = moving.execute("OP_GROUP_EVACUATE", group_name="default", force_failover=True)
    assert result == EXPECTED
    assert hail.request["instances"] == ["web1.example.com", "web2.example.com"]
    [[op]] = moving.jobs
    assert type(op).__name__ == "OpInstanceFailover"
    assert moving.config.lock_history[-1][1:] == [
        (f"nodegroup/{uuid}", "shared") for uuid in sorted(moving.config.nodegroups)
    ]


@pytest.mark.parametrize(
    ("op_id", "params", "text"),
    [
        ("OP_GROUP_EVACUATE", {"group_name": "nix"}, "'nix' is not known"),
        ("OP_GROUP_EVACUATE", {"group_name": "east", "target_groups": ["east"]}, "one to leave"),
        ("OP_INSTANCE_CHANGE_GROUP", {"instance_name": "nix"}, "'nix' is not known"),
        (
            "OP_INSTANCE_CHANGE_GROUP",
            {"instance_name": "web1", "target_groups": ["default"]},
            "one to leave",
        ),
    ],
)
def test_groups_that_will_not_do(
    moving: FakeCluster, op_id: str, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OpPrereqError, match=text):
        moving.execute(op_id, **params)
    assert not moving.jobs


def test_an_empty_group_needs_nobody(moving: FakeCluster, hail: Allocator) -> None:
    assert moving.execute("OP_GROUP_EVACUATE", group_name="east") == {"jobs": []}
    assert not hail.asked


def test_planned_instances_stay_and_are_named(moving: FakeCluster, hail: Allocator) -> None:
    for new, node in (("soon.example.com", "node1"), ("east.example.com", "node3")):
        create(moving, instance_name=new, pnode=node, forthcoming=True, nics=[])
    hail.answer = lambda _question: [[], [], []]
    moving.execute("OP_NODE_EVACUATE", node_name="node1", mode="all")
    assert hail.request["instances"] == ["web1.example.com"]
    assert "soon.example.com" in hail.asked[-1]["instances"]
    moving.execute("OP_GROUP_EVACUATE", group_name="default")
    assert hail.request["instances"] == ["web1.example.com"]
    moving.execute("OP_NODE_EVACUATE", node_name="node1", mode="all", remote_node="node2")
    moving.execute("OP_NODE_MIGRATE", node_name="node1", target_node="node2")
    assert {op.instance_name for [op] in moving.jobs} == {"web1.example.com"}
    assert moving.said("instance soon.example.com is only planned")
    asked = len(hail.asked)
    for op_id, params in (
        ("OP_GROUP_EVACUATE", {"group_name": "east"}),
        ("OP_NODE_EVACUATE", {"node_name": "node3", "mode": "all"}),
        ("OP_NODE_MIGRATE", {"node_name": "node3"}),
    ):
        assert moving.execute(op_id, **params) == {"jobs": []}
    assert len(hail.asked) == asked
    with pytest.raises(OpPrereqError, match=r"add --commit -n NODE soon\.example\.com"):
        moving.execute("OP_INSTANCE_CHANGE_GROUP", instance_name="soon.example.com")


def test_a_planned_instance_is_committed_where_an_allocator_says(
    cluster: FakeCluster, hail: Allocator
) -> None:
    create(cluster, pnode="node1", forthcoming=True)
    bare = {"disks": [], "disk_template": None, "nics": [], "os_type": None, "commit": True}
    create(cluster, iallocator="hail", **bare)
    assert hail.request["disks"] == [{"size": 1024, "mode": "rw", "dev_type": "file"}]
    assert not hail.asked[-1]["instances"]
    made = cluster.config.instance("new.example.com")
    assert (made["primary_node"], made.get("forthcoming", False)) == (uuid_of("node2"), False)


# Batches and tests.


def test_a_batch_is_placed_by_one_question(cluster: FakeCluster, hail: Allocator) -> None:
    names = ["a.example.com", "b.example.com", "c.example.com"]
    hail.answer = lambda _question: [[[names[0], [name(3)]], [names[1], [name(1)]]], [names[2]]]
    creations = [{**NEW, "instance_name": each, "explain": True} for each in names]
    creations.append({**NEW, "instance_name": "d.example.com", "pnode": name(2)})
    result = cluster.execute("OP_INSTANCE_MULTI_ALLOC", instances=creations)
    assert result == {
        "jobs": [(True, 100), (True, 101), (True, 102)],
        "allocatable": [names[0], names[1], "d.example.com"],
        "failed": [names[2]],
    }
    assert [job[0].pnode for job in cluster.jobs] == [name(3), name(1), name(2)]
    assert not any(job[0].explain for job in cluster.jobs)  # nothing is chosen there
    assert len(hail.asked) == 1
    assert [each["name"] for each in hail.request["instances"]] == names


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_question_is_shown_or_asked(
    cluster: FakeCluster, hail: Allocator, direction: str
) -> None:
    said = cluster.execute(
        "OP_TEST_ALLOCATOR",
        direction=direction,
        mode="multi-allocate",
        name="new",
        disks=[{"size": 10}],
        disk_template="file",
        nics=[{"mac": "auto"}],
        memory=64,
        vcpus=1,
        count=2,
        os="debian",
    )
    shown = json.loads(said) if direction == "in" else hail.asked[0]
    assert [each["name"] for each in shown["request"]["instances"]] == ["new0", "new1"]
    assert ("success" in json.loads(said)) is (direction == "out")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"mode": "allocate"}, "mode allocate needs 'memory'"),
        ({"mode": "allocate", "memory": 1}, "mode allocate needs 'vcpus'"),
        ({"mode": "relocate"}, "instance 'x' is not known"),
        ({"mode": "allocate-secondary"}, "instance 'x' is not known"),
        ({"mode": "node-evacuate"}, "mode node-evacuate needs 'instances'"),
        ({"mode": "change-group", "target_groups": ["nix"]}, "'nix' is not known"),
        ({"mode": "multi-allocate", "count": 0}, "count: 0"),
    ],
)
def test_a_question_that_cannot_be_made(
    cluster: FakeCluster, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OpPrereqError, match=text):
        cluster.execute("OP_TEST_ALLOCATOR", direction="in", name="x", **params)
