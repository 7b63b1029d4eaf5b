"""Exports of a running guest: copies of all its disks from one instant, while it goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fakes.schedule import age, watch
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until
from guests import counters

from ganeti.bootstrap.virtual import lifecycle

NAME, COPY = "counting.example.com", "copied.example.com"
ADD = "instance add --no-name-check --no-ip-check --no-install --no-start -B memory=16"
SIZE_MIB = 4


def disks_of(cluster: TestCluster, node: str, name: str) -> list[Path]:
    """Return the files of an instance's disks, the first one first."""
    directory = Path(cluster.paths_of(node).localize(f"/srv/ganeti/file-storage/{name}"))
    return sorted(directory.iterdir(), key=lambda path: path.suffix)


def serial(cluster: TestCluster, node: str, name: str) -> str:
    path = Path(f"{cluster.paths_of(node).log_kvm_dir}/{name}.serial.log")
    return path.read_text("latin1") if path.exists() else ""


def wait_for_rounds(cluster: TestCluster, node: str, name: str, rounds: int) -> int:
    """Wait until the guest has written so many rounds more; returns how far it is."""
    disk = disks_of(cluster, node, name)[1]
    wanted = counters.live_counter(disk) + rounds
    wait_until(lambda: counters.live_counter(disk) >= wanted, f"counter {wanted}")
    return counters.live_counter(disk)


@pytest.fixture
def counting(cluster: TestCluster, tmp_path: Path) -> TestCluster:
    """A cluster on whose first node the guest runs that counts on two disks."""
    node = cluster.nodes[0]
    disks = f"--disk 0:size={SIZE_MIB} --disk 1:size={SIZE_MIB}"
    cluster.gnt(f"{ADD} -t file {disks} -H kvm -o bootsector+default -n {node} {NAME}")
    made = counters.disk_images(tmp_path, SIZE_MIB)
    for image, disk in zip(made, disks_of(cluster, node, NAME), strict=True):
        shutil.copyfile(image, disk)
    cluster.gnt(f"instance startup {NAME}")
    wait_until(lambda: counters.UP_TEXT in serial(cluster, node, NAME), "the guest to be up")
    wait_for_rounds(cluster, node, NAME, counters.LOG_SECTORS + 8)
    return cluster


@pytest.mark.qemu
@pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
def test_a_running_guest_is_exported_as_of_one_instant(counting: TestCluster) -> None:
    cluster, (one, two, three) = counting, counting.nodes
    before = wait_for_rounds(cluster, one, NAME, 1)
    cluster.gnt(f"backup export --noshutdown -n {two} {NAME}")
    after = wait_for_rounds(cluster, one, NAME, 1)
    assert serial(cluster, one, NAME).count(counters.UP_TEXT) == 1, "it was started once"
    described = Path(cluster.paths_of(two).export_dir, NAME, "config.ini").read_text()
    assert "method = snapshot" in described
    files = [path for path in Path(cluster.paths_of(one).export_dir).iterdir() if path.is_file()]
    assert not files, "overlays have no name"
    sockets = Path(cluster.paths_of(one).run_dir, "kvm").iterdir()
    assert not [path for path in sockets if path.name.endswith(".n")]

    cluster.gnt(
        f"backup import --no-name-check --no-ip-check -n {three} --src-node {two} --src-dir {NAME}"
        f" {COPY}"
    )
    images = [path.read_bytes() for path in disks_of(cluster, three, COPY)]
    taken = counters.check_one_instant(images)
    assert before <= taken <= after
    cluster.gnt(f"instance startup {COPY}")
    wait_until(lambda: counters.UP_TEXT in serial(cluster, three, COPY), "the copy to be up")
    assert wait_for_rounds(cluster, three, COPY, 1) > taken, "it goes on from there"
    cluster.gnt(f"backup remove {NAME}")


@pytest.mark.qemu
@pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
def test_a_running_guest_is_exported_by_schedule(counting: TestCluster) -> None:
    cluster, (one, two, _) = counting, counting.nodes
    cluster.gnt(f"backup set-policy --every=1d --keep=3 --to={two} {NAME}")
    for _ in range(2):
        before = wait_for_rounds(cluster, one, NAME, 1)
        assert f"for {NAME}, to export it" in watch(cluster)
        after = wait_for_rounds(cluster, one, NAME, 1)
        cluster.gnt(
            "backup import --no-name-check --no-ip-check"
            f" -n {one} --src-node {two} --src-dir {NAME} {COPY}"
        )
        images = [path.read_bytes() for path in disks_of(cluster, one, COPY)]
        assert before <= counters.check_one_instant(images) <= after
        cluster.gnt(f"instance remove --force {COPY}")  # it has the policy too
        age(cluster, two, NAME, 86_400)
    assert serial(cluster, one, NAME).count(counters.UP_TEXT) == 1, "it was started once"
    cluster.gnt(f"backup remove {NAME}")


def test_other_hypervisors_say_that_they_cannot(cluster: TestCluster) -> None:
    cluster.gnt(
        f"{ADD} -t file --disk 0:size=4 -H fake -o test -n {cluster.nodes[0]} fake.example.com"
    )
    cluster.gnt("instance startup fake.example.com")
    cluster.refused(
        f"backup export --noshutdown -n {cluster.nodes[1]} fake.example.com",
        "hypervisor fake: snapshots of running instances are not supported",
    )
    assert cluster.instance_field("fake.example.com", "status") == "running"


@pytest.mark.qemu
@pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
def test_what_changed_is_exported_while_the_guest_writes(counting: TestCluster) -> None:
    cluster, (one, two, three) = counting, counting.nodes
    export = f"backup export --incremental --noshutdown -n {two} {NAME}"
    unrecorded = "nobody recorded where disk {} was written"

    def one_more() -> tuple[int, int, str]:
        """Export; returns the counter before and after, and what was said."""
        before = wait_for_rounds(cluster, one, NAME, 1)
        said = cluster.gnt(export).out
        return before, wait_for_rounds(cluster, one, NAME, 1), said

    points = [one_more() for _ in range(4)]
    assert "a full export, with which a chain begins" in points[0][2]
    assert not [said for _, _, said in points if unrecorded.format(0) in said]
    # A disk outside QEMU's sight forgets what was written when QEMU ends.
    cluster.gnt(f"instance reboot -t hard --shutdown-timeout=0 {NAME}")
    wait_for_rounds(cluster, one, NAME, 1)
    points.append(one_more())
    assert unrecorded.format(0) in points[4][2]
    points.append(one_more())
    assert unrecorded.format(0) not in points[5][2]

    directory = Path(cluster.paths_of(two).export_dir, NAME)
    for path in directory.glob("increments/*/*.diff"):
        assert path.stat().st_size < 3 * 65536, "the guest writes to two blocks of each disk"
    for number, (before, after, _) in enumerate(points):
        cluster.gnt(
            f"backup import --no-name-check --no-ip-check -n {three} --src-node {two}"
            f" --src-dir {NAME} --point {number} {COPY}"
        )
        taken = counters.check_one_instant(
            [path.read_bytes() for path in disks_of(cluster, three, COPY)]
        )
        assert before <= taken <= after, f"point {number}"
        cluster.gnt(f"instance remove -f {COPY}")
    # A full export replaces the chain, and records nothing.
    cluster.gnt(f"backup export --noshutdown -n {two} {NAME}")
    assert not (directory / "increments").exists()
    assert "was made without --incremental" in cluster.gnt(export).out
    cluster.gnt(f"backup remove {NAME}")
