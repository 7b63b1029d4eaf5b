"""Disks in a real Ceph cluster: the life of an instance, and what the driver says to bad luck."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cluster.conftest import make_cluster
from cluster.counting import MIB, SIZE_MIB, Counting, add, all_is_well
from fakes.storage_records import Disk, Node
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until
from guests import counters
from rig import ceph as rig

from ganeti.base.errors import BlockDeviceError, GenericError
from ganeti.base.paths import Paths
from ganeti.bootstrap.virtual import lifecycle
from ganeti.storage import registry
from ganeti.storage.network import rbd

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed"),
    pytest.mark.skipif(bool(rig.missing()), reason=f"no Ceph: {rig.missing()}"),
]

NAME, COPY = "counting.example.com", "copied.example.com"
ADD = add("rbd")


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Ceph]:
    found = rig.Ceph(tmp_path_factory.mktemp("ceph"))
    try:
        found.up()
        yield found
    finally:
        found.down()


# The driver alone


new_disk = partial(Disk, "rbd")


@pytest.fixture
def node(ceph: rig.Ceph, tmp_path: Path) -> Node:
    found = Node(Paths(str(tmp_path)))
    path = Path(found.paths.ceph_conf)
    path.parent.mkdir(parents=True)
    path.symlink_to(ceph.conf)
    Path(found.paths.run_dir).mkdir(parents=True)
    return found


def volume(node: Node, name: str = "img", **params: str) -> rbd.RbdVolume:
    given = {"pool": rig.POOL, "access": "userspace", "user-id": rig.USER}
    found = registry.volume_of(new_disk(["rbd", name], given | params), node)
    assert isinstance(found, rbd.RbdVolume)
    return found


def test_the_driver_and_the_real_programs_agree(node: Node, ceph: rig.Ceph) -> None:
    image = volume(node)
    assert image.find() is None
    image.create(SIZE_MIB)
    # Two threads of the program write to standard error: their words may be mixed.
    with pytest.raises(BlockDeviceError, match="exists"):
        image.create(SIZE_MIB)
    image.set_info("originstname+web1")
    image.grow(4)
    size = image.dimensions()
    assert size is not None
    assert size.size_bytes == 8 * MIB
    image.wipe(0, 8)
    snapshot = volume(node, str(image.snapshot("before", SIZE_MIB)[1]))
    assert snapshot.find() is not None
    image.rename(["rbd", "other"])
    disks = [new_disk(["rbd", name], dict(image._disk.params or {})) for name in ("other", "img")]
    assert [state is None for state in registry.look(disks, node)] == [False, True]
    assert [size is None for size in registry.dimensions(disks, node)] == [False, True]
    image.remove()
    image.remove()
    assert ceph.names() == []


def test_a_node_without_the_kernel_module_says_so(node: Node) -> None:
    image = volume(node, access="kernelspace")
    image.create(SIZE_MIB)
    try:
        if Path("/sys/module/rbd").exists():
            assert Path(image.assemble().dev_path).is_block_device()
            image.shutdown()
        else:
            with pytest.raises(BlockDeviceError, match=r"'modprobe rbd', or .*access=userspace"):
                image.assemble()
    finally:
        image.remove()


def test_bad_luck_is_one_clear_error(
    node: Node, ceph: rig.Ceph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for params, expected in (
        ({"pool": "nowhere"}, "there is no pool 'nowhere'; see 'ceph osd pool ls'"),
        ({"user-id": "nobody"}, "does not let client.nobody in; see 'ceph auth get client.nobody'"),
    ):
        for action in (volume(node, **params).find, volume(node, **params).remove):
            with pytest.raises(BlockDeviceError, match=expected):
                action()
    image = volume(node)
    image.create(SIZE_MIB)
    volume(node, "img@nix").remove()  # it is not there
    path = Path(node.paths.ceph_conf)
    path.unlink()
    lines = ceph.conf.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("keyring")))
    for action in (image.find, image.snapshots, image.remove, volume(node, "img@nix").remove):
        with pytest.raises(BlockDeviceError, match=f"does not let client.{rig.USER} in"):
            action()
    path.unlink()
    path.symlink_to(ceph.conf)
    image.remove()
    assert ceph.names() == []
    monkeypatch.setattr(rbd, "LOOK_TIMEOUT_S", 1.0)
    ceph.pause("mon")
    try:
        with pytest.raises(BlockDeviceError, match="did not answer within 1 s; see 'ceph -s'"):
            volume(node).find()
        with pytest.raises(GenericError, match="did not answer within 1 s"):
            registry.storage_of_kind("rados", node, {"user-id": rig.USER}).space(rig.POOL)
    finally:
        ceph.resume("mon")


# The life of an instance


@pytest.fixture(scope="module")
def cluster(ceph: rig.Ceph) -> Iterator[TestCluster]:
    for made in make_cluster(2, "kvm"):
        for name in made.nodes:
            path = Path(made.paths_of(name).ceph_conf)
            path.parent.mkdir(parents=True)
            path.symlink_to(ceph.conf)
        templates = "rbd,file,diskless"
        made.gnt(
            f"cluster modify --enabled-disk-templates={templates}"
            f" --ipolicy-disk-templates={templates} -D rbd:access=userspace,user-id={rig.USER}"
        )
        yield made


@pytest.mark.shows("backend/templates/rbd")
def test_the_life_of_an_instance(cluster: TestCluster, ceph: rig.Ceph, tmp_path: Path) -> None:
    one, two = cluster.nodes
    guest = Counting(cluster, ceph, NAME)
    guest.make(one, tmp_path)
    guest.start()
    guest.changes_while_it_runs()
    assert cluster.instance_field(NAME, "pnode") == two
    copy, counted = guest.copied_at_one_instant(COPY, one)
    cluster.gnt(f"instance failover -f {COPY}")
    copy.start()
    wait_until(lambda: copy.counted() > counted, "the copy to run")
    all_is_well(cluster, "rados rbd")
    for each in (guest, copy):
        each.remove()
    assert ceph.names() == []
    for name in cluster.nodes:
        assert cluster.files_below(name, "/var/run/ganeti/raw-disks") == []


def test_snapshots_of_a_running_guest(cluster: TestCluster, ceph: rig.Ceph, tmp_path: Path) -> None:
    one, two = cluster.nodes
    guest = Counting(cluster, ceph, NAME)
    guest.make(one, tmp_path)
    guest.start()
    cluster.gnt(f"instance snapshot create {NAME} first")
    before = guest.goes_on()
    names = [guest.disk(index) for index in (0, 1)]
    kept = [ceph.contents(f"{name}@kept.first") for name in names]
    assert 0 < counters.check_one_instant(kept) <= before
    cluster.refused(f"instance snapshot -f restore {NAME} first", "is running on node")
    cluster.gnt(f"instance grow-disk {NAME} 0 {SIZE_MIB}")
    cluster.gnt(
        f"backup export --shutdown-timeout=1 -n {two} {NAME}"
    )  # down while snapshots are taken only
    assert cluster.instance_field(NAME, "status") == "running"
    cluster.gnt(f"instance shutdown --timeout=1 {NAME}")
    cluster.gnt(f"instance snapshot -f restore {NAME} first")
    restored = [ceph.contents(name) for name in names]
    assert restored == [kept[0].ljust(2 * SIZE_MIB * MIB, b"\0"), kept[1]]
    copy = guest.copied(COPY, one, "--snapshot=first")
    assert copy.contents(1) == kept[1]
    assert "first" in cluster.gnt(f"instance snapshot list {NAME}").out
    for each in (guest, copy):
        each.remove()
    assert ceph.names() == []


def test_an_instance_whose_pool_is_missing_is_refused_in_one_line(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    cluster.gnt("cluster modify -D rbd:pool=nowhere")
    try:
        cluster.refused(
            f"{ADD} --disk 0:size=4 --no-install --no-start -n {node} lost.example.com",
            "there is no pool 'nowhere'; see 'ceph osd pool ls'",
        )
        assert cluster.instance_names() == []
    finally:
        cluster.gnt(f"cluster modify -D rbd:pool={rig.POOL}")
