"""Command lines, compared with golden ones."""

from __future__ import annotations

import pytest
from guests.instances import make_instance

from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm.command import Placement, command_line
from ganeti.hypervisor.kvm.machine import build_machine
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.objects.disk_templates import DiskMode
from ganeti.objects.rpc_instance import RpcInstance

DISK = AssembledDisk(
    index=0, uuid="ee8b6d3b-9c9e-48f4-9373-1b4a3fd556cd", dev_path="/run/inst1:0", size_mib=128
)
NIC_UUID = "a8ea3c51-895c-49a4-ba49-3cf1863fbc00"
GOLDEN = """\
/usr/bin/qemu-system-x86_64
-name inst1.example.com
-uuid d57ad28d-8ef1-47df-9747-d09279cc8352
-nodefaults
-no-user-config
-S
-pidfile /run/pid/inst1
-machine pc
-accel tcg
-cpu max
-m 128
-smp 2
-rtc base=utc
-display none
-vga std
-vnc 127.0.0.1:5107
-chardev socket,id=control,fd=3,server=on,wait=off
-mon chardev=control,mode=control
-chardev socket,id=info,fd=4,server=on,wait=off
-mon chardev=info,mode=control
-chardev socket,id=serial,fd=5,server=on,wait=off,logfile=/log/inst1.serial.log,logappend=on
-device isa-serial,chardev=serial,id=serial0
-device virtio-balloon-pci,id=balloon
-blockdev {"driver":"raw","node-name":"image-9c9e48f493731b4a3fd556cd","read-only":false,\
"cache":{"direct":false,"no-flush":false},"file":{"driver":"file","filename":"/run/inst1:0",\
"aio":"threads","cache":{"direct":false,"no-flush":false}}}
-device virtio-blk-pci,id=disk-9c9e48f493731b4a3fd556cd,drive=image-9c9e48f493731b4a3fd556cd,write-cache=on,\
bus=pci.0,addr=0xc,bootindex=1
-netdev {"type":"user","id":"net-895c49a4ba493cf1863fbc00"}
-device virtio-net-pci,id=nic-895c49a4ba493cf1863fbc00,netdev=net-895c49a4ba493cf1863fbc00,mac=aa:00:00:00:00:00,\
bus=pci.0,addr=0xd
"""


def place(**changes: object) -> Placement:
    values: dict[str, object] = {
        "binary": "/usr/bin/qemu-system-x86_64",
        "pid_file": "/run/pid/inst1",
        "sockets": {"control": 3, "info": 4, "serial": 5, "agent": 6, "share0": 7, "share1": 8},
        "serial_log": "/log/inst1.serial.log",
        "disks": {DISK.uuid: DISK},
        "nics": {NIC_UUID: NicBackend(NIC_UUID, BackendKind.USER)},
        "console_address": "127.0.0.1",
        **changes,
    }
    return Placement(**values)  # type: ignore[arg-type]  # checked by what is made of it


def lines(command: list[str]) -> list[str]:
    """Join options with their values."""
    joined: list[str] = []
    for word in command:
        if joined and joined[-1].startswith("-") and " " not in joined[-1] and word[0] != "-":
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def options(
    instance: RpcInstance, accelerator: str = "tcg", disk: AssembledDisk = DISK, **changes: object
) -> list[str]:
    machine = build_machine(instance, [disk], accelerator=accelerator)
    return lines(command_line(machine, place(disks={disk.uuid: disk}, **changes)))


def instance(**hvparams: object) -> RpcInstance:
    return make_instance(**{"kernel_path": "", **hvparams})  # type: ignore[arg-type]  # hvparams


def test_3_0_has_a_monitor_to_stop_the_machine_by() -> None:
    found = options(instance(), monitor_for_3_0="/run/a,b.monitor")
    assert "-monitor unix:/run/a,,b.monitor,server=on,wait=off" in found


def test_whole_command_line() -> None:
    machine = build_machine(
        make_instance(
            memory_mib=128,
            vcpus=2,
            nics=1,
            network_port=11007,
            kernel_path="",
            vnc_bind_address="127.0.0.1",
        ),
        [DISK],
        accelerator="tcg",
    )
    assert lines(command_line(machine, place())) == GOLDEN.splitlines()


@pytest.mark.parametrize(
    ("hvparams", "expected"),
    [
        ({"acpi": False}, ["-machine pc,acpi=off"]),
        ({"machine_version": "q35"}, ["-machine q35"]),
        ({"cpu_type": "host,-vmx"}, ["-cpu host,-vmx"]),
        ({"cpu_sockets": 2, "cpu_cores": 3}, ["-smp 1,sockets=2,cores=3,maxcpus=6"]),
        ({"cpu_cores": 3, "max_vcpus": 4}, ["-smp 1,cores=3,maxcpus=6"]),
        ({"cpu_threads": 1}, ["-smp 1,threads=1"]),
        ({"max_vcpus": 4}, ["-smp 1,maxcpus=4"]),
        (
            {"cpu_sockets": 2, "cpu_cores": 2, "cpu_threads": 2, "max_vcpus": 4},
            ["-smp 1,sockets=2,cores=2,threads=2,maxcpus=8"],
        ),
        ({"mem_path": "/huge"}, ["-mem-path /huge", "-mem-prealloc"]),
        (
            {"shared_dirs": "data=/srv/data;logs=/srv/a,b:ro"},
            [
                "-machine pc,memory-backend=memory",
                (
                    '-object {"qom-type":"memory-backend-memfd","id":"memory","size":16777216,'
                    '"share":true}'
                ),
                "-chardev socket,id=share0,fd=7",
                "-device vhost-user-fs-pci,id=share0,chardev=share0,tag=data",
                "-chardev socket,id=share1,fd=8",
                "-device vhost-user-fs-pci,id=share1,chardev=share1,tag=logs",
            ],
        ),
        (
            {"shared_dirs": "data=/srv/data", "mem_path": "/huge"},
            [
                "-machine pc,memory-backend=memory",
                (
                    '-object {"qom-type":"memory-backend-file","mem-path":"/huge","prealloc":true,'
                    '"id":"memory","size":16777216,"share":true}'
                ),
            ],
        ),
        ({"use_localtime": True}, ["-rtc base=localtime"]),
        ({"reboot_behavior": "exit"}, ["-no-reboot"]),
        ({"user_shutdown": True}, ["-no-shutdown"]),
        ({"vga": "cirrus", "keymap": "de"}, ["-vga cirrus", "-k de"]),
        ({"kvm_extra": "-global 'a b'"}, ["-global a b"]),
        (
            {"kernel_path": "/k", "initrd_path": "/i", "serial_speed": 9600},
            ["-kernel /k", "-initrd /i", "-append root=/dev/vda1 ro console=ttyS0,9600"],
        ),
        (
            {"kernel_path": "/k", "root_path": None, "serial_console": False, "kernel_args": "x"},
            ["-append x"],
        ),
        (
            {"usb_mouse": "tablet", "usb_devices": "keyboard"},
            ["-usb", "-device usb-tablet", "-device usb-kbd"],
        ),
        (
            {"usb_devices": "braille"},
            ["-chardev braille,id=braille", "-device usb-braille,chardev=braille"],
        ),
        (
            {"soundhw": "hda"},
            ["-audiodev none,id=audio", "-device hda-duplex,bus=hda.0,audiodev=audio"],
        ),
        (
            {"use_guest_agent": True},
            [
                "-device virtio-serial-pci,id=channels",
                "-chardev socket,id=agent,fd=6,server=on,wait=off",
                "-device virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
            ],
        ),
        (
            {"cdrom_image_path": "/cd", "boot_order": "cdrom"},
            [
                (
                    '-blockdev {"driver":"raw","node-name":"image-cdrom","read-only":true,'
                    '"file":{"driver":"file","filename":"/cd"}}'
                ),
                "-device ide-cd,id=cdrom,drive=image-cdrom,bootindex=1",
            ],
        ),
        (
            {"cdrom2_image_path": "http://x/cd", "cdrom_disk_type": "scsi"},
            [
                "-device lsi53c895a,id=scsi",
                (
                    '-blockdev {"driver":"raw","node-name":"image-cdrom2","read-only":true,'
                    '"file":{"driver":"http","url":"http://x/cd"}}'
                ),
                "-device scsi-cd,bus=scsi.0,scsi-id=6,id=cdrom2,drive=image-cdrom2",
            ],
        ),
        (
            {"floppy_image_path": "/f", "boot_order": "floppy"},
            ["-device floppy,drive=image-floppy,bootindex=1"],
        ),
        (
            {"floppy_image_path": "/f", "machine_version": "pc-q35-7.2"},
            ["-device isa-fdc", "-device floppy,drive=image-floppy"],
        ),
        (
            {"disk_type": "scsi-hd", "scsi_controller_type": "virtio-scsi-pci"},
            [
                "-device virtio-scsi-pci,id=scsi",
                (
                    "-device scsi-hd,id=disk-9c9e48f493731b4a3fd556cd,drive=image-9c9e48f493731b4a3fd556cd,"
                    "write-cache=on,bus=scsi.0,channel=0,scsi-id=0,lun=0,bootindex=1"
                ),
            ],
        ),
        (
            {"disk_type": "ide", "disk_cache": "writethrough"},
            [
                (
                    "-device ide-hd,id=disk-9c9e48f493731b4a3fd556cd,drive=image-9c9e48f493731b4a3fd556cd,"
                    "write-cache=off,bootindex=1"
                )
            ],
        ),
        (
            {"vnc_bind_address": "0.0.0.0", "vnc_tls": True, "vnc_x509_path": "/x"},
            [
                "-object tls-creds-x509,dir=/x,id=vnctls,endpoint=server,verify-peer=off",
                "-vnc 127.0.0.1:5100,tls-creds=vnctls",
            ],
        ),
        (
            {"spice_bind": "127.0.0.1", "spice_image_compression": "lz"},
            [
                "-vga qxl",
                (
                    "-spice addr=127.0.0.1,port=11000,disable-ticketing=on,image-compression=lz,"
                    "playback-compression=on,agent-mouse=on"
                ),
                "-device virtserialport,chardev=vdagent,name=com.redhat.spice.0",
            ],
        ),
    ],
    ids=str,
)
def test_parameters_have_their_options(hvparams: dict[str, object], expected: list[str]) -> None:
    found = options(instance(**hvparams))
    assert [line for line in expected if line not in found] == []


@pytest.mark.parametrize(
    ("hvparams", "place_changes", "unexpected"),
    [
        ({"kernel_path": "/k"}, {}, "bootindex"),
        ({"serial_console": False}, {}, "isa-serial"),
        ({"boot_order": "network"}, {}, "bootindex"),
        ({"floppy_image_path": "/f"}, {}, "isa-fdc"),
        ({}, {}, "-incoming"),
        ({}, {"console_address": ""}, "-vnc"),
    ],
    ids=str,
)
def test_options_that_are_not_there(
    hvparams: dict[str, object], place_changes: dict[str, object], unexpected: str
) -> None:
    assert not [
        line for line in options(instance(**hvparams), **place_changes) if unexpected in line
    ]


def test_target_of_a_migration_waits() -> None:
    assert "-incoming defer" in options(instance(), incoming=True)


@pytest.mark.shows("2.1/vnc/hidden")
def test_passwords_are_announced_but_never_on_the_command_line() -> None:
    vnc = options(instance(vnc_bind_address="::1"), console_address="::1", console_password=True)
    assert "-vnc [::1]:5100,password=on" in vnc
    spice = options(instance(spice_bind="127.0.0.1"), console_password=True)
    assert not [line for line in spice if "disable-ticketing" in line]


def test_vnc_on_a_socket() -> None:
    found = options(instance(vnc_bind_address="/run"), console_address="/run/a,b.v")
    assert "-vnc unix:/run/a,,b.v" in found


@pytest.mark.shows("backend/certificates/spice")
def test_spice_with_certificates() -> None:
    found = options(
        instance(spice_bind="127.0.0.1", spice_use_tls=True, spice_ip_version=4),
        spice_files=("/ca", "/cert", "/key"),
    )
    (spice,) = [line for line in found if line.startswith("-spice")]
    assert "tls-port=11000,x509-cacert-file=/ca,x509-cert-file=/cert,x509-key-file=/key" in spice
    assert ",ipv4=on" in spice


@pytest.mark.shows("2.0/disks/read-only", "2.0/disk/access")
def test_read_only_block_devices_without_cache() -> None:
    disk = AssembledDisk(
        index=0,
        uuid=DISK.uuid,
        dev_path="/dev/vg/lv",
        size_mib=1,
        mode=DiskMode.RO,
        dev_type="plain",
    )
    found = options(instance(disk_cache="none", disk_aio="native", disk_discard="unmap"), disk=disk)
    (image,) = [line for line in found if line.startswith("-blockdev")]
    assert '"read-only":true' in image
    assert '"driver":"host_device","filename":"/dev/vg/lv","aio":"native"' in image
    assert image.count('"direct":true') == 2
    assert image.count('"discard":"unmap"') == 2


def test_taps_with_queues() -> None:
    machine = build_machine(
        make_instance(nics=1, kernel_path="", vhost_net=True, virtio_net_queues=2),
        [],
        accelerator="kvm",
    )
    tap = NicBackend(NIC_UUID, BackendKind.TAP, "gnt0", link="br0")
    found = lines(command_line(machine, place(nics={NIC_UUID: tap})))
    assert (
        '-netdev {"type":"tap","id":"net-895c49a4ba493cf1863fbc00","ifname":"gnt0","script":"no",'
        '"downscript":"no","vhost":true,"queues":2}'
    ) in found
    assert any("mq=on,vectors=6" in line for line in found)
    assert "-cpu" not in " ".join(found)


def test_users_that_qemu_becomes() -> None:
    assert "-runas 5001:5001" in options(instance(), run_as="5001:5001")
    assert "-runas" not in " ".join(options(instance()))


def test_files_of_a_virtual_node() -> None:
    found = options(instance(kernel_path="/k"), files={"/k": "/node1/k"})
    assert "-kernel /node1/k" in found
