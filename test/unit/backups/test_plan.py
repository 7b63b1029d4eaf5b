"""Which backups begin, where and when."""

from __future__ import annotations

import itertools
import re
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
    Place,
    Plan,
    Step,
    Work,
    plan_backups,
    tag_problems,
)
from ganeti.backups.policy import DAY_S, HOUR_S, Policy
from ganeti.backups.times import due_at
from ganeti.objects.model import Rehearsal

DAILY = "ganeti:backup:every:1d"
NOW = 1_000 * DAY_S + 12.0 * HOUR_S
NODES = dict.fromkeys(("n1", "n2", "n3"), NodeState.GOOD)


def machine(name: str, *tags: str, primary: str = "n1", copies: tuple[str, ...] = ()) -> Machine:
    return Machine(name, primary, copies, made=NOW - DAY_S, group="lab", tags={"instance": tags})


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
        ({"untold": {"web": "n2"}}, "node n2 has an export of it, and did not tell how old"),
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


MONTHLY = f"{DAILY}:rehearse:30d"
PLACES = {"n1": Place("lab", 4096), "n2": Place("lab", 512), "n3": Place("lab", 2048)}
NEW = {"web": [Export("n2", NOW - 60)]}


def rehearsed(*machines: Machine, **values: object) -> Plan:
    return plan_backups(facts(*machines, **{"places": PLACES, "exports": NEW, **values}))


def rehearsal_wait(plan: Plan) -> str:
    [found] = [each.rehearsal.wait for each in plan.standings if each.machine.name == "web"]
    return found


def test_a_rehearsal_runs_where_the_export_is_or_else_where_most_memory_is_free() -> None:
    web = replace(machine("web", MONTHLY, primary="n9"), memory_mib=512)
    [step] = rehearsed(web).steps
    assert (step.work, step.instance, step.node, step.source) == (Work.REHEARSE, "web", "n2", "n2")
    assert step.disk_template == ""
    [step] = rehearsed(replace(web, memory_mib=513, disk_template="drbd")).steps
    assert (step.node, step.source, step.disk_template) == ("n1", "n2", "plain")
    [step] = rehearsed(web, nodes={**NODES, "n2": NodeState.DRAINED}).steps
    assert (step.node, step.source) == ("n1", "n2"), "a drained node is only read from"
    [step] = rehearsed(web, exports={"web": [Export("n2", 9.0), Export("n3", NOW)]}).steps
    assert step.source == "n3", "the newest one"
    [step] = rehearsed(web, nodes={**NODES, "n1": NodeState.OFFLINE}).steps
    assert step.node == "n2"
    assert rehearsed(machine("web", DAILY)).steps == ()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"busy": {"web": "job 7 is about it"}}, "job 7 is about it"),
        ({"rehearsals_failed": {"web": NOW - RETRY_S + 1}}, "the last try failed"),
        ({"nodes": {**NODES, "n2": NodeState.OFFLINE}}, "no node that answers has an export"),
        ({"under_way": [frozenset(["n2"])]}, "node n2 has 1 under way, and may have 1"),
        ({"places": {"n2": Place("lab", 127)}}, "no node of group lab .* has 128 MiB of memory"),
        ({"places": {"n2": Place("other", 4096)}}, "no node of group lab"),
        ({"exports": {"web": [Export("n2", 9.0)]}}, "a backup of it begins"),
    ],
)
def test_reasons_not_to_rehearse(values: dict[str, object], why: str) -> None:
    plan = rehearsed(replace(machine("web", MONTHLY), memory_mib=128), **values)
    assert [step for step in plan.steps if step.work is Work.REHEARSE] == []
    assert re.search(why, rehearsal_wait(plan))


def test_a_rehearsal_takes_only_room_that_no_backup_wants() -> None:
    web, db = machine("web", MONTHLY, primary="n9"), machine("db", DAILY, primary="n1")
    only_n2 = dict.fromkeys(("n1", "n2"), NodeState.GOOD)
    plan = rehearsed(web, db, nodes=only_n2)
    assert [(step.work, step.node) for step in plan.steps] == [(Work.EXPORT, "n2")]
    assert "node n2 has 1 under way" in rehearsal_wait(plan)


def test_an_instance_with_a_bad_rehearsal_is_warned_of_beside_its_late_export() -> None:
    bad = Rehearsal(ended=NOW - 60, job=3, node="n2", exported=9.0, failure="no memory")
    found = rehearsed(replace(machine("web", MONTHLY), made=1.0, rehearsed=bad), exports={})
    [late, failed] = found.standings[0].warnings(NOW)
    assert late.startswith("there is no export of it")
    assert failed.endswith("failed (job 3): no memory")


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
    local = float(zone_s).__add__
    newest, begun = None, []
    now = float(NOW + start)
    for _ in range(12):
        due = due_at(every_s, hours, newest, now, local)
        assert due_at(every_s, hours, newest, max(now, due), local) <= max(now, due), (
            "it becomes due then"
        )
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
