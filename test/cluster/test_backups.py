"""Exports and imports on a virtual cluster: real streams between real nodes."""

from __future__ import annotations

import os

import pytest
from fakes.virtual_cluster import TestCluster

ADD = "instance add --no-name-check --no-ip-check -H fake -o"
IMPORT = "backup import --no-name-check --no-ip-check"


def disk_of(cluster: TestCluster, node: str, name: str) -> bytes:
    directory = cluster.paths_of(node).localize(f"/srv/ganeti/file-storage/{name}")
    [file_name] = os.listdir(directory)
    with open(os.path.join(directory, file_name), "rb") as file:
        return file.read()


def exports_of(cluster: TestCluster, node: str) -> str:
    return cluster.paths_of(node).export_dir


@pytest.mark.shows(
    "backend/overview/export",
    "2.0/variable-disks/import-export",
    "2.0/os-scripts/rename",
    "2.0/os-input/old-name",
    "2.0/os-output/compressed",
)
def test_export_remove_import_copy(cluster: TestCluster) -> None:
    one, two, three = cluster.nodes
    cluster.gnt(
        f"{ADD} test -t file --disk 0:size=8,name=root -B memory=64 -n node1 web.example.com"
    )
    written = disk_of(cluster, one, "web.example.com")
    assert b"web.example.com" in written
    cluster.gnt("backup export -n node2 --transport-compression gzip web.example.com")
    assert cluster.instance_field("web.example.com", "status") == "running"
    cluster.gnt("backup export -n node3 --remove-instance -f web.example.com")
    listed = cluster.gnt("backup list --no-headers --separator=:").lines
    assert listed == [f"{one}:?", f"{two}:?", f"{three}:web.example.com"], "the older one is gone"
    assert not cluster.instance_names()

    cluster.gnt(f"{IMPORT} -n node2 web.example.com")
    assert disk_of(cluster, two, "web.example.com") == written
    assert cluster.instance_field("web.example.com", "be/maxmem") == "64"
    assert cluster.instance_field("web.example.com", "status") == "ADMIN_down"
    cluster.gnt(f"{IMPORT} -n node3 --src-node node3 --src-dir web.example.com copy.example.com")
    copied = disk_of(cluster, three, "copy.example.com")
    assert len(copied) == len(written)
    assert b"OLD_INSTANCE_NAME=web.example.com" in copied, "its operating system was told"
    macs = {cluster.instance_field(f"{name}.example.com", "nic.macs") for name in ("web", "copy")}
    assert len(macs) == 2

    [dump] = [
        name
        for name in os.listdir(f"{exports_of(cluster, three)}/web.example.com")
        if name.endswith(".dump")
    ]
    with open(f"{exports_of(cluster, three)}/web.example.com/{dump}", "ab") as file:
        file.write(b"x")
    cluster.refused(
        f"{IMPORT} -n node1 --src-dir web.example.com third.example.com",
        "its checksum is not that of the export",
    )
    assert cluster.instance_names() == ["copy.example.com", "web.example.com"]
    cluster.gnt("backup remove web.example.com")
    assert "no node has an export" in cluster.gnt("backup remove web.example.com").out
    for node in cluster.nodes:
        assert not cluster.files_below(node, "/var/run/ganeti/import-export")
        assert not os.path.exists(exports_of(cluster, node)) or not os.listdir(
            exports_of(cluster, node)
        )
