"""Disks in files: where the files of an instance go."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units.instance.storage.planner import FilePlace, NewDisk, Planner
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.disk_templates import DiskTemplate, FileDriver
from ganeti.objects.model import Cluster, Disk


class FileDisks(Planner):
    """Files below a directory of the cluster."""

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        assert place is not None, "`file_place` returns one for templates of files"
        return replace(disk, logical_id=[place.driver.value, f"{place.directory}/{name}"])


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
    directory = posixpath.normpath(posixpath.join(base, inner, instance_name))
    return FilePlace(directory, driver or FileDriver.LOOP)


def directories(disks: Sequence[Disk]) -> list[str]:
    """Return the directories that the files of disks are in, each once."""
    paths = [disk.part("path") for disk in disks if disk.traits.has_own_directory]
    return list(dict.fromkeys(path.rpartition("/")[0] for path in paths))


def own_directories(view: InstanceView) -> list[str]:
    """Return the directories that are the instance's own: named after it.

    A disk that was attached lies where it was made, perhaps in the directory of another instance.
    """
    name = view.instance.name
    return [path for path in directories(view.disks) if path.rpartition("/")[2] == name]
