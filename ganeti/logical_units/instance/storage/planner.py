"""How the disks of a template are asked for, named and checked: the part of it on the master.

The base class is enough for a template whose disks are named by us and have no settings of their
own.  Others have a module here each, and a row in `planning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import NotSupportedError, OpPrereqError, UnitParseError
from ganeti.base.units import parse_unit
from ganeti.logical_units.context import JobContext
from ganeti.objects.disk_templates import (
    DISK_PARAM_NAMES,
    Adoption,
    DiskMode,
    DiskTemplate,
    FileDriver,
    StorageType,
)
from ganeti.objects.model import Disk, Node

SIZE_MIB_MAX: Final = 2**43 - 1  # a file offset is a signed 64-bit number of bytes

DiskSettings = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class NewDisk:
    """A disk to be made; size in MiB.

    ``provider`` and ``params`` are for template ext; ``adopt`` is a device that is there already,
    whose size is yet to be asked.
    """

    size_mib: int
    mode: DiskMode
    name: str | None
    provider: str | None = None
    params: Mapping[str, object] | None = None
    adopt: str | None = None


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where the files of an instance go, and how they are opened."""

    directory: str
    driver: FileDriver


class Planner:
    """Disks named by us, of a template without settings of its own."""

    def __init__(self, template: DiskTemplate) -> None:
        self.template = template

    def check_settings(self, what: str, settings: DiskSettings) -> None:
        """Refuse settings of other templates.

        Raises:
            NotSupportedError, OpPrereqError: names the setting.
        """
        quoted, traits = repr(str(self.template)), self.template.traits
        if not traits.has_provider:
            of_provider = settings.keys() - (DISK_PARAM_NAMES - {"provider"})
            if of_provider:
                raise OpPrereqError(
                    f"{what}: {', '.join(sorted(of_provider))}: not known for disk template"
                    f" {quoted}; parameters of a provider are for template 'ext' only"
                )
        is_lvm = traits.storage is StorageType.LVM_VG
        for name, is_known, error in (
            ("vg", is_lvm, NotSupportedError),
            ("metavg", is_lvm and traits.child_count > 0, NotSupportedError),
            ("spindles", traits.takes_physical_volumes, NotSupportedError),
            ("adopt", traits.adoption is not Adoption.NEVER, OpPrereqError),
            ("access", traits.has_access, OpPrereqError),
        ):
            if name in settings and not is_known:
                raise error(f"{what}: {name!r} cannot be given for disk template {quoted}")

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        """Return the disk with the settings of this template.

        Raises:
            OpPrereqError: one is missing or wrong.
        """
        return new

    def size_mib(self, what: str, settings: DiskSettings) -> int:
        """Return the size of a new disk; errors as `disk_size`."""
        return disk_size(what, settings.get("size"))

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        """Return a disk with what makes its device: logical id, and children if it has any.

        Args:
            name: one that no other disk has.
        """
        return replace(disk, logical_id=[self.template.value, name])

    def settings_of(self, disk: Disk) -> dict[str, str | int]:
        """Return the settings by which such a disk is asked for."""
        return {"size": disk.size, "mode": disk.mode.value}

    def check_on_node(self, context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
        """Let a node check disks of which only it knows whether they can be; returns them anew.

        Args:
            disks: all disks that are to be made, in their order, whatever their template.

        Raises:
            OpPrereqError: one cannot be.
        """
        return list(disks)


def disk_size(what: str, size: object) -> int:
    """Return a size in MiB.

    Raises:
        OpPrereqError: missing, not a size, not positive, or larger than a file can be.
    """
    if size is None:
        raise OpPrereqError(f"{what}: the size is missing (size=...)")
    try:
        size_mib = parse_unit(size) if isinstance(size, str) else int(str(size))
    except (UnitParseError, ValueError) as err:
        raise OpPrereqError(f"{what}: {size!r} is not a size; use for example 512m or 10g") from err
    if not 0 < size_mib <= SIZE_MIB_MAX:
        raise OpPrereqError(
            f"{what}: the size must be from 1 to {SIZE_MIB_MAX} MiB, got {size_mib}"
        )
    return size_mib
