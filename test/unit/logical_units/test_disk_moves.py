"""Instances whose disks are copied to another node; disks that grow and that are made anew.

The job is killed at every step: at most one copy runs, and the data is where the configuration says.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes.cuts import every_kill
from fakes.fake_cluster import FakeCluster, make_group, uuid_of

from ganeti.base.errors import GenericError, JobCanceled, OpExecError, OpPrereqError
from ganeti.logical_units import processor
from ganeti.logical_units.instance.storage.copying import progress_text
from ganeti.logical_units.instance.storage.units import grown_size
from ganeti.logical_units.locks import take_locks, union
from ganeti.opcodes.registry import decode_opcode

NAME = "web1.example.com"
DATA = "what the guest wrote"


class Killed(BaseException):
    """The job process is gone: nothing of it runs any more."""


@pytest.fixture
def running(cluster: FakeCluster) -> FakeCluster:
    """A cluster with one instance that runs on node1 and has two disks with data."""
    cluster.add_instance(disk_template="file", disks=[{"size": 64}, {"size": 8}])
    node = cluster.rpc.node("node1")
    node.data = dict.fromkeys(node.disks, DATA)
    return cluster


def move(cluster: FakeCluster, **params: Any) -> None:
    wanted = {"instance_name": NAME, "target_node": "node2", **params}
    cluster.execute("OP_INSTANCE_MOVE", **wanted)


def where_it_runs(cluster: FakeCluster) -> list[str]:
    return [name for name, node in cluster.rpc.nodes.items() if NAME in node.running]


def check_data(cluster: FakeCluster) -> None:
    """Check that the disks are complete on the node that the configuration names."""
    primary = cluster.config.instance(NAME)["primary_node"]
    node = cluster.rpc.node(cluster.config.nodes[primary]["name"])
    for uuid in cluster.config.instance(NAME)["disks"]:
        disk = cluster.config.disks[uuid]
        assert disk["nodes"] == [primary]
        assert node.data[disk["logical_id"][1]] == DATA


def test_a_move_takes_the_data_along(running: FakeCluster) -> None:
    move(running)
    assert where_it_runs(running) == ["node2.example.com"]
    assert running.config.instance(NAME)["primary_node"] == uuid_of("node2")
    check_data(running)
    source = running.rpc.node("node1")
    assert not (source.disks)
    assert not (source.directories)
    assert not (running.rpc.transfers)
    assert running.said("* copying disk 1 (8 MiB) from node1.example.com to node2.example.com")


def test_the_locks_are_the_instance_and_both_nodes(running: FakeCluster) -> None:
    move(running)
    (request,) = running.config.lock_history
    assert request == [
        ("cluster/BGL", "shared"),
        (f"instance/{NAME}", "exclusive"),
        ("node/" + uuid_of("node1"), "shared"),
        ("node/" + uuid_of("node2"), "shared"),
        ("node-res/" + uuid_of("node1"), "exclusive"),
        ("node-res/" + uuid_of("node2"), "exclusive"),
    ]


def test_a_stopped_instance_stays_stopped(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    move(running)
    assert where_it_runs(running) == []
    check_data(running)


@pytest.mark.shows("2.0/lock-code/check-then-work")
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"target_node": "node1"}, "is the primary node"),
        ({"target_node": "nix"}, "'nix' is not known"),
        ({"compress": "lzop"}, "compression 'lzop' is not supported"),
    ],
)
def test_bad_input_stops_nothing(running: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        move(running, **params)
    assert where_it_runs(running) == ["node1.example.com"]


def test_what_other_nodes_reach_is_not_copied(cluster: FakeCluster) -> None:
    cluster.add_instance(disk_template="sharedfile")
    with pytest.raises(OpPrereqError, match="use 'gnt-instance migrate' or 'failover'"):
        move(cluster)


def test_a_lost_disk_is_told_before_anything_stops(running: FakeCluster) -> None:
    running.rpc.node("node1").disks.clear()
    with pytest.raises(OpPrereqError, match=r"disk 0 .* does not exist on node 'node1"):
        move(running)
    assert where_it_runs(running) == ["node1.example.com"]


BEFORE_RECORD = ["file_storage_dir_create", "blockdev_create", "import_start", "export_start"]


@pytest.mark.parametrize("call", BEFORE_RECORD)
def test_a_failure_on_the_way_leads_back(running: FakeCluster, call: str) -> None:
    running.rpc.fail(call, text="no space")
    with pytest.raises(OpExecError, match=f"call {call}: no space"):
        move(running)
    assert where_it_runs(running) == ["node1.example.com"]
    check_data(running)
    target = running.rpc.node("node2")
    assert not (target.disks)
    assert not (target.directories)
    assert not (running.rpc.transfers)
    assert running.said("runs on node node1.example.com again")


def test_a_broken_copy_leads_back_with_its_reason(running: FakeCluster) -> None:
    running.rpc.transfer_error = "the checksum is wrong"
    with pytest.raises(OpExecError, match=r"node 'node2\.example\.com': the checksum is wrong"):
        move(running)
    assert where_it_runs(running) == ["node1.example.com"]
    assert not running.rpc.node("node2").disks


def test_a_failed_start_says_where_it_is(running: FakeCluster) -> None:
    running.rpc.fail("instance_start", "node2", "no memory")
    with pytest.raises(OpExecError, match=r"are on node node2\.example\.com now, and it is down"):
        move(running)
    assert where_it_runs(running) == []
    check_data(running)


def test_old_disks_that_stay_are_told(running: FakeCluster) -> None:
    running.rpc.fail("blockdev_remove", "node1", "busy")
    move(running)
    assert running.said("old disks of instance web1.example.com are left on node node1")
    assert where_it_runs(running) == ["node2.example.com"]
    move(running, target_node="node3")
    # What was left is no reason to fail when the instance comes back.
    running.rpc.failure = lambda _node, _call, _args: None
    move(running, target_node="node1")
    assert running.said("node node1.example.com has remains of disk 0 of an earlier try")
    check_data(running)


def test_a_disk_of_somebody_else_is_not_removed(running: FakeCluster) -> None:
    """An adopted file keeps the name that its owner gave it; the target may have such a one."""
    disk = running.config.disks[running.config.instance(NAME)["disks"][0]]
    source, target = running.rpc.node("node1"), running.rpc.node("node2")
    adopted = "/srv/ganeti/file-storage/databases/orders"
    old = disk["logical_id"][1]
    disk["logical_id"] = ["loop", adopted]
    source.disks = {adopted if path == old else path for path in source.disks}
    source.data[adopted] = source.data.pop(old)
    target.disks.add(adopted)
    target.data[adopted] = "of somebody else"
    with pytest.raises(OpExecError, match=r"may be somebody else's.*'rm' or 'mv'"):
        move(running)
    assert target.disks == {adopted}
    assert target.data[adopted] == "of somebody else"
    assert where_it_runs(running) == ["node1.example.com"]
    check_data(running)


def test_every_cancel_leads_back(running: FakeCluster) -> None:
    for cut in range(60):
        running.cancel_after = cut
        try:
            move(running)
        except JobCanceled:
            assert where_it_runs(running) == ["node1.example.com"]
            check_data(running)
            assert not running.rpc.node("node2").disks
        else:
            assert cut > 3
            return
    raise AssertionError("it never got through")


def kill_at(cluster: FakeCluster, cut: int) -> None:
    """Let the job die at its so-manieth call of a node or of the configuration."""
    left = cut

    def step(*_args: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    cluster.rpc.failure = step  # type: ignore[assignment]  # returns None: it does not fail
    invoke = type(cluster.config).invoke

    def die(call: Any, args: Any) -> Any:
        step()
        return invoke(cluster.config, call, args)

    cluster.config.invoke = die  # type: ignore[method-assign]


def revive(cluster: FakeCluster) -> None:
    del cluster.config.invoke
    cluster.rpc.failure = lambda _node, _call, _args: None
    cluster.config.free_everything()
    cluster.rpc.transfers.clear()


def test_a_job_that_is_killed_leaves_one_copy_and_can_be_repeated(running: FakeCluster) -> None:
    for cut in range(100):
        kill_at(running, cut)
        try:
            move(running)
        except Killed:
            pass
        else:
            assert cut > 20
            return
        finally:
            revive(running)
        assert len(where_it_runs(running)) <= 1
        check_data(running)
        primary = running.config.instance(NAME)["primary_node"]
        if primary == uuid_of("node2"):
            running.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
            move(running, target_node="node1")
        else:
            move(running)
            check_data(running)
            move(running, target_node="node1")
        assert where_it_runs(running) == ["node1.example.com"]
        check_data(running)
    raise AssertionError("it never got through")


def test_progress_is_told_in_words() -> None:
    state = {
        "progress_percent": 25.0,
        "progress_mbytes": 16.0,
        "progress_throughput": 8.0,
        "progress_eta": 6.0,
    }
    assert progress_text(1, state) == ("* disk 1: 25.0 % (16.0 MiB of data, 8.0 MiB/s, 6 s left)")
    assert progress_text(0, {}) == "* disk 0: no data yet"


# Between node groups


def other_group(cluster: FakeCluster, template: str, **params: object) -> None:
    """Put node3 into a group of its own, with other disk parameters."""
    cluster.config.nodegroups["east"] = make_group("east", "east", diskparams={template: params})
    cluster.config.node(3)["group"] = "east"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_disk_is_made_by_the_parameters_of_its_new_group(
    pairs: FakeCluster, is_lost: bool
) -> None:
    other_group(pairs, "plain", stripes=3)
    pairs.add_instance(disk_template="plain", start=False)
    if is_lost:
        pairs.rpc.node("node1").disks.clear()
        pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME, nodes=["node3"])
    else:
        move(pairs, target_node="node3")
    [(node, (wire, *_))] = pairs.rpc.called("blockdev_create")
    assert (node, wire["params"]) == ("node3", {"stripes": 3})


@pytest.mark.parametrize("op_id", ["OP_INSTANCE_FAILOVER", "OP_INSTANCE_MIGRATE"])
def test_a_group_that_looks_elsewhere_for_shared_disks_is_refused(
    cluster: FakeCluster, op_id: str
) -> None:
    cluster.config.cluster["enabled_disk_templates"].append("gluster")
    cluster.config.cluster["ipolicy"]["disk-templates"].append("gluster")
    other_group(cluster, "gluster", volume="other")
    cluster.add_instance(disk_template="gluster")
    cluster.execute(op_id, instance_name=NAME, target_node="node2")
    assert not cluster.rpc.called("blockdev_find")
    cluster.rpc.answers["blockdev_find"] = None
    with pytest.raises(
        OpPrereqError, match=r"of its node group 'east' lead elsewhere .* disk 0 is"
    ):
        cluster.execute(op_id, instance_name=NAME, target_node="node3")
    [(node, [wire])] = cluster.rpc.called("blockdev_find")
    assert (node, wire["params"]["volume"]) == ("node3", "other")
    assert where_it_runs(cluster) == ["node2.example.com"]


# Growing


def grow(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_INSTANCE_GROW_DISK", **{"instance_name": NAME, "disk": 0, **params})


def size(cluster: FakeCluster) -> int:
    return int(cluster.config.disks[cluster.config.instance(NAME)["disks"][0]]["size"])


def test_a_disk_grows_and_the_guest_sees_it(running: FakeCluster) -> None:
    grow(running, amount=36)
    assert size(running) == 100
    grow(running, amount=128, absolute=True)
    assert size(running) == 128
    dry, real = [args[1:3] for _, args in running.rpc.called("blockdev_grow")][:2]
    assert (dry, real) == ([36, True], [36, False])
    ((_, args), _) = running.rpc.called("hotplug_device")
    assert (args[1], args[2], args[3]["size"]) == ("hotmod", "disk", 100)


def test_a_guest_that_does_not_see_it_is_told(running: FakeCluster) -> None:
    running.rpc.fail("hotplug_device", text="old guest")
    grow(running, amount=1)
    assert size(running) == 65
    assert running.said("does not see the new size yet (old guest); restart it")


@pytest.mark.parametrize(
    ("amount", "absolute", "text"),
    [
        (0, False, "nothing to grow"),
        (64, True, "nothing to grow"),
        (63, True, "cannot be made smaller"),
        (2**63, False, "cannot have more than"),
        (2**21, False, "violates the instance policy"),
    ],
)
def test_sizes_that_cannot_be(running: FakeCluster, amount: int, absolute: bool, text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        grow(running, amount=amount, absolute=absolute)
    assert size(running) == 64


def test_the_node_can_refuse_before_anything_is_done(running: FakeCluster) -> None:
    running.rpc.fail("blockdev_grow", text="no space")
    with pytest.raises(OpPrereqError, match="no space"):
        grow(running, amount=1)
    assert size(running) == 64


def test_what_is_new_is_wiped_if_the_cluster_wants_that(cluster: FakeCluster) -> None:
    cluster.config.cluster["prealloc_wipe_disks"] = True
    cluster.add_instance(disk_template="file", disks=[{"size": 64}])
    grow(cluster, amount=36)
    pieces = [args[1:] for _, args in cluster.rpc.called("blockdev_wipe")]
    assert pieces[0][0] == 64
    assert sum(length for _, length in pieces) == 36


def test_what_the_guest_has_beyond_the_recorded_size_is_not_wiped(cluster: FakeCluster) -> None:
    cluster.config.cluster["prealloc_wipe_disks"] = True
    cluster.add_instance(disk_template="file", disks=[{"size": 70}])
    node = cluster.rpc.node("node1")
    [name] = node.disks
    node.sizes[name] = 96  # of extents of 32 MiB
    cluster.rpc.calls.clear()
    grow(cluster, amount=32)
    pieces = [args[1:] for _, args in cluster.rpc.called("blockdev_wipe")]
    assert (pieces[0][0], pieces[-1][0] + pieces[-1][1]) == (96, 128)


@pytest.mark.usefixtures("cluster")
def test_a_growth_to_a_size_that_died_anywhere_ends_with_that_size(tmp_path: Path) -> None:
    def make() -> FakeCluster:
        made = FakeCluster(str(tmp_path))
        made.config.cluster["prealloc_wipe_disks"] = True
        made.add_instance(disk_template="file", disks=[{"size": 64}])
        return made

    def job(cluster: FakeCluster) -> None:
        grow(cluster, amount=100, absolute=True)

    warned = 0
    for cluster in every_kill(make, job):
        node = cluster.rpc.node("node1")
        has_grown = list(node.sizes.values()) == [100]
        if size(cluster) != 100:
            cluster.messages.clear()
            job(cluster)
            assert cluster.said("what is between is not wiped, as the guest") == has_grown
            warned += has_grown
        assert (size(cluster), list(node.sizes.values())) == (100, [100])
    assert warned


def test_what_could_not_be_wiped_is_told(cluster: FakeCluster) -> None:
    cluster.config.cluster["prealloc_wipe_disks"] = True
    cluster.add_instance(disk_template="file", disks=[{"size": 64}])
    cluster.rpc.failure = lambda _node, call, args: (
        "it broke" if call == "blockdev_wipe" and args[1] > 80 else None
    )
    with pytest.raises(OpExecError, match=r"wipe disk 0 .* from MiB 84 to 100: .*overwrite it in"):
        grow(cluster, amount=36)
    assert size(cluster) == 100


def test_sizes_are_counted_once() -> None:
    assert grown_size("it", 10, 5, absolute=False) == 15
    assert grown_size("it", 10, 15, absolute=True) == 15


# Making anew


def recreate(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_INSTANCE_RECREATE_DISKS", **{"instance_name": NAME, **params})


def lose_disks(cluster: FakeCluster, count: int = 2) -> None:
    cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    for uuid in cluster.config.instance(NAME)["disks"][:count]:
        path = cluster.config.disks[uuid]["logical_id"][1]
        cluster.rpc.node("node1").disks.discard(path)


def test_lost_disks_are_made_anew(running: FakeCluster) -> None:
    lose_disks(running)
    recreate(running, disks=[[0, {"size": 128}], [1, {}]])
    assert size(running) == 128
    assert len(running.rpc.node("node1").disks) == 2


def test_what_is_there_is_never_overwritten(running: FakeCluster) -> None:
    lose_disks(running, 1)
    with pytest.raises(OpPrereqError, match=r"disk 1 .* exists on node"):
        recreate(running)
    recreate(running, disks=[0])
    assert len(running.rpc.node("node1").disks) == 2


def test_what_a_node_refuses_to_make_anew_is_not_removed(running: FakeCluster) -> None:
    """It takes the second disk for lost; the first one is made, and removed again."""
    lose_disks(running, 1)
    there = running.rpc.node("node1").disks.copy()
    running.rpc.answers["blockdev_find"] = None
    with pytest.raises(OpExecError, match=r"create disk 1 .* exists"):
        recreate(running)
    assert running.rpc.node("node1").disks == there


def test_disks_are_made_anew_elsewhere_when_their_node_is_dead(running: FakeCluster) -> None:
    running.config.node(1)["offline"] = True
    recreate(running, nodes=["node2"])
    assert running.config.instance(NAME)["primary_node"] == uuid_of("node2")
    assert len(running.rpc.node("node2").disks) == 2


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "is running on node"),
        ({"disks": [5]}, "disk 5 not found"),
        ({"disks": [0, 0]}, "named twice"),
        ({"disks": [[0, {"vg": "x"}]]}, "vg cannot be changed"),
        ({"disks": [[0, {"size": 0}]]}, "from 1 to"),
        ({"disks": [0], "nodes": ["node2"]}, "all disks must be made anew"),
        ({"nodes": ["node1", "node2"]}, "on one node, 2 were given"),
        ({"nodes": ["nix"]}, "'nix' is not known"),
    ],
)
def test_wrong_orders_are_refused(running: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        recreate(running, **params)


def test_mirrors_that_are_not_there_are_not_replaced(running: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="has no mirrored disks"):
        running.execute("OP_INSTANCE_REPLACE_DISKS", instance_name=NAME, mode="replace_on_primary")


# The whole cluster


def test_wrong_sizes_are_written_down_anew(running: FakeCluster) -> None:
    uuid = running.config.instance(NAME)["disks"][1]
    running.rpc.do_blockdev_getdimensions = (  # type: ignore[method-assign]
        lambda _node, disks: [
            [disk["size"] << (21 if disk["uuid"] == uuid else 20), None] for disk in disks
        ]
    )
    answer = running.execute("OP_CLUSTER_REPAIR_DISK_SIZES")
    assert answer == [(NAME, 1, "size", 16)]
    assert running.config.disks[uuid]["size"] == 16
    assert len(running.rpc.called("blockdev_getdimensions")) == 1


@pytest.mark.shows("2.1/repairs/programs", "2.1/disk-status/broken")
def test_missing_disks_are_found_with_one_call_per_node(running: FakeCluster) -> None:
    running.add_instance("web2.example.com", disk_template="file", pnode="node2")
    lost = running.config.disks[running.config.instance(NAME)["disks"][1]]
    running.rpc.node("node1").disks.discard(lost["logical_id"][1])
    answer = running.execute("OP_GROUP_VERIFY_DISKS", group_name="default")
    assert answer == ({}, [], {NAME: [["node1.example.com", f"disk/1 ({lost['uuid']})"]]})
    assert len(running.rpc.called("blockdev_getmirrorstatus_multi")) == 2


def test_a_disk_that_cannot_be_looked_at_is_not_missing(running: FakeCluster) -> None:
    uuids, node = running.config.instance(NAME)["disks"], running.rpc.node("node1")
    unreadable, lost = (running.config.disks[uuid]["logical_id"][1] for uuid in uuids)
    node.unreadable.add(unreadable)
    node.disks.discard(lost)
    assert running.execute("OP_GROUP_VERIFY_DISKS", group_name="default") == (
        {"node1.example.com": "cannot look at disks: it broke"},
        [],
        {NAME: [["node1.example.com", f"disk/1 ({uuids[1]})"]]},
    )


@pytest.mark.shows("2.1/storage/list")
def test_storage_units_are_listed(running: FakeCluster) -> None:
    rows = running.execute(
        "OP_NODE_QUERY_STORAGE", output_fields=["node", "type", "free"], storage_type="file"
    )
    assert rows == [[f"node{n}.example.com", "file", 7] for n in (1, 2, 3)]


@pytest.mark.shows("2.1/storage/status")
def test_a_storage_unit_that_cannot_be_used_is_listed_with_its_status(running: FakeCluster) -> None:
    units = {"node1": [[True, 7, "/f", 9, 2]], "node2": [[False, None, "/f", None, None]]}
    running.rpc.do_storage_list = (  # type: ignore[attr-defined]
        lambda node, _type, _args, _name, fields: [
            [*unit, *(["gone" if unit[3] is None else "ok"] * (len(fields) - len(unit)))]
            for unit in units[node.name.partition(".")[0]]
        ]
    )
    ask = partial(running.execute, "OP_NODE_QUERY_STORAGE", storage_type="file")
    nodes = ["node1", "node2"]
    rows = ask(output_fields=["node", "size"], nodes=nodes)
    assert rows == [["node1.example.com", 9], ["node2.example.com", None]]
    assert running.said(
        "storage unit /f of node node2.example.com cannot be used; see 'gnt-node list-storage"
        " -t file -o +status node2.example.com'"
    )
    assert ask(output_fields=["status"], nodes=nodes) == [["ok"], ["gone"]]


@pytest.mark.shows("2.1/storage/one-call")
@pytest.mark.parametrize(
    ("op_id", "params", "text"),
    [
        ("NODE_QUERY_STORAGE", {"output_fields": ["nix"]}, "unknown field"),
        (
            "NODE_QUERY_STORAGE",
            {"output_fields": ["node"], "storage_type": "ext"},
            "has no storage units",
        ),
        (
            "NODE_MODIFY_STORAGE",
            {"node_name": "node1", "storage_type": "file", "name": "x", "changes": {}},
            "nothing that can be changed",
        ),
        (
            "REPAIR_NODE_STORAGE",
            {"node_name": "node1", "storage_type": "file", "name": "x"},
            "cannot be repaired",
        ),
        ("NODE_QUERYVOLS", {"output_fields": ["nix"]}, "unknown field"),
    ],
)
def test_storage_that_cannot_be(
    running: FakeCluster, op_id: str, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OpPrereqError, match=text):
        running.execute(f"OP_{op_id}", **params)


# Converting


def convert(cluster: FakeCluster, template: str, **params: Any) -> Any:
    wanted = {"instance_name": NAME, "disk_template": template, **params}
    return cluster.execute("OP_INSTANCE_SET_PARAMS", **wanted)


@pytest.fixture
def stopped(running: FakeCluster) -> FakeCluster:
    """The same instance, shut down; storage that all nodes see is on node1 as well."""
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    return running


def test_a_conversion_takes_the_data_along(stopped: FakeCluster) -> None:
    before = stopped.config.instance(NAME)["disks"]
    assert convert(stopped, "sharedfile") == [("disk_template", "sharedfile")]
    assert stopped.config.instance(NAME)["disks"] == before
    node = stopped.rpc.node("node1")
    for index, uuid in enumerate(before):
        disk = stopped.config.disks[uuid]
        path = disk["logical_id"][1]
        assert path.startswith("/srv/ganeti/shared-file-storage/web1.example.com/")
        assert (disk["dev_type"], disk["nodes"], disk["iv_name"]) == (
            "sharedfile",
            [],
            f"disk/{index}",
        )
        assert path in stopped.rpc.shared
        assert node.data[path] == DATA
    assert not node.disks
    assert node.directories == {"/srv/ganeti/shared-file-storage/web1.example.com"}
    convert(stopped, "file", file_storage_dir="inner")
    check_data(stopped)
    assert node.directories == {"/srv/ganeti/file-storage/inner/web1.example.com"}


@pytest.mark.parametrize(
    ("template", "params", "text"),
    [
        ("file", {}, "has disk template 'file' already"),
        ("diskless", {}, "remove its disks with --disk remove"),
        ("blockdev", {}, "cannot be converted"),
        ("plain", {}, "not enabled"),
        ("sharedfile", {"disks": [["add", {"size": 1}]]}, "cannot be combined"),
        ("sharedfile", {"ext_params": {"provider": "x"}}, "for disk template 'ext' only"),
        ("ext", {}, "needs a provider"),
    ],
)
def test_conversions_that_cannot_be(
    stopped: FakeCluster, template: str, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OpPrereqError, match=text):
        convert(stopped, template, **params)
    check_data(stopped)


def test_a_running_instance_is_not_converted(running: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="is running; shut it down"):
        convert(running, "sharedfile")


def test_settings_of_new_disks_need_new_disks(stopped: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="'file_storage_dir' is for disks that are made"):
        stopped.execute("OP_INSTANCE_SET_PARAMS", instance_name=NAME, file_storage_dir="x")


def test_a_broken_conversion_leads_back(stopped: FakeCluster) -> None:
    stopped.rpc.transfer_error = "disk is broken"
    with pytest.raises(OpExecError, match="disk is broken"):
        convert(stopped, "sharedfile")
    check_data(stopped)
    assert not stopped.rpc.shared


def test_a_conversion_that_is_killed_leaves_the_data_where_it_is_named(
    stopped: FakeCluster,
) -> None:
    for cut in range(80):
        kill_at(stopped, cut)
        try:
            convert(stopped, "sharedfile")
        except Killed:
            pass
        else:
            assert cut > 15
            return
        finally:
            revive(stopped)
        node = stopped.rpc.node("node1")
        for uuid in stopped.config.instance(NAME)["disks"]:
            assert node.data[stopped.config.disks[uuid]["logical_id"][1]] == DATA
        if stopped.config.disks[uuid]["dev_type"] == "sharedfile":
            convert(stopped, "file")
    raise AssertionError("it never got through")


# Volumes of providers


PROVIDER = ["files", "/srv/ganeti/extstorage/files", True, "", [["color", "what it looks like"]]]


def add_external(cluster: FakeCluster, **settings: Any) -> None:
    disk = {"size": 8, "provider": "files", **settings}
    cluster.add_instance("web2.example.com", disk_template="ext", disks=[disk])


def test_a_volume_is_made_by_its_provider(cluster: FakeCluster) -> None:
    cluster.rpc.providers = [PROVIDER]
    add_external(cluster, color="red")
    (disk,) = cluster.config.disks.values()
    assert (disk["logical_id"][0], disk["params"], disk["nodes"]) == ("files", {"color": "red"}, [])


def test_a_provider_with_larger_units_is_told_the_size_that_was_asked_for(
    cluster: FakeCluster,
) -> None:
    cluster.rpc.providers = [PROVIDER]
    add_external(cluster, size=70)
    [volume] = cluster.rpc.shared
    cluster.rpc.node("node1").sizes[volume] = 96
    grow(cluster, instance_name="web2.example.com", amount=128, absolute=True)
    told = [wire["size"] + mib for _, (wire, mib, *_) in cluster.rpc.called("blockdev_grow")]
    assert told == [128, 128]


@pytest.mark.parametrize(
    ("provider", "settings", "text"),
    [
        (PROVIDER, {"provider": "nix"}, "'nix' is not on node .*; it has: files"),
        (PROVIDER, {"colour": "red"}, "colour: not known to .* 'files'; it has: color"),
        ([*PROVIDER[:2], False, "script grow missing", []], {}, "is broken: script grow missing"),
    ],
)
def test_providers_are_asked_first(
    cluster: FakeCluster, provider: list[Any], settings: dict[str, Any], text: str
) -> None:
    cluster.rpc.providers = [provider]
    with pytest.raises(OpPrereqError, match=text):
        add_external(cluster, **settings)
    assert not cluster.rpc.called("blockdev_create")


# Adopted devices


DEVICE = "/dev/disk/by-id/made-up"


def adopt(cluster: FakeCluster, name: str = "web2.example.com", path: str = DEVICE) -> None:
    cluster.add_instance(name, disk_template="blockdev", disks=[{"adopt": path}])


@pytest.fixture
def with_device(cluster: FakeCluster) -> FakeCluster:
    """A cluster whose nodes have a device of 32 MiB to adopt."""
    cluster.config.cluster["enabled_disk_templates"].append("blockdev")
    cluster.config.cluster["ipolicy"]["disk-templates"].append("blockdev")
    cluster.config.cluster["prealloc_wipe_disks"] = True
    cluster.rpc.devices = {DEVICE: 32}
    return cluster


@pytest.mark.shows("backend/templates/blockdev", "2.0/disk/path")
def test_a_device_is_adopted_with_its_size_and_its_data(with_device: FakeCluster) -> None:
    with_device.execute(
        "OP_INSTANCE_CREATE",
        instance_name="web2.example.com",
        mode="create",
        disk_template="blockdev",
        disks=[{"adopt": DEVICE}],
        nics=[],
        os_type="debian",
        pnode="node1",
        name_check=False,
        ip_check=False,
    )
    (disk,) = with_device.config.disks.values()
    assert (disk["logical_id"], disk["size"]) == (["manual", DEVICE], 32)
    assert not with_device.rpc.called("blockdev_wipe")
    assert not with_device.rpc.called("instance_os_add")
    assert with_device.said("adopted disks keep their data")
    assert with_device.rpc.called("instance_start")


def test_a_device_has_one_owner(with_device: FakeCluster) -> None:
    adopt(with_device)
    with pytest.raises(OpPrereqError, match=f"{DEVICE} is used by disk"):
        adopt(with_device, "web3.example.com")


def test_of_two_jobs_that_adopt_one_volume_the_second_is_refused(pairs: FakeCluster) -> None:
    """Both may have looked before one of them has it: each holds its own instance."""
    cluster, names = pairs, (NAME, "web2.example.com")
    for name in names:
        cluster.add_instance(name, start=False, no_install=True, disk_template="plain")
    node = cluster.rpc.node("node1")
    node.disks.add("xenvg/data")
    node.data["xenvg/data"], node.sizes["xenvg/data"] = "precious", 64
    cluster.rpc.answers["lv_list"] = {"xenvg/data": ("64.00", False, False)}
    units = []
    for name in names:
        op = {"instance_name": name, "disks": [["add", -1, {"adopt": "data"}]]}
        opcode = decode_opcode({"OP_ID": "OP_INSTANCE_SET_PARAMS", **op})
        unit = processor.unit_for(opcode)(cluster.context, opcode)
        units.append((unit, unit.place(unit.resolve(), None)))
    take_locks(cluster.context, union(*(processor.needed_locks(*each) for each in units)))
    (first, planned), (second, too_late) = [(unit, unit.plan(found)) for unit, found in units]
    first.execute(planned)
    with pytest.raises(
        GenericError, match=r"volume xenvg/data is used by disk .* of instance 'web1"
    ):
        second.execute(too_late)
    assert node.data["xenvg/data"] == "precious"
    assert len(cluster.config.instance(names[1])["disks"]) == 1
    assert cluster.rpc.called("blockdev_remove") == []
    cluster.config.free_locks()


def test_what_is_no_device_is_not_adopted(with_device: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="is not a block device of node 'node1"):
        adopt(with_device, path="/dev/disk/by-id/nix")
