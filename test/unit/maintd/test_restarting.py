"""Tests of ganeti/maintd/restarting.py: who acts on losses goes on when settings change, and rests."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ganeti.availability.records import (
    GUARDS,
    LOSSES,
    MASTER_KEY,
    OUTDATED,
    Guard,
    Loss,
    Mastership,
    Outdated,
    Proof,
)
from ganeti.availability.restarts import Guest, Limits
from ganeti.base.errors import GenericError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.clients.etcd import Entry, Put, Snapshot
from ganeti.maintd import restarting
from ganeti.maintd.acting import SETTLE_S
from ganeti.maintd.incidents import NodeFacts
from ganeti.maintd.losses import LossJob
from ganeti.maintd.restarting import REST_S, Restarter
from ganeti.maintd.rounds import Step
from ganeti.objects.record import Record
from ganeti.store.availability import Settings

FIRST = Settings(endpoints=["https://192.0.2.1:1818"], prefix="/x/")
THEN = replace(FIRST, endpoints=["https://192.0.2.2:1818"], limits=Limits(starts_max=3))


def test_other_settings_are_no_new_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[Settings | None] = iter([FIRST, FIRST, THEN, THEN, THEN, None, None])
    opened: list[Settings] = []
    turns: list[tuple[Restarter, object, Limits]] = []

    @asynccontextmanager
    async def client(settings: Settings, _timeout_s: float) -> AsyncIterator[object]:
        opened.append(settings)
        yield settings

    async def turn(self: Restarter, *, holds_lease: bool) -> None:
        assert holds_lease
        turns.append((self, self._etcd, self._limits))

    monkeypatch.setattr(restarting.availability, "read", lambda _paths: next(answers))
    monkeypatch.setattr(restarting.lease, "is_held", lambda _paths: True)
    monkeypatch.setattr(restarting.EtcdClient, "of", client)
    monkeypatch.setattr(restarting, "IDLE_TURN_S", 0.0)
    monkeypatch.setattr(Restarter, "turn", turn)
    context: Any = SimpleNamespace(paths=Paths("/nowhere"), hostname="node1")
    service = SimpleNamespace(losses=list, publish=lambda: None)
    nobody = cast("Any", None)
    asyncio.run(restarting.run(context, nobody, nobody, cast("Any", service)))
    assert opened == [FIRST, THEN]
    [one] = {each for each, _, _ in turns}  # which knows what it submitted
    assert [(etcd, limits) for _, etcd, limits in turns] == [
        (FIRST, FIRST.limits),
        (THEN, THEN.limits),
    ]
    assert isinstance(one, Restarter)
    assert service.losses is list


class Stricken:
    """Nodes m (the master), x, y and z with etcd and the cluster of m; some are lost and offline.

    Attributes:
        guests_of: by their lost node.
        jobs_of: all losses.
        asked: how often each question was asked.
        refusal: LuxiD's answer to all jobs; "" where it takes them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lost: str) -> None:
        self.now_s = 1000.0
        self.lost = list(lost)
        self.guests_of: dict[str, list[Guest]] = {}
        self.jobs_of: list[LossJob] = []
        self.config = 1
        self.asked: Counter[str] = Counter()
        self.memory_of: set[str] = set()
        self.refusal = ""
        self.is_mute = False
        self.outdated: dict[str, float] = {}
        self.guards = {name: Guard(boot_id="b", watchdog_s=5.0) for name in lost}
        monkeypatch.setattr(restarting.clock, "now", lambda: self.now_s)
        monkeypatch.setattr(restarting.clock, "monotonic", lambda: self.now_s)
        self.restarter = Restarter("m", self, cast("Any", self), Limits())
        self.now_s += SETTLE_S

    def turns(self, count: int) -> None:
        """Pass so many seconds."""
        for _ in range(count):
            self.now_s += 1.0
            asyncio.run(self.restarter.turn(holds_lease=True))

    def stuck(self, node: str) -> list[str]:
        [found] = [each for each in self.restarter.told() if each["node"] == node]
        return cast("list[str]", found["stuck"])

    # etcd.

    async def read(self) -> Snapshot:
        def entry(record: Record) -> Entry:
            return Entry(dumps(record.to_wire()), 5)

        losses = {
            f"{LOSSES}{name}": entry(
                Loss(uuid=f"u{name}", node=name, boot_id="b", proof=Proof.WATCHDOG, by="m")
            )
            for name in self.lost
        }
        records = {
            f"{OUTDATED}{name}": entry(Outdated(by="m", since=since))
            for name, since in self.outdated.items()
        }
        guards = {f"{GUARDS}{name}": entry(guard) for name, guard in self.guards.items()}
        master = {MASTER_KEY: entry(Mastership(node="m", boot_id="b"))}
        return Snapshot({**master, **losses, **records, **guards}, 9)

    async def change(self, _unchanged: Sequence[object], *changes: Any) -> bool:
        keys = {c.key for c in changes}
        for each in changes:
            if isinstance(each, Put):
                self.guards[each.key.removeprefix(GUARDS)] = loads_as(Guard, each.value)
        self.lost = [name for name in self.lost if f"{LOSSES}{name}" not in keys]
        self.outdated = {n: s for n, s in self.outdated.items() if f"{OUTDATED}{n}" not in keys}
        return True

    # The cluster.

    async def serial(self) -> int:
        return self.config

    async def queue(self, _uuids: Collection[str]) -> tuple[list[LossJob], set[str]]:
        self.asked["queue"] += 1
        if self.is_mute:
            raise GenericError("LuxiD does not answer")
        return list(self.jobs_of), set()

    async def nodes(self) -> dict[str, NodeFacts]:
        self.asked["nodes"] += 1
        return {name: NodeFacts(name, name, is_offline=name in self.lost) for name in "mxyz"}

    async def guests(self, names: Collection[str], *_more: object) -> list[Guest]:
        return [guest for name in names for guest in self.guests_of.get(name, [])]

    async def copies(self) -> dict[int, set[str]]:
        self.asked["copies"] += 1
        return {11000: {"m", "x"}}

    async def free_memory(self, names: Collection[str]) -> dict[str, int]:
        self.asked["memory"] += 1
        self.memory_of.update(names)
        return dict.fromkeys(names, 1000 - self.asked["memory"])

    async def submit(self, steps: Sequence[Step]) -> list[JobId | str]:
        self.asked["submit"] += 1
        if self.refusal:
            return [self.refusal] * len(steps)
        first = len(self.jobs_of) + 1
        made = [JobId(first + place) for place, _ in enumerate(steps)]
        self.jobs_of += [
            LossJob(job_id, "ux", "z", step.instance, is_running=True)
            for job_id, step in zip(made, steps, strict=True)
        ]
        return made


Scenes = Callable[..., Stricken]


@pytest.fixture
def stricken(monkeypatch: pytest.MonkeyPatch) -> Scenes:
    return lambda *lost: Stricken(monkeypatch, *lost)


def local(name: str, node: str) -> Guest:
    """Return an instance with the only copy of its disks on its node."""
    return Guest(name, node, 512, ())


def test_a_loss_that_cannot_end_is_looked_at_ever_less_often(stricken: Scenes) -> None:
    world = stricken("x", "y")
    world.guests_of = {"x": [local("ix", "x")], "y": [local("iy", "y")]}
    world.turns(600)
    # After 1, 2, 4, 8, 16 and then each 30 seconds; and when "a moment ago" is over.
    assert world.asked == {"queue": 25, "nodes": 25}
    why = "no node that is alive has its disks"
    assert (world.stuck("x"), world.stuck("y")) == ([f"ix: {why}"], [f"iy: {why}"])


@pytest.mark.parametrize("boot", ["b", "next"])
def test_of_a_loss_that_is_over_stays_that_the_last_boot_is_dead(
    stricken: Scenes, boot: str
) -> None:
    """The node may be removed then, though most others may be dead, too."""
    world = stricken("x")
    world.guards["x"] = guard = Guard(boot_id=boot, watchdog_s=5.0)
    world.turns(20)
    assert world.lost == []
    assert world.guards["x"] == replace(guard, is_dead=boot == "b")


def test_copies_that_are_there_no_more_do_not_lack_writes_for_ever(stricken: Scenes) -> None:
    """The node that wrote one off would look for it every few seconds, and ha-status warn."""
    world = stricken()
    world.turns(100)
    assert world.asked["copies"] == 0
    day_s = 86400.0
    was = world.now_s
    world.outdated = {
        "x/11000": was - 2 * day_s,  # it lacks writes
        "y/11000": was - 500,  # replaced: x has the other copy now
        "z/11000": was,
        "x/11001": was - day_s + 500,  # of a disk that was removed
        "y/11001": was,  # of one that is being made
    }
    world.turns(70)
    assert world.outdated.keys() == {"x/11000", "y/11000", "z/11000", "x/11001", "y/11001"}
    world.turns(200)
    assert world.outdated.keys() == {"x/11000", "z/11000", "x/11001", "y/11001"}
    world.turns(500)
    assert world.outdated.keys() == {"x/11000", "y/11001"}
    assert world.asked["copies"] < 20


def test_another_loss_is_looked_at_at_once(stricken: Scenes) -> None:
    world = stricken("x")
    world.guests_of = {"x": [local("ix", "x")], "y": [local("iy", "y")]}
    world.turns(300)
    before = world.asked["queue"]
    world.lost.append("y")
    world.turns(1)
    assert world.asked["queue"] == before + 1
    assert world.stuck("y")


def test_another_configuration_is_looked_at_soon(stricken: Scenes) -> None:
    world = stricken("x")
    world.guests_of = {"x": [local("ix", "x")]}
    world.turns(303)
    before = world.asked["queue"]
    world.config += 1
    world.guests_of = {}  # somebody has removed it
    world.turns(6)
    assert (world.asked["queue"], world.lost) == (before + 1, [])


def test_a_configuration_that_changes_all_the_time_is_no_reason_to_ask_all_the_time(
    stricken: Scenes,
) -> None:
    world = stricken("x")
    world.guests_of = {"x": [local("ix", "x")]}
    for _ in range(600):
        world.config += 1
        world.turns(1)
    assert world.asked["queue"] < 600 / 5 + 10


def test_memory_is_asked_of_nodes_where_an_instance_may_start(stricken: Scenes) -> None:
    world = stricken("x")
    world.guests_of = {"x": [local("ix", "x"), Guest("large", "x", 5000, ("y", "x"))]}
    world.turns(300)
    assert world.memory_of == {"y"}
    assert world.asked["memory"] == world.asked["queue"] < 20
    assert [each.split(":")[0] for each in world.stuck("x")] == ["ix", "large"]


def test_what_failed_is_tried_again_when_its_rest_is_over(stricken: Scenes) -> None:
    world = stricken("x")
    world.guests_of = {"x": [Guest("web", "x", 100, ("z",))]}
    world.turns(1)
    assert world.asked["submit"] == 1
    [job] = world.jobs_of
    world.turns(10)  # it runs, and is looked at each second
    assert (world.asked["queue"], world.asked["memory"]) == (11, 1)
    world.jobs_of = [LossJob(job.job_id, "ux", "z", "web", is_bad=True)]
    world.turns(int(REST_S))
    assert (world.asked["submit"], world.asked["memory"]) == (1, 1)
    world.turns(1)
    assert world.asked["submit"] == 2


def test_a_refusal_is_told_once_and_tried_again(
    stricken: Scenes, caplog: pytest.LogCaptureFixture
) -> None:
    world = stricken("x")
    world.guests_of = {"x": [Guest("web", "x", 100, ("z",))]}
    world.refusal = "the queue is closed"
    with caplog.at_level(logging.WARNING):
        world.turns(100)
    assert world.asked["submit"] < 100 / 5 + 5
    assert world.stuck("x") == ["web: its job is refused: the queue is closed"]
    told = [record.getMessage() for record in caplog.records]
    assert sum("refused" in each for each in told) == 1
    world.refusal = ""
    world.turns(6)
    assert [job.instance for job in world.jobs_of] == ["web"]
    assert world.stuck("x") == []


def test_after_an_error_it_looks_again_at_once(stricken: Scenes) -> None:
    world = stricken("x")
    world.guests_of = {"x": [local("ix", "x")]}
    world.turns(300)
    world.is_mute = True
    world.lost.append("y")
    for _ in range(3):
        with pytest.raises(GenericError):
            world.turns(1)
    before = world.asked["queue"]
    world.is_mute = False
    world.turns(1)
    assert world.asked["queue"] == before + 1
    assert world.restarter.decision.waits.keys() == {"x", "y"}
