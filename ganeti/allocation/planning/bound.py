"""A bound below every plan: the least data for a score, or the least score within a budget.

It is the value of a linear program that every plan fits in.  An instance may be in parts on many
nodes; a spread is at least what any direction of the nodes' values shows of it, and as many of
these cuts are added as are needed; spreads of equal units have a floor.  Reserved memory is at
least what instances that stay need, exclusion tags and N+1 of other instances are left out.  Of the
places of instances only those that could make the program's value smaller are in it (columns come
when their reduced cost is negative), and what is missing is taken off its value.  So the bound
holds whenever the time is over.

Source: doc/balancing.md, "A whole plan".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heapreplace
from math import inf, sqrt
from typing import Final

import numpy as np
from msgspec import Struct

from ganeti.allocation.balancing.arrays import Floats, Indices
from ganeti.allocation.planning.layout import RESOURCES, Layout
from ganeti.allocation.planning.search import Budget
from ganeti.allocation.score import COUNTS

try:
    import highspy
except ImportError:  # told by `is_available`
    highspy = None

_RESERVE: Final = next(each.weight for each in COUNTS if each.name == "reserved_mem_rtotal")
_TOLERANCE: Final = 1e-5
_SAFETY: Final = 1e-6  # of the value, for the rounding of the solver
_UNITS_MAX: Final = 100_000
_COLUMNS_EACH: Final = 3  # that an instance gets in a round
_ROUNDS_MAX: Final = 400
_STALE_ROUNDS: Final = 12  # with next to no progress, after which it ends
_PROGRESS: Final = 1e-3
_HOLDERS_MAX: Final = 4
_DEAR: Final = 10.0  # times all data, for 1 of the score

_Entries = dict[int, float]


def is_available() -> bool:
    """Tell whether the solver is installed."""
    return highspy is not None


class Bound(Struct, frozen=True):
    """What no plan can be below.

    Attributes:
        data: MiB to copy; of a plan that reaches the score to go for.
        score: that of a plan within the budget, but not below the one to go for.
        holders: what holds the bound there, the strongest first.
        is_cut: with more time it might be higher.
    """

    data: float
    score: float
    holders: tuple[str, ...]
    is_cut: bool


class Program:
    """The linear program of one group.

    Rows and columns are known by their numbers; -1 stands for none.
    """

    def __init__(
        self, layout: Layout, pauses: Floats, budget: Budget, target: float, *, of_score: bool
    ) -> None:
        """Make the program with the layout at its start.

        Args:
            of_score: look for the least score instead of the least data.
        """
        self.layout = layout
        self.of_score = of_score
        self.target = target
        self._budget = budget
        self._pauses = pauses
        self._usable: Indices = np.flatnonzero(layout.usable)
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        self._row_count = self._column_count = 0
        self._names: dict[int, str] = {}
        rows = range(len(layout.instances))
        pairs = layout.pairs.copy()
        now = layout.score
        for row in rows:
            layout.lift(row)
        reserve = float((layout.reserved * layout.reserve_factor).sum())
        self._base = (layout.values + layout.means[:, None] * layout.usable)[:, self._usable]
        self._add_rows(float(layout.fixed_count - _RESERVE * reserve))
        self._add_fixed_columns()
        for row in rows:
            layout.put(row, *pairs[row])
        assert abs(layout.score - now) < 1e-6
        self._have: set[tuple[int, int, int]] = set()
        self._add_places([(row, int(n), role) for row in rows for role, n in self._own(row)])

    def _own(self, row: int) -> list[tuple[int, int]]:
        """Return the roles that an instance could have on its own nodes."""
        layout, limits = self.layout, self.layout.limits
        p, s = layout.start[row]
        if not layout.has_mirror[row]:
            return [(0, p)]
        own = [(0, p), (1, s)]
        return [*own, (0, s), (1, p)] if limits.moves_instances else own

    # Rows.

    def _row(self, low: float, high: float, name: str = "") -> int:
        none = np.zeros(0)
        self._highs.addRow(low, high, 0, none.astype(np.int32), none)
        self._names[self._row_count] = name
        self._row_count += 1
        return self._row_count - 1

    def _rows(self, lows: Floats | list[float], highs: Floats | list[float]) -> Indices:
        pairs = zip(lows, highs, strict=True)
        return np.array([self._row(float(low), float(high)) for low, high in pairs], int)

    def _add_rows(self, constant: float) -> None:
        layout, usable = self.layout, self._usable
        count, size = len(layout.instances), len(usable)
        self._value_rows = np.stack([self._rows(base, base) for base in self._base_values()])
        limits = layout.left[:, usable]
        self._resource_rows = np.full((len(RESOURCES), layout.nowhere + 1), -1)
        for resource, kind in enumerate(RESOURCES):
            for place, column in enumerate(usable):
                if np.isfinite(limits[resource, place]):
                    name = f"{kind} of {layout.names[column]}"
                    # Instances that are over a limit at the start may stay.
                    most = max(limits[resource, place], 0.0) + _TOLERANCE
                    self._resource_rows[resource, column] = self._row(-inf, most, name)
        self._redundancy_rows = np.full(layout.nowhere + 1, -1)
        if layout.is_strict:
            for column in usable:
                most = float(layout.present[column] + layout.deficit[column])
                name = f"N+1 of {layout.names[column]}"
                self._redundancy_rows[column] = self._row(-inf, most, name)
        self._mean_rows = np.full(layout.nowhere + 1, -1)
        least = layout.guarded[usable].sum(axis=1) / layout.nowhere
        self._mean_rows[usable] = self._rows(least, [inf] * size)
        self._part_rows = np.stack([self._rows([1.0] * count, [1.0] * count) for _ in range(2)])
        self._pair_rows = np.stack([self._rows([-inf] * count, [1.0] * count) for _ in range(2)], 1)
        self._add_guard_rows()
        self._score_row = self._row(-inf, self.target - constant + _TOLERANCE)
        self._add_budget_rows()

    def _base_values(self) -> Floats:
        base = self._base.copy()
        base[self.layout.reserve_row] = 0.0  # follows from what is reserved
        return base

    def _add_guard_rows(self) -> None:
        """Add a row for each pair of nodes that instances have: what one guards for the other."""
        layout = self.layout
        self._guard_rows: dict[tuple[int, int], int] = {}
        least: dict[tuple[int, int], float] = {}
        for row in np.flatnonzero(layout.kept):
            p, s = map(int, layout.start[row])
            for pair in ((p, s), (s, p)):
                if layout.usable[pair[1]]:
                    least[pair] = least.get(pair, 0.0) - float(layout.kept[row])
        for (first, second), amount in least.items():
            low = amount + float(layout.guarded[second, first])
            self._guard_rows[first, second] = self._row(low, inf)

    def _add_budget_rows(self) -> None:
        budget, layout = self._budget, self.layout
        count = len(layout.instances)
        self._data_row = self._pause_row = self._moves_row = -1
        if np.isfinite(budget.data):
            self._data_row = self._row(-inf, budget.data, "--max-data")
        if np.isfinite(budget.downtime):
            least = float(self._pauses.sum()) - budget.downtime
            self._pause_row = self._row(least, inf, "--max-downtime")
        if np.isfinite(budget.moves):
            self._moves_row = self._row(-inf, budget.moves, "--max-length")
            self._stay_rows = self._rows([1.0] * count, [inf] * count)
            self._copy_rows = self._rows([0.0] * count, [inf] * count)

    # Columns.

    def _column(self, cost: float, low: float, high: float, entries: _Entries) -> int:
        rows = np.array(list(entries), np.int32)
        values = np.array(list(entries.values()), float)
        self._highs.addCol(cost, low, high, len(entries), rows, values)
        self._column_count += 1
        return self._column_count - 1

    def _add_fixed_columns(self) -> None:
        """Add the values of nodes, the spreads, reserved memory, and what goes beyond the score."""
        layout, usable = self.layout, self._usable
        self._value_columns = np.array(
            [self._column(0.0, -inf, inf, {int(row): 1.0}) for row in self._value_rows.flat]
        ).reshape(self._value_rows.shape)
        for place, column in enumerate(usable):
            factor = float(layout.reserve_factor[column])
            entries = {
                int(self._value_rows[layout.reserve_row, place]): -factor,
                int(self._mean_rows[column]): 1.0,
                self._score_row: _RESERVE * factor,
            }
            if layout.is_strict:
                entries[int(self._redundancy_rows[column])] = 1.0
            for (_, second), row in self._guard_rows.items():
                if second == column:
                    entries[row] = 1.0
            self._column(0.0, float(layout.guarded[column].max()), inf, entries)
        self._spread_columns = [
            self._column(0.0, self._floor(k), inf, {self._score_row: float(weight)})
            for k, weight in enumerate(layout.weights)
        ]
        # Data for a score that cannot be had in this program: dear enough not to be worth it.
        dear = 1.0 if self.of_score else _DEAR * max(1024.0, float(layout.disk.sum()))
        self._column(dear, 0.0, inf, {self._score_row: -1.0})
        if self._moves_row >= 0:
            for stay, copy in zip(self._stay_rows, self._copy_rows, strict=True):
                self._column(0.0, 0.0, 2.0, {int(stay): 1.0, int(copy): 1.0, self._moves_row: 1.0})

    def _floor(self, k: int) -> float:
        """Return what a spread is at least, as it consists of equal units."""
        layout, usable = self.layout, self._usable
        rows = [row for row in np.flatnonzero(layout.spread_of[k]) if layout.factors[row].any()]
        on = layout.start[layout.start != layout.nowhere]
        if k == layout.reserve_row or len(rows) != 1 or not layout.usable[on].all():
            return 0.0
        factors, amounts = layout.factors[rows[0], usable], np.abs(layout.amounts[:, rows[0]])
        whole = np.rint(amounts).astype(np.int64)
        unit = int(np.gcd.reduce(whole, axis=None))
        if not np.array_equal(whole, amounts) or not unit or np.ptp(factors) > 1e-12:
            return 0.0
        count = int(whole.sum()) // unit
        if count > _UNITS_MAX:
            return 0.0
        sign = np.sign(layout.amounts[:, rows[0]].sum())
        values = [float(sign * value) for value in self._base[k]]
        heapify(values)
        for _ in range(count):
            heapreplace(values, values[0] + unit * float(factors[0]))
        return float(np.std(values)) * (1 - _SAFETY)

    def _add_places(self, wanted: list[tuple[int, int, int]]) -> int:
        """Add columns for instances (rows) on nodes in roles; return how many are new."""
        new = [each for each in wanted if each not in self._have]
        for row, column, role in new:
            self._have.add((row, column, role))
            cost, entries = self._place(row, column, role)
            self._column(cost, 0.0, inf, entries)
        return len(new)

    def _place(self, row: int, column: int, role: int) -> tuple[float, _Entries]:
        layout = self.layout
        entries: _Entries = {int(self._part_rows[role, row]): 1.0}
        is_own = column in layout.start[row]
        if layout.usable[column]:
            place = int(np.searchsorted(self._usable, column))
            amounts = layout.amounts[role, :, row] * layout.factors[:, column]
            for k, value in enumerate(layout.spread_of @ amounts):
                if value:
                    entries[int(self._value_rows[k, place])] = -float(value)
            for resource, need in enumerate(layout.needs[role, :, row]):
                at = int(self._resource_rows[resource, column])
                if need and at >= 0:
                    entries[at] = float(need)
            if role == 0 and layout.is_strict:
                entries[int(self._redundancy_rows[column])] = float(layout.running[row])
            if role == 1:
                entries[int(self._mean_rows[column])] = -float(layout.kept[row]) / layout.nowhere
        cost = float(layout.stranded[role, column])
        if role == 0 and row in layout.wishes:
            cost += float(layout.wishes[row][column])
        if cost:
            entries[self._score_row] = cost
        self._add_own_entries(entries, row, column, role)
        return self._cost(row, is_own=is_own), entries

    def _cost(self, row: int, *, is_own: bool) -> float:
        copies = not is_own and self.layout.has_mirror[row] and not self.of_score
        return float(self.layout.disk[row]) if copies else 0.0

    def _add_own_entries(self, entries: _Entries, row: int, column: int, role: int) -> None:
        """Add the entries of the rows that are about the nodes of the start, and of the budget."""
        layout = self.layout
        p, s = map(int, layout.start[row])
        mirrored = bool(layout.has_mirror[row])
        if column in (p, s):
            if mirrored:
                entries[int(self._pair_rows[row, int(column == s)])] = 1.0
            for pair in ((p, s), (s, p)):
                guard = self._guard_rows.get(pair)
                if guard is not None and layout.kept[row] and (role == 0 or column == pair[1]):
                    entries[guard] = entries.get(guard, 0.0) - float(layout.kept[row])
        elif mirrored:
            if self._data_row >= 0:
                entries[self._data_row] = float(layout.disk[row])
            if self._moves_row >= 0:
                entries[int(self._copy_rows[row])] = -1.0
        if role == 0 and column == p:
            if self._pause_row >= 0:
                entries[self._pause_row] = float(self._pauses[row])
            if self._moves_row >= 0:
                entries[int(self._stay_rows[row])] = 1.0

    # Solving.

    def solve(self, is_late: Callable[[float], bool]) -> Bound:
        """Solve it, with more columns and cuts as long as they are needed and there is time."""
        self._cut_along(self._base + self._placed(self.layout.pairs))
        lower, stale, is_cut = 0.0, 0, True
        solution = None
        for done in range(_ROUNDS_MAX):
            self._highs.run()
            if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                break
            solution = self._highs.getSolution()
            value = self._highs.getInfo().objective_function_value
            missing, wanted = self._priced(np.array(solution.row_dual))
            best = (value + missing) * (1 - _SAFETY) - _SAFETY
            stale = 0 if best > lower * (1 + _PROGRESS) + _SAFETY else stale + 1
            lower = max(lower, best)
            new = self._add_places(wanted)
            new += self._cut(np.array(solution.col_value))
            if not new or stale > _STALE_ROUNDS:
                is_cut = False
                break
            if is_late(done / _ROUNDS_MAX):
                break
        holders = self._holders(solution) if solution is not None else ()
        if self.of_score:
            return Bound(0.0, self.target + lower, holders, is_cut)
        return Bound(lower, self.target, holders, is_cut)

    def _placed(self, pairs: Indices) -> Floats:
        """Return what instances on these nodes add to the values."""
        layout = self.layout
        total = np.zeros_like(layout.values)
        for row, pair in enumerate(pairs):
            for role, column in enumerate(pair):
                amounts = layout.amounts[role, :, row] * layout.factors[:, column]
                total[:, column] += layout.spread_of @ amounts
        return total[:, self._usable]

    def _cut_along(self, values: Floats) -> None:
        for k, row in enumerate(values):
            self._add_cut(k, row - row.mean())

    def _add_cut(self, k: int, offsets: Floats) -> bool:
        length = float(np.linalg.norm(offsets))
        if length < 1e-9:
            return False
        columns = np.array([self._spread_columns[k], *self._value_columns[k]], np.int32)
        values = np.array([sqrt(len(offsets)), *(-offsets / length)])
        self._highs.addRow(0.0, inf, len(columns), columns, values)
        self._names[self._row_count] = ""
        self._row_count += 1
        return True

    def _cut(self, solution: Floats) -> int:
        """Add the cuts that the solution is beyond."""
        count = 0
        for k, weight in enumerate(self.layout.weights):
            values = solution[self._value_columns[k]]
            beyond = float(np.std(values)) - solution[self._spread_columns[k]]
            if beyond * weight > _TOLERANCE:
                count += self._add_cut(k, values - values.mean())
        return count

    def _priced(self, duals: Floats) -> tuple[float, list[tuple[int, int, int]]]:
        """Return how much lower all missing columns could bring the value at most, and the best."""
        layout, usable = self.layout, self._usable
        limits = layout.limits
        count, total = len(layout.instances), 0.0
        wanted: list[tuple[int, int, int]] = []
        rows = np.arange(count)
        for role in (0, 1):
            reduced = self._reduced(role, duals)
            for own in layout.start.T:
                places = np.searchsorted(usable, own)
                there = (places < len(usable)) & (own != layout.nowhere)
                there[there] &= usable[places[there]] == own[there]
                reduced[rows[there], places[there]] = np.inf
            moves_mirrors = limits.moves_disks and (role == 1 or limits.moves_instances)
            if not moves_mirrors:
                reduced[layout.has_mirror] = np.inf
            if role == 1 or not limits.moves_instances:
                reduced[~layout.has_mirror] = np.inf
            lowest = reduced.min(axis=1, initial=np.inf)
            total += float(np.minimum(lowest, 0.0).sum())
            for row in np.flatnonzero(lowest < -_SAFETY):
                best = np.argsort(reduced[row])[:_COLUMNS_EACH]
                wanted += [
                    (int(row), int(usable[place]), role)
                    for place in best
                    if reduced[row, place] < -_SAFETY
                ]
        return total, wanted

    def _reduced(self, role: int, duals: Floats) -> Floats:
        """Return the reduced costs of all instances on all nodes that are not their own."""
        layout, usable = self.layout, self._usable
        copied = np.where(layout.has_mirror, layout.disk, 0.0)
        per_mib = 0.0 if self.of_score else 1.0
        if self._data_row >= 0:
            per_mib -= duals[self._data_row]
        own = copied * per_mib - duals[self._part_rows[role]]
        if self._moves_row >= 0:
            own = own + layout.has_mirror * duals[self._copy_rows]
        prices = layout.spread_of.T @ duals[self._value_rows] * layout.factors[:, usable]
        reduced = own[:, None] + layout.amounts[role].T @ prices
        rows = self._resource_rows[:, usable]
        reduced -= layout.needs[role].T @ np.where(rows >= 0, duals[rows], 0.0)
        if role == 1:
            kept = layout.kept / layout.nowhere
            reduced += kept[:, None] * duals[self._mean_rows[usable]]
        elif layout.is_strict:
            reduced -= layout.running[:, None] * duals[self._redundancy_rows[usable]]
        if role == 0:
            for row, wishes in layout.wishes.items():
                reduced[row] -= wishes[usable] * duals[self._score_row]
        found: Floats = reduced
        return found

    def _holders(self, solution: object) -> tuple[str, ...]:
        """Return what holds the bound where it is."""
        duals = np.array(solution.row_dual)  # type: ignore[attr-defined]
        values = np.array(solution.col_value)  # type: ignore[attr-defined]
        named = [(row, name) for row, name in self._names.items() if name]
        strained = [(-abs(float(duals[row])), name) for row, name in named if duals[row]]
        options = [name for _, name in sorted(strained) if name.startswith("--")]
        others = [name for _, name in sorted(strained) if not name.startswith("--")]
        left = {
            name: float(weight * values[column])
            for name, weight, column in zip(
                self.layout.spread_names, self.layout.weights, self._spread_columns, strict=True
            )
        }
        return (*options, *_largest(left), *others)[:_HOLDERS_MAX]


def _largest(left: Mapping[str, float]) -> list[str]:
    """Return the spreads that are left, those that come to a tenth of all or more."""
    total = sum(left.values())
    names = sorted(left, key=lambda name: -left[name])
    return [f"{name} {left[name]:.3f}" for name in names if left[name] > total / 10 > 0.0]
