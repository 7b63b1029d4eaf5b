"""Disks that are added to instances, taken from them and changed; every cut leads back."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import GenericError, JobCanceled, OpExecError, OpPrereqError

NAME = "web1.example.com"


def modify(cluster: FakeCluster, *changes: Any, **params: Any) -> Any:
    return cluster.execute(
        "OP_INSTANCE_SET_PARAMS", instance_name=NAME, disks=list(changes), **params
    )


def stopped(cluster: FakeCluster, **params: Any) -> FakeCluster:
    cluster.add_instance(start=False, no_install=True, disk_template="file", **params)
    return cluster


def running(cluster: FakeCluster, **params: Any) -> FakeCluster:
    cluster.add_instance(**params)
    return cluster


def disks(cluster: FakeCluster) -> list[dict[str, Any]]:
    return [cluster.config.disks[uuid] for uuid in cluster.config.instance(NAME)["disks"]]


def files(cluster: FakeCluster) -> set[str]:
    return cluster.rpc.node("node1").disks | cluster.rpc.shared


def known_files(cluster: FakeCluster) -> set[str]:
    return {disk["logical_id"][1] for disk in cluster.config.disks.values()}


@pytest.mark.shows("2.0/background/disks", "2.0/add-devices/add")
def test_a_disk_is_added_beside_the_others(cluster: FakeCluster) -> None:
    stopped(cluster)
    answer = modify(cluster, ["add", {"size": 512, "name": "data", "mode": "ro"}])
    assert answer == [("disk/1", "add:size=512,mode=ro")]
    first, second = disks(cluster)
    assert (second["size"], second["name"], second["mode"]) == (512, "data", "ro")
    assert second["iv_name"] == "disk/1"
    assert second["nodes"] == first["nodes"]
    assert second["logical_id"][1].rpartition("/")[0] == first["logical_id"][1].rpartition("/")[0]
    assert files(cluster) == known_files(cluster)
    assert len(cluster.rpc.called("blockdev_shutdown")) == 1


def test_the_instance_alone_is_locked_exclusively(cluster: FakeCluster) -> None:
    stopped(cluster)
    modify(cluster, ["add", {"size": 1}])
    exclusive = [name for name, mode in cluster.config.lock_history[0] if mode == "exclusive"]
    assert exclusive == [f"instance/{NAME}"]


@pytest.mark.shows("2.0/devices/no-shift")
def test_a_disk_in_the_middle_moves_the_others_up(cluster: FakeCluster) -> None:
    stopped(cluster, disks=[{"size": 1}, {"size": 2}])
    modify(cluster, ["add", 1, {"size": 3}])
    assert [(disk["size"], disk["iv_name"]) for disk in disks(cluster)] == [
        (1, "disk/0"),
        (3, "disk/1"),
        (2, "disk/2"),
    ]


def test_a_removed_disk_goes_with_its_data(cluster: FakeCluster) -> None:
    stopped(cluster, disks=[{"size": 1}, {"size": 2}])
    assert modify(cluster, ["remove", 0, {}]) == [("disk/0", "remove")]
    assert [disk["size"] for disk in disks(cluster)] == [2]
    assert files(cluster) == known_files(cluster)


def test_data_that_cannot_be_removed_is_named(cluster: FakeCluster) -> None:
    stopped(cluster, disks=[{"size": 1}, {"size": 2}])
    cluster.rpc.fail("blockdev_remove", text="busy")
    modify(cluster, ["remove", 0, {}])
    assert len(disks(cluster)) == 1
    assert cluster.said("remove it by hand: file loop /srv")


def test_a_detached_disk_keeps_its_data_and_comes_back(cluster: FakeCluster) -> None:
    stopped(cluster, disks=[{"size": 1}, {"size": 2, "name": "data"}])
    uuid = disks(cluster)[1]["uuid"]
    assert modify(cluster, ["detach", "data", {}]) == [("disk/1", "detach")]
    assert uuid in cluster.config.disks
    assert files(cluster) == known_files(cluster)
    assert modify(cluster, ["attach", 0, {"name": "data"}]) == [("disk/0", "attach:size=2,mode=rw")]
    assert disks(cluster)[0]["uuid"] == uuid


@pytest.mark.shows("2.0/disks/read-only", "2.0/variable-disks/toggle", "2.0/disk/access")
def test_name_and_mode_can_be_changed(cluster: FakeCluster) -> None:
    stopped(cluster, disks=[{"size": 1, "name": "x"}])
    answer = modify(cluster, ["modify", "x", {"name": "none", "mode": "ro"}])
    assert answer == [("disk.mode/0", "ro"), ("disk.name/0", None)]
    assert disks(cluster)[0].get("name") is None
    assert disks(cluster)[0]["mode"] == "ro"


def of_rbd(cluster: FakeCluster) -> dict[str, Any]:
    """Make the first disk of the instance one of template rbd, as far as the configuration goes."""
    disk = disks(stopped(cluster))[0]
    disk.update(dev_type="rbd", logical_id=["rbd", "x"], nodes=[])
    return disk


def test_parameters_of_a_disk_can_be_changed(cluster: FakeCluster) -> None:
    disk = of_rbd(cluster)
    answer = modify(cluster, ["modify", 0, {"access": "userspace"}])
    assert answer == [("disk.access/0", "userspace")]
    assert disks(cluster)[0]["params"] == {"access": "userspace"}
    assert cluster.said("changed parameters are used when the disks are activated next")
    modify(cluster, ["modify", 0, {"access": "default"}])
    assert not disks(cluster)[0]["params"]
    for change, text in (
        ({"access": "x"}, "^disk/0: rbd parameter 'access': 'x' is not one of kernelspace, user"),
        (
            {"pool": "p"},
            "^disk/0: pool cannot be changed; only mode and name and access and user-id can",
        ),
    ):
        with pytest.raises(OpPrereqError, match=text):
            modify(cluster, ["modify", 0, change])
    assert disks(cluster)[0]["uuid"] == disk["uuid"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (["add", {"size": 0}], "from 1 to"),
        (["add", {"size": -1}], "from 1 to"),
        (["add", {"size": 2**63}], "from 1 to"),
        (["add", {"size": "much"}], "is not a size"),
        (["add", {"size": 1, "nix": "1"}], "nix: not known"),
        (["add", {"size": 1, "mode": "w"}], "rw or ro"),
        (["add", {"size": 1, "dev_type": "blockdev"}], "'blockdev' is not enabled"),
        (["add", {"size": 2**21}], "violates the instance policy"),
        (["modify", 0, {"size": 5}], "gnt-instance grow-disk"),
        (["modify", 0, {"vg": "x"}], "vg cannot be changed"),
        (["attach", {"size": 1}], "by name=... or uuid=..."),
        (["attach", {"name": "a", "uuid": "b"}], "one of them"),
        (["attach", {"name": "nix"}], "no disk with name 'nix'"),
        (["detach", 7, {}], "disk 7 not found"),
    ],
)
def test_bad_input_changes_nothing(cluster: FakeCluster, change: list[Any], text: str) -> None:
    stopped(cluster)
    before = dict(cluster.config.instance(NAME)), files(cluster)
    with pytest.raises(GenericError, match=text):
        modify(cluster, change)
    assert (dict(cluster.config.instance(NAME)), files(cluster)) == before


def test_a_disk_of_another_instance_is_not_attached(cluster: FakeCluster) -> None:
    other = cluster.add_instance("web2.example.com", start=False, disk_template="file")
    stopped(cluster)
    with pytest.raises(OpPrereqError, match=r"belongs to instance 'web2\.example\.com'; detach it"):
        modify(cluster, ["attach", {"uuid": other["disks"][0]}])


def test_a_disk_elsewhere_is_not_attached(cluster: FakeCluster) -> None:
    cluster.add_instance(
        "web2.example.com",
        start=False,
        no_install=True,
        disk_template="file",
        pnode="node2",
        disks=[{"size": 1}, {"size": 1, "name": "far"}],
    )
    cluster.execute("OP_INSTANCE_SET_PARAMS", instance_name="web2", disks=[["detach", "far", {}]])
    stopped(cluster)
    with pytest.raises(OpPrereqError, match=r"is not on node 'node1.example.com'"):
        modify(cluster, ["attach", {"name": "far"}])


def test_a_diskless_instance_is_told_what_disk(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False, no_install=True, disk_template="diskless", disks=[])
    with pytest.raises(OpPrereqError, match="dev_type="):
        modify(cluster, ["add", {"size": 1}])
    modify(cluster, ["add", {"size": 1, "dev_type": "file"}])
    assert files(cluster) == known_files(cluster)
    assert disks(cluster)[0]["dev_type"] == "file"
    modify(cluster, ["remove", {}])
    assert not cluster.config.disks


# While it runs


def plugged(cluster: FakeCluster) -> list[tuple[str, str, str]]:
    """Return (change, kind, UUID) of the devices that were given and taken."""
    calls = [args for _node, args in cluster.rpc.called("hotplug_device")]
    return [(change, kind, device["uuid"]) for _instance, change, kind, device, *_ in calls]


def test_disks_of_a_running_guest_stay(cluster: FakeCluster) -> None:
    running(cluster)
    for action in ("remove", "detach"):
        with pytest.raises(OpPrereqError, match="running and uses its disks; shut it down"):
            modify(cluster, [action, 0, {}])


def test_a_running_guest_gets_its_disk_at_once(cluster: FakeCluster) -> None:
    running(cluster)
    modify(cluster, ["add", {"size": 7}], hotplug=True)
    assert plugged(cluster) == [("hotadd", "disk", disks(cluster)[1]["uuid"])]
    assert cluster.said("disk 1 was given to the running instance at pci.0/0xc")
    calls = cluster.rpc.names()
    assert calls.index("blockdev_create") < calls.index("hotplug_device")


def test_a_running_guest_gives_its_disk_up_first(cluster: FakeCluster) -> None:
    running(cluster, disks=[{"size": 1}, {"size": 2}])
    uuid = disks(cluster)[1]["uuid"]
    modify(cluster, ["remove", {}], hotplug=True)
    assert plugged(cluster) == [("hotremove", "disk", uuid)]
    calls = cluster.rpc.names()
    assert calls.index("hotplug_device") < calls.index("blockdev_remove")


def test_without_hotplug_a_guest_that_cannot_is_refused_or_warned(cluster: FakeCluster) -> None:
    running(cluster)
    cluster.rpc.fail("hotplug_supported", text="old guest")
    with pytest.raises(OpPrereqError, match="hotplug is not possible: old guest"):
        modify(cluster, ["add", {"size": 7}], hotplug=True)
    modify(cluster, ["add", {"size": 7}], hotplug_if_possible=True)
    assert cluster.said("hotplug is not possible (old guest)")
    assert len(disks(cluster)) == 2


def test_a_guest_that_refuses_a_disk_leaves_nothing_of_it(cluster: FakeCluster) -> None:
    running(cluster)
    before = files(cluster)
    cluster.rpc.fail("hotplug_device", text="no slot")
    with pytest.raises(OpExecError, match="call hotplug_device: no slot"):
        modify(cluster, ["add", {"size": 7}], hotplug=True)
    assert len(disks(cluster)) == 1
    assert files(cluster) == before == known_files(cluster)
    modify(cluster, ["add", {"size": 7}], hotplug_if_possible=True)
    assert cluster.said("the instance sees the disk when it is restarted")


def test_a_guest_that_keeps_its_disk_keeps_its_data(cluster: FakeCluster) -> None:
    running(cluster, disks=[{"size": 1}, {"size": 2}])
    before = files(cluster)
    cluster.rpc.fail("hotplug_device", text="guest does not let go")
    with pytest.raises(OpExecError, match="does not let go"):
        modify(cluster, ["remove", {}], hotplug=True)
    assert len(disks(cluster)) == 2
    assert files(cluster) == before


ADD, REMOVE, DETACH = ["add", {"size": 7}], ["remove", 0, {}], ["detach", 0, {}]
RENAME = ["modify", 0, {"name": "n"}]


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("addDisk", [RENAME, DETACH, ADD]),
        ("removeDisk", [RENAME, DETACH, REMOVE]),
        ("modifyObjects", [ADD, REMOVE, RENAME]),
        ("detachDisk", [ADD, RENAME, REMOVE, DETACH]),
    ],
)
def test_a_failure_of_the_configuration_leads_back(
    cluster: FakeCluster, method: str, changes: list[Any]
) -> None:
    stopped(cluster, disks=[{"size": 1}, {"size": 2}, {"size": 3}])
    before, held = disks(cluster), files(cluster)
    identity = [(disk["uuid"], disk["iv_name"], disk.get("name")) for disk in before]
    cluster.config.failing[method] = OpPrereqError("wconfd says no")
    with pytest.raises(OpPrereqError, match="wconfd says no"):
        modify(cluster, *changes)
    assert [(d["uuid"], d["iv_name"], d.get("name")) for d in disks(cluster)] == identity
    assert files(cluster) == held == known_files(cluster)


def test_every_cancel_leads_back_or_is_done(cluster: FakeCluster) -> None:
    stopped(cluster, disks=[{"size": 1}, {"size": 2}])
    before = [disk["uuid"] for disk in disks(cluster)]
    for cut in range(40):
        cluster.cancel_after = cut
        try:
            modify(cluster, ["add", {"size": 7}], ["add", {"size": 8}])
        except JobCanceled:
            assert [disk["uuid"] for disk in disks(cluster)] == before
        else:
            assert len(disks(cluster)) == 4
            break
        finally:
            cluster.cancel_after = None
        assert files(cluster) == known_files(cluster)
    else:
        raise AssertionError("it never got through")


# Disks that lie elsewhere


def test_a_rename_leaves_alone_what_is_not_its_own(cluster: FakeCluster) -> None:
    cluster.add_instance(
        "web2.example.com",
        start=False,
        no_install=True,
        disk_template="file",
        disks=[{"size": 1}, {"size": 2, "name": "far"}],
    )
    stopped(cluster)
    detach = ["detach", "far", {}]
    cluster.execute("OP_INSTANCE_SET_PARAMS", instance_name="web2", disks=[detach])
    rename = {"instance_name": "web2", "new_name": "web3.example.com"}
    with pytest.raises(OpPrereqError, match="does not belong to it any more"):
        cluster.execute("OP_INSTANCE_RENAME", **rename, name_check=False, ip_check=False)
    modify(cluster, ["attach", 0, {"name": "far"}])
    cluster.execute(
        "OP_INSTANCE_RENAME",
        instance_name=NAME,
        new_name="web4.example.com",
        name_check=False,
        ip_check=False,
    )
    far, own = [
        cluster.config.disks[uuid]["logical_id"][1]
        for uuid in cluster.config.instance("web4.example.com")["disks"]
    ]
    assert "/web2.example.com/" in far
    assert "/web4.example.com/" in own


def test_a_disk_that_comes_and_goes_in_one_change_is_never_given(cluster: FakeCluster) -> None:
    running(cluster)
    before = files(cluster)
    modify(cluster, ["add", {"size": 7}], ["remove", -1, {}], hotplug=True)
    assert plugged(cluster) == []
    assert files(cluster) == before == known_files(cluster)
