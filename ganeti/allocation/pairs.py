"""The best pair of nodes for a mirrored instance, without looking at all pairs.

A thousand nodes have a million pairs.  The change of the score by a pair is nearly the change by
its primary node plus the change by its secondary node: exactly so for a spread that only one of
them changes.  Of a spread that both change, the variance is a sum of the two but for a small
product, and its root is bounded from below by a straight line.  So each side gets a bound of its
own, both lists are sorted, and pairs are taken from the front until no bound is better than the
best pair found.  The result is that of looking at all.

Where a node is the secondary of others of that primary already, it has to reserve more memory for
this pair than for others.  These few pairs come last, with a bound that takes the best possible
reserve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from msgspec import Struct

from ganeti.allocation.load import NodeLoad, shared_domains
from ganeti.allocation.score import (
    DOMAIN_WEIGHT,
    RESERVED,
    ROUNDING,
    Share,
    Tally,
    deviation,
    reserved_share,
)

_EPSILON = 1e-12  # scores that differ by less are equal
_Deltas = tuple[tuple[float, float], ...]  # of each spread: change of sum, change of squares


class Side(Struct):
    """A node in one of the two roles: its load before and after, and its effect on the score."""

    old: NodeLoad
    new: NodeLoad
    deltas: _Deltas
    count: float
    bound: float = 0.0
    related_bound: float = 0.0

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.old.node.name


def side(
    share: Callable[[NodeLoad], Share], old: NodeLoad, new: NodeLoad, extra: float = 0.0
) -> Side:
    """Return a node in a role; ``extra`` is counted besides."""
    before, after = share(old), share(new)
    deltas = tuple(
        [(b - a, b * b - a * a) for a, b in zip(before.values, after.values, strict=True)]
    )
    return Side(old, new, deltas, after.count - before.count + extra)


Special = Callable[[Side, Side], Side | None]
Accepts = Callable[[Side, Side], bool]


def best_pair(
    tally: Tally,
    primaries: Sequence[Side],
    secondaries: Sequence[Side],
    special: Special,
    accepts: Accepts,
) -> tuple[Side, Side, float] | None:
    """Return the pair with the lowest score that is accepted, and the score.

    Args:
        special: returns the secondary side as it is with just this primary, None if that cannot be;
            it is asked only about pairs of nodes that have mirrors together already.
        accepts: the last word on a pair; asked only about pairs that would be the best.
    """
    if not primaries or not secondaries:
        return None
    scorer = _Scorer(tally, primaries, secondaries)
    best: tuple[Side, Side, float] | None = None
    for first, second in scorer.ordered():
        if first.name in second.old.guarded:
            adapted = special(first, second)
            if adapted is None:
                continue
            second = adapted
        score = scorer.score(first, second)
        if score < scorer.lowest - _EPSILON and accepts(first, second):
            best, scorer.lowest = (first, second, score), score
    return best


class _Scorer:
    """Scores of pairs, and the order in which to look at them; ``lowest`` is set from outside."""

    def __init__(
        self, tally: Tally, primaries: Sequence[Side], secondaries: Sequence[Side]
    ) -> None:
        self.lowest = inf
        self._size = tally.size
        self._count = tally.count
        rows = zip(tally.spreads, tally.sums, tally.squares, strict=True)
        # (place, sum, squares, weight) of each spread
        self._spreads = [
            (place, total, squares, spread.weight)
            for place, (spread, total, squares) in enumerate(rows)
        ]
        self._base = tally.count
        for each in (*primaries, *secondaries):
            each.bound = each.count
        for row in self._spreads:
            self._bound(row, primaries, secondaries)
        for each in secondaries:
            each.related_bound = each.bound
        for row, spread in zip(self._spreads, tally.spreads, strict=True):
            if spread.name == RESERVED:
                self._relax(row, secondaries)
        self._primaries = sorted(primaries, key=_bound_of)
        self._secondaries = sorted(secondaries, key=_bound_of)

    def score(self, first: Side, second: Side) -> float:
        """Return the score of a pair."""
        size = self._size
        score = self._count + first.count + second.count
        for place, total, squares, weight in self._spreads:
            sum_1, square_1 = first.deltas[place]
            sum_2, square_2 = second.deltas[place]
            mean = (total + sum_1 + sum_2) / size
            score += weight * deviation((squares + square_1 + square_2) / size - mean * mean)
        return score + DOMAIN_WEIGHT * shared_domains(first.old.node, second.old.node)

    def ordered(self) -> Iterator[tuple[Side, Side]]:
        """Yield the pairs that may have a lower score than the lowest yet."""
        base, secondaries = self._base, self._secondaries
        for first in self._primaries:
            own = base + first.bound
            if own + secondaries[0].bound >= self.lowest - _EPSILON:
                break
            for second in secondaries:
                if own + second.bound >= self.lowest - _EPSILON:
                    break
                if first.name != second.name and first.name not in second.old.guarded:
                    yield first, second
        yield from self._related()

    def _related(self) -> Iterator[tuple[Side, Side]]:
        """Yield the pairs that have mirrors together already and may have a lower score."""
        by_name = {first.name: first for first in self._primaries}
        for second in self._secondaries:
            own = self._base + second.related_bound
            for name in second.old.guarded:
                first = by_name.get(name)
                if first is None or name == second.name:
                    continue
                if own + first.bound < self.lowest - _EPSILON:
                    yield first, second

    def _relax(self, row: tuple[int, float, float, float], secondaries: Sequence[Side]) -> None:
        """Make the bounds of related pairs hold however much memory a node has to reserve.

        With more reserved on one node the spread first falls, up to the mean of the others, and
        then rises; only primary nodes leave it alone, so this part of the bound is exact.
        """
        place, total, squares, weight = row
        n = self._size
        for each in secondaries:
            change, square = each.deltas[place]
            value = reserved_share(each.new)
            others = (total + change - value) / max(1, n - 1)
            if value < others:
                here = (squares + square) / n - ((total + change) / n) ** 2
                best = (squares + square - value * value + others * others) / n
                best -= ((total + change - value + others) / n) ** 2
                each.related_bound += weight * (deviation(best) - deviation(here))

    def _bound(
        self,
        row: tuple[int, float, float, float],
        primaries: Sequence[Side],
        secondaries: Sequence[Side],
    ) -> None:
        """Add the part of a spread to the bounds of all sides.

        With S and Q for sum and squares before, a and q for their changes, n for the number of
        nodes, the variance is (Q + q1 + q2) / n - ((S + a1 + a2) / n)^2: a part of the primary
        node, one of the secondary node, and the product -2 a1 a2 / n^2.
        """
        place, total, squares, weight = row
        n = self._size
        ones = [side.deltas[place] for side in primaries]
        twos = [side.deltas[place] for side in secondaries]
        firsts = [(squares + q) / n - ((total + a) / n) ** 2 for a, q in ones]
        seconds = [q / n - (2 * total * a + a * a) / (n * n) for a, q in twos]
        if not any(a or q for a, q in twos):
            _add(primaries, [weight * deviation(value) for value in firsts])
            return
        if not any(a or q for a, q in ones):
            variance = firsts[0]
            _add(secondaries, [weight * deviation(variance + value) for value in seconds])
            return
        product = 2 / (n * n) * max(abs(a) for a, _ in ones) * max(abs(a) for a, _ in twos)
        low = max(ROUNDING, min(firsts) + min(seconds) - product)
        high = max(low, max(firsts) + max(seconds) + product)
        roots = deviation(low) + deviation(high)
        slope = weight / roots if roots else 0.0
        offset = weight * deviation(low) - slope * (low + product)
        _add(primaries, [offset + slope * value for value in firsts])
        _add(secondaries, [slope * value for value in seconds])


def _bound_of(each: Side) -> float:
    return each.bound


def _add(sides: Sequence[Side], values: Sequence[float]) -> None:
    for each, value in zip(sides, values, strict=True):
        each.bound += value
