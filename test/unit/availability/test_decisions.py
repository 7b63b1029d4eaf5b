"""Tests of ganeti/availability: the rules one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.availability.keeper import Keeper, guard_for, is_dead, may_arm
from ganeti.availability.mastership import (
    Claim,
    Claimant,
    Companion,
    Lone,
    Outlook,
    Report,
    answers_wanted,
    copies_wanted,
    judge_lone,
    mark_wanted,
)
from ganeti.availability.proof import Act, Judge, NodeView, Power, View, is_unsafe
from ganeti.availability.records import Guard, Loss, Mastership, Proof
from ganeti.availability.restarts import Guest, Limits, objection, plan_restarts, priority_of
from ganeti.availability.simulator.nodes import SimGuest
from ganeti.availability.simulator.scenario import EVENTS, read_scenario
from ganeti.availability.simulator.world import make_world
from ganeti.availability.timing import Timing, longest, strictest
from ganeti.base.errors import OpPrereqError

NODES = ("a", "b", "c", "d", "e")
TIMING = Timing()
GUARD = Guard(boot_id="boot", watchdog_s=5.0)
UNGUARDED = Guard(boot_id="boot")
SUSPECTED = Loss(uuid="u", node="e", boot_id="boot")


def keeper(own: str = "e") -> Keeper:
    return Keeper(TIMING, own, "boot", 0.0)


# --- the agent


def test_the_watchdog_is_fed_from_the_time_of_the_question_not_of_the_answer() -> None:
    agent = keeper()
    assert not agent.may_feed(0.0)
    agent.renewed(10.0)  # whenever the answer came
    assert agent.may_feed(10.0 + TIMING.lease_s - 0.01)
    assert not agent.may_feed(10.0 + TIMING.lease_s)
    agent.renewed(9.0)  # a late answer takes nothing away
    assert agent.may_feed(13.9)


def test_a_condemned_boot_is_never_fed_again() -> None:
    agent = keeper()
    agent.renewed(10.0)
    agent.is_condemned = True
    agent.renewed(11.0)
    assert not agent.may_feed(11.0)
    assert not agent.needs_friends(20.0)


@pytest.mark.parametrize(
    ("friends", "lives"),
    [({"a", "b"}, True), ({"a"}, False), ({"a", "x", "y"}, False), (set(NODES), True)],
)
def test_most_nodes_of_the_cluster_keep_a_node_alive(friends: set[str], lives: bool) -> None:
    agent = keeper()
    agent.vouched(10.0, friends, NODES)
    assert agent.may_feed(11.0) is lives


def test_who_has_just_started_vouches_for_nobody_but_itself() -> None:
    agent = keeper("a")
    assert not agent.vouches_for("e", "boot", TIMING.held_s - 0.1)
    assert agent.vouches_for("e", "boot", TIMING.held_s)
    assert agent.vouches_for("a", "boot", 0.0)


def test_a_condemnation_holds_until_it_is_long_over() -> None:
    agent = keeper("a")
    agent.condemn("e", "boot", 100.0)
    assert not agent.vouches_for("e", "boot", 100.0 + TIMING.held_s - 0.1)
    assert agent.vouches_for("e", "another boot", 101.0)
    assert agent.vouches_for("e", "boot", 100.0 + TIMING.held_s)


def test_an_old_condemnation_that_is_shown_again_takes_nothing_back() -> None:
    agent = keeper("a")
    agent.condemn("e", "boot", 100.0, hold_s=80.0)
    agent.condemn("e", "boot", 101.0)
    agent.condemn("e", "boot before", 102.0)
    assert not agent.vouches_for("e", "boot", 179.9)
    assert not agent.vouches_for("e", "boot before", 103.0)
    assert agent.vouches_for("e", "next boot", 103.0)
    agent.condemn("e", "", 104.0)
    assert not agent.vouches_for("e", "next boot", 104.0)
    assert agent.vouches_for("e", "boot", 180.0)


def test_only_a_proof_about_this_boot_kills() -> None:
    proved = Loss(uuid="u", node="e", boot_id="boot", proof=Proof.FENCED)
    assert is_dead(proved, "boot")
    assert not is_dead(proved, "next boot")
    assert not is_dead(SUSPECTED, "boot")
    assert not is_dead(None, "boot")


SHORTER = Timing(lease_s=3.0, watchdog_s=4.0)


@pytest.mark.parametrize(
    ("guard", "loss", "may"),
    [
        (None, None, True),
        (guard_for("boot", TIMING, 5.0, ""), None, True),
        (guard_for("boot", SHORTER, 4.0, ""), None, False),  # the one before lived by shorter times
        (guard_for("boot", Timing(lease_s=9.0, watchdog_s=4.0), 4.0, ""), None, False),
        (guard_for("boot", SHORTER, None, ""), None, True),  # no watchdog proves anything
        (guard_for("boot before", SHORTER, 4.0, ""), None, True),
        (Guard(boot_id="boot", has_left=True), None, True),
        (guard_for("boot", TIMING, 5.0, ""), SUSPECTED, False),
        (None, Loss(uuid="u", node="e", boot_id="boot before"), True),
    ],
)
def test_an_agent_that_begins_arms_a_watchdog_by_nothing_that_etcd_does_not_know(
    guard: Guard | None, loss: Loss | None, *, may: bool
) -> None:
    assert may_arm("boot", TIMING, guard, loss) is may


def test_etcd_is_told_the_longest_time_of_a_watchdog() -> None:
    assert guard_for("boot", TIMING, 9.0, "disk") == Guard(
        boot_id="boot", watchdog_s=9.0, dead_after_s=4.0 + 2 * 9.0 + 1.0, disk="disk"
    )
    assert guard_for("boot", TIMING, 2.0, "").watchdog_s == TIMING.watchdog_s
    assert guard_for("boot", TIMING, None, "").watchdog_s is None


@given(
    old=st.builds(Timing, *[st.floats(1, 60)] * 5), new=st.builds(Timing, *[st.floats(1, 60)] * 5)
)
def test_between_two_times_a_node_lives_for_no_longer_than_etcd_is_told(
    old: Timing, new: Timing
) -> None:
    told = longest(old, new).dead_after_s
    used = strictest(old, new)
    assert used.lease_s + 2 * used.watchdog_s <= old.lease_s + 2 * old.watchdog_s
    assert told >= max(old.dead_after_s, new.dead_after_s, used.dead_after_s)


# --- the proof


def view(now_s: float, node: NodeView, *, seen: str = "abcd", **more: object) -> View:
    nodes = {name: NodeView(is_present=name in seen) for name in NODES} | {"e": node}
    return View(now_s, "a", nodes, **more)  # type: ignore[arg-type]


def condemn(judge: Judge, names: str, first_s: int, last_s: int = 0, *, revision: int = 7) -> None:
    """These nodes condemn "e" with each beat."""
    for now_s in range(first_s, max(first_s, last_s) + 1):
        for name in names:
            judge.condemned("e", revision, name, told_s=now_s, heard_s=now_s)


def acts(judge: Judge, seen: View) -> list[tuple[Act, str]]:
    return [(order.act, order.node) for order in judge.look(seen)]


def test_the_watchdog_proves_it_a_while_after_most_nodes_condemned_it() -> None:
    judge, suspected = Judge(TIMING), NodeView(guard=GUARD, loss=SUSPECTED, revision=7)
    assert acts(judge, view(0, NodeView(guard=GUARD))) == [(Act.SUSPECT, "e")]
    assert acts(judge, view(1, suspected)) == [(Act.CONDEMN, "e")]
    condemn(judge, "ab", 1, 500)
    assert acts(judge, view(500, suspected)) == [(Act.CONDEMN, "e")]  # two of five are not enough
    condemn(judge, "c", 500)
    condemn(judge, "d", 500, revision=6)  # of an earlier suspicion
    condemn(judge, "e", 500)  # it does not count itself
    assert acts(judge, view(501, suspected)) == [(Act.CONDEMN, "e")]
    assert "its watchdog has reset it in 14 s" in judge.says["e"]
    # What all were told is forgotten.
    assert acts(judge, view(600, suspected)) == [(Act.CONDEMN, "e")]
    assert "0 nodes have condemned it" in judge.says["e"]
    condemn(judge, "abc", 600, 610)
    almost_s = 600 + TIMING.dead_after_s - 0.1
    assert acts(judge, view(almost_s, suspected)) == [(Act.CONDEMN, "e")]
    [_, order] = judge.look(view(almost_s + 0.2, suspected))
    assert (order.act, order.proof, order.revision) == (Act.PROVE, Proof.WATCHDOG, 7)


def test_the_watchdog_proves_it_by_the_times_of_the_node_itself() -> None:
    slow = TIMING.dead_after_s + 20
    guard = Guard(boot_id="boot", watchdog_s=5.0, dead_after_s=slow)
    judge, suspected = Judge(TIMING), NodeView(guard=guard, loss=SUSPECTED, revision=7)
    judge.look(view(0, suspected))
    condemn(judge, "abc", 0, 35)
    assert acts(judge, view(slow - 0.1, suspected)) == [(Act.CONDEMN, "e")]
    assert (Act.PROVE, "e") in acts(judge, view(slow + 0.1, suspected))


def test_a_proof_is_of_one_boot_and_a_node_that_came_back_may_be_lost_again() -> None:
    dead = Loss(uuid="u", node="e", boot_id="boot", proof=Proof.WATCHDOG, by="a")
    assert acts(Judge(TIMING), view(0, NodeView(guard=GUARD, loss=dead, revision=7))) == []
    again = NodeView(guard=Guard(boot_id="next", watchdog_s=5.0), loss=dead, revision=7)
    [order] = Judge(TIMING).look(view(0, again))
    assert (order.act, order.boot_id, order.revision) == (Act.SUSPECT, "next", 7)


def test_a_new_suspicion_begins_anew() -> None:
    judge, first = Judge(TIMING), NodeView(guard=GUARD, loss=SUSPECTED, revision=7)
    judge.look(view(0, first))
    condemn(judge, "abc", 0, 100)
    again = NodeView(guard=GUARD, loss=SUSPECTED, revision=9)
    assert acts(judge, view(100, again)) == [(Act.CONDEMN, "e")]


def test_a_helper_proves_it_when_it_says_off_and_is_asked_again_when_it_fails() -> None:
    judge = Judge(TIMING)
    node = NodeView(guard=UNGUARDED, loss=SUSPECTED, revision=7, has_helper=True)
    assert acts(judge, view(0, node)) == [(Act.CONDEMN, "e"), (Act.SWITCH_OFF, "e")]
    judge.told("e", 7, Power.ON, "exit status 1", now_s=4)
    assert acts(judge, view(5, node)) == [(Act.CONDEMN, "e")]
    assert "exit status 1" in judge.says["e"]
    later_s = TIMING.helper_s + TIMING.retry_s
    assert (Act.SWITCH_OFF, "e") in acts(judge, view(later_s, node))
    judge.told("e", 7, Power.OFF, now_s=later_s)
    assert [order.proof for order in judge.look(view(later_s + 1, node))][1:] == [Proof.FENCED]


@pytest.mark.parametrize("way", ["paused", "too few nodes", "not the master", "no etcd", "another"])
def test_what_a_helper_said_before_proves_nothing_as_the_node_may_be_on_again(way: str) -> None:
    judge, later_s = Judge(TIMING), 2.0
    node = NodeView(guard=UNGUARDED, loss=SUSPECTED, revision=7, has_helper=True)
    assert (Act.SWITCH_OFF, "e") in acts(judge, view(0, node))
    judge.told("e", 7, Power.OFF, now_s=1.0)
    match way:
        case "paused":
            judge.look(view(1, node, pause="maintenance until noon"))
        case "too few nodes":
            judge.look(view(1, node, seen="ab"))
        case "not the master":
            judge.look(view(1, node, is_current=False))
        case "no etcd":  # nobody looks meanwhile
            later_s = 1.0 + TIMING.lease_s
        case _:
            node = replace(node, revision=9)
            assert (Act.SWITCH_OFF, "e") in acts(judge, view(1, node))
            judge.told("e", 7, Power.OFF, now_s=1.5)
    assert (Act.PROVE, "e") not in acts(judge, view(later_s, node))
    again_s = TIMING.helper_s + TIMING.retry_s
    assert way != "no etcd" or (Act.SWITCH_OFF, "e") in acts(judge, view(again_s, node))


def test_a_node_whose_agent_is_about_to_start_for_the_first_time_is_not_switched_off() -> None:
    """High availability is being switched on, or the node added, and most others were quicker."""
    judge = Judge(TIMING)
    for node in (NodeView(has_helper=True), NodeView(has_helper=True, loss=SUSPECTED, revision=7)):
        assert acts(judge, view(0, node)) == []
        assert "never there" in judge.says["e"]


@pytest.mark.parametrize(
    "node",
    [
        NodeView(is_present=True, loss=SUSPECTED, revision=7),
        NodeView(answered_s=9.0, loss=SUSPECTED, revision=7),
    ],
)
def test_a_node_that_is_seen_in_any_way_is_absolved(node: NodeView) -> None:
    [order] = Judge(TIMING).look(view(10, node))
    assert (order.act, order.revision) == (Act.ABSOLVE, 7)


def test_nothing_starts_on_a_node_whose_loss_may_still_start_its_instances_elsewhere() -> None:
    dead = Loss(uuid="u", node="e", boot_id="boot", proof=Proof.FENCED, by="a")
    booted = Guard(boot_id="next", watchdog_s=5.0)
    assert is_unsafe(booted, dead, is_present=True), "the job that sets it offline may be queued"
    assert not is_unsafe(booted, None, is_present=True), "maintd has closed it"
    assert not is_unsafe(booted, SUSPECTED, is_present=True), "it is taken back"
    assert is_unsafe(GUARD, SUSPECTED, is_present=False)
    assert is_unsafe(GUARD, None, is_present=False), "it may be proved by its watchdog"
    without = Guard(boot_id="boot", watchdog_s=None)
    left = Guard(boot_id="boot", watchdog_s=5.0, has_left=True)
    for guard in (without, left, None):
        assert not is_unsafe(guard, None, is_present=False)


def test_nobody_is_judged_by_one_who_sees_too_little_or_may_not() -> None:
    gone = NodeView(guard=GUARD)
    assert acts(Judge(TIMING), view(10, gone, is_current=False)) == []
    assert acts(Judge(TIMING), view(10, gone, pause="maintenance until noon")) == []
    judge = Judge(TIMING)
    assert acts(judge, view(10, gone, seen="ab")) == []
    assert judge.says["e"] == "only 2 of 5 nodes are there"
    assert acts(Judge(TIMING), view(10, NodeView(is_offline=True))) == []
    judge = Judge(TIMING)
    assert acts(judge, view(10, NodeView(guard=GUARD, is_witness=True))) == []
    assert "its vote is missing" in judge.says["e"]


# --- the master


def outlook(**more: object) -> Outlook:
    facts: dict[str, object] = {
        "now_s": 100.0,
        "own": "b",
        "boot_id": "boot",
        "holder": None,
        "is_current": True,
        "is_master": False,
        "is_failing_over": False,
        "sees_master": False,
        "seen": 4,
        "nodes": 5,
    }
    return Outlook(**(facts | more))  # type: ignore[arg-type]


def test_a_candidate_takes_the_key_first_and_fails_over_then() -> None:
    claimant = Claimant(TIMING)
    assert claimant.look(outlook(now_s=99.0)) is Claim.NOTHING  # it may come back
    assert claimant.look(outlook()) is Claim.TAKE
    own = Mastership(node="b", boot_id="boot")
    assert claimant.look(outlook(holder=own)) is Claim.FAIL_OVER
    assert claimant.look(outlook(holder=own, is_failing_over=True)) is Claim.KEEP
    claimant.failed(101.0)
    assert claimant.look(outlook(holder=own, now_s=102.0)) is Claim.GIVE_BACK
    assert claimant.look(outlook(now_s=103.0)) is Claim.NOTHING
    assert claimant.look(outlook(now_s=101.0 + TIMING.retry_s)) is Claim.TAKE
    assert claimant.look(outlook(is_master=True)) is Claim.TAKE
    assert claimant.look(outlook(is_master=True, holder=own)) is Claim.KEEP


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"sees_master": True}, "the master answers"),
        ({"seen": 2}, "only 2 of 5 nodes answer"),
        ({"pause": "paused"}, "paused"),
        ({"alone": "c"}, "c went on alone"),
        ({"is_witness": True}, "it is the witness"),
    ],
)
def test_what_keeps_a_candidate_from_taking_over(more: dict[str, object], why: str) -> None:
    claimant = Claimant(TIMING)
    claimant.look(outlook(now_s=0.0, **more))
    assert claimant.look(outlook(**more)) is Claim.NOTHING
    assert why in claimant.says
    own = Mastership(node="b", boot_id="boot")
    assert claimant.look(outlook(holder=own, **more)) is Claim.GIVE_BACK


def test_a_key_of_the_boot_before_is_left_to_end() -> None:
    old = Mastership(node="b", boot_id="old")
    assert Claimant(TIMING).look(outlook(holder=old, is_master=True)) is Claim.NOTHING


@pytest.mark.parametrize("cause", ["is_master", "is_failing_over", "has_jobs", "holds the key", ""])
def test_the_mark_stands_while_jobs_of_a_master_run_or_may_begin(cause: str) -> None:
    own = Mastership(node="b", boot_id="boot")
    causes = {name: name == cause for name in ("is_master", "is_failing_over", "has_jobs")}
    holder = own if cause == "holds the key" else Mastership(node="b", boot_id="boot before")
    assert mark_wanted(own, holder, **causes) == (own if cause else None)


@given(count=st.integers(1, 9), alone=st.booleans())
def test_who_takes_over_meets_one_who_knows_each_record(count: int, alone: bool) -> None:
    candidates = [f"c{number}" for number in range(count)]
    writer = "c0" if alone else ""
    copies = copies_wanted(candidates, writer, "c0")
    if not alone:
        assert copies + answers_wanted(candidates, "", "c0") > count
    assert 1 <= answers_wanted(candidates, writer, "c0") <= count


def test_of_two_candidates_one_is_alone_while_the_other_lacks_something() -> None:
    pair = ("a", "b")
    assert judge_lone(pair, "a", "", {"a"}) is Lone.WRITE
    assert judge_lone(pair, "a", "a", {"a"}) is Lone.NOTHING
    assert judge_lone(pair, "a", "a", {"a", "b"}) is Lone.ERASE
    assert judge_lone(pair, "a", "", {"b"}) is Lone.NOTHING
    assert judge_lone(("a", "b", "c"), "a", "", {"a"}) is Lone.NOTHING
    assert judge_lone(("a", "b", "c"), "a", "a", {"a"}) is Lone.NOTHING
    assert judge_lone(("a", "b", "c"), "a", "a", {"a", "b"}) is Lone.ERASE
    assert judge_lone(("a",), "a", "", {"a"}) is Lone.WRITE  # a second one counts later
    assert judge_lone(("a",), "a", "a", {"a"}) is Lone.NOTHING
    assert judge_lone(pair, "a", "b", {"a", "b"}) is Lone.ERASE  # b is no master any more


def test_of_two_candidates_the_other_one_is_asked_unless_it_cannot_know_more() -> None:
    pair = ("a", "b")
    assert answers_wanted(pair, "", "a") == 1
    assert answers_wanted(pair, "a", "a", holds_key=False) == 1
    assert answers_wanted(pair, "b", "a") == 2
    assert answers_wanted(pair, "", "a", holds_key=False) == 2


class Pair:
    """A master's node "a", the other candidate "b", and what they do to each other."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.alone = self.told = ""  # in etcd, and in the file of the agent
        self.told_s = self.now_s
        self.is_up = True
        self.companion = Companion(TIMING)
        self.marks: dict[str, tuple[float, int] | None] = dict.fromkeys(("wconfd", "luxid"))
        self.reports: dict[str, Report] = {}
        self.written = dict.fromkeys(self.marks, 0)
        self.copied = dict.fromkeys(self.marks, 0)
        self.acknowledged = dict.fromkeys(self.marks, 0)
        self.waiting: list[tuple[str, int]] = []

    def beat(self) -> None:
        answering = {"a", "b"} if self.is_up else {"a"}
        pair, reports = ("a", "b"), list(self.reports.values())
        match self.companion.look(self.now_s, "a", pair, self.alone, answering, reports):
            case Lone.WRITE:
                self.alone = "a"
            case Lone.ERASE:
                self.alone = ""
        self.told = "" if self.companion.rejoins_s is not None else self.alone
        self.told_s = self.now_s

    def write(self, daemon: str) -> None:
        self.written[daemon] += 1
        self.waiting.append((daemon, self.written[daemon]))

    def answer(self) -> None:
        """Acknowledge what may be acknowledged by the rule as it is told now."""
        for daemon, version in list(self.waiting):
            wanted = copies_wanted(("a", "b"), self.told, "a")
            if wanted <= 1 + (self.copied[daemon] >= version):
                self.waiting.remove((daemon, version))
                self.acknowledged[daemon] = max(self.acknowledged[daemon], version)

    def copy(self, daemon: str) -> None:
        if self.is_up:
            self.copied[daemon] = self.written[daemon]

    def report(self, daemon: str) -> None:
        before, self.marks[daemon] = self.marks[daemon], (self.told_s, self.written[daemon])
        if before is not None:
            lacking = [] if self.is_up and self.copied[daemon] >= before[1] else ["b"]
            self.reports[daemon] = Report(before[0], lacking)

    def step(self, what: str) -> None:
        self.now_s += 0.5
        verb, _, daemon = what.partition(" ")
        if verb in ("down", "up"):
            self.is_up = verb == "up"
        elif daemon:
            getattr(self, verb)(daemon)
        else:
            getattr(self, verb)()


STEPS = ["beat", "answer", "down", "up"] + [
    f"{verb} {daemon}" for verb in ("write", "copy", "report") for daemon in ("wconfd", "luxid")
]


@given(steps=st.lists(st.sampled_from(STEPS), max_size=120))
def test_what_is_acknowledged_is_on_both_unless_it_is_written_that_one_is_alone(
    steps: list[str],
) -> None:
    pair = Pair()
    for step in steps:
        pair.step(step)
        for daemon, version in pair.acknowledged.items():
            assert pair.alone == "a" or pair.copied[daemon] >= version


@given(steps=st.lists(st.sampled_from(STEPS), max_size=60))
def test_the_master_gets_alone_and_both_get_together_again(steps: list[str]) -> None:
    pair = Pair()
    for step in steps:
        pair.step(step)
    for is_up in (False, True):
        pair.is_up = is_up
        pair.write("luxid")
        for _ in range(80):
            for step in ("beat", "copy wconfd", "copy luxid", "report wconfd", "report luxid"):
                pair.step(step)
            pair.answer()
        assert not pair.waiting
        assert (pair.alone, pair.told) == (("", "") if is_up else ("a", "a"))


def test_a_candidate_that_takes_nothing_any_more_is_left_behind() -> None:
    companion, pair = Companion(TIMING), ("a", "b")
    report = [Report(50.0), Report(50.0, ["b"])]
    assert companion.look(50.0, "a", pair, "", pair, report) is Lone.NOTHING
    assert companion.look(53.9, "a", pair, "", pair, report) is Lone.NOTHING
    assert companion.look(54.0, "a", pair, "", pair, report) is Lone.WRITE


def test_a_new_candidate_counts_when_it_has_everything() -> None:
    companion, three = Companion(TIMING), ("a", "b", "c")
    assert companion.look(50.0, "a", three, "", three, []) is Lone.NOTHING
    both = [Report(50.0), Report(50.0)]  # of the time before
    assert companion.look(51.0, "a", ("a", "b"), "", three, both) is Lone.WRITE
    both = [Report(51.5), Report(51.5)]
    assert companion.look(52.0, "a", ("a", "b"), "", three, both) is Lone.NOTHING


# --- restarts


def guest(name: str, nodes: str = "abcd", *, memory: int = 10, priority: int | None = 0) -> Guest:
    return Guest(name, "e", memory, tuple(nodes), priority)


def test_important_ones_start_first_and_what_does_not_fit_is_named() -> None:
    guests = [guest("g1"), guest("g2", priority=5), guest("g3", memory=99), guest("g4", "")]
    guests.append(guest("g5", priority=None))
    plan = plan_restarts(guests, {"a": 10, "b": 9}, {}, Limits())
    assert [(each.guest.name, each.node) for each in plan.restarts] == [("g2", "a")]
    assert "needs 10 MiB of memory, and b has 9" in plan.left["g1"]
    assert "needs 99 MiB" in plan.left["g3"]
    assert plan.left["g4"] == "no node that is alive has its disks"
    assert plan.left["g5"] == "it is never to be restarted by itself"


@given(
    guests=st.lists(
        st.tuples(st.integers(1, 30), st.sets(st.sampled_from("abcd")), st.integers(-2, 2)),
        max_size=20,
    ),
    free=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 60)),
    running=st.integers(0, 4),
)
def test_no_node_gets_more_than_it_has_room_for(
    guests: list[tuple[int, set[str], int]], free: dict[str, int], running: int
) -> None:
    wanted = [
        guest(f"g{number}", "".join(nodes), memory=memory, priority=priority)
        for number, (memory, nodes, priority) in enumerate(guests)
    ]
    limits = Limits(starts_max=5, per_node_max=2)
    under_way = {f"r{number}": "a" for number in range(running)}
    plan = plan_restarts(wanted, free, under_way, limits)
    for name in "abcd":
        here = [each.guest for each in plan.restarts if each.node == name]
        assert sum(each.memory for each in here) <= free.get(name, 0)
        busy = list(under_way.values()).count(name)
        assert not here or len(here) + busy <= limits.per_node_max
    assert len(plan.restarts) + running <= max(limits.starts_max, running)
    started = {each.guest.name for each in plan.restarts}
    assert not started & plan.left.keys()
    for each in plan.restarts:  # a more important one is never passed over for its turn
        assert each.node in each.guest.nodes
    if not running and not plan.restarts:
        assert len(plan.left) == len(wanted)


def test_priorities_come_from_tags() -> None:
    assert priority_of([]) == 0
    assert priority_of(["ha:priority:7", "web"]) == 7
    assert priority_of(["ha:priority:7", "ha:priority:-2"]) == -2
    assert priority_of(["ha:priority:7", "ha:priority:never"]) is None
    assert priority_of(["ha:priority:high", "ha:priority:"]) == 0


def test_a_master_waits_until_the_one_before_is_dead() -> None:
    before = {"a": Mastership(node="a", boot_id="boot")}
    dead = Loss(uuid="u", node="a", boot_id="boot", proof=Proof.WATCHDOG)
    assert objection(before, {}, "a") == ""
    assert "node a was the master" in objection(before, {}, "b")
    assert "type 'gnt-cluster ha-confirm-dead a'" in objection(before, {}, "b")
    assert objection(before, {"a": dead}, "b") == ""
    later = {"a": Mastership(node="a", boot_id="next boot")}
    assert objection(later, {"a": dead}, "b") != ""


# --- the text of a scenario


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x lose a", "line 1 of the scenario: 'x' is no time"),
        ("5 lose a\n\n# more\n4 lose a", "line 4 of the scenario: the time 4 is before"),
        ("5", "nothing is no event; there are lose, return"),
        ("5 explode a", "'explode' is no event"),
        ("5 lose", "lose needs names of nodes"),
        ("5 lose x", "'x' is no node; there are a, b, c, d, e"),
        ("5 cut a", "cut needs two names"),
        ("5 heal a", "heal needs nothing"),
        ("5 helper lies a", "helper needs one of none, works, hangs, fails"),
        ("5 pause", "pause needs one of on, off"),
        ("nan lose a", "before the last one"),
        ("1e9 lose a", "after 86400 s"),
    ],
)
def test_a_scenario_that_cannot_be_read_names_its_line(text: str, why: str) -> None:
    with pytest.raises(OpPrereqError) as caught:
        read_scenario(text, NODES)
    assert why in caught.value.message


def test_every_word_of_a_scenario_can_be_played() -> None:
    world = make_world(TIMING, NODES, NODES[:3], [SimGuest("g", "e", is_shared=True)])
    lines: list[str] = []
    for name, word in EVENTS.items():
        states = word.states or ("",)
        names = " ".join(NODES[3 : 3 + max(word.names[0], 1)]) if word.names != (0, 0) else ""
        lines += [f"1 {name} {state} {names}" for state in states]
    scenario = read_scenario("\n".join(lines), NODES)
    said = [text for _, text in scenario.play(world)]
    assert sum(text.startswith("---") for text in said) == len(scenario.events)
    assert scenario.end_s == 121
