"""What a power cut leaves of the job queue: the writes are recorded, then cut at every step.

The model is that of a journalling file system at its worst: data that was not synced is not there,
and names that were not synced are there or not, in the order of their changes or in any other.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.copies.quorum import Tally
from ganeti.jobexec.job_file import JobFile
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, QueuedOp, decode_job
from ganeti.luxid.queue.job_store import JobStore
from ganeti.store.job_files import JobFiles
from ganeti.system import files

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
    acknowledged: dict[int, bool] = field(default_factory=dict)  # job: whether it has ended

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


class Alone:
    """Replication without candidates."""

    async def write(
        self, _path: str, _data: bytes, local: Callable[[], None], **_how: object
    ) -> tuple[str, ...]:
        local()
        return ()

    def spread(self, _path: str, _data: bytes) -> None:
        return None

    def renew(self, _names: object, _path: str) -> None:
        return None


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    JobFiles(found).prepare()
    files.write_durable(found.queue_serial, b"0\n")
    return found


def rebuild(base: Path, old: str, state: dict[str, bytes]) -> JobFiles:
    """Make a queue of what is left."""
    found = Paths(str(base))
    queue = JobFiles(found)
    queue.prepare()
    for path, content in state.items():
        place = Path(str(base) + path.removeprefix(old))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return queue


def assert_whole(queue: JobFiles, acknowledged: dict[int, bool]) -> None:
    for number, has_ended in acknowledged.items():
        data = queue.read(JobId(number)) or queue.read_archived(JobId(number))
        assert data, f"job {number} is lost"
        job = decode_job(data, number)
        assert job.is_final or not has_ended, f"the end of job {number} is lost"
    assert queue.last_id() >= max(acknowledged, default=0), "an id would be given again"


def run_jobs(store: JobStore, paths: Paths, disk: Disk) -> None:
    """Let jobs come, start, say something, run opcodes, end and be archived."""

    def at(number: int) -> tuple[int, int]:
        return (number, 0)

    for number in (1, 2, 3, 4):
        job = QueuedJob(JobId(number), (QueuedOp({"OP_ID": "OP_X"}), QueuedOp({"OP_ID": "OP_Y"})))
        asyncio.run(store.save_new(job, number))
        disk.acknowledged[number] = False
        started = changes.handed_over(job, livelock="/l", process_id=1, now=at(1))
        if number == 2:
            store.put_back(job)
        asyncio.run(store.save(started))
        file = JobFile(
            paths,
            started,
            send=lambda _data, _wait_s: Tally([], []),
            spread=lambda _data: None,
            sleep=lambda _seconds: None,
        )
        file.update(changes.op_running(file.job, 0, at(2)))
        file.update_log(changes.with_log_entry(file.job, 0, "message", "x" * number, at(3)), 0)
        file.update_opcode(changes.op_succeeded(file.job, 0, None, at(4)))
        file.update(changes.op_running(changes.op_waiting(file.job, 1, at(5)), 1, at(5)))
        file.finish_well(lambda job: changes.op_succeeded(job, 1, None, at(6)), lambda _text: None)
        disk.acknowledged[number] = True
        if number % 2:
            store.archive_here(JobId(number))


def test_no_acknowledged_job_is_lost_by_a_power_cut(
    paths: Paths, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    for place in (paths.queue_version, paths.queue_serial):
        disk.names[place] = disk.new_file(Path(place).read_bytes())
    seen: set[tuple[tuple[tuple[str, bytes], ...], tuple[tuple[int, bool], ...]]] = set()
    cuts: list[tuple[dict[str, bytes], dict[int, bool]]] = []

    def cut() -> None:
        for state in disk.states():
            key = (tuple(sorted(state.items())), tuple(disk.acknowledged.items()))
            if key not in seen:
                seen.add(key)
                cuts.append((state, dict(disk.acknowledged)))

    store = JobStore(paths, Alone())  # type: ignore[arg-type]
    with monkeypatch.context() as patched:
        Recorder(disk, cut).install(patched)
        run_jobs(store, paths, disk)
    assert len(cuts) > 40
    for state, acknowledged in cuts:
        queue = rebuild(tmp_path_factory.mktemp("cut"), paths.root, state)
        assert_whole(queue, acknowledged)


def test_the_id_of_a_file_that_was_set_aside_is_not_given_again(paths: Paths) -> None:
    queue = JobFiles(paths)
    queue.write_durable(JobId(7), b"")
    queue.set_aside(JobId(7))
    assert queue.last_id() == 7


def test_an_empty_directory_of_the_archive_hides_no_id(paths: Paths) -> None:
    queue = JobFiles(paths)
    queue.write_durable(JobId(9_999), b"{}")
    queue.archive(JobId(9_999))
    files.ensure_directory(f"{paths.queue_archive_dir}/1")
    assert queue.last_id() == 9_999
