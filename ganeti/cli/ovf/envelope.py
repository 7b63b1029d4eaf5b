"""Virtual machines in the Open Virtualization Format: the XML document, and its manifest.

What instances have of it: processors, memory, disks, network interfaces.  An envelope of one
virtual system is read; everything that is not known is passed over.

Source: DMTF DSP0243 (OVF 1.1), DSP0004 (units of quantities).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import msgspec

from ganeti.base.errors import ProtocolError

_OVF: Final = "http://schemas.dmtf.org/ovf/envelope/1"
_CIM: Final = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/"
_RASD: Final = f"{_CIM}CIM_ResourceAllocationSettingData"
_VSSD: Final = f"{_CIM}CIM_VirtualSystemSettingData"
_PREFIXES: Final = {"ovf": _OVF, "rasd": _RASD, "vssd": _VSSD}
_CPU, _MEMORY, _ETHERNET, _DISK, _CONTROLLER = "3", "4", "10", "17", "5"
_DISK_RESOURCE: Final = "/disk/"
_NORMAL: Final = "normal"  # a bound that is none
_MIB: Final = 1 << 20
_BYTES_MAX: Final = (1 << 63) - 1  # of a file, and so of a disk
_DIGITS_MAX: Final = len(str(_BYTES_MAX))
_SHOWN_MAX: Final = 60  # letters of a value that cannot be used
_POWER: Final = re.compile(r"byte\s*\*\s*(2|10)\s*\^\s*(\d{1,2})")
_WORDS: Final = {"": 0, "byte": 0, "bytes": 0, "kilobytes": 10, "megabytes": 20, "gigabytes": 30}
_MANIFEST_LINE: Final = re.compile(r"(SHA1|SHA256|SHA512)\s?\((.+)\)\s?=\s?([0-9A-Fa-f]+)")
_DEVICES_MAX: Final = 64
FORMATS: Final[Mapping[str, str]] = {
    "vmdk": "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized",
    "cow": "http://www.gnome.org/~markmc/qcow-image-format.html",
    "raw": "http://en.wikipedia.org/wiki/Raw_disk_image",
}
"""The URIs of formats of disks, by the words of commands."""


class OvfDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk: the name of its file, the bytes that the machine sees, and those of the file.

    The latter are those of the file as it lies there, perhaps compressed; 0 if nobody says.
    """

    file: str
    size_bytes: int
    format: str = ""
    is_gzip: bool = False
    file_bytes: int = 0


class OvfMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual machine; interfaces are those of a network's name and perhaps an address."""

    name: str
    vcpus: int
    memory_mib: int
    disks: Sequence[OvfDisk]
    nics: Sequence[Mapping[str, str]] = ()


def _q(name: str) -> str:
    prefix, _, local = name.partition(":")
    return f"{{{_PREFIXES[prefix]}}}{local}"


def read_machine(data: bytes) -> OvfMachine:
    """Read an envelope.

    Raises:
        ProtocolError: it is none that can be used; says why.
    """
    try:
        root = ET.fromstring(data, ET.XMLParser(target=_WithoutDoctype()))  # noqa: S314 - no entities
    except (ET.ParseError, LookupError, ValueError) as err:
        raise ProtocolError(f"it is not XML: {err}") from err
    if root.tag != _q("ovf:Envelope"):
        raise ProtocolError("it is no envelope of OVF version 1")
    systems = root.findall(_q("ovf:VirtualSystem"))
    if len(systems) != 1 or root.find(_q("ovf:VirtualSystemCollection")) is not None:
        raise ProtocolError("it does not have exactly one virtual system")
    items = _items_of(root, systems[0])
    name = systems[0].findtext(_q("ovf:Name")) or systems[0].get(_q("ovf:id")) or ""
    return OvfMachine(
        name=name.strip(),
        vcpus=sum(_quantity(i) for i in items if _type(i) == _CPU) or 1,
        memory_mib=sum(_memory_mib(i) for i in items if _type(i) == _MEMORY) or 128,
        disks=list(_disks(root, items)),
        nics=[_nic(item) for item in items if _type(item) == _ETHERNET][:_DEVICES_MAX],
    )


class _WithoutDoctype(ET.TreeBuilder):
    """Refuses documents with a document type, whatever their encoding: only there are entities."""

    def doctype(self, _name: str, _public: str, _system: str) -> None:
        """Take no document type.

        Raises:
            ProtocolError: always.
        """
        raise ProtocolError("it has a document type with entities of its own, which is not taken")


def _items_of(root: ET.Element, system: ET.Element) -> list[dict[str, str]]:
    """Return the items of a machine's hardware in its default configuration.

    Items that name configurations are of these alone, and there in place of an item without names
    that has the same number.  Items with a bound are the limits of another one.  Of several
    sections, each for another program, the first counts.

    Source: DSP0243, "VirtualHardwareSection" and "DeploymentOptionSection".
    """
    hardware = system.find(_q("ovf:VirtualHardwareSection"))
    chosen, found = _default_configuration(root), list[tuple[bool, dict[str, str]]]()
    for item in hardware.iter(_q("ovf:Item")) if hardware is not None else ():
        names = item.get(_q("ovf:configuration"), "").split()
        is_limit = item.get(_q("ovf:bound"), _NORMAL) != _NORMAL
        if not is_limit and (not names or chosen in names):
            found.append((bool(names), _values(item)))
    replaced = {values.get("InstanceID", "") for is_named, values in found if is_named} - {""}
    return [
        values
        for is_named, values in found
        if is_named or values.get("InstanceID", "") not in replaced
    ]


def _default_configuration(root: ET.Element) -> str:
    """Return the configuration that counts if nobody chooses: so marked, or the first one."""
    offered = list(root.iter(_q("ovf:Configuration")))
    marked = [each for each in offered if each.get(_q("ovf:default")) in ("true", "1")]
    return next((each.get(_q("ovf:id"), "") for each in [*marked, *offered]), "")


def _values(item: ET.Element) -> dict[str, str]:
    return {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in item}


def _type(item: Mapping[str, str]) -> str:
    return item.get("ResourceType", "")


def quantity(text: str, label: str) -> int:
    """Return the number that a text is.

    Args:
        label: names it in the error.

    Raises:
        ProtocolError: it is none, or has too many digits.
    """
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise ProtocolError(
            f"{label} is {text[:_SHOWN_MAX]!r}, which is no number that can be used"
        )
    return int(text)


def _quantity(item: Mapping[str, str]) -> int:
    return quantity(item.get("VirtualQuantity", ""), f"VirtualQuantity of {_label(item)}")


def _label(item: Mapping[str, str]) -> str:
    return item.get("ElementName") or "an item"


def _size_bytes(item: Mapping[str, str], unit: str) -> int:
    """Return a quantity of memory, or of a disk."""
    size = _quantity(item) * _unit_bytes(unit)
    if size > _BYTES_MAX:
        raise ProtocolError(f"the size of {_label(item)} is above {_BYTES_MAX} bytes")
    return size


def _memory_mib(item: Mapping[str, str]) -> int:
    return -(-_size_bytes(item, item.get("AllocationUnits") or "MegaBytes") // _MIB)


def _unit_bytes(text: str) -> int:
    """Return the bytes of a unit, as standard or program writes it."""
    found = _POWER.fullmatch(text.strip())
    if found:
        value: int = int(found[1]) ** int(found[2])
        return value
    power = _WORDS.get(text.strip().lower())
    if power is None:
        raise ProtocolError(f"the unit {text[:_SHOWN_MAX]!r} is not known")
    return 1 << power


def _disks(root: ET.Element, items: Sequence[Mapping[str, str]]) -> Iterator[OvfDisk]:
    """Yield the disks that the machine has, in the order of its items."""
    described = {each.get(_q("ovf:diskId"), ""): each for each in root.iter(_q("ovf:Disk"))}
    referred = {each.get(_q("ovf:id"), ""): each for each in root.iter(_q("ovf:File"))}
    used = [item.get("HostResource", "") for item in items if _type(item) == _DISK]
    if len(used) > _DEVICES_MAX:
        raise ProtocolError(f"it has {len(used)} disks; {_DEVICES_MAX} are possible")
    for resource in used:
        identity = resource.removeprefix("ovf:").rpartition(_DISK_RESOURCE)[2]
        disk = described.get(identity)
        if disk is None:
            raise ProtocolError(f"the disk {resource!r} is not described")
        file = referred.get(disk.get(_q("ovf:fileRef"), ""))
        if file is None:
            raise ProtocolError(f"disk {identity!r} has no file")
        if disk.get(_q("ovf:parentRef")):
            raise ProtocolError(f"disk {identity!r} is the difference to another one")
        capacity = {
            "ElementName": f"disk {identity!r}",
            "VirtualQuantity": disk.get(_q("ovf:capacity"), ""),
        }
        compression = file.get(_q("ovf:compression"), "")
        if compression not in ("", "identity", "gzip"):
            raise ProtocolError(f"the compression {compression!r} is not known")
        yield OvfDisk(
            file=unquote(file.get(_q("ovf:href"), "")),
            size_bytes=_size_bytes(capacity, disk.get(_q("ovf:capacityAllocationUnits"), "")),
            format=disk.get(_q("ovf:format"), ""),
            is_gzip=compression == "gzip",
            file_bytes=quantity(file.get(_q("ovf:size"), "0"), f"the size of file {identity!r}"),
        )


def _nic(item: Mapping[str, str]) -> dict[str, str]:
    address = item.get("Address", "").lower()
    found = {"mac": address} if re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", address) else {}
    return {**found, "network": item.get("Connection", "")}


# Writing.


def write_machine(machine: OvfMachine) -> bytes:
    """Return the envelope of a machine."""
    for prefix, uri in _PREFIXES.items():
        ET.register_namespace(prefix, uri)
    root = ET.Element(_q("ovf:Envelope"))
    references = ET.SubElement(root, _q("ovf:References"))
    section = _section(root, "ovf:DiskSection", "The disks")
    for index, disk in enumerate(machine.disks):
        attributes = {"id": f"file{index}", "href": disk.file}
        if disk.file_bytes:
            attributes["size"] = str(disk.file_bytes)
        if disk.is_gzip:
            attributes["compression"] = "gzip"
        _add(references, "ovf:File", attributes)
        _add(
            section,
            "ovf:Disk",
            {
                "diskId": f"disk{index}",
                "fileRef": f"file{index}",
                "capacity": str(disk.size_bytes),
                "format": FORMATS[disk.format],
            },
        )
    networks = _section(root, "ovf:NetworkSection", "The networks")
    for name in dict.fromkeys(nic["network"] for nic in machine.nics):
        _add(networks, "ovf:Network", {"name": name})
    system = _add(root, "ovf:VirtualSystem", {"id": machine.name})
    ET.SubElement(system, _q("ovf:Info")).text = "A virtual machine"
    ET.SubElement(system, _q("ovf:Name")).text = machine.name
    hardware = _section(system, "ovf:VirtualHardwareSection", "Its hardware")
    for item in _items(machine):
        element = ET.SubElement(hardware, _q("ovf:Item"))
        for key in sorted(item):  # the order of the schema
            ET.SubElement(element, _q(f"rasd:{key}")).text = item[key]
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _section(parent: ET.Element, name: str, info: str) -> ET.Element:
    section = ET.SubElement(parent, _q(name))
    ET.SubElement(section, _q("ovf:Info")).text = info
    return section


def _add(parent: ET.Element, name: str, attributes: Mapping[str, str]) -> ET.Element:
    named = {_q(f"ovf:{key}"): value for key, value in attributes.items()}
    return ET.SubElement(parent, _q(name), named)


def _items(machine: OvfMachine) -> Iterator[dict[str, str]]:
    numbers = iter(range(1, 3 * _DEVICES_MAX))

    def item(kind: str, name: str, **values: str) -> dict[str, str]:
        head = {"InstanceID": str(next(numbers)), "ElementName": name, "ResourceType": kind}
        return {**head, **values}

    yield item(_CPU, "Processors", VirtualQuantity=str(machine.vcpus))
    memory = {"AllocationUnits": "byte * 2^20", "VirtualQuantity": str(machine.memory_mib)}
    yield item(_MEMORY, "Memory", **memory)
    controller = item(_CONTROLLER, "Controller of disks")
    yield controller
    for index, _disk in enumerate(machine.disks):
        place = {"HostResource": f"ovf:{_DISK_RESOURCE}disk{index}", "AddressOnParent": str(index)}
        yield item(_DISK, f"Disk {index}", Parent=controller["InstanceID"], **place)
    for index, nic in enumerate(machine.nics):
        address = {"Address": nic["mac"]} if "mac" in nic else {}
        yield item(_ETHERNET, f"Interface {index}", Connection=nic["network"], **address)


# The manifest.


def read_manifest(text: str) -> dict[str, tuple[str, str]]:
    """Return algorithm and digest of each file of a manifest.

    Raises:
        ProtocolError: a line cannot be read.
    """
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _MANIFEST_LINE.fullmatch(line)
        if match is None:
            raise ProtocolError(f"the manifest has the line {line!r:.100}")
        found[match[2]] = (match[1].lower(), match[3].lower())
    return found


def write_manifest(digests: Mapping[str, str]) -> str:
    """Return a manifest of SHA-256 digests."""
    return "".join(f"SHA256({name})= {digest}\n" for name, digest in digests.items())
