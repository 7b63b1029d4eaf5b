"""The command line of a virtual machine, from values alone.

What the guest sees comes from the `Machine`, what differs from node to node from the `Placement`.
QEMU starts paused, has no default devices, and takes its sockets as open descriptors, so that
paths are never too long and nobody can be connected to the wrong process.

Source: manual page qemu-system-x86_64(1); constants.json, "hvparams".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ganeti.hypervisor.kvm.devices import (
    cd_options,
    cdrom_image,
    device_option,
    disk_options,
    image_options,
    json_option,
    netdev_options,
    nic_options,
    on_off,
    option_value,
)
from ganeti.hypervisor.kvm.graphics import screen_options, usb_and_sound_options
from ganeti.hypervisor.kvm.machine import Machine, cd_drives
from ganeti.hypervisor.kvm.params import SCSI_CONTROLLERS, SCSI_DISK_TYPES, KvmParams
from ganeti.hypervisor.kvm.placement import Placement


def command_line(machine: Machine, place: Placement) -> list[str]:
    """Return the whole command line of a machine on a node."""
    params = machine.params
    return [
        place.binary,
        *_base(machine, place, params),
        *_kernel(place, params),
        *screen_options(machine, place, params),
        *_monitors(place),
        *_serial(place, params),
        "-device",
        "virtio-balloon-pci,id=balloon",
        *usb_and_sound_options(params),
        *_disks(machine, place, params),
        *_cdroms(place, params),
        *_floppy(place, params),
        *_nics(machine, place, params),
        *shlex.split(params.text("kvm_extra")),
    ]


def _base(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    yield from ("-name", f"guest={option_value(machine.name)},debug-threads=on")
    yield from ("-uuid", machine.uuid)
    yield from ("-nodefaults", "-no-user-config", "-S")
    yield from ("-pidfile", place.pid_file)
    acpi = "" if params.flag("acpi") else ",acpi=off"
    yield from ("-machine", machine.machine_type + acpi)
    yield from ("-accel", machine.accelerator)
    if machine.cpu_type:
        yield from ("-cpu", machine.cpu_type)
    yield from ("-m", str(machine.memory_mib))
    if params.text("mem_path"):
        yield from ("-mem-path", place.local(params.text("mem_path")), "-mem-prealloc")
    topology = [str(machine.vcpus)]
    for name in ("sockets", "cores", "threads"):
        if params.number(f"cpu_{name}"):
            topology.append(f"{name}={params.number(f'cpu_{name}')}")
    yield from ("-smp", ",".join(topology))
    yield from ("-rtc", f"base={'localtime' if params.flag('use_localtime') else 'utc'}")
    if params.text("reboot_behavior") == "exit":
        yield "-no-reboot"
    if params.flag("user_shutdown"):
        yield "-no-shutdown"
    if place.run_as:
        yield from ("-runas", place.run_as)
    if place.incoming:
        yield from ("-incoming", "defer")


def _kernel(place: Placement, params: KvmParams) -> Iterator[str]:
    if not params.text("kernel_path"):
        return
    yield from ("-kernel", place.local(params.text("kernel_path")))
    if params.text("initrd_path"):
        yield from ("-initrd", place.local(params.text("initrd_path")))
    words = [f"root={params.text('root_path')}"] if params.text("root_path") else []
    words.append(params.text("kernel_args"))
    if params.flag("serial_console"):
        words.append(f"console=ttyS0,{params.number('serial_speed')}")
    yield from ("-append", " ".join(word for word in words if word))


def _monitors(place: Placement) -> Iterator[str]:
    for name in ("control", "info"):
        yield from ("-chardev", f"socket,id={name},fd={place.sockets[name]},server=on,wait=off")
        yield from ("-mon", f"chardev={name},mode=control")


def _serial(place: Placement, params: KvmParams) -> Iterator[str]:
    if params.flag("serial_console"):
        yield "-chardev"
        yield (
            f"socket,id=serial,fd={place.sockets['serial']},server=on,wait=off"
            f",logfile={option_value(place.serial_log)},logappend={on_off(place.incoming)}"
        )
        yield from ("-device", "isa-serial,chardev=serial,id=serial0")
    uses_agent = params.flag("use_guest_agent")
    uses_vdagent = params.has_spice and params.flag("spice_use_vdagent")
    if uses_agent or uses_vdagent:
        yield from ("-device", "virtio-serial-pci,id=channels")
    if uses_agent:
        yield from ("-chardev", f"socket,id=agent,fd={place.sockets['agent']},server=on,wait=off")
        yield from ("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0")
    if uses_vdagent:
        yield from ("-chardev", "spicevmc,id=vdagent,name=vdagent")
        yield from ("-device", "virtserialport,chardev=vdagent,name=com.redhat.spice.0")


def _disks(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    uses_scsi = params.text("disk_type") in SCSI_DISK_TYPES
    has_scsi_cd = any(drive.unit is not None for drive in cd_drives(params))
    if (machine.disks and uses_scsi) or has_scsi_cd:
        controller = SCSI_CONTROLLERS[params.text("scsi_controller_type")]
        yield from ("-device", f"{controller},id=scsi")
    boots = params.text("boot_order") == "disk" and not params.text("kernel_path")
    for index, disk in enumerate(machine.disks):
        yield from ("-blockdev", json_option(image_options(disk, place.disks[disk.uuid], params)))
        boot_index = index + 1 if boots else None
        yield from ("-device", device_option(disk_options(disk, machine, boot_index=boot_index)))


def _cdroms(place: Placement, params: KvmParams) -> Iterator[str]:
    for drive in cd_drives(params):
        boots = params.text("boot_order") == "cdrom" and drive.name == "cdrom"
        yield from ("-blockdev", json_option(cdrom_image(drive.name, place.local(drive.image))))
        yield from ("-device", device_option(cd_options(drive, params, boots=boots)))


def _floppy(place: Placement, params: KvmParams) -> Iterator[str]:
    path = params.text("floppy_image_path")
    if not path:
        return
    image = {"driver": "file", "filename": place.local(path)}
    yield "-blockdev"
    yield json_option({"driver": "raw", "node-name": "image-floppy", "file": image})
    boot = ",bootindex=1" if params.text("boot_order") == "floppy" else ""
    yield from ("-device", f"floppy,drive=image-floppy{boot}")


def _nics(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    for index, nic in enumerate(machine.nics):
        boots = index == 0 and params.text("boot_order") == "network"
        yield from ("-netdev", json_option(netdev_options(nic, place.nics[nic.uuid], params)))
        yield from ("-device", device_option(nic_options(nic, machine, boots=boots)))
