"""Virtual machines of Proxmox VE, read."""

from __future__ import annotations

import pytest

from ganeti.base.errors import ProtocolError
from ganeti.cli.adopting.machine import FoundDisk, FoundNic
from ganeti.cli.adopting.proxmox import path_of, read_machine, read_storages

STORAGES = read_storages(
    """dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup

lvmthin: local-lvm
\tthinpool data
\tvgname pve
\tcontent rootdir,images

nfs: nas
\texport /x
\tserver 192.0.2.1

zfspool: tank
\tpool rpool/data
"""
)
FULL = """#a comment
agent: 1
balloon: 1024
bios: ovmf
boot: order=scsi1;ide2;net0
cores: 2
cpu: host,flags=+aes
efidisk0: local-lvm:vm-100-disk-9,size=4M
hostpci0: 01:00.0
ide2: local:iso/debian.iso,media=cdrom,size=600M
ide3: local-lvm:vm-100-cloudinit,media=cdrom
machine: pc-q35-8.1+pve1
memory: 4096
name: web1
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=42,queues=4
net1: e1000=BC:24:11:00:00:02,bridge=vmbr1,trunks=5;6
numa: 0
onboot: 1
ostype: win11
scsi0: local-lvm:vm-100-disk-0,cache=writeback,discard=on,iothread=1,size=32G
scsi1: local:100/vm-100-disk-1.qcow2,aio=native,size=8G
sata0: nas:100/vm-100-disk-2.raw,ro=1
virtio0: tank:vm-100-disk-3,size=1G
scsihw: virtio-scsi-single
smbios1: uuid=0
sockets: 2
tablet: 1
tags: web;prod
unused0: local-lvm:vm-100-disk-8
vga: qxl

[before]
memory: 512
"""


def test_all_that_a_machine_has() -> None:
    machine = read_machine(FULL, STORAGES)
    assert (machine.name, machine.vcpus, machine.tags) == ("web1", 4, ["web", "prod"])
    assert (machine.maxmem_mib, machine.minmem_mib) == (4096, 1024)
    assert machine.hvparams == {
        "cpu_cores": "2",
        "cpu_sockets": "2",
        "cpu_type": "host",
        "kernel_path": "",
        "use_guest_agent": "yes",
        "machine_version": "pc-q35-8.1",
        "usb_mouse": "tablet",
        "vga": "qxl",
        "use_localtime": "yes",
        "disk_type": "scsi-hd",
        "disk_aio": "native",
        "disk_cache": "writeback",
        "disk_discard": "unmap",
        "boot_order": "disk",
        "cdrom_image_path": "/var/lib/vz/template/iso/debian.iso",
        "nic_type": "paravirtual",
        "virtio_net_queues": "4",
    }
    assert machine.nics == [
        FoundNic(mac="bc:24:11:00:00:01", link="vmbr0", vlan="42"),
        FoundNic(mac="bc:24:11:00:00:02", link="vmbr1", vlan=":5:6"),
    ]


def test_disks_come_in_the_order_of_their_boot() -> None:
    found = read_machine(FULL, STORAGES).disks
    assert found[0] == FoundDisk(
        label="scsi1", path="/var/lib/vz/images/100/vm-100-disk-1.qcow2", format="qcow2"
    )
    assert [(disk.label, disk.path) for disk in found[1:]] == [
        ("sata0", "/mnt/pve/nas/images/100/vm-100-disk-2.raw"),
        ("scsi0", "/dev/pve/vm-100-disk-0"),
        ("virtio0", ""),
    ]
    assert found[1].read_only
    assert found[3].problem == "volumes of a storage of type 'zfspool' cannot be adopted"


def test_what_is_left_out_is_listed() -> None:
    assert read_machine(FULL, STORAGES).left_out == [
        "its snapshots",
        "features of the processor that are switched on or off",
        "UEFI firmware and its variables: the guest starts by BIOS",
        "the variables of UEFI (efidisk0)",
        "a PCI device of the node (hostpci0)",
        "a disk that the machine does not use (unused0)",
        "the seed of cloud-init (ide3), which Proxmox VE makes",
        "disks on the bus sata: the guest sees them as scsi-hd",
        "disks on the bus virtio: the guest sees them as scsi-hd",
        "the firewall of Proxmox VE on network interfaces",
        "network interfaces of type e1000: the guest sees them as paravirtual",
    ]


@pytest.mark.parametrize(
    ("boot", "device"),
    [("cdn", "disk"), ("dc", "cdrom"), ("n", "network"), ("order=net0;scsi0", "network")],
)
def test_the_first_device(boot: str, device: str) -> None:
    text = f"memory: 64\nboot: {boot}\nscsi0: /dev/vg/a\nkvm: 0\nvga: serial0\nserial0: socket\n"
    machine = read_machine(text, {})
    assert machine.hvparams["boot_order"] == device
    assert machine.hvparams["kvm_flag"] == "disabled"
    assert machine.left_out == []


def test_old_and_odd_settings() -> None:
    text = (
        "memory: 64\nbootdisk: ide1\nide0: /dev/vg/a\nide1: /srv/b.vmdk\nide2: none,media=cdrom\n"
        "ide3: odd:iso/x.iso,media=cdrom\nnet0: rtl8139,bridge=vmbr0\ncpu: x86-64-v2-AES\n"
        "agent: enabled=0\nvga: mad\nargs: -no-hpet\n"
    )
    machine = read_machine(text, {})
    assert [(disk.path, disk.format) for disk in machine.disks] == [
        ("/srv/b.vmdk", "vmdk"),
        ("/dev/vg/a", "raw"),
    ]
    assert machine.nics == [FoundNic(link="vmbr0")]
    assert machine.hvparams["nic_type"] == "rtl8139"
    assert [text.partition(":")[0] for text in machine.left_out] == [
        "the processor x86-64-v2-AES, which only Proxmox VE knows",
        "the graphics card mad",
        "the setting args",
        "the CD image odd",
    ]


def test_no_device_has_a_number_of_thousands_of_digits() -> None:
    number = "1" * 5000
    machine = read_machine(f"memory: 64\nnet{number}: virtio\nscsi{number}: /dev/vg/a\n", {})
    assert (machine.nics, machine.disks) == ([], [])
    assert [text[:16] for text in machine.left_out] == ["the setting net1", "the setting scsi"]


def test_volumes_of_storages() -> None:
    assert path_of("/dev/x/y", {}) == ("/dev/x/y", "")
    assert "known are: local, local-lvm, nas, tank" in path_of("other:1", STORAGES)[1]
    assert "known are: none" in path_of("odd", {})[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not the configuration of a virtual machine"),
        ("hello world\n", "'hello world' is not a line"),
        ("memory: lots\n", "memory: 'lots' is not a number"),
        ("memory: ²\n", "memory: '²' is not a number"),
        ("memory: " + "9" * 5000, "memory: '9{20}' is not a number"),
        ("memory: 1\n" + "".join(f"net{n}: virtio\n" for n in range(65)), "more than 64"),
    ],
)
def test_what_is_not_read(text: str, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        read_machine(text, {})
