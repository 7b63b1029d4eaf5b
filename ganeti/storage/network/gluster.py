"""Disks of template ``gluster``: files of a Gluster volume.

The volume is mounted at the cluster's directory for it while this node uses a disk by kernel
access, or changes one.  By userspace access QEMU opens the file by itself:

    gluster://HOST:PORT/VOLUME/PATH

Each use is a file of its own below the run directory, so the node daemon may be restarted at any
time; the last use that ends unmounts the volume.  A path that does not begin with ``/`` is one of
the volume.

Source: config.json, "disk_logical_id"; constants.json, "diskparams"; mount.glusterfs(8).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from ganeti.base.errors import BlockDeviceError, StorageError, failing_as
from ganeti.objects.disk_templates import DiskAccess, DiskTemplate, FileDriver
from ganeti.objects.parameters import DISKPARAMS, defaults_of
from ganeti.storage.allowed_paths import local_path
from ganeti.storage.data import wipe
from ganeti.storage.file import FileStorage, FileVolume
from ganeti.storage.interface import (
    Assembled,
    BlockDevStatus,
    Dimensions,
    DiskLike,
    Look,
    StorageEnv,
    StorageUnit,
    Volume,
)
from ganeti.storage.network import mounts
from ganeti.storage.network.tools import raw_view_of, run_tool
from ganeti.storage.qcow2 import RawView
from ganeti.store import ssconf
from ganeti.system import clock
from ganeti.system.filelock import FileLock
from ganeti.system.files import ensure_directory, remove_if_exists
from ganeti.system.process import describe_end

MOUNT_TIMEOUT_S: Final = 45.0
_UNMOUNT_TIMEOUT_S: Final = 30.0
_LOCK_TIMEOUT_S: Final = MOUNT_TIMEOUT_S + _UNMOUNT_TIMEOUT_S
_PACKAGE: Final = "glusterfs-client"
_FILE_SYSTEM: Final = "fuse.glusterfs"
_LOG: Final = "gluster.log"
_TEMPORARY: Final = "process-"  # of the name of a use that ends with its process


@dataclass(frozen=True, slots=True)
class GlusterMount:
    """A Gluster volume, and the directory of this node at which it is mounted."""

    host: str
    port: int
    volume: str
    directory: str
    env: StorageEnv

    @classmethod
    def of(cls, params: Mapping[str, object], env: StorageEnv) -> GlusterMount:
        """Return the volume that parameters of disks name."""
        filled = {**defaults_of(DISKPARAMS[DiskTemplate.GLUSTER]), **params}
        directory = ssconf.read_key_or_none(env.paths, "gluster_storage_dir")
        local = env.paths.localize(directory) if directory else env.paths.gluster_storage_dir
        return cls(str(filled["host"]), int(str(filled["port"])), str(filled["volume"]), local, env)

    @property
    def source(self) -> str:
        """The name of the volume for ``mount``."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:/{self.volume}"

    def uri(self, path: str) -> str:
        """Return the address of a file of the volume, by its path in it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"gluster://{host}:{self.port}/{self.volume}/{quote(path)}"

    def use(self, name: str) -> None:
        """Mount the volume, if it is not, until `release` is called with that name.

        Raises:
            StorageError: it cannot be mounted.
        """
        with self._alone(), failing_as(StorageError, f"cannot use {self.directory}"):
            self._mount()
            with open(self._use(name), "wb"):
                pass

    def release(self, name: str) -> None:
        """End a use, which there may not be; the last one unmounts the volume."""
        if not os.path.isdir(self.env.paths.gluster_uses_dir):
            return
        with self._alone(), failing_as(StorageError, f"cannot release {self.directory}"):
            remove_if_exists(self._use(name))
            if not self._in_use() and self._mounted() is not None:
                argv = ["umount", self.directory]
                # Somebody else may be in there: the next use that ends tries again.
                run_tool(argv, package="mount", timeout_s=_UNMOUNT_TIMEOUT_S)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Mount the volume during the block."""
        name = f"{_TEMPORARY}{os.getpid()}.{clock.now_ns()}"
        self.use(name)
        try:
            yield
        finally:
            self.release(name)

    def _use(self, name: str) -> str:
        return os.path.join(self.env.paths.gluster_uses_dir, name)

    def _in_use(self) -> bool:
        """Tell whether anybody uses the volume; forgets processes that are gone."""
        used = False
        for name in os.listdir(self.env.paths.gluster_uses_dir):
            pid = name.removeprefix(_TEMPORARY).partition(".")[0]
            if name.startswith(_TEMPORARY) and not os.path.exists(f"/proc/{pid}"):
                remove_if_exists(self._use(name))
            else:
                used = True
        return used

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from mounting and unmounting during the block."""
        ensure_directory(self.env.paths.gluster_uses_dir)
        lock = FileLock(f"{self.env.paths.gluster_uses_dir}.lock")
        lock.acquire(timeout_s=_LOCK_TIMEOUT_S)
        with lock:
            yield

    def _mounted(self) -> str | None:
        """Return what is mounted at the directory.

        Raises:
            StorageError: it is no Gluster volume.
        """
        found = mounts.at(self.directory)
        if found is not None and found.kind != _FILE_SYSTEM:
            raise StorageError(
                f"{found.source} ({found.kind}) is mounted at {self.directory}, where Gluster"
                f" volumes go; unmount it with 'umount {self.directory}', or choose another"
                " directory with 'gnt-cluster modify --gluster-storage-dir'"
            )
        return None if found is None else found.source

    def _mount(self) -> None:
        there = self._mounted()
        if there is not None and not self._is_alive():
            self._run(["umount", "-l", self.directory], _UNMOUNT_TIMEOUT_S)
            there = None
        if there == self.source:
            return
        if there is not None:
            raise StorageError(
                f"disks of Gluster volume {self.source} cannot be used: {there} is mounted at"
                f" {self.directory}; its disks have to be closed first ('gnt-instance"
                " deactivate-disks')"
            )
        ensure_directory(self.directory)
        log = os.path.join(self.env.paths.log_dir, _LOG)
        options = f"log-level=WARNING,log-file={log},server-port={self.port}"
        argv = ["mount", "-t", "glusterfs", "-o", options, self.source, self.directory]
        self._run(argv, MOUNT_TIMEOUT_S)
        if self._mounted() is None or not self._is_alive():
            argv = ["umount", "-l", self.directory]
            run_tool(argv, package="mount", timeout_s=_UNMOUNT_TIMEOUT_S)
            raise self._failed("it does not answer")

    def _run(self, argv: Sequence[str], timeout_s: float) -> None:
        result = run_tool(argv, package=_PACKAGE, timeout_s=timeout_s)
        if result.timed_out:
            raise self._failed(f"no answer within {timeout_s:.0f} s")
        if result.status != 0:
            raise self._failed("; ".join(result.output_tail().splitlines()) or describe_end(result))

    def _failed(self, reason: str) -> StorageError:
        log = os.path.join(self.env.paths.log_dir, _LOG)
        return StorageError(
            f"cannot mount Gluster volume {self.volume} of {self.host} (port {self.port}) at"
            f" {self.directory}: {reason}; see 'gluster volume status {self.volume}' on"
            f" {self.host}, and {log} here"
        )

    def _is_alive(self) -> bool:
        """Tell whether the process behind the mount lives."""
        try:
            os.statvfs(self.directory)
        except OSError:
            return False
        return True


class GlusterVolume(FileVolume):
    """A disk in a file of a Gluster volume."""

    def _locate(self, logical_id: list[object]) -> None:
        params = self._disk.params or {}
        self.mount = GlusterMount.of(params, self._env)
        self.is_userspace = params.get("access") == DiskAccess.USERSPACE
        super()._locate(logical_id)

    def _local(self, logical_id: Sequence[object]) -> str:
        match list(logical_id):
            case [str(driver), str(path)] if path and driver in tuple(FileDriver):
                directory = self._env.paths.globalize(self.mount.directory)
                local = local_path(os.path.join(directory, path), self._env.paths)
                if local.startswith(self.mount.directory + "/"):
                    return local
        raise self._malformed()

    @property
    def uri(self) -> str:
        """The address at which QEMU reaches the file."""
        return self.mount.uri(os.path.relpath(self._path, self.mount.directory))

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Make the file with its full size, if there is room."""
        with self.mount.used():
            return super().create(size_mib, exclusive_storage=exclusive_storage)

    def remove(self) -> None:
        """Remove the file; does nothing when it is gone already."""
        with self.mount.used():
            super().remove()
        self.mount.release(self._disk.uuid)

    def find(self) -> BlockDevStatus | None:
        """Look at the file; None when there is none."""
        with self.mount.used():
            found = super().find()
        if found is None or not self.is_userspace:
            return found
        return replace(found, dev_path=self.uri)

    def dimensions(self) -> Dimensions | None:
        """Return the size of the file; None when there is none."""
        with self.mount.used():
            return super().dimensions()

    def assemble(self) -> Assembled:
        """Check that the file is there; for kernel access the volume stays mounted."""
        if self.is_userspace:
            with self.mount.used():
                super().assemble()
            return Assembled("", self.uri)
        self.mount.use(self._disk.uuid)
        try:
            return super().assemble()
        except BlockDeviceError:
            self.mount.release(self._disk.uuid)
            raise

    def shutdown(self) -> None:
        """Unmount the volume, unless another disk of it is in use."""
        self.mount.release(self._disk.uuid)

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Add to the size of the file; the new part takes no space until it is written."""
        with self.mount.used():
            super().grow(amount_mib, dryrun=dryrun, backingstore=backingstore)

    def rename(self, new_logical_id: Sequence[object]) -> None:
        """Give the file another path in its volume; no other file is overwritten."""
        with self.mount.used():
            super().rename(new_logical_id)

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the file; holes are zeroes already."""
        with self.mount.used(), failing_as(BlockDeviceError, f"cannot wipe {self._path}"):
            wipe(self._path, *self._area(offset_mib, size_mib))

    @property
    def raw_view(self) -> RawView | None:
        """How the bytes of a file are shown that only QEMU opens."""
        return raw_view_of(self.uri, self._disk, self._env) if self.is_userspace else None


class GlusterStorage(FileStorage):
    """Files of a Gluster volume; its storage unit is the directory at which it is mounted."""

    volume = GlusterVolume

    def volume_of(self, disk: DiskLike, children: Sequence[Volume]) -> Volume:
        """Return one disk."""
        return GlusterVolume(disk, self.env, children)

    def look(self, volumes: Sequence[Volume]) -> list[Look]:
        """Look at many files, with each volume mounted once."""
        with self._mounted(volumes):
            return super().look(volumes)

    def dimensions(self, volumes: Sequence[Volume]) -> list[Dimensions | None]:
        """Return the sizes of many files, with each volume mounted once."""
        with self._mounted(volumes):
            return super().dimensions(volumes)

    @contextmanager
    def _mounted(self, volumes: Sequence[Volume]) -> Iterator[None]:
        """Mount the volumes of files during the block, as far as that can be done."""
        with ExitStack() as used:
            for mount in dict.fromkeys(
                each.mount for each in volumes if isinstance(each, GlusterVolume)
            ):
                with suppress(StorageError):  # each disk will say so
                    used.enter_context(mount.used())
            yield

    def space(self, name: str) -> StorageUnit:
        """Return the space of the volume."""
        with GlusterMount.of(self.params, self.env).used():
            return super().space(name)

    def _unit(self, name: str) -> StorageUnit:
        """Return the volume, with the space that its files take."""
        try:
            with GlusterMount.of(self.params, self.env).used():
                return super()._unit(name)
        except StorageError as err:
            return StorageUnit(self.kind, name, is_allocatable=False, status=err.message)
