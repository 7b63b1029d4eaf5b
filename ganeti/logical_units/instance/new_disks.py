"""Disks as asked for in an opcode, checked and named: plain decisions over plain values."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import (
    ErrorCode,
    NotSupportedError,
    OpPrereqError,
    UnitParseError,
)
from ganeti.base.ids import DiskUuid
from ganeti.base.units import parse_unit
from ganeti.logical_units.instance.parameters import check_enabled, device_name
from ganeti.objects.disk import Disk
from ganeti.objects.disk_templates import (
    ADOPTABLE_BLOCKDEV_ROOT,
    BLOCKDEV_DRIVER,
    DISK_PARAM_NAMES,
    DISKS_MAX,
    EXTERNALLY_MIRRORED,
    FILE_BASED,
    MUST_ADOPT,
    DiskAccess,
    DiskMode,
    DiskTemplate,
    FileDriver,
)

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster

SIZE_MIB_MAX: Final = 2**43 - 1  # a file offset is a signed 64-bit number of bytes

SUPPORTED: Final = frozenset(
    {
        DiskTemplate.BLOCKDEV,
        DiskTemplate.DISKLESS,
        DiskTemplate.EXT,
        DiskTemplate.FILE,
        DiskTemplate.SHAREDFILE,
    }
)
# Settings that belong to templates which are not supported yet.
_FOR_LVM: Final = ("vg", "metavg", "spindles")

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
    provider: str | None
    params: Mapping[str, object]
    adopt: str | None = None


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where the files of an instance go, and how they are opened."""

    directory: str
    driver: FileDriver


def choose_template(cluster: Cluster, asked: str | None) -> DiskTemplate:
    """Return the disk template asked for, or the cluster's first.

    Raises:
        OpPrereqError: it is not enabled, or not supported.
    """
    template = asked or cluster.enabled_disk_templates[0]
    enabled = [str(name) for name in cluster.enabled_disk_templates]
    check_enabled("disk template", template, enabled, "--enabled-disk-templates")
    if template not in SUPPORTED:
        known = ", ".join(sorted(SUPPORTED))
        raise NotSupportedError(
            f"disk template {str(template)!r} is not supported yet; supported are: {known}"
        )
    return DiskTemplate(template)


def plan_disks(template: DiskTemplate, settings: Sequence[DiskSettings]) -> list[NewDisk]:
    """Check the disks asked for.

    Raises:
        OpPrereqError: one of them cannot be; names it by its index.
    """
    if template is DiskTemplate.DISKLESS and settings:
        raise OpPrereqError(
            "an instance with disk template 'diskless' cannot have disks; give another template"
            " with -t, or no disks"
        )
    if template is not DiskTemplate.DISKLESS and not settings:
        raise OpPrereqError(
            f"disk template {str(template)!r} needs at least one disk (--disk 0:size=...)"
        )
    if len(settings) > DISKS_MAX:
        raise OpPrereqError(
            f"an instance can have at most {DISKS_MAX} disks, {len(settings)} were given",
            ErrorCode.NORES,
        )
    planned = [plan_disk(template, f"disk/{index}", disk) for index, disk in enumerate(settings)]
    names = [disk.name for disk in planned if disk.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise OpPrereqError(f"several disks are to be called {name!r}", ErrorCode.NOTUNIQUE)
    return planned


def plan_disk(template: DiskTemplate, what: str, settings: DiskSettings) -> NewDisk:
    """Check one disk.

    Args:
        what: its name in errors.
    """
    for unsupported in _FOR_LVM:
        if unsupported in settings:
            raise NotSupportedError(
                f"{what}: {unsupported!r} cannot be given for disk template {str(template)!r}"
            )
    provider, params = _provider(template, what, settings)
    adopt = _adopted(template, what, settings)
    return NewDisk(
        size_mib=disk_size(what, settings.get("size")) if adopt is None else 0,
        mode=disk_mode(what, settings.get("mode", DiskMode.RW.value)),
        name=device_name(what, settings.get("name")),
        provider=provider,
        params=params,
        adopt=adopt,
    )


def _adopted(template: DiskTemplate, what: str, settings: DiskSettings) -> str | None:
    """Return the device to be adopted; None for templates that make their disks."""
    path = settings.get("adopt")
    if template not in MUST_ADOPT:
        if path is not None:
            raise OpPrereqError(
                f"{what}: 'adopt' cannot be given for disk template {str(template)!r}"
            )
        return None
    if not isinstance(path, str):
        raise OpPrereqError(
            f"{what}: disk template {str(template)!r} adopts devices (adopt=/dev/...)"
        )
    if "size" in settings:
        raise OpPrereqError(
            f"{what}: the size is that of the adopted device, so it cannot be given"
        )
    if posixpath.normpath(path) != path or not path.startswith(ADOPTABLE_BLOCKDEV_ROOT):
        raise OpPrereqError(
            f"{what}: device {path!r} cannot be adopted; give one below {ADOPTABLE_BLOCKDEV_ROOT}"
        )
    return path


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


def disk_mode(what: str, mode: object) -> DiskMode:
    """Return whether an instance may write.

    Raises:
        OpPrereqError: it is neither rw nor ro.
    """
    try:
        return DiskMode(str(mode))
    except ValueError as err:
        raise OpPrereqError(f"{what}: the mode must be rw or ro, got {mode!r}") from err


def _provider(
    template: DiskTemplate, what: str, settings: DiskSettings
) -> tuple[str | None, dict[str, object]]:
    provider = settings.get("provider")
    extra: dict[str, object] = {
        name: value for name, value in settings.items() if name not in DISK_PARAM_NAMES
    }
    if template is not DiskTemplate.EXT:
        if provider is not None or extra:
            names = ", ".join(sorted([*extra, *(["provider"] if provider is not None else [])]))
            raise OpPrereqError(
                f"{what}: {names}: not known for disk template {str(template)!r}; parameters of a"
                " provider are for template 'ext' only"
            )
        if "access" in settings:
            raise OpPrereqError(
                f"{what}: 'access' cannot be given for disk template {str(template)!r}"
            )
        return None, {}
    if not isinstance(provider, str):
        raise OpPrereqError(
            f"{what}: disk template 'ext' needs a provider (provider=...); see 'gnt-storage list'"
        )
    access = settings.get("access")
    if access is None:
        return provider, extra
    if access not in tuple(DiskAccess):
        known = " or ".join(DiskAccess)
        raise OpPrereqError(f"{what}: the access mode must be {known}, got {access!r}")
    return provider, {**extra, "access": access}


def file_place(
    cluster: Cluster,
    template: DiskTemplate,
    instance_name: str,
    subdirectory: str | None,
    driver: FileDriver | None,
) -> FilePlace | None:
    """Return where the files of an instance go; None for templates without files.

    Raises:
        OpPrereqError: the cluster has no such directory, or the path leads out of it.
    """
    if template not in FILE_BASED:
        if subdirectory is not None or driver is not None:
            raise OpPrereqError(
                f"file driver and file storage directory cannot be given for disk template"
                f" {str(template)!r}"
            )
        return None
    shared = template is DiskTemplate.SHAREDFILE
    base = cluster.shared_file_storage_dir if shared else cluster.file_storage_dir
    if not base:
        option = "--shared-file-storage-dir" if shared else "--file-storage-dir"
        raise OpPrereqError(
            f"the cluster has no directory for disk template {str(template)!r}; set one with"
            f" 'gnt-cluster modify {option}=...'",
            ErrorCode.STATE,
        )
    inner = posixpath.normpath(subdirectory or ".")
    if posixpath.isabs(inner) or inner.startswith(".."):
        raise OpPrereqError(
            f"the file storage directory {subdirectory!r} must be a relative path below {base}"
        )
    directory = posixpath.normpath(posixpath.join(base, inner, instance_name))
    return FilePlace(directory, driver or FileDriver.LOOP)


def nodes_of(template: DiskTemplate, node_uuid: str) -> list[str]:
    """Return the nodes that hold a disk: none in particular if all can reach it."""
    return [] if template in EXTERNALLY_MIRRORED else [node_uuid]


def make_disk(
    new: NewDisk,
    *,
    index: int,
    template: DiskTemplate,
    uuid: str,
    unique_id: str,
    place: FilePlace | None,
    nodes: Sequence[str],
) -> Disk:
    """Return the disk object, with the identity of its device decided."""
    suffix = f"{template.value}.disk{index}"
    logical_id: list[object]
    if new.adopt is not None:
        logical_id = [BLOCKDEV_DRIVER, new.adopt]
    elif place is not None:
        logical_id = [place.driver.value, f"{place.directory}/{unique_id}.{suffix}"]
    else:
        logical_id = [new.provider, f"{unique_id}.{suffix}"]
    return Disk(
        uuid=DiskUuid(uuid),
        logical_id=logical_id,
        dev_type=template.value,
        iv_name=f"disk/{index}",
        size=new.size_mib,
        mode=new.mode,
        name=new.name,
        params=dict(new.params),
        nodes=list(nodes),
        serial_no=1,
    )
