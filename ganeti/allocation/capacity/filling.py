"""The search for places of many equal instances, all the places of one search after the other.

For each group there is a table of what every node adds to the sums of the score as primary and as
secondary node of one instance more.  After a placement only the columns of its nodes are written
again, and groups without it keep their best place.  The score of all pairs of some nodes is
computed at once.  The pair alone decides how much memory its secondary node has to reserve; that
is the one part of a score that is no sum of two (see `ganeti.allocation.pairs`).

Of a large group only the primary nodes are paired that are best by themselves, and more as long as
no place is found.  The loads of nodes (`ganeti.allocation.load`) stay the truth: every place is
checked by `ganeti.allocation.limits` as always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ganeti.allocation.capacity.search import Filled, Search
from ganeti.allocation.limits import Obstacle, Redundancy, obstacle
from ganeti.allocation.load import NodeLoad, shared_domains
from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.placing import candidates, preference, refusal
from ganeti.allocation.score import (
    COUNTS,
    DOMAIN_WEIGHT,
    RESERVED,
    RESERVED_TOTAL,
    ROUNDING,
    Share,
    share_of,
)
from ganeti.allocation.state import ClusterState, GroupState
from ganeti.objects.disk_templates import Mirroring
from ganeti.objects.instance_policy import violated

Floats = NDArray[np.float64]
_PAIRS_AT_ONCE: Final = 4096
_TOTAL_WEIGHT: Final = next(each.weight for each in COUNTS if each.name == RESERVED_TOTAL)
_DIGITS: Final = 12  # as in `placing`: the first of equal places wins


class Place(Struct, frozen=True):
    """A place in a group, and the score of the group with an instance there."""

    nodes: tuple[str, ...]
    score: float


class _Role(Struct):
    """The nodes in one role: what one instance more changes in the sums, and why it may not come.

    ``sums`` and ``squares`` have a row for each spread and a column for each node.
    """

    sums: Floats
    squares: Floats
    counts: Floats
    whys: list[Obstacle | None]

    def write(self, place: int, before: Share, after: Share) -> None:
        old, new = np.array(before.values), np.array(after.values)
        self.sums[:, place] = new - old
        self.squares[:, place] = new * new - old * old
        self.counts[place] = after.count - before.count


class Group:
    """A group that is being filled with copies of one instance."""

    def __init__(self, state: GroupState, instance: Instance, rules: Rules) -> None:
        self._state = state
        self._instance = instance
        self._rules = rules
        self._loads = dict(state.loads)
        self._tally = state.tally
        self._names = list(candidates(state, rules))
        self._places = {name: place for place, name in enumerate(self._names)}
        self._weights = np.array([each.weight for each in state.tally.spreads])
        self._is_paired = instance.node_count > 1
        self._first = self._role()
        self._second = self._role()
        for place, name in enumerate(self._names):
            self._first.whys[place] = self._why(self._loads[name], is_primary=True)
            if self._is_paired:
                self._second.whys[place] = self._why(self._loads[name], is_primary=False)
        self._has_columns = False
        self._blocked: Counter[Obstacle] = Counter()
        self._best: Place | None = None
        self._is_known = False

    @property
    def state(self) -> GroupState:
        """The group with all instances placed."""
        return replace(self._state, loads=self._loads, tally=self._tally)

    def best(self) -> Place | None:
        """Return the best place for one instance more."""
        if not self._is_known:
            self._best, self._is_known = self._find(), True
        return self._best

    def take(self, place: Place) -> None:
        """Place an instance."""
        first = self._loads[place.nodes[0]]
        if self._is_paired:
            second = self._loads[place.nodes[1]]
            self._set(second, second.with_secondary(self._instance, first.node.name))
            self._set(first, first.with_primary(self._instance, second.node))
        else:
            self._set(first, first.with_primary(self._instance, None))
        for name in place.nodes:
            self._write(self._places[name])
        self._is_known = False

    def refused(self) -> Counter[Obstacle]:
        """Return how many nodes, or pairs, are refused for each reason."""
        found = Counter(self._blocked)
        others = len(self._names) - 1
        seconds = Counter(self._second.whys)
        for first, second in zip(self._first.whys, self._second.whys, strict=True):
            if first is not None:
                found[first] += others if self._is_paired else 1
            elif self._is_paired:
                found.update({why: number for why, number in seconds.items() if why is not None})
                if second is not None:
                    found[second] -= 1
        return found

    # The tables.

    def _role(self) -> _Role:
        shape = len(self._weights), len(self._names)
        whys: list[Obstacle | None] = [None] * len(self._names)
        return _Role(np.zeros(shape), np.zeros(shape), np.zeros(len(self._names)), whys)

    def _with(self, load: NodeLoad, *, is_primary: bool) -> NodeLoad:
        """Return the load with the instance, while its other node is not known."""
        if is_primary:
            return load.with_primary(self._instance, None)
        return load.with_secondary(self._instance, "")

    def _why(self, load: NodeLoad, *, is_primary: bool) -> Obstacle | None:
        return obstacle(load, self._with(load, is_primary=is_primary), self._rules)

    def _set(self, old: NodeLoad, new: NodeLoad) -> None:
        self._tally = self._tally.changed(self._share(old), self._share(new))
        self._loads[new.node.name] = new

    def _share(self, load: NodeLoad) -> Share:
        return share_of(load, self._tally.spreads)

    def _write(self, place: int) -> None:
        """Write all that the tables say about a node."""
        load = self._loads[self._names[place]]
        share = self._share(load)
        first = self._with(load, is_primary=True)
        self._first.whys[place] = obstacle(load, first, self._rules)
        self._first.write(place, share, self._share(first))
        if not self._is_paired:
            return
        second = self._with(load, is_primary=False)
        self._second.whys[place] = obstacle(load, second, self._rules)
        self._second.write(place, share, self._share(second))
        self._reserved[place] = load.reserved
        self._room[place] = load.free_memory + load.idle_memory
        self._guarded[place] = 0.0
        for name, memory in load.guarded.items():
            if name in self._places:
                self._guarded[place, self._places[name]] = memory

    def _write_all(self) -> None:
        size = len(self._names)
        loads = [self._loads[name] for name in self._names]
        self._reserved, self._room = np.zeros(size), np.zeros(size)
        self._guarded = np.zeros((size, size) if self._is_paired else (0, 0))
        self._memory = np.array([load.node.total_memory or np.inf for load in loads], dtype=float)
        self._shared = np.zeros((size, size) if self._is_paired else (0, 0))
        if self._is_paired and any(load.node.locations for load in loads):
            self._shared[:] = [[shared_domains(a.node, b.node) for b in loads] for a in loads]
        for place in range(size):
            self._write(place)
        self._has_columns = True

    # The search.

    def _find(self) -> Place | None:
        self._blocked.clear()
        firsts = np.array([why is None for why in self._first.whys], dtype=bool)
        seconds = np.array([why is None for why in self._second.whys], dtype=bool)
        if not firsts.any() or not seconds.any():
            return None
        if not self._has_columns:
            self._write_all()
        alone = self._count + self._first.counts + self._weights @ self._deviations(self._first)
        order = np.argsort(np.round(alone, _DIGITS), kind="stable")
        order = order[firsts[order]]
        redundancy = self._redundancy()
        if not self._is_paired:
            return self._accepted(((alone[place], place, None) for place in order), redundancy)
        step = max(1, _PAIRS_AT_ONCE // len(self._names))
        for start in range(0, len(order), step):
            rows = order[start : start + step]
            found = self._accepted(self._pairs(rows, seconds), redundancy)
            if found is not None:
                return found
        return None

    @property
    def _count(self) -> float:
        return self._tally.count

    def _redundancy(self) -> Redundancy | None:
        if not self._rules.checks_capacity:
            return None
        is_needed = self._instance.mirroring is Mirroring.EXTERNAL or any(
            load.movable for load in self._loads.values()
        )
        return Redundancy(self._loads) if is_needed else None

    def _accepted(
        self, places: Iterable[tuple[float, int, int | None]], redundancy: Redundancy | None
    ) -> Place | None:
        """Return the first place after which as much as before could restart elsewhere."""
        refused: set[int] = set()
        for score, first, second in places:
            names = tuple(self._names[place] for place in (first, second) if place is not None)
            if redundancy is None:
                return Place(names, float(score))
            if first not in refused and self._is_redundant(names, redundancy):
                return Place(names, float(score))
            if first not in refused and second is not None:
                alone = {names[0]: self._with(self._loads[names[0]], is_primary=True)}
                if redundancy.gets_worse(alone):
                    refused.add(first)
            self._blocked[Obstacle.REDUNDANCY] += 1
        return None

    def _is_redundant(self, names: tuple[str, ...], redundancy: Redundancy) -> bool:
        loads = [self._loads[name] for name in names]
        other = loads[1].node if self._is_paired else None
        changed = {names[0]: loads[0].with_primary(self._instance, other)}
        if self._is_paired:
            changed[names[1]] = loads[1].with_secondary(self._instance, names[0])
        return not redundancy.gets_worse(changed)

    def _deviations(self, role: _Role) -> Floats:
        """Return the spreads if each node alone had the role: a row for each, a column per node."""
        size, tally = self._tally.size, self._tally
        sums, squares = np.array(tally.sums)[:, None], np.array(tally.squares)[:, None]
        means = (sums + role.sums) / size
        return _root((squares + role.squares) / size - means * means)

    def _pairs(
        self, rows: NDArray[np.int64], seconds: NDArray[np.bool_]
    ) -> Iterator[tuple[float, int, int | None]]:
        """Yield the pairs of these primary nodes that the limits allow, the best first."""
        scores = self._scores(rows)
        reserved = np.maximum(self._reserved, self._guarded[:, rows].T + self._instance.kept_memory)
        before = np.maximum(0.0, self._reserved - self._room + 1) * (self._reserved > 0)
        allowed = np.broadcast_to(seconds, scores.shape) & (
            rows[:, None] != np.arange(len(seconds))
        )
        if not self._rules.ignores_soft:
            worse = allowed & (np.maximum(0.0, reserved - self._room + 1) * (reserved > 0) > before)
            self._blocked[Obstacle.REDUNDANCY] += int(worse.sum())
            allowed &= ~worse
        scores = np.where(allowed, np.round(scores, _DIGITS), np.inf).ravel()
        while True:
            best = int(np.argmin(scores))
            if scores[best] == np.inf:
                return
            row, column = divmod(best, len(seconds))
            yield scores[best], int(rows[row]), column
            scores[best] = np.inf

    def _scores(self, rows: NDArray[np.int64]) -> Floats:
        """Return the scores of all pairs: a row for each of these primary nodes."""
        tally, size = self._tally, self._tally.size
        first, second = self._first, self._second
        alone, behind = self._deviations(first), self._deviations(second)
        scores: Floats = np.add.outer(self._count + first.counts[rows], second.counts)
        scores += DOMAIN_WEIGHT * self._shared[rows]
        for place, spread in enumerate(tally.spreads):
            weight = spread.weight
            a, q = first.sums[place, rows][:, None], first.squares[place, rows][:, None]
            b, r = second.sums[place], second.squares[place]
            if spread.name == RESERVED:
                kept = self._guarded[:, rows].T + self._instance.kept_memory
                values = np.maximum(self._reserved, kept) / self._memory
                old = self._reserved / self._memory
                usual = np.maximum(self._reserved, self._instance.kept_memory) / self._memory
                scores += _TOTAL_WEIGHT * (values - usual)
                b, r = values - old, values * values - old * old
            elif not (b.any() or r.any()):
                scores += weight * alone[place, rows][:, None]
                continue
            elif not (a.any() or q.any()):
                scores += weight * behind[place]
                continue
            means = (tally.sums[place] + a + b) / size
            scores += weight * _root((tally.squares[place] + q + r) / size - means * means)
        return scores


def _root(variances: Floats) -> Floats:
    found: Floats = np.sqrt(np.maximum(variances - ROUNDING, 0.0))
    return found


def groups_for(cluster: ClusterState, search: Search, instance: Instance) -> list[Group]:
    """Return the groups that copies of an instance may go to."""
    states = [cluster.groups[uuid] for uuid in search.groups]
    return [
        Group(state, instance, search.rules)
        for state in states
        if refusal(state.group, instance, is_explicit=search.is_explicit) is None
    ]


def fill(
    cluster: ClusterState, search: Search, instance: Instance, names: Iterator[str], count_max: int
) -> Filled:
    """Place copies of an instance, under these names as far as they are free."""
    groups = groups_for(cluster, search, instance)
    placed: list[Instance] = []
    refused: Counter[Obstacle] = Counter()
    forbidden: Counter[str] = Counter()
    while len(placed) < count_max:
        found = [(group, place) for group in groups if (place := group.best()) is not None]
        if not found:
            refused = sum((group.refused() for group in groups), Counter())
            forbidden = _forbidden(cluster, search, instance)
            break
        group, place = min(found, key=lambda row: preference(row[0].state.group, row[1].score))
        name = next(each for each in names if each not in cluster.instances)
        placed.append(replace(instance, name=name, nodes=place.nodes))
        group.take(place)
    states = {group.state.group.uuid: group.state for group in groups}
    after = ClusterState(
        {**cluster.groups, **states},
        cluster.nodes,
        {**cluster.instances, **{each.name: each for each in placed}},
    )
    return Filled(placed, after, refused, forbidden)


def _forbidden(cluster: ClusterState, search: Search, instance: Instance) -> Counter[str]:
    """Count the nodes, or pairs, of groups whose policies forbid an instance."""
    found: Counter[str] = Counter()
    for uuid in search.groups:
        state = cluster.groups[uuid]
        keys = violated(state.group.ipolicy, instance.spec)
        count = len(candidates(state, search.rules))
        if keys:
            found[keys[0]] += count * (count - 1) if instance.node_count > 1 else count
    return found
