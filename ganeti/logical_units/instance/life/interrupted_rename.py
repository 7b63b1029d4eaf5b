"""Disks in files that are in another directory than the configuration says: a rename was cut off.

Files keep their names when the directory of their instance is renamed, and no two disks have files
of one name.  Pure.
"""

from __future__ import annotations

import os.path
from collections.abc import Collection, Iterable

from ganeti.objects.model import Disk


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
