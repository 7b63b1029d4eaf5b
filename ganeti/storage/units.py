"""Storage units: where disks take their space from, and how much is left.

Source: node_rpc.json, node_info ("storage info") and "storage_calls"; constants.json,
"disk_templates".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import NotSupportedError, OpPrereqError, StorageError
from ganeti.objects.disk_templates import StorageType
from ganeti.storage.interface import StorageEnv

MIB: Final = 1 << 20
FIELDS: Final = ("allocatable", "free", "name", "size", "used")
_DIRECTORIES: Final = frozenset(
    {StorageType.FILE, StorageType.SHAREDFILE, StorageType.GLUSTER}
)  # kinds whose unit is a directory
_WITHOUT_REPORT: Final = frozenset(
    {StorageType.DISKLESS, StorageType.EXT, StorageType.BLOCKDEV, StorageType.RADOS}
)


@dataclass(frozen=True, slots=True)
class StorageSpace:
    """Space of one storage unit in MiB; None where its kind cannot tell."""

    storage_type: str
    name: str
    free_mib: int | None
    size_mib: int | None

    def to_wire(self) -> dict[str, object]:
        """Return one storage info of the answer of node_info."""
        return {
            "type": self.storage_type,
            "name": self.name,
            "storage_free": self.free_mib,
            "storage_size": self.size_mib,
        }


def storage_space(storage_type: str, name: str, env: StorageEnv) -> StorageSpace:
    """Look at the space of a storage unit; a directory's is that of its file system.

    Raises:
        StorageError: the unit cannot be looked at.
        NotSupportedError: that kind of storage has no driver.
    """
    if storage_type in _WITHOUT_REPORT:
        return StorageSpace(storage_type, name, None, None)
    if storage_type not in _DIRECTORIES:
        raise NotSupportedError(f"storage type {storage_type!r} is not supported")
    local = env.paths.localize(name)
    try:
        found = os.statvfs(local)
    except OSError as err:
        raise StorageError(f"cannot look at storage directory {name}: {err.strerror}") from err
    return StorageSpace(
        storage_type,
        name,
        found.f_bavail * found.f_frsize // MIB,
        found.f_blocks * found.f_frsize // MIB,
    )


def list_units(
    storage_type: str,
    directories: Sequence[str],
    name: str | None,
    fields: Sequence[str],
    env: StorageEnv,
) -> list[list[object]]:
    """List storage units of one kind, the given fields of each; only one if it is named.

    Args:
        directories: the units there are, for kinds whose units are directories.
    """
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise OpPrereqError(f"unknown storage fields {', '.join(unknown)}")
    if storage_type not in _DIRECTORIES:
        raise NotSupportedError(f"storage units of type {storage_type!r} are not supported")
    rows: list[list[object]] = []
    for directory in directories:
        if name is not None and directory != name:
            continue
        space = storage_space(storage_type, directory, env)
        values = _values(space, _used_mib(env.paths.localize(directory)))
        rows.append([values[field] for field in fields])
    return rows


def _values(space: StorageSpace, used_mib: int) -> dict[str, object]:
    return {
        "allocatable": True,
        "free": space.free_mib,
        "name": space.name,
        "size": space.size_mib,
        "used": used_mib,
    }


def _used_mib(directory: str) -> int:
    """Return what the files below a directory take on disk."""
    used = 0
    for place, _directories, files in os.walk(directory):
        for file in files:
            try:
                used += os.lstat(os.path.join(place, file)).st_blocks * 512
            except FileNotFoundError:  # removed meanwhile
                continue
    return used // MIB
