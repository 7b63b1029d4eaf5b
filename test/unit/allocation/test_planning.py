"""Whole plans: every step is legal, they end where they say, and copy far less than step by step."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from fakes.text_clusters import Shape, made_up
from fakes.uneven_clusters import uneven
from msgspec.structs import replace

from ganeti.allocation.balancing.search import Ends
from ganeti.allocation.balancing.steps import Limits
from ganeti.allocation.limits import Redundancy, obstacle
from ganeti.allocation.model import Rules
from ganeti.allocation.planning.bound import Bound, Program
from ganeti.allocation.planning.plan import (
    Plan,
    Task,
    applied,
    data_of,
    downtime_of,
    make_plan,
    why,
)
from ganeti.allocation.planning.search import Budget
from ganeti.allocation.sources.text_data import read_text
from ganeti.allocation.state import make_state

TO_THE_END = Ends(1e-9, 0.01, 0.1)
STRICT = Rules(checks_capacity=False)
MIXED = Shape(nodes=(3, 6), per_node=(2, 4), is_consistent=True)
TINY = Shape(nodes=(3, 3), per_node=(1, 1), is_consistent=True, templates=("drbd",))


FREELY, ALL = Budget(), Limits()


def task_of(text: str, budget: Budget = FREELY, limits: Limits = ALL) -> Task:
    cluster = make_state(read_text(text.encode(), "cluster", ()))
    return Task(cluster, next(iter(cluster.groups)), limits, TO_THE_END, budget)


def in_time(_phase: str, _part: float) -> bool:
    return False


def check(task: Task, plan: Plan) -> None:
    """Check that each step is legal where its turn comes, and that the figures are right."""
    cluster, data, downtime = task.cluster, 0, 0.0
    for done in plan.steps:
        step = done.step
        after = applied(cluster, step)
        old, new = cluster.groups[task.group], after.groups[task.group]
        assert cluster.instances[step.before.name] == step.before
        assert done.score == pytest.approx(new.exact_score, abs=1e-9)
        for name in step.after.nodes:
            assert new.loads[name].node.is_usable or name in step.before.nodes
            assert obstacle(old.loads[name], new.loads[name], STRICT) is None
        if all(cluster.nodes[name].is_usable for name in step.before.nodes):
            assert not Redundancy(old.loads).gets_worse(new.loads)
        # The old copy is still there while the new one is made: at most one node is new.
        added = set(step.after.nodes) - set(step.before.nodes)
        assert len(added) <= 1
        for name in added:
            load = old.loads[name]
            room = load.free_disk - load.file_disk - load.node.disk_min
            assert room > step.before.disk or not step.before.disk
        source, target = (cluster.nodes[each.primary] for each in (step.before, step.after))
        if source != target and len(step.actions) == 1:
            assert source.is_offline or target.accepts_from(source)
        data += data_of(step)
        downtime += downtime_of(task, step)
        cluster = after
    assert cluster.instances == plan.cluster.instances
    assert plan.figures.score == pytest.approx(cluster.groups[task.group].exact_score, abs=1e-9)
    assert (plan.figures.moves, plan.figures.data) == (len(plan.steps), data)
    assert plan.figures.downtime == pytest.approx(downtime)
    assert sum(plan.downtimes.values()) == pytest.approx(downtime)
    assert plan.figures.score <= max(plan.greedy.score, plan.target) + 2e-9


@pytest.mark.parametrize("part", range(4))
def test_steps_are_legal_in_clusters_of_every_kind(part: int) -> None:
    moved = 0
    for number in range(part * 3, part * 3 + 3):
        task = task_of(made_up(number, MIXED))
        plan = make_plan(task, in_time)
        check(task, plan)
        moved += len(plan.steps)
    assert moved > 4


@pytest.mark.parametrize("part", range(5))
def test_a_plan_is_as_good_as_step_by_step_and_copies_far_less(part: int) -> None:
    """On 20 clusters in all: 60 % of the data at most for each four, and never more."""
    shares = []
    for number, kind in enumerate(("random", "new", "large", "random")):
        task = task_of(uneven(5 + part % 3, 6, 10 * part + number, kind))
        plan = make_plan(task, in_time)
        check(task, plan)
        assert plan.figures.score <= plan.greedy.score + 1e-8
        assert plan.greedy.data > 0
        shares.append(plan.figures.data / plan.greedy.data)
    assert max(shares) <= 1.0
    assert np.mean(shares) <= 0.6, shares


@pytest.mark.parametrize(
    "budget", [Budget(moves=4), Budget(data=60 * 1024), Budget(downtime=0.1), Budget(5, 1e5, 0.1)]
)
def test_the_budget_is_kept(budget: Budget) -> None:
    task = task_of(uneven(6, 6), budget)
    plan = make_plan(task, in_time)
    check(task, plan)
    spent = plan.figures
    assert spent.moves <= budget.moves
    assert spent.data <= budget.data
    assert spent.downtime <= budget.downtime + 1e-9
    assert spent.score <= plan.greedy.score + 2e-9
    assert spent.score < task.state.exact_score


@pytest.mark.parametrize(
    "limits",
    [Limits(moves_disks=False), Limits(moves_instances=False), Limits(restricts_migration=True)],
)
def test_restrictions_hold(limits: Limits) -> None:
    task = task_of(uneven(5, 6, 1), limits=limits)
    plan = make_plan(task, in_time)
    check(task, plan)
    assert plan.steps
    for done in plan.steps:
        before, after = done.step.before, done.step.after
        assert limits.moves_disks or set(before.nodes) == set(after.nodes)
        assert limits.moves_instances or before.primary == after.primary
        assert not limits.restricts_migration or done.step.actions.count("f") < 2


def test_the_same_task_has_the_same_plan() -> None:
    first, second = (make_plan(task_of(uneven(5, 6, 7)), in_time) for _ in range(2))
    assert [done.step for done in first.steps] == [done.step for done in second.steps]


def test_without_time_there_is_a_plan_still() -> None:
    task = task_of(uneven(6, 8, 1))
    asked = 0

    def late_after(most: int) -> Plan:
        nonlocal asked
        asked = 0

        def watch(_phase: str, _part: float) -> bool:
            nonlocal asked
            asked += 1
            return asked > most

        return make_plan(task, watch)

    for most in (0, 3, 30, 300):
        plan = late_after(most)
        check(task, plan)
        assert plan.is_cut
        assert plan.steps


def test_a_step_has_a_reason() -> None:
    task = task_of(uneven(5, 6, 2))
    plan = make_plan(task, in_time)
    done = plan.steps[0]
    after = applied(task.cluster, done.step)
    reason = why(task.state, after.groups[task.group])
    name, change, *_ = reason.rstrip(",").split()
    old, new = (
        {each.name: each.value * each.weight for each in state.components}
        for state in (task.state, after.groups[task.group])
    )
    assert float(change.rstrip(",")) == pytest.approx(new[name] - old[name], abs=1e-6)
    assert all(new[each] - old[each] >= new[name] - old[name] for each in old)


def bound(task: Task, target: float, *, of_score: bool) -> Bound:
    layout = task.layout()
    program = Program(layout, task.pauses(layout), task.budget, target, of_score=of_score)
    return program.solve(lambda _: False)


def placements(task: Task) -> list[tuple[float, float, float, float]]:
    """Return score, moves, data and downtime of every placement of the instances there is."""
    found = []
    candidates = task.candidates
    names = list(task.state.loads)
    pairs = [(a, b) for a, b in product(names, names) if a != b]
    for chosen in product(pairs, repeat=len(candidates)):
        cluster, moves, data, downtime = task.cluster, 0, 0, 0.0
        for instance, nodes in zip(candidates, chosen, strict=True):
            if instance.nodes != nodes:
                moved = replace(instance, nodes=nodes)
                cluster = cluster.without_instance(instance).with_instance(moved)
                new = len(set(nodes) - set(instance.nodes))
                moves += max(1, new)
                data += instance.disk * new
                downtime += task.pause(instance) * (instance.primary != nodes[0])
        score = cluster.groups[task.group].exact_score
        found.append((score, moves, data, downtime))
    return found


@pytest.mark.parametrize("number", range(8))
def test_no_placement_at_all_is_below_the_bound(number: int) -> None:
    task = task_of(made_up(number, TINY) if number % 2 else uneven(3, 2, number))
    every = placements(task) if len(task.candidates) < 5 else []
    if len(every) < 2:
        pytest.skip("the cluster has nothing to place, or too much")
    draw = random.Random(number)
    scores = sorted(score for score, *_ in every)
    for target in (scores[0], scores[len(scores) // 50], draw.choice(scores[: len(scores) // 4])):
        least = min(data for score, _, data, _ in every if score <= target + 1e-9)
        assert bound(task, target, of_score=False).data <= least + 1e-3
    for budget in (
        Budget(moves=1),
        Budget(data=12_000),
        Budget(downtime=0.03),
        Budget(2, 2e4, 0.1),
    ):
        best = min(
            score
            for score, moves, data, downtime in every
            if moves <= budget.moves and data <= budget.data and downtime <= budget.downtime + 1e-9
        )
        limited = replace(task, budget=budget)
        assert bound(limited, scores[0], of_score=True).score <= best + 1e-6


def test_the_bound_is_worth_something_and_below_the_plan() -> None:
    task = task_of(uneven(6, 8, 4))
    plan = make_plan(task, in_time)
    found = bound(task, plan.target, of_score=False)
    assert plan.figures.data / 10 < found.data <= plan.figures.data
    assert found.holders


@pytest.mark.parametrize("number", range(6))
def test_a_layout_has_the_score_of_the_group(number: int) -> None:
    task = task_of(made_up(number, Shape(nodes=(3, 8), is_consistent=number % 2 == 0)))
    layout, cluster, draw = task.layout(), task.cluster, random.Random(number)
    assert layout.score == pytest.approx(task.state.exact_score, abs=1e-7)
    for _ in range(20):
        row = draw.randrange(len(layout.instances))
        layout.lift(row)
        places = layout.places(row)
        place = draw.choice(np.flatnonzero(np.isfinite(places.score)))
        x, y = int(places.primary[place]), int(places.secondary[place])
        layout.put(row, x, y)
        nodes = tuple(layout.names[each] for each in (x, y) if each != layout.nowhere)
        old = cluster.instances[layout.instances[row].name]
        cluster = cluster.without_instance(old).with_instance(replace(old, nodes=nodes))
        exact = cluster.groups[task.group].exact_score
        assert places.score[place] == pytest.approx(exact, abs=1e-7)
        assert layout.score == pytest.approx(exact, abs=1e-7)
