"""The search for steps that make the score of a group better: each time the best one of all.

A small group is looked at wholly before each step.  In a large one a step changes the gains of most
moves by next to nothing, so they are kept.  Only those of instances on the nodes that a step has
changed, of the best instances to these nodes, and of those that seem to be the next are computed
again.  From time to time, and before the end, all are.

Source: manual page hbal(1), "Algorithm used".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ganeti.allocation.balancing.arrays import Arrays, Floats, Indices, Mask
from ganeti.allocation.balancing.gains import CLOSED, SWITCH, WAYS, Evaluation, nodes_of
from ganeti.allocation.balancing.steps import Limits, Step, actions_of, is_candidate
from ganeti.allocation.limits import Redundancy
from ganeti.allocation.model import Rules
from ganeti.allocation.state import ClusterState

# Gains that differ by less are equal, and a step must bring more.
ROUNDING: Final = 1e-7
_WHOLE_CELLS: Final = 40_000  # pairs of instance and node that are all looked at before each step
_FIRST_CELLS: Final = 4_000_000  # of which so many are looked at for the first steps anyway
_WATCHED: Final = 1024  # instances whose moves are kept fresh
_HEAD: Final = 24  # of which so many are looked at together
_TARGETS: Final = 32  # nodes looked at for each
_SWEEP_CELLS: Final = 1 << 15  # of which the gains are in memory at a time
# Everything is computed again once a spread is that much smaller or larger.
_DRIFT: Final = 0.3


class Ends(Struct, frozen=True):
    """When a search ends.

    Attributes:
        score_min: a score that is good enough.
        gain_min: what a step must bring, once the score is below ``gain_limit``.
        count_max: how many steps, if not any number.
    """

    score_min: float
    gain_min: float
    gain_limit: float
    count_max: int | None = None


USUAL_ENDS: Final = Ends(1e-9, 1e-2, 0.1)
"""Those of hbal without options."""


class Done(Struct, frozen=True):
    """A step that was chosen, and the exact score of the group after it."""

    step: Step
    score: float


class Search:
    """A search within a group; nothing leaves it."""

    def __init__(self, cluster: ClusterState, group: str, limits: Limits, ends: Ends) -> None:
        self._limits = limits
        self._ends = ends
        candidates = [
            instance
            for instance in cluster.instances.values()
            if is_candidate(instance, cluster, group, limits)
        ]
        self._arrays = Arrays(cluster, group, candidates, limits.rules)
        self._table = _Table(Evaluation(self._arrays, limits))

    def cluster(self) -> ClusterState:
        """Return the cluster after the steps that were found."""
        return self._arrays.cluster()

    def steps(self) -> Iterator[Done]:
        """Yield steps one after the other, each with the lowest score after it."""
        ends, arrays = self._ends, self._arrays
        score, count = arrays.score, 0
        while score > ends.score_min and (ends.count_max is None or count < ends.count_max):
            least = max(ROUNDING, ends.gain_min if score < ends.gain_limit else 0.0)
            found = self._table.best(least)
            if found is None:
                return
            row, nodes = found
            before = arrays.instances[row]
            changed = arrays.move(row, nodes)
            if score - arrays.score <= least:  # gains are right to a few digits only
                arrays.move(row, before.nodes)
                return
            score, count = arrays.score, count + 1
            yield Done(Step(before, arrays.instances[row], actions_of(before, nodes)), score)
            self._table.update(changed)


def search_groups(
    cluster: ClusterState, groups: Iterable[str], rules: Rules, count_max: int
) -> tuple[list[tuple[str, Step]], ClusterState]:
    """Search in several groups, each time the step that gains most of all.

    Returns:
        The steps, each with the UUID of its group, and the cluster after them.
    """
    searches = {
        uuid: Search(cluster, uuid, Limits(rules), USUAL_ENDS).steps()
        for uuid in groups
        if count_max
    }
    scores = {uuid: cluster.groups[uuid].exact_score for uuid in searches}
    found = {uuid: next(steps, None) for uuid, steps in searches.items()}
    chosen: list[tuple[str, Step]] = []
    while len(chosen) < count_max:
        gains = {uuid: scores[uuid] - done.score for uuid, done in found.items() if done}
        if not gains:
            break
        best = max(gains, key=lambda uuid: gains[uuid])
        done = found[best]
        assert done is not None
        chosen.append((best, done.step))
        cluster = cluster.without_instance(done.step.before).with_instance(done.step.after)
        scores[best], found[best] = done.score, next(searches[best], None)
    return chosen, cluster


class _Table:
    """What the best move of each instance gains, and to which node."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._arrays = evaluation.arrays
        self._all = evaluation.all if evaluation.has_targets else evaluation.all[:, :0]
        rows, columns = len(self._arrays.instances), self._all.shape[1]
        self._is_small = rows * columns <= _WHOLE_CELLS
        self._whole_steps = _FIRST_CELLS // max(1, rows * columns)
        self._rows: Indices = np.arange(rows)
        # At the end the change of roles.  Large tables are estimates, and computed again in part.
        kind = np.float64 if self._is_small else np.float32
        self._gains: NDArray[np.floating] = np.empty((rows, columns + 1), dtype=kind)
        self._best: Floats = np.full(rows, CLOSED)
        self._is_fresh: Mask = np.zeros(rows, dtype=bool)
        self._is_swept = False
        self._deviations: list[float] = []
        self._moves: dict[int, tuple[str, ...]] = {}  # those that keep redundancy
        self._has_movers = any(load.movable for load in self._arrays.loads)
        self._redundancy: Redundancy | None = None
        self._sweep()

    def best(self, least: float) -> tuple[int, tuple[str, ...]] | None:
        """Return the row of the instance to move and the nodes that it goes to.

        Args:
            least: what it must gain at least.
        """
        if not len(self._rows):
            return None
        found = self._head(least)
        if found is None and not self._is_swept:
            self._sweep()
            found = self._head(least)
        return found

    def update(self, columns: list[int]) -> None:
        """Compute again what a step has changed that changed these nodes."""
        changed = [*self._moves]  # what was refused may be open now
        self._moves.clear()
        self._redundancy = None
        self._whole_steps -= 1
        if self._is_small or self._whole_steps > 0 or self._has_drifted():
            self._sweep()
            return
        self._is_swept = False
        self._is_fresh[:] = False
        there = np.array(columns)
        rows = self._highest(_WATCHED)
        self._gains[np.ix_(rows, there)] = self._evaluation.gains(rows, there).best()
        self._note(rows)
        rows = np.union1d(self._arrays.rows_on(columns), changed).astype(np.int64)
        self._freshen(rows, there)

    def _head(self, least: float) -> tuple[int, tuple[str, ...]] | None:
        """Return the best move by what is in the table, computed again where it is stale."""
        while (highest := self._best.max()) > least:
            equal = np.flatnonzero(self._best >= highest - ROUNDING)
            stale = equal[~self._is_fresh[equal]]
            if len(stale):
                head = self._highest(_HEAD)
                self._freshen(np.union1d(stale, head[~self._is_fresh[head]]), self._rows[:0])
                continue
            row = int(equal[0])
            if row in self._moves:
                return row, self._moves[row]
            self._verify(row)
        return None

    def _highest(self, count: int) -> Indices:
        """Return the rows of some instances with the best moves."""
        if count >= len(self._rows):
            return self._rows
        return np.argpartition(self._best, -count)[-count:]

    def _freshen(self, rows: Indices, columns: Indices) -> None:
        """Compute the moves of instances to some nodes, and to those that were best for each.

        What else an instance could do is taken to gain more or less by as much as these do.
        """
        if not len(rows):
            return
        count = min(_TARGETS, len(self._arrays.nodes))
        old = self._gains[rows]
        best = np.argpartition(old[:, :-1], -count, axis=1)[:, -count:]
        there = np.concatenate([best, np.broadcast_to(columns, (len(rows), len(columns)))], axis=1)
        found = self._evaluation.gains(rows, there)
        new, places = found.best(), rows[:, None]
        known = np.isfinite(new) & np.isfinite(self._gains[places, there])
        change = np.subtract(
            new, self._gains[places, there], out=np.zeros(new.shape), where=known
        ).sum(axis=1)
        self._gains[rows] = old + (change / np.maximum(1, known.sum(axis=1)))[:, None]
        self._gains[places, there] = new
        self._gains[rows, -1] = found.switches
        self._note(rows)
        self._is_fresh[rows] = True

    def _verify(self, row: int) -> None:
        """Find the best move of an instance that takes away no redundancy."""
        gains = self._evaluation.gains(self._rows[row : row + 1])
        # In this order: the change of roles, then node by node each way.
        cells = np.concatenate([gains.switches, gains.ways[:, 0].T.ravel()])
        while (highest := cells.max()) > ROUNDING:
            place = int(np.flatnonzero(cells >= highest - ROUNDING)[0])
            node, way = divmod(place - 1, WAYS)
            instance = self._arrays.instances[row]
            nodes = nodes_of(instance, way if place else SWITCH, self._arrays.names[node])
            if self._keeps_redundancy(row, nodes):
                self._moves[row], self._best[row] = nodes, cells[place]
                return
            cells[place] = CLOSED
        self._moves[row], self._best[row] = (), CLOSED

    def _keeps_redundancy(self, row: int, nodes: tuple[str, ...]) -> bool:
        """Tell whether as much as before could be restarted elsewhere if any one node failed.

        To get away from a node that is offline or drained is worth more than that.
        """
        arrays = self._arrays
        usable = [arrays.usable[column] for column in arrays.columns(arrays.instances[row].nodes)]
        if not self._has_movers or not all(usable):
            return True
        if self._redundancy is None:
            self._redundancy = Redundancy(dict(zip(arrays.names, arrays.loads, strict=True)))
        after = arrays.loads_after(row, nodes)
        changes = {arrays.names[column]: load for column, load in after.items()}
        return not self._redundancy.gets_worse(changes)

    def _sweep(self) -> None:
        """Compute everything."""
        self._moves.clear()
        for part in self._parts(self._rows):
            found = self._evaluation.gains(part, self._all)
            self._gains[part, :-1] = found.best()
            self._gains[part, -1] = found.switches
        self._note(self._rows)
        self._is_fresh[:] = self._is_swept = True
        self._deviations = [each.deviation for each in self._arrays.spreads]

    def _has_drifted(self) -> bool:
        now = [each.deviation for each in self._arrays.spreads]
        pairs = zip(self._deviations, now, strict=True)
        return any(abs(new - old) > _DRIFT * old for old, new in pairs)

    def _note(self, rows: Indices) -> None:
        """Note the best moves of these instances."""
        for part in self._parts(rows):
            self._best[part] = self._gains[part].max(axis=1)

    def _parts(self, rows: Indices) -> list[Indices]:
        length = max(1, _SWEEP_CELLS // self._gains.shape[1])
        return [rows[first : first + length] for first in range(0, len(rows), length)]
