"""Disks that are files, on one node or seen by all nodes, and the directories that hold them.

The files are raw images, sparse until written, or images of format qcow2.  A file appears under its
name only when it is complete, so a process that finds it finds a whole disk.

Source: config.json, "disk_logical_id"; constants.json, "disk_templates"; node_rpc.json, calls
file_storage_dir_* and "storage_calls".
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ganeti.base.errors import BlockDeviceError, StorageError, failing_as
from ganeti.base.paths import Paths
from ganeti.objects.disk_templates import DiskFormat, FileDriver, format_of
from ganeti.protocol.node_rpc_values import KeptSnapshot
from ganeti.storage import interface, qcow2
from ganeti.storage.allowed_paths import local_path
from ganeti.storage.data import wipe
from ganeti.storage.interface import (
    Assembled,
    BlockDevStatus,
    Dimensions,
    DiskLike,
    Storage,
    Volume,
    contents,
)
from ganeti.system.files import ensure_directory, fsync_directory, remove_if_exists

MIB: Final = 1 << 20
SIZE_MIB_MAX: Final = (1 << 63) // MIB - 1  # the highest offset in a file
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def _check_room(directory: str, path: str, needed_bytes: int) -> None:
    """Refuse a file that could never be filled: a sparse one takes its room only later.

    Raises:
        BlockDeviceError: there is less room now than is needed.
    """
    found = os.statvfs(directory)
    free_bytes = found.f_bavail * found.f_frsize
    if needed_bytes > free_bytes:
        raise BlockDeviceError(
            f"no room for {path}: {directory} has {free_bytes // MIB} MiB left,"
            f" {-(-needed_bytes // MIB)} MiB are needed"
        )


def _shared_by_group(path: str, flags: int) -> int:
    return os.open(path, flags, 0o660)


def _appear(temporary: str, path: str) -> None:
    """Give a finished file its name, which must be free."""
    try:
        os.link(temporary, path)
    except OSError as err:
        if err.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from err
        os.rename(temporary, path)


class FileVolume(Volume):
    """A disk in a file."""

    def _locate(self, logical_id: list[object]) -> None:
        self._path = self._local(logical_id)

    def _local(self, logical_id: Sequence[object]) -> str:
        match list(logical_id):
            case [str(driver), str(path)] if driver in tuple(FileDriver):
                return local_path(path, self._env.paths)
        raise self._malformed()

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Make the file with its full size, if there is room; its directory is made as well."""
        if not 0 < size_mib <= SIZE_MIB_MAX:
            raise BlockDeviceError(f"{self._path}: a disk of {size_mib} MiB cannot be made")
        directory, name = os.path.split(self._path)
        temporary = os.path.join(directory, f".{name}.{os.getpid()}.new")
        with failing_as(BlockDeviceError, f"cannot create {self._path}"):
            ensure_directory(directory)
            _check_room(directory, self._path, size_mib * MIB)
            remove_if_exists(temporary)
            try:
                self._write_empty(temporary, size_mib * MIB)
                _appear(temporary, self._path)
            finally:
                remove_if_exists(temporary)
            fsync_directory(directory)
        return None

    def _write_empty(self, path: str, size_bytes: int) -> None:
        """Make the file of an empty disk."""
        with open(path, "xb", opener=_shared_by_group) as file:
            file.truncate(size_bytes)
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Remove the file; does nothing when it is gone already."""
        with failing_as(BlockDeviceError, f"cannot remove {self._path}"):
            remove_if_exists(self._path)

    def find(self) -> BlockDevStatus | None:
        """Look at the file; None when there is none."""
        return None if self._size_bytes() is None else BlockDevStatus(self._path)

    def _size_bytes(self) -> int | None:
        """Return the size of the disk; None when there is no file."""
        with failing_as(BlockDeviceError, f"cannot look at {self._path}"):
            try:
                found = os.stat(self._path)
            except FileNotFoundError:
                return None
        if not stat.S_ISREG(found.st_mode):
            raise BlockDeviceError(f"{self._path} is not a regular file")
        return found.st_size

    def _existing_size_bytes(self) -> int:
        size = self._size_bytes()
        if size is None:
            raise BlockDeviceError(f"disk {self._disk.uuid}: the file {self._path} does not exist")
        return size

    def assemble(self) -> Assembled:
        """Check that the file is there: nothing else is needed to use it."""
        self._existing_size_bytes()
        return Assembled(self._path)

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Add to the size of the file; the new part takes no space until it is written."""
        new_size = self._existing_size_bytes() + amount_mib * MIB
        if not 0 < amount_mib <= SIZE_MIB_MAX or new_size > SIZE_MIB_MAX * MIB:
            raise BlockDeviceError(f"{self._path} cannot grow by {amount_mib} MiB")
        with failing_as(BlockDeviceError, f"cannot grow {self._path}"):
            _check_room(os.path.dirname(self._path), self._path, amount_mib * MIB)
            if dryrun or not backingstore:
                return
            self._enlarge(new_size)

    def _enlarge(self, size_bytes: int) -> None:
        os.truncate(self._path, size_bytes)

    def rename(self, new_logical_id: Sequence[object]) -> None:
        """Give the file another path; no other file is overwritten."""
        new_path = self._local(new_logical_id)
        if new_path == self._path:
            return
        with failing_as(BlockDeviceError, f"cannot rename {self._path} to {new_path}"):
            ensure_directory(os.path.dirname(new_path))
            _appear(self._path, new_path)
            remove_if_exists(self._path)
        self._path = new_path

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the file; holes are zeroes already."""
        offset, count = self._area(offset_mib, size_mib)
        with failing_as(BlockDeviceError, f"cannot wipe {self._path}"), contents(self) as path:
            wipe(path, offset, count)

    def _area(self, offset_mib: int, size_mib: int) -> tuple[int, int]:
        """Return (offset, length) in bytes of a part of the disk, which must lie within it."""
        size = self._existing_size_bytes()
        offset, count = offset_mib * MIB, size_mib * MIB
        if offset < 0 or count < 0 or offset + count > size:
            raise BlockDeviceError(
                f"{self._path} has {size // MIB} MiB: cannot wipe {size_mib} MiB from {offset_mib}"
            )
        return offset, count

    def dimensions(self) -> Dimensions | None:
        """Return the size of the file; None when there is none."""
        size = self._size_bytes()
        return None if size is None else Dimensions(size)


class Qcow2Volume(FileVolume):
    """A disk in an image of format qcow2; its size is that of the disk in it."""

    def _write_empty(self, path: str, size_bytes: int) -> None:
        qcow2.make_image(path, size_bytes)

    def _size_bytes(self) -> int | None:
        if super()._size_bytes() is None:
            return None
        with failing_as(BlockDeviceError, f"cannot look at {self._path}"):
            return qcow2.size_of_image(self._path)

    def _enlarge(self, size_bytes: int) -> None:
        qcow2.enlarge_image(self._path, size_bytes)

    @property
    def raw_view(self) -> qcow2.RawView:
        """A file of the disk's bytes; who shows them needs FUSE."""
        place = qcow2.place_of_view(self._env.paths, self._disk.uuid, self._path)
        return qcow2.RawView(self._path, place)

    def snapshots(self) -> list[KeptSnapshot]:
        """Return the snapshots in the image, the oldest first."""
        self._existing_size_bytes()
        with failing_as(BlockDeviceError, f"cannot look for snapshots in {self._path}"):
            return qcow2.snapshots_of_image(self._path)

    def keep(self, name: str) -> None:
        """Take a snapshot in the image."""
        self._change("-c", "keep", name)

    def restore(self, name: str) -> None:
        """Give the disk the contents of a snapshot; it keeps its size, with zeroes at its end."""
        size = self._existing_size_bytes()
        if all(each.name != name for each in self.snapshots()):
            raise BlockDeviceError(f"{self._path} has no snapshot {name!r}")
        with failing_as(BlockDeviceError, f"cannot restore snapshot {name!r} of {self._path}"):
            qcow2.drop_bitmaps(self._path)
        self._change("-a", "restore", name)
        if self._existing_size_bytes() < size:
            with failing_as(BlockDeviceError, f"cannot give {self._path} its size again"):
                self._enlarge(size)

    def forget(self, name: str) -> None:
        """Remove a snapshot from the image; does nothing when there is none of that name."""
        if any(each.name == name for each in self.snapshots()):
            self._change("-d", "remove", name)

    def _change(self, flag: str, action: str, name: str) -> None:
        with failing_as(BlockDeviceError, f"cannot {action} snapshot {name!r} of {self._path}"):
            qcow2.change_snapshot(flag, self._path, name)


class FileStorage(Storage):
    """Files below a directory; their space is that of its file system."""

    volume = FileVolume

    def volume_of(self, disk: DiskLike, children: Sequence[Volume]) -> Volume:
        """Return one disk, whose own parameters say the format of its file."""
        kind = Qcow2Volume if format_of(disk.params) is DiskFormat.QCOW2 else FileVolume
        return kind(disk, self.env, children)

    def space(self, name: str) -> interface.StorageUnit:
        """Return the space of the file system that a directory is on."""
        with failing_as(StorageError, f"cannot look at storage directory {name}"):
            found = os.statvfs(self.env.paths.localize(name))
        free_mib = found.f_bavail * found.f_frsize // MIB
        return interface.StorageUnit(
            self.kind, name, free_mib, found.f_blocks * found.f_frsize // MIB
        )

    def units(self, names: Sequence[str]) -> list[interface.StorageUnit]:
        """Return directories, with the space that the files below them take on disk."""
        return list(map(self._unit, names))

    def _unit(self, name: str) -> interface.StorageUnit:
        """Return one directory; one that is not there, or none, has that as its status."""
        local = self.env.paths.localize(name)
        try:
            found = self.space(name)
        except StorageError as err:
            return interface.StorageUnit(self.kind, name, is_allocatable=False, status=err.message)
        if not os.path.isdir(local):
            status = f"storage directory {name} is not a directory"
            return interface.StorageUnit(self.kind, name, is_allocatable=False, status=status)
        return replace(found, used_mib=_used_mib(local))


def _used_mib(directory: str) -> int:
    """Return the space that the files below a directory take on disk."""
    used = 0
    for place, _directories, files in os.walk(directory):
        for file in files:
            with suppress(FileNotFoundError):  # removed meanwhile
                used += os.lstat(os.path.join(place, file)).st_blocks * 512
    return used // MIB


def create_directory(path: str, paths: Paths) -> None:
    """Make a directory, unless it is there."""
    local = local_path(path, paths)
    with failing_as(StorageError, f"cannot create directory {local}"):
        ensure_directory(local)
    if not os.path.isdir(local):
        raise StorageError(f"{local} is not a directory")


def remove_directory(path: str, paths: Paths) -> None:
    """Remove an empty directory; does nothing when it is gone already."""
    local = local_path(path, paths)
    with failing_as(StorageError, f"cannot remove directory {local}"), suppress(FileNotFoundError):
        os.rmdir(local)


def rename_directory(old_path: str, new_path: str, paths: Paths) -> None:
    """Rename a directory with all that is in it; repeating it does nothing more."""
    old, new = local_path(old_path, paths), local_path(new_path, paths)
    if os.path.lexists(new):
        if os.path.lexists(old):
            raise StorageError(f"cannot rename {old} to {new}: both exist")
        return
    with failing_as(StorageError, f"cannot rename {old} to {new}"):
        ensure_directory(os.path.dirname(new))
        os.rename(old, new)
