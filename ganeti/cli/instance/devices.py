"""Nodes, hypervisors, disks and network interfaces as options of instances name them.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

from ganeti.base.errors import OpPrereqError, UnitParseError
from ganeti.base.units import parse_unit
from ganeti.cli.command import Options, opt
from ganeti.cli.declaration.values import with_defaults
from ganeti.objects.disk_templates import DiskTemplate, FileDriver
from ganeti.objects.parameters import NIC_SETTINGS


def split_nodes(text: str | None) -> tuple[str | None, str | None]:
    """Split ``primary[:secondary]``."""
    if not text:
        return None, None
    primary, _, secondary = text.partition(":")
    return primary or None, secondary or None


def settings_of_new(options: Options) -> dict[str, object]:
    """Return the settings that every command takes by which an instance is made.

    Raises:
        OpPrereqError: two options do not go together, or one has no such value.
    """
    pnode, snode = split_nodes(options.node)
    if pnode is not None and options.iallocator is not None:
        raise OpPrereqError("give either nodes or an allocator, not both")
    hypervisor, hvparams = hypervisor_and_parameters(options.hypervisor)
    return {"pnode": pnode, "snode": snode, "hypervisor": hypervisor, "hvparams": hvparams}


def hypervisor_and_parameters(given: object) -> tuple[str | None, dict[str, object]]:
    """Return hypervisor and parameters from ``-H``.

    Raises:
        OpPrereqError: it removes or unsets, which means nothing here.
    """
    match given:
        case None:
            return None, {}
        case (str(name), dict(params)):
            return name, with_defaults(params)
        case _:
            raise OpPrereqError("-H takes HYPERVISOR[:parameter=value,...]")


DISK_TEMPLATES: Final = tuple(str(each) for each in DiskTemplate)
DISK_TEMPLATE: Final = opt.option(
    "-t --disk-template=TEMPL", "kind of disks", choices=DISK_TEMPLATES
)
_FILE_DRIVERS: Final = tuple(str(each) for each in FileDriver)
DISK_KIND: Final = (
    DISK_TEMPLATE,
    opt.option("--file-driver=<DRIVER>", "how files become disks", choices=_FILE_DRIVERS),
)

Given = Sequence[tuple[str, object]]

_ACTIONS = ("add", "attach", "detach", "remove")
_MODIFY = "modify"
# Python refuses to read thousands of digits, with an error of its own.
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_PLACE: Final = re.compile(r"-?[0-9]{1,9}")


def disks_for_create(
    given: Given, disk_template: str | None, os_size_mib: int | None
) -> list[dict[str, object]]:
    """Return the disks of a new instance in order.

    Args:
        given: pairs of a number and settings, as ``--disk`` gave them.
        os_size_mib: the size of the only disk, as ``-s`` gave it.

    Raises:
        OpPrereqError: numbers are missing or given twice, or a size is wrong.
    """
    if disk_template == DiskTemplate.DISKLESS:
        if given or os_size_mib is not None:
            raise OpPrereqError("a diskless instance has no disks; leave --disk and -s out")
        return []
    if os_size_mib is not None:
        if given:
            raise OpPrereqError("give either -s or --disk, not both")
        return [{"size": os_size_mib}]
    if not given:
        raise OpPrereqError("no disks given; use --disk 0:size=... or -s SIZE, or -t diskless")
    return [disk_settings(index, settings) for index, settings in in_order("disk", given)]


def disk_settings(index: object, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a disk with its size in MiB.

    Raises:
        OpPrereqError: the size cannot be understood, or a value is missing.
    """
    converted: dict[str, object] = {}
    for name, value in settings.items():
        if value is True or value is False or value is None:
            raise OpPrereqError(f"disk {index}: {name} needs a value")
        if name == "size" and value != "auto":
            try:
                converted[name] = parse_unit(str(value))
            except UnitParseError as err:
                raise OpPrereqError(f"disk {index}: {err.message}") from err
        elif name == "spindles" and _NUMBER.fullmatch(str(value)):
            converted[name] = int(str(value))
        else:
            converted[name] = value
    return converted


def nics_for_create(given: Given, *, no_nics: bool) -> list[dict[str, object]]:
    """Return the network interfaces of a new instance in order; one with defaults if none given.

    Raises:
        OpPrereqError: numbers are missing or given twice, or --no-nics contradicts.
    """
    if no_nics:
        if given:
            raise OpPrereqError("give either --no-nics or --net, not both")
        return []
    if not given:
        return [{}]
    return [nic_settings(index, settings) for index, settings in in_order("interface", given)]


def nic_settings(index: object, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of an interface; ``none`` as a value means without.

    Raises:
        OpPrereqError: a value is missing, or there is no such setting.
    """
    converted: dict[str, object] = {}
    for name, value in settings.items():
        if name not in NIC_SETTINGS:
            known = ", ".join(sorted(NIC_SETTINGS))
            raise OpPrereqError(f"interface {index}: unknown setting {name!r}; known are: {known}")
        if value is True or value is False:
            raise OpPrereqError(f"interface {index}: {name} needs a value")
        converted[name] = value
    return converted


def in_order(what: str, given: Given) -> list[tuple[int, Mapping[str, object]]]:
    """Return devices by number, checking that the numbers run from 0 without gaps.

    Raises:
        OpPrereqError: they do not.
    """
    by_index: dict[int, Mapping[str, object]] = {}
    for ident, settings in given:
        index = number(what, ident)
        if index in by_index:
            raise OpPrereqError(f"{what} {index} is given twice")
        if not isinstance(settings, Mapping):
            raise OpPrereqError(f"{what} {index} cannot be removed, there is none yet")
        by_index[index] = settings
    missing = next(index for index in count() if index not in by_index)
    if missing != len(by_index):
        raise OpPrereqError(f"{what} {missing} is missing; the numbers must have no gaps")
    return sorted(by_index.items())


def number(what: str, text: str) -> int:
    """Return the number of a device.

    Raises:
        OpPrereqError: it is none.
    """
    if not _NUMBER.fullmatch(text):
        raise OpPrereqError(f"{what} {text!r:.100}: give its number, from 0 on")
    return int(text)


def changes(given: Given, convert: object) -> list[list[object]]:
    """Return the changes of devices that ``gnt-instance modify`` was asked for.

    Written as ``add``, ``-1:add``, ``NUMBER:add,...``, ``NUMBER:remove`` or ``NUMBER:key=value``,
    also ``NUMBER:modify,key=value``; the number may also be a name or UUID.

    Raises:
        OpPrereqError: a change cannot be understood.
    """
    assert callable(convert)
    found: list[list[object]] = []
    for ident, settings in given:
        if not isinstance(settings, Mapping):
            raise OpPrereqError(f"device {ident!r} is written as {ident}:remove")
        if ident in _ACTIONS:
            found.append([ident, -1, convert(ident, settings)])
            continue
        named = [action for action in (*_ACTIONS, _MODIFY) if settings.get(action) is True]
        if len(named) > 1:
            raise OpPrereqError(f"device {ident!r}: give one of {', '.join(named)}")
        rest = {name: value for name, value in settings.items() if name not in named}
        action = named[0] if named else _MODIFY
        identifier: object = int(ident) if _PLACE.fullmatch(ident) else ident
        found.append([action, identifier, convert(ident, rest)])
    return found
