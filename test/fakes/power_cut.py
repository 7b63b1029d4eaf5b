"""What a power cut leaves of files: writes are recorded, then cut at every step.

The model is that of a journalling file system at its worst: data that was not synced is not there,
and names that were not synced are there or not, in the order of their changes or in any other.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
PENDING_MAX = 7  # names that are changed and not synced; all subsets of them are tried


@dataclass(frozen=True)
class Change:
    """A name is set to a file, or removed; a move does both in one step."""

    removed: str | None
    added: str | None
    file: int

    def directories(self) -> set[str]:
        return {os.path.dirname(path) for path in (self.removed, self.added) if path}


@dataclass
class Disk:
    """What has been asked of the disk so far, as far as that counts after a power cut."""

    contents: list[bytes] = field(default_factory=list)  # of files that got a name; synced
    names: dict[str, int] = field(default_factory=dict)  # synced
    pending: list[Change] = field(default_factory=list)

    def new_file(self, content: bytes) -> int:
        self.contents.append(content)
        return len(self.contents) - 1

    def move(self, old: str, new: str, synced: bytes) -> None:
        """Note a move; the name of a temporary file need not have been there."""
        there = dict(self.names)
        for change in self.pending:
            apply(change, there)
        file = there.get(old)
        if file is None:
            self.pending.append(Change(None, new, self.new_file(synced)))
        else:
            self.pending.append(Change(old, new, file))

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
                yield {path: self.contents[file] for path, file in names.items()}


def apply(change: Change, names: dict[str, int]) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None:
        names[change.added] = change.file


class Recorder:
    """Keeps an eye on the calls of the operating system; `check` is called before each."""

    def __init__(self, disk: Disk, check: Callable[[], None]) -> None:
        self.disk = disk
        self.check = check
        self.synced: dict[int, bytes] = {}  # temporary files, by inode

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("fsync", "rename", "unlink", "mkdir"):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
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
        else:
            self.synced[os.fstat(descriptor).st_ino] = Path(path).read_bytes()

    def _on_rename(self, old: str, new: str, inode: int) -> None:
        self.disk.move(old, new, self.synced.pop(inode, b""))

    def _on_unlink(self, path: str, _inode: int) -> None:
        self.disk.pending.append(Change(path, None, 0))

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
    disk: Disk, promised: Callable[[], T], run: Callable[[], None]
) -> list[tuple[dict[str, bytes], T]]:
    """Run something and cut it at every step; returns each content of the disk that may be left.

    Args:
        promised: returns what was acknowledged until now.

    Returns:
        Pairs of a content and what had been acknowledged by then.
    """
    found: dict[tuple[tuple[tuple[str, bytes], ...], str], tuple[dict[str, bytes], T]] = {}

    def cut() -> None:
        for state in disk.states():
            known = promised()
            found.setdefault((tuple(sorted(state.items())), repr(known)), (state, known))

    with pytest.MonkeyPatch.context() as patch:
        Recorder(disk, cut).install(patch)
        run()
    return list(found.values())
