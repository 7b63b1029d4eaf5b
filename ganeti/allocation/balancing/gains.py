"""By how much each move of each instance within its group makes the score better, all at once.

An instance with a mirror, on the nodes p and s, can get to each third node t in four ways: (p, t),
(t, p), (s, t) and (t, s), and it can change roles, (s, p).  One on storage that every node reaches
can get to (t).  What changes is a sum over at most three nodes.

For each spread the variance after a move follows from the offsets x of the nodes' values from their
mean: with changes d of these nodes it is V + (sum of d (2x + d)) / n - (sum of d / n)².  A spread
that only primary nodes change is the same whichever of both nodes the mirror is on; one that both
nodes change looks only at the node that is left.  Reserved memory is the largest of many sums, and
is different for each way.

Source: doc/balancing.md.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from ganeti.allocation.balancing.arrays import Arrays, Floats, Indices, Mask, Spread
from ganeti.allocation.balancing.steps import Limits
from ganeti.allocation.model import Instance
from ganeti.allocation.score import CLASH_WEIGHT, COUNTS, RESERVED, STRANDED

PT, TP, ST, TS = range(4)
"""The ways, by the names of the nodes; the last is also the one of shared storage."""
WAYS: Final = 4
SWITCH: Final = -1
"""The change of roles."""
CLOSED: Final = -np.inf
_NARROW: Final = 6
_CELLS: Final = 1 << 14  # worked on at a time: what the cache of a core holds

_WEIGHTS: Final = {each.name: each.weight for each in (*COUNTS, *STRANDED)}
_FAILING: Final = _WEIGHTS["n1_cnt"]
_TAGS: Final = _WEIGHTS["pri_tags_score"]
_PLACES: Final = _WEIGHTS["location_score"]
_RESERVE: Final = _WEIGHTS["reserved_mem_rtotal"]
_STRANDED: Final = _WEIGHTS["offline_all_cnt"]
_STRANDED_FIRST: Final = _WEIGHTS["offline_pri_cnt"]


def nodes_of(instance: Instance, way: int, t: str) -> tuple[str, ...]:
    """Return the nodes to which a way leads."""
    if instance.secondary is None:
        return (t,)
    p, s = instance.nodes
    return {SWITCH: (s, p), PT: (p, t), TP: (t, p), ST: (s, t), TS: (t, s)}[way]


class Gains(Struct):
    """What moves gain: the score before less the score after; `CLOSED` if a move is not possible.

    Attributes:
        ways: by way (`PT` to `TS`), row and column, of those asked for.
        switches: of each row, for the change of roles.
    """

    ways: Floats
    switches: Floats

    def best(self) -> Floats:
        """Return what the best way gains, by row and column; a change of roles is not in it."""
        found: Floats = self.ways.max(axis=0)
        return found


class Evaluation:
    """The gains of moves in the present state of some arrays.

    Attributes:
        has_targets: some instances can get to other nodes than their own.
    """

    def __init__(self, arrays: Arrays, limits: Limits) -> None:
        self.arrays = arrays
        self.limits = limits
        nodes = arrays.nodes
        self.usable: Mask = arrays.usable > 0
        self.offline: Mask = np.array([node.is_offline for node in nodes])
        self.migrates: Mask = np.ones((len(nodes), len(nodes)), dtype=bool)
        self.has_migration_tags = any(node.migration_tags for node in nodes)
        if self.has_migration_tags:
            self.migrates = np.array(
                [[a.is_offline or b.accepts_from(a) for b in nodes] for a in nodes]
            )
        self.all: Indices = np.arange(len(nodes))[None, :]
        self.has_targets = limits.moves_disks or bool((arrays.secondary < 0).any())

    def gains(self, rows: Indices, columns: Indices | None = None) -> Gains:
        """Return what the moves of these instances gain.

        Args:
            columns: the nodes t, the same for all or a row for each instance; all if not given.
        """
        columns = self.all if columns is None else columns
        if columns.ndim == 1:
            columns = columns[None, :]
        count = columns.shape[1]
        found = Gains(np.full((WAYS, len(rows), count), CLOSED), np.full(len(rows), CLOSED))
        if len(columns) == 1 and 0 < count < _NARROW:  # loops over few columns are slow
            for place in range(count):
                part = self._gains(rows, columns[:, place : place + 1])
                found.ways[:, :, place], found.switches = part.ways[:, :, 0], part.switches
            return found
        return self._gains(rows, columns)

    def _gains(self, rows: Indices, columns: Indices) -> Gains:
        count = columns.shape[1]
        found = Gains(np.full((WAYS, len(rows), count), CLOSED), np.full(len(rows), CLOSED))
        is_mirrored = self.arrays.secondary[rows] >= 0
        may_move = np.ones(len(rows), dtype=bool)
        if self.limits.only_evacuates:
            stranded = ~self.usable[np.stack([self.arrays.primary, self.arrays.secondary])]
            may_move = stranded[0, rows] | (is_mirrored & stranded[1, rows])
        for of_kind in (is_mirrored, ~is_mirrored):
            places = np.flatnonzero(of_kind & may_move)
            changes_roles_only = of_kind is is_mirrored and not self.limits.moves_disks
            targets = columns[:, :0] if changes_roles_only else columns
            length = max(1, _CELLS // max(1, targets.shape[1]))
            for first in range(0, len(places), length):
                part = places[first : first + length]
                batch = _Batch(self, rows[part], targets if len(targets) == 1 else targets[part])
                if is_mirrored[part[0]]:
                    ways, found.switches[part] = batch.mirrored()
                    if self.limits.moves_disks:
                        found.ways[:, part] = ways
                else:
                    found.ways[TS, part] = batch.shared()
        return found


class _Batch:
    """Some instances, each with each of some nodes t.

    All arrays have a row for each instance or one for all, and a column for each node t or one for
    all.  ``p`` and ``s`` are the nodes of the instances.
    """

    def __init__(self, evaluation: Evaluation, rows: Indices, t: Indices) -> None:
        self._evaluation = evaluation
        self._limits = evaluation.limits
        self._is_strict = not evaluation.limits.rules.ignores_soft
        arrays = self._arrays = evaluation.arrays
        self._n = max(1, arrays.size)
        self._reserve = next(each for each in arrays.spreads if each.metric.name == RESERVED)
        self._rows = rows[:, None]
        self._p, self._s = arrays.primary[self._rows], arrays.secondary[self._rows]
        self._t = t
        self._kept = arrays.kept_memory[self._rows]
        self._running = arrays.running_memory[self._rows]
        self._tags, self._wishes = arrays.tags.of[self._rows], arrays.wishes.of[self._rows]
        self._leaves_unusable = 1 - arrays.usable[self._p]
        self._is_target = evaluation.usable[self._t] & (self._t != self._p) & (self._t != self._s)

    def shared(self) -> Floats:
        """Return the gains of instances on storage that every node reaches."""
        p, t = self._p, self._t
        (gain,) = self._both_gains(p)
        gain += self._first_gain(t) + self._left_gain() + self._taken_gain()
        is_open = self._is_target & self._fits_first(t) & self._fits_disk() & self._migrates(p)
        return np.where(is_open & self._limits.moves_instances, gain, CLOSED)

    def mirrored(self) -> tuple[Floats, Floats]:
        """Return the gains of instances with mirrors: by way, and of the change of roles."""
        arrays, limits = self._arrays, self._limits
        p, s, t, running = self._p, self._s, self._t, self._running
        rest = self._rest()
        without = (s, rest)
        # The memory that the secondary node of each way reserves then.
        at_t = [
            np.maximum(arrays.reserved[t], self._guarded(arrays.guarded_by, x) + self._kept)
            for x in (p, s)
        ]
        at_p = np.maximum(arrays.reserved[p], self._guarded(arrays.guarded, p) + self._kept)
        at_s = np.maximum(rest, self._guarded(arrays.guarded, s) + self._kept)
        at_p_for_s = np.maximum(arrays.reserved[p], arrays.guarded[p, s] + self._kept)

        both_s, both_p = self._both_gains(s, p)
        both_s += self._failing_gain(s, rest, 0, -1) + _STRANDED * (1 - arrays.usable[s])
        both_p += self._left_gain()
        first_t = self._first_gain(t) + self._taken_gain()
        first_s = self._first_gain(s) + self._failing_gain(s, rest, -running, 0)
        demoted = _STRANDED_FIRST * self._leaves_unusable
        stays = self._failing_gain(p, arrays.reserved[p], 0, 0)
        gains = [
            both_s + stays + self._mirror_gain(at_t[0], without) + self._common_gain(p, t),
            both_s + first_t + demoted + self._common_gain(t, p),
            both_p + first_s + self._mirror_gain(at_t[1], without) + self._common_gain(s, t),
            both_p + first_t + self._common_gain(t, s),
        ]
        gains[TP] += self._failing_gain(p, at_p, running, 0)
        gains[TP] += self._reserve_gain(without, (p, at_p))
        gains[TS] += self._failing_gain(s, at_s, 0, 0) + self._reserve_gain((s, at_s))
        switch = first_s + demoted + self._failing_gain(p, at_p_for_s, running, 0)
        switch += self._reserve_gain(without, (p, at_p_for_s)) + self._common_gain(s, p)

        runs_on_s = self._evaluation.usable[s] & self._evaluation.migrates[p, s]
        runs_on_s &= self._fits_first(s, rest)
        is_target = self._is_target & self._fits_disk()
        if not limits.moves_disks:
            is_target[:] = False
        has_source = ~self._evaluation.offline[p]
        runs_on_t = is_target & self._fits_first(t)
        if limits.restricts_migration:
            runs_on_t &= ~self._evaluation.usable[p]
        opens = [
            is_target & has_source & self._guards(t, at_t[0], 0),
            runs_on_t & has_source & self._migrates(p) & self._guards(p, at_p, running),
            is_target & runs_on_s & self._guards(t, at_t[1], 0),
            runs_on_t & runs_on_s & self._migrates(s) & self._guards(s, at_s, 0),
        ]
        switches = runs_on_s & self._guards(p, at_p_for_s, running)
        for way in range(WAYS):
            if way != PT and not limits.moves_instances:
                opens[way][:] = False
        if limits.restricts_migration:
            opens[ST] &= ~self._evaluation.usable[p]
            opens[TS][:] = False
        ways = np.stack([np.where(*each, CLOSED) for each in zip(opens, gains, strict=True)])
        switches &= limits.moves_instances
        return ways, np.where(switches, switch, CLOSED)[:, 0]

    # Spreads.

    def _change(self, spread: Spread, node: Indices, sign: int = 1) -> tuple[Floats, Floats]:
        """Return the changes of squares and values if a node gets (1) or loses (-1) instances."""
        (amounts, factors), *more = spread.parts
        change = (sign * amounts[self._rows]) * factors[node]
        for amounts, factors in more:
            change += (sign * amounts[self._rows]) * factors[node]
        square = change + 2 * spread.offsets[node]
        square *= change
        return square, change

    def _gain(self, spread: Spread, *changes: tuple[Floats, Floats]) -> Floats:
        """Return what a spread gains by these changes of nodes."""
        (square, change), *more = changes
        for other_square, other in more:
            square, change = square + other_square, change + other
        variance = change * change
        variance *= -1 / (self._n * self._n)
        variance += square * (1 / self._n)
        variance += spread.variance
        np.maximum(variance, 0, out=variance)
        np.sqrt(variance, out=variance)
        variance -= spread.deviation
        variance *= -spread.weight
        return variance

    def _both_gains(self, *losers: Indices) -> list[Floats]:
        """Return the gains of what counts on both nodes if t takes the place of another."""
        found = [np.zeros((len(self._rows), self._t.shape[1])) for _ in losers]
        for spread in self._arrays.spreads:
            if spread.parts and spread.on_both:
                change = self._change(spread, self._t)
                for gain, loser in zip(found, losers, strict=True):
                    gain += self._gain(spread, change, self._change(spread, loser, -1))
        return found

    def _first_gain(self, node: Indices) -> Floats:
        """Return the gains of what counts on the primary node if a node becomes it."""
        gain = self._label_gain(node)
        for spread in self._arrays.spreads:
            if spread.parts and not spread.on_both:
                lost = self._change(spread, self._p, -1)
                gain = gain + self._gain(spread, self._change(spread, node), lost)
        return gain

    def _label_gain(self, node: Indices) -> Floats:
        """Return the gains of tags and wishes if a node becomes the primary one."""
        arrays, p, tags = self._arrays, self._p, self._tags
        gain: Floats = np.zeros((1, 1))
        if arrays.tags:
            gain = gain + arrays.has_tag_twice[tags, p] * arrays.usable[p]
            gain = _TAGS * (gain - arrays.has_tag[tags, node])
        if arrays.wishes:
            gain = gain + _PLACES * arrays.unmet[self._wishes, p] * arrays.usable[p]
            gain = gain - _PLACES * arrays.unmet[self._wishes, node]
        if arrays.clash_tags:
            domains, flat = arrays.domains[p[:, 0]], tags[:, 0]
            clashes = np.where(domains, arrays.has_clash_twice[flat], arrays.has_clash[flat])
            gain = gain + CLASH_WEIGHT * (clashes * domains).sum(axis=1, keepdims=True)
            if len(node) == 1 and len(tags) > 1:
                gain = gain - CLASH_WEIGHT * (clashes @ arrays.domains[node[0]].T)
            else:
                gain = gain - CLASH_WEIGHT * (clashes[:, None] * arrays.domains[node]).sum(axis=2)
        return gain

    def _common_gain(self, first: Indices, second: Indices) -> Floats | float:
        """Return the gain of failure domains in common if these are the nodes."""
        common = self._arrays.in_common
        if common is None:
            return 0.0
        usable = self._arrays.usable
        before: Floats = common[self._p, self._s] * usable[self._p]
        return _PLACES * (before - common[first, second] * usable[first])

    # Memory for the failure of a node.

    def _rest(self) -> Floats:
        """Return the memory that each secondary node would reserve without the instance."""
        arrays, p, s = self._arrays, self._p, self._s
        others = np.where(arrays.largest[s] == p, arrays.next_largest[s], arrays.reserved[s])
        return np.maximum(arrays.guarded[s, p] - self._kept, others)

    def _guarded(self, matrix: Floats, node: Indices) -> Floats:
        """Return rows of a matrix, a column for each t."""
        if self._t is self._evaluation.all:
            found: Floats = matrix[node[:, 0], : self._t.shape[1]]
            return found
        return matrix[node, self._t]

    def _mirror_gain(self, at_t: Floats, without: tuple[Indices, Floats]) -> Floats:
        """Return what it gains that the mirror goes from s to t, which reserves that much then."""
        gain = self._reserve_gain(without, (self._t, at_t))
        gain += self._failing_gain(self._t, at_t, 0, 1)
        return gain

    def _reserve_gain(self, *nodes: tuple[Indices, Floats]) -> Floats:
        """Return the gain if nodes reserve that much memory."""
        spread, factor = self._reserve, self._arrays.reserve_factor
        changes = []
        total: Floats | float = 0.0
        for node, reserved in nodes:
            change = reserved * factor[node] - spread.values[node]
            changes.append(((change + 2 * spread.offsets[node]) * change, change))
            total = total + change
        return self._gain(spread, *changes) - _RESERVE * total

    def _failing_gain(
        self, node: Indices, reserved: Floats, more: Floats | int, members: int
    ) -> Floats:
        """Return the gain for N+1 if a node reserves memory, has more of it and more members."""
        arrays = self._arrays
        fails = reserved > np.maximum(arrays.present[node] + more, 0)
        weights = _FAILING * arrays.usable[node] * (arrays.members[node] + members)
        return _FAILING * arrays.failing[node] - fails * weights

    def _left_gain(self) -> Floats:
        """Return the gain for N+1, and of nodes that are not usable, if p is left."""
        gain = self._failing_gain(self._p, self._arrays.reserved[self._p], self._running, -1)
        gain += (_STRANDED + _STRANDED_FIRST) * self._leaves_unusable
        return gain

    def _taken_gain(self) -> Floats:
        """Return the gain for N+1 if t gets the instance as primary node."""
        return self._failing_gain(self._t, self._arrays.reserved[self._t], -self._running, 1)

    # Limits.

    def _migrates(self, source: Indices) -> Mask | bool:
        if self._evaluation.has_migration_tags:
            return self._evaluation.migrates[source, self._t]
        return True

    def _fits_disk(self) -> Mask:
        arrays, rows, t = self._arrays, self._rows, self._t
        disk = np.where(arrays.disk[rows] > 0, arrays.disk[rows], -np.inf)
        fits: Mask = disk <= arrays.spare_disk[t]
        fits &= arrays.spindles[rows] <= arrays.spare_spindles[t]
        fits &= arrays.spindle_use[rows] <= arrays.spare_spindle_use[t]
        return fits

    def _fits_first(self, node: Indices, reserved: Floats | None = None) -> Mask:
        """Tell whether a node can be the primary one."""
        arrays, rows = self._arrays, self._rows
        memory = np.where(arrays.memory[rows] > 0, arrays.memory[rows], -np.inf)
        fits: Mask = memory <= arrays.spare_memory[node]
        fits &= arrays.vcpus[rows] <= arrays.spare_vcpus[node]
        if self._is_strict and arrays.tags:
            fits &= arrays.has_tag[self._tags, node] == 0
        reserved = arrays.reserved[node] if reserved is None else reserved
        fits &= self._guards(node, reserved, -self._running)
        return fits

    def _guards(self, node: Indices, reserved: Floats, more: Floats | int) -> Mask | bool:
        """Tell whether a node does not lack more memory for the failure of another than before."""
        if not self._is_strict:
            return True
        present = self._arrays.present[node] + more
        return (reserved <= 0) | (reserved - present + 1 <= self._arrays.deficit[node])
