"""Disks in images of format qcow2: real guests on them, and their bytes compared with the originals."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.bootstrap.virtual import lifecycle

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
ADD = "instance add --no-name-check --no-ip-check -o bootsector+default -B memory=16"


def image_info(path: Path) -> dict[str, object]:
    """Return QEMU's own words about an image that may be in use."""
    argv = ["qemu-img", "info", "-U", "--output=json", str(path)]
    found = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    assert isinstance(found, dict)
    return found


def bytes_of(path: Path) -> bytes:
    """Return the bytes of the disk in an image that nobody uses."""
    argv = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(path), f"{path}.copy"]
    subprocess.run(argv, check=True)
    data = Path(f"{path}.copy").read_bytes()
    os.unlink(f"{path}.copy")
    return data


def files_of(cluster: TestCluster, name: str, node: int | None = None) -> list[Path]:
    """Return the files of the disks, in their order; shared ones without a node."""
    directory = (
        Path(cluster.layout.shared_directory, name)
        if node is None
        else Path(
            cluster.paths_of(cluster.nodes[node]).localize(f"/srv/ganeti/file-storage/{name}")
        )
    )
    return sorted(directory.iterdir(), key=lambda path: path.suffix)


def formats(files: list[Path]) -> list[object]:
    return [image_info(path)["format"] for path in files]


def beats(cluster: TestCluster, name: str, node: int) -> list[int]:
    log = Path(f"{cluster.paths_of(cluster.nodes[node]).log_kvm_dir}/{name}.serial.log")
    text = log.read_text("latin1") if log.exists() else ""
    return [int(found) for found in re.findall(r"beat (\d+)\s", text)]


def wait_for_beats(cluster: TestCluster, name: str, node: int, more: int = 2) -> int:
    count = len(beats(cluster, name, node))
    wait_until(lambda: len(beats(cluster, name, node)) >= count + more, "beats", timeout_s=60)
    return beats(cluster, name, node)[-1]


def test_a_running_guest_on_images_changes_and_moves(cluster: TestCluster) -> None:
    name = "image.example.com"
    disks = "--disk 0:size=16,format=qcow2 --disk 1:size=8,name=swap,format=qcow2"
    cluster.gnt(
        f"{ADD} -t sharedfile {disks} -H kvm:disk_type=scsi-hd -n {cluster.nodes[0]} {name}"
    )
    first = wait_for_beats(cluster, name, 0)
    files = files_of(cluster, name)
    assert formats(files) == ["qcow2", "qcow2"]
    assert all(path.stat().st_size < MIB for path in files), "only what was written"
    cluster.gnt("group modify -D sharedfile:format=qcow2 default")
    try:
        cluster.gnt(f"instance modify --hotplug --disk add:size=32,name=third {name}")
        cluster.gnt(f"instance modify --hotplug --disk add:size=4,name=plain,format=raw {name}")
    finally:
        cluster.gnt("group modify -D sharedfile:format=default default")
    cluster.gnt(f"instance grow-disk {name} 2 8")
    files = files_of(cluster, name)
    assert formats(files) == ["qcow2", "qcow2", "qcow2", "raw"]
    assert image_info(files[2])["virtual-size"] == 40 * MIB
    cluster.gnt(f"instance migrate -f -n node2 {name}")
    cluster.gnt(f"instance modify --hotplug --disk swap:detach {name}")
    cluster.gnt(f"instance modify --hotplug --disk 1:attach,name=swap {name}")
    cluster.gnt(f"instance grow-disk {name} 0 16")
    cluster.gnt(f"instance migrate -f -n node1 {name}")
    assert wait_for_beats(cluster, name, 0) > first, "it was not started anew"
    assert "format: qcow2" in cluster.gnt(f"instance info {name}").out
    cluster.gnt(f"instance shutdown --timeout=1 {name}")
    cluster.gnt(f"instance grow-disk {name} 1 8")
    assert [image_info(path)["virtual-size"] for path in files_of(cluster, name)] == [
        32 * MIB,
        16 * MIB,
        40 * MIB,
        4 * MIB,
    ]
    cluster.gnt(f"instance startup {name}")
    wait_for_beats(cluster, name, 0)


def test_the_bytes_of_an_image_go_wherever_those_of_a_raw_file_go(cluster: TestCluster) -> None:
    name, copy = "bytes.example.com", "copy.example.com"
    node = cluster.nodes[0]
    disks = "--disk 0:size=16,format=qcow2 --disk 1:size=8,format=qcow2"
    cluster.gnt(f"{ADD} --no-start -t file {disks} -H kvm -n {node} {name}")
    first, second = files_of(cluster, name, 0)
    data = os.urandom(3 * MIB)
    noise = second.with_name("noise")
    noise.write_bytes(bytes(MIB) + data)
    argv = ["qemu-img", "convert", "-n", "-f", "raw", "-O", "qcow2"]
    subprocess.run([*argv, "--target-is-zero", str(noise), str(second)], check=True)
    noise.unlink()
    was = [bytes_of(first), bytes_of(second)]
    assert b"beat" in was[0], "the script of the operating system wrote it"
    assert was[1] == bytes(MIB) + data + bytes(4 * MIB)

    cluster.gnt(f"instance move -f -n node2 {name}")
    moved = files_of(cluster, name, 1)
    assert formats(moved) == ["qcow2", "qcow2"]
    assert [bytes_of(path) for path in moved] == was

    cluster.gnt(f"backup export -n {cluster.nodes[2]} {name}")
    cluster.gnt(
        f"backup import --no-name-check --no-ip-check -n {node} --src-node {cluster.nodes[2]}"
        f" --src-dir {name} {copy}"
    )
    copied = files_of(cluster, copy, 0)
    now = [path.read_bytes() for path in copied]  # raw, as the cluster has it
    assert copy.encode() in now[0][1024:1536], "the rename script wrote it"
    assert [now[0][:1024] + now[0][1536:], now[1]] == [was[0][:1024] + was[0][1536:], was[1]]
    cluster.gnt(f"backup remove {name}")

    cluster.refused(f"instance modify -t file {copy}", "has disk template 'file' already")
    cluster.gnt(f"instance modify -t file -e format=qcow2 {copy}")
    assert formats(files_of(cluster, copy, 0)) == ["qcow2", "qcow2"]
    assert [bytes_of(path) for path in files_of(cluster, copy, 0)] == now
    cluster.gnt(f"instance modify -t sharedfile {copy}")
    assert [path.read_bytes() for path in files_of(cluster, copy)] == now
    cluster.gnt(f"instance reinstall -f {name}")
    assert bytes_of(moved[0]) == was[0]
    for at in cluster.nodes:
        assert not cluster.files_below(at, "/var/run/ganeti/raw-disks")


def test_who_cannot_read_images_is_told(cluster: TestCluster) -> None:
    cluster.refused(
        f"{ADD} --no-start -t file --disk 0:size=8,format=qcow2 -H fake -n {cluster.nodes[0]} a.example.com",
        "hypervisor 'fake' does not read files of format 'qcow2'; give format=raw",
    )
    cluster.refused(
        f"{ADD} --no-start -t file --disk 0:size=8,format=vmdk -n {cluster.nodes[0]} a.example.com",
        "'vmdk' is not one of raw, qcow2",
    )
