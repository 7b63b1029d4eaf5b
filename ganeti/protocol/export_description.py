"""The description of an exported instance: the INI file that lies beside the dumps of its disks.

Values of parameters are those in force at the time of the export, defaults included.  A dump has a
checksum beside its size, which other versions do not know and pass over, as they do the word that
says how the disks were read, and the sections of values and names that an INI file cannot hold:
text of several lines, for one.

Source: constants.json, "export_import"; config.json, "well_known_paths".
"""

from __future__ import annotations

import configparser
import io
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.base.versions import EXPORT_VERSION

CONFIG_NAME: Final = "config.ini"
# Of the directory of an export that is not complete; no instance has such a name.
PARTIAL_SUFFIX: Final = "+new"
INCREMENTS: Final = "increments"  # the directory beside the first point of a chain
BLOCK_BYTES: Final = 1 << 16  # the unit of what changed
SUMS_SUFFIX: Final = ".sums"
_DIFFERENCE_SUFFIX: Final = ".diff"
_EXPORT: Final = "export"
_INSTANCE: Final = "instance"
# The sections of parameters, and the fields of a description that they hold.
_PARAMETERS: Final = {
    "hypervisor": "hvparams",
    "backend": "beparams",
    "os": "osparams",
    "os_private": "osparams_private",
}
_EXACT: Final = "exact"  # <section>.<name> = the value as JSON
_NAMED: Final = "named"  # <number> = section, name and value as JSON
_NIC_SETTINGS: Final = ("mac", "ip", "network", "name", "mode", "link", "vlan")
_DEVICES_MAX: Final = 64


class ReadMethod(StrEnum):
    """The way in which the disks were read, and so the state that an import can rely on."""

    STOPPED = "stopped"  # the instance did not run
    KEPT = "kept snapshot"  # from a snapshot that the disks keep, whether it ran or not
    SNAPSHOT = "snapshot"  # it ran; all disks are as after a power failure at one instant


class DumpedDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk of an exported instance; ``dump`` is the name of its file, empty if it has none.

    ``root`` is the checksum of the disk's blocks (`ganeti.storage.chains.sums`), in chains only;
    ``dev_type`` is its disk template, where the disks of the instance are of several.
    """

    size_mib: int
    dump: str = ""
    name: str | None = None
    iv_name: str = ""
    sha256: str = ""
    root: str = ""
    dev_type: str = ""


class ExportDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an exported instance; NICs are settings as opcodes take them.

    ``method`` is None where nobody knows, as in exports of other versions.  A point of a chain has
    the UUID of the instance, and a UUID and a ``number`` of its own, which is 0 for the first one.
    """

    name: str
    os: str
    source_node: str
    timestamp: int
    hypervisor: str
    disk_template: str
    disks: Sequence[DumpedDisk]
    nics: Sequence[Mapping[str, str]]
    tags: Sequence[str] = ()
    hvparams: Mapping[str, str] = {}
    beparams: Mapping[str, str] = {}
    osparams: Mapping[str, str] = {}
    osparams_private: Mapping[str, str] = {}
    method: ReadMethod | None = None
    instance_uuid: str = ""
    point: str = ""
    number: int = 0


def dump_name(disk_uuid: str) -> str:
    """Return the name of the file that the dump of a disk has in its export."""
    return f"{disk_uuid}.dump"


def difference_name(disk_uuid: str) -> str:
    """Return the name of the file with what changed on a disk since the point before."""
    return f"{disk_uuid}{_DIFFERENCE_SUFFIX}"


def is_difference(dump: str) -> bool:
    """Tell whether a file has only what changed."""
    return dump.endswith(_DIFFERENCE_SUFFIX)


def disk_of_dump(dump: str) -> str:
    """Return the UUID of the disk that a file has the contents of."""
    return dump.partition(".")[0]


def sums_name(disk_uuid: str) -> str:
    """Return the name of the file with the checksums of a disk's blocks."""
    return f"{disk_uuid}{SUMS_SUFFIX}"


def point_directory(export: str, number: int, first: int = 0) -> str:
    """Return the directory of a point of a chain.

    Args:
        export: the directory of the chain, which is that of its first point.
        first: the number of that one.
    """
    return export if number == first else f"{export}/{INCREMENTS}/{number:04}"


def _parser() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    return parser


def format_description(found: ExportDescription) -> str:
    """Return the text of the INI file."""
    parser = _parser()
    parser[_EXPORT] = {
        "version": str(EXPORT_VERSION),
        "timestamp": str(found.timestamp),
        "source": found.source_node,
        "os": found.os,
        "compression": "none",
    }
    if found.method is not None:
        parser[_EXPORT]["method"] = found.method.value
    if found.point:
        parser[_EXPORT]["instance_uuid"] = found.instance_uuid
        parser[_EXPORT]["point"] = found.point
        parser[_EXPORT]["number"] = str(found.number)
    values = {
        "name": found.name,
        "hypervisor": found.hypervisor,
        "disk_template": found.disk_template,
        "tags": " ".join(found.tags),
        "nic_count": str(len(found.nics)),
        "disk_count": str(len(found.disks)),
    }
    memory = found.beparams.get("maxmem")
    if memory is not None:
        values["memory"] = memory  # the key of versions before 2.6
    for index, nic in enumerate(found.nics):
        values |= {f"nic{index}_{name}": value for name, value in nic.items()}
    for index, disk in enumerate(found.disks):
        values |= _disk_values(f"disk{index}_", disk)
    parser[_INSTANCE] = values
    exact: dict[str, str] = {}
    named: dict[str, str] = {}
    for section, field in _PARAMETERS.items():
        parser[section] = {}
        for name, value in getattr(found, field).items():
            if not _is_key(name):
                named[str(len(named))] = dumps((section, name, value)).decode()
            elif not _fits(value):
                exact[f"{section}.{name}"] = dumps(value).decode()
            else:
                parser[section][name] = value
    for section, values in ((_EXACT, exact), (_NAMED, named)):
        if values:
            parser[section] = values
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def _fits(value: str) -> bool:
    """Tell whether a value comes back from an INI file as it was written."""
    return value.isprintable() and value == value.strip()


def _is_key(name: str) -> bool:
    """Tell whether a name comes back from an INI file as it was written."""
    return _fits(name) and "=" not in name and name[:1] not in ("", "#", ";", "[")


def _disk_values(prefix: str, disk: DumpedDisk) -> dict[str, str]:
    values = {"ivname": disk.iv_name, "size": str(disk.size_mib)}
    for name in ("dump", "name", "sha256", "root", "dev_type"):
        if value := getattr(disk, name):
            values[name] = value
    return {prefix + name: value for name, value in values.items()}


def parse_description(text: str) -> ExportDescription:
    """Read the text of the INI file.

    Raises:
        ProtocolError: it is not one; the message names the missing or wrong key.
    """
    parser = _parser()
    try:
        parser.read_string(text)
        version = parser.getint(_EXPORT, "version")
        if version != EXPORT_VERSION:
            raise ProtocolError(f"the export has version {version}, not {EXPORT_VERSION}")
        return _description(parser)
    except (configparser.Error, ValueError) as err:
        reason = " ".join(str(err).split())
        raise ProtocolError(f"the description of the export is damaged: {reason}") from err


def _description(parser: configparser.ConfigParser) -> ExportDescription:
    name = parser.get(_INSTANCE, "name")  # which says so when there is no such section
    instance = parser[_INSTANCE]
    return ExportDescription(
        name=name,
        os=parser.get(_EXPORT, "os"),
        source_node=parser.get(_EXPORT, "source", fallback=""),
        timestamp=int(parser.getfloat(_EXPORT, "timestamp", fallback=0)),
        hypervisor=instance.get("hypervisor", ""),
        disk_template=instance.get("disk_template", ""),
        tags=instance.get("tags", "").split(),
        disks=[_disk(instance, index) for index in range(_count(instance, "disk_count"))],
        nics=[_nic(instance, index) for index in range(_count(instance, "nic_count"))],
        **{field: _section(parser, section) for section, field in _PARAMETERS.items()},
        method=_method(parser.get(_EXPORT, "method", fallback="")),
        instance_uuid=parser.get(_EXPORT, "instance_uuid", fallback=""),
        point=parser.get(_EXPORT, "point", fallback=""),
        number=parser.getint(_EXPORT, "number", fallback=0),
    )


def _method(text: str) -> ReadMethod | None:
    """Return how the disks were read; a word that is not known says nothing."""
    return ReadMethod(text) if text in set(ReadMethod) else None


def _section(parser: configparser.ConfigParser, name: str) -> dict[str, str]:
    values = dict(parser[name]) if parser.has_section(name) else {}
    for key, text in parser[_EXACT].items() if parser.has_section(_EXACT) else ():
        section, _, param = key.partition(".")
        if section == name:
            values[param] = loads_as(str, text.encode())
    for text in parser[_NAMED].values() if parser.has_section(_NAMED) else ():
        section, param, value = loads_as(tuple[str, str, str], text.encode())
        if section == name:
            values[param] = value
    return values


def _count(instance: configparser.SectionProxy, name: str) -> int:
    count = instance.getint(name, 0)
    if not 0 <= count <= _DEVICES_MAX:
        raise ProtocolError(f"the description of the export is damaged: {name} is {count}")
    return count


def _disk(instance: configparser.SectionProxy, index: int) -> DumpedDisk:
    prefix = f"disk{index}_"
    size = instance.getint(f"{prefix}size", 0)
    dump = instance.get(f"{prefix}dump", "")
    if size <= 0 or "/" in dump or dump.startswith("."):
        raise ProtocolError(f"the description of the export is damaged: disk {index}")
    return DumpedDisk(
        size_mib=size,
        dump=dump,
        name=instance.get(f"{prefix}name") or None,
        iv_name=instance.get(f"{prefix}ivname", ""),
        sha256=instance.get(f"{prefix}sha256", ""),
        root=instance.get(f"{prefix}root", ""),
        dev_type=instance.get(f"{prefix}dev_type", ""),
    )


def _nic(instance: configparser.SectionProxy, index: int) -> dict[str, str]:
    found = {name: instance.get(f"nic{index}_{name}", "") for name in _NIC_SETTINGS}
    # "None" is how versions before wrote that there is none.
    return {name: value for name, value in found.items() if value not in ("", "None")}
