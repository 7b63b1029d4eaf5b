"""Disks of template ``plain``: logical volumes of this node.

The device of a volume is ``/dev/GROUP/VOLUME``.  A tag of LVM on it tells its instance; by that tag
the disks of an instance are put close together.  Looks at any number of disks run ``lvs`` once.

Source: config.json, "disk_logical_id"; design of 2.0, "Better LVM allocation"; lvmthin(7).
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar, cast

from ganeti.base.errors import BlockDeviceError, GenericError, LockError, StorageError, failing_as
from ganeti.objects.disk_templates import (
    KEPT,
    STRIPE_SIZE,
    LocalDiskStatus,
    is_export_snapshot,
    thin_pool_of,
)
from ganeti.protocol.node_rpc_values import KeptSnapshot
from ganeti.storage import lvm_placement, lvm_reports
from ganeti.storage.data import wipe
from ganeti.storage.holders import holders
from ganeti.storage.interface import Assembled, BlockDevStatus, Dimensions, Look, Storage, Volume
from ganeti.storage.lvm_reports import (
    MIB,
    LogicalVolume,
    PhysicalVolume,
    VolumeGroup,
    group_of,
    run,
    said,
)
from ganeti.system import clock
from ganeti.system.filelock import FileLock
from ganeti.system.files import closing, ensure_directory

SIZE_MIB_MAX: Final = (1 << 63) // MIB - 1
OWNER_TAG: Final = "originstname+"  # the beginning of the tag that names the instance
TAG_LENGTH_MAX: Final = 1024
_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_+.][A-Za-z0-9_+.-]*")  # lvm(8), VALID NAMES
_NOT_IN_TAGS: Final = re.compile(r"[^A-Za-z0-9_+.\-/=!:&#]")
_ALLOCATION_TIMEOUT_S: Final = 300.0  # another allocation on this node may take so long
_KEPT_TAG: Final = "ganeti-kept+"  # the beginning of the tag that has the time of a snapshot
_SECONDS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
SNAPSHOT_MIB_MIN: Final = 64  # less is full in a moment

T = TypeVar("T")


def tag_of(text: str) -> str:
    """Return a text as LVM takes it for a tag."""
    return _NOT_IN_TAGS.sub("_", text)[:TAG_LENGTH_MAX]


def change(doing: str, *argv: str) -> None:
    """Run a program of LVM that changes something.

    Raises:
        BlockDeviceError: it failed; says so with its complaint.
    """
    result = run(argv)
    if result.status != 0 or result.timed_out:
        raise BlockDeviceError(f"cannot {doing}: {said(result)}")


def flush(physical: Iterable[str]) -> None:
    """Make the changes of a volume group last through a power cut: LVM itself does not do so."""
    for path in physical:
        with suppress(FileNotFoundError), closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as it:
            os.fsync(it)


def flush_group(group: str) -> None:
    """Do so for all physical volumes of a group.

    Raises:
        StorageError: LVM does not answer.
        OSError: the disk refuses.
    """
    flush(each.name for each in lvm_reports.physical_volumes(group))


@contextmanager
def _failing(text: str) -> Iterator[None]:
    """Turn other failures into an error of the disk, as `failing_as`."""
    try:
        with failing_as(BlockDeviceError, text):
            yield
    except (StorageError, LockError) as err:
        raise BlockDeviceError(f"{text}: {err.message}") from err


class PlainVolume(Volume):
    """A logical volume."""

    def _locate(self, logical_id: list[object]) -> None:
        self._group, self._name = self._parts(logical_id)

    def _parts(self, logical_id: Sequence[object]) -> tuple[str, str]:
        match list(logical_id):
            case [str(group), str(name)] if _NAME.fullmatch(group) and _NAME.fullmatch(name):
                return group, name
        raise self._malformed()

    @property
    def path(self) -> str:
        """Group and volume, as the programs of LVM take them."""
        return f"{self._group}/{self._name}"

    @property
    def _what(self) -> str:
        return f"logical volume {self.path}"

    @property
    def device(self) -> str:
        """Path of its device while it is active."""
        return self._env.paths.localize(f"/dev/{self.path}")

    def _existing(self) -> LogicalVolume:
        """Return the volume.

        Raises:
            BlockDeviceError: it is gone, or its whole group.
        """
        found = cast("LogicalVolume | None", _single(self, lambda _volume, found: found))
        if found is not None:
            return found
        with _failing(f"disk {self._disk.uuid}"):
            group_of(self._group)
        raise BlockDeviceError(
            f"disk {self._disk.uuid}: there is no {self._what}; see 'lvs {self._group}' there, and"
            " 'gnt-instance recreate-disks' for a lost disk"
        )

    def _change(self, doing: str, *argv: str) -> None:
        """Run a program that changes the volume, and keep the change."""
        change(f"{doing} {self._what}", *argv)
        with _failing(f"cannot {doing} {self._what}"):
            flush_group(self._group)

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Make the volume, near the other disks of its instance.

        It has whole extents, so it may be a little larger; its contents are those of its place.
        """
        _check_size(self._what, size_mib)
        with _failing(f"cannot create {self._what}"), self._allocation():
            volumes, group = lvm_reports.logical_volumes(), group_of(self._group)
            _check_free(volumes, self.path)
            if pool := thin_pool_of(self._disk.params):
                self._make_thin(pool, size_mib)
                return None
            physical = lvm_reports.physical_volumes(group.name)
            place = self._place(
                group, physical, volumes, size_mib * MIB, exclusively=exclusive_storage
            )
            options = [f"--size={size_mib}m", "--wipesignatures=y"]
            if place.stripes > 1:
                options.append(f"--stripes={place.stripes}")
                if stripe_kib := (self._disk.params or {}).get(STRIPE_SIZE):
                    options.append(f"--stripesize={stripe_kib}k")
            _make(self.path, *options, self._group, *place.physical)
            flush(each.name for each in physical)
        return None

    def _make_thin(self, pool: str, size_mib: int) -> None:
        """Make a volume that takes its space from a pool of the group when it is written."""
        found = lvm_reports.existing_pool(f"{self._group}/{pool}")
        if found.pool_problem:
            raise StorageError(f"thin pool {found.path} {found.pool_problem}")
        _make(self.path, "--type=thin", f"--virtualsize={size_mib}m", f"--thinpool={found.path}")
        flush_group(self._group)

    def _place(
        self,
        group: VolumeGroup,
        physical: Sequence[PhysicalVolume],
        volumes: Sequence[LogicalVolume],
        size_bytes: int,
        *,
        exclusively: bool,
    ) -> lvm_placement.Place:
        stripes = (self._disk.params or {}).get("stripes", 1)
        assert isinstance(stripes, int)
        if exclusively:
            spindles = getattr(self._disk, "spindles", None)
            return lvm_placement.place_exclusively(
                group, physical, size_bytes, stripes=stripes, spindles=spindles
            )
        tag = tag_of(OWNER_TAG + self.owner)
        own = (each for each in volumes if tag in each.tags) if self.owner else ()
        near = {name for each in own for name in each.physical}
        return lvm_placement.place(group, physical, size_bytes, stripes=stripes, near=near)

    @contextmanager
    def _allocation(self) -> Iterator[None]:
        """Choose physical volumes and use them without another choice on this node between."""
        ensure_directory(self._env.paths.lock_dir)
        lock = FileLock(os.path.join(self._env.paths.lock_dir, "ganeti-lvm-allocation.lock"))
        lock.acquire(timeout_s=_ALLOCATION_TIMEOUT_S)
        with lock:
            yield

    def remove(self) -> None:
        """Remove the volume; does nothing when it is gone already.

        Raises:
            BlockDeviceError: something holds it, or there are snapshots of it; names them.
        """
        with _failing(f"cannot remove {self._what}"):
            volumes = lvm_reports.logical_volumes()
            own = [
                *self._restored_among(volumes),  # first: known by the snapshot that it is a copy of
                *self._kept_among(volumes),
                *self._left_among(volumes),
            ]
            found = _at(volumes, self.path)
            if found is not None:
                _check_no_snapshots(found, [each for each in volumes if each not in own])
                if found.is_open:
                    _check_not_held(found)
            for each in (*own, *([] if found is None else [found])):
                self._change("remove", "lvremove", "--force", each.path)

    def find(self) -> BlockDevStatus | None:
        """Look at the volume; None when there is none."""
        return cast("BlockDevStatus | None", _single(self, PlainVolume.status))

    def status(self, found: LogicalVolume) -> BlockDevStatus:
        """Return the state of the volume, which is faulty without all of its physical volumes."""
        is_faulty = found.is_partial or found.is_virtual
        return BlockDevStatus(
            self.device,
            major=found.major if found.major >= 0 else None,
            minor=found.minor if found.minor >= 0 else None,
            is_degraded=is_faulty,
            ldisk_status=LocalDiskStatus.FAULTY if is_faulty else LocalDiskStatus.OKAY,
        )

    def assemble(self) -> Assembled:
        """Activate the volume, which may be active already."""
        # With --yes: it asks before it activates a snapshot with its origin.
        argv = ["lvchange", "--yes", "--activate=y", "--ignoreactivationskip", self.path]
        result = run(argv)
        if result.status != 0:
            found = self._existing()
            hint = "; a physical volume of it is missing, see 'pvs'" if found.is_partial else ""
            raise BlockDeviceError(f"cannot activate {self._what}: {said(result)}{hint}")
        return Assembled(self.device)

    def dimensions(self) -> Dimensions | None:
        """Return the real size, and the number of physical volumes; None without the volume."""
        return cast("Dimensions | None", _single(self, _dimensions))

    def set_info(self, text: str) -> None:
        """Tag the volume, in the place of an earlier tag of that kind; no text is no tag."""
        tag = tag_of(text)
        if not tag:
            return
        kind = tag.partition("+")[0] + "+"
        tags = self._existing().tags
        changes = [f"--deltag={old}" for old in tags if old.startswith(kind) and old != tag]
        changes += [] if tag in tags else [f"--addtag={tag}"]
        if changes:
            self._change("tag", "lvchange", *changes, self.path)

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Make the volume larger, on its own physical volumes if they have room."""
        _check_size(self._what, amount_mib)
        if not backingstore:
            return
        argv = ["lvextend", *(["--test"] if dryrun else []), f"--size=+{amount_mib}m", self.path]
        with _failing(f"cannot grow {self._what}"), self._allocation():
            found = self._existing()
            if not found.pool:  # a thin volume takes its space when it is written
                self._check_can_grow()
                argv += self._growing_on(found, amount_mib * MIB)
            result = run(argv)
            if result.status != 0 and found.stripes > 1 and not result.timed_out:
                # Not so many physical volumes have room: the new part has one stripe.
                result = run([*argv, "--stripes=1"])
            if result.status != 0:
                raise StorageError(said(result))
            if not dryrun:
                flush_group(self._group)

    def _check_can_grow(self) -> None:
        """Refuse a volume with snapshots, which LVM does not enlarge while it is active."""
        volumes = lvm_reports.logical_volumes()
        if left := self._left_among(volumes):
            raise StorageError(
                f"an export that was killed has left the snapshot {left[0].path} of it, with which"
                f" LVM does not enlarge it; remove it first with 'lvremove {left[0].path}'"
            )
        kept = [name for name, _time in self.snapshots_among(volumes)]
        if kept:
            raise StorageError(
                f"it has the snapshot(s) {', '.join(kept)}, so LVM does not enlarge it; remove them"
                " first with 'gnt-instance snapshot remove', or keep such disks in a thin pool"
            )

    def _growing_on(self, found: LogicalVolume, amount_bytes: int) -> Sequence[str]:
        return lvm_placement.place_growth(
            group_of(self._group),
            lvm_reports.physical_volumes(self._group),
            amount_bytes,
            found.physical,
            exclusively=self.exclusive_storage,
        )

    def rename(self, new_logical_id: Sequence[object]) -> None:
        """Give the volume another name in its group."""
        group, name = self._parts(new_logical_id)
        if group != self._group:
            raise BlockDeviceError(f"{self._what} cannot be moved to volume group {group!r}")
        if name != self._name:
            self._change("rename", "lvrename", group, self._name, name)
            self._name = name

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the volume."""
        size_bytes = self._existing().size_bytes
        offset, count = offset_mib * MIB, size_mib * MIB
        if offset < 0 or count < 0 or offset + count > size_bytes:
            raise BlockDeviceError(
                f"{self._what} has {size_bytes // MIB} MiB: cannot wipe {size_mib} MiB from"
                f" {offset_mib}"
            )
        with failing_as(BlockDeviceError, f"cannot wipe {self.device}"):
            wipe(self.device, offset, count)

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        """Take a snapshot, with room for as many changes as there is, up to the whole size.

        One for an export takes the place of those that exports have left.
        """
        logical_id: list[object] = [self._group, name]
        self._parts(logical_id)
        path = f"{self._group}/{name}"
        with _failing(f"cannot take a snapshot of {self._what}"), self._allocation():
            found = self._existing()
            if is_export_snapshot(name):
                self._remove_left()
            _check_free(lvm_reports.logical_volumes(), path)
            if found.pool:
                _make(path, "--setactivationskip=n", "--snapshot", self.path)
            else:
                room_mib = _room_for_snapshot(group_of(self._group), size_mib)
                _make(path, f"--size={room_mib}m", "--snapshot", self.path)
            flush_group(self._group)
        return logical_id

    def _left_among(self, volumes: Iterable[LogicalVolume]) -> list[LogicalVolume]:
        """Return the snapshots of the volume that were taken for exports."""
        place = (self._group, self._name)
        return [v for v in volumes if (v.group, v.origin) == place and is_export_snapshot(v.name)]

    def _remove_left(self) -> None:
        for each in self._left_among(lvm_reports.logical_volumes()):
            if each.is_open:
                _check_not_held(each)
            self._change("remove a snapshot of", "lvremove", "--force", each.path)

    # Snapshots that the volume keeps: volumes beside it, tagged with their time.

    def _kept_path(self, name: str) -> str:
        return f"{self.path}{KEPT}{name}"

    def _kept_among(self, volumes: Sequence[LogicalVolume]) -> list[LogicalVolume]:
        return [each for each in volumes if each.path.startswith(self._kept_path(""))]

    def snapshots_among(self, volumes: Sequence[LogicalVolume]) -> list[KeptSnapshot]:
        """Return the snapshots that the volume keeps, the oldest first."""
        prefix = len(self._kept_path(""))
        found = [
            KeptSnapshot(each.path[prefix:], _time_of(each)) for each in self._kept_among(volumes)
        ]
        return sorted(found, key=lambda each: each.ctime)

    def snapshots(self) -> list[KeptSnapshot]:
        """Do so by one run of lvs."""
        with _failing(f"cannot look for snapshots of {self._what}"):
            return self.snapshots_among(lvm_reports.logical_volumes())

    def as_kept(self, name: str) -> PlainVolume:
        """Return the volume that a snapshot is."""
        found = copy.copy(self)
        found._name = f"{self._name}{KEPT}{name}"  # noqa: SLF001 - a copy of this one
        return found

    def keep(self, name: str) -> None:
        """Take a snapshot, with room for changes of the whole volume, or in its thin pool."""
        path = self._kept_path(name)
        with _failing(f"cannot keep snapshot {name!r} of {self._what}"), self._allocation():
            volumes = lvm_reports.logical_volumes()
            _check_free(volumes, path)
            self._take(path, _there(volumes, self.path), [f"{_KEPT_TAG}{clock.now():.3f}"])

    def _take(self, path: str, origin: LogicalVolume, tags: Iterable[str]) -> None:
        options = [f"--addtag={tag}" for tag in tags]
        if origin.pool:
            pool = lvm_reports.existing_pool(f"{self._group}/{origin.pool}")
            if pool.pool_problem:
                raise StorageError(f"thin pool {pool.path} {pool.pool_problem}")
        else:
            group, size_mib = group_of(self._group), origin.size_bytes // MIB
            if group.free_mib < size_mib:
                raise StorageError(
                    f"volume group {group.name!r} has {group.free_mib} MiB left; a snapshot that is"
                    f" kept may take as much as its disk, {size_mib} MiB (those of disks in a thin"
                    " pool take what was changed)"
                )
            options.append("--extents=100%ORIGIN")
        _make(path, *options, "--snapshot", self.path)
        flush_group(self._group)

    def restore(self, name: str) -> None:
        """Give the volume the contents of a snapshot; it keeps its size."""
        path = self._kept_path(name)
        with _failing(f"cannot restore snapshot {name!r} of {self._what}"), self._allocation():
            volumes = lvm_reports.logical_volumes()
            before, snapshot = _at(volumes, self.path), _there(volumes, path)
            if before is not None and before.is_open:
                _check_not_held(before)
            if snapshot.pool:
                self._replace(before, snapshot, volumes)
            else:
                self._merge(_there(volumes, self.path), snapshot)

    def _merge(self, before: LogicalVolume, snapshot: LogicalVolume) -> None:
        """Merge a snapshot into the volume, then take it again.

        LVM uses a snapshot up by that: if this process is ended between the two, the contents are
        restored and the snapshot is gone.
        """
        self.assemble()  # LVM merges at once into a volume that is active
        self._change("merge", "lvconvert", "--merge", "--yes", snapshot.path)
        self._take(snapshot.path, before, snapshot.tags)

    def _replace(
        self,
        before: LogicalVolume | None,
        snapshot: LogicalVolume,
        volumes: Sequence[LogicalVolume],
    ) -> None:
        """Put a copy of a thin snapshot, which shares its blocks, in the place of the volume.

        (LVM's own merge would use the snapshot up, and make the others unfit for another one.)  If
        this process is ended before the copy has its name, the next attempt gives it, then replaces
        a copy of another snapshot.
        """
        new, left = self._restored_path, _at(volumes, self._restored_path)
        if before is None:
            if left is None:
                raise StorageError(f"there is no {self._what}")
            self._name_restored()
            if left.origin == snapshot.name:
                self.assemble()
                return
            before, left = left, None
        if left is not None:
            self._change("restore", "lvremove", "--force", new)
        tags = [f"--addtag={tag}" for tag in before.tags]
        _make(new, *tags, "--setactivationskip=n", "--snapshot", snapshot.path)
        if (lost := before.size_bytes - snapshot.size_bytes) > 0:
            self._change("enlarge", "lvextend", f"--size=+{lost}b", new)
        self._change("replace", "lvremove", "--force", self.path)
        self._name_restored()
        self.assemble()

    @property
    def _restored_path(self) -> str:
        return f"{self.path}.restored"

    def _name_restored(self) -> None:
        new = self._restored_path.partition("/")[2]
        self._change("restore", "lvrename", self._group, new, self._name)

    def _restored_among(self, volumes: Iterable[LogicalVolume]) -> list[LogicalVolume]:
        """Return the copy of a snapshot that a restore has left which was ended midway."""
        kept = self._kept_path("").partition("/")[2]
        return [v for v in volumes if v.path == self._restored_path and v.origin.startswith(kept)]

    def forget(self, name: str) -> None:
        """Remove a snapshot; does nothing when there is none of that name."""
        path = self._kept_path(name)
        with _failing(f"cannot remove snapshot {name!r} of {self._what}"):
            found = _at(lvm_reports.logical_volumes(), path)
            if found is None:
                return
            if found.is_open:
                _check_not_held(found)
            self._change("remove a snapshot of", "lvremove", "--force", path)


def _at(volumes: Iterable[LogicalVolume], path: str) -> LogicalVolume | None:
    return next((each for each in volumes if each.path == path), None)


def _there(volumes: Iterable[LogicalVolume], path: str) -> LogicalVolume:
    found = _at(volumes, path)
    if found is None:
        raise StorageError(f"there is no logical volume {path}")
    return found


def _time_of(kept: LogicalVolume) -> float:
    """Return the time of a snapshot from its tag; 0 for one that somebody else made."""
    times = [tag.removeprefix(_KEPT_TAG) for tag in kept.tags if tag.startswith(_KEPT_TAG)]
    return float(times[0]) if times and _SECONDS.fullmatch(times[0]) else 0.0


def _check_size(what: str, size_mib: int) -> None:
    if not 0 < size_mib <= SIZE_MIB_MAX:
        raise BlockDeviceError(f"{what}: {size_mib} MiB is no size for it")


def _check_free(volumes: Sequence[LogicalVolume], path: str) -> None:
    if any(each.path == path for each in volumes):
        raise BlockDeviceError(f"logical volume {path} exists already")


def _check_not_held(found: LogicalVolume) -> None:
    held_by = ", ".join(holders(found.major, found.minor))
    if held_by:
        raise StorageError(f"it is in use by {held_by}; end that, then try again")


def _check_no_snapshots(found: LogicalVolume, volumes: Sequence[LogicalVolume]) -> None:
    """Refuse to take copies away that somebody made of a volume; thin ones do not need it."""
    copies = [
        each.path
        for each in volumes
        if (each.group, each.origin, each.pool) == (found.group, found.name, "")
    ]
    if copies:
        raise StorageError(
            f"it has the snapshot(s) {', '.join(copies)}, which would be lost; if they are not"
            f" needed: 'lvremove {copies[0]}'"
        )


def _room_for_snapshot(group: VolumeGroup, size_mib: int) -> int:
    room_mib = min(size_mib, group.free_mib)
    if room_mib < min(size_mib, SNAPSHOT_MIB_MIN):
        raise StorageError(
            f"volume group {group.name!r} has {group.free_mib} MiB left; a snapshot needs at least"
            f" {SNAPSHOT_MIB_MIN} MiB for the changes made meanwhile"
        )
    return room_mib


def _make(path: str, *options: str) -> None:
    """Run lvcreate for a volume of that path, whose name is free.

    Nothing is left when it does not end, or when this process is ended meanwhile.
    """
    name = path.partition("/")[2]
    argv = ["lvcreate", "--yes", f"--name={name}", *options]
    is_decided = False
    try:
        result = run(argv)
        is_decided = not result.timed_out
    finally:
        if not is_decided:
            run(["lvremove", "--force", path])
    if result.status != 0:
        raise StorageError(said(result))


def _dimensions(_volume: PlainVolume, found: LogicalVolume) -> Dimensions:
    return Dimensions(found.size_bytes, len(found.physical) or None)


def _read(
    volumes: Sequence[PlainVolume], make: Callable[[PlainVolume, LogicalVolume], T]
) -> list[T | GenericError | None]:
    """Make a value of each volume from one run of lvs; None for one that does not exist."""
    try:
        report = lvm_reports.logical_report()
        found = {each.path: each for each in lvm_reports.parse_logical(report.output)}
    except GenericError as err:
        return [BlockDeviceError(f"cannot look at logical volumes: {err.message}")] * len(volumes)
    # When lvs complains, a volume that it leaves out may exist all the same.
    absent = BlockDeviceError(report.problem) if report.problem else None
    return [
        make(volume, found[volume.path]) if volume.path in found else absent for volume in volumes
    ]


def _single(volume: PlainVolume, make: Callable[[PlainVolume, LogicalVolume], T]) -> T | None:
    """Make a value of one volume, as `_read`; raises its error."""
    [found] = _read([volume], make)
    if isinstance(found, GenericError):
        raise found
    return found


class PlainStorage(Storage):
    """Logical volumes; all are looked at together."""

    volume = PlainVolume

    def look(self, volumes: Sequence[Volume]) -> list[Look]:
        """Look at many volumes by one run of lvs."""
        return _read(cast("Sequence[PlainVolume]", volumes), PlainVolume.status)

    def snapshots(self, volumes: Sequence[Volume]) -> list[list[KeptSnapshot]]:
        """Return the snapshots of many volumes by one run of lvs."""
        found = lvm_reports.logical_volumes()
        return [volume.snapshots_among(found) for volume in cast("Sequence[PlainVolume]", volumes)]

    def dimensions(self, volumes: Sequence[Volume]) -> list[Dimensions | None]:
        """Return the real sizes of many volumes by one run of lvs."""
        sizes: list[Dimensions | None] = []
        for found in _read(cast("Sequence[PlainVolume]", volumes), _dimensions):
            if isinstance(found, GenericError):
                raise found
            sizes.append(found)
        return sizes
