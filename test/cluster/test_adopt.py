"""Machines of other programs become instances, with the disks that they have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster

from ganeti.bootstrap.virtual import lifecycle

NAME = "web1.example.com"
PLACE = "/srv/ganeti/file-storage/old"
CHECKS = "--no-name-check --no-ip-check"
DOMAIN = f"""<domain type='qemu'><name>web1</name>
<memory unit='MiB'>64</memory><vcpu>1</vcpu><features><acpi/></features>
<devices>
  <disk type='file' device='disk'><driver type='raw'/><source file='{PLACE}/web1.img'/>
    <target dev='vda' bus='virtio'/></disk>
  <interface type='bridge'><mac address='52:54:00:12:34:56'/><source bridge='br7'/>
    <model type='virtio'/></interface>
  <hostdev type='usb'/>
</devices></domain>
"""
CONFIGURATION = """name: web1
memory: 64
scsi0: old:100/vm-100-disk-0.raw,size=2M
net0: virtio=BC:24:11:00:00:01,bridge=br7
"""
STORAGES = f"dir: old\n\tpath {PLACE}\n"

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed"),
]


@pytest.fixture
def images(cluster: TestCluster) -> Iterator[Path]:
    """A directory of the first node, in which the disks of other programs may be."""
    paths = cluster.paths_of(cluster.nodes[0])
    listed = Path(paths.file_storage_paths_file)
    before = listed.read_text() if listed.exists() else None
    directory = Path(paths.root + PLACE)
    (directory / "images/100").mkdir(parents=True, exist_ok=True)
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text((before or "") + f"{PLACE}\n{os.path.dirname(PLACE)}\n")
    yield directory
    if before is None:
        listed.unlink()
    else:
        listed.write_text(before)


def test_a_domain_of_libvirt(cluster: TestCluster, images: Path, tmp_path: Path) -> None:
    image, description = images / "web1.img", tmp_path / "web1.xml"
    image.write_bytes(b"precious" + bytes((4 << 20) - 8))
    description.write_text(DOMAIN)
    words = f"-n {cluster.nodes[0]} --name={NAME} {CHECKS} {description}"
    shown = cluster.gnt(f"instance adopt --dry-run {words}")
    assert f"--disk 0:adopt={PLACE}/web1.img" in shown.out
    assert "Not carried over: the device hostdev usb" in shown.err
    assert cluster.instance_names() == []
    cluster.gnt(f"instance adopt {words}")
    fields = "status,nic.mac/0,nic.link/0,be/maxmem,disk.size/0"
    assert cluster.instance_field(NAME, fields) == "ADMIN_down|52:54:00:12:34:56|br7|64|4"
    cluster.gnt(f"instance startup {NAME}")
    assert cluster.instance_field(NAME, "status") == "running"
    assert image.read_bytes()[:8] == b"precious"
    cluster.gnt(f"instance remove -f --shutdown-timeout=0 {NAME}")
    assert not image.exists()


def test_a_machine_of_proxmox(cluster: TestCluster, images: Path, tmp_path: Path) -> None:
    image = images / "images/100/vm-100-disk-0.raw"
    image.write_bytes(bytes(4 << 20))
    description, storages = tmp_path / "100.conf", tmp_path / "storage.cfg"
    description.write_text(CONFIGURATION)
    storages.write_text(STORAGES)
    words = f"-n {cluster.nodes[0]} --name={NAME} {CHECKS} {description}"
    cluster.refused(f"instance adopt {words}", "scsi0 cannot be adopted: the storage 'old'")
    cluster.gnt(f"instance adopt --storage-config={storages} {words}")
    assert cluster.instance_field(NAME, "hv/disk_type,nic.mac/0") == "scsi-hd|bc:24:11:00:00:01"


def test_what_is_no_machine_is_refused(cluster: TestCluster, tmp_path: Path) -> None:
    file = tmp_path / "x.xml"
    adopt = f"instance adopt -n {cluster.nodes[0]}"
    cluster.refused(f"{adopt} {file}", f"cannot read {file}")
    cluster.refused(f"{adopt} {tmp_path}", f"{tmp_path} is not a regular file")
    file.write_text("<!DOCTYPE x [<!ENTITY a 'b'>]><domain>&a;</domain>")
    cluster.refused(f"{adopt} {file}", f"{file}: a document with a type definition")
    file.write_bytes(bytes((1 << 20) + 1))
    cluster.refused(f"{adopt} {file}", "")
