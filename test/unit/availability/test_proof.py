"""Tests of ganeti/availability/proof.py: who is proved dead by its watchdog is dead.

A node X that lost etcd asks the others to vouch for it, and the master has them condemn it.  Who
reaches whom changes, agents begin anew, questions are late: X never lives on when it is proved.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from ganeti.availability.keeper import Keeper
from ganeti.availability.proof import Act, Judge, NodeView, Order, View
from ganeti.availability.records import Guard, Loss, Proof
from ganeti.availability.timing import Timing

MASTER, LOST, BOOT = "m", "x", "boot"
OTHERS = ("y", "z", "w")
NODES = (MASTER, LOST, *OTHERS)
STEP_S = 0.25
LATE_S_MAX = 2.0  # from the master's look to its question
TIMES = Timing()
LONGER = replace(TIMES, lease_s=8.0, watchdog_s=8.0)
LOSS = Loss(uuid="u", node=LOST, boot_id=BOOT)
SCENARIOS = 400
PROVED_MIN = SCENARIOS // 10


def view(now_s: float, lost: Timing = TIMES, names: Sequence[str] = NODES) -> View:
    guard = Guard(boot_id=BOOT, watchdog_s=lost.watchdog_s, dead_after_s=lost.dead_after_s)
    nodes = {name: NodeView(is_present=True) for name in names}
    nodes[LOST] = NodeView(guard=guard, loss=LOSS, revision=7)
    return View(now_s, MASTER, nodes)


@dataclass
class Play:
    """The agents, and their times.

    Attributes:
        mute_s: for how long agents vouch for nobody that began anew; None as they do by themselves.
        alive_until_s: when the watchdog of X resets it at the latest.
        links: {(a node, who asks it)} of those that reach each other.
    """

    chance: random.Random
    times: dict[str, Timing]
    mute_s: float | None = None
    now_s: float = 0.0
    alive_until_s: float = 0.0
    proved_s: float | None = None
    judge: Judge = field(init=False)
    keepers: dict[str, Keeper] = field(init=False)
    links: set[tuple[str, str]] = field(init=False)
    asked: list[tuple[float, Order]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.judge = Judge(self.times[MASTER])
        self.keepers = {name: Keeper(self.times[name], name, BOOT, -1000.0) for name in NODES}
        all_links = [(name, by) for name in OTHERS for by in (MASTER, LOST)]
        self.links = {each for each in all_links if self.chance.random() < 0.5}

    def step(self) -> None:
        self.now_s += STEP_S
        self.hit()
        lost = self.keepers[LOST]
        if self.now_s % self.times[LOST].beat_s == 0:
            friends = [n for n in (MASTER, *OTHERS) if self.vouches(n)]
            lost.vouched(self.now_s, friends, NODES)
        if lost.may_feed(self.now_s):
            # It stands still before it feeds, almost for too long.
            self.alive_until_s = self.now_s + 2 * self.times[LOST].watchdog_s
        if self.now_s % self.times[MASTER].beat_s == 0:
            self.look()
        for due_s, order in self.asked:
            if due_s <= self.now_s:
                self.condemn(order, due_s)
        self.asked = [each for each in self.asked if each[0] > self.now_s]

    def hit(self) -> None:
        """Let somebody begin anew, or reach others than before."""
        name = self.chance.choice(OTHERS)
        if self.chance.random() < 0.03:
            self.start(name)
        if self.chance.random() < 0.02:
            self.links ^= {(name, self.chance.choice((MASTER, LOST)))}

    def start(self, name: str) -> None:
        keeper = self.keepers[name] = Keeper(self.times[name], name, BOOT, self.now_s)
        if self.mute_s is not None:
            keeper._mute_until_s = self.now_s + self.mute_s

    def vouches(self, name: str) -> bool:
        is_reached = (name, LOST) in self.links
        return is_reached and self.keepers[name].vouches_for(LOST, BOOT, self.now_s)

    def look(self) -> None:
        for order in self.judge.look(view(self.now_s, self.times[LOST])):
            if order.act is Act.PROVE:
                self.proved_s = self.now_s
            elif order.act is Act.CONDEMN:
                late_s = self.chance.choice((0.0, 0.0, self.chance.uniform(0, LATE_S_MAX)))
                self.asked.append((self.now_s + late_s, order))

    def condemn(self, order: Order, told_s: float) -> None:
        for name in (MASTER, *OTHERS):
            if name == MASTER or (name, MASTER) in self.links:
                self.keepers[name].condemn(LOST, BOOT, self.now_s, order.hold_s)
                self.judge.condemned(LOST, 7, name, told_s=told_s, heard_s=self.now_s)

    def run(self) -> None:
        while self.proved_s is None and self.now_s < 200:
            self.step()


@pytest.mark.parametrize(
    "times",
    [
        {},
        {LOST: LONGER},
        {MASTER: LONGER},
        {"y": LONGER, "z": LONGER, "w": LONGER},
        {LOST: LONGER, MASTER: LONGER},
    ],
    ids=["same times", "longer X", "longer master", "longer others", "shorter others"],
)
def test_who_is_proved_dead_by_its_watchdog_is_dead(times: dict[str, Timing]) -> None:
    check(dict.fromkeys(NODES, TIMES) | times)


def test_agents_of_an_earlier_version_are_mute_for_long_enough() -> None:
    check(dict.fromkeys(NODES, TIMES), mute_s=TIMES.dead_after_s)


def check(times: dict[str, Timing], mute_s: float | None = None) -> None:
    proved = 0
    for seed in range(SCENARIOS):
        play = Play(random.Random(seed), times, mute_s)
        play.run()
        if play.proved_s is not None:
            proved += 1
            assert (seed, play.proved_s) >= (seed, play.alive_until_s)
    assert proved >= PROVED_MIN


def test_a_node_that_was_told_once_and_began_anew_does_not_count_for_the_proof() -> None:
    """It heard the master at first only, and another node late; it vouches again before the end."""
    judge, keeper = Judge(TIMES), Keeper(TIMES, "y", BOOT, 1.0)
    proved_s = None
    for now_s in range(40):
        orders = judge.look(view(now_s))
        if any(order.proof is Proof.WATCHDOG for order in orders):
            proved_s = now_s
            break
        judge.condemned(LOST, 7, MASTER, told_s=now_s, heard_s=now_s)
        if now_s == 0:
            judge.condemned(LOST, 7, "y", told_s=now_s, heard_s=now_s)
        elif now_s >= TIMES.repeat_s:
            judge.condemned(LOST, 7, "z", told_s=now_s, heard_s=now_s)
    assert proved_s is None
    assert not keeper.vouches_for(LOST, BOOT, TIMES.repeat_s + TIMES.dead_after_s)


def test_what_was_condemned_before_nodes_were_removed_does_not_count_for_the_proof() -> None:
    """X lives on by two nodes that the master does not reach, until they are removed.

    Of five nodes two have condemned it for long, which is most of the three that are left.
    """
    judge, lost = Judge(TIMES), Keeper(TIMES, LOST, BOOT, -1000.0)
    lists = {0: NODES, 20: (MASTER, LOST, "y", "w"), 22: (MASTER, LOST, "y")}
    names, proved_s = NODES, None
    for now_s in range(100):
        names = lists.get(now_s, names)
        if names == NODES:  # z and w have not heard of another list, and so vouch for it
            lost.vouched(now_s, ("z", "w"), NODES)
        if any(order.act is Act.PROVE for order in judge.look(view(now_s, names=names))):
            proved_s = now_s
            break
        for name in (MASTER, "y"):
            judge.condemned(LOST, 7, name, told_s=now_s, heard_s=now_s)
    assert proved_s is not None
    assert proved_s >= lost.dies_at() + 2 * TIMES.watchdog_s


def test_the_time_of_the_proof_counts_from_the_answers() -> None:
    """The master looked sooner, and asked about many other nodes first."""
    judge = Judge(TIMES)
    judge.look(view(0.0))
    for told_s in (3.0, 10.0):
        for name in (MASTER, "y", "z"):
            judge.condemned(LOST, 7, name, told_s=told_s, heard_s=told_s + 0.5)
    early = judge.look(view(3.4 + TIMES.dead_after_s))
    assert [order.act for order in early] == [Act.CONDEMN]
    late = judge.look(view(3.5 + TIMES.dead_after_s))
    assert [order.act for order in late] == [Act.CONDEMN, Act.PROVE]
