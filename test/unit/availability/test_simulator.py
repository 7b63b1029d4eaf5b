"""Tests of ganeti/availability: a cluster is played through losses, partitions and returns."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

import pytest

from ganeti.availability.simulator.nodes import Helper, SimGuest
from ganeti.availability.simulator.scenario import read_scenario
from ganeti.availability.simulator.world import STEP_S, World, make_world
from ganeti.availability.timing import Timing
from ganeti.base.errors import OpPrereqError

NAMES = ("n1", "n2", "n3", "n4", "n5")
RANDOM_SCENARIOS = int(os.environ.get("GANETI_TEST_SCENARIOS", "400"))
PER_TEST = 100
EVENTS = (
    *("lose", "return", "reset", "cut", "cut", "part", "heal", "heal", "hang", "continue", "kill"),
    *("stop", "start", "change", "change", "restart", "times"),
)
TIMES = (Timing(), Timing(lease_s=8.0, watchdog_s=8.0), Timing(lease_s=6.0, watchdog_s=12.0))
DISK_EVENTS = (*EVENTS, "lose disk", "lose disk", "return disk")
LIST_EVENTS = (*EVENTS, *("add", "remove") * 4)


def small_world(
    count: int = 5,
    candidates: int = 3,
    unguarded: str = "",
    lease_disk: str = "",
    spare: Sequence[str] = (),
) -> World:
    """A cluster with one instance on shared disks on each node, and one with a copy on the next."""
    names = NAMES[:count]
    guests = [SimGuest(f"shared{name}", name, is_shared=True, memory=10) for name in names]
    guests += [
        SimGuest(f"pair{name}", name, names[number % count], memory=10)
        for number, name in enumerate(names, 1)
    ]
    world = make_world(
        *(Timing(), names, names[:candidates], guests),
        members=names[:3],
        lease_disk=lease_disk,
        spare=spare,
    )
    if unguarded:
        world.nodes[unguarded].has_watchdog = False
    world.run(5)
    return world


def hosts(world: World, guest: str) -> list[str]:
    return [name for name, node in world.nodes.items() if guest in node.guests]


def masters(world: World) -> list[str]:
    return [name for name, node in world.nodes.items() if node.is_master]


def play(world: World, text: str) -> list[str]:
    """Play a scenario; nothing may run twice."""
    said = [line for _, line in read_scenario(text, world.nodes).play(world)]
    assert world.twice == []
    assert world.forgotten == []
    assert world.broken == []
    return said


def when(world: World, text: str) -> float:
    """Return when something was said first."""
    return next(at_s for at_s, line in world.log if text in line)


def test_nodes_of_a_scenario_may_have_short_names() -> None:
    nodes = ("node1.example.com", "node2.example.com", "node2.example.org")
    [event] = read_scenario("10 lose NODE1 node2.example.org", nodes).events
    assert event.names == ("node1.example.com", "node2.example.org")
    with pytest.raises(OpPrereqError, match=r"line 2 .* 'node2' is ambiguous"):
        read_scenario("# two of them\n10 lose node2", nodes)
    with pytest.raises(OpPrereqError, match=r"line 1 .* 'node3' is no node; there are node1"):
        read_scenario("10 lose node3", nodes)


# --- each loss once


def test_a_lost_node_is_proved_dead_and_its_instances_run_elsewhere() -> None:
    world = small_world()
    play(world, "10 lose n4\n60 end")
    assert when(world, "n4 is proved dead: watchdog") < 40
    assert hosts(world, "pairn4") == ["n5"]  # where its copy is
    assert len(hosts(world, "sharedn4")) == 1
    assert when(world, "sharedn4 runs on") - 10 < 30  # the goal at default settings


def until_it_is_almost_reset(world: World, name: str) -> None:
    node = world.nodes[name]
    while node.dies_s is not None and node.dies_s - world.now_s > STEP_S:
        world.run(STEP_S)


@pytest.mark.parametrize("stands", [False, True], ids=["killed", "stood still before a feeding"])
@pytest.mark.parametrize(("disk", "proof"), [("", "watchdog"), ("lease", "disk")])
def test_an_agent_that_dies_just_before_its_node_is_reset_lets_it_live_longer(
    disk: str, proof: str, stands: bool
) -> None:
    world = small_world(lease_disk=disk)
    node = world.nodes["n4"]
    world.run(20)
    world.cut = {("n4", other) for other in world.nodes if other != "n4"}
    while node.keeper.may_feed(world.now_s + STEP_S):
        world.run(STEP_S)
    if stands:
        world.stand("n4")
        node.mid_feed = True
        until_it_is_almost_reset(world, "n4")
        world.go_on("n4")
    until_it_is_almost_reset(world, "n4")
    world.kill("n4")
    play(world, f"{world.now_s + 60} end")
    assert when(world, "n4 is proved dead") > when(world, "resets n4")
    assert when(world, f"n4 is proved dead: {proof if not stands else 'watchdog'}")


def test_a_helper_is_quicker_than_the_watchdog() -> None:
    world = small_world()
    play(world, "0 helper works n4\n10 lose n4\n40 end")
    assert when(world, "n4 is proved dead: fenced") < 18


def test_without_a_proof_nothing_starts_until_a_person_says_so() -> None:
    world = small_world(unguarded="n4")
    play(world, "60 part n4\n200 end")
    assert hosts(world, "sharedn4") == ["n4"]
    says = world.nodes["n1"].judge.says["n4"]
    assert "neither a watchdog nor a helper" in says
    assert "gnt-cluster ha-confirm-dead" in says
    play(world, "200 lose n4\n210 confirm-dead n4\n220 end")
    assert hosts(world, "sharedn4") not in ([], ["n4"])


def test_the_master_is_lost() -> None:
    world = small_world()
    play(world, "10 lose n1\n60 end")
    assert masters(world) in (["n2"], ["n3"])
    assert when(world, "is the master") - 10 < 20  # the goal at default settings
    assert hosts(world, "pairn1") == ["n2"]
    assert hosts(world, "sharedn1") != []


def test_both_sides_think_that_the_other_is_dead() -> None:
    """The smaller side has the master; it ends, and its nodes are reset."""
    world = small_world()
    play(world, "10 part n1 n4\n100 end")
    assert masters(world) in (["n2"], ["n3"])
    assert all(len(hosts(world, guest)) == 1 for guest in world.guests)
    before = masters(world)
    play(world, "100 heal\n200 take-back n1 n4\n260 end")
    assert masters(world) == before
    assert all(len(hosts(world, guest)) == 1 for guest in world.guests)


def test_most_nodes_without_most_candidates_are_no_cluster() -> None:
    world = small_world()
    said = play(world, "10 part n1 n2\n100 end")
    assert masters(world) == []
    assert not any("watchdog resets" in line for line in said)
    assert all(len(hosts(world, guest)) == 1 for guest in world.guests)
    play(world, "100 heal\n160 end")
    assert len(masters(world)) == 1


def test_without_etcd_the_cluster_goes_on_and_nobody_acts() -> None:
    world = small_world()
    said = play(world, "10 stop-etcd n1 n2 n3\n20 lose n5\n300 end")
    assert masters(world) == ["n1"]
    assert not any("watchdog resets" in line or "dead" in line for line in said)
    assert hosts(world, "sharedn1") == ["n1"]
    play(world, "300 start-etcd n1 n2 n3\n360 end")
    assert len(hosts(world, "sharedn5")) == 1


def test_a_node_that_only_lost_etcd_lives_while_most_nodes_see_it() -> None:
    world = small_world()
    world.cut = {("n5", "n1"), ("n5", "n2")}  # n3 is a member that it reaches
    play(world, "100 end")
    assert hosts(world, "sharedn5") == ["n5"]


@pytest.mark.parametrize("agent", ["hang", "kill"])
def test_an_agent_that_hangs_or_dies_takes_its_node_along_or_nothing(agent: str) -> None:
    world = small_world()
    said = play(world, f"10 {agent} n4\n100 end")
    reset = any("watchdog resets n4" in line for line in said)
    assert reset is (agent == "hang")
    assert len(hosts(world, "sharedn4")) == 1


def test_a_watchdog_that_does_not_fire_leaves_it_to_the_helper() -> None:
    """Nobody can know that: such a device must not count as one; doc/high-availability.md."""
    world = small_world(unguarded="n4")
    play(world, "0 helper works n4\n10 part n4\n60 end")
    assert len(hosts(world, "sharedn4")) == 1
    assert when(world, "n4 is proved dead: fenced") < 20


def test_two_losses_one_in_the_middle_of_the_other() -> None:
    world = small_world()
    play(world, "10 lose n5\n27 lose n4\n90 end")
    assert all(len(hosts(world, guest)) == 1 for guest in ("sharedn4", "sharedn5"))
    assert hosts(world, "pairn4") == []  # its other copy was on n5
    play(world, "90 return n4 n5\n150 take-back n4 n5\n200 end")
    assert len(hosts(world, "pairn4")) == 1


def test_a_node_comes_back_in_the_middle() -> None:
    world = small_world()
    for back_s in range(11, 40, 3):
        world = small_world()
        play(world, f"10 part n4\n{back_s} heal\n150 take-back n4\n220 end")
        assert all(len(hosts(world, guest)) == 1 for guest in world.guests)


def test_after_a_power_loss_nothing_starts_before_most_nodes_are_back() -> None:
    world = small_world()
    play(world, "10 lose n1 n2 n3 n4 n5\n60 return n1 n2\n300 end")
    assert not any(hosts(world, guest) for guest in world.guests)
    play(world, "300 return n3 n4 n5\n460 end")
    assert all(len(hosts(world, guest)) == 1 for guest in world.guests)


def test_while_it_is_paused_nobody_acts() -> None:
    world = small_world()
    play(world, "5 pause on\n10 lose n4\n200 end")
    assert hosts(world, "sharedn4") == []
    play(world, "200 pause off\n260 end")
    assert len(hosts(world, "sharedn4")) == 1


def test_of_two_candidates_one_goes_on_alone_and_the_other_never_takes_over_then() -> None:
    world = small_world(3, candidates=2)
    play(world, "10 lose n2\n60 end")
    assert any("n1 goes on alone" in line for _, line in world.log)
    world.change()
    said = play(world, "60 lose n1\n61 return n2\n300 end")
    assert masters(world) == []
    assert "n1 went on alone" in world.nodes["n2"].claimant.says
    assert not any("is the master" in line for line in said)
    play(world, "300 return n1\n400 end")
    assert masters(world) == ["n1"]
    play(world, "460 lose n1\n520 end")  # both had everything again
    assert masters(world) == ["n2"]


# --- a lease disk


def disk_world() -> World:
    return small_world(lease_disk="disk")


def test_with_a_lease_disk_nobody_is_reset_when_the_network_is_gone() -> None:
    world = disk_world()
    said = play(world, "10 part n1\n10 part n2\n10 part n3\n10 part n4\n200 heal\n260 end")
    assert not any("resets" in line or "dead" in line for line in said)
    assert len(masters(world)) == 1
    world = small_world()
    said = play(world, "10 part n1\n10 part n2\n10 part n3\n10 part n4\n100 end")
    assert sum("the watchdog resets" in line for line in said) >= 5


def test_a_node_that_is_cut_off_gives_up_on_the_disk_and_that_proves_it_sooner() -> None:
    world = disk_world()
    play(world, "10 part n4\n60 end")
    assert when(world, "n4 is proved dead: disk") < when(small_cut(), "n4 is proved dead: watchdog")
    assert hosts(world, "pairn4") == ["n5"]


def small_cut() -> World:
    world = small_world()
    play(world, "10 part n4\n60 end")
    return world


def test_a_node_without_power_is_condemned_on_the_disk_and_proved_by_its_watchdog() -> None:
    world = disk_world()
    play(world, "10 lose n4\n60 end")
    assert when(world, "n4 is proved dead: watchdog") < 40
    assert hosts(world, "pairn4") == ["n5"]


def test_a_node_that_loses_the_disk_first_is_proved_dead_as_without() -> None:
    world = disk_world()
    play(world, "10 lose-disk n4\n30 part n4\n80 end")
    assert when(world, "n4 is proved dead: watchdog") < 60
    assert hosts(world, "pairn4") == ["n5"]


def test_a_node_that_loses_the_disk_in_the_same_moment_is_proved_dead_by_its_watchdog() -> None:
    world = disk_world()
    play(world, "10 lose-disk n4\n10 part n4\n80 end")
    assert when(world, "n4 is proved dead: watchdog") < 60


def test_a_disk_that_the_master_has_lost_proves_nothing() -> None:
    world = disk_world()
    play(world, "10 lose-disk n1 n2 n3\n10 part n4\n200 end")
    assert hosts(world, "sharedn4") == ["n4"]
    assert "cannot be condemned" in world.nodes["n1"].judge.says["n4"]
    play(world, "200 return-disk n1\n260 end")
    assert hosts(world, "sharedn4") not in ([], ["n4"])


def test_a_lost_disk_costs_nobody_anything() -> None:
    world = disk_world()
    said = play(world, "10 lose-disk n1 n2 n3 n4 n5\n100 end")
    assert not any("resets" in line or "missed" in line for line in said)
    said = play(world, "100 stop-etcd n1 n2 n3\n200 end")
    assert not any("resets" in line for line in said)


def test_a_node_that_comes_back_in_time_is_not_held_to_what_the_disk_says() -> None:
    for back_s in range(11, 40):
        world = disk_world()
        play(world, f"10 part n4\n{back_s} heal\n150 take-back n4\n220 end")
        assert all(len(hosts(world, guest)) == 1 for guest in world.guests)
        assert world.nodes["n4"].keeper.uses_disk
        assert world.nodes["n4"].keeper.sentence == ""


# --- two nodes and a witness


def pair_world() -> World:
    guests = [SimGuest("g1", "n1", "n2"), SimGuest("g2", "n2", "n1")]
    names = ("n1", "n2", "vote")
    world = make_world(Timing(), names, names, guests, witness="vote")
    world.nodes["vote"].has_watchdog = False
    world.run(5)
    return world


@pytest.mark.parametrize("lost", ["n1", "n2"])
def test_with_a_witness_one_of_two_nodes_takes_over_everything(lost: str) -> None:
    world = pair_world()
    other = {"n1": "n2", "n2": "n1"}[lost]
    play(world, f"10 lose {lost}\n80 end")
    assert masters(world) == [other]
    assert world.nodes[other].guests == {"g1", "g2"}
    play(world, f"80 return {lost}\n150 take-back {lost}\n160 part {lost}\n300 end")
    assert masters(world) == [other]


def test_a_lost_witness_changes_nothing_and_two_losses_stop_everything() -> None:
    world = pair_world()
    said = play(world, "10 lose vote\n100 end")
    assert masters(world) == ["n1"]
    assert not any("dead" in line or "resets" in line for line in said)
    assert "vote is missing" in world.nodes["n1"].judge.says["vote"]
    play(world, "100 lose n1\n300 end")
    assert masters(world) == []
    assert hosts(world, "g1") == []
    play(world, "300 return n1 vote\n420 end")
    assert masters(world) in (["n1"], ["n2"])
    assert [len(hosts(world, guest)) for guest in ("g1", "g2")] == [1, 1]


def test_the_witness_never_takes_over() -> None:
    world = pair_world()
    play(world, "10 part n1\n10 part n2\n200 end")
    assert masters(world) == []
    assert world.nodes["vote"].claimant.says in ("it is the witness", "")


# --- what the times are for


@pytest.mark.parametrize("stands_s", [step / 2 for step in range(24)])
def test_an_agent_that_feeds_late_does_not_outlive_its_proof(stands_s: float) -> None:
    """It stands still between the look at the clock and the feeding, almost too long."""
    world = small_world()
    world.cut = {("n3", "n1"), ("n3", "n2")}  # n4 and n5 vouch for it until they condemn it
    world.run(stands_s)
    world.chance = lambda: 0.55  # so that it stands still in the worst moment
    world.stand("n3")
    world.run(4.5)
    world.go_on("n3")
    world.chance = lambda: 0.0
    world.run(60)
    assert (world.twice, world.broken) == ([], [])
    assert hosts(world, "sharedn3") not in ([], ["n3"])


@pytest.mark.parametrize("lost", ["question", "answer"])
@pytest.mark.parametrize("way", ["longer", "shorter"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "killed"])
@pytest.mark.parametrize("stands_s", [step / 2 for step in range(10, 28)])
def test_an_agent_that_takes_up_other_times_does_not_outlive_its_proof(
    stands_s: float, way: str, lost: str, *, is_killed: bool
) -> None:
    """It is cut off from etcd in the middle of that, and stands still in the worst moment.

    The others still have, or have by now, the shorter times.
    """
    world = small_world()
    times = [Timing(), TIMES[1]] if way == "longer" else [TIMES[1], Timing()]
    world.change_times(times[0])
    world.run(5)
    world.change_times(times[1])
    late = world.nodes.keys() - {"n3"} if way == "longer" else {"n3"}
    for name in late:
        world.nodes[name].next_timing = None
    if way == "shorter":
        world.run(3)
        world.nodes["n3"].next_timing = times[1]
    if is_killed:
        world.kill("n3")
    for node in world.nodes.values():  # only one has its beat now
        node.next_beat_s = world.now_s + 1
    # What it asks the others, and for its lease, is answered.
    world.chance = iter_chance([0.0] * (2 - is_killed) + [0.0] * (lost == "answer") + [0.99])
    world.nodes["n3"].next_beat_s = world.now_s
    world.step()
    world.chance = lambda: 0.0
    world.cut = {("n3", "n1"), ("n3", "n2")}  # n4 and n5 vouch for it until they condemn it
    world.run(stands_s)
    world.chance = lambda: 0.55
    world.stand("n3")
    world.run(world.nodes["n3"].watchdog_s - 0.5)
    world.go_on("n3")
    world.chance = lambda: 0.0
    world.run(60)
    world.cut.clear()
    world.take_back("n3")
    world.run(60)
    assert (world.twice, world.broken) == ([], [])
    assert len(hosts(world, "sharedn3")) == 1


def iter_chance(values: Sequence[float]) -> Callable[[], float]:
    """Return a chance that gives these values, and then 0."""
    left = iter(values)
    return lambda: next(left, 0.0)


def test_agents_that_forgot_what_they_condemned_vouch_for_nobody() -> None:
    world = small_world()
    world.cut = {("n3", "n1"), ("n3", "n2")}
    while not any("n3 is missed" in line for _, line in world.log):
        world.step()
    world.run(0.5)
    world.kill("n4")
    world.kill("n5")
    world.cut |= {("n1", "n4"), ("n1", "n5")}
    world.run(13)
    world.cut -= {("n1", "n4"), ("n1", "n5")}
    world.run(60)
    assert (world.twice, world.broken) == ([], [])


def test_a_node_that_did_not_hear_of_other_nodes_does_not_live_on_by_the_old_list() -> None:
    """Most nodes of that one are no obstacle to most nodes of the one that the master counts by."""
    world = small_world(spare=("s1", "s2"))
    for name in ("n4", "n5"):  # nothing resets these, which would end it soon
        world.nodes[name].has_watchdog = False
    world.reset("n4")
    world.reset("n5")
    world.run(60)
    for name in ("s1", "s2"):
        world.chance = iter_chance([0.0] * 2 + [0.9])  # n3 does not hear of it
        world.add(name)
        world.chance = lambda: 0.0
        world.run(60)
    assert [len(world.nodes[name].knows) for name in ("n1", "n3", "n4")] == [7, 5, 7]
    world.cut = {(a, b) for a in ("n3", "n4", "n5") for b in ("n1", "n2", "s1", "s2")}
    world.run(90)
    assert (world.twice, world.broken) == ([], [])
    assert hosts(world, "sharedn3") not in ([], ["n3"])


def test_a_node_that_did_not_hear_of_other_nodes_does_not_live_on_by_dead_ones_that_are_back() -> (
    None
):
    """They count by the old list, as it does, and nobody else reaches them."""
    world = small_world(spare=("s1", "s2"))
    world.stop_etcd("n3")
    play(world, "10 lose n4 n5\n60 end")
    for name in ("s1", "s2"):
        world.chance = iter_chance([0.0] * 2 + [0.9])  # n3 does not hear of it
        world.add(name)
        world.chance = lambda: 0.0
        world.nodes[name].boots_s = world.now_s  # it was up
        world.run(60)
    rest = world.nodes.keys() - {"n3", "n4", "n5"}
    world.cut = {(a, b) for a in ("n4", "n5") for b in rest}
    play(world, f"{world.now_s} return n4 n5\n{world.now_s + 80} end")
    world.cut |= {("n3", name) for name in rest}
    world.run(90)
    assert (world.twice, world.broken) == ([], [])


def test_nodes_are_added_one_at_a_time_and_only_while_most_know_the_last_one() -> None:
    world = small_world(spare=("s1", "s2"))
    world.chance = lambda: 0.85  # nobody hears
    world.add("s1")
    world.chance = lambda: 0.0
    world.run(60)
    world.add("s2")
    assert len(world.nodes["n1"].settings.nodes) == 6
    world.remove("s1")
    assert len(world.nodes["n1"].settings.nodes) == 6
    for node in world.nodes.values():
        node.knows = world.nodes["n1"].settings.nodes if node.name != "s2" else node.knows
    world.run(5)
    world.add("s2")
    assert len(world.nodes["n1"].settings.nodes) == 7


def test_a_master_that_is_cut_off_in_the_middle_of_a_restart() -> None:
    for after_s in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0):
        world = small_world()
        world.nodes["n5"].helper = Helper.WORKS
        world.switch_off("n5")
        while not any("n5 is proved dead" in line for _, line in world.log):
            world.step()
        world.run(after_s)
        # It reaches the node on which it starts something, and nobody else does.
        world.cut = {("n1", "n2"), ("n1", "n3"), ("n4", "n2"), ("n4", "n3")}
        world.run(120)
        assert (world.twice, world.broken) == ([], [])


# --- chance


class Chance:
    """Random events on a random cluster."""

    def __init__(self, seed: int, *, lease_disk: str = "", spares: int = 0) -> None:
        self.random = random.Random(seed)
        self.events = LIST_EVENTS if spares else DISK_EVENTS if lease_disk else EVENTS
        spare = [f"s{number}" for number in range(spares)]
        count = self.random.choice((3, 5, 5, 7))
        self.names = [f"n{number}" for number in range(1, count + 1)]
        witness = self.names[2] if count == 3 and self.random.random() < 0.5 else ""
        guests = [self._guest(number, 2 if witness else count) for number in range(8)]
        candidates = self.names[: self.random.choice((2, 3, 3))]
        if witness:
            candidates = self.names
        self.world = make_world(
            Timing(),
            self.names,
            candidates,
            guests,
            self.random.random,
            self.names[:3],
            lease_disk=lease_disk,
            witness=witness,
            spare=spare,
        )
        self.names = [*self.names, *spare]
        for node in self.world.nodes.values():
            node.helper = self.random.choice((Helper.NONE, *Helper))
            node.has_watchdog = self.random.random() < 0.85

    def _guest(self, number: int, count: int) -> SimGuest:
        primary, secondary = self.random.sample(self.names[:count], 2)
        has_copy = self.random.random() < 0.6
        copy = secondary if has_copy else None
        priority = self.random.choice((0, 0, 5, None))
        return SimGuest(f"g{number}", primary, copy, not has_copy, 10, priority)

    def event(self) -> None:
        word = self.random.choice(self.events)
        (self._disk_event if word.endswith("disk") else self._event)(word)

    def _disk_event(self, word: str) -> None:
        if word == "return disk":
            self._all(self.world.return_disk)
            return
        for name in self.random.sample(self.names, self.random.randint(1, len(self.names))):
            self.world.lose_disk(name)

    def _event(self, word: str) -> None:
        world, node = self.world, self.random.choice(self.names)
        of_one = {
            "lose": world.switch_off,
            "reset": world.reset,
            "hang": world.stand,
            "kill": world.kill,
            "restart": world.restart,
            "stop": world.stop_etcd,
            "add": world.add,
            "remove": world.remove,
        }
        of_all = {"return": world.switch_on, "continue": world.go_on, "start": world.start_etcd}
        match word:
            case _ if word in of_one:
                of_one[word](node)
            case _ if word in of_all:
                self._all(of_all[word])
            case "cut":
                others = [name for name in self.names if name != node]
                count = self.random.randint(1, len(others) - 1)
                world.cut |= {(node, other) for other in self.random.sample(others, count)}
            case "part":
                side = self.random.sample(self.names, self.random.randint(1, len(self.names) // 2))
                world.cut |= {(a, b) for a in side for b in self.names if b not in side}
            case "heal":
                world.cut.clear()
            case "times":
                world.change_times(self.random.choice(TIMES))
            case _:
                world.change()

    def _all(self, action: object) -> None:
        assert callable(action)
        for name in self.names:
            action(name)

    def play(self) -> None:
        self.world.run(10)
        for _ in range(12):
            self.event()
            self.world.run(self.random.choice((1, 1, 2, 3, 5, 10, 20, 40)))

    def mend(self) -> None:
        """Everything is well again, and a person takes all nodes back."""
        self.world.cut.clear()
        self._all(self.world.start_etcd)
        self._all(self.world.go_on)
        self._all(self.world.return_disk)
        for _ in range(2):  # their helpers may have switched some off meanwhile
            self._all(self.world.switch_on)
            self.world.run(70)
        self._all(self.world.take_back)
        self.world.run(60)


@pytest.mark.parametrize(
    ("first", "lease_disk", "spares"),
    [(first, "", 0) for first in range(0, RANDOM_SCENARIOS, PER_TEST)]
    + [(first, "disk", 0) for first in range(0, RANDOM_SCENARIOS // 2, PER_TEST)]
    + [(first, "", 4) for first in range(0, RANDOM_SCENARIOS // 2, PER_TEST)],
)
def test_never_twice_nothing_forgotten_and_in_the_end_everything_runs(
    first: int, lease_disk: str, spares: int
) -> None:
    for seed in range(first, first + PER_TEST):
        chance = Chance(seed, lease_disk=lease_disk, spares=spares)
        chance.play()
        chance.mend()
        world = chance.world
        assert (seed, world.twice, world.forgotten, world.broken) == (seed, [], [], [])
        assert (seed, len(masters(world))) == (seed, 1)
        down = _down(world)
        assert (seed, down) == (seed, [])


def _down(world: World) -> Sequence[str]:
    return [
        name
        for name, guest in world.guests.items()
        if guest.priority is not None and not hosts(world, name)
    ]
