"""What a power cut leaves of files: writes are recorded, then cut at every step.

The model is that of a journalling file system at its worst: data that was not synced is not there,
and names that were not synced are there or not, in the order of their changes or in any other.  Of
files that are written in place, each write that was not synced is there or not, or in half, or as
zeros where the file had grown.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
PENDING_MAX = 7  # names that are changed and not synced; all subsets of them are tried
WRITES_MAX = 6  # in place, of one file


@dataclass(frozen=True)
class Change:
    """A name is set to a file, or removed; a move does both in one step."""

    removed: str | None
    added: str | None
    file: int

    def directories(self) -> set[str]:
        return {os.path.dirname(path) for path in (self.removed, self.added) if path}


@dataclass(frozen=True)
class Write:
    """A write in place; without data, the file was cut there."""

    offset: int
    data: bytes | None

    def applied(self, content: bytes) -> bytes:
        if self.data is None:
            return content[: self.offset]
        filled = content.ljust(self.offset, b"\0")
        return filled[: self.offset] + self.data + filled[self.offset + len(self.data) :]

    def torn(self, size: int) -> Iterator[Write]:
        """Yield what may be left of it in a file of this size."""
        yield self
        if self.data is not None and self.offset + len(self.data) > size:
            yield Write(self.offset, self.data[: len(self.data) // 2])
            yield Write(self.offset, self.data[:-1])
            yield Write(self.offset, bytes(len(self.data)))


@dataclass
class Disk:
    """What has been asked of the disk so far, as far as that counts after a power cut."""

    contents: list[bytes] = field(default_factory=list)  # of files that got a name; synced
    names: dict[str, int] = field(default_factory=dict)  # synced
    pending: list[Change] = field(default_factory=list)
    writes: dict[int, list[Write]] = field(default_factory=dict)  # in place, by file; not synced

    def new_file(self, content: bytes) -> int:
        self.contents.append(content)
        return len(self.contents) - 1

    def move(self, old: str, new: str, synced: bytes) -> None:
        """Note a move; the name of a temporary file need not have been there."""
        file = self.there().get(old)
        if file is None:
            self.pending.append(Change(None, new, self.new_file(synced)))
        else:
            self.pending.append(Change(old, new, file))

    def there(self) -> dict[str, int]:
        """Return the names that processes see."""
        there = dict(self.names)
        for change in self.pending:
            apply(change, there)
        return there

    def create(self, path: str) -> None:
        self.pending.append(Change(None, path, self.new_file(b"")))

    def write(self, path: str, write: Write) -> None:
        self.writes.setdefault(self.there()[path], []).append(write)

    def sync_file(self, path: str) -> None:
        file = self.there()[path]
        for write in self.writes.pop(file, []):
            self.contents[file] = write.applied(self.contents[file])

    def contents_of(self, file: int) -> set[bytes]:
        """Return all that may be left of a file."""
        synced, writes = self.contents[file], self.writes.get(file, [])
        assert len(writes) <= WRITES_MAX, writes
        found = {synced}
        for count in range(1, len(writes) + 1):
            for some in itertools.combinations(writes, count):
                for torn in itertools.product(*(each.torn(len(synced)) for each in some)):
                    content = synced
                    for write in torn:
                        content = write.applied(content)
                    found.add(content)
        return found

    def sync_directory(self, path: str) -> None:
        for change in [each for each in self.pending if path in each.directories()]:
            self.pending.remove(change)
            apply(change, self.names)

    def states(self) -> Iterator[dict[str, bytes]]:
        """Yield every content that the disk may have after a power cut now."""
        assert len(self.pending) <= PENDING_MAX, self.pending
        for count in range(len(self.pending) + 1):
            for some in itertools.combinations(self.pending, count):
                names = dict(self.names)
                for change in some:
                    apply(change, names)
                left = [sorted(self.contents_of(file)) for file in names.values()]
                for contents in itertools.product(*left):
                    yield dict(zip(names, contents, strict=True))


def apply(change: Change, names: dict[str, int]) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None:
        names[change.added] = change.file


_FOLLOWED = ("fsync", "rename", "link", "unlink", "mkdir")
_FOLLOWED_IN_PLACE = ("open", "pwrite", "ftruncate", "fdatasync")


class Recorder:
    """Keeps an eye on the calls of the operating system; `check` is called before each.

    Args:
        in_place: the files that are written in place; all others only get their names when whole.
    """

    def __init__(
        self, disk: Disk, check: Callable[[], None], in_place: Collection[str] = ()
    ) -> None:
        self.disk = disk
        self.check = check
        self._in_place = in_place
        self._turn = threading.RLock()
        self.synced: dict[int, bytes] = {}  # temporary files, by inode

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (*_FOLLOWED, *(_FOLLOWED_IN_PLACE if self._in_place else ())):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            with self._turn:
                self.check()
                inode = os.lstat(args[0]).st_ino if name == "rename" else 0
                result = real(*args, **named)
                getattr(self, f"_on_{name}")(*args, inode)
                self.check()
                return result

        return call

    def _on_fsync(self, descriptor: int, _inode: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            self.disk.sync_directory(path)
        elif path in self._in_place:
            self.disk.sync_file(path)
        elif path in (there := self.disk.there()):
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)  # it would keep us out as well
            self._write_anew(there[path], Path(path).read_bytes())
        else:
            self.synced[os.fstat(descriptor).st_ino] = Path(path).read_bytes()

    def _write_anew(self, file: int, content: bytes) -> None:
        """Give a whole file another content; until that is synced it may be anything."""
        for found in (content[: len(content) // 2], bytes(len(content)), content):
            self.disk.contents[file] = found
            self.check()

    def _on_link(self, old: str, new: str, _inode: int) -> None:
        self.disk.pending.append(Change(None, new, self.disk.there()[old]))

    def _on_rename(self, old: str, new: str, inode: int) -> None:
        self.disk.move(old, new, self.synced.pop(inode, b""))

    def _on_unlink(self, path: str, _inode: int) -> None:
        self.disk.pending.append(Change(path, None, 0))

    def _on_open(self, path: str, flags: int, *_mode_and_inode: int) -> None:
        if path in self._in_place and flags & os.O_CREAT:
            assert flags & os.O_EXCL, "it may have been there"
            self.disk.create(path)

    def _on_pwrite(self, descriptor: int, data: bytes, offset: int, _inode: int) -> None:
        self._note(descriptor, Write(offset, bytes(data)))

    def _on_ftruncate(self, descriptor: int, size: int, _inode: int) -> None:
        self._note(descriptor, Write(size, None))

    def _on_fdatasync(self, descriptor: int, inode: int) -> None:
        self._on_fsync(descriptor, inode)

    def _note(self, descriptor: int, write: Write) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path in self._in_place:
            self.disk.write(path, write)

    def _on_mkdir(self, path: str, _mode: int, _inode: int = 0) -> None:
        return None


def lay_out(base: Path, old: str, state: Mapping[str, bytes]) -> None:
    """Write what is left of a tree to another place.

    Args:
        old: the root that it was recorded below.
    """
    for path, content in state.items():
        place = Path(str(base) + path.removeprefix(old))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def record(
    disk: Disk, promised: Callable[[], T], run: Callable[[], None], in_place: Collection[str] = ()
) -> list[tuple[dict[str, bytes], T]]:
    """Run something and cut it at every step; returns each content of the disk that may be left.

    Args:
        promised: returns what was acknowledged until now.
        in_place: files that are written in place.

    Returns:
        Pairs of a content and what had been acknowledged by then.
    """
    found: dict[tuple[tuple[tuple[str, bytes], ...], str], tuple[dict[str, bytes], T]] = {}

    def cut() -> None:
        for state in disk.states():
            known = promised()
            found.setdefault((tuple(sorted(state.items())), repr(known)), (state, known))

    with pytest.MonkeyPatch.context() as patch:
        Recorder(disk, cut, in_place).install(patch)
        run()
    return list(found.values())
