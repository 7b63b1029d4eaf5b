"""A plan for a node group: all steps before the first one is done, bounded in moves, data and time.

It goes for the score that hbal's search, step by step, would reach without bounds, as near as the
bounds allow, and for the least data to copy that brings it there.  It is never worse than the steps
of that search that keep the bounds.

Source: doc/balancing.md, "A whole plan".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.balancing.arrays import Arrays, Floats, Indices
from ganeti.allocation.balancing.search import Done, Ends, Search
from ganeti.allocation.balancing.steps import Limits, Step, is_candidate
from ganeti.allocation.model import Instance, InstanceStatus
from ganeti.allocation.planning.bound import Bound, Program
from ganeti.allocation.planning.layout import Layout
from ganeti.allocation.planning.order import Nodes, Ordering
from ganeti.allocation.planning.search import ROUNDING, Budget, Improver
from ganeti.allocation.state import ClusterState, GroupState

MIGRATION_DOWNTIME_S: Final = 0.03  # KVM's migration_downtime, constants.json "hvparams"
_ROUNDS_PER_INSTANCE: Final = 25
_ROUNDS: Final = (800, 30_000)
_GOOD_SHARE: Final = 0.5  # of hbal's data, above which the search begins a second time
_CHEAPEST: Final = 0.1  # of what hbal pays on average for data: so little is not worth more
_TRIES: Final = 3  # to find an order
_RUNNING: Final = (InstanceStatus.RUNNING, InstanceStatus.ERROR_UP)

_Way = tuple[Sequence[Done], ClusterState]
Watch = Callable[[str, float], bool]
"""Is told the phase and the part of it that is done, and tells whether the time is over."""


class Figures(Struct, frozen=True):
    """The score after some steps, and what they cost: MiB copied, seconds that instances stand."""

    score: float
    moves: int
    data: int
    downtime: float


class Task(Struct, frozen=True):
    """What is to be planned.

    Attributes:
        group: UUID of the group; nothing leaves it.
        limits: the moves that are wanted.
        ends: when the search of hbal, which sets the score to go for, ends; its count is not used.
        budget: the most that the plan may cost.
        pause_s: how long a migration stops an instance.
        seed: another one gives another plan.
    """

    cluster: ClusterState
    group: str
    limits: Limits
    ends: Ends
    budget: Budget = Budget()
    pause_s: float = MIGRATION_DOWNTIME_S
    seed: int = 1

    @property
    def candidates(self) -> list[Instance]:
        """The instances that could move."""
        instances = self.cluster.instances.values()
        return [
            each for each in instances if is_candidate(each, self.cluster, self.group, self.limits)
        ]

    @property
    def state(self) -> GroupState:
        """The group at the start."""
        return self.cluster.groups[self.group]

    def pause(self, instance: Instance) -> float:
        """Return how long a migration stops an instance, in seconds."""
        return self.pause_s if instance.status in _RUNNING else 0.0

    def pauses(self, layout: Layout) -> Floats:
        """Return how long (seconds) a migration stops each instance of a layout."""
        return np.array([self.pause(each) for each in layout.instances])

    def layout(self) -> Layout:
        """Return the group as arrays."""
        arrays = Arrays(self.cluster, self.group, self.candidates, self.limits.rules)
        return Layout(self.state, arrays, self.limits)


class Plan(Struct, frozen=True):
    """Steps in the order in which they are to be done.

    Attributes:
        cluster: the cluster after them.
        greedy: what hbal's own steps would come to, within the same budget.
        target: the score that hbal's own steps would reach without a budget.
        downtimes: seconds by instance.
        is_cut: the time was over before all was tried.
    """

    steps: tuple[Done, ...]
    cluster: ClusterState
    figures: Figures
    greedy: Figures
    target: float
    downtimes: Mapping[str, float]
    is_cut: bool

    @property
    def reaches_target(self) -> bool:
        """Whether the score is as good as without a budget."""
        return self.figures.score <= self.target + 2 * ROUNDING


def data_of(step: Step) -> int:
    """Return the data (MiB) that a step copies."""
    return step.before.disk * sum(action.startswith("r:") for action in step.actions)


def downtime_of(task: Task, step: Step) -> float:
    """Return how long (seconds) a step stops its instance."""
    switches = sum(not action.startswith("r:") for action in step.actions)
    return task.pause(step.before) * switches


def why(before: GroupState, after: GroupState) -> str:
    """Return the component of the score that a step changes most, and by how much.

    A step that makes the score worse makes room, or evens out what a later one upsets.
    """
    changes = [
        (new.weight * new.value - old.weight * old.value, new.name)
        for old, new in zip(before.components, after.components, strict=True)
    ]
    is_better = sum(change for change, _ in changes) <= 0
    change, name = min(changes) if is_better else max(changes)
    return f"{name} {change:+.6f}" + ("" if is_better else ", for the steps that follow")


def make_plan(task: Task, watch: Watch) -> Plan:
    """Return the best plan that there is time to find; the same for the same task."""
    start = task.state.exact_score
    greedy, is_cut = _greedy(task, watch)
    target = greedy[-1].score if greedy else start
    allowed = _within(task, greedy)
    found: list[_Way] = [(allowed, _after(task.cluster, allowed))]
    if greedy:
        collapsed = {each.step.before.name: each.step.after.nodes for each in greedy}
        found += _ordered(task, greedy, collapsed, watch)
        ordering = Ordering(task.cluster, task.group, task.limits, collapsed)
        steps = _within(task, ordering.done)
        found.append((steps, _after(task.cluster, steps)))
    is_cut = is_cut or watch("", 1.0)

    def key(plan: _Way) -> tuple[float, int, int]:
        figures = _figures(task, plan[0], start)
        return max(figures.score, target + ROUNDING), figures.data, figures.moves

    best, cluster = min(found, key=key)
    downtimes: dict[str, float] = {}
    for done in best:
        name = done.step.before.name
        downtimes[name] = downtimes.get(name, 0.0) + downtime_of(task, done.step)
    return Plan(
        tuple(best),
        cluster,
        _figures(task, best, start),
        _figures(task, allowed, start),
        target,
        {name: seconds for name, seconds in downtimes.items() if seconds},
        is_cut,
    )


def bound_of(task: Task, plan: Plan, is_late: Callable[[float], bool]) -> Bound:
    """Return what no plan can be below: of the data, or if the target is not reached of the score.

    The solver must be there: `ganeti.allocation.planning.bound.is_available`.
    """
    layout = task.layout()
    of_score = not plan.reaches_target
    program = Program(layout, task.pauses(layout), task.budget, plan.target, of_score=of_score)
    return program.solve(is_late)


def _figures(task: Task, steps: Sequence[Done], start: float) -> Figures:
    return Figures(
        steps[-1].score if steps else start,
        len(steps),
        sum(data_of(each.step) for each in steps),
        sum(downtime_of(task, each.step) for each in steps),
    )


def applied(cluster: ClusterState, step: Step) -> ClusterState:
    """Return the state of the cluster after a step."""
    after = cluster.without_instance(step.before).with_instance(step.after)
    # In the order that there was: what is saved has it.
    instances = {name: after.instances[name] for name in cluster.instances}
    return replace(after, instances=instances)


def _after(cluster: ClusterState, steps: Iterable[Done]) -> ClusterState:
    for done in steps:
        cluster = applied(cluster, done.step)
    return cluster


def _greedy(task: Task, watch: Watch) -> tuple[list[Done], bool]:
    """Return hbal's own steps, and whether there was no time for all of them."""
    search = Search(task.cluster, task.group, task.limits, replace(task.ends, count_max=None))
    found: list[Done] = []
    for done in search.steps():
        found.append(done)
        if watch("step by step", 0.0):
            return found, True
    return found, False


def _within(task: Task, steps: Iterable[Done]) -> list[Done]:
    """Return the first steps, as long as they keep the budget."""
    found: list[Done] = []
    spent = np.zeros(3)
    for done in steps:
        spent += (1, data_of(done.step), downtime_of(task, done.step))
        if (spent > task.budget.row * (1 + ROUNDING)).any():
            break
        found.append(done)
    return found


def _ordered(
    task: Task, greedy: Sequence[Done], collapsed: Mapping[str, Nodes], watch: Watch
) -> list[_Way]:
    """Return plans: a placement is searched, and steps towards it.

    Args:
        collapsed: where hbal's own steps lead, the other beginning of the search.
    """
    layout = task.layout()
    target, step_by_step = greedy[-1].score, sum(data_of(each.step) for each in greedy)
    improver = Improver(layout, task.pauses(layout), task.budget, target, task.seed)
    # What hbal pays for its score on average.
    rate = (task.state.exact_score - target) / max(1024, step_by_step)
    improver.descend(rate * _CHEAPEST, lambda: watch("descent", 0.0))
    least, most = _ROUNDS
    rounds = min(most, max(least, _ROUNDS_PER_INSTANCE * len(layout.instances)))
    found: list[_Way] = []
    for beginning in (None, collapsed):
        if beginning is not None:
            if improver.reaches_target and improver.best_data <= _GOOD_SHARE * step_by_step:
                break
            improver.restart(_pairs(layout, beginning))
        improver.refine(rounds, lambda part: watch("refinement", part))
    for _ in range(_TRIES):
        ordering = Ordering(task.cluster, task.group, task.limits, _wanted(layout, improver))
        steps = _within(task, ordering.done)
        found.append((steps, _after(task.cluster, steps)))
        if not ordering.left:
            break
        stuck = set(ordering.left)
        rows = [row for row, each in enumerate(layout.instances) if each.name in stuck]
        best = improver.best.copy()
        best[rows] = layout.start[rows]
        improver.fix(rows)
        improver.restart(best)
        improver.refine(rounds // 3, lambda part: watch("refinement", part))
    return found


def _pairs(layout: Layout, nodes: Mapping[str, Nodes]) -> Indices:
    """Return the columns of the nodes of all instances if some are elsewhere."""
    pairs = layout.start.copy()
    for row, each in enumerate(layout.instances):
        columns = [layout.names.index(name) for name in nodes.get(each.name, ())]
        pairs[row, : len(columns)] = columns
    return pairs


def _wanted(layout: Layout, improver: Improver) -> dict[str, Nodes]:
    """Return the nodes of the instances that are to move."""
    wanted = {}
    for row in np.flatnonzero((improver.best != layout.start).any(axis=1)):
        columns = [column for column in improver.best[row] if column != layout.nowhere]
        wanted[layout.instances[row].name] = tuple(layout.names[column] for column in columns)
    return wanted
