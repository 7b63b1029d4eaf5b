"""The common part of all planners of disks: the base class and the values that they work on.

What a template does otherwise stands in `planning` and in modules of its own beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from ganeti.base.errors import (
    NotSupportedError,
    OpPrereqError,
    TypeEnforcementError,
    UnitParseError,
    refusing,
)
from ganeti.base.units import parse_unit
from ganeti.logical_units.context import JobContext
from ganeti.objects.disk_templates import (
    Adoption,
    DiskFormat,
    DiskMode,
    DiskTemplate,
    FileDriver,
    StorageType,
)
from ganeti.objects.model import Cluster, Disk, Node, NodeGroup
from ganeti.objects.parameters import DISK_SETTINGS, OWN_DISKPARAMS, apply_changes, checked

SIZE_UNKNOWN: Final = 0  # of what is adopted, until its node has told it
DEV_TYPE: Final = "dev_type"  # the setting that gives a disk another template than the others
SIZE_AUTO: Final = "auto"  # the standard size of the instance policy
SIZE_MIB_MAX: Final = 2**43 - 1  # a file offset is a signed 64-bit number of bytes

DiskSettings = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class NewDisk:
    """A disk to be made, of a template; size in MiB.

    ``params`` are the disk's own parameters, with those for the provider of template ext, which
    ``provider`` names; ``volume_groups`` and ``spindles`` are for templates on LVM; ``adopt`` is a
    device, volume or file that is there already, whose size is yet to be asked.
    """

    template: DiskTemplate
    size_mib: int
    mode: DiskMode
    name: str | None
    provider: str | None = None
    params: Mapping[str, object] | None = None
    adopt: str | None = None
    volume_groups: tuple[str, ...] = ()
    spindles: int | None = None


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where the files of an instance go, how they are opened, and their usual format."""

    directory: str
    driver: FileDriver
    format: DiskFormat


class Planner:
    """Disks named by us, of a template without settings of its own."""

    def __init__(self, template: DiskTemplate) -> None:
        self.template = template
        self.own = OWN_DISKPARAMS[template]  # parameters that each disk may have

    def check_settings(self, what: str, settings: DiskSettings) -> None:
        """Refuse settings of other templates.

        Raises:
            NotSupportedError, OpPrereqError: names the setting.
        """
        quoted, traits = repr(str(self.template)), self.template.traits
        if not traits.has_provider:
            unknown = settings.keys() - (DISK_SETTINGS.keys() - {"provider"}) - self.own.keys()
            if unknown:
                known = f"has {', '.join(sorted(self.own))}" if self.own else "has none"
                raise OpPrereqError(
                    f"{what}: {', '.join(sorted(unknown))}: not known for disk template {quoted},"
                    f" which {known}; parameters of a provider are for template 'ext' only"
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

    def own_params(
        self, what: str, settings: Mapping[str, object], old: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Return the parameters of a disk's own: the old ones with those among settings laid over.

        Raises:
            OpPrereqError: one of them is wrong.
        """
        given = {name: value for name, value in settings.items() if name in self.own}
        with refusing(TypeEnforcementError):
            given = checked(given, self.own, what=f"{what}: {self.template} parameter")
        return apply_changes(old or {}, given)

    def with_defaults(
        self, cluster: Cluster, group: NodeGroup | None, settings: DiskSettings
    ) -> DiskSettings:
        """Return the settings, with those of the cluster for what is left out.

        Args:
            group: the node group of the instance, once it is known.
        """
        return settings

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        """Return the disk with the settings of this template; it has the parameters of its own.

        Raises:
            OpPrereqError: one is missing or wrong.
        """
        return new

    def size_mib(self, what: str, settings: DiskSettings) -> int:
        """Return the size of a new disk, `SIZE_UNKNOWN` of one that is adopted.

        Raises:
            OpPrereqError: as `disk_size`; or it was given for one that is adopted.
        """
        if "adopt" not in settings:
            return disk_size(what, settings.get("size"))
        if "size" in settings:
            raise OpPrereqError(
                f"{what}: the size is that of what is adopted, so it cannot be given"
            )
        return SIZE_UNKNOWN

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        """Return a disk with its logical id, and with its children if it has any.

        Args:
            disk: its children have only their UUIDs yet.
            name: one that no other disk has.
        """
        return structs.replace(disk, logical_id=[self.template.value, name])

    def settings_of(self, disk: Disk) -> dict[str, str | int]:
        """Return the settings by which such a disk is asked for."""
        own = {name: value for name, value in (disk.params or {}).items() if name in self.own}
        return {"size": disk.size, "mode": disk.mode.value, **own}  # type: ignore[dict-item]

    def check_on_node(self, context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
        """Let a node check disks of which only it knows whether they can be; returns them anew.

        Args:
            disks: all disks that are to be made, of any template, in their order.

        Raises:
            OpPrereqError: one cannot be.
        """
        return list(disks)

    def settle(self, context: JobContext, disk: Disk) -> Disk:
        """Return the disk with the numbers that WConfD gives out, reserved for this job."""
        return disk


def disk_size(what: str, size: object) -> int:
    """Return a size in MiB.

    Raises:
        OpPrereqError: not a size, not positive, or larger than a file can be.
    """
    try:
        size_mib = parse_unit(size) if isinstance(size, str) else int(str(size))
    except (UnitParseError, ValueError) as err:
        raise OpPrereqError(f"{what}: {size!r} is not a size; use for example 512m or 10g") from err
    if not 0 < size_mib <= SIZE_MIB_MAX:
        raise OpPrereqError(
            f"{what}: the size must be from 1 to {SIZE_MIB_MAX} MiB, got {size_mib}"
        )
    return size_mib


def resized(disk: Disk, size_mib: int) -> Disk:
    """Return a disk with another size, which the volume below it for its data has as well."""
    children = [
        structs.replace(child, size=size_mib) if number == 0 else child
        for number, child in enumerate(disk.children)
    ]
    return structs.replace(disk, size=size_mib, children=children)
