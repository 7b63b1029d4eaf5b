"""Files of a Gluster volume: when it is mounted, for whom, and what a failure says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from fakes.network_storage import FakeGluster
from fakes.storage_records import Disk, Node

from ganeti.base.errors import BlockDeviceError, FileStoragePathError, GenericError, StorageError
from ganeti.base.paths import Paths
from ganeti.objects.disk_templates import StorageType
from ganeti.storage import registry
from ganeti.storage.network import gluster
from ganeti.storage.network.gluster import GlusterVolume
from ganeti.storage.network.mounts import Mount

MIB = 1 << 20
PARAMS = {"host": "gl1", "port": 24007, "volume": "gv0", "access": "kernelspace"}


def new_disk(
    logical_id: Sequence[object], params: Mapping[str, object] = PARAMS, uuid: str = "d1"
) -> Disk:
    return Disk("gluster", logical_id, params, uuid)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    found = Node(Paths(str(tmp_path)))
    os.makedirs(found.paths.run_dir)
    return found


@pytest.fixture
def volumes(monkeypatch: pytest.MonkeyPatch) -> FakeGluster:
    fake = FakeGluster()
    monkeypatch.setattr(gluster, "run_tool", fake.run_tool)
    monkeypatch.setattr(gluster.mounts, "at", fake.at)
    return fake


def volume(node: Node, name: str = "ganeti/a", uuid: str = "d1", **params: object) -> GlusterVolume:
    found = registry.volume_of(new_disk(["loop", name], {**PARAMS, **params}, uuid=uuid), node)
    assert isinstance(found, GlusterVolume)
    return found


def test_the_volume_is_mounted_while_a_disk_is_used(node: Node, volumes: FakeGluster) -> None:
    one, two = volume(node), volume(node, "ganeti/b", "d2")
    one.create(4)
    two.create(4)
    assert not volumes.mounted, "both were only made"
    place = node.paths.gluster_storage_dir
    assert one.assemble().dev_path == f"{place}/ganeti/a"
    assert one.assemble().uri is None
    two.assemble()
    assert volumes.mounted == {place: "gl1:/gv0"}
    one.shutdown()
    assert volumes.mounted, "the other one is in use"
    one.find()
    assert volumes.mounted
    two.shutdown()
    two.shutdown()
    assert not volumes.mounted
    mount = next(argv for argv in volumes.runs if argv[0] == "mount")
    assert mount[:3] == ["mount", "-t", "glusterfs"]
    assert mount[4].split(",")[-1] == "server-port=24007"


def test_a_disk_that_is_missing_leaves_nothing_mounted(node: Node, volumes: FakeGluster) -> None:
    with pytest.raises(BlockDeviceError, match="does not exist"):
        volume(node).assemble()
    assert not volumes.mounted
    assert os.listdir(node.paths.gluster_uses_dir) == []


def test_the_use_of_a_process_that_died_is_forgotten(node: Node, volumes: FakeGluster) -> None:
    image = volume(node)
    image.create(4)
    image.assemble()
    ended = subprocess.Popen(["true"])
    ended.wait()
    Path(node.paths.gluster_uses_dir, f"process-{ended.pid}.1").touch()
    image.shutdown()
    assert not volumes.mounted


def test_qemu_gets_an_address_and_nothing_stays_mounted(node: Node, volumes: FakeGluster) -> None:
    image = volume(node, access="userspace")
    image.create(4)
    found = image.assemble()
    assert (found.dev_path, found.uri) == ("", "gluster://gl1:24007/gv0/ganeti/a")
    assert not volumes.mounted
    status = image.find()
    assert status is not None
    assert status.dev_path == found.uri
    view = image.raw_view
    assert view is not None
    assert (view.blockdev["driver"], view.blockdev["path"]) == ("gluster", "ganeti/a")
    image.wipe(0, 4)
    assert not volumes.mounted
    image.shutdown()
    six = volume(node, "ganeti/a b", access="userspace", host="::1")
    assert six.uri == "gluster://[::1]:24007/gv0/ganeti/a%20b"
    assert six.mount.source == "[::1]:/gv0"


def test_many_disks_are_looked_at_under_one_mount(node: Node, volumes: FakeGluster) -> None:
    disks = [new_disk(["loop", f"ganeti/{n}"], uuid=f"d{n}") for n in range(20)]
    registry.volume_of(disks[0], node).create(1)
    volumes.runs.clear()
    states = registry.look(disks, node)
    assert [state is None for state in states] == [False] + [True] * 19
    assert [argv[0] for argv in volumes.runs][:2] == ["mount", "umount"]
    assert len([size for size in registry.dimensions(disks, node) if size]) == 1
    assert len(volumes.runs) == 4


def test_paths_may_be_those_of_the_volume_or_of_the_node(node: Node, volumes: FakeGluster) -> None:
    volume(node, "ganeti/a").create(4)
    assert volume(node, "/var/run/ganeti/gluster/ganeti/a").find() is not None
    for path, error in (
        ("../x", GenericError),
        ("/etc/passwd", FileStoragePathError),
        ("/srv/ganeti/file-storage/x", BlockDeviceError),
        ("", BlockDeviceError),
    ):
        with pytest.raises(error):
            volume(node, path)


def test_failures_name_the_volume_and_the_next_command(
    node: Node, volumes: FakeGluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes.failure = "Mounting glusterfs on /x failed.\n"
    expected = (
        r"cannot mount Gluster volume gv0 of gl1 \(port 24007\) at .*: Mounting glusterfs on /x"
        r" failed\.; see 'gluster volume status gv0' on gl1, and .*/gluster.log here"
    )
    image = volume(node)
    for action in (image.find, image.assemble, image.remove, lambda: image.create(4)):
        with pytest.raises(StorageError, match=expected):
            action()
    [state] = registry.look([new_disk(["loop", "ganeti/a"])], node)
    assert isinstance(state, StorageError)
    assert os.listdir(node.paths.gluster_uses_dir) == []

    place = node.paths.gluster_storage_dir
    volumes.mounted[place] = "gl2:/other"
    with pytest.raises(StorageError, match=r"gl1:/gv0 cannot be used: gl2:/other is mounted at"):
        image.find()
    tmpfs = Mount(place, "tmpfs", "none")
    monkeypatch.setattr(gluster.mounts, "at", lambda _place: tmpfs)
    with pytest.raises(StorageError, match=r"none \(tmpfs\) is mounted at .*'umount "):
        image.find()


def test_a_mount_whose_process_died_is_made_anew(
    node: Node, volumes: FakeGluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = volume(node)
    image.create(4)
    image.assemble()
    real, dead = os.statvfs, [True]

    def statvfs(path: str) -> os.statvfs_result:
        if dead and path == node.paths.gluster_storage_dir:
            dead.clear()
            raise OSError(107, "Transport endpoint is not connected")
        return real(path)

    monkeypatch.setattr(os, "statvfs", statvfs)
    volumes.runs.clear()
    image.assemble()
    assert [argv[:2] for argv in volumes.runs] == [["umount", "-l"], ["mount", "-t"]]


def test_space_is_that_of_the_volume(node: Node, volumes: FakeGluster) -> None:
    volume(node).create(4)
    storage = registry.storage_of_kind(StorageType.GLUSTER, node, PARAMS)
    volumes.runs.clear()
    [unit] = storage.units([node.paths.globalize(node.paths.gluster_storage_dir)])
    assert unit.size_mib
    assert unit.used_mib == 0, "the file is sparse"
    volumes.failure = "no route"
    [lost] = storage.units(["/var/run/ganeti/gluster"])
    assert (lost.size_mib, lost.is_allocatable) == (None, False)
    assert "cannot mount Gluster volume gv0 of gl1" in lost.status
    volumes.failure = ""
    assert [argv[0] for argv in volumes.runs][:2] == ["mount", "umount"]
