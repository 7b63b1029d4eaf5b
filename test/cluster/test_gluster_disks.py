"""Disks in a real Gluster volume, mounted and opened by QEMU: the life of an instance."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.conftest import make_cluster
from cluster.counting import Counting, add, all_is_well
from fakes.virtual_cluster import TestCluster
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
ADD = add("gluster")


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


def mounted(cluster: TestCluster) -> list[str]:
    """Return the nodes on which the volume is mounted."""
    return [name for name in cluster.nodes if mounts.at(cluster.paths_of(name).gluster_storage_dir)]


@pytest.mark.parametrize("access", ["kernelspace", "userspace"])
def test_the_life_of_an_instance(
    cluster: TestCluster, gluster: rig.Gluster, tmp_path: Path, access: str
) -> None:
    one, two = cluster.nodes
    cluster.gnt(f"cluster modify -D gluster:access={access}")
    guest = Counting(cluster, gluster, NAME)
    guest.make(one, tmp_path)
    assert mounted(cluster) == []
    guest.start()
    assert mounted(cluster) == ([one] if access == "kernelspace" else [])
    guest.changes_while_it_runs()
    assert mounted(cluster) == ([two] if access == "kernelspace" else [])
    copy, _ = guest.copied_at_one_instant(COPY, one)
    all_is_well(cluster, "gluster /var/run/ganeti/gluster")
    cluster.refused(
        f"{ADD} --disk 0:size=10g --no-install --no-start -n {one} large.example.com", "no room for"
    )
    for each in (guest, copy):
        each.remove()
    assert gluster.names() == []
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
    assert gluster.names() == ["precious"]
