"""Which backups begin, where and when."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.backups.plan import (
    RETRY_S,
    Export,
    Facts,
    Machine,
    NodeState,
    Plan,
    Step,
    Work,
    due_at,
    plan_backups,
    tag_problems,
)
from ganeti.backups.policy import DAY_S, HOUR_S, Policy

DAILY = "ganeti:backup:every:1d"
NOW = 1_000 * DAY_S + 12.0 * HOUR_S
NODES = dict.fromkeys(("n1", "n2", "n3"), NodeState.GOOD)


def machine(name: str, *tags: str, primary: str = "n1", copies: tuple[str, ...] = ()) -> Machine:
    return Machine(name, primary, copies, NOW - DAY_S, "lab", {"instance": tags})


WEB = machine("web", DAILY)


def facts(*machines: Machine, **values: object) -> Facts:
    return replace(Facts(machines, NODES, NOW), **values)  # type: ignore[arg-type]


def wait_of(plan: Plan, name: str = "web") -> str:
    [found] = [each.wait for each in plan.standings if each.machine.name == name]
    return found


def test_an_instance_without_a_policy_is_left_alone() -> None:
    plan = plan_backups(facts(machine("web"), machine("db", "ganeti:backup:none")))
    assert plan.steps == ()
    assert [each.due for each in plan.standings] == [None, None]
    assert not any(each.is_late for each in plan.standings)


def test_wrong_tags_are_told_once() -> None:
    tags = {"instance": (), "nodegroup": ("ganeti:backup:often",)}
    found = facts(replace(WEB, tags=tags), replace(WEB, name="db", tags=tags))
    [text] = tag_problems(found)
    assert text.startswith("nodegroup lab: tag 'ganeti:backup:often'")


def test_it_is_exported_when_the_newest_export_is_old_enough() -> None:
    [step] = plan_backups(facts(WEB)).steps
    assert step == Step(Work.EXPORT, "web", Policy(DAY_S), "n2")
    old, new = Export("n3", NOW - DAY_S), Export("n3", NOW - DAY_S + 1)
    [step] = plan_backups(facts(WEB, exports={"web": [old]})).steps
    assert step.node == "n3", "where the older one is"
    assert plan_backups(facts(WEB, exports={"web": [new]})).steps == ()
    assert plan_backups(facts(WEB, exports={"web": [old, new]})).steps == ()


def test_the_cluster_has_policies_too() -> None:
    plan = plan_backups(facts(machine("web"), cluster_tags=[f"{DAILY}:to:n3"]))
    assert [(step.instance, step.node) for step in plan.steps] == [("web", "n3")]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"busy": {"web": "job 7 is about it"}}, "job 7 is about it"),
        ({"nodes": {**NODES, "n1": NodeState.OFFLINE}}, "its primary node n1 is offline"),
        ({"nodes": {**NODES, "n3": NodeState.SILENT}}, "node n3 is silent, and may have"),
        ({"failed": {"web": NOW - RETRY_S + 1}}, "the last try failed"),
        ({"under_way": [frozenset(["n1"])]}, "node n1 has 1 under way, and may have 1"),
        ({"cluster_tags": ["ganeti:backup:per-node:0"]}, "n1 has 0 under way, and may have 0"),
        ({"nodes": dict.fromkeys(NODES, NodeState.DRAINED)}, "no node can take it"),
    ],
)
def test_reasons_to_wait(values: dict[str, object], why: str) -> None:
    plan = plan_backups(facts(WEB, **values))
    assert plan.steps == ()
    assert why in wait_of(plan)


def test_a_failure_is_tried_again_after_an_hour() -> None:
    assert plan_backups(facts(WEB, failed={"web": NOW - RETRY_S})).steps


def test_the_copy_is_not_kept_where_the_disks_are() -> None:
    there = machine("web", DAILY, copies=("n2",))
    assert plan_backups(facts(there)).steps[0].node == "n3"
    [step] = plan_backups(facts(WEB, exports={"web": [Export("n1", 1.0)]})).steps
    assert step.node == "n2", "the instance has moved to the node of its export"
    [step] = plan_backups(facts(WEB, nodes={"n1": NodeState.GOOD})).steps
    assert step.node == "n1", "there is no other one"
    drained = {**NODES, "n3": NodeState.DRAINED}
    [step] = plan_backups(facts(WEB, nodes=drained, exports={"web": [Export("n3", 1.0)]})).steps
    assert step.node == "n3", "it has the chain"
    gone = {**NODES, "n3": NodeState.OFFLINE}
    [step] = plan_backups(facts(WEB, nodes=gone, exports={"web": [Export("n3", 1.0)]})).steps
    assert step.node == "n2"


@pytest.mark.parametrize(
    ("keep", "points", "before"),
    [(1, 1, None), (1, 2, 1), (2, 3, None), (2, 4, 2), (7, 10, None), (7, 11, 4)],
)
def test_a_chain_is_shortened_when_it_has_grown_by_half(
    keep: int, points: int, before: int | None
) -> None:
    chain = Export("n3", NOW - 60, tuple(range(points)))
    plan = plan_backups(facts(machine("web", f"{DAILY}:keep:{keep}"), exports={"web": [chain]}))
    assert [(each.work, each.before) for each in plan.steps] == (
        [] if before is None else [(Work.SHORTEN, before)]
    )
    assert all(step.before in chain.points[-keep:] for step in plan.steps)


def test_too_old() -> None:
    def is_late(age_s: float, tag: str = DAILY) -> bool:
        found = facts(machine("web", tag), exports={"web": [Export("n2", NOW - age_s)]})
        [standing] = plan_backups(found).standings
        return standing.is_late

    assert not is_late(2 * DAY_S)
    assert is_late(2 * DAY_S + 1)
    assert not is_late(3 * DAY_S, f"{DAILY}:at:1-3")
    assert is_late(30 * HOUR_S, f"{DAILY}:late:29h")
    [new] = plan_backups(facts(WEB)).standings
    assert not new.is_late, "the instance is not old itself"
    [old] = plan_backups(facts(replace(WEB, made=1.0))).standings
    assert old.is_late
    assert (
        old.late_text(NOW) == "there is no export of it, and the policy of its instance wants one"
    )
    found = facts(WEB, exports={"web": [Export("n2", NOW - 72 * HOUR_S)]})
    assert plan_backups(found).standings[0].late_text(NOW) == (
        "its newest export, on n2, is 72 h old, which is too old by the policy of its instance (2d)"
    )


HOURS = st.tuples(st.integers(0, 23), st.integers(0, 23)).filter(lambda each: each[0] != each[1])


def is_within(hours: tuple[int, int], local: float) -> bool:
    begin, end = hours
    hour = local % DAY_S / HOUR_S
    return begin <= hour < end if begin < end else hour >= begin or hour < end


@given(
    hours=HOURS,
    every_s=st.integers(HOUR_S, 3 * DAY_S),
    zone_s=st.integers(-12, 14).map(lambda each: each * HOUR_S),
    start=st.integers(0, DAY_S),
    takes_s=st.integers(1, HOUR_S),
)
def test_backups_keep_to_their_hours_and_their_days(
    hours: tuple[int, int], every_s: int, zone_s: int, start: int, takes_s: int
) -> None:
    policy = Policy(every_s, hours=hours)
    local = float(zone_s).__add__
    newest, begun = None, []
    now = float(NOW + start)
    for _ in range(12):
        due = due_at(policy, newest, now, local)
        assert due_at(policy, newest, max(now, due), local) <= max(now, due), "it becomes due then"
        now = max(now, due)
        assert is_within(hours, local(now))
        begun.append(now)
        newest = now + takes_s
        now = newest + 1
    gaps = [after - before for before, after in itertools.pairwise(begun)]
    assert all(gap <= every_s + DAY_S + HOUR_S for gap in gaps)
    if every_s >= DAY_S:
        shifted = [(local(each) - hours[0] * HOUR_S) // DAY_S for each in begun]
        assert all(
            after - before >= every_s // DAY_S for before, after in itertools.pairwise(shifted)
        )
        assert all(is_daily_start(hours, local(each)) for each in begun[1:]), "nothing creeps"


def is_daily_start(hours: tuple[int, int], local: float) -> bool:
    return local % DAY_S == hours[0] * HOUR_S


@given(
    primaries=st.lists(st.sampled_from(sorted(NODES)), max_size=12),
    ages=st.lists(st.integers(0, 10 * DAY_S), min_size=12, max_size=12),
    limit=st.integers(0, 3),
    under_way=st.lists(st.frozensets(st.sampled_from(sorted(NODES)), min_size=1), max_size=3),
)
def test_no_node_has_more_than_it_may(
    primaries: list[str], ages: list[int], limit: int, under_way: list[frozenset[str]]
) -> None:
    machines = [machine(f"i{n}", DAILY, primary=node) for n, node in enumerate(primaries)]
    exports = {
        each.name: [Export("n3", NOW - age)] for each, age in zip(machines, ages, strict=False)
    }
    found = facts(
        *machines,
        cluster_tags=[f"ganeti:backup:per-node:{limit}"],
        exports=exports,
        under_way=under_way,
    )
    plan = plan_backups(found)
    before = Counter(name for nodes in under_way for name in nodes)
    load = Counter(before)
    primary = {each.name: each.primary for each in machines}
    for step in plan.steps:
        load.update({primary[step.instance], step.node})
    assert all(load[name] <= max(limit, before[name]) for name in NODES)
    # A node that is free at the end was not refused to anybody who waits for it.
    for standing in plan.standings:
        if "under way" in standing.wait:
            assert load[standing.wait.split()[1]] >= limit
    # Of two on the same node the older one goes first.
    begun = {step.instance for step in plan.steps}
    by_age = sorted(machines, key=lambda each: exports[each.name][0].newest)
    for older, newer in itertools.pairwise(by_age):
        same = older.primary == newer.primary
        assert not (
            same and newer.name in begun and older.name not in begun and older.primary != "n3"
        )
