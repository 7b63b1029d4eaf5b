"""Disks of template ``rbd``: images in a RADOS pool of Ceph, handled by the program ``rbd``.

By kernel access an image is mapped to a device of this node (module rbd).  By userspace access QEMU
opens it by itself, and the node has no device; copies and scripts see it through `userspace`.
Images are thin: they take space only where they were written.

The node finds its cluster by ``/etc/ceph/ceph.conf``; pool, access and user are disk parameters.
A snapshot is a disk, too, whose name is IMAGE@SNAPSHOT; nobody can write to it.

Source: config.json, "disk_logical_id"; constants.json, "diskparams"; the manual page rbd(8).
"""

from __future__ import annotations

import copy
import errno
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from ganeti.base.errors import BlockDeviceError, GenericError, StorageError, failing_as
from ganeti.objects.disk_templates import DiskAccess, DiskTemplate, is_export_snapshot
from ganeti.protocol.node_rpc_values import KeptSnapshot
from ganeti.storage.data import wipe
from ganeti.storage.interface import (
    Assembled,
    BlockDevStatus,
    Dimensions,
    Look,
    Storage,
    StorageEnv,
    StorageUnit,
    Volume,
    contents,
)
from ganeti.storage.network.tools import raw_view_of, run_tool
from ganeti.storage.qcow2 import RawView
from ganeti.system import clock
from ganeti.system.process import CommandResult, describe_end

LOOK_TIMEOUT_S: Final = 30.0
CHANGE_TIMEOUT_S: Final = 120.0
LONG_TIMEOUT_S: Final = 600.0  # objects of a large image; less than the call has that waits for it
WATCHER_TIMEOUT_S: Final = 45.0  # Ceph forgets a client that was killed after 30 s
_WATCHER_POLL_S: Final = 1.0
_PACKAGE: Final = "ceph-common"
_INFO_KEY: Final = "ganeti.info"
_SNAPSHOT: Final = "@"
_KEPT: Final = "kept."  # begins the names of snapshots that people take
_MIB: Final = 1 << 20
_NO_POOL: Final = "error opening pool"
# Words about an image or a snapshot that is not there: the status alone does not tell that from a
# node without its keyring.
_ABSENT: Final = (
    "error opening image",
    "error setting snapshot context",
    "delete error",
    "failed to remove snapshot",
)

# Words of the programs, and what to do about them; the first that is found counts.
_ADVICE: Final[Mapping[str, str]] = {
    _NO_POOL: "there is no pool {pool!r}; see 'ceph osd pool ls'; make it with 'ceph osd"
    " pool create {pool}' and 'rbd pool init {pool}', or name another one with 'gnt-cluster modify"
    " -D rbd:pool=...'",
    "unable to open config file": "this node has no {conf}; copy it from the Ceph cluster, with the"
    " keyring of {user}",
    "couldn't connect to the cluster": "the Ceph cluster does not let {user} in; see 'ceph auth get"
    " {user}' there, and the keyring that {conf} names here",
    "error connecting to the cluster": "the Ceph cluster does not let {user} in; see 'ceph auth get"
    " {user}' there, and the keyring that {conf} names here",
    "rbd kernel module": "this node's kernel has no module rbd; try 'modprobe rbd', or let QEMU"
    " open the disks: 'gnt-cluster modify -D rbd:access=userspace'",
    "feature set mismatch": "the kernel of this node does not know all features of the image; see"
    " 'rbd info', and switch them off with 'rbd feature disable {pool}/IMAGE FEATURE'",
    "Disk quota exceeded": "the quota of pool {pool!r} is used up; see 'ceph df'",
    "No space left": "pool {pool!r} is full; see 'ceph df'",
}


class _Info(msgspec.Struct, frozen=True):
    """What ``rbd info`` tells; ``size`` in bytes."""

    size: int


class _Listed(msgspec.Struct, frozen=True):
    """An image, or a snapshot of it, as ``rbd ls -l`` lists it."""

    image: str
    size: int
    snapshot: str = ""


class _Watcher(msgspec.Struct, frozen=True):
    address: str


class _Status(msgspec.Struct, frozen=True):
    """What ``rbd status`` tells: who has the image open."""

    watchers: list[_Watcher] = []


class _Mapped(msgspec.Struct, frozen=True):
    """An image with a device, as ``rbd showmapped`` lists it; ``snap`` is "-" without snapshot."""

    pool: str
    name: str
    device: str
    snap: str = "-"


class _Snapshot(msgspec.Struct, frozen=True):
    """A snapshot as ``rbd snap ls`` lists it; the time is in words, of this node's zone."""

    name: str
    timestamp: str = ""


class _PoolStats(msgspec.Struct, frozen=True):
    """The space of a pool in bytes, each byte counted once."""

    stored: int
    max_avail: int


class _PoolSpace(msgspec.Struct, frozen=True):
    name: str
    stats: _PoolStats


class _Space(msgspec.Struct, frozen=True):
    pools: list[_PoolSpace]


def parse_info(output: bytes) -> int:
    """Return the size of an image in bytes from the output of ``rbd info``."""
    return msgspec.json.decode(output, type=_Info).size


def parse_images(output: bytes) -> dict[str, int]:
    """Return {image, or image@snapshot: size in bytes} from the output of ``rbd ls -l``."""
    rows = msgspec.json.decode(output, type=list[_Listed])
    return {_SNAPSHOT.join(filter(None, (row.image, row.snapshot))): row.size for row in rows}


def parse_watchers(output: bytes) -> list[str]:
    """Return the addresses that have an image open, from the output of ``rbd status``."""
    return [each.address for each in msgspec.json.decode(output, type=_Status).watchers]


def parse_mapped(output: bytes) -> dict[tuple[str, str], list[str]]:
    """Return {(pool, image or image@snapshot): devices} from the output of ``rbd showmapped``."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in msgspec.json.decode(output, type=list[_Mapped]):
        snapshot = "" if row.snap == "-" else _SNAPSHOT + row.snap
        found.setdefault((row.pool, row.name + snapshot), []).append(row.device)
    return found


def parse_snapshots(output: bytes) -> list[KeptSnapshot]:
    """Return the snapshots that an image keeps, from the output of ``rbd snap ls``."""
    rows = msgspec.json.decode(output, type=list[_Snapshot])
    found = [
        KeptSnapshot(row.name.removeprefix(_KEPT), _seconds(row.timestamp))
        for row in rows
        if row.name.startswith(_KEPT)
    ]
    return sorted(found, key=lambda each: each.ctime)


def _seconds(words: str) -> float:
    """Return a time such as "Mon Nov 23 18:00:00 2026"; 0 if it is none."""
    try:
        return datetime.strptime(words, "%a %b %d %H:%M:%S %Y").timestamp()  # noqa: DTZ007
    except ValueError:
        return 0.0


def parse_space(output: bytes, pool: str) -> tuple[int, int] | None:
    """Return (free, used) bytes of a pool by the output of ``ceph df``; None if it is not there."""
    for row in msgspec.json.decode(output, type=_Space).pools:
        if row.name == pool:
            return row.stats.max_avail, row.stats.stored
    return None


@dataclass(frozen=True, slots=True)
class Pool:
    """A RADOS pool as this node reaches it; ``user`` is a CephX id, "" for the default one."""

    name: str
    user: str
    conf: str

    @classmethod
    def of(cls, params: Mapping[str, object], env: StorageEnv) -> Pool:
        """Return the pool that parameters of disks name."""
        name = str(params.get("pool") or DiskTemplate.RBD)
        return cls(name, str(params.get("user-id") or ""), env.paths.ceph_conf)

    def ask(self, program: str, *words: str, timeout_s: float) -> CommandResult:
        """Run a program of Ceph to its end, however it ends.

        Raises:
            StorageError: this node does not have it.
        """
        user = ["--id", self.user] if self.user else []
        argv = [program, "--conf", self.conf, *user, *words]
        return run_tool(argv, package=_PACKAGE, timeout_s=timeout_s)

    def explained(self, doing: str, result: CommandResult, timeout_s: float) -> BlockDeviceError:
        """Return the error for a program that failed, with its words and the next command."""
        if result.timed_out:
            return BlockDeviceError(
                f"cannot {doing}: the Ceph cluster did not answer within {timeout_s:.0f} s; see"
                f" 'ceph -s' there, and the monitors that {self.conf} names"
            )
        said = _said(result)
        facts = {"pool": self.name, "conf": self.conf, "user": f"client.{self.user or 'admin'}"}
        for words, advice in _ADVICE.items():
            if words in said:
                return BlockDeviceError(f"cannot {doing}: {advice.format_map(facts)} ({said})")
        return BlockDeviceError(f"cannot {doing}: {said}")

    def run(self, doing: str, *words: str, timeout_s: float = CHANGE_TIMEOUT_S) -> bytes:
        """Run ``rbd`` and return its output.

        Raises:
            BlockDeviceError: it failed.
        """
        result = self.ask("rbd", *words, timeout_s=timeout_s)
        if result.status != 0 or result.timed_out or result.truncated:
            raise self.explained(doing, result, timeout_s)
        return result.stdout

    def run_if_there(
        self, doing: str, *words: str, timeout_s: float = CHANGE_TIMEOUT_S
    ) -> bytes | None:
        """Do the same; returns None when the pool has no such image."""
        result = self.ask("rbd", *words, timeout_s=timeout_s)
        if result.status == errno.ENOENT and _is_absent(_said(result)):
            return None
        if result.status != 0 or result.timed_out or result.truncated:
            raise self.explained(doing, result, timeout_s)
        return result.stdout

    def images(self) -> dict[str, int]:
        """Return {image: size in bytes} of all images and snapshots, by one listing."""
        words = ("ls", "--long", "--format", "json", "--pool", self.name)
        doing = f"list the images of pool {self.name}"
        return parse_images(self.run(doing, *words, timeout_s=LOOK_TIMEOUT_S))

    def mapped(self) -> dict[tuple[str, str], list[str]]:
        """Return the devices of all images that are mapped on this node."""
        words = ("showmapped", "--format", "json")
        return parse_mapped(self.run("list mapped images", *words, timeout_s=LOOK_TIMEOUT_S))


_LOG_PREFIX: Final = re.compile(r"\S+T\S+ [0-9a-f]+ -?\d+ ")  # time, thread and level of librbd
_PROGRESS: Final = re.compile(r"[^:\r]*: \d+% complete\.\.\.")


def _said(result: CommandResult) -> str:
    """Return the complaints of a program of Ceph in one line, each once."""
    text = _PROGRESS.sub("", result.stderr.decode("utf-8", "replace"))
    lines = [_LOG_PREFIX.sub("", line).strip() for line in text.splitlines()]
    return "; ".join(dict.fromkeys(filter(None, lines))) or describe_end(result)


def _is_absent(said: str) -> bool:
    return any(words in said for words in _ABSENT)


class RbdVolume(Volume):
    """An image, or a snapshot of one."""

    def _locate(self, logical_id: list[object]) -> None:
        params = self._disk.params or {}
        self.pool = Pool.of(params, self._env)
        self.is_userspace = params.get("access") == DiskAccess.USERSPACE
        self.name = self._named(logical_id)

    def _named(self, logical_id: Sequence[object]) -> str:
        match list(logical_id):
            case [DiskTemplate.RBD, str(name)] if name and "/" not in name:
                return name
        raise self._malformed()

    @property
    def spec(self) -> str:
        """The name of the image with its pool."""
        return f"{self.pool.name}/{self.name}"

    @property
    def uri(self) -> str:
        """The address at which QEMU reaches the image."""
        user = f":id={self.pool.user}" if self.pool.user else ""
        return f"rbd:{self.spec}{user}:conf={self.pool.conf}"

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Make the image; it takes no space until it is written."""
        doing = f"create image {self.spec}"
        if size_mib <= 0 or _SNAPSHOT in self.name:
            raise BlockDeviceError(f"cannot {doing} of {size_mib} MiB")
        self._make(doing, "create", "--size", f"{size_mib}M", self.spec)
        return None

    def _make(self, doing: str, *words: str) -> None:
        """Make the image or snapshot by ``rbd``; nothing is left when that does not end."""
        if self.size_bytes() is not None:  # that one would be removed
            raise BlockDeviceError(f"cannot {doing}: it exists already")
        result = self.pool.ask("rbd", *words, timeout_s=CHANGE_TIMEOUT_S)
        if result.status == 0 and not (result.timed_out or result.truncated):
            return
        error = self.pool.explained(doing, result, CHANGE_TIMEOUT_S)
        if result.timed_out:
            try:
                self.remove()
            except GenericError as err:
                verb = "snap rm" if _SNAPSHOT in self.name else "rm"
                raise BlockDeviceError(
                    f"{error.message}; image {self.spec} may be left, remove it with 'rbd {verb}"
                    f" {self.spec}' ({err.message})"
                ) from err
        raise error

    def remove(self) -> None:
        """Remove the image with its snapshots, or a snapshot; nothing when it is gone already."""
        doing = f"remove image {self.spec}"
        if _SNAPSHOT in self.name:
            self.pool.run_if_there(doing, "snap", "rm", self.spec, timeout_s=LONG_TIMEOUT_S)
            return
        if not self._wait_unwatched(doing):
            return
        words = ("snap", "purge", "--no-progress", self.spec)
        self.pool.run_if_there(doing, *words, timeout_s=LONG_TIMEOUT_S)
        self.pool.run_if_there(doing, "rm", "--no-progress", self.spec, timeout_s=LONG_TIMEOUT_S)

    def _wait_unwatched(self, doing: str) -> bool:
        """Wait until nobody has the image open; returns whether it is there.

        Raises:
            BlockDeviceError: somebody keeps it open.
        """
        deadline = clock.monotonic() + WATCHER_TIMEOUT_S
        while True:
            words = ("status", "--format", "json", self.spec)
            output = self.pool.run_if_there(doing, *words, timeout_s=LOOK_TIMEOUT_S)
            if output is None:
                return False
            watchers = parse_watchers(output)
            if not watchers:
                return True
            if clock.monotonic() > deadline:
                raise BlockDeviceError(
                    f"cannot {doing}: it is open at {', '.join(watchers)}; stop what uses it there"
                    f" ('rbd showmapped' shows devices, 'rbd unmap {self.spec}' removes one), then"
                    " try again"
                )
            clock.pause(_WATCHER_POLL_S)

    def size_bytes(self) -> int | None:
        """Return the size of the image; None when there is none."""
        words = ("info", "--format", "json", self.spec)
        doing = f"look at image {self.spec}"
        output = self.pool.run_if_there(doing, *words, timeout_s=LOOK_TIMEOUT_S)
        return None if output is None else parse_info(output)

    def _existing_size_bytes(self) -> int:
        size = self.size_bytes()
        if size is None:
            raise BlockDeviceError(f"disk {self._disk.uuid}: image {self.spec} does not exist")
        return size

    def devices(self) -> list[str]:
        """Return the devices that the image is mapped to on this node."""
        return self.pool.mapped().get((self.pool.name, self.name), [])

    def status(self, devices: Sequence[str]) -> BlockDevStatus:
        """Return the state of the image, which exists."""
        if self.is_userspace:
            return BlockDevStatus(self.uri)
        if not devices:
            return BlockDevStatus("")
        with failing_as(BlockDeviceError, f"cannot look at {devices[0]}"):
            number = os.stat(devices[0]).st_rdev
        return BlockDevStatus(devices[0], os.major(number), os.minor(number))

    def find(self) -> BlockDevStatus | None:
        """Look at the image; None when there is none."""
        if self.size_bytes() is None:
            return None
        return self.status([] if self.is_userspace else self.devices())

    def dimensions(self) -> Dimensions | None:
        """Return the size of the image; None when there is none."""
        size = self.size_bytes()
        return None if size is None else Dimensions(size)

    def assemble(self) -> Assembled:
        """Check that the image is there; for kernel access map it, unless it is."""
        self._existing_size_bytes()
        if self.is_userspace:
            return Assembled("", self.uri)
        mapped = self.devices()  # also by a node daemon that was killed before it could say so
        if mapped:
            return Assembled(mapped[0])
        read_only = ["--read-only"] if _SNAPSHOT in self.name else []
        output = self.pool.run(f"map image {self.spec}", "map", *read_only, self.spec)
        return Assembled(output.decode("utf-8", "replace").strip())

    def shutdown(self) -> None:
        """Take the devices of the image away."""
        for device in () if self.is_userspace else self.devices():
            self.pool.run(f"unmap {device} of image {self.spec}", "unmap", device)

    def set_info(self, text: str) -> None:
        """Note the purpose of the image on it."""
        words = ("image-meta", "set", self.spec, _INFO_KEY, text)
        self.pool.run(f"note the purpose of image {self.spec}", *words)

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Add to the size of the image; the new part takes no space until it is written."""
        doing = f"grow image {self.spec} by {amount_mib} MiB"
        size_mib = self._existing_size_bytes() // _MIB + amount_mib
        if amount_mib <= 0 or _SNAPSHOT in self.name:
            raise BlockDeviceError(f"cannot {doing}")
        if not dryrun and backingstore:
            self.pool.run(doing, "resize", "--no-progress", "--size", f"{size_mib}M", self.spec)

    def rename(self, new_logical_id: Sequence[object]) -> None:
        """Give the image another name in its pool."""
        new_name = self._named(new_logical_id)
        if new_name == self.name:
            return
        new_spec = f"{self.pool.name}/{new_name}"
        self.pool.run(f"rename image {self.spec} to {new_spec}", "rename", self.spec, new_spec)
        self.name = new_name

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        """Take a snapshot of that name, which is a disk that nobody can write to.

        One for an export takes the place of the one that an export has left.
        """
        doing, snapshot = (
            f"take snapshot {name} of image {self.spec}",
            f"{self.name}{_SNAPSHOT}{name}",
        )
        if not name or "/" in name or _SNAPSHOT in snapshot.replace(_SNAPSHOT, "", 1):
            raise BlockDeviceError(f"cannot {doing}")
        taken = copy.copy(self)
        taken.name = snapshot
        if is_export_snapshot(name):  # one that is left
            taken.shutdown()  # it was mapped when it was read
            taken.remove()
        taken._make(doing, "snap", "create", taken.spec)
        return [str(DiskTemplate.RBD), snapshot]

    def snapshots(self) -> list[KeptSnapshot]:
        """Return the snapshots that the image keeps, the oldest first."""
        words = ("snap", "ls", "--format", "json", self.spec)
        doing = f"list the snapshots of image {self.spec}"
        output = self.pool.run_if_there(doing, *words, timeout_s=LOOK_TIMEOUT_S)
        return [] if output is None else parse_snapshots(output)

    def as_kept(self, name: str) -> RbdVolume:
        """Return the disk that a snapshot is."""
        found = copy.copy(self)
        found.name = f"{self.name}{_SNAPSHOT}{_KEPT}{name}"
        return found

    def keep(self, name: str) -> None:
        """Take a snapshot; it takes space only for what is changed afterwards."""
        self.snapshot(_KEPT + name, 0)

    def restore(self, name: str) -> None:
        """Give the image the contents of a snapshot; it keeps its size, with zeroes at its end."""
        kept, doing = self.as_kept(name), f"restore snapshot {name!r} of image {self.spec}"
        size_mib = self._existing_size_bytes() // _MIB
        self._wait_unwatched(doing)
        words = ("snap", "rollback", "--no-progress", kept.spec)
        self.pool.run(doing, *words, timeout_s=LONG_TIMEOUT_S)
        if (lost_mib := size_mib - self._existing_size_bytes() // _MIB) > 0:
            self.grow(lost_mib)

    def forget(self, name: str) -> None:
        """Remove a snapshot; does nothing when there is none of that name."""
        kept = self.as_kept(name)
        kept.shutdown()  # it was mapped when it was exported
        kept.remove()

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the image; parts that were never written are zeroes."""
        size = self._existing_size_bytes() // _MIB
        if offset_mib < 0 or size_mib < 0 or offset_mib + size_mib > size:
            raise BlockDeviceError(
                f"image {self.spec} has {size} MiB: cannot wipe {size_mib} MiB from {offset_mib}"
            )
        offset, count = offset_mib * _MIB, size_mib * _MIB
        with failing_as(BlockDeviceError, f"cannot wipe image {self.spec}"), contents(self) as path:
            wipe(path, offset, count)

    @property
    def raw_view(self) -> RawView | None:
        """How the bytes of an image are shown that only QEMU opens."""
        if not self.is_userspace:
            return None
        is_read = _SNAPSHOT in self.name  # nobody can write to a snapshot
        return raw_view_of(self.uri, self._disk, self._env, read_only=is_read)


class RbdStorage(Storage):
    """Images of RADOS pools; their storage units are pools."""

    volume = RbdVolume

    def look(self, volumes: Sequence[Volume]) -> list[Look]:
        """Look at many images by one listing of each pool; one alone is asked for by itself."""
        by_pool: dict[Pool, list[RbdVolume]] = {}
        for volume in volumes:
            assert isinstance(volume, RbdVolume)
            by_pool.setdefault(volume.pool, []).append(volume)
        found: dict[int, Look] = {}
        for pool, members in by_pool.items():
            found |= zip(map(id, members), _look_in(pool, members), strict=True)
        return [found[id(volume)] for volume in volumes]

    def dimensions(self, volumes: Sequence[Volume]) -> list[Dimensions | None]:
        """Return the sizes of many images, by one listing of each pool."""
        if len(volumes) < _FEW:
            return super().dimensions(volumes)
        sizes: dict[Pool, dict[str, int]] = {}
        found: list[Dimensions | None] = []
        for volume in volumes:
            assert isinstance(volume, RbdVolume)
            images = sizes.setdefault(volume.pool, {}) or volume.pool.images()
            sizes[volume.pool] = images
            size = images.get(volume.name)
            found.append(None if size is None else Dimensions(size))
        return found

    def space(self, name: str) -> StorageUnit:
        """Return the space of a pool; each byte counts once, however many copies there are."""
        pool = Pool.of({**self.params, "pool": name}, self.env)
        doing = f"look at the space of pool {name}"
        result = pool.ask("ceph", "df", "--format", "json", timeout_s=LOOK_TIMEOUT_S)
        if result.status != 0 or result.timed_out:
            raise pool.explained(doing, result, LOOK_TIMEOUT_S)
        found = parse_space(result.stdout, name)
        if found is None:
            raise StorageError(f"cannot {doing}: " + _ADVICE[_NO_POOL].format(pool=name))
        free, used = (count // _MIB for count in found)
        return StorageUnit(self.kind, name, free, free + used, used)

    def units(self, names: Sequence[str]) -> list[StorageUnit]:
        """Return pools with their space; one that cannot be looked at has that as its status."""
        return list(map(self._unit, names))

    def _unit(self, name: str) -> StorageUnit:
        try:
            return self.space(name)
        except GenericError as err:
            return StorageUnit(self.kind, name, is_allocatable=False, status=err.message)


_FEW: Final = 2  # from here on a listing is cheaper than single questions


def _look_in(pool: Pool, volumes: Sequence[RbdVolume]) -> list[Look]:
    try:
        if len(volumes) < _FEW:
            return [volume.find() for volume in volumes]
        images = pool.images()
        by_kernel = any(not volume.is_userspace for volume in volumes)
        mapped = pool.mapped() if by_kernel else {}
        return [
            volume.status(mapped.get((pool.name, volume.name), []))
            if volume.name in images
            else None
            for volume in volumes
        ]
    except GenericError as err:
        return [err] * len(volumes)
