"""What a file says about networks, groups and instances: its form, checked.

A key that is left out is left alone.  Of parameters only those that are named count; the value
"default" forgets one.  Lists (disks, network interfaces, tags) are complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.json import JsonValue
from ganeti.base.units import parse_unit
from ganeti.desired.document import Document, Path
from ganeti.objects.disk_templates import DiskMode, DiskTemplate
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.objects.model import AllocPolicy
from ganeti.objects.parameters import BACKEND_SETTINGS, DISKPARAMS, NDPARAMS, ParamTable, checked
from ganeti.objects.record import explain_validation
from ganeti.opcodes.values import NonEmptyStr, Params

Text = NonEmptyStr | None
Tags = list[NonEmptyStr]


class _Form(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the forms: a key that is not known is a mistake."""


class Connection(_Form, frozen=True):
    """How a network is connected to a group."""

    mode: NonEmptyStr
    link: NonEmptyStr
    vlan: str | int = ""


class NetworkSpec(_Form, frozen=True):
    """A network."""

    network: NonEmptyStr | UnsetType = UNSET
    gateway: Text | UnsetType = UNSET
    network6: Text | UnsetType = UNSET
    gateway6: Text | UnsetType = UNSET
    mac_prefix: Text | UnsetType = UNSET
    reserved: list[NonEmptyStr] | UnsetType = UNSET
    groups: Mapping[str, Connection] | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET


class GroupSpec(_Form, frozen=True):
    """A node group; nodes that it lists are put into it."""

    alloc_policy: AllocPolicy | UnsetType = UNSET
    ndparams: Params | UnsetType = UNSET
    diskparams: Mapping[DiskTemplate, Params] | UnsetType = UNSET
    ipolicy: Params | UnsetType = UNSET
    nodes: list[NonEmptyStr] = []
    tags: Tags | UnsetType = UNSET


class State(StrEnum):
    """What an instance is meant to do."""

    UP = "up"
    DOWN = "down"
    OFFLINE = "offline"


class NicSpec(_Form, frozen=True):
    """A network interface."""

    mac: NonEmptyStr | UnsetType = UNSET
    ip: Text | UnsetType = UNSET
    network: Text | UnsetType = UNSET
    mode: NonEmptyStr | UnsetType = UNSET
    link: NonEmptyStr | UnsetType = UNSET
    vlan: str | int | UnsetType = UNSET
    name: Text | UnsetType = UNSET


class InstanceSpec(_Form, frozen=True):
    """An instance; the last keys count only when it is made."""

    os: NonEmptyStr | UnsetType = UNSET
    hypervisor: Hypervisor | UnsetType = UNSET
    disk_template: DiskTemplate | UnsetType = UNSET
    beparams: Params | UnsetType = UNSET
    hvparams: Params | UnsetType = UNSET
    osparams: Params | UnsetType = UNSET
    disks: list[Mapping[str, NonEmptyStr | int | None]] | UnsetType = UNSET
    nics: list[NicSpec] | UnsetType = UNSET
    state: State | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET

    node: Text = None
    secondary: Text = None
    iallocator: Text = None
    group: Text = None
    install: bool = True
    name_check: bool = True
    ip_check: bool = True
    file_driver: Text = None
    file_storage_dir: Text = None


class Spec(NamedTuple):
    """A whole file; None for a section that it does not have."""

    groups: Mapping[str, GroupSpec] | None = None
    networks: Mapping[str, NetworkSpec] | None = None
    instances: Mapping[str, InstanceSpec] | None = None


class Problem(NamedTuple):
    """A mistake, and where it is."""

    path: Path
    text: str

    def told(self, document: Document, name: str) -> str:
        """Return the mistake with file, line and place."""
        place = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in self.path)
        where = f" {place[1:]}:" if place else ""
        return f"{name}:{document.line_of(self.path)}:{where} {self.text}"


SECTIONS: Final[Mapping[str, type[_Form]]] = {
    "groups": GroupSpec,
    "networks": NetworkSpec,
    "instances": InstanceSpec,
}
_FormType = TypeVar("_FormType", bound=_Form)
_KEYS: Final = re.compile(r"\[(\d+)\]|([A-Za-z_]\w*)|\[\.\.\.\]")


def read(value: object) -> tuple[Spec, list[Problem]]:
    """Return what a document says, and all mistakes in it."""
    problems: list[Problem] = []
    if not isinstance(value, Mapping):
        known = ", ".join(SECTIONS)
        return Spec(), [Problem((), f"expected a mapping with the keys {known}")]
    problems += [
        Problem((key,), f"is unknown; known are: {', '.join(SECTIONS)}")
        for key in value
        if key not in SECTIONS
    ]
    return (
        Spec(
            _section(value, "groups", GroupSpec, problems),
            _section(value, "networks", NetworkSpec, problems),
            _section(value, "instances", InstanceSpec, problems),
        ),
        problems,
    )


def _section(
    value: Mapping[str, object], section: str, form: type[_FormType], problems: list[Problem]
) -> Mapping[str, _FormType] | None:
    if section not in value:
        return None
    entries = value[section]
    if entries is None:
        return {}
    if not isinstance(entries, Mapping):
        problems.append(Problem((section,), "expected a mapping with one key for each object"))
        return {}
    found: dict[str, _FormType] = {}
    for name, entry in entries.items():
        path: Path = (section, name)
        try:
            read_entry = msgspec.convert({} if entry is None else entry, form)
            found[name] = _CHECKS[form](read_entry)
        except msgspec.ValidationError as err:
            place, text = explain_validation(err)
            problems.append(Problem((*path, *_path_of(place)), text))
        except _Wrong as err:
            problems.append(Problem((*path, *err.path), err.message))
    return found


def _path_of(place: str) -> Path:
    """Return the path of a place as msgspec names it, up to the first key that it does not tell."""
    path: list[str | int] = []
    for match in _KEYS.finditer(place):
        if match[0] == "[...]":
            break
        path.append(int(match[1]) if match[1] else match[0])
    return tuple(path)


class _Wrong(OpPrereqError):
    """A value of the right type that cannot be."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


def _checked(params: Params | UnsetType, table: ParamTable, *path: str) -> Params | UnsetType:
    """Return parameters with their types."""
    if params is UNSET:
        return UNSET
    try:
        return checked(params, table)
    except GenericError as err:
        raise _Wrong(path, err.message) from err


def _group(spec: GroupSpec) -> GroupSpec:
    disk = spec.diskparams
    if disk is not UNSET:
        tables = {
            each: _checked(params, DISKPARAMS[each], "diskparams", str(each))
            for each, params in disk.items()
        }
        spec = msgspec.structs.replace(spec, diskparams=tables)
    ndparams = _checked(spec.ndparams, NDPARAMS, "ndparams")
    return msgspec.structs.replace(spec, ndparams=ndparams)


def _instance(spec: InstanceSpec) -> InstanceSpec:
    if spec.secondary and not spec.node:
        raise _Wrong(("secondary",), "needs a primary node: node")
    if spec.iallocator and spec.node:
        raise _Wrong(("iallocator",), "give either nodes or an allocator, not both")
    beparams = _checked(spec.beparams, BACKEND_SETTINGS, "beparams")
    if beparams is not UNSET and "memory" in beparams:
        rest = dict(beparams)
        memory = rest.pop("memory")
        beparams = {"maxmem": memory, "minmem": memory, **rest}
    hvparams = spec.hvparams
    if hvparams is not UNSET and spec.hypervisor is not UNSET:
        hvparams = _checked(hvparams, HVPARAMS[spec.hypervisor], "hvparams")
    if spec.osparams is not UNSET:
        _check_os(spec.osparams)
    disks = spec.disks
    if disks is not UNSET:
        disks = [_disk(number, disk) for number, disk in enumerate(disks)]
    return msgspec.structs.replace(spec, beparams=beparams, hvparams=hvparams, disks=disks)


def _check_os(params: Params) -> None:
    """Refuse values whose text is not what stands in the file: 24.10 is the number 24.1."""
    for name, value in params.items():
        if not isinstance(value, str | int):
            text = f"parameter {name!r}: expected text, got {value!r}; put it into quotes"
            raise _Wrong(("osparams", name), text)


def _disk(number: int, disk: Mapping[str, str | int | None]) -> dict[str, str | int | None]:
    """Return the settings of a disk, with its size in MiB."""
    path: Path = ("disks", number)
    if "size" not in disk and "adopt" not in disk:
        raise _Wrong(path, "size is missing")
    found = dict(disk)
    if "size" in disk:
        try:
            found["size"] = parse_unit(str(disk["size"]))
        except GenericError as err:
            raise _Wrong((*path, "size"), err.message) from err
    if found.get("mode", "rw") not in tuple(DiskMode):
        raise _Wrong((*path, "mode"), f"expected one of {', '.join(DiskMode)}")
    return found


def type_hvparams(params: Params, hypervisor: str) -> Mapping[str, JsonValue]:
    """Return parameters of a hypervisor with their types.

    Raises:
        GenericError: one is unknown or has no such value.
    """
    return checked(params, HVPARAMS[hypervisor])


_CHECKS: Final[Mapping[type[_Form], Callable[[Any], Any]]] = {
    NetworkSpec: lambda spec: spec,
    GroupSpec: _group,
    InstanceSpec: _instance,
}
