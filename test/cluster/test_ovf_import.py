"""A machine of another program comes into the cluster, and goes out again."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster, own_cluster

from ganeti.cli.ovf.exporting import Target, export_ovf
from ganeti.cli.ovf.images import QEMU_IMG
from ganeti.protocol.export_description import (
    CONFIG_NAME,
    DumpedDisk,
    ExportDescription,
    format_description,
)

if shutil.which(QEMU_IMG) is None:
    pytest.skip("qemu-img is not installed", allow_module_level=True)
NAME = "web1.example.com"
CONTENT = b"a boot sector" + bytes(4 << 20)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with own_cluster(1) as made:
        yield made


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An OVA of a machine with one disk."""
    export = tmp_path / "export"
    export.mkdir()
    (export / "x.dump").write_bytes(CONTENT[: 4 << 20])
    description = ExportDescription(
        name=NAME,
        os="cloud",
        source_node="",
        timestamp=0,
        hypervisor="",
        disk_template="",
        disks=[DumpedDisk(size_mib=4, dump="x.dump")],
        nics=[{"mac": "aa:00:00:00:00:17"}],
        beparams={"maxmem": "16", "vcpus": "2"},
    )
    (export / CONFIG_NAME).write_text(format_description(description))
    target = Target(str(tmp_path / "out"), None, "vmdk", is_archive=True)
    return Path(export_ovf(str(export), target, lambda _text: None))


def test_an_ova_becomes_an_instance(cluster: TestCluster, archive: Path, tmp_path: Path) -> None:
    refused = cluster.run(["ovfconverter", "import", str(tmp_path / "nothing.ova")])
    assert refused.status == 1
    assert refused.err.startswith("ovfconverter: ")
    assert len(refused.err.splitlines()) == 1
    outcome = cluster.run(
        f"ovfconverter import -v -o copied -H fake -t file -n copy.example.com {archive}"
    )
    assert outcome.status == 0, outcome
    assert "Disk 0: 4194304 bytes, vmdk" in outcome.out
    assert "gnt-backup import --src-node=<this node> -n <node> copy.example.com" in outcome.out
    system = Path(cluster.paths.os_search_path[0]) / "copied"
    system.mkdir()
    (system / "ganeti_api_version").write_text("10\n")
    for script in ("create", "rename", "import", "export"):
        (system / script).write_text('#!/bin/sh\n[ -z "$IMPORT_DEVICE" ] || cat > "$IMPORT_DEVICE"')
        (system / script).chmod(0o755)
    cluster.gnt(
        f"backup import --no-name-check --no-ip-check --src-node={cluster.master}"
        f" -n {cluster.master} copy.example.com"
    )
    fields = {"nic.macs": "aa:00:00:00:00:17", "be/maxmem": "16", "be/vcpus": "2", "os": "copied"}
    for field, value in fields.items():
        assert cluster.instance_field("copy.example.com", field) == value
    directory = Path(cluster.paths.localize("/srv/ganeti/file-storage/copy.example.com"))
    [disk] = directory.iterdir()
    assert disk.read_bytes() == CONTENT[: 4 << 20]
    export = f"{cluster.paths.export_dir}/copy.example.com"
    outcome = cluster.run(f"ovfconverter export --ova -f cow --output-dir {tmp_path} {export}")
    assert outcome.status == 0, outcome
    with tarfile.open(tmp_path / "copy.example.com.ova") as packed:
        names = packed.getnames()
    assert names == [f"copy.example.com{end}" for end in (".ovf", ".mf", "-disk0.qcow2")]
    assert [n for n in os.listdir(cluster.paths.export_dir) if n.startswith(".")] == []
