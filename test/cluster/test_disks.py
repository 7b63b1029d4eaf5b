"""Disks of instances: hotplug, growth, moves, conversions and external providers, for real."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.bootstrap.virtual import lifecycle

NEEDS_QEMU = pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
WORDS = "--no-name-check --no-ip-check --no-nics -B memory=32 -n node1 -o bootsector+default"
PROVIDER = Path(__file__).parents[2] / "doc" / "examples" / "extstorage" / "files"
MIB = 1 << 20


def add(cluster: TestCluster, name: str, words: str) -> None:
    cluster.gnt(f"instance add {WORDS} {words} {name}")


def sizes(cluster: TestCluster, name: str) -> str:
    return cluster.instance_field(name, "disk.sizes")


def disk_files(cluster: TestCluster, node: str, name: str) -> list[str]:
    """Return the files of an instance's disks on a node, with the one that boots first."""
    found = [f for f in cluster.files_below(node, "/srv/ganeti/file-storage") if name in f]
    return sorted(found, key=lambda path: path.rpartition(".disk")[2])


def label(path: str) -> str:
    """Return the name that the operating system wrote on a disk."""
    with open(path, "rb") as file:
        file.seek(1024)
        return file.read(512).decode("ascii").strip()


@pytest.mark.shows("2.0/gnt-instance/modify")
@NEEDS_QEMU
@pytest.mark.qemu
def test_a_guest_keeps_running_while_its_disks_change(cluster: TestCluster) -> None:
    name = "hot.example.com"
    add(
        cluster,
        name,
        "-t sharedfile --disk 0:size=16 --disk 1:size=8,name=swap -H kvm:disk_type=scsi-hd",
    )

    def beats(node: int) -> list[int]:
        log = f"{cluster.paths_of(cluster.nodes[node]).log_kvm_dir}/{name}.serial.log"
        with open(log, encoding="latin1") as file:
            return [int(found) for found in re.findall(r"beat (\d+)\s", file.read())]

    wait_until(lambda: len(beats(0)) >= 2, "the guest's heart beats", timeout_s=60)
    before = beats(0)[-1]
    cluster.gnt(f"instance modify --hotplug --disk add:size=32,name=third {name}")
    cluster.gnt(f"instance grow-disk {name} 2 8")
    assert sizes(cluster, name) == "16,8,40"
    cluster.gnt(f"instance migrate -f -n node2 {name}")
    cluster.gnt(f"instance modify --hotplug --disk swap:detach {name}")
    cluster.gnt(f"instance modify --hotplug --disk 1:attach,name=swap {name}")
    cluster.gnt(f"instance migrate -f -n node1 {name}")
    cluster.gnt(f"instance modify --hotplug --disk third:remove {name}")
    assert sizes(cluster, name) == "16,8"
    assert "name: swap" in cluster.gnt(f"instance info {name}").out
    cluster.refused(f"instance modify --disk swap:remove {name}", "is running and uses its disks")
    # The counter goes on: the guest was not started anew.
    count = len(beats(0))
    wait_until(lambda: len(beats(0)) > count, "the heart still beats", timeout_s=60)
    assert beats(0)[-1] > before
    cluster.gnt(f"instance remove -f --shutdown-timeout=1 {name}")
    assert not os.path.exists(os.path.join(cluster.layout.shared_directory, name))


def test_a_move_takes_the_data_to_another_node(cluster: TestCluster) -> None:
    name = "mover.example.com"
    add(cluster, name, "-t file --disk 0:size=16 --disk 1:size=8 -H fake")
    said = cluster.gnt(f"instance move -f --compress gzip-fast -n node2 {name}").out
    assert "* disk 1 copied" in said
    assert cluster.instance_field(name, "pnode,status") == "node2.example.com|running"
    assert not disk_files(cluster, cluster.nodes[0], name)
    first, second = disk_files(cluster, cluster.nodes[1], name)
    assert label(first) == name
    assert (os.path.getsize(first), os.path.getsize(second)) == (16 * MIB, 8 * MIB)
    for node in cluster.nodes:
        assert not cluster.files_below(node, "/var/run/ganeti/import-export")


def test_a_conversion_keeps_the_data(cluster: TestCluster) -> None:
    name = "other.example.com"
    add(cluster, name, "-t file --disk 0:size=16,name=root -H fake --no-start")
    cluster.gnt(f"instance modify -t sharedfile {name}")
    assert cluster.instance_field(name, "disk_template,disk.names") == "sharedfile|['root']"
    assert not disk_files(cluster, cluster.nodes[0], name)
    (file,) = Path(cluster.layout.shared_directory, name).iterdir()
    assert label(str(file)) == name


def test_files_are_adopted_where_they_are(cluster: TestCluster) -> None:
    node = cluster.nodes[0]
    paths = cluster.paths_of(node)
    directory = "/srv/ganeti/file-storage/images"
    local = Path(paths.localize(directory))
    local.mkdir(parents=True)
    for name, size in (("old", 8 * MIB), ("more", 4 * MIB), ("odd", MIB + 1)):
        (local / name).write_bytes(b"precious".ljust(size, b"\0"))
    words = f"instance add --no-name-check --no-ip-check -H fake -t file -n {node} --no-start"
    add_file = f"{words} --no-install --disk 0:adopt="
    cluster.refused(
        f"{add_file}{directory}/nix web.example.com", f"there is no file {directory}/nix"
    )
    cluster.refused(
        f"{add_file}/etc/passwd web.example.com", "is not below an allowed file storage"
    )
    cluster.refused(f"{add_file}{directory}/odd web.example.com", "no number of MiB; enlarge it")
    one = f"{directory}/old --disk 1:adopt={directory}/old"
    cluster.refused(f"{add_file}{one} web.example.com", f"file {directory}/old is named twice")
    if lifecycle.find_qemu() is not None:
        as_image = f"{add_file}{directory}/old,format=qcow2 -H kvm x.example.com"
        cluster.refused(as_image, "not an image")
    cluster.gnt(f"{add_file}{directory}/old web.example.com")
    assert cluster.instance_field("web.example.com", "disk.sizes") == "8"
    assert f"{directory}/old" in cluster.gnt("instance info web.example.com").out
    cluster.refused(f"{add_file}{directory}/old www.example.com", f"file {directory}/old is disk")
    cluster.gnt(f"instance modify --disk add:adopt={directory}/more web.example.com")
    assert cluster.instance_field("web.example.com", "disk.sizes") == "8,4"
    cluster.gnt("instance startup web.example.com")
    cluster.gnt("instance grow-disk web.example.com 1 4")
    assert (local / "more").read_bytes() == b"precious".ljust(8 * MIB, b"\0")
    verified = cluster.gnt("cluster verify").out
    assert f"{directory}/old" not in verified
    cluster.gnt("instance remove -f --shutdown-timeout=1 web.example.com")
    assert [path.name for path in local.iterdir()] == ["odd"], "they went with the instance"
    (local / "odd").unlink()
    local.rmdir()


@pytest.mark.shows("2.1/repairs/programs", "2.1/disk-status/broken")
def test_lost_disks_are_found_and_made_anew(cluster: TestCluster) -> None:
    name = "lost.example.com"
    add(cluster, name, "-t file --disk 0:size=16 --disk 1:size=8 -H fake")
    lost = disk_files(cluster, cluster.nodes[0], name)[1]
    assert cluster.instance_field(name, "disk.status") == "['ok', 'ok']"
    os.unlink(lost)
    assert cluster.instance_field(name, "disk.status") == "['ok', 'missing']"
    found = cluster.run("gnt-cluster verify-disks")
    assert found.status == 1
    assert f"Instance {name} has missing disks:" in found.out
    assert f"To make them anew, empty: gnt-instance recreate-disks --disk 1 {name}" in found.out
    assert "replace-disks" not in found.out  # which is for disks with copies
    cluster.refused(f"instance recreate-disks {name}", "is running")
    cluster.gnt(f"instance shutdown --timeout=1 {name}")
    cluster.refused(f"instance recreate-disks {name}", "disk 0")
    cluster.gnt(f"instance recreate-disks --disk 1:size=24 {name}")
    assert os.path.getsize(lost) == 24 * MIB
    os.truncate(lost, 32 * MIB)
    said = cluster.gnt(f"cluster repair-disk-sizes {name}").out
    assert f"Disk 1 of instance {name}: size is 32 MiB" in said
    assert sizes(cluster, name) == "16,32"


@pytest.fixture
def provider(cluster: TestCluster, tmp_path: Path) -> Iterator[str]:
    """An external storage provider on all nodes; returns the settings of its disks."""
    templates = "--enabled-disk-templates=sharedfile,file,diskless"
    for node in cluster.nodes:
        shutil.copytree(PROVIDER, Path(cluster.paths_of(node).es_search_path[0]) / "files")
    cluster.gnt(
        f"cluster modify {templates},ext --ipolicy-disk-templates=sharedfile,file,diskless,ext"
    )
    yield f"provider=files,directory={tmp_path}"
    cluster.tidy_up()
    cluster.gnt(f"cluster modify --ipolicy-disk-templates=sharedfile,file,diskless {templates}")
    for node in cluster.nodes:
        shutil.rmtree(cluster.paths_of(node).es_search_path[0])


@pytest.mark.shows("backend/templates/ext")
def test_volumes_of_a_provider(cluster: TestCluster, provider: str, tmp_path: Path) -> None:
    name = "volumes.example.com"
    add(cluster, name, f"-t ext --disk 0:size=16,{provider} -H fake")
    (first,) = (path for path in tmp_path.iterdir() if path.suffix != ".info")
    assert label(str(first)) == name
    cluster.gnt(f"instance grow-disk --absolute {name} 0 24")
    assert first.stat().st_size == 24 * MIB
    cluster.gnt(f"instance failover -f --shutdown-timeout=1 -n node2 {name}")
    cluster.gnt(f"instance shutdown --timeout=1 {name}")
    cluster.gnt(f"instance modify -t sharedfile {name}")
    assert not list(tmp_path.iterdir())
    cluster.gnt(f"instance modify -t ext --ext-params {provider} {name}")
    cluster.gnt(f"instance remove -f {name}")
    assert not list(tmp_path.iterdir())


REFUSED = [
    ("grow-disk {} 0 0", "nothing to grow"),
    ("grow-disk {} 0 9223372036854775808", "is too large"),
    ("grow-disk --absolute {} 0 4", "cannot be made smaller"),
    ("grow-disk {} 7 1", "disk 7 not found"),
    ("grow-disk {} 99 1", "disk"),
    ("modify --disk 0:size=4 {}", "gnt-instance grow-disk"),
    ("modify --disk nix:remove {}", "disk 'nix' not found"),
    ("modify --disk add:size=1,nix=1 {}", "not known for disk template"),
    ("modify --disk add:size=some {}", "some"),
    ("modify -t plain {}", "plain"),
    ("modify --disk attach:name=nix {}", "no disk with name 'nix'"),
    ("move -f -n node1 {}", "is the primary node"),
    ("replace-disks -p {}", "no mirrored disks"),
    ("recreate-disks --disk 5 {}", "disk 5 not found"),
]


def test_what_cannot_be_is_said_in_one_clear_error(cluster: TestCluster) -> None:
    name = "strict.example.com"
    add(cluster, name, "-t file --disk 0:size=8 -H fake --no-start --no-install")
    for words, text in REFUSED:
        cluster.refused(f"instance {words.format(name)}", text)
    assert sizes(cluster, name) == "8"
