"""Volume groups that are put right, alone and when asked; the repair of one instance."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.node.volume_group_repair import Action, Groups, Health, decide

NAME = "web1.example.com"
NODES = ("node1.example.com", "node2.example.com", "node3.example.com")

healths = st.sampled_from(Health)
names = st.frozensets(st.sampled_from(NODES))
looks = st.builds(
    lambda broken, silent: Groups(dict.fromkeys(broken - silent, "xenvg: one is missing"), silent),
    names,
    names,
)
uncopied_disks = st.lists(st.sampled_from(["disk/0 of instance a", "disk/1 of instance b"]))


@pytest.mark.shows("2.0/lvm-repair/vgreduce", "2.1/fix-vg/safe")
@given(healths, looks, uncopied_disks)
def test_only_one_that_has_just_failed_and_whose_data_is_elsewhere_is_put_right(
    before: Health, groups: Groups, uncopied: list[str]
) -> None:
    decision = decide(before, groups, uncopied)
    is_safe = (
        before is Health.GOOD and len(groups.broken) == 1 and not groups.silent and not uncopied
    )
    assert (decision.action is Action.REPAIR) == is_safe
    assert decision.node in groups.broken if is_safe else decision.node == ""
    if groups.silent:
        assert (decision.action, decision.health) == (Action.NOTHING, before)
    else:
        assert decision.health is (Health.BAD if groups.broken else Health.GOOD)
    assert (decision.action is Action.NOTHING) == (decision.health is before)
    assert decision.line.startswith(f"volume-group-repair: action={decision.action} health=")
    for name in (*groups.broken, *groups.silent):
        assert groups.silent or name in decision.why + decision.node


@given(healths, st.lists(st.tuples(looks, uncopied_disks), max_size=12))
def test_between_two_repairs_all_groups_were_good(
    health: Health, seen: list[tuple[Groups, list[str]]]
) -> None:
    repairs = []
    for number, (groups, uncopied) in enumerate(seen):
        decision = decide(health, groups, uncopied)
        health = decision.health
        if decision.action is Action.REPAIR:
            repairs.append(number)
    for first, second in itertools.pairwise(repairs):
        between = [groups for groups, _ in seen[first + 1 : second]]
        assert any(not groups.broken and not groups.silent for groups in between)


# The units.


def mirrored(cluster: FakeCluster, *, active: bool = True) -> dict[str, Any]:
    """Make the disk of an instance on node1 one of DRBD with its copy on node2."""
    cluster.config.cluster["volume_group_name"] = "xenvg"
    instance = cluster.add_instance(disk_template="file", disks=[{"size": 64}])
    disk = cluster.config.disks[instance["disks"][0]]
    one, two = uuid_of("node1"), uuid_of("node2")
    child = {"size": 64, "serial_no": 1, "dev_type": "plain", "nodes": [one, two]}
    disk.update(
        dev_type="drbd",
        logical_id=[one, two, 11000, 0, 0, "secret"],
        nodes=[one, two],
        children=[
            {**child, "uuid": f"child-{part}", "logical_id": ["xenvg", part]}
            for part in ("data", "meta")
        ],
    )
    instance["disks_active"] = active
    return disk


class Storage:
    """What nodes say of their volume groups and of their disks."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.broken: set[str] = set()  # nodes whose group lacks a physical volume
        self.faulty: dict[str, int] = {}  # node -> status of its side of the disks
        self.lost: dict[str, set[str]] = {}  # node -> disks that it does not have
        rpc: Any = cluster.rpc
        rpc.do_storage_list = self._units
        rpc.do_storage_execute = self._repair
        rpc.do_blockdev_getmirrorstatus_multi = self._states

    def _units(self, node: Any, _type: str, args: Any, name: str, fields: list[str]) -> Any:
        short = node.name.partition(".")[0]
        if fields == ["size"]:
            return [[100 if name == "xenvg" else None]]
        assert fields == ["name", "status"]
        return [["xenvg", "one is missing" if short in self.broken else "ok"]]

    def _repair(self, node: Any, kind: str, _args: Any, name: str, op: str) -> None:
        assert (kind, name, op) == ("lvm-vg", "xenvg", "fix-consistency")
        self.broken.discard(node.name.partition(".")[0])

    def _states(self, node: Any, disks: list[Any]) -> Any:
        short = node.name.partition(".")[0]
        return [
            [False, "it is not there"]
            if disk["uuid"] in self.lost.get(short, ())
            else [True, ["/dev/x", 147, 0, None, None, False, self.faulty.get(short, 1)]]
            for disk in disks
        ]


def look(cluster: FakeCluster) -> Any:
    return cluster.execute("OP_CLUSTER_REPAIR_VOLUME_GROUPS")


def remembered(cluster: FakeCluster) -> str:
    return Path(cluster.context.paths.volume_group_health).read_text(encoding="ascii").strip()


@pytest.mark.shows("2.0/lvm-repair/vgreduce", "2.0/lvm-repair/logged")
def test_a_group_that_fails_is_put_right_once(cluster: FakeCluster) -> None:
    mirrored(cluster)
    storage = Storage(cluster)
    assert look(cluster)["action"] == "remember"
    assert remembered(cluster) == "good"
    assert look(cluster)["action"] == "nothing"
    storage.broken = {"node1"}
    assert look(cluster) == {
        "health": "bad",
        "action": "repair",
        "why": "xenvg: one is missing",
        "jobs": [(True, 100)],
    }
    assert cluster.said(
        "volume-group-repair: action=repair health=bad node=node1.example.com: xenvg: one is"
    )
    assert remembered(cluster) == "bad"
    [[op]] = cluster.jobs
    assert (op.node_name, op.storage_type, op.name) == (NODES[0], "lvm-vg", "xenvg")
    assert look(cluster)["action"] == "nothing"  # bad, and was bad
    assert len(cluster.jobs) == 1
    cluster.execute(
        "OP_REPAIR_NODE_STORAGE", node_name=op.node_name, storage_type="lvm-vg", name=op.name
    )
    assert not storage.broken
    assert look(cluster)["action"] == "remember"
    assert remembered(cluster) == "good"


def test_nothing_is_done_where_data_may_be_lost(cluster: FakeCluster) -> None:
    mirrored(cluster)
    storage = Storage(cluster)
    look(cluster)
    storage.broken, storage.faulty = {"node1"}, {"node2": 4}
    assert (look(cluster)["action"], cluster.jobs) == ("remember", [])
    assert cluster.said(f"no good copy of disk/0 of instance {NAME}")


def test_a_new_master_does_nothing_to_a_group_that_is_bad(cluster: FakeCluster) -> None:
    mirrored(cluster)
    Storage(cluster).broken = {"node1"}
    assert (look(cluster)["action"], cluster.jobs) == ("remember", [])
    assert cluster.said("it is not known whether it ever was")


def test_a_cluster_without_a_volume_group_has_nothing_to_repair(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="gnt-cluster modify --vg-name"):
        look(cluster)


@pytest.mark.shows("2.1/fix-vg/repair", "2.1/fix-vg/safe")
@pytest.mark.parametrize(
    ("broken", "faulty", "text"),
    [
        ({"node1"}, {"node2": 4}, "no good copy elsewhere of disk/0 of instance web1.example.com"),
        ({"node1"}, {"node2": 2}, "no good copy elsewhere"),
        ({"node1", "node2"}, {}, "that of node 'node2.example.com' is not consistent either: xen"),
        ({"node1", "node3"}, {}, None),  # node3 has no instance in common
    ],
)
def test_a_group_is_put_right_only_when_all_data_is_good_elsewhere(
    cluster: FakeCluster, broken: set[str], faulty: dict[str, int], text: str | None
) -> None:
    mirrored(cluster)
    storage = Storage(cluster)
    storage.broken, storage.faulty = set(broken), faulty
    repair = {"node_name": "node1", "storage_type": "lvm-vg", "name": "xenvg"}
    if text is not None:
        with pytest.raises(OpPrereqError, match=text) as caught:
            cluster.execute("OP_REPAIR_NODE_STORAGE", **repair)
        assert caught.value.ecode == "wrong_state"
        assert storage.broken == broken
        cluster.execute("OP_REPAIR_NODE_STORAGE", **repair, ignore_consistency=True)
    else:
        cluster.execute("OP_REPAIR_NODE_STORAGE", **repair)
        assert (f"node/{uuid_of('node1')}", "exclusive") in cluster.config.lock_history[-1]
    assert storage.broken == broken - {"node1"}


@pytest.mark.shows("2.1/repair/replace", "2.1/disk-status/broken")
@pytest.mark.parametrize("part", ["disk", "child-meta"])
def test_a_disk_that_is_broken_on_the_primary_node_is_replaced(
    cluster: FakeCluster, part: str
) -> None:
    disk = mirrored(cluster)
    Storage(cluster).lost = {"node1": {disk["uuid"] if part == "disk" else part}}
    answer = cluster.execute("OP_INSTANCE_REPAIR", instance_name=NAME)
    assert list(map(tuple, answer["disks"])) == [
        (0, NODES[0], "broken", "it is not there"),
        (0, NODES[1], "good", ""),
    ]
    assert list(map(tuple, answer["jobs"])) == [(True, 100)]
    [[op]] = cluster.jobs
    assert (op.instance_name, op.mode, op.disks) == (NAME, "replace_on_primary", [0])


def test_a_group_that_is_not_there_is_named_with_its_node(cluster: FakeCluster) -> None:
    Storage(cluster)
    for ignore in (False, True):
        with pytest.raises(
            OpPrereqError, match=r"no volume group 'nix' on node 'node1\.example\.com'"
        ):
            cluster.execute(
                "OP_REPAIR_NODE_STORAGE",
                node_name="node1",
                storage_type="lvm-vg",
                name="nix",
                ignore_consistency=ignore,
            )


def test_what_cannot_be_repaired_here_is_told(cluster: FakeCluster) -> None:
    mirrored(cluster)
    storage = Storage(cluster)
    storage.faulty = {"node2": 4}
    assert not cluster.execute("OP_INSTANCE_REPAIR", instance_name=NAME)["jobs"]
    assert cluster.said("disk 0 on node node2.example.com is broken")
    assert cluster.said(f"'gnt-instance replace-disks -n NODE {NAME}'")
    storage.faulty = {"node1": 4, "node2": 2}
    with pytest.raises(OpPrereqError, match="no other node has good data of it"):
        cluster.execute("OP_INSTANCE_REPAIR", instance_name=NAME)
    storage.faulty = {}
    cluster.rpc.fail("blockdev_getmirrorstatus_multi", "node1")
    assert not cluster.execute("OP_INSTANCE_REPAIR", instance_name=NAME)["jobs"]
    assert cluster.said("disk 0 on node node1.example.com is unknown: no answer")
    assert not cluster.jobs


def test_an_instance_that_cannot_be_looked_at_is_not_repaired(cluster: FakeCluster) -> None:
    mirrored(cluster, active=False)
    with pytest.raises(OpPrereqError, match="gnt-instance activate-disks web1"):
        cluster.execute("OP_INSTANCE_REPAIR", instance_name=NAME)
    cluster.add_instance("plain.example.com", disk_template="file")
    with pytest.raises(OpPrereqError, match="keeps no copies to repair from"):
        cluster.execute("OP_INSTANCE_REPAIR", instance_name="plain")
