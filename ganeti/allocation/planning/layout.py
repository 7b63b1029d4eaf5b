"""A group as arrays in which instances can be taken off and put anywhere, for quick searches.

A `Layout` begins with the group as it is.  An instance is lifted, tried on many pairs of nodes at
once, and put on one of them; several can be off at a time.  The score is that of
`ganeti.allocation.state` but for rounding.  The limits are those for the end of a plan: no node is
over a limit, or further over it than at the start; `order` finds out how to get there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from ganeti.allocation.balancing.arrays import Arrays, Floats, Indices, Mask
from ganeti.allocation.balancing.steps import Limits
from ganeti.allocation.load import unmet
from ganeti.allocation.score import CLASH_WEIGHT, COUNTS, DOMAIN_WEIGHT, RESERVED, STRANDED
from ganeti.allocation.state import Clash, GroupState

_WEIGHTS: Final = {each.name: each.weight for each in (*COUNTS, *STRANDED)}
_RESERVE: Final = _WEIGHTS["reserved_mem_rtotal"]
_TAGS: Final = _WEIGHTS["pri_tags_score"]
MEMORY, DISK, SPINDLES, SPINDLE_USE, VCPUS = range(5)
"""The rows of what instances need and nodes have left."""
RESOURCES: Final = ("memory", "disk", "spindles", "spindle use", "virtual CPUs")


class Places(NamedTuple):
    """Pairs of nodes for an instance, by column.

    Attributes:
        score: of the group with the instance there; infinite where a limit forbids it.
        data: MiB to copy to get there from the start.
        moves: steps from the start.
        switches: migrations from the start.
    """

    primary: Indices
    secondary: Indices
    score: Floats
    data: Floats
    moves: Floats
    switches: Floats


class Layout:
    """Where the instances of some arrays are or could be.

    The column after the last stands for no node.

    Attributes:
        start: columns of the nodes of each instance at the start.
        pairs: the same now.
        amounts: for each addend to a spread (row) what an instance brings.
        factors: the same addend: what one of that is worth on a node.
        spread_of: which addends a spread (row) consists of.
        needs: by role, resource and instance.
        left: by resource and node, what may be taken still.
    """

    def __init__(self, state: GroupState, arrays: Arrays, limits: Limits) -> None:
        self.names = arrays.names
        self.instances = list(arrays.instances)
        self.limits = limits
        self.nowhere = size = len(arrays.names)
        self.usable: Mask = np.append(arrays.usable > 0, False)
        self.offline: Mask = np.array([*(node.is_offline for node in arrays.nodes), False])
        self._everywhere = np.flatnonzero(self.usable)
        self.count_usable = max(1, arrays.size)
        second = np.where(arrays.secondary < 0, size, arrays.secondary)
        self.start: Indices = np.stack([arrays.primary, second], axis=1)
        self.pairs = self.start.copy()
        self.disk = arrays.disk
        self.has_mirror: Mask = self.start[:, 1] != size
        self._set_spreads(arrays)
        self._set_resources(arrays)
        self._set_redundancy(arrays)
        self._set_labels(arrays, state.clashes)
        self._pairs_around: dict[tuple[int, ...], tuple[Indices, Indices]] = {}
        self.fixed_count = arrays.score - self._deviations(self.sums, self.squares)

    def _set_spreads(self, arrays: Arrays) -> None:
        spreads = arrays.spreads
        self.spread_names = [each.metric.name for each in spreads]
        self.reserve_row = self.spread_names.index(RESERVED)
        self.weights: Floats = np.array([each.weight for each in spreads])
        parts = [(k, each, part) for k, each in enumerate(spreads) for part in each.parts]
        size = self.nowhere
        self.spread_of: Floats = np.zeros((len(spreads), len(parts)))
        self.amounts: Floats = np.zeros((2, len(parts), len(self.instances)))
        self.factors: Floats = np.zeros((len(parts), size + 1))
        for row, (k, spread, (amounts, factors)) in enumerate(parts):
            self.spread_of[k, row] = 1
            self.amounts[:, row] = amounts, amounts * self.has_mirror * spread.on_both
            self.factors[row, :size] = factors
        values = np.stack([np.append(each.values, 0.0) for each in spreads])
        # Small numbers have more digits: everything is relative to the mean of the start.
        self.means: Floats = values.sum(axis=1) / self.count_usable
        self.values: Floats = (values - self.means[:, None]) * self.usable
        self.sums: Floats = self.values.sum(axis=1)
        self.squares: Floats = (self.values**2).sum(axis=1)

    def _set_resources(self, arrays: Arrays) -> None:
        both = np.stack([arrays.disk, arrays.spindles, arrays.spindle_use])
        first = np.stack([arrays.memory, *both, arrays.vcpus])
        none = np.zeros(len(self.instances))
        self.needs: Floats = np.stack([first, np.stack([none, *(both * self.has_mirror), none])])
        spare = (arrays.spare_memory, arrays.spare_disk, arrays.spare_spindles)
        rows = np.stack([*spare, arrays.spare_spindle_use, arrays.spare_vcpus])
        self.left: Floats = np.hstack([np.maximum(rows, 0), np.full((len(rows), 1), np.inf)])

    def _set_redundancy(self, arrays: Arrays) -> None:
        size = self.nowhere
        self.is_strict = not self.limits.rules.ignores_soft
        # The last column are the nodes of other groups, which no instance here comes from.
        self.guarded: Floats = np.vstack([arrays.guarded, np.zeros(size + 1)])
        self.reserved: Floats = np.append(arrays.reserved, 0.0)
        self.present: Floats = np.append(arrays.present, np.inf)
        self.deficit: Floats = np.append(arrays.deficit, 0.0)
        self.reserve_factor: Floats = np.append(arrays.reserve_factor, 0.0)
        self.kept: Floats = arrays.kept_memory * self.has_mirror
        self.running: Floats = arrays.running_memory
        self._surplus: Floats = np.array([*(load.surplus for load in arrays.loads), 0.0])
        self._members: Floats = np.append(arrays.members, 0.0)
        # While no node lacks memory, and none may come to lack any, there is nothing to count.
        self._counts_failing = bool(arrays.failing.any()) or not self.is_strict

    def _set_labels(self, arrays: Arrays, clashes: Mapping[Clash, int]) -> None:
        """Set the counts that an instance brings: of its tags and wishes, and of bad nodes."""
        size, nodes = self.nowhere, arrays.nodes
        every, first = (_WEIGHTS[name] for name in ("offline_all_cnt", "offline_pri_cnt"))
        bad = np.append(arrays.usable == 0, False)
        self.stranded: Floats = np.stack([bad * (every + first), bad * every])
        self.common: Floats = np.zeros((size + 1, size + 1))
        if arrays.in_common is not None:
            self.common[:size, :size] = DOMAIN_WEIGHT * arrays.in_common * arrays.usable[:, None]
        self.wishes: dict[int, Floats] = {}
        for row, each in enumerate(self.instances):
            if each.wishes:
                lacks = [unmet(node, each) * node.is_usable for node in nodes]
                self.wishes[row] = DOMAIN_WEIGHT * np.append(np.array(lacks, dtype=float), 0.0)
        tags = sorted({tag for each in self.instances for tag in each.exclusion_tags})
        places = sorted({place for node in nodes for place in node.locations})
        self._tags = [[tags.index(tag) for tag in each.exclusion_tags] for each in self.instances]
        counts = [[load.exclusion.get(tag, 0) for load in arrays.loads] for tag in tags]
        self._tagged: Floats = np.zeros((len(tags), size + 1))
        self._clashing: Floats = np.zeros((len(tags), len(places)))
        for row, tag in enumerate(tags):
            self._tagged[row, :size] = counts[row]
            self._clashing[row] = [clashes.get((place, tag), 0) for place in places]
        located = [[place in node.locations for node in nodes] for place in places]
        self._located: Floats = np.zeros((len(places), size + 1))
        if places:
            self._located[:, :size] = np.array(located, dtype=float) * arrays.usable

    def _deviations(self, sums: Floats, squares: Floats) -> Floats:
        size = self.count_usable
        variance = squares / size - (sums / size) ** 2
        found: Floats = self.weights @ np.sqrt(np.maximum(variance, 0.0))
        return found

    @property
    def score(self) -> float:
        """The score of the group now."""
        return float(self._deviations(self.sums, self.squares) + self.fixed_count)

    def lift(self, row: int) -> None:
        """Take an instance off its nodes."""
        self._change(row, -1)

    def put(self, row: int, primary: int, secondary: int) -> None:
        """Put an instance that is off on these nodes."""
        self.pairs[row] = primary, secondary
        self._change(row, 1)

    def _change(self, row: int, sign: int) -> None:
        first, second = nodes = [int(column) for column in self.pairs[row]]
        count = -self._local_counts(nodes)
        if sign > 0:
            count += self._label_counts(row, first, second)
        for tag in self._tags[row]:
            self._tagged[tag, first] += sign
            self._clashing[tag] += sign * self._located[:, first]
        if sign < 0:
            count -= self._label_counts(row, first, second)
        for role, column in enumerate(nodes):
            if column != self.nowhere:
                self._change_node(row, role, column, sign)
        self._surplus[nodes] = 0.0
        self.fixed_count += count + self._local_counts(nodes)

    def _change_node(self, row: int, role: int, column: int, sign: int) -> None:
        old = self.values[:, column].copy()
        amounts = self.amounts[role, :, row] * self.factors[:, column]
        new = old + sign * (self.spread_of @ amounts)
        if role:
            guarded = self.guarded[column]
            guarded[self.pairs[row, 0]] += sign * self.kept[row]
            self.reserved[column] = guarded.max()
            k = self.reserve_row
            if self.usable[column]:
                share = self.reserved[column] * self.reserve_factor[column]
                new[k] = share - self.means[k]
        else:
            self.present[column] -= sign * self.running[row]
        self.values[:, column] = new
        self.sums += new - old
        self.squares += new**2 - old**2
        self.left[:, column] -= sign * self.needs[role, :, row]
        self._members[column] += sign

    def _label_counts(self, row: int, first: int, second: int) -> float:
        total = self.stranded[0, first] + self.stranded[1, second] + self.common[first, second]
        if row in self.wishes:
            total += self.wishes[row][first]
        for tag in self._tags[row]:
            total += _TAGS * self.usable[first] * (self._tagged[tag, first] >= 1)
            total += CLASH_WEIGHT * float((self._clashing[tag] >= 1) @ self._located[:, first])
        return float(total)

    def _local_counts(self, columns: list[int]) -> float:
        total = 0.0
        for column in dict.fromkeys(columns):
            total += _RESERVE * self.reserved[column] * self.reserve_factor[column]
            if self._counts_failing and self.usable[column]:
                free = self.present[column] + self._surplus[column]
                total += (self.reserved[column] > max(0, free)) * self._members[column]
        return float(total)

    def _around(self, anchors: tuple[int, ...]) -> tuple[Indices, Indices]:
        """Return the pairs of nodes with at least one of some nodes in them."""
        found = self._pairs_around.get(anchors)
        if found is None:
            first, second = [np.array(anchors)], [np.array(anchors[::-1])]
            for anchor in anchors:
                same = np.full(len(self._everywhere), anchor)
                first += [same, self._everywhere]
                second += [self._everywhere, same]
            x, y = np.concatenate(first), np.concatenate(second)
            found = x[x != y], y[x != y]
            self._pairs_around[anchors] = found
        return found

    def _pairs_for(self, row: int) -> tuple[Indices, Indices]:
        """Return the pairs of nodes that share one with those now or at the start."""
        limits = self.limits
        p, s = self.start[row]
        if not self.has_mirror[row]:
            targets = self._everywhere if limits.moves_instances else self.start[row, :1]
            x = np.append(targets, p)
            return x, np.full(len(x), self.nowhere)
        if limits.moves_disks:
            x, y = self._around(tuple(sorted({int(p), int(s), *map(int, self.pairs[row])})))
        else:
            x, y = np.array([p, s]), np.array([s, p])
        keep = (self.usable[x] | (x == p)) & (self.usable[y] | (y == s) | (y == p))
        if not limits.moves_instances:
            keep &= x == p
        if limits.restricts_migration:
            keep &= (y != s) | (x == p)
            keep &= (x == p) | (x == s) | (not self.usable[p])
        return x[keep], y[keep]

    def places(self, row: int, pairs: tuple[Indices, Indices] | None = None) -> Places:
        """Try an instance that is off on these pairs of nodes, or on those that are near."""
        x, y = pairs or self._pairs_for(row)
        p, s = self.start[row]
        values, k = self.values, self.reserve_row
        first, second = (
            (self.spread_of * self.amounts[role, :, row]) @ self.factors for role in (0, 1)
        )
        doubled = 2 * values
        sums = self.sums[:, None] + first[:, x] + second[:, y]
        squares_first, squares_second = first * (doubled + first), second * (doubled + second)
        squares = self.squares[:, None] + squares_first[:, x] + squares_second[:, y]
        reserved = np.maximum(self.reserved[y], self.guarded[y, x] + self.kept[row])
        share = reserved * self.reserve_factor[y]
        offset, before = (share - self.means[k]) * self.usable[y], values[k, y]
        sums[k] += offset - before
        squares[k] += offset * offset - before * before
        score = self._deviations(sums, squares) + self.fixed_count
        score += _RESERVE * (share - self.reserved[y] * self.reserve_factor[y])
        score += self.stranded[0, x] + self.stranded[1, y] + self.common[x, y]
        if row in self.wishes:
            score += self.wishes[row][x]
        is_new_first, is_new_second = (x != p) & (x != s), (y != p) & (y != s)
        is_open = self._fits(row, x, y, reserved)
        for tag in self._tags[row]:
            is_tagged = self._tagged[tag, x] >= 1
            score += _TAGS * is_tagged * self.usable[x]
            score += CLASH_WEIGHT * ((self._clashing[tag] >= 1) @ self._located)[x]
            if self.is_strict:
                is_open &= ~is_tagged
        if self._counts_failing:
            score += self._failing(row, x, y, reserved)
        is_open |= (x == p) & (y == s)
        copies = is_new_first.astype(float) + is_new_second
        switches = (x != p).astype(float)
        if self.has_mirror[row]:
            switches += is_new_first & (y == s)  # by way of the secondary node
        moves = np.maximum(np.where(self.has_mirror[row], copies, 0.0), (x != p) | (y != s))
        copied = self.disk[row] * copies if self.has_mirror[row] else np.zeros(len(x))
        return Places(x, y, np.where(is_open, score, np.inf), copied, moves, switches)

    def _fits(self, row: int, x: Indices, y: Indices, reserved: Floats) -> Mask:
        """Tell where limits allow an instance that is off."""
        fits: Mask = np.ones(len(x), dtype=bool)
        for needs, columns in zip(self.needs[:, :, row], (x, y), strict=True):
            for resource in np.flatnonzero(needs):
                fits &= needs[resource] <= self.left[resource, columns]
        if self.is_strict:
            held = self.reserved[x]
            lacks = (held > 0) & (held - self.present[x] + self.running[row] + 1 > self.deficit[x])
            if self.kept[row]:
                lacks |= (reserved > 0) & (reserved - self.present[y] + 1 > self.deficit[y])
            fits &= ~lacks
        return fits

    def _failing(self, row: int, x: Indices, y: Indices, reserved: Floats) -> Floats:
        """Return what N+1 costs more with an instance there."""

        def cost(columns: Indices, held: Floats, free: Floats, more: int) -> Floats:
            members = (self._members[columns] + more) * self.usable[columns]
            found: Floats = (held > np.maximum(free, 0)) * members
            return found

        found = cost(x, self.reserved[x], self.present[x] - self.running[row], 1)
        found -= cost(x, self.reserved[x], self.present[x] + self._surplus[x], 0)
        found += cost(y, reserved, self.present[y], 1)
        found -= cost(y, self.reserved[y], self.present[y] + self._surplus[y], 0)
        return found
