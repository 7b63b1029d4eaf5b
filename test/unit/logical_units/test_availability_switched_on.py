"""Tests of ganeti/logical_units/cluster/availability.py: which agents start when, what etcd keeps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.fake_cluster import FakeCluster, make_group, make_node

from ganeti.availability.electorate import digest_of
from ganeti.availability.records import (
    GUARDS,
    MASTER_KEY,
    NODES,
    Guard,
    Loss,
    Mastership,
    Proof,
    outdated_key,
)
from ganeti.base.errors import OpPrereqError, TransportError
from ganeti.base.json import dumps
from ganeti.clients.etcd import Delete, Entry, Snapshot, Unchanged
from ganeti.logical_units import lookup
from ganeti.logical_units.cluster import availability
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.node import candidates
from ganeti.store.availability import Settings
from ganeti.system import clock
from ganeti.system.filelock import FileLock

MASTER = "node1"


def test_no_other_agent_starts_before_the_master_holds_its_lease(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents that find no master's lease would take the master for lost."""
    started: list[set[str]] = []
    silent = 3  # the master's agent is slow

    def ask(_settings: Any, _act: Any) -> Snapshot:
        nonlocal silent
        agents = {node for node, _args in cluster.rpc.called("ha_start")}
        started.append(agents)
        silent -= bool(agents)
        keys = {f"{NODES}{node}.example.com" for node in agents}
        if agents and silent < 0:
            keys.add(MASTER_KEY)
        return Snapshot({key: Entry(b"", 1, 0) for key in keys}, 1)

    monkeypatch.setattr(availability, "ask_etcd", ask)
    monkeypatch.setattr(clock, "pause", lambda _seconds: None)
    cluster.rpc.answers |= {"ha_look": [], "ha_stop": None, "ha_start": None}
    cluster.execute("OP_CLUSTER_SET_AVAILABILITY", enabled=True, endpoints=["http://127.0.0.1:1"])
    assert started[2:6] == [{MASTER}] * 4
    assert started[-1] == {"node1", "node2", "node3"}


class Etcd:
    """Keeps something of each node."""

    def __init__(self, *names: str) -> None:
        kinds = ("acting", "guards", "losses", "fencing", "nodes")
        self.keys = {f"{kind}/{name}.example.com" for kind in kinds for name in names}
        self.keys |= {outdated_key(f"{name}.example.com", 11000) for name in names}
        self.keys.add(MASTER_KEY)
        self.values: dict[str, bytes] = {}

    async def read(self) -> Snapshot:
        keys = self.keys | self.values.keys()
        return Snapshot({key: Entry(self.values.get(key, b""), 1, 0) for key in keys}, 1)

    async def change(self, _conditions: Any, *changes: Delete) -> bool:
        assert changes
        self.keys -= {change.key for change in changes}
        return True

    async def erase(self) -> None:
        self.keys.clear()


def test_what_etcd_has_of_an_earlier_time_is_gone_before_the_first_agent_starts(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that finds there that its boot was proved dead once has its node reset."""
    etcd = Etcd("node1", "node2", "removed")

    def ask(_settings: Any, act: Callable[[Etcd], Any]) -> Any:
        started = {node for node, _args in cluster.rpc.called("ha_start")}
        etcd.keys |= {f"{NODES}{node}.example.com" for node in started}
        etcd.keys |= {MASTER_KEY} if started else set()
        return asyncio.run(act(etcd))

    monkeypatch.setattr(availability, "ask_etcd", ask)
    monkeypatch.setattr(clock, "pause", lambda _seconds: None)
    cluster.rpc.answers |= {"ha_look": [], "ha_stop": None, "ha_start": None}
    cluster.execute("OP_CLUSTER_SET_AVAILABILITY", enabled=True, endpoints=["http://127.0.0.1:1"])
    names = [f"node{number}.example.com" for number in (1, 2, 3)]
    assert etcd.keys == {MASTER_KEY, *(f"{NODES}{name}" for name in names)}


def switched_on(cluster: FakeCluster) -> None:
    path = cluster.context.paths.high_availability
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(dumps(Settings(endpoints=["http://127.0.0.1:1"], prefix="/test/")))
    cluster.rpc.answers |= {"ha_start": None, "ha_stop_member": None}


def test_nothing_stays_of_a_node_that_is_removed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark would keep all masters from restarting anything, for ever.

    The agent that wrote its copy off would look for it every few seconds, for ever.
    """
    etcd = Etcd("node1", "node2", "node3")
    switched_on(cluster)

    def ask(_settings: Any, act: Callable[[Etcd], Any]) -> Any:
        return asyncio.run(act(etcd))

    monkeypatch.setattr(availability, "ask_etcd", ask)
    cluster.execute("OP_NODE_REMOVE", node_name="node3")
    rest = {"nodes/node3.example.com"}
    assert etcd.keys == Etcd("node1", "node2").keys | rest, "that ends by itself"


def test_a_node_is_removed_although_etcd_does_not_answer_any_more(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd = Etcd("node1", "node2", "node3")
    switched_on(cluster)

    def ask(_settings: Any, act: Callable[[Etcd], Any]) -> Any:
        if cluster.rpc.called("node_leave_cluster"):
            raise TransportError("no member answers")
        return asyncio.run(act(etcd))

    monkeypatch.setattr(availability, "ask_etcd", ask)
    cluster.execute("OP_NODE_REMOVE", node_name="node3")
    assert cluster.said("what etcd has of nodes that were removed stays: no member answers")


@pytest.mark.parametrize(
    ("op", "params"),
    [("OP_NODE_ADD", {"readd": True}), ("OP_NODE_SET_PARAMS", {"offline": False})],
    ids=["set up anew", "repaired"],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_node_that_is_taken_back_is_not_missed_before_its_agent_has_the_settings(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    op: str,
    params: dict[str, Any],
    *,
    is_there: bool,
) -> None:
    """Its helper would switch it off while it is taken in again: etcd knows its boot before."""
    etcd = Etcd("node1", "node2", "node3")
    node3 = cluster.config.node(3)
    node3["offline"] = True
    switched_on(cluster)
    monkeypatch.setattr(availability, "ask_etcd", lambda _settings, act: asyncio.run(act(etcd)))
    if not is_there:
        etcd.keys.remove("nodes/node3.example.com")
    when_forgotten: list[bool] = []

    async def change(conditions: Sequence[Unchanged], *changes: Delete) -> bool:
        if any(each.revision == 0 and each.key in etcd.keys for each in conditions):
            return False
        if changes == (Delete("guards/node3.example.com"),):
            when_forgotten.append(bool(cluster.config.node(3)["offline"]))
        etcd.keys -= {each.key for each in changes}
        return True

    monkeypatch.setattr(etcd, "change", change)
    cluster.execute(op, node_name="node3", **params)
    assert not cluster.config.node(3)["offline"]
    assert when_forgotten == ([] if is_there else [True])


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_node_that_was_the_master_is_not_removed_before_its_jobs_have_ended(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    """Its mark would go with it, and the next master would start what these jobs still start."""
    etcd = Etcd("node1", "node2") if is_silent else Etcd("node1", "node2", "node3")
    switched_on(cluster)
    monkeypatch.setattr(availability, "ask_etcd", lambda _settings, act: asyncio.run(act(etcd)))
    name = "node3.example.com"
    etcd.values[f"acting/{name}"] = dumps(Mastership(node=name, boot_id="boot").to_wire())
    with pytest.raises(OpPrereqError, match=r"^node node3.*nothing proves that its jobs"):
        cluster.execute("OP_NODE_REMOVE", node_name="node3")
    assert len(cluster.context.config.get_nodes(None)) == 3
    if is_silent:
        dead = Loss(uuid="u", node=name, boot_id="boot", proof=Proof.CONFIRMED)
        etcd.values[f"losses/{name}"] = dumps(dead.to_wire())
    else:
        del etcd.values[f"acting/{name}"]
    cluster.execute("OP_NODE_REMOVE", node_name="node3")


@pytest.mark.parametrize(("op", "name"), [("OP_NODE_REMOVE", "node3"), ("OP_NODE_ADD", "node4")])
def test_no_node_comes_or_goes_while_etcd_does_not_answer(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, op: str, name: str
) -> None:
    """Two of three nodes that live on by each other are no majority of four: both would be reset."""
    pauses: list[float] = []
    silent_s = 600.0
    etcd = Etcd("node1", "node2", "node3")
    switched_on(cluster)

    def ask(_settings: Any, act: Callable[[Etcd], Any]) -> Any:
        if sum(pauses) < silent_s:
            raise TransportError("no member answers")
        return asyncio.run(act(etcd))

    monkeypatch.setattr(availability, "ask_etcd", ask)
    monkeypatch.setattr(clock, "pause", pauses.append)
    monkeypatch.setattr(clock, "monotonic", lambda: float(sum(pauses)))
    with pytest.raises(OpPrereqError, match=r"is not known: no member answers; or type 'gnt-clus"):
        cluster.execute(op, node_name=name)
    assert len(cluster.context.config.get_nodes(None)) == 3
    assert 5 < sum(pauses) < 60, "etcd may just look for a leader"
    pauses.clear()
    silent_s = 2.0
    cluster.execute("OP_NODE_REMOVE", node_name="node3")


def test_nodes_come_and_go_only_while_most_of_them_are_there_or_dead(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others, which are cut off, may live on by a list of nodes that the master has no more."""
    etcd = Etcd("node1")
    switched_on(cluster)
    monkeypatch.setattr(availability, "ask_etcd", lambda _settings, act: asyncio.run(act(etcd)))
    for op in ("OP_NODE_REMOVE", "OP_NODE_ADD"):
        name = "node3" if op == "OP_NODE_REMOVE" else "node4"
        with pytest.raises(OpPrereqError, match=r"lease: node2\.example\.com, node3\.example"):
            cluster.execute(op, node_name=name)
    for name in ("node2.example.com", "node3.example.com"):
        dead = Loss(uuid="u", node=name, proof=Proof.CONFIRMED)
        etcd.values[f"losses/{name}"] = dumps(dead.to_wire())
    cluster.execute("OP_NODE_REMOVE", node_name="node3")


def test_a_node_is_removed_once_most_of_them_know_of_the_last_change(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Friends that count by an older list might keep one of theirs alive that is proved dead."""
    names = [f"node{number}.example.com" for number in (1, 2, 3)]
    etcd = Etcd("node1", "node2", "node3")
    pauses: list[float] = []

    def count(name: str, known: Sequence[str]) -> None:
        guard = Guard(boot_id="boot", nodes=digest_of(known))
        etcd.values[f"{GUARDS}{name}"] = dumps(guard.to_wire())

    def hear(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == hears_after:
            count(names[1], names)

    for name in names:
        count(name, names[:2])
    count(names[0], names)
    switched_on(cluster)
    monkeypatch.setattr(availability, "ask_etcd", lambda _settings, act: asyncio.run(act(etcd)))
    monkeypatch.setattr(clock, "pause", hear)
    monkeypatch.setattr(clock, "monotonic", lambda: float(sum(pauses)))
    hears_after = 0
    with pytest.raises(OpPrereqError, match=r"change of nodes: node2\.example\.com, node3") as told:
        cluster.execute("OP_NODE_REMOVE", node_name="node3")
    assert "hold their lease" not in str(told.value)
    assert sum(pauses) > 5, "agents are given some seconds to hear of it"
    pauses.clear()
    hears_after = 3
    cluster.execute("OP_NODE_REMOVE", node_name="node3")
    assert len(pauses) == 3


@pytest.mark.parametrize(
    ("op", "params", "nodes"),
    [
        ("NODE_SET_PARAMS", {"node_name": "node2", "ndparams": True}, {"node2"}),
        (
            "GROUP_SET_PARAMS",
            {"group_name": "default", "ndparams": True},
            {"node1", "node2", "node3"},
        ),
        ("CLUSTER_SET_PARAMS", {"ndparams": True}, {"node1", "node2", "node3"}),
        ("GROUP_ASSIGN_NODES", {"group_name": "far", "nodes": ["node3"]}, {"node3"}),
    ],
)
def test_the_helpers_are_those_that_nodes_have_now(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    op: str,
    params: dict[str, Any],
    nodes: set[str],
) -> None:
    """One of before would prove a node dead that it knows nothing of."""
    helper = {"oob_program": "/bin/helper"}
    cluster.config.nodegroups["far"] = make_group("far", "far", ndparams=helper)
    switched_on(cluster)
    monkeypatch.setattr(availability, "ask_etcd", lambda _settings, _act: None)
    cluster.execute(
        f"OP_{op}", **{**params, **({"ndparams": helper} if "ndparams" in params else {})}
    )
    sent = cluster.rpc.called("ha_start")
    assert [node for node, _args in sent] == ["node1", "node2", "node3"]
    for _node, ((_form, settings), *_rest) in sent:
        helpers = msgspec.json.decode(settings, type=Settings).helpers
        assert helpers == {f"{name}.example.com": "/bin/helper" for name in nodes}


def test_nodes_that_came_while_the_agents_were_told_of_others_are_not_forgotten(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its helper, its slot on the lease disk and its member of etcd would be taken away again."""
    switched_on(cluster)
    helped = make_group(ndparams={"oob_program": "/bin/helper"})
    cluster.config.nodegroups[helped["uuid"]] = helped
    etcd, alone = Etcd("node1", "node2", "node3", "node4"), availability.members_alone

    def after_another(context: JobContext) -> FileLock:
        node4 = make_node(4)
        cluster.config.nodes[node4["uuid"]] = node4
        return alone(context)

    monkeypatch.setattr(availability, "members_alone", after_another)
    monkeypatch.setattr(availability, "ask_etcd", lambda _settings, act: asyncio.run(act(etcd)))
    candidates.tell_availability(cluster.context)
    node, ((_form, settings), *_rest) = cluster.rpc.called("ha_start")[-1]
    assert node == "node4"
    assert "node4.example.com" in msgspec.json.decode(settings, type=Settings).helpers
    assert "guards/node4.example.com" in etcd.keys


def test_members_of_etcd_follow_the_size_of_the_candidate_pool(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_on(cluster)
    told: list[set[str]] = []

    def update(context: JobContext) -> None:
        nodes = lookup.all_nodes(context.config)
        told.append({node.name for node in nodes if node.master_candidate})

    monkeypatch.setattr(availability, "update", update)
    cluster.execute("OP_CLUSTER_SET_PARAMS", candidate_pool_size=1)
    assert told == [{"node1.example.com"}]
