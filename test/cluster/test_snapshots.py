"""Snapshots for people, of real guests that write to two disks, compared block by block."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until
from guests import counters

from ganeti.bootstrap.virtual import lifecycle

NAME, COPY = "counting.example.com", "copied.example.com"
ADD = "instance add --no-name-check --no-ip-check --no-install --no-start -B memory=16"
SIZE_MIB = 4
MIB = 1 << 20
PROGRAMS = ("qemu-img", "qemu-nbd", "qemu-storage-daemon")
pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(
        lifecycle.find_qemu() is None
        or not all(map(shutil.which, PROGRAMS))
        or not os.path.exists("/dev/fuse")
        or os.geteuid() != 0,
        reason="needs QEMU with its tools, FUSE and root",
    ),
]


def disks_of(cluster: TestCluster, name: str) -> list[Path]:
    """Return the files of an instance's disks on the first node, in their order."""
    paths = cluster.paths_of(cluster.nodes[0])
    directory = Path(paths.localize(f"/srv/ganeti/file-storage/{name}"))
    return sorted(directory.iterdir(), key=lambda path: path.suffix)


def contents(path: Path, snapshot: str = "") -> bytes:
    """Return the bytes of a disk in an image, or in one of its snapshots."""
    copy = Path(f"{path}.copy")
    chosen = ["-l", f"snapshot.name={snapshot}", "-U"] if snapshot else []
    argv = ["qemu-img", "convert", "-f", "qcow2", *chosen, "-O", "raw", str(path), str(copy)]
    subprocess.run(argv, check=True)
    data = copy.read_bytes()
    copy.unlink()
    return data


def listed(cluster: TestCluster) -> list[str]:
    found = cluster.gnt(f"instance snapshot --no-headers --separator=| list {NAME}")
    return [line.split("|")[0] for line in found.lines]


def checked_image(path: Path) -> None:
    argv = ["qemu-img", "check", "-f", "qcow2", "--output=json", str(path)]
    found = json.loads(subprocess.run(argv, check=False, capture_output=True).stdout)
    assert found.get("corruptions", 0) == 0, found


def is_up(cluster: TestCluster, name: str) -> bool:
    path = Path(f"{cluster.paths_of(cluster.nodes[0]).log_kvm_dir}/{name}.serial.log")
    return counters.UP_TEXT in path.read_text("latin1")


def process(cluster: TestCluster) -> str:
    """Return the number of QEMU's process."""
    return Path(f"{cluster.paths_of(cluster.nodes[0]).kvm_dir}/pid/{NAME}").read_text()


@pytest.fixture
def told(cluster: TestCluster, tmp_path: Path) -> Iterator[Path]:
    """Let the hooks of the operation write what they are told; yields where, without the phase."""
    told = tmp_path / "told"
    scripts = []
    for phase in ("pre", "post"):
        place = Path(cluster.paths.hooks_dir, f"instance-snapshot-{phase}.d")
        place.mkdir(parents=True, exist_ok=True)
        words = "$GANETI_ACTION $GANETI_SNAPSHOT_NAME $GANETI_INSTANCE_NAME"
        script = place / "tell"
        script.write_text(f"#!/bin/sh\n[ -e {told}.{phase} ] || echo {words} > {told}.{phase}\n")
        script.chmod(0o755)
        scripts.append(script)
    yield told
    for script in scripts:
        script.unlink()


def start(cluster: TestCluster, name: str) -> None:
    cluster.gnt(f"instance startup {name}")
    wait_until(lambda: is_up(cluster, name), "the guest to be up", timeout_s=60)


def writes(cluster: TestCluster) -> None:
    """Wait until the guest has written some rounds more, seen by the time of its files."""
    for path in disks_of(cluster, NAME):
        for _ in range(2):
            before = path.stat().st_mtime_ns
            wait_until(lambda p=path, b=before: p.stat().st_mtime_ns > b, f"a write to {path}")


@pytest.fixture
def counting(cluster: TestCluster, tmp_path: Path) -> TestCluster:
    """A cluster on whose first node the guest runs that counts on two images."""
    disks = " ".join(f"--disk {i}:size={SIZE_MIB},format=qcow2" for i in (0, 1))
    node = cluster.nodes[0]
    cluster.gnt(f"{ADD} -t file {disks} -H kvm -o bootsector+default -n {node} {NAME}")
    made = counters.disk_images(tmp_path, SIZE_MIB)
    for image, disk in zip(made, disks_of(cluster, NAME), strict=True):
        argv = ["qemu-img", "convert", "-n", "--target-is-zero", "-f", "raw", "-O", "qcow2"]
        subprocess.run([*argv, str(image), str(disk)], check=True)
    start(cluster, NAME)
    return cluster


def test_a_running_guest_is_kept_as_of_one_instant_and_restored(
    counting: TestCluster, told: Path
) -> None:
    cluster = counting
    started = process(cluster)
    writes(cluster)
    cluster.gnt(f"instance snapshot create {NAME} first")
    for phase in ("pre", "post"):
        assert told.with_suffix(f".{phase}").read_text() == f"create first {NAME}\n"
    writes(cluster)
    cluster.gnt(f"instance snapshot create {NAME} second")
    writes(cluster)
    assert process(cluster) == started, "it was not started anew"
    assert listed(cluster) == ["first", "second"]
    kept = {
        name: [contents(path, name) for path in disks_of(cluster, NAME)]
        for name in ("first", "second")
    }
    taken = {name: counters.check_one_instant(images) for name, images in kept.items()}
    assert 0 < taken["first"] < taken["second"]

    cluster.refused(f"instance snapshot create {NAME} first", "has a snapshot 'first' already")
    cluster.refused(f"instance snapshot create {NAME} 1", "cannot be the name of a snapshot")
    cluster.refused(f"instance snapshot --quiesce create {NAME} third", "use_guest_agent")
    cluster.refused(f"instance snapshot -f restore {NAME} first", "is running on node")
    cluster.refused(f"instance snapshot -f remove {NAME} third", "it has: first, second")
    assert listed(cluster) == ["first", "second"]
    cluster.gnt(f"instance grow-disk {NAME} 1 {SIZE_MIB}")
    cluster.gnt(f"instance shutdown --timeout=1 {NAME}")
    last = [contents(path) for path in disks_of(cluster, NAME)]
    assert counters.counter(last[0]) > taken["second"]

    cluster.gnt(f"instance snapshot create {NAME} stopped")
    cluster.gnt(f"instance snapshot -f restore {NAME} first")
    now = [contents(path) for path in disks_of(cluster, NAME)]
    assert now == [kept["first"][0], kept["first"][1] + bytes(SIZE_MIB * MIB)]
    cluster.gnt(f"instance snapshot -f restore {NAME} stopped")
    assert [contents(path) for path in disks_of(cluster, NAME)] == last
    cluster.gnt(f"instance snapshot -f restore {NAME} second")
    start(cluster, NAME)
    cluster.gnt(f"instance snapshot -f remove {NAME} first")
    assert listed(cluster) == ["second", "stopped"]
    cluster.gnt(f"instance shutdown --timeout=1 {NAME}")
    cluster.gnt(f"instance snapshot -f remove {NAME} second")
    found = cluster.gnt(f"instance snapshot list {NAME}").lines
    assert found[0].split() == ["Name", "Time", "Disks"]
    assert re.fullmatch(r"stopped +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +0,1 *", found[1])
    assert counters.counter(contents(disks_of(cluster, NAME)[0])) >= taken["second"]
    for path in disks_of(cluster, NAME):
        checked_image(path)


def test_an_export_of_a_snapshot_is_that_of_its_instant(counting: TestCluster) -> None:
    cluster, (one, two, _) = counting, counting.nodes
    started = process(cluster)
    writes(cluster)
    cluster.gnt(f"instance snapshot create {NAME} kept")
    kept = [contents(path, "kept") for path in disks_of(cluster, NAME)]
    writes(cluster)
    cluster.refused(f"backup export --snapshot=other -n {two} {NAME}", "it has: kept")
    cluster.gnt(f"backup export --snapshot=kept -n {two} {NAME}")
    assert process(cluster) == started, "it went on"
    writes(cluster)
    described = Path(cluster.paths_of(two).export_dir, NAME, "config.ini").read_text()
    assert "method = kept snapshot" in described
    assert not cluster.files_below(one, "/var/run/ganeti/raw-disks")
    cluster.gnt(
        f"backup import --no-name-check --no-ip-check --no-nics -n {one} --src-node {two}"
        f" --src-dir {NAME} {COPY}"
    )
    copied = [path.read_bytes() for path in disks_of(cluster, COPY)]
    # The script of the operating system writes the new name.
    assert [copied[0][1536:], copied[1]] == [kept[0][1536:], kept[1]]
    assert counters.counter(copied[0]) == counters.check_one_instant(kept)
    assert cluster.instance_field(COPY, "nic.count") == "0"
    cluster.gnt(f"backup export --snapshot=kept -n {two} {NAME}")
    cluster.gnt(f"instance shutdown --timeout=1 {NAME}")
    cluster.gnt(f"backup export --snapshot=kept -n {two} {NAME}")
    for refused in (f"instance move -f -n {two} {NAME}", f"instance modify -t sharedfile {NAME}"):
        cluster.refused(refused, "its snapshots (kept) would be lost")
    cluster.gnt(f"instance modify --disk add:size=4,format=qcow2 {NAME}")
    cluster.refused(f"instance snapshot -f restore {NAME} kept", "disk 2 has no snapshot 'kept'")
    cluster.gnt(f"instance modify --disk add:size=4,format=raw {NAME}")
    cluster.refused(
        f"instance snapshot create {NAME} more",
        "disk 3 of instance 'counting.example.com' is a file of format 'raw'",
    )
    cluster.gnt(f"backup remove {NAME}")
    directory = disks_of(cluster, NAME)[0].parent
    cluster.gnt(f"instance remove -f --shutdown-timeout=1 {NAME}")
    assert not directory.exists(), "snapshots go with their instance"
