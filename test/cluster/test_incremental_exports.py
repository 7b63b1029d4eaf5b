"""Chains of exports on a virtual cluster: each point comes back block by block."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from fakes import chance
from fakes.virtual_cluster import TestCluster

NAME, COPY = "web.example.com", "copy.example.com"
ADD = "instance add --no-name-check --no-ip-check --no-install --no-start -B memory=16"
EXPORT = "backup export --incremental"
IMPORT = "backup import --no-name-check --no-ip-check"
MIB = 1 << 20


def disks_of(cluster: TestCluster, node: str, name: str) -> list[Path]:
    """Return the files of an instance's disks, in their order."""
    directory = Path(cluster.paths_of(node).localize(f"/srv/ganeti/file-storage/{name}"))
    return sorted(directory.iterdir(), key=lambda path: path.stat().st_ctime_ns)


def images_of(cluster: TestCluster, node: str, name: str) -> dict[int, bytes]:
    """Return the contents of the disks; those of these tests differ in size."""
    return {path.stat().st_size: path.read_bytes() for path in disks_of(cluster, node, name)}


def write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def points_below(cluster: TestCluster, node: str) -> Path:
    return Path(cluster.paths_of(node).export_dir, NAME)


def restored(cluster: TestCluster, node: str, point: int | None) -> dict[int, bytes]:
    """Import a point, and return what was on its disks."""
    option = "" if point is None else f"--point {point}"
    cluster.gnt(f"{IMPORT} {option} -n {node} --src-dir {NAME} {COPY}")
    found = images_of(cluster, node, COPY)
    cluster.gnt(f"instance remove -f {COPY}")
    return found


def test_a_chain_grows_is_restored_and_loses_its_oldest_points(cluster: TestCluster) -> None:
    one, two, three = cluster.nodes
    rng = random.Random(chance.seed())
    cluster.gnt(f"{ADD} -t file --disk 0:size=8 -H fake -n {one} {NAME}")
    [disk] = disks_of(cluster, one, NAME)
    write(disk, 0, rng.randbytes(2 * MIB))
    kept = [images_of(cluster, one, NAME)]
    said = cluster.gnt(f"{EXPORT} -n {two} {NAME}").out
    assert f"a full export, with which a chain begins: node {two} has no export of {NAME}" in said

    write(disk, 5 * MIB + 7, b"new")
    write(disk, MIB, bytes(70_000))
    kept.append(images_of(cluster, one, NAME))
    said = cluster.gnt(f"{EXPORT} -n {two} {NAME}").out
    assert "nobody recorded where disk 0 was written since point 0" in said
    directory = points_below(cluster, two)
    [changed] = (directory / "increments/0001").glob("*.diff")
    assert 2 * 65536 < changed.stat().st_size < 4 * 65536, "little was written"
    assert not list(directory.glob("*.sums")), "only the newest point needs them"

    cluster.gnt(f"instance grow-disk {NAME} 0 4m")
    cluster.gnt(f"instance modify --disk add:size=5 {NAME}")
    [second] = [path for path in disks_of(cluster, one, NAME) if path != disk]
    write(second, 3, b"second")
    write(disk, 11 * MIB, b"grown")
    kept.append(images_of(cluster, one, NAME))
    said = cluster.gnt(f"{EXPORT} -n {two} {NAME}").out
    assert "disk 1 is not in point 1: all of it is dumped" in said

    cluster.gnt(f"instance modify --disk 1:remove {NAME}")
    write(disk, 0, rng.randbytes(300_000))
    kept.append(images_of(cluster, one, NAME))
    cluster.gnt(f"{EXPORT} --transport-compression gzip -n {two} {NAME}")

    for point, images in enumerate(kept):
        assert restored(cluster, three, point) == images, f"point {point}"
    assert restored(cluster, one, None) == kept[-1], "the newest point"
    listed = cluster.gnt("backup list --no-headers --separator=: -o export,points,size").lines
    [row] = [line for line in listed if line.startswith(NAME)]
    points, size = row.split(":")[1:]
    assert points == "[0, 1, 2, 3]"
    assert 2 <= int(size.removesuffix("M")) <= 5

    cluster.refused(f"{IMPORT} --point 9 -n {one} --src-dir {NAME} {COPY}", "it has 0, 1, 2, 3")
    cluster.refused(f"backup remove --before 9 {NAME}", "it has 0, 1, 2, 3")
    cluster.gnt(f"backup remove --before 2 {NAME}")
    assert sorted(os.listdir(directory / "increments")) == ["0003"]
    for point in (2, 3):
        assert restored(cluster, three, point) == kept[point], f"point {point}"
    cluster.refused(f"{IMPORT} --point 1 -n {one} --src-dir {NAME} {COPY}", "it has 2, 3")

    write(disk, 6 * MIB, b"goes on")
    kept.append(images_of(cluster, one, NAME))
    cluster.gnt(f"{EXPORT} -n {two} {NAME}")
    assert restored(cluster, three, 4) == kept[4]
    assert "begins with point 4 now" in cluster.gnt(f"backup remove --before 4 {NAME}").out
    assert "begins with point 4 already" in cluster.gnt(f"backup remove --before 4 {NAME}").out
    assert restored(cluster, three, None) == kept[4]
    assert sorted(path.name for path in directory.parent.iterdir()) == [NAME]

    cluster.gnt(f"instance rename -f --no-name-check --no-ip-check {NAME} other.example.com")
    said = cluster.gnt(f"{EXPORT} -n {two} other.example.com").out
    assert f"node {two} has no export of other.example.com" in said
    cluster.gnt("backup remove other.example.com")
    cluster.gnt(f"backup remove {NAME}")
    assert not list(directory.parent.iterdir())


@pytest.mark.parametrize("what", ["sums", "diff"])
def test_damage_is_told_with_the_next_command(cluster: TestCluster, what: str) -> None:
    one, two, _ = cluster.nodes
    cluster.gnt(f"{ADD} -t file --disk 0:size=2 -H fake -n {one} {NAME}")
    [disk] = disks_of(cluster, one, NAME)
    cluster.gnt(f"{EXPORT} -n {two} {NAME}")
    write(disk, 0, b"changed")
    cluster.gnt(f"{EXPORT} -n {two} {NAME}")
    [path] = (points_below(cluster, two) / "increments/0001").glob(f"*.{what}")
    write(path, path.stat().st_size - 7, b"damage")
    if what == "diff":
        cluster.refused(f"{IMPORT} -n {one} --src-dir {NAME} {COPY}", f"file {path.name} of the")
        assert cluster.instance_names() == [NAME]
    else:
        cluster.refused(f"{EXPORT} -n {two} {NAME}", "so it cannot be continued")
        cluster.gnt(f"backup export -n {two} {NAME}")
        said = cluster.gnt(f"{EXPORT} -n {two} {NAME}").out
        assert f"the export on {two} was made without --incremental" in said
