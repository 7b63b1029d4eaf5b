"""Group commit with a disk that the test controls."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fakes.large_config import large_config_bytes
from fakes.metric_page import values_on

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.config import changes
from ganeti.config.state import ConfigState, Flush
from ganeti.config.transaction import Transaction
from ganeti.daemon.tally import page
from ganeti.system.files import NotSyncedError
from ganeti.wconfd.committing import Committer, Writes

WRITTEN = 1000  # bytes, the disk says


class Disk:
    """Writes when it is let, and fails when it is told."""

    def __init__(self) -> None:
        self.contents: list[Any] = []
        self.may_write = threading.Semaphore(0)
        self.error: OSError | None = None
        self.counts = Writes()

    def write(self, flush: Flush) -> int:
        assert self.may_write.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        self.contents.append(json.loads(b"".join(flush.pieces)))
        return WRITTEN

    @property
    def tags(self) -> list[list[str]]:
        return [content["cluster"]["tags"] for content in self.contents]


def tag(name: str) -> Callable[[Transaction], object]:
    return lambda change: changes.add_tags(change, "cluster", "", [name])


def play(scene: Callable[[Committer, Disk, list[Flush]], Awaitable[None]]) -> Disk:
    disk = Disk()
    flushes: list[Flush] = []

    async def run() -> None:
        state = ConfigState(large_config_bytes(1))
        committer = Committer(state, disk.write, flushes.append, lambda: 5.0, disk.counts)
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(committer.run())
            try:
                async with asyncio.timeout(60):
                    await scene(committer, disk, flushes)
            finally:
                for _ in range(10):
                    disk.may_write.release()
                writer.cancel()

    asyncio.run(run())
    return disk


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.shows("2.12/config/no-config-lock")
def test_changes_that_come_while_the_disk_is_busy_share_the_next_write() -> None:
    async def scene(committer: Committer, disk: Disk, flushes: list[Flush]) -> None:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(committer.apply(tag("a")))
            await turn()
            others = [tasks.create_task(committer.apply(tag(name))) for name in "bcd"]
            await turn()
            assert committer.state.durable.cluster.tags == []
            disk.may_write.release()
            await first
            assert committer.state.durable.cluster.tags == ["a"]
            assert not any(task.done() for task in others)
            disk.may_write.release()
        assert [flush.serial_no for flush in flushes] == [20, 21]

    disk = play(scene)
    assert disk.tags == [["a"], ["a", "b", "c", "d"]]
    told = values_on(page(disk.counts.lines()))
    assert told["ganeti_wconfd_changes_total",] == 4
    assert told["ganeti_wconfd_write_seconds_count", "config.data"] == 2
    assert told["ganeti_wconfd_written_bytes_total", "config.data"] == 2 * WRITTEN


@pytest.mark.shows("backend/config-data/not-flushed")
def test_a_failed_write_fails_all_and_keeps_what_was() -> None:
    async def scene(committer: Committer, disk: Disk, _flushes: list[Flush]) -> None:
        disk.error = OSError(28, "No space left on device")
        first = asyncio.ensure_future(committer.apply(tag("a")))
        await turn()
        second = asyncio.ensure_future(committer.apply(tag("b")))
        await turn()
        disk.may_write.release()
        for task in (first, second):
            with pytest.raises(GenericError, match="No space left on device"):
                await task
        assert committer.state.head.stored(("cluster", "")) == committer.state.durable.stored(
            ("cluster", "")
        )
        disk.error = None
        disk.may_write.release()
        await committer.apply(tag("c"))

    disk = play(scene)
    assert disk.tags == [["c"]]
    told = values_on(page(disk.counts.lines()))
    assert told["ganeti_wconfd_write_failures_total", "config.data"] == 1
    assert told["ganeti_wconfd_write_seconds_count", "config.data"] == 1


def test_nobody_is_answered_when_the_disk_fails_after_the_file_was_replaced() -> None:
    async def run() -> None:
        disk = Disk()
        disk.error = NotSyncedError(5, "Input/output error", "/config.data")
        disk.may_write.release()
        state = ConfigState(large_config_bytes(1))
        committer = Committer(state, disk.write, lambda _flush: None, lambda: 5.0, disk.counts)
        change = asyncio.ensure_future(committer.apply(tag("a")))
        with pytest.raises(NotSyncedError):
            await committer.run()
        await turn()
        assert not change.done()
        change.cancel()

    asyncio.run(run())


def test_a_refused_change_waits_for_nothing_and_one_of_nothing_for_what_is_under_way() -> None:
    async def scene(committer: Committer, disk: Disk, _flushes: list[Flush]) -> None:
        first = asyncio.ensure_future(committer.apply(tag("a")))
        await turn()

        def refuse(_change: Transaction) -> None:
            raise OpPrereqError("no")

        with pytest.raises(OpPrereqError):
            await committer.apply(refuse)
        same = asyncio.ensure_future(committer.apply(tag("a")))
        await turn()
        assert not same.done(), "it rests on what is not durable yet"
        disk.may_write.release()
        await first
        await same
        assert await committer.apply(lambda _change: 7) == 7

    assert play(scene).tags == [["a"]]


def test_whoever_gives_up_waiting_does_not_take_the_change_back() -> None:
    async def scene(committer: Committer, disk: Disk, _flushes: list[Flush]) -> None:
        first = asyncio.ensure_future(committer.apply(tag("a")))
        await turn()
        first.cancel()
        second = asyncio.ensure_future(committer.apply(tag("b")))
        await turn()
        disk.may_write.release()
        disk.may_write.release()
        await second

    assert play(scene).tags == [["a"], ["a", "b"]]
