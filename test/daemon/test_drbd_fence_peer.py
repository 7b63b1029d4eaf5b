"""The helper that DRBD runs when a node loses the other copy, with a real etcd and drivers in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes.drbd_kernel import Kernel
from rig import etcd
from rig.etcd import Member

from ganeti.availability.records import OUTDATED, Outdated
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.cli.tools import drbd_fence_peer
from ganeti.cli.tools.drbd_fence_peer import PEER_IS_OUTDATED, Guard
from ganeti.clients.etcd import Delete, EtcdClient, Put
from ganeti.storage.drbd import drbdsetup
from ganeti.storage.drbd.show import Resource
from ganeti.store import availability
from ganeti.store.availability import Settings, State
from ganeti.system import clock

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")

PREFIX = "/ganeti/copies/"
PORT = 11000
IPS = ["192.0.2.1", "192.0.2.2"]
NAMES = ["a.example.com", "b.example.com"]
KEY_OF_A, KEY_OF_B = (f"{OUTDATED}{name}/{PORT}" for name in NAMES)
REFUSED = 1


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Member]]:
    with etcd.members(tmp_path_factory.mktemp("etcd"), 1) as members:
        yield members


class Side:
    """A node with one half of a disk."""

    def __init__(self, number: int, directory: Path, wire: list[Kernel]) -> None:
        directory.mkdir()
        self.directory, self.number = directory, number
        self.kernel = Kernel(directory, wire)
        self.paths = Paths(str(directory / "root"))
        for path in (self.paths.data_dir, self.paths.run_dir):
            Path(path).mkdir(parents=True)
        ips = "".join(f"{name} {ip}\n" for name, ip in zip(NAMES, IPS, strict=True))
        Path(self.paths.data_dir, "ssconf_node_secondary_ips").write_text(ips)

    def make(self) -> None:
        own, peer = (f"ipv4:{IPS[index]}:{PORT}" for index in (self.number, 1 - self.number))
        meta = str(self.directory / "meta")
        for words in (
            ["drbdmeta", "--force", "0", "v08", meta, "0", "create-md"],
            ["drbdsetup", "new-resource", "resource0"],
            ["drbdsetup", "new-minor", "resource0", "0", "0"],
            ["drbdsetup", "attach", "0", str(self.directory / "data"), meta, "0"],
            ["drbdsetup", "connect", "resource0", own, peer],
        ):
            assert self.kernel.run(words).status == 0


class Two:
    """Both nodes, and the etcd that they ask."""

    def __init__(self, directory: Path, url: str, patch: pytest.MonkeyPatch) -> None:
        wire: list[Kernel] = []
        self.sides = [Side(number, directory / f"node{number}", wire) for number in (0, 1)]
        for side in self.sides:
            side.make()
        assert self.sides[0].kernel.run(["drbdsetup", "primary", "0", "--force"]).status == 0
        self.sides[0].kernel.finish_sync()
        self.sides[1].kernel.finish_sync()
        self.url, self._patch = url, patch
        self.settings(url)

    def settings(self, url: str) -> None:
        for side in self.sides:
            given = Settings(endpoints=[url], prefix=PREFIX)
            Path(side.paths.high_availability).write_bytes(dumps(given))

    def on(self, number: int) -> Guard:
        side = self.sides[number]
        self._patch.setattr(drbdsetup.process, "run", side.kernel.run)
        self._patch.setattr(drbdsetup, "PROC_DRBD", str(side.directory / "drbd"))
        return Guard(side.paths)

    def cut(self) -> None:
        for side in self.sides:
            side.kernel.wire = [side.kernel]
            side.kernel.tell()

    def join(self) -> None:
        wire = [side.kernel for side in self.sides]
        for side in self.sides:
            side.kernel.wire = wire
        for side in self.sides:
            side.kernel.tell()

    def records(self) -> dict[str, Outdated]:
        async def read() -> dict[str, Outdated]:
            async with EtcdClient([self.url], None, PREFIX, 10.0) as client:
                return (await client.read()).below("", Outdated)

        return asyncio.run(read())

    def change(self, *changes: Put | Delete) -> None:
        async def do() -> None:
            async with EtcdClient([self.url], None, PREFIX, 10.0) as client:
                assert await client.change([], *changes)

        asyncio.run(do())


@pytest.fixture
def two(tmp_path: Path, one: Sequence[Member], monkeypatch: pytest.MonkeyPatch) -> Two:
    made = Two(tmp_path, one[0].url, monkeypatch)
    monkeypatch.setattr(drbd_fence_peer, "_PROMOTION_S", 0.5)
    monkeypatch.setattr(drbd_fence_peer, "_MOMENT_S", 0.0)
    deadline_s = clock.monotonic() + 30
    while True:
        try:
            made.change(Delete(KEY_OF_A), Delete(KEY_OF_B))
            break
        except GenericError:  # it has only begun
            assert clock.monotonic() < deadline_s
            clock.pause(0.1)
    return made


def test_of_two_that_lost_each_other_one_goes_on(two: Two) -> None:
    two.cut()
    assert two.on(0).fence("resource0") == PEER_IS_OUTDATED
    assert list(two.records()) == [KEY_OF_B]
    assert two.records()[KEY_OF_B].by == NAMES[0]
    # The copy that was left behind cannot become the primary one any more.
    assert two.on(1).fence("resource0") == REFUSED
    assert list(two.records()) == [KEY_OF_B]
    # The one that went on may lose it again.
    assert two.on(0).fence("resource0") == PEER_IS_OUTDATED


def test_a_copy_whose_primary_node_is_lost_becomes_it(two: Two) -> None:
    two.cut()
    assert two.on(1).fence("resource0") == PEER_IS_OUTDATED
    assert list(two.records()) == [KEY_OF_A]


def test_a_record_is_taken_back_when_both_are_the_same(two: Two) -> None:
    two.cut()
    assert two.on(0).fence("resource0") == PEER_IS_OUTDATED
    asyncio.run(two.on(0).settle())
    assert list(two.records()) == [KEY_OF_B]  # not connected yet
    two.join()
    asyncio.run(two.on(1).settle())
    assert list(two.records()) == [KEY_OF_B]  # the other node wrote it
    asyncio.run(two.on(0).settle())
    assert two.records() == {}


def test_a_copy_that_was_lost_before_high_availability_was_switched_on_is_written_off(
    two: Two,
) -> None:
    """The driver asks only when it loses one; and the old copy would be started from."""
    two.cut()
    asyncio.run(two.on(1).settle())
    assert two.records() == {}  # nothing is written there
    asyncio.run(two.on(0).settle())
    assert list(two.records()) == [KEY_OF_B]
    assert two.records()[KEY_OF_B].by == NAMES[0]
    assert two.on(1).fence("resource0") == REFUSED
    asyncio.run(two.on(0).settle())
    assert list(two.records()) == [KEY_OF_B]
    two.join()
    asyncio.run(two.on(0).settle())
    assert two.records() == {}


def test_a_copy_that_a_job_is_about_to_connect_is_not_written_off(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.cut()
    monkeypatch.setattr(drbd_fence_peer, "_MOMENT_S", 1.0)
    guard = two.on(0)
    joining = threading.Timer(0.5, two.join)
    joining.start()
    asyncio.run(guard.settle())
    joining.join()
    assert two.records() == {}


def test_what_is_outdated_itself_writes_nothing_off(two: Two) -> None:
    two.change(Put(KEY_OF_A, dumps(Outdated(by=NAMES[1]).to_wire())))
    two.cut()
    asyncio.run(two.on(0).settle())
    assert list(two.records()) == [KEY_OF_A]


@pytest.mark.parametrize("number", [0, 1])
def test_a_record_of_a_node_that_has_no_copy_any_more_is_taken_back_by_either(
    two: Two, number: int
) -> None:
    record = dumps(Outdated(by="c.example.com").to_wire())
    two.change(Put(KEY_OF_A, record), Put(KEY_OF_B, record))
    two.cut()
    asyncio.run(two.on(number).settle())
    assert list(two.records()) == [KEY_OF_A, KEY_OF_B]  # nobody knows whether they are the same
    two.join()
    asyncio.run(two.on(number).settle())
    assert two.records() == {}


def test_a_record_that_is_written_meanwhile_stays(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.cut()
    assert two.on(0).fence("resource0") == PEER_IS_OUTDATED
    two.join()
    guard, look = two.on(0), drbdsetup.view

    def lose_it_again() -> drbdsetup.View:
        seen = look()
        again = threading.Thread(target=guard.fence, args=("resource0",))
        again.start()  # the kernel starts another process
        again.join(30)
        return seen

    monkeypatch.setattr(drbdsetup, "view", lose_it_again)
    asyncio.run(guard.settle())
    assert list(two.records()) == [KEY_OF_B]


def test_without_etcd_nothing_is_written_until_the_copy_is_back(two: Two) -> None:
    two.settings("http://127.0.0.1:1")
    two.cut()
    guard, found = two.on(0), []
    waiting = threading.Thread(target=lambda: found.append(guard.fence("resource0")))
    waiting.start()
    waiting.join(3.0)
    assert waiting.is_alive()
    two.join()
    waiting.join(30)
    assert found == [REFUSED]
    assert two.records() == {}


def test_without_etcd_it_goes_on_once_most_nodes_have_vouched_and_etcd_hears_of_it_first(
    two: Two,
) -> None:
    two.settings("http://127.0.0.1:1")
    two.cut()
    guard, found = two.on(0), []

    def vouch(vouched_s: float, trouble: str) -> None:
        state = State(time=clock.monotonic(), etcd=trouble, vouched=vouched_s)
        availability.write_state(two.sides[0].paths, state)

    vouch(clock.monotonic(), "silent")  # before the loss: worth nothing
    waiting = threading.Thread(target=lambda: found.append(guard.fence("resource0")))
    waiting.start()
    waiting.join(1.0)
    vouch(clock.monotonic(), "")  # the agent reaches etcd: this program will, too
    waiting.join(1.0)
    assert waiting.is_alive()
    vouch(clock.monotonic(), "silent")
    waiting.join(30)
    assert found == [PEER_IS_OUTDATED]
    two.settings(two.url)
    asyncio.run(two.on(0).settle())
    assert list(two.records()) == [KEY_OF_B]
    two.join()
    two.change(Delete(KEY_OF_B))
    asyncio.run(two.on(0).settle())  # it is told once
    assert two.records() == {}


def test_a_node_that_etcd_alone_does_not_answer_goes_on_only_if_nobody_condemned_it_since(
    two: Two,
) -> None:
    """Others vouch until etcd has forgotten it; then the other copy would start without a record."""
    two.settings("http://127.0.0.1:1")
    two.cut()
    guard, found = two.on(0), []
    began_s, noticed_s = clock.monotonic(), Settings(endpoints=[], prefix="").timing.noticed_s

    def vouch(known_s: float) -> None:
        now_s = clock.monotonic()
        state = State(time=now_s, etcd="silent", vouched=now_s, known=known_s)
        availability.write_state(two.sides[0].paths, state)

    vouch(began_s)
    waiting = threading.Thread(target=lambda: found.append(guard.fence("resource0")))
    waiting.start()
    waiting.join(1.0)
    vouch(began_s)
    waiting.join(2.0)
    assert waiting.is_alive(), "its lease may stand yet"
    vouch(began_s - noticed_s)
    waiting.join(30)
    assert found == [PEER_IS_OUTDATED]


def test_a_look_that_fails_once_does_not_stop_all_writes(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.cut()
    guard, look, failures = two.on(0), drbdsetup.resources, [OpPrereqError("no memory")]

    def sometimes() -> list[Resource]:
        if failures:
            raise failures.pop()
        return look()

    monkeypatch.setattr(drbdsetup, "resources", sometimes)
    assert guard.fence("resource0") == PEER_IS_OUTDATED
    assert list(two.records()) == [KEY_OF_B]


def test_a_resource_that_nobody_knows_is_not_written_off(two: Two) -> None:
    with pytest.raises(OpPrereqError, match="nobody knows which nodes have copies of resource7"):
        two.on(0).fence("resource7")


def test_without_high_availability_dbrd_does_as_ever(two: Two) -> None:
    Path(two.sides[0].paths.high_availability).unlink()
    assert two.on(0).fence("resource0") == PEER_IS_OUTDATED
    asyncio.run(two.on(0).settle())
    assert two.records() == {}
