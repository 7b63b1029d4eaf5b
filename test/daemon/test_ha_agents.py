"""Agents of high availability with a real etcd: real leases, real datagrams, real time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes.hung_file import hung_meanwhile
from fakes.noded_node import free_address
from rig import etcd
from rig.etcd import Member

from ganeti.availability.mastership import Report
from ganeti.availability.proof import Power
from ganeti.availability.records import (
    ACTING,
    ALONE_KEY,
    GUARDS,
    LOSSES,
    MASTER_KEY,
    NODES,
    OUTDATED,
    PAUSE_KEY,
    Guard,
    Loss,
    Mastership,
    Outdated,
    Pause,
    Proof,
)
from ganeti.availability.timing import Timing
from ganeti.base.errors import GenericError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.clients.etcd import Delete, EtcdClient, Put, Snapshot, Unchanged
from ganeti.ha import agent as ha_agent
from ganeti.ha.agent import Agent, Means
from ganeti.ha.disk import Place
from ganeti.ha.facts import Facts
from ganeti.ha.friends import PORT, Ask, Friends, Question, seal
from ganeti.ha.watchdog import Watchdog
from ganeti.store.availability import State
from ganeti.store.lease_disk import prepare

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")

TIMING = Timing(lease_s=2.0, beat_s=0.25, answer_s=1.0, watchdog_s=1.0, margin_s=0.5, retry_s=1.0)
LONGER = Timing(lease_s=4.0, beat_s=0.5, answer_s=1.5, watchdog_s=3.0, margin_s=1.0, retry_s=1.0)
# For what is to live on while machines under test are busy.
ROOMY = Timing(lease_s=5.0, beat_s=0.5, answer_s=3.0, watchdog_s=3.0, margin_s=1.0, retry_s=1.0)
DEADLINE_S = 60.0
NAMES = ("n1", "n2", "n3", "n4", "n5")
ADDRESSES = {name: free_address() for name in NAMES}
NOBODY = free_address()
PREFIX = "/ganeti/test/"
OLD_QUESTIONS = ((Ask.CONDEMN, "n5.0"), (Ask.VOUCH, "n5.1"))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Member]]:
    with etcd.members(tmp_path_factory.mktemp("etcd")) as members:
        yield members


class Dog(Watchdog):
    """Barks when it was not fed for too long."""

    def __init__(self, timeout_s: float) -> None:
        self.identity, self.timeout_s = "dog", timeout_s
        self.fed_s = time.monotonic()
        self.is_over = False

    def feed(self, until_s: float) -> None:
        if not self.is_over and not self.has_reset:
            assert time.monotonic() < until_s
            self.fed_s = time.monotonic()

    def change(self, timeout_s: float, until_s: float) -> None:
        self.timeout_s = timeout_s

    def let_go(self) -> None:
        """It is fed no more: the agent is about to write that down."""

    def end(self) -> None:
        self.is_over = True

    @property
    def has_reset(self) -> bool:
        return not self.is_over and time.monotonic() > self.fed_s + self.timeout_s


@dataclass
class FakeHands:
    """The world of one agent."""

    own: str
    world: World
    dog: Dog | None = None
    has_watchdog: bool = True
    device: str = "dog"
    was_condemned: bool = False
    jump_s: float = 0.0
    published: State | None = None
    was_there: bool = False
    jobs: bool = False
    settlings: int = 0
    holds_up: asyncio.Event | None = None

    def now(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time() + self.jump_s

    def is_master(self) -> bool:
        return self.world.master == self.own

    def has_jobs(self) -> bool:
        return self.jobs

    def arm(self, timeout_s: float, until_s: float) -> Watchdog | None:
        assert time.monotonic() < until_s
        self.was_there = self.world.agents[self.own].shelf is not None
        if self.has_watchdog:
            self.dog = Dog(timeout_s)
        return self.dog

    async def publish(self, state: State) -> None:
        self.published = state

    def reports(self) -> list[Report]:
        """The daemons of the master know at once which candidates are up."""
        state = self.published
        lacking = [name for name in self.world.candidates if name not in self.world.agents]
        return [] if state is None else [Report(state.time, lacking)] * 2

    @property
    def watchdog(self) -> str:
        return self.device

    def place_on_disk(self, node: str) -> Place | None:
        disk = self.world.disk
        number = NAMES.index(node)
        return None if disk is None else Place(f"{disk}/disk", True, "cluster", "lease", number)

    def condemned(self) -> None:
        self.was_condemned = True

    async def fail_over(self) -> bool:
        await asyncio.sleep(0.2)
        self.world.master = self.own
        self.world.tell_all()
        return True

    async def settle(self) -> bool:
        self.settlings += 1
        if self.holds_up is not None:
            await self.holds_up.wait()
        return True

    async def switch_off(self, node: str) -> tuple[Power, str]:
        self.world.kill(node)
        return Power.OFF, ""


@dataclass
class World:
    """Five nodes and their agents."""

    urls: list[str]
    master: str = "n1"
    helped: frozenset[str] = frozenset()
    timing: Timing = TIMING
    candidates: frozenset[str] = frozenset(NAMES[:3])
    disk: Path | None = None
    agents: dict[str, Agent] = field(default_factory=dict)
    hands: dict[str, FakeHands] = field(default_factory=dict)
    tasks: dict[str, list[asyncio.Task[None]]] = field(default_factory=dict)

    def facts(self) -> Facts:
        return Facts(self.master, ADDRESSES, self.candidates, (), self.helped)

    def tell_all(self) -> None:
        for agent in self.agents.values():
            agent.facts = self.facts()

    async def start(self, name: str, boot_id: str = "", **more: Any) -> Agent:
        await asyncio.sleep(0)  # the socket of the one before is closed in the next turn
        hands = self.hands[name] = FakeHands(name, self, **more)
        client = EtcdClient(self.urls, None, PREFIX, 1.0)
        agent = Agent(name, boot_id or f"{name}.1", self.timing, self.facts(), client, hands)
        friends = Friends(name, b"key", secrets.token_hex, agent.answer)
        address = self.facts().addresses[name]
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: friends, local_addr=(address, PORT))
        agent.friends = friends
        self.agents[name] = agent
        self.tasks[name] = [asyncio.create_task(agent.feed()), asyncio.create_task(agent.beats())]
        return agent

    def cut_off(self, name: str) -> None:
        """The node loses its network, but not the disk."""
        agent = self.agents[name]
        agent.etcd = EtcdClient([f"http://{NOBODY}:9"], None, PREFIX, 0.5)
        assert agent.friends is not None
        agent.friends.close()

    def kill(self, name: str) -> None:
        """The node loses its power."""
        for task in self.tasks.pop(name, []):
            task.cancel()
        agent = self.agents.pop(name, None)
        if agent is not None:
            agent.end_disk()
            assert agent.friends is not None
            agent.friends.close()

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not what():
                for tasks in self.tasks.values():
                    for task in tasks:
                        if task.done() and not task.cancelled():
                            task.result()
                await asyncio.sleep(0.05)

    async def read(self) -> Snapshot:
        async with EtcdClient(self.urls, None, PREFIX, 2.0) as client:
            return await client.read()

    async def change(self, *changes: Put | Delete) -> None:
        async with EtcdClient(self.urls, None, PREFIX, 2.0) as client:
            await client.change([], *changes)


@contextlib.asynccontextmanager
async def five(three: Sequence[Member], **more: Any) -> AsyncIterator[World]:
    """Five agents, all present."""
    world = World([member.url for member in three], **more)
    async with EtcdClient(world.urls, None, PREFIX, 2.0) as client:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    left = (await client.read()).entries
                    break
                except GenericError:
                    await asyncio.sleep(0.1)
            await client.change([], *(Delete(key) for key in left))
    for name in NAMES:
        await world.start(name)
    try:
        await world.until(lambda: is_present(world, NAMES) and holder(world) == "n1")
        yield world
    finally:
        for name in NAMES:
            world.kill(name)
        await asyncio.sleep(0)


def is_present(world: World, names: Sequence[str]) -> bool:
    shelf = world.agents["n2"].shelf
    return shelf is not None and all(NODES + name in shelf.entries for name in names)


def holder(world: World) -> str:
    for agent in world.agents.values():
        if agent.shelf is not None and (found := agent.shelf.one(MASTER_KEY, Mastership)):
            return found.node
    return ""


def alone(world: World) -> tuple[str, str]:
    """Return who is alone: as etcd has it, and as the daemons of the master hear it."""
    agent, told = world.agents["n1"], world.hands["n1"].published
    shelf = agent.shelf
    found = None if shelf is None else shelf.one(ALONE_KEY, Mastership)
    return ("" if found is None else found.node, "" if told is None else told.alone)


def is_both(world: World) -> bool:
    """Tell whether n1 is the master again, and n2 hears that nobody is alone any more."""
    shelf = world.agents["n2"].shelf
    return shelf is not None and holder(world) == "n1" and ALONE_KEY not in shelf.entries


def is_told_master(world: World, name: str) -> bool:
    """Tell whether the daemons of a node hear that it holds the master's lease."""
    state = world.hands[name].published
    return state is not None and state.is_master(time.monotonic())


def absent(world: World) -> list[str] | None:
    """Return the nodes on which the master is told to start nothing."""
    state = world.hands["n1"].published
    return None if state is None else state.absent


def loss_of(world: World, name: str, by: str = "n1") -> Loss | None:
    shelf = world.agents[by].shelf
    return None if shelf is None else shelf.one(LOSSES + name, Loss)


def proof_of(world: World, name: str, by: str = "n1") -> Proof | None:
    loss = loss_of(world, name, by)
    return None if loss is None else loss.proof


def run(play: Awaitable[None]) -> None:
    async def whole() -> None:
        await play

    asyncio.run(whole())


def test_a_node_without_power_is_proved_dead_after_its_watchdog(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world:
            dog = world.hands["n5"].dog
            world.kill("n5")
            await world.until(lambda: proof_of(world, "n5") is not None)
            assert proof_of(world, "n5") is Proof.WATCHDOG
            assert dog is not None
            assert dog.has_reset
            # Whatever boots there now: the proof would cover it, so nothing is to start.
            await world.until(lambda: absent(world) == ["n5"])
            # The same boot never comes back; the next one does.
            again = await world.start("n5", "n5.1")
            await world.until(lambda: world.hands["n5"].was_condemned)
            assert not again.keeper.may_feed(time.monotonic())
            world.kill("n5")
            await world.start("n5", "n5.2")
            await world.until(lambda: is_present(world, NAMES))
            # One that is about to become the master knows it, too.
            state = world.hands["n2"].published
            assert state is not None
            assert state.absent == ["n5"]
            # It is back, but jobs about its loss may still set it offline.
            beaten = world.hands["n1"].published
            await world.until(lambda: world.hands["n1"].published is not beaten)
            assert absent(world) == ["n5"]
            await world.change(Delete(LOSSES + "n5"))
            await world.until(lambda: absent(world) == [])
            await world.agents["n5"].leave()  # nobody will prove it dead
            await world.until(lambda: not is_present(world, ["n5"]))
            assert absent(world) == []

    run(play())


def test_what_etcd_keeps_of_a_large_cluster_is_erased_and_nothing_else(
    three: Sequence[Member],
) -> None:
    """There are more keys than etcd takes changes at a time."""

    async def play() -> None:
        async with (
            five(three) as world,
            EtcdClient(world.urls, None, "/a/", 10.0) as one,
            EtcdClient(world.urls, None, "/b/", 10.0) as other,
        ):
            for kind in (GUARDS, NODES, LOSSES):
                await one.change([], *(Put(f"{kind}n{number}", b"{}") for number in range(60)))
            await other.change([], Put("n1", b"{}"))
            await one.erase()
            await one.erase()
            assert (await one.read()).entries == {}
            assert (await other.read()).entries.keys() == {"n1"}

    run(play())


def test_old_questions_of_a_dead_node_do_not_keep_it_alive(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world:
            world.kill("n5")
            old = [Question(ask, "old", "n5", boot) for ask, boot in OLD_QUESTIONS]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as replayer:

                def is_proved() -> bool:
                    for question in old:
                        for address in world.facts().addresses.values():
                            replayer.sendto(seal(b"key", question), (address, PORT))
                    return proof_of(world, "n5") is not None

                await world.until(is_proved)

    run(play())


def test_an_old_question_does_not_make_a_node_that_answers_look_lost(
    three: Sequence[Member],
) -> None:
    async def play() -> None:
        async with five(three) as world:
            agent = world.agents["n1"]
            await world.until(lambda: agent._seen() == {*NAMES})
            agent.answer(Question(Ask.CONDEMN, "old", "n5", "n5.1"))
            assert agent._seen() == {*NAMES}

    run(play())


def test_a_friend_that_counts_by_other_nodes_does_not_vouch(three: Sequence[Member]) -> None:
    """Most nodes of an older list may have no node in common with most of the master's."""

    async def play() -> None:
        async with five(three) as world:
            agent = world.agents["n5"]
            settled_s = time.monotonic() + TIMING.held_s  # they vouch from then on
            await world.until(lambda: time.monotonic() > settled_s)
            for name in ("n2", "n3"):
                known = {**ADDRESSES, "n6": NOBODY}
                world.agents[name].facts = replace(world.facts(), addresses=known)
            assert agent.friends is not None
            others = {name: ADDRESSES[name] for name in NAMES[:4]}
            told = await agent.friends.ask(
                *(Ask.VOUCH, "n5", agent.boot_id, others, DEADLINE_S),
                enough=lambda answers: len(answers) == len(others),
                nodes=agent.facts.digest,
            )
            assert told == {"n1": True, "n2": False, "n3": False, "n4": True}
            other = world.agents["n2"].facts.digest
            await world.until(lambda: guard_of(world, "n2").nodes == other)
            assert guard_of(world, "n5").nodes == agent.facts.digest != other

    run(play())


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    prepare(Paths(str(tmp_path)), "/disk", "cluster", "lease", 8)
    return tmp_path


def is_on_disk(world: World, names: Sequence[str]) -> bool:
    """Tell whether etcd knows that these nodes live on by the disk, too."""
    return all(guard_of(world, name).disk == "lease" for name in names)


def test_a_node_that_is_cut_off_says_on_the_disk_that_it_gives_up(
    three: Sequence[Member], disk: Path
) -> None:
    async def play() -> None:
        async with five(three, disk=disk, timing=ROOMY) as world:
            await world.until(lambda: is_on_disk(world, NAMES))
            dog = world.hands["n5"].dog
            world.cut_off("n5")
            await world.until(lambda: proof_of(world, "n5") is not None)
            assert proof_of(world, "n5") is Proof.DISK
            assert dog is not None
            assert dog.has_reset
            assert world.hands["n5"].was_condemned
            assert not any(world.hands[name].was_condemned for name in NAMES[:4])

    run(play())


def test_without_any_network_nodes_live_on_by_the_disk(three: Sequence[Member], disk: Path) -> None:
    async def play() -> None:
        async with five(three, disk=disk, timing=ROOMY) as world:
            await world.until(lambda: is_on_disk(world, NAMES))
            for name in NAMES:
                world.cut_off(name)
            await asyncio.sleep(1.5 * (ROOMY.lease_s + ROOMY.watchdog_s))
            assert not any(hands.dog and hands.dog.has_reset for hands in world.hands.values())
            told = [hands.published for hands in world.hands.values()]
            assert all(state is not None and state.etcd and state.disk == "" for state in told)
            silent_s = [time.monotonic() - state.known for state in told if state is not None]
            assert all(0 < each_s < DEADLINE_S for each_s in silent_s)
            os.truncate(disk / "disk", 0)  # and then the disk is lost, too
            await world.until(lambda: all(h.dog and h.dog.has_reset for h in world.hands.values()))

    run(play())


def test_a_disk_that_hangs_keeps_nobody_waiting_and_comes_back(
    three: Sequence[Member], disk: Path
) -> None:
    async def play() -> None:
        async with five(three, disk=disk, timing=ROOMY) as world:
            await world.until(lambda: is_on_disk(world, NAMES))
            async with hung_meanwhile(disk / "disk"):
                await world.until(lambda: not any(is_on_disk(world, [name]) for name in NAMES))
                await world.until(lambda: is_present(world, NAMES))
                told = world.hands["n1"].published
                assert told is not None
                assert told.disk == "it does not answer"
                world.kill("n4")  # it is proved dead as ever
                await world.until(lambda: proof_of(world, "n4") is Proof.WATCHDOG)
            await world.until(lambda: is_on_disk(world, ("n1", "n2", "n3", "n5")))
            assert not any(world.hands[n].dog.has_reset for n in ("n1", "n2", "n3", "n5"))  # type: ignore[union-attr]

    run(play())


def test_many_nodes_are_condemned_at_once_and_nobody_waits_for_those_that_are_missed(
    three: Sequence[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other that would take longer than the master's lease."""

    async def play() -> None:
        async with five(three) as world:
            friends = world.agents["n1"].friends
            assert friends is not None
            ask, asking, most, is_enough = friends.ask, set[str](), 0, set[tuple[str, bool]]()

            async def watched(what: Ask, node: str, *args: Any, **more: Any) -> dict[str, bool]:
                nonlocal most
                if what is Ask.CONDEMN:
                    asking.add(node)
                    most = max(most, len(asking))
                    is_enough.add((node, more["enough"]({"n2": True, "n3": True})))
                    assert not more["enough"]({"n2": True})
                try:
                    return await ask(what, node, *args, **more)
                finally:
                    asking.discard(node)

            monkeypatch.setattr(friends, "ask", watched)
            world.kill("n4")
            world.kill("n5")
            for name in ("n4", "n5"):
                await world.until(lambda name=name: proof_of(world, name) is Proof.WATCHDOG)
            assert most == 2
            assert {("n4", True), ("n5", True)} <= is_enough

    run(play())


def test_an_agent_that_is_suspected_shows_itself_before_its_watchdog_runs(
    three: Sequence[Member],
) -> None:
    """Its death may be proved while it arms one, which would run for longer than is known then."""

    async def play() -> None:
        async with five(three) as world:
            assert not world.hands["n5"].was_there
            world.kill("n5")
            await world.until(lambda: loss_of(world, "n5") is not None)
            if proof_of(world, "n5") is None:  # a busy machine is slower than that
                await world.start("n5", "n5.1")
                await world.until(lambda: world.hands["n5"].dog or world.hands["n5"].was_condemned)
                assert world.hands["n5"].was_there or world.hands["n5"].was_condemned

    run(play())


def test_an_agent_that_begins_with_longer_times_shows_itself_before_its_watchdog_runs(
    three: Sequence[Member],
) -> None:
    """By what etcd knows of the one before it, the node would be proved dead too early."""

    async def play() -> None:
        async with five(three) as world:
            world.kill("n5")
            world.timing = LONGER
            await world.start("n5", "n5.1")
            await world.until(lambda: world.hands["n5"].dog)
            assert world.hands["n5"].was_there
            await world.until(
                lambda: (
                    guard_of(world, "n5").dead_after_s == LONGER.dead_after_s
                    and guard_of(world, "n5").watchdog_s == LONGER.watchdog_s
                )
            )

    run(play())


def test_other_settings_do_not_show_a_boot_that_was_proved_dead(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world:
            world.kill("n5")
            await world.until(lambda: proof_of(world, "n5") is not None)
            agent = await world.start("n5", "n5.1")
            client = EtcdClient(world.urls, None, PREFIX, 1.0)
            agent.take(Means("two", LONGER, client, world.hands["n5"]))
            await world.until(lambda: world.hands["n5"].was_condemned)
            beaten = world.hands["n5"].published
            await world.until(lambda: world.hands["n5"].published is not beaten)
            assert NODES + "n5" not in (await world.read()).entries

    run(play())


def test_a_helper_switches_a_silent_node_off(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three, helped=frozenset({"n4"})) as world:
            for task in world.tasks["n4"]:
                task.cancel()  # it hangs, and its port is silent
            friends = world.agents["n4"].friends
            assert friends is not None
            friends.close()
            await world.until(lambda: proof_of(world, "n4") is not None)
            assert proof_of(world, "n4") is Proof.FENCED
            assert "n4" not in world.agents

    run(play())


def test_a_helper_does_not_switch_off_a_node_whose_agent_starts_for_the_first_time(
    three: Sequence[Member],
) -> None:
    """High availability is switched on, or the node added, and the others were quicker."""

    async def play() -> None:
        async with five(three, helped=frozenset({"n5"})) as world:
            world.kill("n5")
            await world.change(Delete(GUARDS + "n5"), Delete(NODES + "n5"))
            await asyncio.sleep(12 * TIMING.beat_s)
            assert loss_of(world, "n5") is None
            await world.start("n5", "n5.2")
            await world.until(lambda: is_present(world, NAMES))
            assert loss_of(world, "n5") is None

    run(play())


def test_a_lost_master_is_followed_by_one_candidate(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world:
            world.kill("n1")
            world.master = "nobody"
            await world.until(lambda: world.master in ("n2", "n3"))
            new = world.master
            await world.until(lambda: is_told_master(world, new))
            assert not any(is_told_master(world, name) for name in ("n2", "n3") if name != new)
            await world.until(lambda: proof_of(world, "n1", new) is Proof.WATCHDOG)
            assert world.master == new
            assert ACTING + new in (await world.read()).entries

    run(play())


def mark_of(world: World, name: str, by: str = "n2") -> Mastership | None:
    shelf = world.agents[by].shelf
    return None if shelf is None else shelf.one(ACTING + name, Mastership)


def is_marked(world: World, since: int) -> bool:
    """Tell whether n1 has written its mark after that revision."""
    shelf = world.agents["n2"].shelf
    return (
        shelf is not None
        and shelf.revision_of(ACTING + "n1") > since
        and (mark_of(world, "n1") == MARK)
    )


MARK = Mastership(node="n1", boot_id="n1.1")


@pytest.mark.parametrize("jobs", [False, True], ids=["without jobs", "with jobs"])
def test_the_mark_of_the_master_stays_whatever_its_agent_goes_through(
    three: Sequence[Member], jobs: bool
) -> None:
    async def play() -> None:
        async with five(three) as world:
            world.hands["n1"].jobs = jobs
            await world.until(lambda: mark_of(world, "n1") == MARK)
            written = (await world.read()).entries[ACTING + "n1"]
            client = EtcdClient(world.urls, None, PREFIX, 1.0)
            world.agents["n1"].take(Means("two", LONGER, client, world.hands["n1"]))
            await world.until(lambda: world.agents["n1"].digest == "two")
            assert (await world.read()).entries[ACTING + "n1"] == written
            # Its agent is killed, and another one is there before the lease has ended.
            world.kill("n1")
            await world.start("n1", "n1.1", jobs=jobs)
            await world.until(lambda: is_told_master(world, "n1"))
            assert (await world.read()).entries[ACTING + "n1"] == written

    run(play())


def test_a_mark_that_the_master_lacks_is_written_again(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world:
            await world.until(lambda: mark_of(world, "n1") == MARK)
            before = dumps(Mastership(node="n1", boot_id="n1.0").to_wire())
            for wrong in (Delete(ACTING + "n1"), Put(ACTING + "n1", before)):
                revision = (await world.read()).revision
                await world.change(wrong)
                await world.until(lambda since=revision + 1: is_marked(world, since))

    run(play())


def test_the_mark_goes_when_the_last_job_of_an_earlier_master_has_ended(
    three: Sequence[Member],
) -> None:
    async def play() -> None:
        async with five(three) as world:
            await world.until(lambda: mark_of(world, "n1") == MARK)
            world.hands["n1"].jobs = True
            world.master = "n2"
            world.tell_all()
            await world.until(lambda: is_told_master(world, "n2"))
            # It is no candidate any more when they end.
            world.candidates = frozenset({"n2", "n3"})
            world.tell_all()
            beaten = world.hands["n1"].published
            await world.until(lambda: world.hands["n1"].published is not beaten)
            assert mark_of(world, "n1") == MARK
            world.hands["n1"].jobs = False
            await world.until(lambda: mark_of(world, "n1") is None)
            assert mark_of(world, "n2") == Mastership(node="n2", boot_id="n2.1")

    run(play())


@pytest.mark.parametrize("left", ["nothing", "jobs", "daemons"])
def test_a_master_that_stops_in_order_leaves_no_mark_unless_its_jobs_may_go_on(
    three: Sequence[Member], left: str
) -> None:
    async def play() -> None:
        async with five(three) as world:
            agent, hands = world.agents["n1"], world.hands["n1"]
            await world.until(lambda: agent.shelf is not None and agent._is_own(agent.shelf))
            await world.until(lambda: mark_of(world, "n1") == MARK)
            for task in world.tasks.pop("n1"):
                task.cancel()
            hands.jobs = left == "jobs"
            if left != "daemons":
                world.master = "nobody"
            await agent.leave()
            shelf = await world.read()
            assert shelf.one(ACTING + "n1", Mastership) == (None if left == "nothing" else MARK)
            assert shelf.one(MASTER_KEY, Mastership) is None

    run(play())


def test_an_agent_that_leaves_takes_nothing_over(three: Sequence[Member]) -> None:
    """All daemons of the master are stopped with one command, and it outlives them a moment."""

    async def play() -> None:
        async with five(three) as world:
            await world.until(lambda: holder(world) == "n1")
            agent = world.agents["n1"]
            agent.is_leaving = True
            assert agent.acts_for_master
            world.master = "nobody"
            await world.until(lambda: agent.claimant.says == "its agent is being stopped")
            await world.until(lambda: holder(world) == "")
            assert world.master == "nobody"

    run(play())


def test_of_two_candidates_the_master_says_that_it_goes_on_alone(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three, candidates=frozenset({"n1", "n2"})) as world:
            assert alone(world) == ("", "")
            world.kill("n2")
            await world.until(lambda: alone(world) == ("n1", "n1"))
            # While that stands, the other one does not follow a master that is lost.
            world.kill("n1")
            world.master = "nobody"
            two = await world.start("n2", "n2.2")
            await world.until(lambda: "went on alone" in two.claimant.says)
            world.master = "n1"
            await world.start("n1", "n1.2")
            await world.until(lambda: is_both(world))
            # Now both have everything, and it does.
            world.kill("n1")
            world.master = "nobody"
            await world.until(lambda: world.master == "n2")

    run(play())


def test_copies_are_settled_again_after_trouble_while_they_were(
    three: Sequence[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_agent, "_SETTLE_S", 0.0)

    async def play() -> None:
        async with five(three) as world:
            agent, hands = world.agents["n5"], world.hands["n5"]
            await world.until(lambda: hands.settlings)
            before = hands.settlings
            # A copy may be written off, and noted, behind the back of a look that takes long.
            hands.holds_up = asyncio.Event()
            await world.change(Put(f"{OUTDATED}n4/11000", dumps(Outdated(by="n5").to_wire())))
            await world.until(lambda: hands.settlings > before)
            await world.change(Delete(f"{OUTDATED}n4/11000"))
            urls, agent.etcd.endpoints = agent.etcd.endpoints, [f"http://{NOBODY}:9"]
            await world.until(lambda: agent.shelf is None)
            agent.etcd.endpoints = urls
            await world.until(lambda: agent.shelf is not None)
            hands.holds_up.set()
            await world.until(lambda: hands.settlings > before + 1)

    run(play())


def test_a_node_looks_to_what_is_left_about_its_copies(
    three: Sequence[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_agent, "_SETTLE_OTHERS_S", 0.0)

    async def play() -> None:
        async with five(three) as world:
            hands = world.hands["n5"]
            await world.until(lambda: hands.settlings)
            # Nobody who has a copy has written it.
            await world.change(Put(f"{OUTDATED}n5/11000", dumps(Outdated(by="n9").to_wire())))
            await world.until(lambda: hands.settlings > 5)

    run(play())


def test_without_etcd_the_nodes_live_and_nobody_is_judged(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world:
            settled_s = time.monotonic() + TIMING.held_s  # they vouch from then on
            await world.until(lambda: time.monotonic() > settled_s)
            for member in three:
                member.hang()
            try:
                await world.until(lambda: all(a.shelf is None for a in world.agents.values()))
                until_s = time.monotonic() + 2 * TIMING.lease_s + TIMING.watchdog_s
                await world.until(lambda: time.monotonic() > until_s)
                state = world.hands["n1"].published
                assert state is not None
                assert (state.holder, bool(state.etcd)) == ("n1", True)
                assert not is_told_master(world, "n1")  # nobody knows
                dogs = [hands.dog for hands in world.hands.values()]
                assert not any(dog is None or dog.has_reset for dog in dogs)
            finally:
                for member in three:
                    member.go_on()
            await world.until(lambda: is_present(world, NAMES) and holder(world) == "n1")
            assert not any(loss_of(world, name) for name in NAMES)

    run(play())


def test_a_watchdog_is_fed_in_its_time_however_rarely_its_agent_asks_etcd() -> None:
    async def play() -> None:
        timing = replace(TIMING, lease_s=40.0, beat_s=20.0)
        world = World([f"http://{NOBODY}:9"], timing=timing)
        hands = FakeHands("n1", world)
        client = EtcdClient(world.urls, None, PREFIX, 1.0)
        agent = world.agents["n1"] = Agent("n1", "n1.1", timing, world.facts(), client, hands)
        began_s = time.monotonic()
        agent.keeper.armed(began_s)
        agent._arm(timing.watchdog_s)
        feeding = asyncio.create_task(agent.feed())
        await asyncio.sleep(2.0)
        assert hands.dog is not None
        assert hands.dog.fed_s > began_s + 0.5
        feeding.cancel()
        client.close()

    run(play())


def test_a_node_that_is_cut_off_from_everything_is_not_fed(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world:
            agent, dog = world.agents["n5"], world.hands["n5"].dog
            assert agent.friends is not None
            assert dog is not None
            agent.friends.close()
            agent.etcd.endpoints[:] = ["http://127.0.0.1:1"]
            await world.until(lambda: dog.has_reset)
            await world.until(lambda: proof_of(world, "n5") is Proof.WATCHDOG)

    run(play())


def guard_of(world: World, name: str) -> Guard:
    shelf = world.agents[name].shelf
    found = None if shelf is None else shelf.one(GUARDS + name, Guard)
    return found or Guard(boot_id="")


@pytest.mark.parametrize("timing", [LONGER, TIMING], ids=["longer", "shorter"])
def test_other_times_are_taken_up_without_giving_the_lease_back(
    three: Sequence[Member], timing: Timing
) -> None:
    before = TIMING if timing is LONGER else LONGER

    async def play() -> None:
        async with five(three, timing=before) as world:
            dogs = {name: world.hands[name].dog for name in NAMES}

            def is_steady() -> bool:
                assert is_told_master(world, "n1")
                for name in NAMES:
                    agent, dog, guard = world.agents[name], dogs[name], guard_of(world, name)
                    assert dog is not None
                    assert not dog.has_reset
                    used = replace(agent.keeper.timing, watchdog_s=dog.timeout_s)
                    # The record that was read last may be older than these times, never shorter.
                    assert agent.digest == "two" or guard.dead_after_s >= used.dead_after_s - 0.001
                return all(
                    world.agents[name].digest == "two"
                    and guard_of(world, name).dead_after_s == timing.dead_after_s
                    and guard_of(world, name).watchdog_s == timing.watchdog_s
                    for name in NAMES
                )

            await world.until(lambda: is_told_master(world, "n1"))
            for name in NAMES:
                client = EtcdClient(world.urls, None, PREFIX, 1.0)
                world.agents[name].take(Means("two", timing, client, world.hands[name]))
            await world.until(is_steady)
            for name in NAMES:
                assert world.agents[name].keeper.timing == timing
                assert world.hands[name].dog is dogs[name]
            assert holder(world) == "n1"
            published = world.hands["n1"].published
            assert published is not None
            assert published.settings == "two"

    run(play())


def test_another_watchdog_takes_the_place_of_the_one_that_runs(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world:

            def take(digest: str, device: str) -> None:
                world.hands["n4"].device = device
                client = EtcdClient(world.urls, None, PREFIX, 1.0)
                world.agents["n4"].take(Means(digest, TIMING, client, world.hands["n4"]))

            first = world.hands["n4"].dog
            take("two", "another")
            await world.until(lambda: world.agents["n4"].digest == "two")
            second = world.hands["n4"].dog
            assert first is not None
            assert second is not None
            assert first.is_over
            assert not second.is_over
            take("none", "")
            await world.until(lambda: second.is_over)
            await world.until(lambda: guard_of(world, "n4").watchdog_s is None)
            take("three", "third")
            await world.until(lambda: guard_of(world, "n4").watchdog_s is not None)
            assert world.hands["n4"].dog is not second

    run(play())


def test_settings_that_come_in_the_middle_of_a_beat_are_taken_up_whole(
    three: Sequence[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with five(three) as world:
            agent, other = world.agents["n4"], EtcdClient(world.urls, None, PREFIX, 1.0)
            before, read = agent.etcd, agent.etcd.read

            async def read_and_take() -> Snapshot:
                if agent.digest != "two" and agent.etcd is before:
                    agent.take(Means("two", TIMING, other, world.hands["n4"]))
                return await read()

            monkeypatch.setattr(agent.etcd, "read", read_and_take)
            await world.until(lambda: agent.digest == "two")
            assert agent.etcd is other

    run(play())


def test_while_all_is_paused_a_node_that_is_cut_off_is_not_reset(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world, EtcdClient(world.urls, None, PREFIX, 2.0) as client:
            pause = Pause(until=time.time() + 600, by="a person", why="a new switch")
            await client.change([], Put(PAUSE_KEY, dumps(pause.to_wire())))
            dogs = {name: world.hands[name].dog for name in NAMES}
            await world.until(lambda: all(dog is not None and dog.is_over for dog in dogs.values()))
            shelf = await client.read()
            for name in NAMES:
                guard = shelf.one(GUARDS + name, Guard)
                assert guard is not None
                assert guard.watchdog_s is None
            # It is cut off, misses the end of the pause, and nothing proves that it is dead.
            lost = world.agents["n5"]
            assert lost.friends is not None
            lost.friends.close()
            lost.etcd.endpoints[:] = ["http://127.0.0.1:1"]
            await world.until(lambda: lost.shelf is None)
            await world.until(
                lambda: NODES + "n5" not in (world.agents["n1"].shelf or shelf).entries
            )
            await client.change([], Delete(PAUSE_KEY))
            await world.until(lambda: guard_of(world, "n4").watchdog_s is not None)
            await world.until(
                lambda: "nothing proves" in world.agents["n1"].judge.says.get("n5", "")
            )
            assert proof_of(world, "n5") is None
            # The others are guarded again.
            guarded = world.hands["n4"].dog
            assert guarded is not dogs["n4"]
            world.kill("n4")
            await world.until(lambda: proof_of(world, "n4") is Proof.WATCHDOG)
            assert guarded is not None
            assert guarded.has_reset
            # It hears of the end, and arms its own.
            lost.etcd.endpoints[:] = world.urls
            await world.until(lambda: guard_of(world, "n5").watchdog_s is not None)
            assert world.hands["n5"].dog is not dogs["n5"]

    run(play())


def test_clocks_that_jump_end_a_pause_and_nothing_else(three: Sequence[Member]) -> None:
    async def play() -> None:
        async with five(three) as world, EtcdClient(world.urls, None, PREFIX, 2.0) as client:
            dogs = {name: world.hands[name].dog for name in NAMES}

            async def live_on() -> None:
                until_s = time.monotonic() + TIMING.lease_s + TIMING.answer_s
                await world.until(lambda: time.monotonic() > until_s)
                assert is_present(world, NAMES)
                assert holder(world) == "n1"
                assert not any(loss_of(world, name) for name in NAMES)

            for name, jump_s in zip(NAMES, (86400.0, -86400.0, 3600.0, -3600.0, 0.0), strict=True):
                world.hands[name].jump_s = jump_s
            await live_on()
            assert not any(dog is None or dog.has_reset or dog.is_over for dog in dogs.values())
            pause = Pause(until=time.time() + 600, by="a person", why="a new switch")
            await client.change([], Put(PAUSE_KEY, dumps(pause.to_wire())))
            # For some it is over at once; the others hear of it when they are told.
            early, late = ("n1", "n3"), ("n2", "n4", "n5")
            await world.until(lambda: all(is_over(world, name) for name in late))
            await live_on()
            assert not any(is_over(world, name) for name in early)
            for name in late:
                world.hands[name].jump_s = 86400.0
            await world.until(lambda: all(guard_of(world, n).watchdog_s is not None for n in NAMES))
            await live_on()
            assert not any(is_over(world, name) for name in NAMES)

    run(play())


def is_over(world: World, name: str) -> bool:
    dog = world.hands[name].dog
    return dog is not None and dog.is_over


def test_the_daemons_hear_how_long_etcd_knows_a_node_which_may_be_longer_than_asked_for(
    three: Sequence[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its election timeout sets a limit, and may be that of a site's own."""

    async def play() -> None:
        async with five(three) as world:
            agent, hands = world.agents["n5"], world.hands["n5"]
            grant = agent.etcd.grant
            monkeypatch.setattr(agent.etcd, "grant", lambda _ttl_s: grant(40))
            agent._lease = 0
            await world.until(
                lambda: hands.published and hands.published.known > time.monotonic() + 30
            )

    run(play())


def test_conditions_leases_and_keys(three: Sequence[Member]) -> None:
    async def play() -> None:
        urls = [member.url for member in three]
        async with EtcdClient(urls, None, "/ganeti/other/", 5.0) as client:
            lease = await client.grant(5)
            assert await client.change([Unchanged("a", 0)], Put("a", b"\0\xff", lease))
            assert not await client.change([Unchanged("a", 0)], Put("a", b"2"))
            found = (await client.read()).entries["a"]
            assert (found.value, found.lease) == (b"\0\xff", lease)
            assert await client.keep_alive(lease) >= 1
            await client.revoke(lease)
            await client.revoke(lease)
            assert not await client.keep_alive(lease)
            assert (await client.read()).entries == {}
            assert all(each.leader for each in (await client.health()).values())
        async with EtcdClient(["http://127.0.0.1:1", *urls], None, "/x/", 5.0) as client:
            await client.read()
            assert client.endpoints[0] in urls

    run(play())
