"""The search for where instances should be at the end of a plan, regardless of the way there.

It goes for a score, as near as limits allow, and for the least data to copy that brings it there:

1.  *Descent*: each time the placement of one instance that is best by score and price together.
    The price of data begins so high that only changes of roles are worth it, and falls until the
    score is reached.  So what costs nothing is done first, and of the copies those of small disks.
2.  *Ruin and recreate*: a few instances on the same few nodes are taken off together and put back
    one by one, each at its best place.  Placements of equal numbers of instances are left only by
    such exchanges: a single move makes them worse.  A result that is a little worse is taken too,
    the less the longer it lasts.

Source: Schrimpf and others, "Record breaking optimization results using the ruin and recreate
principle", 2000; doc/balancing.md has the other ways that were tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heapreplace
from math import exp, inf
from typing import Final

import numpy as np
from msgspec import Struct

from ganeti.allocation.balancing.arrays import Floats, Indices, Mask
from ganeti.allocation.planning.layout import Layout, Places

ROUNDING: Final = 1e-9
_GAIN_MIN: Final = 1e-7
# What a move or a change of roles counts besides its data (MiB): enough to leave out useless ones.
_TROUBLE_MIB: Final = 16.0
_RATE_STEP: Final = 3.0  # by which the price of data falls
_RUINED_MAX: Final = 6  # instances taken off together
_WORSE_SCORE: Final = 1e-3  # by which a result may be worse, at the beginning
_EXCESS: Final = 2.0  # how much more a score above the target counts than by the price of data


class Budget(Struct, frozen=True):
    """The most that a plan may cost.

    Attributes:
        moves: number of steps.
        data: MiB to copy.
        downtime: seconds that instances stand still, all together.
    """

    moves: float = inf
    data: float = inf
    downtime: float = inf

    @property
    def row(self) -> Floats:
        """The same as an array."""
        return np.array([self.moves, self.data, self.downtime])


class Improver:
    """The search, on a layout that it changes.

    Attributes:
        costs: moves, data and downtime of each instance (rows), from the start.
    """

    def __init__(
        self, layout: Layout, pauses: Floats, budget: Budget, target: float, seed: int
    ) -> None:
        """Begin where the layout is at the start.

        Args:
            pauses: seconds that a migration stops each instance.
            target: the score below which nothing more is won.
        """
        self.layout = layout
        self.target = target
        self._pauses = pauses
        self._most = budget.row * (1 + ROUNDING) + ROUNDING
        self._draw = np.random.default_rng(seed)
        count = len(layout.instances)
        self.costs: Floats = np.zeros((count, 3))
        self._prices: Floats = np.zeros(count)
        self._spent: Floats = np.zeros(3)
        self._on: list[set[int]] = [set() for _ in range(layout.nowhere + 1)]
        for row, pair in enumerate(layout.pairs):
            for column in pair:
                self._on[int(column)].add(row)
        self._fixed: set[int] = set()
        self._rate = self._first_rate = inf
        self.best: Indices = layout.pairs.copy()
        self._best_key = (max(layout.score, target), 0.0)

    def fix(self, rows: Iterable[int]) -> None:
        """Leave instances where they were at the start from now on, and begin again there."""
        self._fixed.update(rows)
        for row, pair in enumerate(self.layout.start):
            self._take_off(row)
            self._put_on(row, int(pair[0]), int(pair[1]), np.zeros(3), 0.0)
        self.best = self.layout.pairs.copy()
        self._best_key = (max(self.layout.score, self.target), 0.0)

    def restart(self, pairs: Indices) -> None:
        """Begin again with a placement, but for instances that cannot come there at once."""
        self._rate = self._first_rate
        for row, pair in enumerate(pairs):
            if tuple(self.layout.pairs[row]) != tuple(pair):
                self._take_off(row)
                both = np.stack([pair, self.layout.start[row]], axis=1)
                found = self._look(row, (both[0], both[1]))
                self._settle(row, found, 0 if found[3][0] else 1)
        self._note()

    def descend(self, rate_min: float, is_late: Callable[[], bool]) -> None:
        """Go down while data become cheaper, until the score is reached.

        Args:
            rate_min: the price of data (score for each MiB) at which it ends.
        """
        layout = self.layout
        copied = layout.disk[layout.has_mirror]
        largest = max(1024.0, float(copied.max(initial=0.0)))
        self._rate = rate = max(10 * max(layout.score - self.target, 1.0) / largest, rate_min)
        while rate >= rate_min and layout.score > self.target and not is_late():
            if self._go_down(rate, is_late):
                self._rate = rate
            self._note()
            rate /= _RATE_STEP
        self._first_rate = self._rate

    def _go_down(self, rate: float, is_late: Callable[[], bool]) -> int:
        """Take the best places one after the other, and return how many."""
        layout, rows = self.layout, range(len(self.layout.instances))
        queue = [(-self._gain(row, rate), row) for row in rows if row not in self._fixed]
        heapify(queue)
        count, checked = 0, 0
        while queue and layout.score > self.target and not is_late():
            # The gains in the queue are those of earlier states: the best is looked at again.
            row = queue[0][1]
            gain = self._gain(row, rate)
            heapreplace(queue, (-gain, row))
            checked += 1
            if queue[0][1] != row and checked <= len(queue):
                continue
            if gain <= _GAIN_MIN:
                break
            self._take_off(row)
            found = self._look(row)
            self._settle(row, found, int(np.argmin(self._value(found, rate))))
            count, checked = count + 1, 0
        return count

    def _gain(self, row: int, rate: float) -> float:
        layout = self.layout
        now = layout.score + rate * self._prices[row]
        x, y = layout.pairs[row]
        layout.lift(row)
        self._spent -= self.costs[row]
        lowest = float(self._value(self._look(row), rate).min())
        layout.put(row, x, y)
        self._spent += self.costs[row]
        return float(now - lowest)

    def _value(self, found: _Found, rate: float) -> Floats:
        return np.where(found[3], found[0].score + rate * found[2], inf)

    def _look(self, row: int, pairs: tuple[Indices, Indices] | None = None) -> _Found:
        """Return the places of an instance that is off, what they cost, and which are allowed."""
        places = self.layout.places(row, pairs)
        switches = places.switches
        costs = np.stack([places.moves, places.data, switches * self._pauses[row]], axis=1)
        prices = places.data + _TROUBLE_MIB * (places.moves + switches)
        fits = np.isfinite(places.score) & (self._spent + costs <= self._most).all(axis=1)
        return places, costs, prices, fits

    def _settle(self, row: int, found: _Found, place: int) -> None:
        places, costs, prices, _ = found
        x, y = int(places.primary[place]), int(places.secondary[place])
        self._put_on(row, x, y, costs[place], float(prices[place]))

    def _put_on(self, row: int, x: int, y: int, cost: Floats, price: float) -> None:
        self.layout.put(row, x, y)
        self._on[x].add(row)
        self._on[y].add(row)
        self.costs[row] = cost
        self._prices[row] = price
        self._spent += cost

    def _take_off(self, row: int) -> None:
        for column in self.layout.pairs[row]:
            self._on[int(column)].discard(row)
        self.layout.lift(row)
        self._spent -= self.costs[row]

    def _note(self) -> bool:
        """Keep the placement if it is the best one yet."""
        score = self.layout.score
        key = (max(score, self.target + ROUNDING), float(self._prices.sum()))
        if key < self._best_key and (key[0] < self._best_key[0] or key[1] < self._best_key[1]):
            self._best_key, self.best = key, self.layout.pairs.copy()
            return True
        return False

    @property
    def reaches_target(self) -> bool:
        """Whether the best placement has the score that is gone for."""
        return self._best_key[0] <= self.target + 2 * ROUNDING

    @property
    def best_data(self) -> float:
        """About the data (MiB) that the best placement copies."""
        return self._best_key[1]

    def refine(self, rounds: int, is_late: Callable[[float], bool]) -> int:
        """Ruin and recreate, and return how many rounds there was time for."""
        if len(self.layout.instances) < 2 or not np.isfinite(self._rate):
            return 0
        value = self._worth()
        for done in range(rounds):
            if is_late(done / rounds):
                return done
            if done and done % max(1, rounds // 6) == 0 and not self.reaches_target:
                self._rate /= _RATE_STEP  # the score is more worth than was thought
                value = self._worth()
            value = self._round(value, _WORSE_SCORE / self._rate * (1 - done / rounds))
        return rounds

    def _worth(self) -> float:
        excess = max(0.0, self.layout.score - self.target)
        return _EXCESS * excess / self._rate + float(self._prices.sum())

    def _round(self, value: float, warmth: float) -> float:
        rows = self._ruined()
        if len(rows) < 2:
            return value
        layout = self.layout
        pairs = layout.pairs[rows]
        costs, prices_before = self.costs[rows], self._prices[rows]
        for row in rows:
            self._take_off(row)
        back: list[int] = []
        for row in rows:
            found = self._look(row)
            places, _, prices, fits = found
            worth = _EXCESS * np.maximum(places.score - self.target, 0) / self._rate + prices
            worth = np.where(fits, worth, inf)
            place = int(np.argmin(worth))
            if not np.isfinite(worth[place]):
                break
            self._settle(row, found, place)
            back.append(row)
        else:
            after = self._worth()
            if after <= value or (
                warmth > 0 and self._draw.random() < exp(max(-50.0, (value - after) / warmth))
            ):
                self._note()
                return after
        for row in back:
            self._take_off(row)
        for row, (x, y), cost, price in zip(rows, pairs, costs, prices_before, strict=True):
            self._put_on(row, int(x), int(y), cost, float(price))
        return value

    def _ruined(self) -> list[int]:
        """Choose instances that are on the same few nodes, some of them copied."""
        draw, layout = self._draw, self.layout
        count = int(draw.integers(2, _RUINED_MAX + 1))
        copied = np.flatnonzero(self.costs[:, 1])
        first: list[int] = []
        if len(copied) and draw.random() < 0.5:
            row = int(copied[draw.integers(len(copied))])
            first = [row]
            near = {*map(int, layout.pairs[row]), *map(int, layout.start[row])} - {layout.nowhere}
            columns = sorted(near)
        else:
            columns = draw.choice(layout.nowhere, min(layout.nowhere, 3), replace=False).tolist()
        pool = sorted(set().union(*(self._on[column] for column in columns)) - self._fixed)
        if not pool:
            return []
        chosen = draw.choice(len(pool), min(count, len(pool)), replace=False)
        rows = list(dict.fromkeys([*first, *(pool[each] for each in chosen)]))
        draw.shuffle(rows)
        return rows


_Found = tuple[Places, Floats, Floats, Mask]
