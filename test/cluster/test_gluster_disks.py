"""Disks in a real Gluster volume, mounted and opened by QEMU: the life of an instance."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.conftest import make_cluster
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until
from guests import counters
from rig import gluster as rig

from ganeti.bootstrap.virtual import lifecycle
from ganeti.storage.network import mounts

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed"),
    pytest.mark.skipif(bool(rig.missing()), reason=f"no Gluster: {rig.missing()}"),
]

NAME = "counting.example.com"
COPY = "copied.example.com"
ADD = "instance add -t gluster --no-name-check --no-ip-check -B memory=16 -o bootsector+default"
SIZE_MIB = 4
MIB = 1 << 20


@pytest.fixture(scope="module")
def gluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Gluster]:
    found = rig.Gluster(tmp_path_factory.mktemp("gluster"), size="64m")
    try:
        found.up()
        yield found
    finally:
        found.down()


@pytest.fixture(scope="module")
def cluster(gluster: rig.Gluster) -> Iterator[TestCluster]:
    for made in make_cluster(2, "kvm"):
        templates = "gluster,file,diskless"
        made.gnt(
            f"cluster modify --enabled-disk-templates={templates}"
            f" --ipolicy-disk-templates={templates} -D gluster:host={gluster.host}"
        )
        yield made


def file_of(cluster: TestCluster, name: str, index: int = 0) -> str:
    """Return the path of an instance's disk in the volume."""
    shown = cluster.gnt(f"instance info {name}").out
    lines = [line for line in shown.splitlines() if "logical_id: ['loop'" in line]
    return lines[index].split("'")[3]


def mounted(cluster: TestCluster) -> list[str]:
    """Return the nodes on which the volume is mounted."""
    return [name for name in cluster.nodes if mounts.at(cluster.paths_of(name).gluster_storage_dir)]


@pytest.mark.parametrize("access", ["kernelspace", "userspace"])
def test_the_life_of_an_instance(
    cluster: TestCluster, gluster: rig.Gluster, tmp_path: Path, access: str
) -> None:
    one, two = cluster.nodes
    cluster.gnt(f"cluster modify -D gluster:access={access}")
    disks = f"--disk 0:size={SIZE_MIB} --disk 1:size={SIZE_MIB}"
    cluster.gnt(f"{ADD} {disks} --no-start -n {one} {NAME}")
    assert mounted(cluster) == []
    assert gluster.contents(file_of(cluster, NAME))[510:512] == b"\x55\xaa", "it was installed"
    for index, source in enumerate(counters.disk_images(tmp_path, SIZE_MIB)):
        gluster.fill(file_of(cluster, NAME, index), source.read_bytes())

    def counted(name: str = NAME) -> int:
        return counters.live_counter_of(gluster.contents(file_of(cluster, name, 1)))

    cluster.gnt(f"instance startup {NAME}")
    wait_until(lambda: counted() > counters.LOG_SECTORS, "the guest to count")
    assert mounted(cluster) == ([one] if access == "kernelspace" else [])
    cluster.gnt(f"instance migrate -f {NAME}")
    assert mounted(cluster) == ([two] if access == "kernelspace" else [])
    before = counted()
    wait_until(lambda: counted() > before, "the guest to go on after it moved")

    cluster.gnt(f"instance grow-disk {NAME} 0 4")
    assert len(gluster.contents(file_of(cluster, NAME))) == 8 * MIB
    cluster.gnt(f"instance modify --hotplug --disk add:size={SIZE_MIB} {NAME}")
    before = counted()
    cluster.gnt(f"backup export --noshutdown -n {one} {NAME}")
    cluster.gnt(
        f"backup import -t gluster --no-name-check --no-ip-check -n {one} --src-node {one}"
        f" --src-dir {NAME} {COPY}"
    )
    images = [gluster.contents(file_of(cluster, COPY, index)) for index in (0, 1)]
    assert counters.check_one_instant(images) >= before
    assert f"gluster {Path('/var/run/ganeti/gluster')}" in " ".join(
        cluster.gnt("node list-storage -t gluster").out.split()
    )
    verify = cluster.gnt("cluster verify").out
    assert "ERROR" not in verify, verify
    cluster.refused(
        f"{ADD} --disk 0:size=10g --no-install --no-start -n {one} large.example.com", "no room for"
    )
    for name in (NAME, COPY):
        cluster.gnt(f"instance remove -f --shutdown-timeout=1 {name}")
    assert gluster.files() == []
    assert mounted(cluster) == []


def test_a_volume_that_cannot_be_mounted_is_named(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    cluster.gnt("cluster modify -D gluster:volume=nowhere")
    try:
        cluster.refused(
            f"{ADD} --disk 0:size=4 --no-install --no-start -n {node} lost.example.com",
            "see 'gluster volume status nowhere' on",
        )
        assert cluster.instance_names() == []
        row = cluster.gnt("node list-storage -t gluster --no-headers -o status").out
        assert "cannot mount Gluster volume nowhere" in row
    finally:
        cluster.gnt(f"cluster modify -D gluster:volume={rig.VOLUME}")


def test_a_cluster_that_is_destroyed_leaves_the_volume_alone(
    gluster: rig.Gluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for made in make_cluster(1, "fake"):
        place = Path(made.paths_of(made.master).gluster_storage_dir)
        place.mkdir(parents=True, exist_ok=True)
        source = f"{gluster.host}:/{rig.VOLUME}"
        subprocess.run(["mount", "-t", "glusterfs", source, str(place)], check=True, timeout=60)
        (place / "precious").write_bytes(b"x")
        lifecycle.destroy(made.layout)
        assert mounts.at(str(place)) is None
        lifecycle.create(made.layout)  # the fixture destroys it again
    assert gluster.files() == ["precious"]
