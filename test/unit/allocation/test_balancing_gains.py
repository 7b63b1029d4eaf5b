"""The gains of all moves at once are those of each move by itself, and stay so."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from fakes.naive_balancing import best_option, options_of
from fakes.text_clusters import Shape, made_up

from ganeti.allocation.balancing.arrays import Arrays
from ganeti.allocation.balancing.gains import CLOSED, SWITCH, WAYS, Evaluation, nodes_of
from ganeti.allocation.balancing.search import Ends, Search, _Table
from ganeti.allocation.balancing.steps import Limits, is_candidate
from ganeti.allocation.model import Rules
from ganeti.allocation.score import deviation
from ganeti.allocation.sources.text_data import read_text
from ganeti.allocation.state import ClusterState, GroupState, make_state

CLUSTERS = 60
SHAPES = (
    Shape(nodes=(3, 7)),
    Shape(nodes=(3, 7), is_consistent=True),
    Shape(nodes=(5, 9), templates=("drbd", "drbd", "ext"), is_consistent=True, groups=2),
)
LIMITS = (
    Limits(),
    Limits(Rules(ignores_soft=True, checks_capacity=False)),
    Limits(restricts_migration=True),
    Limits(moves_disks=False),
    Limits(moves_instances=False),
    Limits(only_evacuates=True),
)
EXACT = 1e-9
# A deviation that comes out as next to nothing is the root of what rounding leaves.
NEARLY = 1e-6
TO_THE_END = Ends(1e-9, 0.01, 0.1)
Moves = dict[tuple[str, tuple[str, ...]], float]


def cluster(number: int, shape: Shape) -> tuple[ClusterState, str]:
    snapshot = read_text(made_up(number, shape).encode(), "cluster", ())
    return make_state(snapshot), next(iter(snapshot.groups))


def arrays_of(state: ClusterState, group: str, limits: Limits) -> Arrays:
    each = state.instances.values()
    candidates = [one for one in each if is_candidate(one, state, group, limits)]
    return Arrays(state, group, candidates, limits.rules)


def told_at_once(arrays: Arrays, limits: Limits) -> Moves:
    rows = np.arange(len(arrays.instances))
    gains = Evaluation(arrays, limits).gains(rows)
    found: Moves = {}
    for row, instance in enumerate(arrays.instances):
        if gains.switches[row] > CLOSED:
            found[instance.name, nodes_of(instance, SWITCH, "")] = gains.switches[row]
        for way in range(WAYS):
            for column in np.flatnonzero(gains.ways[way, row] > CLOSED):
                nodes = nodes_of(instance, way, arrays.names[column])
                found[instance.name, nodes] = gains.ways[way, row, column]
    return found


def told_one_by_one(arrays: Arrays, group: GroupState, limits: Limits) -> Moves:
    score = group.exact_score
    return {
        (option.step.before.name, option.step.after.nodes): score - option.state.exact_score
        for instance in arrays.instances
        for option in options_of(group, instance, limits)
    }


def flattest(group: GroupState) -> float:
    return min(
        deviation(squares / group.tally.size - (total / group.tally.size) ** 2)
        for total, squares in zip(group.tally.sums, group.tally.squares, strict=True)
    )


def many() -> Iterator[tuple[ClusterState, str, Limits]]:
    for number in range(CLUSTERS):
        state, group = cluster(number, SHAPES[number % len(SHAPES)])
        yield state, group, LIMITS[number // len(SHAPES) % len(LIMITS)]
        yield state, group, LIMITS[0]


def test_gains_are_differences_of_exact_scores() -> None:
    count = rounded = 0
    for state, group, limits in many():
        arrays = arrays_of(state, group, limits)
        assert arrays.score == pytest.approx(state.groups[group].exact_score, abs=EXACT)
        fast = told_at_once(arrays, limits)
        slow = told_one_by_one(arrays, state.groups[group], limits)
        assert fast.keys() == slow.keys()
        off = {key for key in slow if abs(fast[key] - slow[key]) > EXACT}
        assert all(abs(fast[key] - slow[key]) < NEARLY for key in off)
        count, rounded = count + len(slow), rounded + len(off)
    assert count > 4000
    assert rounded < count / 1000


def test_some_columns_are_those_of_all() -> None:
    for number in range(10):
        state, group = cluster(number, SHAPES[2])
        arrays = arrays_of(state, group, LIMITS[0])
        evaluation = Evaluation(arrays, LIMITS[0])
        rows, columns = np.arange(len(arrays.instances))[::2], np.array([2, 0])
        whole, part = evaluation.gains(rows), evaluation.gains(rows, columns)
        both = np.isfinite(part.ways)
        assert (both == np.isfinite(whole.ways[:, :, columns])).all()
        difference = part.ways[both] - whole.ways[:, :, columns][both]
        assert np.abs(difference).max(initial=0) < EXACT
        assert np.array_equal(part.switches, whole.switches)


def test_nothing_adds_up_to_an_error() -> None:
    draw = random.Random(2)
    for number in (2, 5):
        state, group = cluster(number, SHAPES[2])
        limits = LIMITS[1]
        arrays = arrays_of(state, group, limits)
        for _ in range(1000):
            row = draw.randrange(len(arrays.instances))
            instance = arrays.instances[row]
            usable = [node.name for node in arrays.nodes if node.is_usable]
            arrays.move(row, tuple(draw.sample(usable, len(instance.nodes))))
        after = arrays.cluster()
        assert arrays.score == pytest.approx(after.groups[group].exact_score, abs=EXACT)
        afresh = arrays_of(after, group, limits)
        now, then = told_at_once(afresh, limits), told_at_once(arrays, limits)
        assert now.keys() == then.keys()
        assert max(abs(now[key] - then[key]) for key in now) < EXACT
        slow = told_one_by_one(arrays, after.groups[group], limits)
        assert max(abs(then[key] - slow[key]) for key in slow) < NEARLY


def test_each_step_is_the_best_of_all() -> None:
    count = 0
    for number in range(15):
        state, group = cluster(number, SHAPES[number % len(SHAPES)])
        limits = LIMITS[number % len(LIMITS)]
        search = Search(state, group, limits, TO_THE_END)
        for done in search.steps():
            option = best_option(state, group, limits)
            assert option is not None
            assert done.score == pytest.approx(option.state.exact_score, abs=NEARLY)
            state, count = search.cluster(), count + 1
        last = best_option(state, group, limits)
        score = state.groups[group].exact_score
        assert last is None or score <= TO_THE_END.score_min or score < TO_THE_END.gain_limit
    assert count > 40


def test_what_is_kept_in_mind_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = []
    for cells in (10**9, 0):  # all moves before each step; those kept in mind
        for name in ("_WHOLE_CELLS", "_FIRST_CELLS"):
            monkeypatch.setattr(f"ganeti.allocation.balancing.search.{name}", cells)
        found = []
        for number in range(8):
            state, group = cluster(number, Shape(nodes=(8, 12), per_node=(8, 12)))
            search = Search(state, group, LIMITS[0], TO_THE_END)
            steps = list(search.steps())
            after = search.cluster().groups[group].exact_score
            assert not steps or steps[-1].score == pytest.approx(after, abs=EXACT)
            assert best_gain(search) <= 1e-7 or after < TO_THE_END.gain_limit
            found.append(after)
        scores.append(found)
    whole, kept = scores
    assert sum(kept) <= sum(whole) * 1.02


def best_gain(search: Search) -> float:
    """Return the most that a move gains by a table made anew, as far as it keeps redundancy."""
    arrays, limits = search._arrays, search._limits
    table = _Table(Evaluation(arrays, limits))
    found = table.best(0)
    return 0.0 if found is None else float(table._best[found[0]])
