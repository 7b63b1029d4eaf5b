"""Exports of instances, and instances from exports."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of
from fakes.pairs import UP, add_pair, nodes_of, sides, volumes
from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.logical_units.instance.storage.copying import why_failed
from ganeti.objects.model import Node
from ganeti.protocol.export_description import DumpedDisk, ExportDescription, format_description
from ganeti.protocol.node_rpc_values import STREAM_ENDED_EARLY

NAME = "web1.example.com"
DIRECTORY = f"/var/lib/ganeti/export/{NAME}"


@pytest.fixture
def running(cluster: FakeCluster) -> FakeCluster:
    cluster.add_instance()
    return cluster


def export(cluster: FakeCluster, **params: Any) -> Any:
    return cluster.execute(
        "OP_BACKUP_EXPORT", **{"instance_name": "web1", "target_node": "node3", **params}
    )


def test_an_instance_is_stopped_dumped_started_and_described(running: FakeCluster) -> None:
    assert export(running) == (True, [True])
    disk = running.config.instance(NAME)["disks"][0]
    path = f"{DIRECTORY}+new/{disk}.dump"
    [(node, args)] = running.rpc.called("import_start")
    assert (node, args[3]) == ("node3", ["file", [path]])
    [(node, args)] = running.rpc.called("export_start")
    assert node == "node1"
    kind, [wire, index] = args[5]
    assert (kind, wire["uuid"], index) == ("script", disk, 0)
    names = running.rpc.names()
    order = ("instance_shutdown", "export_start", "instance_start", "finalize_export")
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)
    assert running.rpc.node("node1").running
    assert not running.rpc.transfers


def test_a_running_instance_is_exported_from_snapshots(running: FakeCluster) -> None:
    assert export(running, shutdown=False) == (True, [True])
    names = running.rpc.names()
    order = ("instance_snapshot_supported", "instance_snapshot", "export_note", "export_start")
    order += ("instance_snapshot_drop", "finalize_export")
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)
    assert not {"instance_shutdown", "instance_start"} & set(names)
    disk = running.config.instance(NAME)["disks"][0]
    assert running.rpc.called("export_start")[0][1][5] == ["snapshot", [disk]]
    assert running.rpc.called("export_note") == [("node3", [f"{NAME}+new", "snapshot", "", 0])]
    assert not running.rpc.node("node1").snapshots


def test_a_stopped_instance_needs_no_snapshots(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name="web1")
    assert export(running, shutdown=False) == (True, [True])
    assert "instance_snapshot" not in running.rpc.names()
    assert running.rpc.called("export_note") == [("node3", [f"{NAME}+new", "stopped", "", 0])]


def test_an_instance_on_volumes_is_down_only_while_snapshots_are_taken(pairs: FakeCluster) -> None:
    pairs.add_instance(disk_template="plain")
    assert export(pairs) == (True, [True])
    [uuid] = pairs.config.instance(NAME)["disks"]
    names = pairs.rpc.names()
    order = ("instance_shutdown", "blockdev_snapshot", "instance_start", "export_start")
    order += ("blockdev_remove", "finalize_export")
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)
    [(_, [wire, name, _size])] = pairs.rpc.called("blockdev_snapshot")
    assert (wire["uuid"], name) == (uuid, f"{uuid}.snap"), "there is one at a time"
    [(_, args)] = pairs.rpc.called("export_start")
    assert args[5][1][0]["logical_id"] == ["xenvg", name]
    assert len(pairs.rpc.node("node1").disks) == 1


def test_a_hypervisor_without_snapshots_is_told_before_anything_is_done(
    running: FakeCluster,
) -> None:
    running.rpc.fail("instance_snapshot_supported", text="snapshots are not supported")
    with pytest.raises(OpPrereqError, match=r"leave --noshutdown out.*not supported"):
        export(running, shutdown=False)
    assert "export_note" not in running.rpc.names()


def test_snapshots_that_cannot_be_dropped_cost_no_export(running: FakeCluster) -> None:
    running.rpc.fail("instance_snapshot_drop", text="QEMU is stuck")
    assert export(running, shutdown=False) == (True, [True])
    assert running.said("its next export will")


def test_snapshots_are_dropped_when_a_dump_fails(running: FakeCluster) -> None:
    running.rpc.transfer_error = "no space left"
    with pytest.raises(OpExecError, match="no space left"):
        export(running, shutdown=False)
    assert running.rpc.node("node1").running
    assert not running.rpc.node("node1").snapshots


def test_there_is_one_export_the_newest(running: FakeCluster) -> None:
    for number in (1, 2, 3):
        running.rpc.node(f"node{number}").add_export(NAME, "")
    export(running)
    removed = running.rpc.called("export_remove")
    assert sorted(removed) == [("node1", [NAME]), ("node2", [NAME])]


def test_a_failed_dump_leaves_the_instance_running(running: FakeCluster) -> None:
    running.rpc.transfer_error = "no space left"
    with pytest.raises(OpExecError, match="no space left"):
        export(running)
    assert running.rpc.node("node1").running
    assert "finalize_export" not in running.rpc.names()
    assert not running.rpc.transfers


def test_what_a_broken_export_left_is_removed(running: FakeCluster) -> None:
    running.rpc.node("node3").add_export(f"{NAME}+new", "")
    running.rpc.transfer_error = "no space left"
    with pytest.raises(OpExecError, match="no space left"):
        export(running)
    assert running.rpc.called("export_remove") == [("node3", [f"{NAME}+new"])] * 2
    assert running.rpc.names().index("export_remove") < running.rpc.names().index("import_start")


def test_an_instance_that_does_not_start_again_is_exported(running: FakeCluster) -> None:
    running.rpc.fail("instance_start", text="no memory")
    with pytest.raises(OpExecError, match=r"is exported, but cannot start .* no memory"):
        export(running)
    assert "finalize_export" in running.rpc.names()


def test_an_instance_with_snapshots_is_not_removed(kept: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match=r"cannot remove .*its snapshots \(a\) would be lost"):
        export(kept, remove_instance=True)
    assert kept.rpc.node("node1").running
    assert export(kept) == (True, [True])


def test_an_instance_is_removed_once_it_is_exported(running: FakeCluster) -> None:
    running.rpc.fail("finalize_export")
    with pytest.raises(OpExecError, match="finish the export"):
        export(running, remove_instance=True)
    assert running.config.instance(NAME)
    assert running.rpc.node("node1").running, "it is not to be lost and runs again"
    running.rpc.fail("nothing")
    export(running, remove_instance=True)
    assert not running.config.instances


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"target_node": "node9"}, "node 'node9' is not known"),
        ({"shutdown": False, "remove_instance": True}, "removed only after it was shut down"),
        ({"compress": "lzop"}, "compression 'lzop' is not supported"),
        ({"zero_free_space": True}, "hypervisor 'fake' starts no machine from a disk"),
        (
            {"mode": "remote", "incremental": True, "target_node": []},
            "one to another cluster is always full",
        ),
    ],
)
def test_what_cannot_be_exported(running: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(GenericError, match=text):
        export(running, **params)
    assert running.rpc.node("node1").running


def test_an_incremental_export_is_full_at_first_and_says_why(running: FakeCluster) -> None:
    export(running, incremental=True, shutdown=False)
    assert running.said(
        "this is a full export, with which a chain begins: node node3.example.com has no export of"
    )
    disk = running.config.instance(NAME)["disks"][0]
    [(node, args)] = running.rpc.called("import_start")
    assert (node, args[3]) == ("node3", ["increment", [f"{DIRECTORY}+new/{disk}.dump", "", ""]])
    [(_, args)] = running.rpc.called("export_start")
    assert (args[5][0], args[5][1][1:]) == ("changes", [True, False])
    [(_, noted)] = running.rpc.called("export_note")
    assert noted[3] == 0
    assert running.rpc.called("instance_record_since")[0][1][1] == noted[2]


def test_the_next_export_has_what_changed(running: FakeCluster) -> None:
    export(running, incremental=True, shutdown=False)
    running.rpc.calls.clear()
    export(running, incremental=True, shutdown=False)
    assert not running.said("nobody recorded")
    disk = running.config.instance(NAME)["disks"][0]
    dumped = f"{DIRECTORY}+new/{disk}.diff"
    [(_, args)] = running.rpc.called("import_start")
    assert args[3] == ["increment", [dumped, f"{DIRECTORY}/{disk}.sums", "cd" * 32]]
    [(_, args)] = running.rpc.called("export_start")
    assert (args[5][0], args[5][1][1:]) == ("changes", [True, True])
    export(running, incremental=True)
    assert running.said("nobody recorded where disk 0 was written since point 1: all of it is read")
    [(_, args)] = running.rpc.called("import_start")[1:]
    assert args[3][1][1] == f"{DIRECTORY}/increments/0001/{disk}.sums"
    assert [noted[3] for _, noted in running.rpc.called("export_note")] == [1, 2]


def test_records_are_kept_until_the_next_point_is_there(running: FakeCluster) -> None:
    export(running, incremental=True, shutdown=False)
    [known] = running.rpc.node("node1").records[NAME]
    running.rpc.transfer_error = "the node is gone"
    with pytest.raises(OpExecError) as failed:
        export(running, incremental=True, shutdown=False)
    assert "the chain is as it was, up to point 0; try again with" in failed.value.message
    assert "gnt-backup export --incremental --noshutdown -n node3" in failed.value.message
    assert known in running.rpc.node("node1").records[NAME]
    running.rpc.transfer_error = None
    export(running, incremental=True, shutdown=False)
    assert not running.said("nobody recorded")
    [newer] = running.rpc.node("node1").records[NAME]
    assert newer != known


@pytest.mark.parametrize("tagged", ["instance", "cluster"])
def test_an_older_chain_stays_until_the_new_one_has_the_points_to_be_kept(
    running: FakeCluster, tagged: str
) -> None:
    """A backup by schedule goes to another node once the instance is on that of its export."""
    owner = running.config.cluster if tagged == "cluster" else running.config.instance(NAME)
    owner["tags"] = ["ganeti:backup:every:1d:keep:3"]
    for node, count in (("node3", 3), ("node2", 2)):
        for _ in range(count):
            export(running, incremental=True, target_node=node)
            assert not running.rpc.called("export_remove")
    assert running.said("on node3.example.com stays until the one on node2.example.com has 3 poin")
    export(running, incremental=True, target_node="node2")
    assert running.rpc.called("export_remove") == [("node3", [NAME])]


def test_a_chain_elsewhere_or_of_another_instance_is_not_continued(running: FakeCluster) -> None:
    export(running, incremental=True)
    export(running, incremental=True, target_node="node2")
    assert running.said("; it takes the place of the one on node3.example.com")
    assert running.rpc.called("export_remove") == [("node3", [NAME])]
    running.execute("OP_INSTANCE_REMOVE", instance_name="web1")
    running.add_instance()
    export(running, incremental=True, target_node="node2")
    assert running.said("the export on node2.example.com is that of another instance web1")
    export(running, target_node="node2")
    export(running, incremental=True, target_node="node2")
    assert running.said("the export on node2.example.com was made without --incremental")


def test_a_chain_whose_checksums_are_lost_begins_anew(running: FakeCluster) -> None:
    export(running, incremental=True)
    disk = running.config.instance(NAME)["disks"][0]
    os.unlink(running.rpc.node("node3").localize(f"{DIRECTORY}/{disk}.sums"))
    export(running, incremental=True)
    assert running.said("point 0 on node3.example.com has none of its disks")


def test_any_point_of_a_chain_is_imported(running: FakeCluster) -> None:
    for _ in range(3):
        export(running, incremental=True)
    disk = running.config.instance(NAME)["disks"][0]
    running.rpc.calls.clear()
    new = {"src_path": NAME, "src_node": "node3", "nics": [], "os_type": "debian"}
    import_(running, "web2.example.com", **new)
    import_(running, "web3.example.com", src_point=0, **new)
    import_(running, "web4.example.com", src_point=1, **new)
    sources = [args[5] for _, args in running.rpc.called("export_start")]
    assert sources == [
        ["chain", [DIRECTORY, 2, f"{disk}.diff"]],
        ["chain", [DIRECTORY, 0, f"{disk}.dump"]],
        ["chain", [DIRECTORY, 1, f"{disk}.diff"]],
    ]
    with pytest.raises(OpPrereqError, match="has no point 3; it has 0, 1, 2"):
        import_(running, "web5.example.com", src_point=3, **new)


def test_a_node_of_another_version_has_whole_exports(exported: FakeCluster) -> None:
    exported.rpc.fail("export_chains", text="HTTP status 404: no such call")
    assert import_(exported)["tags"] == ["old"]
    with pytest.raises(OpPrereqError, match="has no point 1; it has none"):
        import_(exported, "web2.example.com", src_path=NAME, src_point=1)


def test_nothing_is_done_with_a_chain_whose_points_its_node_does_not_tell(
    running: FakeCluster,
) -> None:
    """An export replaced it by a full one, and an import took its oldest point for the newest."""
    for _ in range(2):
        export(running, incremental=True)
    running.rpc.calls.clear()
    running.rpc.fail("export_list", text="timed out")
    with pytest.raises(OpPrereqError, match=r"cannot look for an export of .*timed out"):
        export(running, incremental=True)
    running.rpc.fail("export_chains", text="timed out")
    with pytest.raises(OpPrereqError, match="cannot find the points of the export"):
        export(running, incremental=True)
    with pytest.raises(OpPrereqError, match="cannot find the points of the export"):
        import_(running, "web2.example.com", src_path=NAME, src_node="node3", os_type="debian")
    assert not {"finalize_export", "export_remove", "export_start"} & set(running.rpc.names())


def test_a_chain_is_shortened_beside_an_older_export_without_that_point(
    running: FakeCluster,
) -> None:
    """The job failed, again each hour where it was one of a schedule."""
    running.config.instance(NAME)["tags"] = ["ganeti:backup:every:1d:keep:9"]
    export(running, incremental=True, target_node="node2")
    for _ in range(3):
        export(running, incremental=True)
    running.rpc.calls.clear()
    with pytest.raises(OpPrereqError, match="has no point 3; it has 0"):
        running.execute("OP_BACKUP_REMOVE", instance_name=NAME, before=3)
    running.rpc.fail("export_merge", text="enough is seen")
    with pytest.raises(OpExecError, match="enough is seen"):
        running.execute("OP_BACKUP_REMOVE", instance_name=NAME, before=2)
    assert running.rpc.called("export_merge") == [("node3", [NAME, 2])]
    assert running.said(f"export {NAME} on node2.example.com has no point 2, and stays as it is")


def test_an_older_chain_stays_if_nobody_tells_how_many_points_the_new_one_has(
    running: FakeCluster,
) -> None:
    running.config.instance(NAME)["tags"] = ["ganeti:backup:every:1d:keep:1"]
    export(running, incremental=True)
    running.rpc.fail("export_chains", text="timed out")
    export(running, incremental=True, target_node="node2")
    assert running.said("the older export on node3.example.com stays: cannot find the points")
    assert not running.rpc.called("export_remove")


EXPORT = ExportDescription(
    name=NAME,
    os="debian",
    source_node="x",
    timestamp=1,
    hypervisor="fake",
    disk_template="sharedfile",
    disks=[DumpedDisk(size_mib=100, dump="a.dump", name="data", sha256="ab" * 32)],
    nics=[{"mac": "aa:00:00:11:22:33", "mode": "bridged", "link": "br7"}],
    tags=["old"],
    hvparams={"migration_mode": "live"},
    beparams={"maxmem": "256", "minmem": "256", "vcpus": "2", "auto_balance": "True"},
)


@pytest.fixture
def exported(cluster: FakeCluster) -> FakeCluster:
    describe(cluster, format_description(EXPORT))
    return cluster


def describe(cluster: FakeCluster, description: str) -> None:
    """Give all nodes an export of the instance."""
    for number in (1, 2, 3):
        cluster.rpc.node(f"node{number}").add_export(NAME, description)


def import_(cluster: FakeCluster, name: str = NAME, **params: Any) -> dict[str, Any]:
    values = {
        "instance_name": name,
        "mode": "import",
        "src_node": "node1",
        "disks": [],
        "nics": [],
        "pnode": "node2",
        "name_check": False,
        "ip_check": False,
        "start": False,
    }
    cluster.execute("OP_INSTANCE_CREATE", **{**values, **params})
    return cluster.config.instance(name)


@pytest.mark.shows(
    "2.0/restrictions/anywhere",
    "2.0/instance-parameters/two-dictionaries",
    "2.0/variable-disks/import-export",
)
def test_an_instance_comes_back_as_it_was(exported: FakeCluster) -> None:
    made = import_(exported)
    assert made["beparams"] == {"maxmem": 256, "minmem": 256, "vcpus": 2, "auto_balance": True}
    assert made["nics"][0]["mac"] == "aa:00:00:11:22:33"
    assert made["nics"][0]["nicparams"]["link"] == "br7"
    assert (made["os"], made["tags"]) == ("debian", ["old"])
    disk = exported.config.disks[made["disks"][0]]
    assert (disk["size"], disk["name"]) == (100, "data")
    [(node, args)] = exported.rpc.called("export_start")
    assert (node, args[5]) == ("node1", ["file", [f"{DIRECTORY}/a.dump", "ab" * 32]])
    assert "instance_os_add" not in exported.rpc.names()
    assert "instance_run_rename" not in exported.rpc.names()


def test_it_comes_back_with_copies_which_are_complete_before_it_is_filled(
    pairs: FakeCluster,
) -> None:
    describe(pairs, format_description(EXPORT))
    pairs.rpc.sync_steps = 3
    import_(pairs, disk_template="drbd", snode="node3", start=True)
    assert nodes_of(pairs) == ["node2", "node3"]
    assert sides(pairs) == {"node2": UP["node1"], "node3": UP["node2"]}
    [synced] = [n for n, text in enumerate(pairs.messages) if "disks are in sync" in text]
    [filled] = [n for n, text in enumerate(pairs.messages) if "filling the disks" in text]
    assert synced < filled


def test_an_import_with_copies_that_fails_leaves_nothing(pairs: FakeCluster) -> None:
    describe(pairs, format_description(EXPORT))
    pairs.rpc.fail("export_start", "node1", "the dump is gone")
    with pytest.raises(OpExecError, match="the dump is gone"):
        import_(pairs, disk_template="drbd", snode="node3")
    assert volumes(pairs) == {}
    assert NAME not in [each["name"] for each in pairs.config.instances.values()]


def test_a_disk_as_large_as_it_was_may_get_another_name(exported: FakeCluster) -> None:
    made = import_(exported, disks=[{"size": "auto", "name": "mine"}])
    disk = exported.config.disks[made["disks"][0]]
    assert (disk["size"], disk["name"]) == (100, "mine")


@pytest.mark.shows("2.0/os-scripts/optional")
def test_scripts_that_an_import_needs_are_looked_for_before_a_disk_is_made(
    exported: FakeCluster,
) -> None:
    def looked_for() -> list[str]:
        asked = [args[2] for _, args in exported.rpc.called("os_validate")]
        return [check for checks in asked for check in checks if check.startswith("script:")]

    exported.rpc.fail("os_validate", "node2", "no import script")
    with pytest.raises(OpPrereqError, match="no import script"):
        import_(exported, "web2.example.com", src_path=NAME, no_install=True)
    assert looked_for() == ["script:import", "script:rename"]
    assert not exported.rpc.called("blockdev_create")


def test_an_import_as_another_instance_is_not_backed_up_by_surprise(cluster: FakeCluster) -> None:
    policy, rest = "ganeti:backup:every:1d", ["ganeti:rehearsal", "ganeti:rehearsal:job-7"]
    tagged = replace(EXPORT, tags=["old", policy, *rest])
    describe(cluster, format_description(tagged))
    other = import_(cluster, "web2.example.com", src_path=NAME)
    assert other["tags"] == ["old"]
    assert cluster.said(f"web2.example.com does not get the tags {policy}, {', '.join(rest)}")
    assert cluster.said("'gnt-backup set-policy' gives it a policy")
    cluster.messages.clear()
    wanted = import_(cluster, "web3.example.com", src_path=NAME, tags=[policy])
    assert wanted["tags"] == [policy], "it was asked for"
    assert not cluster.said("does not get the tags")
    assert import_(cluster)["tags"] == ["old", policy], "it is the same one"
    assert cluster.said(f"{NAME} does not get the tags {', '.join(rest)}")


def test_a_copy_has_a_name_and_addresses_of_its_own(exported: FakeCluster) -> None:
    made = import_(
        exported,
        "web2.example.com",
        src_path=NAME,
        src_node="node3",
        beparams={"memory": 512},
        disks=[{"size": 200}],
        identify_defaults=True,
    )
    assert made["nics"][0]["mac"] != "aa:00:00:11:22:33"
    assert (made["beparams"]["maxmem"], made["beparams"]["minmem"]) == (512, 512)
    assert "auto_balance" not in made["beparams"]
    [(_, args)] = exported.rpc.called("instance_run_rename")
    assert args[1] == NAME
    assert [node for node, _ in exported.rpc.called("export_start")] == ["node3"]


def test_a_nic_of_a_network_is_connected_as_the_network_is_now(exported: FakeCluster) -> None:
    exported.execute("OP_NETWORK_ADD", network_name="net1", network="192.0.2.0/28")
    exported.execute(
        "OP_NETWORK_CONNECT",
        group_name="default",
        network_name="net1",
        network_mode="bridged",
        network_link="br9",
    )
    nic = {"network": "net1", "ip": "192.0.2.7", "mode": "bridged", "link": "br7"}
    export = replace(EXPORT, nics=[nic])
    describe(exported, format_description(export))
    [made] = import_(exported)["nics"]
    assert (made["ip"], made["nicparams"]["link"]) == ("192.0.2.7", "br9")


def test_without_an_operating_system_none_is_needed(exported: FakeCluster) -> None:
    describe(exported, format_description(replace(EXPORT, os="")))
    assert import_(exported)["os"] == ""
    assert "instance_run_rename" not in exported.rpc.names()


def test_nothing_is_left_of_an_import_that_fails(exported: FakeCluster) -> None:
    exported.rpc.transfer_error = "the checksum is wrong"
    with pytest.raises(OpExecError, match="the checksum is wrong"):
        import_(exported)
    assert not exported.config.instances
    assert not exported.leftovers()


@pytest.mark.shows("2.0/os-old/at-least-disks")
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"disks": [{"size": 50}]}, "50 MiB are too few"),
        ({"src_path": "/var/lib/ganeti/export/x", "src_node": None}, "give the node"),
        ({"src_node": None}, "nodes node1.*, node2.*, node3.* have an export .* name one"),
        ({"src_node": "node9"}, "not known"),
        ({"compress": "lzop"}, "lzop"),
        ({"mode": "remote-import"}, "source_instance_name is missing"),
        ({"hypervisor": "lxc"}, "lxc"),
    ],
)
def test_what_cannot_be_imported(exported: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(GenericError, match=text):
        import_(exported, **params)
    assert not exported.config.instances


def test_an_export_that_is_not_there_or_damaged(exported: FakeCluster) -> None:
    describe(exported, "[export]\nversion = 0\n")
    with pytest.raises(OpPrereqError, match="damaged"):
        import_(exported, src_node="node1")
    exported.execute("OP_BACKUP_REMOVE", instance_name=NAME)
    with pytest.raises(OpPrereqError, match="no node has an export"):
        import_(exported, src_node=None)


def test_a_wrong_name_hears_which_exports_there_are(exported: FakeCluster) -> None:
    exported.execute("OP_BACKUP_REMOVE", instance_name="other")
    assert exported.said(f"no node has an export 'other'; there are: {NAME}")
    assert not exported.rpc.called("export_remove")


def test_exports_are_removed(exported: FakeCluster) -> None:
    exported.execute("OP_BACKUP_REMOVE", instance_name=NAME)
    assert (f"instance/{NAME}", "exclusive") in exported.config.lock_history[0]
    assert len(exported.rpc.called("export_remove")) == 3
    exported.execute("OP_BACKUP_REMOVE", instance_name=NAME)
    assert exported.said("no node has an export")


@pytest.mark.parametrize(
    ("receiver", "sender", "expected"),
    [
        ((None, None), (None, None), None),
        ((0, None), (0, None), None),
        ((1, "disk full"), (None, None), "node 'in': disk full"),
        ((1, "disk full"), (1, "connection broke"), "node 'in': disk full"),
        ((1, STREAM_ENDED_EARLY), (None, None), None),
        ((1, STREAM_ENDED_EARLY), (1, "file damaged"), "node 'out': file damaged"),
        ((None, None), (1, "connection broke"), None),
        ((0, None), (1, "script failed"), "node 'out': script failed"),
        ((1, STREAM_ENDED_EARLY), (0, None), f"node 'in': {STREAM_ENDED_EARLY}"),
    ],
)
def test_who_is_to_blame(
    cluster: FakeCluster, receiver: Any, sender: Any, expected: str | None
) -> None:
    node = Node.from_wire(cluster.config.nodes[uuid_of("node1")])
    states: list[tuple[Node, dict[str, object]]] = [
        (replace(node, name=name), {"exit_status": status, "error_message": text})
        for name, (status, text) in (("in", receiver), ("out", sender))
    ]
    assert why_failed(states, patient=True) == expected
    if any(status for _, state in states if (status := state["exit_status"])):
        assert why_failed(states, patient=False) is not None


@pytest.mark.parametrize("params", [{}, {"shutdown": False}, {"incremental": True}])
@pytest.mark.parametrize("is_up", [False, True], ids=["stopped", "should run"])
def test_disks_with_copies_are_exported_of_an_instance_that_does_not_run(
    pairs: FakeCluster, params: dict[str, Any], is_up: bool
) -> None:
    """After a power cut nothing has opened them; they are as before afterwards."""
    add_pair(pairs, name="web1", start=is_up)
    if is_up:
        for node in ("node1", "node2"):
            pairs.rpc.node(node).cut_power()
            pairs.rpc.node(node).boot()
    assert sides(pairs) == {}
    export(pairs, **params)
    assert len(pairs.rpc.called("export_start")) == 1
    assert sides(pairs) == (UP if is_up else {})
