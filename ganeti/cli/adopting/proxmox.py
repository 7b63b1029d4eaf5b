"""Virtual machines of Proxmox VE as machines: ``qemu-server/VMID.conf``.

Names of volumes are turned into paths by the storages in ``storage.cfg``.

Source: Proxmox VE's documentation, qm.conf(5) and the storage model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from ganeti.base.errors import ProtocolError
from ganeti.cli.adopting.machine import (
    CACHES,
    DEVICES_MAX,
    VGA,
    FoundDisk,
    FoundNic,
    Machine,
    whole_number,
)

Storages = Mapping[str, Mapping[str, str]]
_LINE: Final = re.compile(r"([a-z][a-z0-9_-]*):\s*(.*)")
_DISK: Final = re.compile(r"(virtio|scsi|sata|ide)([0-9]{1,4})")
_NIC: Final = re.compile(r"net([0-9]{1,4})")
_NUMBERED: Final = re.compile(r"([a-z]+?)\d+")
_BUSES: Final = {"virtio": "paravirtual", "scsi": "scsi-hd", "ide": "ide"}
_LEGACY_BOOT: Final = {"a": "floppy", "c": "disk", "d": "cdrom", "n": "network"}
_OWN_MODELS: Final = ("x86-64-v", "custom-")
_SHOWN_MAX: Final = 20  # letters of a wrong number
_MEMORY_MIB: Final = 512  # where the file says nothing
# What says nothing about the machine as its guest sees it
_SILENT: Final = frozenset(
    {
        *("balloon", "boot", "bootdisk", "cores", "cpu", "description", "digest", "hotplug"),
        *("memory", "meta", "migrate_downtime", "name", "numa", "onboot", "ostype", "parent"),
        *("protection", "scsihw", "shares", "smbios1", "sockets", "startup", "vcpus", "vmgenid"),
    }
)
_WORDS: Final = {
    "audio": "the sound card",
    "hostpci": "a PCI device of the node",
    "parallel": "a parallel port",
    "rng": "a source of chance",
    "tpmstate": "the TPM and its state",
    "efidisk": "the variables of UEFI",
    "usb": "a USB device",
    "unused": "a disk that the machine does not use",
    "virtiofs": "a directory of the node",
}


def read_storages(text: str) -> dict[str, dict[str, str]]:
    """Read ``storage.cfg``: {name: its settings, with its kind as ``type``}."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.splitlines():
        if head := re.fullmatch(r"([a-z]+):\s*(\S+)\s*", line):
            current = found.setdefault(head[2], {"type": head[1]})
        elif line.strip() and line[0] in " \t":
            key, _, value = line.strip().partition(" ")
            current[key] = value.strip()
    return found


def path_of(volume: str, storages: Storages) -> tuple[str, str]:
    """Return (path, "") of a volume, or ("", the reason why it has none)."""
    if volume.startswith("/"):
        return volume, ""
    name, colon, rest = volume.partition(":")
    storage = storages.get(name)
    if not colon or storage is None:
        known = ", ".join(storages) or "none"
        text = f"the storage {name!r} is not in storage.cfg (known are: {known})"
        return "", f"{text}; name that file with --storage-config"
    kind = storage["type"]
    if kind in ("lvm", "lvmthin") and storage.get("vgname"):
        return f"/dev/{storage['vgname']}/{rest}", ""
    directory = storage.get("path") or (f"/mnt/pve/{name}" if kind in ("nfs", "cifs") else "")
    if not directory:
        return "", f"volumes of a storage of type {kind!r} cannot be adopted"
    place = (
        rest.replace("iso/", "template/iso/", 1) if rest.startswith("iso/") else f"images/{rest}"
    )
    return f"{directory}/{place}", ""


def read_machine(text: str, storages: Storages) -> Machine:
    """Read the configuration of a virtual machine; its snapshots are left out.

    Raises:
        ProtocolError: it is none.
    """
    settings: dict[str, str] = {}
    machine = Machine()
    for line in text.splitlines():
        if line.startswith("["):
            machine.leave("its snapshots")
            break
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ProtocolError(f"{line[:80]!r} is not a line of a configuration of Proxmox VE")
        settings[found[1]] = found[2].strip()
    if not any(map(_DISK.fullmatch, settings)) and "memory" not in settings:
        raise ProtocolError("this is not the configuration of a virtual machine of Proxmox VE")
    machine.name = settings.get("name", "")
    _size(settings, machine)
    _rest(settings, machine)
    _disks(settings, machine, storages)
    for key in sorted((key for key in settings if _NIC.fullmatch(key)), key=_number):
        machine.nics.append(_nic(settings[key], machine))
    if len(machine.disks) > DEVICES_MAX or len(machine.nics) > DEVICES_MAX:
        raise ProtocolError(f"the machine has more than {DEVICES_MAX} disks or interfaces")
    return machine


def _number(key: str) -> int:
    return int(re.sub(r"\D", "", key))


def _whole(settings: Mapping[str, str], key: str, default: int) -> int:
    text = settings.get(key, str(default)).removeprefix("current=")
    number = whole_number(text)
    if number is None:
        raise ProtocolError(f"{key}: {text[:_SHOWN_MAX]!r} is not a number")
    return number


def _fields(text: str) -> dict[str, str]:
    """Split ``a,b=c`` into {"": "a", "b": "c"}."""
    pairs = (part.partition("=") for part in text.split(","))
    return {key if equals else "": value if equals else key for key, equals, value in pairs}


def _size(settings: Mapping[str, str], machine: Machine) -> None:
    cores, sockets = _whole(settings, "cores", 1), _whole(settings, "sockets", 1)
    machine.vcpus = _whole(settings, "vcpus", cores * sockets)
    if machine.vcpus == cores * sockets > 1:
        machine.hvparams |= {"cpu_cores": str(cores), "cpu_sockets": str(sockets)}
    machine.maxmem_mib = _whole(settings, "memory", _MEMORY_MIB)
    balloon = _whole(settings, "balloon", 0)
    machine.minmem_mib = min(balloon or machine.maxmem_mib, machine.maxmem_mib)
    cpu = _fields(settings.get("cpu", ""))
    name = cpu.get("") or cpu.get("cputype", "")
    if name.startswith(_OWN_MODELS):
        machine.leave(f"the processor {name}, which only Proxmox VE knows")
    elif name:
        machine.hvparams["cpu_type"] = name
    if cpu.get("flags"):
        machine.leave("features of the processor that are switched on or off")


def _rest(settings: Mapping[str, str], machine: Machine) -> None:
    params = machine.hvparams
    params["kernel_path"] = ""
    for key, value in settings.items():
        if key in _SILENT or _DISK.fullmatch(key) or _NIC.fullmatch(key):
            continue
        if key in _SETTINGS:
            _SETTINGS[key](value, machine)
            continue
        numbered = _NUMBERED.fullmatch(key)
        if numbered is not None and numbered[1] == "serial":
            continue  # every instance has a serial console
        kind = numbered[1] if numbered is not None else key
        machine.leave(f"{_WORDS[kind]} ({key})" if kind in _WORDS else f"the setting {key}")
    if settings.get("ostype", "").startswith(("w", "win")) and "localtime" not in settings:
        params["use_localtime"] = "yes"


def _flag(name: str, *, default: bool) -> Callable[[str, Machine], None]:
    def take(value: str, machine: Machine) -> None:
        is_on = _fields(value).get("enabled", _fields(value).get("", "")) == "1"
        if is_on != default:
            machine.hvparams[name] = "yes" if is_on else "no"

    return take


def _bios(value: str, machine: Machine) -> None:
    if value == "ovmf":
        machine.leave("UEFI firmware and its variables: the guest starts by BIOS")


def _machine_type(value: str, machine: Machine) -> None:
    name = _fields(value).get("") or _fields(value).get("type", "")
    if name:
        machine.hvparams["machine_version"] = name.partition("+")[0]  # without the mark +pve0


def _vga(value: str, machine: Machine) -> None:
    name = _fields(value).get("") or _fields(value).get("type", "")
    if name.startswith("serial"):
        return
    if name in VGA:
        machine.hvparams["vga"] = VGA[name]
    else:
        machine.leave(f"the graphics card {name}")


def _kvm(value: str, machine: Machine) -> None:
    if value == "0":
        machine.hvparams["kvm_flag"] = "disabled"


def _tablet(value: str, machine: Machine) -> None:
    if value == "1":
        machine.hvparams["usb_mouse"] = "tablet"


def _tags(value: str, machine: Machine) -> None:
    machine.tags = [tag for tag in re.split(r"[;,\s]+", value) if tag]


_SETTINGS: Final[Mapping[str, Callable[[str, Machine], None]]] = {
    "acpi": _flag("acpi", default=True),
    "agent": _flag("use_guest_agent", default=False),
    "bios": _bios,
    "kvm": _kvm,
    "localtime": _flag("use_localtime", default=False),
    "machine": _machine_type,
    "tablet": _tablet,
    "tags": _tags,
    "vga": _vga,
}


def _disks(settings: Mapping[str, str], machine: Machine, storages: Storages) -> None:
    keys = [key for key in settings if _DISK.fullmatch(key)]
    boot = _fields(settings.get("boot", ""))
    order = [key for key in boot.get("order", "").split(";") if key]
    first = [*order, settings.get("bootdisk", "")]
    keys.sort(key=lambda key: (first.index(key) if key in first else len(first), _bus_place(key)))
    for key in keys:
        fields = _fields(settings[key])
        volume = fields.get("") or fields.get("file", "")
        if fields.get("media") == "cdrom" or "cloudinit" in volume:
            _cdrom(key, volume, machine, storages)
        else:
            machine.disks.append(_disk(key, volume, fields, machine, storages))
    machine.hvparams["boot_order"] = _boot_device(order, boot, settings)


def _bus_place(key: str) -> tuple[str, int]:
    found = _DISK.fullmatch(key)
    assert found is not None
    return found[1], int(found[2])


def _boot_device(order: list[str], boot: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """Return the device that a guest starts from first."""
    if order:
        if order[0].startswith("net"):
            return "network"
        return "cdrom" if "media=cdrom" in settings.get(order[0], "") else "disk"
    letters = boot.get("legacy") or boot.get("") or "c"
    return _LEGACY_BOOT.get(letters[0], "disk")


def _cdrom(key: str, volume: str, machine: Machine, storages: Storages) -> None:
    if volume in ("none", "cdrom"):
        return
    path, problem = path_of(volume, storages)
    params = machine.hvparams
    if "cloudinit" in volume:
        machine.leave(f"the seed of cloud-init ({key}), which Proxmox VE makes")
    elif problem:
        machine.leave(f"the CD image {volume}: {problem}")
    else:
        params["cdrom2_image_path" if "cdrom_image_path" in params else "cdrom_image_path"] = path


def _disk(
    key: str, volume: str, fields: Mapping[str, str], machine: Machine, storages: Storages
) -> FoundDisk:
    bus, _number_of = _bus_place(key)
    machine.set_disk_type(_BUSES.get(bus), bus)
    if fields.get("cache") in CACHES:
        machine.hvparams["disk_cache"] = fields["cache"]
    if fields.get("discard") == "on":
        machine.hvparams["disk_discard"] = "unmap"
    if fields.get("aio") == "native":
        machine.hvparams["disk_aio"] = "native"
    path, problem = path_of(volume, storages)
    ending = path.rpartition(".")[2] if "." in path.rpartition("/")[2] else "raw"
    return FoundDisk(
        label=key,
        path=path,
        format=fields.get("format", ending if ending in ("qcow2", "vmdk") else "raw"),
        read_only=fields.get("ro") == "1",
        problem=problem,
    )


def _nic(value: str, machine: Machine) -> FoundNic:
    fields = _fields(value)
    model = next(iter(fields)) or fields[""]  # "virtio=MAC", or "virtio" alone
    machine.set_nic_type(model)
    if fields.get("firewall") == "1":
        machine.leave("the firewall of Proxmox VE on network interfaces")
    if queues := fields.get("queues", ""):
        machine.hvparams["virtio_net_queues"] = queues
    trunks = "".join(f":{tag}" for tag in fields.get("trunks", "").split(";") if tag)
    tag = fields.get("tag", "")
    return FoundNic(
        mac=fields.get(model, fields.get("macaddr", "")).lower(),
        link=fields.get("bridge", ""),
        vlan=f".{tag}{trunks}" if tag and trunks else tag or trunks,
    )
