"""A virtual machine of another program, and the words of ``gnt-instance add`` that adopt it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import OpPrereqError
from ganeti.objects.disk_templates import DiskTemplate

_ADOPTABLE: Final = "/dev/disk/"
_MAPPER: Final = re.compile(r"/dev/mapper/((?:[^-]|--)+)-((?:[^-]|--)+)")
_VOLUME: Final = re.compile(r"/dev/([^/]+)/([^/]+)")
_WHOLE: Final = re.compile("[0-9]{1,18}")  # more is no size of anything
_NO_GROUPS: Final = frozenset({"disk", "mapper", "zvol", "rbd", "drbd", "gluster", "input", "net"})
NIC_TYPES: Final[Mapping[str, str]] = {
    "virtio": "paravirtual",
    **{name: name for name in ("e1000", "rtl8139", "pcnet", "ne2k_pci", "ne2k_isa", "i82551")},
    **{name: name for name in ("i82557b", "i82559er")},
}
VGA: Final[Mapping[str, str]] = {
    "cirrus": "cirrus",
    "qxl": "qxl",
    "std": "std",
    "vga": "std",
    "virtio": "virtio",
    "vmvga": "vmware",
    "vmware": "vmware",
    "none": "none",
}
CACHES: Final = frozenset({"none", "writeback", "writethrough"})
BYTES_MAX: Final = 1 << 20
DEVICES_MAX: Final = 64


class FoundDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk: its path on the node, a device or a file; "" with the reason why there is none."""

    label: str
    path: str = ""
    format: str = "raw"
    read_only: bool = False
    problem: str = ""


class FoundNic(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface; ``link`` is "" where only the other program knows it."""

    mac: str = ""
    link: str = ""
    vlan: str = ""
    is_switch: bool = False


class Machine(msgspec.Struct, kw_only=True):
    """All that is carried over, and ``left_out`` in words."""

    name: str = ""
    vcpus: int = 1
    maxmem_mib: int = 0
    minmem_mib: int = 0
    disks: list[FoundDisk] = []
    nics: list[FoundNic] = []
    hvparams: dict[str, str] = {}
    tags: list[str] = []
    left_out: list[str] = []

    def leave(self, text: str) -> None:
        """Note a thing that cannot be carried over, once."""
        if text not in self.left_out:
            self.left_out.append(text)

    def set_nic_type(self, model: str) -> None:
        """Take the kind of a network interface: instances have one kind for all."""
        self._set_one("nic_type", NIC_TYPES.get(model), f"network interfaces of type {model}")

    def set_disk_type(self, kind: str | None, bus: str) -> None:
        """Take the kind of a disk: instances have one kind for all."""
        self._set_one("disk_type", kind, f"disks on the bus {bus}")

    def _set_one(self, name: str, value: str | None, what: str) -> None:
        if value is None or self.hvparams.setdefault(name, value) != value:
            self.leave(f"{what}: the guest sees them as {self.hvparams.get(name, 'paravirtual')}")


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says besides."""

    name: str = ""
    node: str = ""
    os_type: str = ""
    link: str = ""
    incomplete: bool = False
    flags: Sequence[str] = ()


def whole_number(text: str) -> int | None:
    """Return the number that a text is in digits from 0 to 9; None if it is none."""
    return int(text) if _WHOLE.fullmatch(text) else None


def unescaped(text: str) -> str:
    """Return a name as LVM has it, from its form in the names of device-mapper."""
    return text.replace("--", "-")


def settings_of(disk: FoundDisk) -> tuple[str, dict[str, str]]:
    """Return the template and the settings by which a disk is adopted.

    Raises:
        OpPrereqError: it cannot be; the text says why.
    """
    if disk.problem:
        raise OpPrereqError(disk.problem)
    path = posixpath.normpath(disk.path)
    if path.startswith(_ADOPTABLE):
        return str(DiskTemplate.BLOCKDEV), {"adopt": path}
    mapped, plain = _MAPPER.fullmatch(path), _VOLUME.fullmatch(path)
    if mapped is not None:
        return str(DiskTemplate.PLAIN), {"adopt": unescaped(mapped[2]), "vg": unescaped(mapped[1])}
    if plain is not None and plain[1] not in _NO_GROUPS:
        return str(DiskTemplate.PLAIN), {"adopt": plain[2], "vg": plain[1]}
    if path.startswith("/dev/"):
        text = f"{path} is neither a logical volume nor below {_ADOPTABLE}"
        raise OpPrereqError(f"{text}; name it by one of its links there")
    if not path.startswith("/"):
        raise OpPrereqError(f"{disk.path!r} is not the absolute path of a file or device")
    if disk.format not in ("raw", "qcow2"):
        hint = "convert it with 'qemu-img convert -O qcow2'"
        raise OpPrereqError(f"files of the format {disk.format} cannot be adopted; {hint}")
    more = {"format": disk.format} if disk.format != "raw" else {}
    return str(DiskTemplate.FILE), {"adopt": path, **more}


def add_words(machine: Machine, wishes: Wishes) -> list[str]:
    """Return the words that follow ``gnt-instance add``.

    Notes what cannot be carried over in the machine.

    Raises:
        OpPrereqError: a disk cannot be adopted, or something is missing.
    """
    name = wishes.name or machine.name
    if not name:
        raise OpPrereqError("the file does not tell the machine's name; give one with --name")
    disks = list(_disk_words(machine, wishes))
    words = [*disks, *_nic_words(machine, wishes)]
    memory = {"maxmem": machine.maxmem_mib, "minmem": machine.minmem_mib or machine.maxmem_mib}
    words += ["-B", _joined({**memory, "vcpus": machine.vcpus})]
    words += ["-H", f"kvm:{_joined(machine.hvparams)}"]
    if machine.tags:
        words += ["--tags", ",".join(machine.tags)]
    if wishes.os_type:
        words += ["-o", wishes.os_type]
    if wishes.node:
        words += ["-n", wishes.node]
    return [*words, "--no-install", *wishes.flags, name]


def _joined(values: Mapping[str, object]) -> str:
    return ",".join(f"{key}={_escaped(str(value))}" for key, value in values.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(",", "\\,")


def _disk_words(machine: Machine, wishes: Wishes) -> Iterator[str]:
    adopted: list[tuple[str, dict[str, str]]] = []
    for disk in machine.disks:
        try:
            template, settings = settings_of(disk)
        except OpPrereqError as err:
            if not wishes.incomplete:
                text = f"disk {disk.label} cannot be adopted: {err.message}"
                raise OpPrereqError(f"{text} (--incomplete leaves it out)") from err
            machine.leave(f"disk {disk.label}: {err.message}")
            continue
        more = {"mode": "ro"} if disk.read_only else {}
        adopted.append((template, {**settings, **more}))
    if not adopted:
        yield from ("-t", str(DiskTemplate.DISKLESS))
        return
    first = adopted[0][0]
    yield from ("-t", first)
    for index, (template, settings) in enumerate(adopted):
        kind = {"dev_type": template} if template != first else {}
        yield from ("--disk", f"{index}:{_joined({**settings, **kind})}")


def _nic_words(machine: Machine, wishes: Wishes) -> Iterator[str]:
    if not machine.nics:
        yield "--no-nics"
    for index, nic in enumerate(machine.nics):
        link = nic.link or wishes.link
        if not link:
            machine.leave(
                f"the network of interface {index}: it gets the cluster's default (--link=LINK)"
            )
        settings = {
            "mac": nic.mac,
            "mode": "openvswitch" if nic.is_switch else "",
            "link": link,
            "vlan": nic.vlan,
        }
        yield from ("--net", f"{index}:{_joined({key: v for key, v in settings.items() if v})}")
