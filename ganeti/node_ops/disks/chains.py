"""Chains of exports on this node: a whole one, and what changed from point to point.

    NAME/config.ini, DISK.dump                           the first point: a whole export
    NAME/increments/0001/config.ini, DISK.diff           what changed until the next one
    NAME/increments/0002/config.ini, DISK.diff, DISK.sums

Only the newest point has checksums of the blocks.  A disk that the point before does not have is
dumped whole.  A point appears, and the chain is replaced, by one rename of a directory whose files
are on the disk.  Where the file system cannot swap two names the old chain is moved aside for a
moment, to `.NAME+old`; if the work is cut off then, the next look at the exports moves it back.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.protocol import export_description
from ganeti.protocol.export_description import (
    INCREMENTS,
    PARTIAL_SUFFIX,
    SUMS_SUFFIX,
    ExportDescription,
    difference_name,
    disk_of_dump,
    dump_name,
    is_difference,
    point_directory,
)
from ganeti.storage.chains.layers import restored
from ganeti.store import swap_file
from ganeti.system import files

logger = logging.getLogger(__name__)

# Of the files beside a dump, until the export is complete:
CHECKSUM_SUFFIX: Final = ".sha256"
ROOT_SUFFIX: Final = ".root"
_CONFIG_BYTES_MAX: Final = 1 << 20
_CONFIG_MODE: Final = 0o600  # it holds private parameters
_DIRECTORY_MODE: Final = 0o750
_SECTOR_BYTES: Final = 512  # of st_blocks
_ASIDE_SUFFIX: Final = "+old"
_ATTEMPTS: Final = 3  # somebody who looks at the exports may move the old one back meanwhile


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a chain; an export of which there is no chain is a single one."""

    directory: str
    description: ExportDescription

    @property
    def number(self) -> int:
        """Its number, which it keeps when older ones are removed."""
        return self.description.number


def points_of(directory: str) -> list[Point]:
    """Return the points of an export, in order; none if it is no export or is damaged.

    Points that follow a gap belong to nothing, and are left out.
    """
    first = _point(directory)
    if first is None:
        return []
    found = [first]
    while True:
        number = found[-1].number + 1
        point = _point(point_directory(directory, number, first.number))
        if point is None or point.number != number:
            return found
        found.append(point)


def _point(directory: str) -> Point | None:
    path = os.path.join(directory, export_description.CONFIG_NAME)
    data = files.read_bytes_or_none(path, _CONFIG_BYTES_MAX)
    if data is None:
        return None
    try:
        text = data.decode("utf-8", "replace")
        return Point(directory, export_description.parse_description(text))
    except ProtocolError:
        return None


def room_of(directory: str) -> int:
    """Return how many bytes the files of a point take on the disk, those of later points not."""
    with os.scandir(directory) as entries:
        return sum(each.stat().st_blocks * _SECTOR_BYTES for each in entries if each.is_file())


def layers_of(points: Sequence[Point], number: int, dump: str) -> tuple[list[str], str]:
    """Return the files that a disk at a point is put together from, the oldest first, and its root.

    Raises:
        GenericError: there is no such point or file, or one that it needs is missing.
    """
    until = [point for point in points if point.number <= number]
    if not until or until[-1].number != number:
        known = ", ".join(str(point.number) for point in points) or "none"
        raise GenericError(f"the export has no point {number}; it has {known}")
    roots = [disk.root for disk in until[-1].description.disks if disk.dump == dump]
    if not roots:
        raise GenericError(f"point {number} of the export has no file {dump}")
    disk = disk_of_dump(dump)
    paths: list[str] = []
    for point in reversed(until):
        known_dumps = {each.dump for each in point.description.disks}
        name = next((n(disk) for n in (dump_name, difference_name) if n(disk) in known_dumps), "")
        path = os.path.join(point.directory, name)
        if not name or not os.path.isfile(path):
            break
        paths.append(path)
        if not is_difference(name):
            return paths[::-1], roots[0]
    raise GenericError(
        f"point {number} of the export cannot be restored: what it builds on is missing in"
        f" point {number - len(paths)}"
    )


def append(final: str, partial: str, number: int) -> None:
    """Make a directory the next point of a chain.

    Raises:
        GenericError: the chain is not the one that it was made for.
    """
    recover(final)
    points = points_of(final)
    if not points or points[-1].number != number - 1:
        name = os.path.basename(final)
        raise GenericError(f"export {name!r} does not end with point {number - 1} any more")
    parent = os.path.join(final, INCREMENTS)
    files.ensure_directory(parent, _DIRECTORY_MODE)
    files.fsync_directory(final)
    files.fsync_directory(partial)
    target = point_directory(final, number, points[0].number)
    if os.path.isdir(target):  # follows a gap, or is damaged: it is no point
        shutil.rmtree(target)
    os.rename(partial, target)
    files.fsync_directory(parent)
    files.fsync_directory(os.path.dirname(final))
    for point in points:
        remove_sums(point.directory)


def merge(final: str, partial: str, number: int) -> Iterator[int]:
    """Make a point the first of its chain; yields how many bytes were written, again and again.

    The new chain is made beside the old one, which it replaces in one step.  Nothing that was
    removed meanwhile is made again: then that step fails.

    Args:
        partial: a directory, which may hold the remains of a merge that broke off.

    Raises:
        GenericError, OSError: the chain stays as it was.
    """
    recover(final)
    points = points_of(final)
    shutil.rmtree(partial, ignore_errors=True)
    work = tempfile.mkdtemp(prefix="merge-", dir=_made(partial))
    disks, chosen = [], None
    for point in points:
        if point.number == number:
            chosen = point
    if chosen is None:
        raise GenericError(f"the export has no point {number}")
    for disk in chosen.description.disks:
        if disk.dump:
            paths, root = layers_of(points, number, disk.dump)
            dump = dump_name(disk_of_dump(disk.dump))
            digest = hashlib.sha256()
            with open(os.path.join(work, dump), "wb", opener=_private) as file:
                for piece in restored(paths, root):
                    file.write(piece)
                    digest.update(piece)
                    yield len(piece)
                file.flush()
                os.fsync(file.fileno())
            disks.append(replace(disk, dump=dump, sha256=digest.hexdigest()))
        else:
            disks.append(disk)
    description = replace(chosen.description, disks=disks)
    text = export_description.format_description(description)
    config = os.path.join(work, export_description.CONFIG_NAME)
    files.write_durable(config, text.encode(), _CONFIG_MODE)
    _link(chosen.directory, work, lambda name: name.endswith(SUMS_SUFFIX))
    for point in points:
        if point.number > number:
            target = point_directory(work, point.number, number)
            parent = _made(os.path.dirname(target))
            _link(point.directory, _made(target), lambda _name: True)
            files.fsync_directory(target)
            files.fsync_directory(parent)
    if not os.path.isdir(final):
        raise GenericError(f"export {os.path.basename(final)!r} was removed meanwhile")
    put_in_place(work, final)
    _remove(partial)


def _made(directory: str) -> str:
    """Make a directory in one that is there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
        os.chmod(directory, _DIRECTORY_MODE)
    return directory


def _link(source: str, target: str, is_meant: Callable[[str], bool]) -> None:
    """Give files of a directory a second name in another one; those of a chain never change."""
    for name in filter(is_meant, os.listdir(source)):
        if os.path.isfile(os.path.join(source, name)):
            os.link(os.path.join(source, name), os.path.join(target, name))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _CONFIG_MODE)


def remove_sums(directory: str) -> None:
    """Remove the checksums of a point that is not the newest any more."""
    for name in os.listdir(directory):
        if name.endswith(SUMS_SUFFIX):
            os.unlink(os.path.join(directory, name))


def put_in_place(partial: str, final: str) -> None:
    """Swap the new export in; the old one is there until that moment, and removed after it.

    Once the new one is in place, nothing fails any more: remains of the old one are told.
    """
    files.fsync_directory(partial)
    recover(final)
    if not os.path.isdir(final):
        os.rename(partial, final)
    elif swap_file.exchange(partial, final):
        _remove(partial)
    else:
        _replace(partial, final)
    files.fsync_directory(os.path.dirname(final))


def _replace(partial: str, final: str) -> None:
    """Put the new export in place where the file system cannot swap two names."""
    discard_old(final)
    for left in reversed(range(_ATTEMPTS)):
        os.rename(final, _aside(final))
        try:
            os.rename(partial, final)
        except OSError:
            recover(final)
            if not left:
                raise
        else:
            break
    files.fsync_directory(os.path.dirname(final))
    discard_old(final)


def _aside(final: str) -> str:
    """Return where the old export is meanwhile; the name is that of no export."""
    directory, name = os.path.split(final)
    return os.path.join(directory, f".{name}{_ASIDE_SUFFIX}")


def recover_all(directory: str) -> None:
    """Move all exports back that were moved aside for others which did not come."""
    for name in os.listdir(directory):
        if name.startswith(".") and name.endswith(_ASIDE_SUFFIX):
            recover(os.path.join(directory, name[1:].removesuffix(_ASIDE_SUFFIX)))


def recover(final: str) -> None:
    """Move an export back that was moved aside for another which did not come."""
    aside = _aside(final)
    if os.path.isdir(final) or not os.path.isdir(aside):
        return
    try:
        os.rename(aside, final)
    except OSError:  # the other has come in this moment
        if not os.path.isdir(final):
            raise
    else:
        logger.warning("Moved the export %s back: its replacement was cut off", final)
        files.fsync_directory(os.path.dirname(final))


def discard_old(final: str) -> None:
    """Remove the export that was moved aside, if there is one; a failure is told."""
    aside = _aside(final)
    if os.path.isdir(aside):
        _remove(_out_of_the_way(aside, os.path.basename(final)))


def discard(directory: str) -> None:
    """Remove an export, or the remains of one.

    First it loses its name: whoever still makes a chain in it cannot put that in place any more, so
    nothing is removed from within a chain that has its place.
    """
    shutil.rmtree(_out_of_the_way(directory, os.path.basename(directory)))


def _out_of_the_way(directory: str, name: str) -> str:
    """Give a directory a name that `ganeti-cleaner` removes, and that is in nobody's way."""
    parent = os.path.dirname(directory)
    left = tempfile.mkdtemp(dir=parent, prefix=f".{name}-", suffix=PARTIAL_SUFFIX)
    os.rename(directory, left)
    return left


def _remove(directory: str) -> None:
    """Remove what is of no use any more; a failure costs room only."""
    try:
        shutil.rmtree(directory)
    except OSError as err:
        logger.warning("Cannot remove all of %s: %s; ignoring", directory, err)
