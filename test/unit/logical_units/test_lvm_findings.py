"""Problems of volumes and their groups, from the answers of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, make_node, uuid_of

from ganeti.logical_units.cluster import lvm_findings as judges
from ganeti.logical_units.cluster.group_findings import Guest
from ganeti.objects.model import Cluster, Disk, Instance, Node

UUID = "0a1b2c3d-0000-4000-8000-000000000000"
NODE = "node1.example.com"


@pytest.fixture(autouse=True)
def _with_group(cluster: FakeCluster) -> None:
    cluster.config.cluster.update(volume_group_name="xenvg", reserved_lvs=["xenvg/root|xenvg/swap"])


def settings(cluster: FakeCluster) -> Cluster:
    return Cluster.from_wire(cluster.config.cluster)


def told(findings: Any) -> list[tuple[str, str, str]]:
    return [(each.code.value, each.item, each.text) for each in findings]


def groups(answer: dict[str, object]) -> list[tuple[str, str, str]]:
    return told(judges.judge_groups(Node.from_wire(make_node(1)), "xenvg", answer))


def pv(name: str, size: float = 100000.0, attributes: str = "a--") -> dict[str, object]:
    return {"name": name, "vg_name": "xenvg", "size": size, "attributes": attributes}


def test_only_a_cluster_with_a_group_asks(cluster: FakeCluster) -> None:
    asked = judges.checks(settings(cluster), exclusive=False)
    assert asked == {"vglist": None, "lvlist": "xenvg", "pvlist": ["xenvg"]}
    assert judges.checks(settings(cluster), exclusive=True) == {**asked, "exclusive-pvs": True}
    cluster.config.cluster["volume_group_name"] = None
    assert judges.checks(settings(cluster), exclusive=True) == {}


def test_groups_of_a_node() -> None:
    assert groups({"vglist": {"xenvg": 50000}, "pvlist": [pv("/dev/sda1")]}) == []
    [missing] = groups({"vglist": {"other": 50000}})
    assert missing[:2] == ("ENODELVM", NODE)
    assert "no volume group 'xenvg' (it has: other)" in missing[2]
    [small] = judges.judge_groups(Node.from_wire(make_node(1)), "xenvg", {"vglist": {"xenvg": 9}})
    assert (small.severity.value, "9 MiB, less than 20480" in small.text) == ("WARNING", True)
    [silent] = groups({"vglist": "vgs: broken"})
    assert silent[2] == "cannot look at volume groups: vgs: broken"


def test_physical_volumes_of_a_node() -> None:
    [lost] = groups({"pvlist": [pv("[unknown]", attributes="a-m")]})
    assert f"gnt-node repair-storage {NODE} lvm-vg xenvg" in lost[2]
    [colon] = groups({"pvlist": [pv("/dev/disk/by-path/pci:1")]})
    assert "has a colon in its name" in colon[2]
    [shared] = groups({"exclusive-pvs": [["/dev/sda1", ["a", "b"]]]})
    assert "share physical volume /dev/sda1: a, b" in shared[2]


def test_physical_volumes_of_one_size_may_differ_by_little(cluster: FakeCluster) -> None:
    group = cluster.config.get_node_groups()[0]
    alike = {"a": {"pvlist": [pv("/dev/sda1")]}, "b": {"pvlist": [pv("/dev/sda1", 99500)]}}
    assert told(judges.judge_sizes(group, alike)) == []
    [unlike] = told(judges.judge_sizes(group, {**alike, "c": {"pvlist": [pv("/dev/x", 90000)]}}))
    assert unlike[:2] == ("EGROUPDIFFERENTPVSIZE", group.name)
    assert "90000 MiB on node c, 100000 MiB on node a" in unlike[2]
    assert told(judges.judge_sizes(group, {})) == []


def volumes(
    cluster: FakeCluster, found: object, *, is_busy: bool = False, with_guest: bool = True
) -> list[tuple[str, str, str]]:
    disk = Disk.from_wire(
        {
            "uuid": "d1",
            "dev_type": "plain",
            "logical_id": ["xenvg", f"{UUID}.disk0"],
            "size": 4,
            "iv_name": "disk/0",
            "nodes": [uuid_of("node1")],
            "serial_no": 1,
            "ctime": 1.0,
            "mtime": 1.0,
        }
    )
    name = "web1.example.com"
    if name not in [each["name"] for each in cluster.config.instances.values()]:
        cluster.add_instance()
    wire = cluster.config.instance(name)
    instance = Instance.from_wire({**wire, "disks": ["d1"]})
    return told(
        judges.judge_volumes(
            settings(cluster),
            [Guest(instance, [disk])] if with_guest else [],
            [disk],
            {NODE: {"lvlist": found}},
            node_names={uuid_of("node1"): NODE},
            is_busy=is_busy,
        )
    )


def test_volumes_of_instances(cluster: FakeCluster) -> None:
    own = f"xenvg/{UUID}.disk0"
    state = ["4.00", False, False]
    assert volumes(cluster, {own: state, "xenvg/root": state, "xenvg/swap": state}) == []
    [(code, item, text)] = volumes(cluster, {})
    assert (code, item) == ("EINSTANCEMISSINGDISK", "web1.example.com")
    assert f"volume {own} of disk/0 is missing on node {NODE}" in text
    assert volumes(cluster, {}, with_guest=False) == []  # a job works on it
    [(code, item, text)] = volumes(cluster, "lvs: broken")
    assert (code, item, text) == ("ENODELVM", NODE, "cannot look at logical volumes: lvs: broken")


def test_volumes_that_belong_to_nothing(cluster: FakeCluster) -> None:
    own, stray, new = f"xenvg/{UUID}.disk0", "xenvg/rooted", f"xenvg/{UUID}.disk1"
    state = ["4.00", False, False]
    found = volumes(cluster, {own: state, stray: state, new: state})
    assert [(code, text.split()[1]) for code, _item, text in found] == [
        ("ENODEORPHANLV", new),
        ("ENODEORPHANLV", stray),
    ]
    busy = volumes(cluster, {own: state, stray: state, new: state}, is_busy=True)
    assert [text.split()[1] for _code, _item, text in busy] == [stray]
