"""QEMU's descriptions of disks and network interfaces, for the command line and for hotplug.

Source: QEMU's QMP reference, blockdev-add, BlockdevOptions, netdev_add, device_add;
hooks_os_ext.json, "attach_stdout"; constants.json, "hvparams".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm.hardware.disks import TPM
from ganeti.hypervisor.kvm.machine import CdDrive, Dimm, DiskDevice, Machine, NicDevice, port_name
from ganeti.hypervisor.kvm.params import KvmParams
from ganeti.hypervisor.shared_dirs import Share
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.objects.disk_templates import DiskFormat, traits_of
from ganeti.protocol.qemu.images import Options, image_from_uri

MAIN_MEMORY: Final = "memory"


def option_value(text: str) -> str:
    """Escape a text for use inside an option: a comma ends it, two stand for one."""
    return text.replace(",", ",,")


def on_off(flag: bool) -> str:
    """Return how an option says yes or no."""
    return "on" if flag else "off"


def image_options(disk: DiskDevice, place: AssembledDisk, params: KvmParams) -> Options:
    """Return QEMU's description of a disk's image, as -blockdev and blockdev-add take it."""
    direct = params.uses_direct_io
    image = _image(place, params, direct=direct)
    if params.text("disk_discard") != "default":
        image["discard"] = params.text("disk_discard")
    if disk.driver == TPM:
        image["locking"] = "off"  # swtpm writes it; QEMU only has it open for snapshots
    # An image says itself what it lies upon: ours lie upon nothing.
    alone = {"backing": None} if place.format is DiskFormat.QCOW2 else {}
    return {
        "driver": place.format.value,
        "node-name": disk.node_name,
        "read-only": disk.read_only,
        "cache": {"direct": direct, "no-flush": False},
        **({"discard": image["discard"]} if "discard" in image else {}),
        **alone,
        "file": image,
    }


def _image(place: AssembledDisk, params: KvmParams, *, direct: bool) -> Options:
    """Return the description of where an image lies: at an address, or in a file or device."""
    if place.uri is not None:
        return {**image_from_uri(place.uri), "cache": {"direct": direct, "no-flush": False}}
    host_device = not traits_of(place.dev_type).is_file
    return {
        "driver": "host_device" if host_device else "file",
        "filename": place.dev_path,
        "aio": params.text("disk_aio"),
        "cache": {"direct": direct, "no-flush": False},
    }


def disk_options(disk: DiskDevice, machine: Machine, *, boot_index: int | None = None) -> Options:
    """Return QEMU's description of a disk's device, as device_add takes it."""
    params = machine.params
    options: Options = {"driver": disk.driver, "id": disk.device_id, "drive": disk.node_name}
    if disk.driver not in ("scsi-block", "scsi-generic"):
        options["write-cache"] = on_off(params.text("disk_cache") != "writethrough")
    if disk.slot is not None:
        options.update(_pci_place(disk.slot, machine))
    if disk.unit is not None:
        options.update(_scsi_place(disk.unit, params))
    if boot_index is not None:
        options["bootindex"] = boot_index
    return options


def _pci_place(slot: int, machine: Machine) -> Options:
    """Return how a device says which port, or place on the PCI bus, is its own."""
    if machine.ports:
        return {"bus": port_name(slot)}
    return {"bus": machine.pci_bus, "addr": hex(slot)}


def _place(slot: int, machine: Machine) -> str:
    return port_name(slot) if machine.ports else f"{machine.pci_bus}/{slot:#x}"


def memory_options(dimm: Dimm, params: KvmParams, local_path: str) -> Options:
    """Return QEMU's description of memory that came later, as object-add takes it."""
    return _memory(dimm.memory_id, dimm.size_mib, params, local_path)


def main_memory(machine: Machine, local_path: str) -> Options:
    """Return QEMU's description of the memory of a machine's start, where -m is not enough."""
    return _memory(MAIN_MEMORY, machine.memory_mib, machine.params, local_path)


def _memory(name: str, size_mib: int, params: KvmParams, local_path: str) -> Options:
    """Describe memory; other processes see it too where directories are shared with the guest."""
    options: Options = {"id": name, "size": size_mib << 20}
    if params.shares():
        options["share"] = True
    if params.text("mem_path"):
        pages: Options = {"mem-path": local_path, "prealloc": True}
        return {"qom-type": "memory-backend-file", **pages, **options}
    kind = "memory-backend-memfd" if params.shares() else "memory-backend-ram"
    return {"qom-type": kind, **options}


def share_options(number: int, share: Share) -> Options:
    """Return QEMU's description of the device of a shared directory."""
    name = share_name(number)
    return {"driver": "vhost-user-fs-pci", "id": name, "chardev": name, "tag": share.tag}


def share_name(number: int) -> str:
    """Return the name of a shared directory in QEMU, and of its connection."""
    return f"share{number}"


def dimm_options(dimm: Dimm) -> Options:
    """Return QEMU's description of a module of memory, as device_add takes it."""
    return {
        "driver": "pc-dimm",
        "id": dimm.device_id,
        "memdev": dimm.memory_id,
        "slot": dimm.slot,
        "addr": dimm.address,
    }


def _scsi_place(unit: int, params: KvmParams) -> Options:
    """Return how a device says where on the SCSI bus it is."""
    if params.text("scsi_controller_type") == "virtio-scsi-pci":
        return {"bus": "scsi.0", "channel": 0, "scsi-id": 0, "lun": unit}
    return {"bus": "scsi.0", "scsi-id": unit}


def cd_options(drive: CdDrive, params: KvmParams, *, boots: bool) -> Options:
    """Return QEMU's description of a CD drive."""
    options: Options = {"driver": "ide-cd" if drive.unit is None else "scsi-cd"}
    if drive.unit is not None:
        options.update(_scsi_place(drive.unit, params))
    options.update(id=drive.name, drive=f"image-{drive.name}")
    if boots:
        options["bootindex"] = 1
    return options


def disk_place(disk: DiskDevice, machine: Machine) -> str:
    """Return where a disk is, for people: its bus and its place on it."""
    if disk.slot is not None:
        return _place(disk.slot, machine)
    return "" if disk.unit is None else f"scsi.0/{disk.unit}"


def cdrom_image(name: str, path: str) -> Options:
    """Return the description of an image in a CD drive; a path or a URL."""
    scheme, separator, _rest = path.partition("://")
    image: dict[str, object] = {"driver": "file", "filename": path}
    if separator:
        image = {"driver": scheme, "url": path}
    return {"driver": "raw", "node-name": f"image-{name}", "read-only": True, "file": image}


@dataclass(frozen=True, slots=True)
class TapFiles:
    """An open tap by the names that QEMU knows its files by, one for each queue."""

    tap: tuple[str, ...]
    vhost: tuple[str, ...] = ()


def netdev_options(
    nic: NicDevice, backend: NicBackend, params: KvmParams, files: TapFiles | None = None
) -> Options:
    """Return QEMU's description of the backend of a network interface, as netdev_add takes it.

    Args:
        files: the tap, if it is open; otherwise QEMU opens it.
    """
    if backend.kind is BackendKind.USER:
        return {"type": "user", "id": nic.netdev_id, **backend.user}
    options: Options = {"type": "tap", "id": nic.netdev_id}
    if files is not None:
        several = len(files.tap) > 1
        options["fds" if several else "fd"] = ":".join(files.tap)
        if files.vhost:
            options["vhost"] = True
            options["vhostfds" if several else "vhostfd"] = ":".join(files.vhost)
        return options
    options.update(ifname=backend.tap, script="no", downscript="no")
    if params.flag("vhost_net"):
        options["vhost"] = True
    if params.number("virtio_net_queues") > 1:
        options["queues"] = params.number("virtio_net_queues")
    return options


def nic_place(nic: NicDevice, machine: Machine) -> str:
    """Return where a network interface is, for people: its bus and its place on it."""
    return "" if nic.slot is None else _place(nic.slot, machine)


def nic_options(nic: NicDevice, machine: Machine, *, boots: bool = False) -> Options:
    """Return QEMU's description of a network interface, as device_add takes it."""
    options: Options = {"driver": nic.driver, "id": nic.device_id}
    options |= {"netdev": nic.netdev_id, "mac": nic.mac}
    if nic.slot is not None:
        options.update(_pci_place(nic.slot, machine))
    queues = machine.params.number("virtio_net_queues")
    if queues > 1:
        options.update(mq="on", vectors=2 * queues + 2)
    if boots:
        options["bootindex"] = 1
    return options
