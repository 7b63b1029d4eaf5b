"""Conversion between plain and drbd: the data volume stays; disks added and removed on both nodes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.cuts import every_kill
from fakes.fake_cluster import FakeCluster
from fakes.pairs import (
    NAME,
    UP,
    add_pair,
    cut_link,
    data_on,
    lose,
    nodes_of,
    pair_cluster,
    sides,
    volumes,
)

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError


def modify(cluster: FakeCluster, **params: Any) -> Any:
    return cluster.execute("OP_INSTANCE_SET_PARAMS", instance_name=NAME, **params)


def to_drbd(cluster: FakeCluster, **params: Any) -> None:
    modify(cluster, **{"disk_template": "drbd", "remote_node": "node2", **params})


def data_volume(cluster: FakeCluster, node: str = "node1") -> tuple[str, str]:
    found = cluster.rpc.node(node)
    [name] = [name for name in found.disks if not name.endswith("_meta")]
    return name, found.data[name]


@pytest.fixture
def plain(pairs: FakeCluster) -> FakeCluster:
    """A stopped instance with a volume on node1."""
    pairs.add_instance(disk_template="plain", start=False)
    [name] = pairs.rpc.node("node1").disks
    pairs.rpc.node("node1").data[name] = "what the guest wrote"
    return pairs


def test_there_and_back_without_a_stream(plain: FakeCluster) -> None:
    before, disks = data_volume(plain), dict(plain.config.disks)
    to_drbd(plain)
    assert nodes_of(plain) == ["node1", "node2"]
    assert data_volume(plain) == data_volume(plain, "node2") == before
    assert sides(plain) == {}
    plain.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(plain) == UP
    plain.rpc.write("and more")
    plain.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    modify(plain, disk_template="plain")
    assert nodes_of(plain) == ["node1"]
    assert volumes(plain) == {"node1": [before[0]]}
    assert data_volume(plain) == (before[0], "and more")
    [(uuid, disk)] = plain.config.disks.items()
    assert disk["logical_id"] == disks[uuid]["logical_id"]
    assert disk["children"] == []
    assert "import_start" not in plain.rpc.names()


def test_nobody_waits_if_not_asked_to(plain: FakeCluster) -> None:
    plain.rpc.sync_steps = 1000
    to_drbd(plain, wait_for_sync=False)
    assert sides(plain)["node2"] == ["Secondary connected incomplete"]
    assert plain.config.instance(NAME)["disks_active"]


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"remote_node": None}, OpPrereqError, "give both with -n"),
        ({"remote_node": "node1"}, OpPrereqError, "cannot be the primary node"),
        ({"disk_template": "plain"}, OpPrereqError, "for a conversion to disk template 'drbd'"),
    ],
)
def test_conversions_that_cannot_be(
    plain: FakeCluster, params: dict[str, Any], error: type[GenericError], text: str
) -> None:
    given = {"disk_template": "drbd", "remote_node": "node2", **params}
    with pytest.raises(error, match=text):
        modify(plain, **{name: value for name, value in given.items() if value is not None})
    assert sides(plain) == {}


@pytest.mark.parametrize("more", [1 << 20, 1 << 19])
def test_what_a_guest_has_beyond_the_recorded_size_is_not_cut_off(
    plain: FakeCluster, more: int
) -> None:
    [disk] = plain.config.disks.values()
    real = (disk["size"] << 20) + more
    plain.rpc.do_blockdev_getdimensions = lambda _node, wires: [[real, None] for _ in wires]  # type: ignore[method-assign]
    says = (
        rf"disk 0 of .* has {real / 2**20:g} MiB.* first: '.*gnt-cluster repair-disk-sizes {NAME}'"
    )
    with pytest.raises(OpPrereqError, match=says) as refused:
        to_drbd(plain)
    is_odd = more < 1 << 20
    assert (f"'lvextend --size={disk['size'] + 1}m xenvg/" in refused.value.message) == is_odd
    assert sides(plain) == {}
    if not is_odd:
        plain.execute("OP_CLUSTER_REPAIR_DISK_SIZES", instances=[NAME])
        to_drbd(plain)
        assert nodes_of(plain) == ["node1", "node2"]
        assert [each["size"] for each in plain.config.disks.values()] == [real >> 20]


def test_files_become_copies_by_way_of_volumes_and_back(pairs: FakeCluster) -> None:
    pairs.add_instance(disk_template="file", start=False)
    answer = modify(pairs, disk_template="drbd", remote_node="node2")
    assert answer == [("disk_template", "drbd")]
    assert nodes_of(pairs) == ["node1", "node2"]
    assert [len(names) for names in volumes(pairs).values()] == [2, 2]
    assert sides(pairs) == {}
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs) == UP
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    modify(pairs, disk_template="file")
    assert nodes_of(pairs) == ["node1"]
    [name] = pairs.rpc.node("node1").disks
    assert volumes(pairs) == {"node1": [name]}
    assert name.endswith(".file.disk0")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_two_steps_are_both_done_or_none(pairs: FakeCluster, *, back: bool, after: bool) -> None:
    pairs.add_instance(disk_template="file", start=False)
    [name] = pairs.rpc.node("node1").disks
    pairs.rpc.node("node1").data[name] = "what the guest wrote"
    old, new = ("drbd", "file") if back else ("file", "drbd")
    ends = set()
    for number in range(60):
        if template_of(pairs) != old:
            convert(pairs, old)
        seen = iter(range(10**6))

        def failure(
            _node: str, _call: str, _args: Any, number: int = number, seen: Any = seen
        ) -> str | None:
            return "it broke" if next(seen) == number else None

        kind = "lost_answer" if after else "failure"
        setattr(pairs.rpc, kind, failure)
        pairs.messages.clear()
        with contextlib.suppress(GenericError):
            convert(pairs, new)
        setattr(pairs.rpc, kind, lambda *_args: None)
        ends.add(template_of(pairs))
        assert "what the guest wrote" in pairs.rpc.node("node1").data.values(), pairs.messages
        known = {part for disk in pairs.config.disks.values() for part in named_by(disk)}
        for node in pairs.rpc.nodes.values():
            left = node.disks - known
            assert not left or pairs.said("by hand") or pairs.said("it broke"), (number, left)
            node.disks -= left
        assert template_of(pairs) in (old, new)
        pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
        pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    assert ends == {old, new}


def template_of(cluster: FakeCluster) -> str:
    return str(cluster.config.disks[cluster.config.instance(NAME)["disks"][0]]["dev_type"])


def convert(cluster: FakeCluster, template: str) -> None:
    node = {"remote_node": "node2"} if template == "drbd" else {}
    modify(cluster, disk_template=template, **node)


def named_by(disk: dict[str, Any]) -> list[str]:
    """Return the names of the volumes or the file that a disk of the configuration is in."""
    ids = [part["logical_id"] for part in disk["children"] or [disk]]
    return [path if path.startswith("/") else f"{group}/{path}" for group, path in ids]


def test_an_allocator_chooses_the_node_for_the_copies(plain: FakeCluster) -> None:
    asked: list[dict[str, Any]] = []

    def answer(question: dict[str, Any], _options: dict[str, Any]) -> str:
        asked.append(question["request"])
        return json.dumps({"success": True, "info": "", "result": ["node3.example.com"]})

    plain.rpc.allocators["hail"] = answer
    to_drbd(plain, remote_node=None, iallocator="hail")
    assert nodes_of(plain) == ["node1", "node3"]
    assert asked[0]["required_nodes"] == 1
    assert asked[0]["restrict-to-nodes"] == [f"node{n}.example.com" for n in (2, 3, 4)]
    assert asked[0]["disk_space_total"] == 1024 + 128
    with pytest.raises(OpPrereqError, match="give one of them"):
        to_drbd(plain, iallocator="hail")
    with pytest.raises(OpPrereqError, match="for a conversion to disk template 'drbd'"):
        modify(plain, disk_template="plain", iallocator="hail")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_a_conversion_that_fails_anywhere_loses_nothing(
    plain: FakeCluster, *, back: bool, after: bool
) -> None:
    before = data_volume(plain)
    for number in range(40):
        template = plain.config.disks[plain.config.instance(NAME)["disks"][0]]["dev_type"]
        if (template == "plain") is back:
            to_drbd(plain) if back else modify(plain, disk_template="plain")
        seen = iter(range(10**6))

        def failure(
            _node: str, _call: str, _args: Any, number: int = number, seen: Any = seen
        ) -> str | None:
            return "it broke" if next(seen) == number else None

        kind = "lost_answer" if after else "failure"
        setattr(plain.rpc, kind, failure)
        plain.messages.clear()
        try:
            modify(plain, disk_template="plain") if back else to_drbd(plain)
        except GenericError as err:
            plain.messages.append(str(err))
        setattr(plain.rpc, kind, lambda *_args: None)
        assert data_volume(plain) == before, (number, plain.messages)
        if len(nodes_of(plain)) == 1:
            left = [name for node in ("node1", "node2") for name in plain.rpc.node(node).disks]
            if left != [before[0]]:
                assert plain.said("lvremove"), (number, plain.messages)
                for node in ("node1", "node2"):
                    plain.rpc.node(node).sides.clear()
                    plain.rpc.node(node).disks &= {before[0]} if node == "node1" else set()
        else:
            plain.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
            assert sides(plain) == UP
            plain.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)


@pytest.mark.parametrize("target", ["node2", "node3"])
@pytest.mark.usefixtures("pairs")
def test_after_a_job_died_anywhere_the_next_one_does_it(tmp_path: Path, target: str) -> None:
    """The next one goes to the same node; or to another one, and the remains stay as they are."""

    def make() -> FakeCluster:
        cluster = pair_cluster(str(tmp_path))
        cluster.add_instance(disk_template="plain", start=False)
        [name] = cluster.rpc.node("node1").disks
        cluster.rpc.node("node1").data[name] = "what the guest wrote"
        return cluster

    ends = set()
    for cluster in every_kill(make, to_drbd):
        ends.add(template_of(cluster))
        if template_of(cluster) == "plain":
            to_drbd(cluster, remote_node=target)
        cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
        assert data_volume(cluster)[1] == "what the guest wrote"
        assert sides(cluster)["node1"] == UP["node1"]
        for node in nodes_of(cluster):
            assert len(cluster.rpc.node(node).disks) == 2
    assert ends == {"plain", "drbd"}


def test_a_volume_that_may_be_somebody_elses_is_left_alone(plain: FakeCluster) -> None:
    """An adopted volume keeps the name that its owner gave it; another node may have such a one."""
    [disk], node = plain.config.disks.values(), plain.rpc.node("node1")
    [old] = node.disks
    disk["logical_id"] = ["xenvg", "database"]
    node.disks.add("xenvg/database")
    node.data["xenvg/database"] = node.data.pop(old)
    node.disks.discard(old)
    stranger = plain.rpc.node("node2")
    stranger.disks.add("xenvg/database")
    stranger.data["xenvg/database"] = "of somebody else"
    with pytest.raises(OpExecError, match="may be somebody else's"):
        to_drbd(plain)
    assert stranger.disks == {"xenvg/database"}
    assert stranger.data["xenvg/database"] == "of somebody else"
    assert node.disks == {"xenvg/database"}
    to_drbd(plain, remote_node="node3")
    assert nodes_of(plain) == ["node1", "node3"]


def test_disks_are_added_and_removed_on_both_nodes(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    modify(pairs, disks=[("add", -1, {"size": 32})])
    assert [len(names) for names in volumes(pairs).values()] == [4, 4]
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs)["node2"] == UP["node2"] * 2
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    modify(pairs, disks=[("remove", 1, {})])
    assert [len(names) for names in volumes(pairs).values()] == [2, 2]


def half_lost(pair: FakeCluster) -> None:
    """The disk of node1 gives an I/O error; the guest goes on with the data of node2."""
    [side] = pair.rpc.node("node1").sides.values()
    side.lose_half()


def half_being_replaced(pair: FakeCluster) -> None:
    canceled_when(
        pair,
        lambda: sides(pair)["node1"] == ["Primary connected incomplete"],
        "OP_INSTANCE_REPLACE_DISKS",
        mode="replace_on_primary",
    )


def to_a_third_node(pair: FakeCluster) -> None:
    canceled_when(
        pair, lambda: nodes_of(pair)[0] == "node3", "OP_INSTANCE_FAILOVER", target_node="node3"
    )


def canceled_when(
    pair: FakeCluster, is_there: Callable[[], bool], op_id: str, **params: object
) -> None:
    """Cancel a job as late as it takes until that is so."""
    for number in range(60):
        pair.cancel_after = number
        with pytest.raises(GenericError):
            pair.execute(op_id, instance_name=NAME, **params)
        if is_there():
            break
    pair.cancel_after = None
    assert is_there()


@pytest.mark.parametrize("template", ["plain", "file"])
@pytest.mark.parametrize("before", [half_lost, half_being_replaced, to_a_third_node])
def test_the_only_complete_copy_is_not_given_up(
    pair: FakeCluster, before: Callable[[FakeCluster], None], template: str
) -> None:
    pair.rpc.sync_steps = 1000
    before(pair)
    pair.rpc.write("newest")
    pair.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    there, kept = volumes(pair), nodes_of(pair)
    with pytest.raises(OpExecError, match=r"wait for the data with .*failover"):
        modify(pair, disk_template=template)
    assert (volumes(pair), nodes_of(pair)) == (there, kept)
    assert sides(pair) == {}
    assert data_on(pair, "node2") == "newest"
    pair.rpc.sync_steps = 3
    pair.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME, wait_for_sync=True)
    modify(pair, disk_template=template)
    assert "newest" in pair.rpc.node(kept[0]).data.values()


def newer_on_node2(pair: FakeCluster) -> None:
    """Let node2 have a generation of the data that node1 lacks."""
    node = pair.rpc.node("node2")
    [name] = [name for name in node.metadata if name.endswith("_meta")]
    node.metadata[name].history.append(10**6)


@pytest.mark.parametrize("is_active", [False, True])
def test_sides_that_do_not_meet_are_compared(pair: FakeCluster, *, is_active: bool) -> None:
    if not is_active:
        pair.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    else:
        del pair.rpc.node("node1").running[NAME]
    cut_link(pair)
    newer_on_node2(pair)
    before = sides(pair)
    with pytest.raises(OpExecError, match=r"keep the data, it (lacks|has other)"):
        modify(pair, disk_template="plain")
    assert sides(pair) == before
    assert sorted(volumes(pair)) == ["node1", "node2"]


def test_sides_that_do_not_meet_may_have_the_same_data(pair: FakeCluster) -> None:
    pair.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    cut_link(pair)
    modify(pair, disk_template="plain")
    assert data_volume(pair)[1] == "acknowledged"
    assert list(volumes(pair)) == ["node1"]


def test_two_sides_are_given_a_moment_to_meet(pair: FakeCluster) -> None:
    pair.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    newer_on_node2(pair)
    pair.rpc.is_link_cut, wait = True, pair._wait

    def meet(seconds: float) -> None:
        wait(seconds)
        pair.rpc.is_link_cut = False
        side, other = (node.sides[0] for node in map(pair.rpc.node, ("node1", "node2")))
        if side.peer is None:
            side.meet(other)

    pair.context.wait = meet
    modify(pair, disk_template="plain")
    assert list(volumes(pair)) == ["node1"]


def test_without_the_other_node_the_own_state_decides(pair: FakeCluster) -> None:
    pair.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    lose(pair, 2)
    [metadata] = pair.rpc.node("node1").metadata.values()
    metadata.is_complete = False
    with pytest.raises(OpExecError, match="its data is not complete yet"):
        modify(pair, disk_template="plain")
    metadata.is_complete = True
    modify(pair, disk_template="plain")
    assert nodes_of(pair) == ["node1"]
    assert data_volume(pair)[1] == "acknowledged"


def test_a_node_that_does_not_answer_is_asked_before_anything_is_closed(pair: FakeCluster) -> None:
    del pair.rpc.node("node1").running[NAME]
    lose(pair, 2, offline=False)
    before = sides(pair)
    with pytest.raises(OpExecError, match="type 'gnt-node modify --offline yes node2"):
        modify(pair, disk_template="plain")
    assert sides(pair) == before
    assert "blockdev_shutdown" not in pair.rpc.names()
