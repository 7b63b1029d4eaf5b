"""Images of Ceph: what the programs say, what is made of it, and how often they are asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.network_storage import FakeCeph
from fakes.storage_records import Disk, Node

from ganeti.base.errors import BlockDeviceError, GenericError, StorageError
from ganeti.base.paths import Paths
from ganeti.objects.disk_templates import StorageType
from ganeti.storage import registry
from ganeti.storage.network import rbd
from ganeti.storage.network.rbd import RbdVolume
from ganeti.storage.qcow2 import RawView
from ganeti.system.process import CommandResult

MIB = 1 << 20
USER = {"pool": "rbd", "access": "userspace", "user-id": "ganeti"}

# Recorded from Ceph 16.2.15.
INFO = b"""{"name":"img1","id":"1022a112a881","size":67108864,"objects":16,"order":22,
"object_size":4194304,"snapshot_count":0,"block_name_prefix":"rbd_data.1022a112a881","format":2,
"features":["layering","exclusive-lock","object-map","fast-diff","deep-flatten"],"op_features":[],
"flags":[],"create_timestamp":"Mon Nov 23 14:55:25 2026"}"""
LIST = b"""[{"image":"img1","id":"1022a112a881","size":67108864,"format":2},{"image":"img1",
"id":"1022a112a881","snapshot":"s1","snapshot_id":4,"size":67108864,"format":2,"protected":"false"},
{"image":"img2","id":"10","size":1048576,"format":2,"lock_type":"exclusive"}]"""
DF = b"""
{"stats":{"total_bytes":2147483648,"total_avail_bytes":1843130368,"total_used_bytes":304353280,
"num_osds":1},"stats_by_class":{},"pools":[{"name":"rbd","id":1,"stats":{"stored":149,"objects":7,
"kb_used":20,"bytes_used":20480,"percent_used":1.179875289381016e-05,"max_avail":1735756160}}]}"""
NO_MODULE = b"""sh: 1: /sbin/modinfo: not found
sh: 1: /sbin/modprobe: not found
rbd: failed to load rbd kernel module (127)
rbd: failed to get mon address (possible ms_mode mismatch)
In some cases useful info is found in syslog - try "dmesg | tail".
rbd: map failed: (2) No such file or directory
"""
REFUSED = (
    b"2026-11-23T14:55:31.613+0000 7f10b6e376c0 -1 monclient(hunting): handle_auth_bad_method server"
    b" allowed_methods [2] but i only support [2]\n\nrbd: couldn't connect to the cluster!\n"
    b"rbd: listing images failed: (13) Permission denied\n"
)
NO_KEYRING = (
    b"2026-11-30T14:20:34.445+0000 7f39309c6380 -1 auth: unable to find a keyring on"
    b" /etc/ceph/ceph.client.ganeti.keyring,: (2) No such file or directory\n"
    b"2026-11-30T14:20:34.457+0000 7f39309c6380 -1 AuthRegistry(0x7ffc989dce60) no keyring found at"
    b" /etc/ceph/ceph.client.ganeti.keyring,, disabling cephx\n"
    b"rbd: couldn't connect to the cluster!\n"
)
NO_CONF = b"global_init: unable to open config file from search list /etc/ceph/ceph.conf\n"


def new_disk(
    logical_id: Sequence[object], params: Mapping[str, object] = USER, uuid: str = "d1"
) -> Disk:
    return Disk("rbd", logical_id, params, uuid, size=64)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Paths(str(tmp_path)))


@pytest.fixture
def ceph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCeph:
    fake = FakeCeph(tmp_path)
    monkeypatch.setattr(rbd, "run_tool", fake.run_tool)
    return fake


def volume(node: Node, name: str = "img", **params: object) -> RbdVolume:
    found = registry.volume_of(new_disk(["rbd", name], {**USER, **params}), node)
    assert isinstance(found, RbdVolume)
    return found


def says(monkeypatch: pytest.MonkeyPatch, status: int, stderr: bytes) -> None:
    """Let every program end so."""
    answer = CommandResult(("rbd",), status, b"", stderr)
    monkeypatch.setattr(rbd, "run_tool", lambda *_args, **_named: answer)


def test_recorded_output_is_understood() -> None:
    assert rbd.parse_info(INFO) == 64 * MIB
    assert rbd.parse_images(LIST) == {"img1": 64 * MIB, "img1@s1": 64 * MIB, "img2": MIB}
    assert rbd.parse_images(b"[]\n") == {}
    assert rbd.parse_space(DF, "rbd") == (1735756160, 149)
    assert rbd.parse_space(DF, "other") is None
    assert rbd.parse_watchers(b'{"watchers":[]}') == []
    opened = b'{"watchers":[{"address":"127.0.0.1:0/12","client":4125,"cookie":94}]}'
    assert rbd.parse_watchers(opened) == ["127.0.0.1:0/12"]
    assert rbd.parse_mapped(b"[]\n") == {}
    mapped = b"""[{"id":"0","pool":"rbd","namespace":"","name":"a","snap":"-","device":"/dev/rbd0"},
    {"id":"1","pool":"rbd","namespace":"","name":"a","snap":"s","device":"/dev/rbd1"},
    {"id":"2","pool":"rbd","namespace":"","name":"a","snap":"-","device":"/dev/rbd2"}]"""
    assert rbd.parse_mapped(mapped) == {
        ("rbd", "a"): ["/dev/rbd0", "/dev/rbd2"],
        ("rbd", "a@s"): ["/dev/rbd1"],
    }


def test_qemu_gets_an_address_with_user_and_configuration(node: Node, ceph: FakeCeph) -> None:
    image = volume(node)
    image.create(64)
    found = image.assemble()
    assert (found.dev_path, found.uri) == ("", f"rbd:rbd/img:id=ganeti:conf={node.paths.ceph_conf}")
    status = image.find()
    assert status is not None
    assert status.dev_path == found.uri
    assert volume(node, **{"user-id": ""}).uri == f"rbd:rbd/img:conf={node.paths.ceph_conf}"
    assert "map" not in ceph.questions


@pytest.mark.shows("backend/templates/rbd")
def test_kernel_access_maps_once_and_finds_what_a_crash_has_left(
    node: Node, ceph: FakeCeph
) -> None:
    image = volume(node, access="kernelspace")
    image.create(4)
    path = image.assemble().dev_path
    again = volume(node, access="kernelspace").assemble().dev_path
    assert again == path
    assert ceph.questions.count("map") == 1
    image.shutdown()
    assert not ceph.mapped
    image.shutdown()


def test_many_images_take_one_listing(node: Node, ceph: FakeCeph) -> None:
    disks = [new_disk(["rbd", f"img{n}"], uuid=f"d{n}") for n in range(50)]
    for disk in disks[:40]:
        registry.volume_of(disk, node).create(1)
    ceph.questions.clear()
    states = registry.look(disks, node)
    assert [state is None for state in states] == [False] * 40 + [True] * 10
    assert ceph.questions == ["ls"]
    assert len([size for size in registry.dimensions(disks, node) if size]) == 40
    assert ceph.questions == ["ls", "ls"]
    registry.look([new_disk(disk.logical_id, {"access": "kernelspace"}) for disk in disks], node)
    assert ceph.questions[2:] == ["ls", "showmapped"]


def test_an_image_that_is_open_elsewhere_is_waited_for_then_named(
    node: Node, ceph: FakeCeph, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(rbd.clock, "monotonic", lambda: now[0])
    monkeypatch.setattr(rbd.clock, "pause", lambda s: now.__setitem__(0, now[0] + s))
    image = volume(node)
    image.create(4)
    image.snapshot("s", 4)
    ceph.open_at = ["10.0.0.7:0/1"]
    with pytest.raises(BlockDeviceError, match=r"it is open at 10.0.0.7:0/1; stop .* try again"):
        image.remove()
    assert ceph.images.keys() == {"img", "img@s"}, "nothing is lost by the attempt"
    assert rbd.WATCHER_TIMEOUT_S < now[0] < 2 * rbd.WATCHER_TIMEOUT_S
    ceph.open_at = []
    image.remove()
    assert not ceph.images


def test_a_snapshot_is_a_disk_that_can_be_found_and_removed(node: Node, ceph: FakeCeph) -> None:
    image = volume(node)
    image.create(4)
    snapshot = volume(node, str(image.snapshot("before", 4)[1]))
    assert snapshot.name == "img@before"
    assert snapshot.assemble().uri == f"rbd:rbd/img@before:id=ganeti:conf={node.paths.ceph_conf}"
    for refused in (lambda: snapshot.create(4), lambda: snapshot.grow(4)):
        with pytest.raises(BlockDeviceError, match="cannot"):
            refused()
    for name in ("", "a@b", "a/b"):
        with pytest.raises(BlockDeviceError, match="cannot take snapshot"):
            image.snapshot(name, 4)
    snapshot.remove()
    snapshot.remove()
    assert ceph.images.keys() == {"img"}


def test_a_snapshot_that_an_export_left_is_replaced(node: Node, ceph: FakeCeph) -> None:
    own = "8e3bf0f6-4b2c-4a84-9d5e-3b5d2e4f6a01.snap"
    image = volume(node)
    image.create(4)
    image.snapshot(own, 4)
    image.grow(4)
    ceph.mapped["/dev/rbd7"] = f"img@{own}"  # by a copy that was killed, too
    kernel = volume(node, access="kernelspace")
    assert kernel.snapshot(own, 8) == ["rbd", f"img@{own}"]
    assert ceph.images == {"img": 8 * MIB, f"img@{own}": 8 * MIB}
    assert not ceph.mapped


SNAPSHOTS = b"""[{"id":4,"name":"kept.before","size":67108864,"protected":"false",
"timestamp":"Mon Nov 23 18:00:02 2026"},{"id":5,"name":"4f2c.snap0","size":67108864,
"protected":"false","timestamp":"Mon Nov 23 18:00:03 2026"},{"id":3,"name":"kept.first",
"size":67108864,"protected":"false","timestamp":"Mon Nov 23 18:00:01 2026"}]"""


def test_snapshots_that_people_take_are_told_from_those_of_exports() -> None:
    found = rbd.parse_snapshots(SNAPSHOTS)
    assert [each.name for each in found] == ["first", "before"]
    assert found[1].ctime - found[0].ctime == 1
    assert rbd.parse_snapshots(b"[]\n") == []


def test_an_image_keeps_snapshots(node: Node, ceph: FakeCeph) -> None:
    image = volume(node)
    assert image.snapshots() == []
    image.create(4)
    image.keep("first")
    image.grow(4)
    image.keep("second")
    image.snapshot("of-an-export", 4)
    assert [each.name for each in image.snapshots()] == ["first", "second"]
    image.restore("first")
    assert ceph.images["img"] == 8 * MIB, "it keeps its size"
    assert image.as_kept("first").spec == "rbd/img@kept.first"
    view = image.as_kept("first").raw_view
    assert view is not None
    assert view.read_only
    assert view.path != image.raw_view.path  # type: ignore[union-attr]
    image.forget("first")
    image.forget("first")
    assert [each.name for each in image.snapshots()] == ["second"]
    image.remove()
    assert not ceph.images


def test_a_rename_and_the_purpose(node: Node, ceph: FakeCeph) -> None:
    image = volume(node)
    image.create(4)
    image.set_info("originstname+web1")
    assert ceph.info == {"img": "originstname+web1"}
    image.rename(["rbd", "other"])
    image.rename(["rbd", "other"])
    assert ceph.images.keys() == {"other"}
    volume(node).create(4)
    with pytest.raises(BlockDeviceError, match="File exists"):
        volume(node).rename(["rbd", "other"])


def test_programs_get_the_bytes_from_qemu(
    node: Node, ceph: FakeCeph, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = volume(node)
    image.create(2)
    view = image.raw_view
    assert view is not None
    assert view.path.startswith(f"{node.paths.run_dir}/raw-disks/d1-")
    assert view.blockdev == {
        "driver": "rbd",
        "pool": "rbd",
        "image": "img",
        "user": "ganeti",
        "conf": node.paths.ceph_conf,
    }
    assert volume(node, access="kernelspace").raw_view is None

    @contextmanager
    def shown(self: RawView) -> Iterator[None]:
        os.makedirs(os.path.dirname(self.path))
        Path(self.path).write_bytes(b"x" * 2 * MIB)
        yield

    monkeypatch.setattr(RawView, "shown", shown)
    image.wipe(1, 1)
    assert Path(view.path).read_bytes() == b"x" * MIB + bytes(MIB)
    with pytest.raises(BlockDeviceError, match="has 2 MiB: cannot wipe 2 MiB from 1"):
        image.wipe(1, 2)


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (2, b"rbd: error opening pool 'rbd': (2) No such file or directory\n",
         r"cannot look at image rbd/img: there is no pool 'rbd'; .*'ceph osd pool create rbd'"),
        (1, NO_CONF, r"this node has no \S+/etc/ceph/ceph.conf; copy it .* keyring of client.ganeti"),
        (13, REFUSED, r"does not let client.ganeti in; see 'ceph auth get client.ganeti'"),
        (28, b"rbd: create error: (28) No space left on device\n", r"pool 'rbd' is full; see 'ceph df'"),
        (122, b"(122) Disk quota exceeded\n", r"the quota of pool 'rbd' is used up; see 'ceph df'"),
        (5, b"rbd: whatever\n", r"cannot look at image rbd/img: rbd: whatever$"),
        (5, b"", r"cannot look at image rbd/img: failed with exit status 5$"),
    ],
)  # fmt: skip
def test_a_failure_names_the_next_command(
    node: Node, monkeypatch: pytest.MonkeyPatch, status: int, stderr: bytes, expected: str
) -> None:
    says(monkeypatch, status, stderr)
    with pytest.raises(BlockDeviceError, match=expected) as caught:
        volume(node).find()
    assert "7f10b6e376c0" not in str(caught.value), "threads of librbd are nobody's business"


@pytest.mark.parametrize(
    "stderr", [NO_KEYRING, b"rbd: error opening pool 'rbd': (2) No such file or directory\n", b""]
)
def test_a_node_that_reaches_no_image_takes_none_for_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch, stderr: bytes
) -> None:
    says(monkeypatch, 2, stderr)
    image, snapshot = volume(node), volume(node, "img@s")
    for action in (image.find, image.dimensions, image.snapshots, image.remove, snapshot.remove):
        with pytest.raises(BlockDeviceError, match="cannot") as caught:
            action()
        if stderr == NO_KEYRING:
            assert "see 'ceph auth get client.ganeti'" in str(caught.value)


@pytest.mark.parametrize(
    "said",
    [
        "rbd: error opening image img: ",
        "rbd: delete error: ",
        "error setting snapshot context: ",
        "Removing snap: 0% complete...failed.\nrbd: failed to remove snapshot: ",
    ],
)
def test_an_image_that_is_not_there_is_told_from_that(
    node: Node, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    says(monkeypatch, 2, f"{said}(2) No such file or directory\n".encode())
    assert volume(node, "img@s").find() is None
    volume(node, "img@s").remove()


def test_without_the_kernel_module_the_other_access_is_named(
    node: Node, ceph: FakeCeph, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = volume(node, access="kernelspace")
    image.create(4)
    monkeypatch.setattr(ceph, "_rbd_map", lambda *_words: (2, "", NO_MODULE.decode()))
    with pytest.raises(BlockDeviceError, match=r"'modprobe rbd', or .*-D rbd:access=userspace'"):
        image.assemble()


def test_a_cluster_that_does_not_answer_costs_a_deadline(node: Node, ceph: FakeCeph) -> None:
    ceph.hangs = True
    with pytest.raises(BlockDeviceError, match=r"did not answer within 30 s; see 'ceph -s'"):
        volume(node).find()
    disks = [new_disk(["rbd", "a"]), new_disk(["rbd", "b"])]
    assert all(isinstance(state, GenericError) for state in registry.look(disks, node))
    with pytest.raises(BlockDeviceError, match="did not answer within 30 s"):
        registry.storage_of_kind(StorageType.RADOS, node, USER).space("rbd")


def test_what_was_made_before_the_time_was_over_is_removed(node: Node, ceph: FakeCeph) -> None:
    image = volume(node)
    ceph.hangs_after = {"create"}
    with pytest.raises(BlockDeviceError, match=r"did not answer within 120 s; see 'ceph -s' there"):
        image.create(4)
    assert not ceph.images
    ceph.hangs_after = {"create", "status"}
    with pytest.raises(
        BlockDeviceError,
        match=r"within 120 s; .*rbd/img may be left, remove it with 'rbd rm rbd/img' \(cannot remove",
    ):
        image.create(4)
    ceph.hangs_after = {"snap create"}
    with pytest.raises(BlockDeviceError, match="within 120 s"):
        image.keep("s")
    ceph.hangs_after = {"snap create", "create"}
    with pytest.raises(BlockDeviceError, match="cannot create image rbd/img: it exists already"):
        image.create(4)
    assert ceph.images.keys() == {"img"}, "what was there before is not removed"


def test_the_space_of_a_pool(node: Node, ceph: FakeCeph) -> None:
    storage = registry.storage_of_kind(StorageType.RADOS, node, USER)
    [unit] = storage.units(["rbd"])
    assert (unit.free_mib, unit.used_mib, unit.size_mib) == (1655, 100, 1755)
    with pytest.raises(StorageError, match="there is no pool 'other'; see 'ceph osd pool ls'"):
        storage.space("other")
    [lost] = storage.units(["other"])
    assert (lost.size_mib, lost.is_allocatable) == (None, False)
    assert "there is no pool 'other'" in lost.status


@pytest.mark.parametrize("logical_id", [["rbd", ""], ["rbd", "a/b"], ["x", "a"], ["rbd"]])
def test_names_lead_to_no_other_pool(node: Node, logical_id: list[object]) -> None:
    with pytest.raises(BlockDeviceError, match=r"is not \[driver, name\]"):
        registry.volume_of(new_disk(logical_id), node)
