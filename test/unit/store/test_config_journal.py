"""The journal on the disk: what is acknowledged is there, what failed is not."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes.large_config import large_config_bytes

from ganeti.base.paths import Paths
from ganeti.config import changes
from ganeti.config.deltas.journal import JournalDamaged, Record, record_of
from ganeti.config.state import ConfigState
from ganeti.protocol.node_rpc_values import ConfigVersion
from ganeti.store import config_file, master_facts
from ganeti.store.config_file import JournalFile, MastersFile
from ganeti.store.config_reader import ConfigReader
from ganeti.system import files


class Book:
    """A configuration on the disk whose cluster gets one tag after the other."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.state = ConfigState(large_config_bytes(2))
        self.journal = JournalFile(paths)
        files.ensure_directory(paths.data_dir)
        self.file = MastersFile(paths)
        self.write_file()

    def write_file(self) -> None:
        self.file.write(self.state.pieces)

    def change(self) -> Record:
        change = self.state.begin(1.5)
        changes.add_tags(change, "cluster", "", [f"t{self.state.serial_no}"])
        self.state.accept(change)
        flush = self.state.start_flush(2.5)
        self.state.flush_done()
        return record_of(flush.base, flush.version, flush.changed)

    def append(self, count: int = 1) -> None:
        self.journal.append([self.change().line for _ in range(count)])

    def on_disk(self) -> Any:
        return json.loads(config_file.read_config(self.paths))

    @property
    def newest(self) -> Any:
        return json.loads(b"".join(self.state.pieces))


def test_a_record_is_taken_while_the_file_gets_its_name(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file follows the journal in a thread of its own."""
    write = files.write_durable
    with ThreadPoolExecutor(1) as thread:
        appended: list[Future[None]] = []

        def append() -> None:
            with book.file.kept():
                book.append()

        def replace(*args: Any, **options: Any) -> None:
            write(*args, **options)
            appended.append(thread.submit(append))

        book.change()
        monkeypatch.setattr(files, "write_durable", replace)
        book.write_file()
        [future] = appended
        future.result()
    assert book.on_disk() == book.newest


def test_a_master_does_not_write_over_what_its_node_was_given_meanwhile(book: Book) -> None:
    """Another node took over while this one stood still."""
    book.change()
    book.write_file()
    files.write_durable(book.paths.config_data, b"newer")
    book.change()
    with pytest.raises(OSError, match="is another node the master"):
        book.write_file()
    with pytest.raises(OSError, match="is another node the master"), book.file.kept():
        pytest.fail("a record would be written")
    assert Path(book.paths.config_data).read_bytes() == b"newer"
    assert [name for name in os.listdir(book.paths.data_dir) if "config.data" in name] == [
        "config.data"
    ]


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(Paths(str(tmp_path)))


def test_what_is_appended_belongs_to_the_configuration(book: Book) -> None:
    before = files.read_bytes(book.paths.config_data)
    book.append()
    book.append(3)
    assert book.on_disk() == book.newest
    assert files.read_bytes(book.paths.config_data) == before
    assert os.stat(book.paths.config_journal).st_mode & 0o777 == 0o640
    assert config_file.fold_journal(book.paths, 1.0) == 4
    assert not os.path.exists(book.paths.config_journal)
    assert json.loads(files.read_bytes(book.paths.config_data)) == book.newest
    assert config_file.fold_journal(book.paths, 1.0) == 0


def test_records_that_the_file_has_are_trimmed_and_others_stay(book: Book) -> None:
    book.append(2)
    version = book.state.version
    book.write_file()
    book.append()
    book.journal.trim(version)
    assert len(config_file.read_journal(book.paths)) == 1
    book.append()
    assert book.on_disk() == book.newest
    book.write_file()
    book.journal.trim(book.state.version)
    assert not os.path.exists(book.paths.config_journal)
    book.append()
    assert book.on_disk() == book.newest


def damage(paths: Paths, at: int) -> bytes:
    data = bytearray(files.read_bytes(paths.config_journal))
    data[at] ^= 1
    Path(paths.config_journal).write_bytes(data)
    return bytes(data)


def test_damage_before_an_acknowledged_record_is_told_and_nothing_is_removed(book: Book) -> None:
    for _ in range(5):
        book.append()
    first = len(config_file.read_journal(book.paths)[0].line)
    damaged = damage(book.paths, first + 40)
    told = f"damaged at byte {first}: .*gnt-cluster master-failover"
    with pytest.raises(JournalDamaged, match=told):
        config_file.fold_journal(book.paths, 1.0)
    line = book.change().line
    with pytest.raises(JournalDamaged, match=told):
        JournalFile(book.paths).append([line])
    with pytest.raises(JournalDamaged, match=told):
        config_file.read_config(book.paths)
    book.write_file()
    book.journal.trim(book.state.version)
    assert files.read_bytes(book.paths.config_journal) == damaged


def test_who_only_looks_gets_what_comes_before_the_damage_and_says_so(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    book.append()
    first = len(files.read_bytes(book.paths.config_journal))
    before = book.state.version.serial_no
    book.append(2)
    damage(book.paths, first + 40)
    assert json.loads(config_file.readable_config(book.paths))["serial_no"] == before
    assert master_facts.own_facts(book.paths).config_serial == before
    told = f"config.journal is damaged at byte {first}: a change that was acknowledged"
    assert [told in message for message in caplog.messages] == [True, True]


def test_a_configuration_is_set_aside_although_its_journal_is_damaged(book: Book) -> None:
    book.append()
    book.append()
    damaged = damage(book.paths, 40)
    files.ensure_directory(book.paths.lock_dir)
    assert master_facts.set_config_aside(book.paths, now=1.0) is not None
    assert not config_file.has_config(book.paths)
    aside = f"{book.paths.config_journal}.aside-19700101T000001Z"
    assert files.read_bytes(aside) == damaged


def test_half_a_record_is_dropped_before_the_next_one(book: Book) -> None:
    book.append(2)
    with open(book.paths.config_journal, "ab") as file:
        file.write(b"- 00000100 12345678 {half")
    book.journal = JournalFile(book.paths)
    book.append()
    assert book.on_disk() == book.newest
    assert len(config_file.read_journal(book.paths)) == 3


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_write_that_fails_leaves_nothing(
    book: Book, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    book.append()
    wanted = book.newest

    def fail(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            book.append()
    assert book.on_disk() == wanted
    assert len(config_file.read_journal(book.paths)) == 1


def test_a_failure_that_cannot_be_taken_back_is_told_apart(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.append()

    def fail(*_args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(files.NotSyncedError):
        book.append()


def test_the_journal_of_another_configuration_is_set_aside(book: Book) -> None:
    book.append(2)
    other = json.dumps({**book.newest, "serial_no": 99}).encode()
    files.write_durable(book.paths.config_data, other)
    other = book.on_disk()
    assert config_file.fold_journal(book.paths, 1.0) == 0
    assert book.on_disk() == other
    assert os.listdir(book.paths.data_dir).count("config.journal.aside-19700101T000001Z") == 1


def test_a_reader_sees_what_is_synced_and_never_an_older_version(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ConfigReader(book.paths)

    def seen() -> Any:
        reader.take(reader.read())
        return reader.tables.cluster.tags

    tags = book.newest["cluster"]["tags"]
    assert seen() == tags
    book.append()
    assert seen() == book.newest["cluster"]["tags"]
    with monkeypatch.context() as patched:
        patched.setattr("ganeti.config.deltas.journal.SYNCED", b"-")
        book.append()
    before = book.newest["cluster"]["tags"][:-1]
    assert sorted(seen()) == sorted(before)
    assert book.on_disk() == book.newest, "whoever takes over believes in it"
    book.write_file()
    book.append()
    assert seen() == book.newest["cluster"]["tags"], "the file, and a record after it"
    book.journal.trim(book.state.version)
    book.write_file()
    assert seen() == book.newest["cluster"]["tags"]
    assert reader.tables.serial_no == book.state.serial_no


def test_a_journal_that_goes_while_it_is_read_was_of_an_older_file(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read; then it is replaced, and its journal removed; then that is looked for."""
    book.append()
    read = config_file.read_journal

    def late(paths: Paths) -> list[Record]:
        monkeypatch.setattr(config_file, "read_journal", read)
        book.write_file()
        book.journal.trim(book.state.version)
        return read(paths)

    monkeypatch.setattr(config_file, "read_journal", late)
    assert book.on_disk() == book.newest


def test_a_record_that_an_earlier_process_did_not_sync_is_synced_before_the_next(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("ganeti.config.deltas.journal.SYNCED", b"-")
        book.append(2)
    synced: list[str] = []

    def watched(name: str) -> None:
        call = getattr(os, name)

        def sync(descriptor: int) -> None:
            call(descriptor)
            synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

        monkeypatch.setattr(os, name, sync)

    watched("fsync")
    watched("fdatasync")
    later = JournalFile(book.paths)
    later.append([])
    assert synced == ["config.journal", "ganeti"], "its name as well"
    assert all(record.is_synced for record in config_file.read_journal(book.paths))
    later.append([book.change().line])
    assert synced[2:] == ["config.journal"]
    assert book.on_disk() == book.newest
    os.rename(book.paths.config_journal, f"{book.paths.config_journal}.aside")
    new = os.open

    def reuse(path: str, *rest: int) -> int:
        """Give a new file the inode of the one before, as file systems do."""
        if rest[0] & os.O_CREAT:
            os.rename(f"{path}.aside", path)
            os.truncate(path, 0)
            return new(path, rest[0] & ~(os.O_CREAT | os.O_EXCL))
        return new(path, *rest)

    monkeypatch.setattr(os, "open", reuse)
    synced.clear()
    later.append([book.change().line])
    assert synced == ["config.journal", "ganeti"], "the new name as well"


def test_a_journal_of_another_version_is_not_trimmed(book: Book) -> None:
    book.append(2)
    book.journal.trim(ConfigVersion(10**6, 1.0))
    assert len(config_file.read_journal(book.paths)) == 2


def test_only_one_process_writes(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "_LOCK_TIMEOUT_S", 0.0)
    before = book.on_disk()
    book.change()
    with config_file.only_writer(book.paths):  # locks of one process exclude each other too
        with pytest.raises(OSError, match="another process is writing it"):
            book.write_file()
        with pytest.raises(OSError, match="another process"), book.file.kept():
            pytest.fail("a record would be written")
    assert book.on_disk() == before
    book.write_file()
    assert book.on_disk() == book.newest
