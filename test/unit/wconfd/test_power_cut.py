"""What a power cut leaves of configuration, locks and simple configuration, and a fresh start.

Each content that the disk may have is laid out and read as WConfD does when it starts.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fakes.large_config import large_config_bytes
from fakes.power_cut import Disk, lay_out, record

from ganeti.base.errors import ConfigurationError
from ganeti.base.paths import Paths
from ganeti.clients.master_poll import other_nodes
from ganeti.config import changes
from ganeti.config.deltas.journal import JournalDamaged
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.store import master_facts, ssconf
from ganeti.store.config_file import write_config
from ganeti.system import files
from ganeti.wconfd.keeper import Keeper
from ganeti.wconfd.main import read_files

TAGS = 5
OWN = "node1.example.com"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path / "node"))
    for directory in (found.data_dir, found.lock_dir):
        files.ensure_directory(directory)
    return found


@pytest.fixture
def cut_off(tmp_path: Path) -> Callable[[dict[str, bytes], str], Paths]:
    numbers = itertools.count()

    def laid_out(state: dict[str, bytes], old: str) -> Paths:
        base = tmp_path / f"cut{next(numbers)}"
        lay_out(base, old, state)
        return Paths(str(base))

    return laid_out


def add_tags_one_by_one(paths: Paths, told: list[str]) -> None:
    keeper = Keeper(paths, read_files(paths))

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(keeper.committer.run())
            for number in range(TAGS):
                tag = f"t{number}"
                await keeper.change(lambda each: changes.add_tags(each, "cluster", "", [tag]))  # noqa: B023
                told.append(tag)
            writing.cancel()

    asyncio.run(run())
    keeper.close()


# All that may be left of files that are never synced; their owners are dead by then.
LEFT = {"nothing": None, "empty": b"", "zeros": b"\0" * 64, "half": b'[[[["7","/l",'}


@pytest.mark.shows("2.12/wconfd-details/any-point")
@pytest.mark.parametrize("left", LEFT)
def test_no_acknowledged_change_is_lost_and_it_starts_by_itself(
    paths: Paths, cut_off: Callable[[dict[str, bytes], str], Paths], left: str
) -> None:
    write_config(paths, large_config_bytes(2))
    disk, told = Disk(), list[str]()
    disk.names[paths.config_data] = disk.new_file(files.read_bytes(paths.config_data))
    cuts = record(disk, lambda: tuple(told), lambda: add_tags_one_by_one(paths, told))
    assert len(cuts) > 2 * TAGS
    for state, promised in cuts:
        found = cut_off(state, paths.root)
        content = LEFT[left]
        if content is not None:
            volatile = (found.locks_data, found.locks_own_data, found.tempres_data)
            for path in (*volatile, found.tempres_own_data):
                Path(path).write_bytes(content)
        started = read_files(found)
        keeper = Keeper(found, started)
        assert set(promised) <= set(keeper.durable.cluster.tags)
        assert keeper.clients() == set()
        assert keeper.state.serial_no > len(promised)
        keeper.close()


def tag_with_a_journal(paths: Paths, told: list[str], names: Sequence[str]) -> None:
    """Add tags one by one, with the file following now and then, and die."""
    keeper = Keeper(paths, read_files(paths), has_journal=True)
    assert keeper.checkpoints is not None
    checkpoints = keeper.checkpoints

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(keeper.committer.run())
            for number, tag in enumerate(names):
                await keeper.change(lambda each: changes.add_tags(each, "cluster", "", [tag]))  # noqa: B023
                told.append(tag)
                if number % 3 == 1:
                    assert await checkpoints.write()
            writing.cancel()

    asyncio.run(run())
    keeper.close()


def test_nothing_acknowledged_is_lost_with_a_journal_however_often_it_starts(
    paths: Paths, cut_off: Callable[[dict[str, bytes], str], Paths]
) -> None:
    """Each start brings the journal into the file, and may be cut as well."""
    write_config(paths, large_config_bytes(2))
    disk, told = Disk(), list[str]()
    disk.names[paths.config_data] = disk.new_file(files.read_bytes(paths.config_data))

    def lives() -> None:
        for life in range(3):
            tag_with_a_journal(paths, told, [f"t{life}-{number}" for number in range(life + 3)])
        read_files(paths)

    cuts = record(disk, lambda: tuple(told), lives, {paths.config_journal})
    assert len(told) == 12
    assert sum(paths.config_journal in state for state, _ in cuts) > 4 * len(told)
    for state, promised in cuts:
        found = cut_off(state, paths.root)
        keeper = Keeper(found, read_files(found), has_journal=True)
        assert set(promised) <= set(keeper.durable.cluster.tags)
        assert keeper.state.serial_no > len(promised)
        assert not Path(found.config_journal).exists()
        assert [*Path(found.data_dir).glob("*aside*")] == [], "it belongs to the file"
        keeper.close()


class KilledError(Exception):
    """The process is no more."""


def test_the_journal_stays_until_the_file_of_a_killed_daemon_is_safe(
    paths: Paths, cut_off: Callable[[dict[str, bytes], str], Paths], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed once the file had its name, which was not synced, and is started again."""
    write_config(paths, large_config_bytes(2))
    disk, told = Disk(), list[str]()
    disk.names[paths.config_data] = disk.new_file(files.read_bytes(paths.config_data))

    def killed(_path: str) -> None:
        raise KilledError

    def lives() -> None:
        tag_with_a_journal(paths, told, ["one"])
        monkeypatch.setattr(files, "fsync_directory", killed)
        with pytest.raises(KilledError):
            read_files(paths)
        monkeypatch.undo()
        assert Path(paths.config_journal).exists()
        read_files(paths)

    cuts = record(disk, lambda: tuple(told), lives, {paths.config_journal})
    assert any(paths.config_journal not in state for state, promised in cuts if promised)
    for state, promised in cuts:
        found = cut_off(state, paths.root)
        assert set(promised) <= set(read_files(found).config.durable.cluster.tags)


def test_a_start_that_is_refused_names_the_journal(paths: Paths) -> None:
    write_config(paths, large_config_bytes(2))
    tag_with_a_journal(paths, [], ["one", "two", "three"])
    Path(paths.config_data).write_bytes(b"{}")
    with pytest.raises(ConfigurationError, match=r"config\.journal are made again: move it away"):
        read_files(paths)
    write_config(paths, large_config_bytes(2))
    tag_with_a_journal(paths, [], ["one"])
    journal = Path(paths.config_journal)
    journal.write_bytes(journal.read_bytes().replace(b"one", b"two"))
    with pytest.raises(JournalDamaged, match=r"config\.journal is damaged at byte 0"):
        read_files(paths)
    assert journal.exists()


def test_with_a_journal_it_starts_on_a_full_disk_and_the_file_follows_later(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(paths, large_config_bytes(2))
    told = list[str]()
    tag_with_a_journal(paths, told, ["one", "two", "three"])  # the file has two of them
    before = files.read_bytes(paths.config_data)

    def fail(path: str, *_args: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_durable", fail)
        with pytest.raises(ConfigurationError, match=r"No space.*Do not remove .*config\.journal"):
            read_files(paths)
        keeper = Keeper(paths, read_files(paths, has_journal=True), has_journal=True)
        checkpoints = keeper.checkpoints
        assert checkpoints is not None
        assert not asyncio.run(checkpoints.write())
    assert [*keeper.durable.cluster.tags] == told
    assert (files.read_bytes(paths.config_data), Path(paths.config_journal).exists()) == (
        before,
        True,
    )
    version = checkpoints.file_version
    assert version.serial_no == keeper.state.serial_no - 1

    async def follow() -> None:
        writing = asyncio.create_task(checkpoints.run())
        while checkpoints.file_version == version:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.05)
        writing.cancel()

    asyncio.run(follow())
    assert not Path(paths.config_journal).exists()
    assert files.read_bytes(paths.config_data) == b"".join(keeper.state.pieces)
    keeper.close()


READ_AT_START = (
    "master_candidates",
    "master_candidates_ips",
    "node_list",
    "node_primary_ips",
    "online_nodes",
)


def test_any_mix_of_old_and_new_simple_configuration_is_enough_to_start(
    paths: Paths, cut_off: Callable[[dict[str, bytes], str], Paths]
) -> None:
    old, new = (
        ssconf_values(ConfigState(large_config_bytes(2, nodes, nodes)).durable) for nodes in (3, 5)
    )
    write_config(paths, large_config_bytes(2, 5, 5))
    ssconf.write_values(paths, old)
    disk = Disk()
    changed = [key for key in READ_AT_START if old[key] != new[key]]
    for path in (paths.config_data, *map(paths.ssconf_file, old)):
        disk.names[path] = disk.new_file(files.read_bytes(path))
    assert len(changed) == len(READ_AT_START)
    cuts = record(disk, lambda: 0, lambda: write(paths, {key: new[key] for key in changed}))
    assert len(cuts) >= 2 ** len(changed)
    for state, _ in cuts:
        found = cut_off(state, paths.root)
        files.ensure_directory(found.lock_dir)
        assert len(other_nodes(found, OWN)) in (2, 3, 4, 5)
        facts = master_facts.own_facts(found)
        assert len(facts.candidates) in (3, 5)
        ssconf.write_values(found, new)  # as WConfD does when it starts
        assert len(ssconf.master_candidates(found)) == 5


def write(paths: Paths, values: dict[str, str]) -> None:
    ssconf.write_values(paths, values)
