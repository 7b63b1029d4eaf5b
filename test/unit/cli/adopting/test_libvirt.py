"""Domains of libvirt, read."""

from __future__ import annotations

import pytest

from ganeti.base.errors import ProtocolError
from ganeti.cli.adopting.libvirt import read_domain
from ganeti.cli.adopting.machine import FoundDisk, FoundNic

FULL = b"""<?xml version='1.0'?>
<domain type='kvm' id='3'>
  <name>web1</name>
  <memory unit='GiB'>2</memory>
  <currentMemory unit='KiB'>1048576</currentMemory>
  <vcpu placement='static'>4</vcpu>
  <os firmware='efi'>
    <type arch='x86_64' machine='pc-q35-7.2'>hvm</type>
    <loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>
    <boot dev='network'/>
  </os>
  <features><apic/></features>
  <cpu mode='host-passthrough'><topology sockets='1' dies='1' cores='2' threads='2'/>
    <feature policy='disable' name='svm'/></cpu>
  <clock offset='localtime'/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw' cache='none' io='native' discard='unmap'/>
      <source dev='/dev/vg0/web1'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/srv/images/data.qcow2'/><target dev='sda' bus='sata'/><readonly/>
    </disk>
    <disk type='network' device='disk'>
      <source protocol='rbd' name='pool/x'/><target dev='vdb' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'><source file='/srv/top.qcow2'/>
      <backingStore type='file'><source file='/srv/base.qcow2'/></backingStore>
      <target dev='vdc' bus='virtio'/></disk>
    <disk type='file' device='disk'><source file='/srv/secret.img'/>
      <encryption format='luks'/><target dev='vdd' bus='virtio'/></disk>
    <disk type='file' device='cdrom'><source file='/srv/a.iso'/><target dev='sdb' bus='sata'/>
    </disk>
    <disk type='file' device='cdrom'><source file='/srv/b.iso'/><target dev='sdc' bus='sata'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sdd' bus='sata'/></disk>
    <disk type='file' device='floppy'><source file='/srv/f.img'/><target dev='fda'/></disk>
    <controller type='usb' model='qemu-xhci'/>
    <interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/>
      <vlan><tag id='42'/></vlan><virtualport type='openvswitch'/><model type='virtio'/>
    </interface>
    <interface type='network'><mac address='52:54:00:00:00:02'/><source network='default'/>
      <vlan trunk='yes'><tag id='1'/><tag id='2'/></vlan><model type='e1000e'/></interface>
    <interface type='user'/>
    <graphics type='spice' listen='127.0.0.1' passwd='x'/>
    <graphics type='vnc'><listen type='address' address='0.0.0.0'/></graphics>
    <graphics type='sdl'/>
    <video><model type='qxl'/></video>
    <video><model type='bochs'/></video>
    <sound model='ich9'/>
    <sound model='usb'/>
    <input type='tablet' bus='usb'/>
    <input type='keyboard' bus='ps2'/>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <hostdev mode='subsystem' type='pci'/>
    <tpm model='tpm-crb'/>
    <memballoon model='virtio'/>
  </devices>
</domain>
"""
SMALL = "<domain type='{kind}'><name>a</name><memory>1024</memory>{more}</domain>"


def test_all_that_a_domain_has() -> None:
    machine = read_domain(FULL)
    assert (machine.name, machine.vcpus) == ("web1", 4)
    assert (machine.maxmem_mib, machine.minmem_mib) == (2048, 1024)
    assert machine.hvparams == {
        "cpu_type": "host",
        "cpu_sockets": "1",
        "cpu_cores": "2",
        "cpu_threads": "2",
        "kernel_path": "",
        "machine_version": "pc-q35-7.2",
        "boot_order": "network",
        "acpi": "no",
        "use_localtime": "yes",
        "disk_type": "paravirtual",
        "disk_cache": "none",
        "disk_aio": "native",
        "disk_discard": "unmap",
        "cdrom_image_path": "/srv/a.iso",
        "cdrom2_image_path": "/srv/b.iso",
        "floppy_image_path": "/srv/f.img",
        "nic_type": "paravirtual",
        "vga": "qxl",
        "spice_bind": "127.0.0.1",
        "soundhw": "hda",
        "usb_mouse": "tablet",
        "use_guest_agent": "yes",
    }
    assert machine.nics == [
        FoundNic(mac="52:54:00:00:00:01", link="br0", vlan="42", is_switch=True),
        FoundNic(mac="52:54:00:00:00:02", vlan=":1:2"),
        FoundNic(),
    ]


def test_the_disks_of_a_domain() -> None:
    first, second, *problems = read_domain(FULL).disks
    assert first == FoundDisk(label="vda", path="/dev/vg0/web1")
    assert second == FoundDisk(
        label="sda", path="/srv/images/data.qcow2", format="qcow2", read_only=True
    )
    assert [disk.problem.split(";")[0] for disk in problems] == [
        "its source is of type 'network', not a file or block device",
        "it is a layer over another image",
        "it is encrypted by libvirt",
    ]


def test_what_is_left_out_is_listed() -> None:
    assert read_domain(FULL).left_out == [
        "features of the processor that are switched on or off",
        "UEFI firmware and its variables: the guest starts by BIOS",
        "disks on the bus sata: the guest sees them as paravirtual",
        "network interfaces of type e1000e: the guest sees them as paravirtual",
        "the network interface's type user",
        "the password of spice: put it into a file for spice_password_file",
        "graphics of type vnc beside the first",
        "graphics of type sdl",
        "the graphics card bochs",
        "the sound card usb",
        "the device hostdev pci",
        "the device tpm tpm-crb",
    ]


def test_a_kernel_of_the_node_and_the_order_of_devices() -> None:
    more = (
        "<os><kernel>/boot/k</kernel><initrd>/boot/i</initrd><cmdline>root=/dev/vda</cmdline></os>"
        "<features><acpi/></features><cpu><model>Haswell</model></cpu><devices>"
        "<disk device='cdrom'><source file='/a.iso'/><target dev='sda'/><boot order='1'/></disk>"
        "<disk device='disk'><source file='/d'/><target dev='b' bus='ide'/><boot order='2'/></disk>"
        "</devices>"
    )
    machine = read_domain(SMALL.format(kind="qemu", more=more).encode())
    assert machine.hvparams == {
        "kvm_flag": "disabled",
        "cpu_type": "Haswell",
        "kernel_path": "/boot/k",
        "initrd_path": "/boot/i",
        "kernel_args": "root=/dev/vda",
        "root_path": "",
        "cdrom_image_path": "/a.iso",
        "disk_type": "ide",
        "boot_order": "cdrom",
    }
    assert (machine.maxmem_mib, machine.minmem_mib) == (1, 1)


@pytest.mark.parametrize(
    ("device", "word"),
    [
        ("<disk device='lun'><boot order='1'/></disk>", "disk"),
        ("<hostdev><boot order='1'/></hostdev>", "disk"),
        ("<interface type='bridge'><boot order='1'/></interface>", "network"),
    ],
)
def test_the_first_device_is_one_that_instances_know(device: str, word: str) -> None:
    more = f"<devices>{device}</devices>"
    machine = read_domain(SMALL.format(kind="kvm", more=more).encode())
    assert machine.hvparams["boot_order"] == word


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<domain", "cannot be read"),
        (b"<network/>", "a document <network>, not a <domain>"),
        (SMALL.format(kind="xen", more="").encode(), "a domain of type 'xen'"),
        (SMALL.format(kind="kvm", more="<vcpu>x</vcpu>").encode(), "'x' is not a number"),
        (b"<domain type='kvm'><memory unit='acre'>1</memory></domain>", "1 acre is not a size"),
        (SMALL.format(kind="kvm", more="<vcpu>²</vcpu>").encode(), "'²' is not a number"),
        (
            SMALL.format(kind="kvm", more=f"<vcpu>{'9' * 5000}</vcpu>").encode(),
            "9' is not a number",
        ),
        (f"<domain type='kvm'><memory>{'9' * 5000}</memory></domain>".encode(), "is not a size"),
        (b"<?xml version='1.0' encoding='odd'?><domain type='kvm'/>", "unknown encoding: odd"),
        (b"<?xml version='1.0' encoding='big5'?><domain type='kvm'/>", "multi-byte encodings"),
        (b"<domain type='kvm'><name>x</name></domain>", "has no <memory>"),
        (b"<!DOCTYPE d [<!ENTITY a 'b'>]><domain>&a;</domain>", "type definition"),
        (b"<!DOCTYPE d SYSTEM 'file:///etc/passwd'><domain/>", "type definition"),
        (b"<domain>" + b"<a/>" * 10_001 + b"</domain>", "more than 10000 elements"),
        (
            SMALL.format(
                kind="kvm", more="<devices>" + "<interface type='bridge'/>" * 65 + "</devices>"
            ).encode(),
            "more than 64 disks or interfaces",
        ),
    ],
)
def test_what_is_not_read(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        read_domain(data)
