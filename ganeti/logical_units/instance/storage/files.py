"""Disks in files: where the files of an instance go, and where a rename left them.  Pure.

Files keep their names when the directory of their instance is renamed, and no two disks have files
of one name: so files that a rename which was cut off has left in another directory are found.
"""

from __future__ import annotations

import os.path
import posixpath
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units.instance.storage.planner import FilePlace
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.disk_templates import DiskFormat, DiskTemplate, FileDriver, format_of
from ganeti.objects.fill import fill_diskparams
from ganeti.objects.model import Cluster, Disk, NodeGroup

_ON_VOLUME: Final = "ganeti"  # the directory, below that of the volume, of disks without another


def file_place(
    cluster: Cluster,
    group: NodeGroup,
    template: DiskTemplate,
    instance_name: str,
    subdirectory: str | None,
    driver: FileDriver | None,
) -> FilePlace | None:
    """Return where the files of an instance go; None for templates without files.

    Raises:
        OpPrereqError: the cluster has no such directory, or the path leads out of it.
    """
    if not template.traits.is_file:
        if subdirectory is not None or driver is not None:
            raise OpPrereqError(
                f"file driver and file storage directory cannot be given for disk template"
                f" {str(template)!r}"
            )
        return None
    setting = template.traits.directory_setting
    base = getattr(cluster, setting)
    if not base:
        option = f"--{setting.replace('_', '-')}"
        raise wrong_state(
            f"the cluster has no directory for disk template {str(template)!r}; set one with"
            f" 'gnt-cluster modify {option}=...'"
        )
    inner = posixpath.normpath(subdirectory or ".")
    if posixpath.isabs(inner) or inner.startswith(".."):
        raise OpPrereqError(
            f"the file storage directory {subdirectory!r} must be a relative path below {base}"
        )
    if template.traits.is_mounted:
        directory = _ON_VOLUME if subdirectory is None else inner
    else:
        directory = posixpath.normpath(posixpath.join(base, inner, instance_name))
    return FilePlace(directory, driver or FileDriver.LOOP, usual_format(cluster, group, template))


def usual_format(cluster: Cluster, group: NodeGroup, template: DiskTemplate) -> DiskFormat:
    """Return the format of new files in a node group."""
    return format_of(fill_diskparams(cluster, group, template))


def directories(disks: Sequence[Disk]) -> list[str]:
    """Return the directories that the files of disks are in, each once."""
    paths = [disk.part("path") for disk in disks if disk.traits.has_own_directory]
    return list(dict.fromkeys(path.rpartition("/")[0] for path in paths))


def own_directories(view: InstanceView) -> list[str]:
    """Return the directories that are the instance's own: named after it.

    A disk that was attached lies where it was made, perhaps in the directory of another instance.
    """
    name = view.name
    return [path for path in directories(view.disks) if path.rpartition("/")[2] == name]


def file_of(disk: Disk) -> str | None:
    """Return the file of a disk that is in one."""
    if disk.traits.is_file and len(disk.logical_id) == 2:
        return str(disk.logical_id[1])
    return None


def renamed_directories(disks: Iterable[Disk], stored: Collection[str]) -> dict[str, str]:
    """Return {directory of the configuration: the one beside it that has its files}.

    Only where no file is at its place, and all are in one other directory.

    Args:
        stored: the files that are there and belong to no disk, or to these.
    """
    wanted: dict[str, list[str]] = {}
    for path in filter(None, map(file_of, disks)):
        directory, name = os.path.split(path)
        wanted.setdefault(directory, []).append(name)
    places: dict[str, set[str]] = {}  # name of a file -> the directories that have one
    for path in stored:
        directory, name = os.path.split(path)
        places.setdefault(name, set()).add(directory)
    found = {}
    for own, names in wanted.items():
        beside = [
            {place for place in places.get(name, ()) if _parent(place) == _parent(own)}
            for name in names
        ]
        common = set.intersection(*beside)
        if len(common) == 1 and own not in set.union(*beside):
            found[own] = common.pop()
    return found


def _parent(directory: str) -> str:
    return os.path.dirname(directory)
