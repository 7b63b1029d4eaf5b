"""What the keeper answers when the files behind it cannot all be written."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from fakes.large_config import disk, instance, large_config_bytes, uuid_of

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.config import changes
from ganeti.config.index import CLUSTER_ID
from ganeti.config.instances import create_instance
from ganeti.config.state import Flush
from ganeti.config.transaction import Transaction
from ganeti.daemon.context import DaemonContext
from ganeti.jobs.votes import SERIAL_LEAP, Answer, Poll
from ganeti.locking.names import parse_request
from ganeti.protocol.node_rpc_values import NodeFacts
from ganeti.protocol.wconfd import ClientId, LockMode
from ganeti.store.config_file import write_config
from ganeti.system import files
from ganeti.system.filelock import LiveLock
from ganeti.wconfd import main, signalling
from ganeti.wconfd.keeper import Keeper
from ganeti.wconfd.volatile import VolatileFile

NODE = uuid_of("node", 1)
OWNER = ClientId(7, "/var/run/ganeti/livelocks/job_000007_1", 1)


def play(
    directory: Path, scene: Callable[[Keeper], Awaitable[None]], *, has_journal: bool = False
) -> Keeper:
    """Run a scene with a keeper of a small configuration."""
    paths = Paths(str(directory))
    files.ensure_directory(paths.data_dir)
    files.ensure_directory(paths.livelock_dir)
    write_config(paths, large_config_bytes(1))
    keeper = Keeper(paths, main.read_files(paths), has_journal=has_journal)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(keeper.committer.run())
            await scene(keeper)
            writing.cancel()

    asyncio.run(run())
    keeper.close()
    return keeper


def add_instance(transaction: Transaction) -> None:
    one = disk(5, NODE)
    create_instance(transaction, {**instance(5, NODE, [one["uuid"]]), "network_port": 11000}, [one])


def test_a_durable_change_succeeds_though_its_reservations_cannot_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_space() -> None:
        raise GenericError("cannot write")

    async def scene(keeper: Keeper) -> None:
        assert keeper.reservations.allocate_port(keeper.state.head, OWNER) == 11000
        monkeypatch.setattr(keeper, "save_reservations", no_space)
        await keeper.change(add_instance)

    keeper = play(tmp_path, scene)
    assert keeper.durable.resolve("instances", "inst5") == uuid_of("instance", 5)


def test_ports_given_back_wait_for_a_change_that_succeeds(tmp_path: Path) -> None:
    async def scene(keeper: Keeper) -> None:
        for port in (11000, 11001):
            assert keeper.reservations.allocate_port(keeper.state.head, OWNER) == port
        keeper.reservations.release_port(OWNER, 11000)
        await keeper.change(lambda change: changes.modify(change, "cluster", "", {}))
        with pytest.raises(GenericError):
            await keeper.change(
                lambda change: changes.modify(change, "cluster", "", {"mac_prefix": "zz"})
            )
        assert keeper.reservations.dropped_ports == {11000}
        highest = {"highest_used_port": 11001}
        await keeper.change(lambda change: changes.modify(change, "cluster", "", highest))
        assert keeper.reservations.dropped_ports == set()

    assert play(tmp_path, scene).durable.cluster.tcpudp_port_pool == [11000]


INSTANCE_LOCK = "instance/inst0.example.com"
WANTED = parse_request([[INSTANCE_LOCK, "exclusive"]])


async def hand_over(keeper: Keeper, waiter: ClientId) -> None:
    """Let somebody give up a lock that a client waits for by the old call."""
    holder = ClientId(1, f"{keeper.paths.livelock_dir}/holder", 1)
    with LiveLock.create(holder.livelock), LiveLock.create(waiter.livelock):
        assert not await keeper.locks.try_update(holder, WANTED)
        assert await keeper.locks.update_waiting(waiter, 0, WANTED) == {holder}
        keeper.locks.allocation.release(holder, [INSTANCE_LOCK])
        async with asyncio.timeout(60):
            await keeper.locks.save()
            assert keeper.locks.allocation.covers(waiter, INSTANCE_LOCK, LockMode.EXCLUSIVE)
            await keeper.locks.save()  # as the watch over owners does every second


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the processes that got a signal."""
    found: list[int] = []
    monkeypatch.setattr(signalling.os, "kill", lambda pid, _signal: found.append(pid))
    return found


def waiter_of(directory: Path, pid: int) -> ClientId:
    return ClientId("old", f"{Paths(str(directory)).livelock_dir}/waiter", pid)


def test_a_waiter_gets_one_signal(tmp_path: Path, signalled: list[int]) -> None:
    play(tmp_path, lambda keeper: hand_over(keeper, waiter_of(tmp_path, 77777)))
    assert signalled == [77777]


def test_a_pid_that_cannot_be_one_keeps_nobody_waiting(tmp_path: Path) -> None:
    play(tmp_path, lambda keeper: hand_over(keeper, waiter_of(tmp_path, 10**12)))


def test_a_signal_is_sent_once_it_is_known_that_the_waiter_lives(
    tmp_path: Path, signalled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter = waiter_of(tmp_path, 77777)

    async def scene(keeper: Keeper) -> None:
        looks: list[ClientId] = []
        is_alive = keeper.owners.is_alive

        def look(owner: ClientId) -> bool:
            looks.append(owner)
            if len(looks) == 2:  # the first is before it gets the lock
                raise OSError(errno.EMFILE, "Too many open files")
            return is_alive(owner)

        monkeypatch.setattr(keeper.owners, "is_alive", look)
        await hand_over(keeper, waiter)
        assert len(looks) == 3

    play(tmp_path, scene)
    assert signalled == [77777]


@pytest.mark.parametrize("place", ["encode", "written"])
def test_a_mistake_in_a_write_keeps_nobody_waiting(tmp_path: Path, place: str) -> None:
    def mistake() -> None:
        raise ValueError("a mistake")

    def encode() -> bytes:
        if place == "encode":
            mistake()
        return b"new"

    async def run() -> None:
        mistakes: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, found: mistakes.append(found["exception"]))
        path = str(tmp_path / "file")
        written = mistake if place == "written" else lambda: None
        file = VolatileFile(path, b"", encode, lambda _content: None, written)
        async with asyncio.timeout(60):
            results = await asyncio.gather(file.save(), file.save(), return_exceptions=True)
        is_written = place == "written"
        assert [result is None for result in results] == [is_written] * 2
        assert (file.content == b"new") == is_written
        assert len(mistakes) == 1
        file.close()

    asyncio.run(run())


OWN_NAME = "node1.example.com"
CONTEXT = cast("DaemonContext", SimpleNamespace(paths=None, hostname=OWN_NAME))
NO_RPC = cast("AsyncNodeRpcClient", None)
RAISED = 5000 + SERIAL_LEAP + 1


@pytest.fixture
def other_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another node have a configuration with serial number 5000."""

    async def poll(*_args: object) -> Poll:
        own = Answer(OWN_NAME, NodeFacts(master_name=OWN_NAME))
        other = Answer("other", NodeFacts(master_name="other", config_serial=5000))
        return Poll(OWN_NAME, [OWN_NAME, "other"], {OWN_NAME: own, "other": other})

    monkeypatch.setattr(main, "poll_everybody", poll)


def touch(transaction: Transaction) -> None:
    transaction.touch(CLUSTER_ID)


async def overrule(keeper: Keeper) -> None:
    await main._overrule(CONTEXT, keeper, NO_RPC)


@pytest.mark.usefixtures("other_is_ahead")
@pytest.mark.parametrize("has_journal", [False, True])
def test_overruling_outlasts_a_change_that_is_being_written(
    tmp_path: Path,
    has_journal: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    async def scene(keeper: Keeper) -> None:
        state, write = keeper.state, keeper.committer._write

        def slow(flush: Flush) -> int:
            begun.set()
            assert goes_on.wait(60)
            return write(flush)

        monkeypatch.setattr(keeper.committer, "_write", slow)
        before = state.version
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keeper.change(touch))
            assert await asyncio.to_thread(begun.wait, 60)
            tasks.create_task(overrule(keeper))
            await asyncio.sleep(0)
            assert state.has_changes
            assert (state.version, state.serial_no) == (before, before.serial_no)
            assert "was raised" not in caplog.text
            goes_on.set()
        assert state.serial_no == state.version.serial_no == RAISED
        assert f"this one had {before.serial_no}, and was raised to {RAISED}" in caplog.text
        await keeper.change(touch)

    keeper = play(tmp_path, scene, has_journal=has_journal)
    assert main.read_files(keeper.paths).config.serial_no == RAISED + 1


@pytest.mark.usefixtures("other_is_ahead")
def test_overruling_is_left_to_the_next_change_if_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(keeper: Keeper) -> None:
        before = keeper.state.serial_no

        def full(_flush: Flush) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as failing:
            failing.setattr(keeper.committer, "_write", full)
            await overrule(keeper)
        assert keeper.state.serial_no == before
        assert "raised above it by the next change" in caplog.text
        await keeper.change(touch)
        assert keeper.state.serial_no == RAISED
        await overrule(keeper)  # nobody is ahead any more
        assert keeper.state.serial_no == RAISED

    play(tmp_path, scene)
