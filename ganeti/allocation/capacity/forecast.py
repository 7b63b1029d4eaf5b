"""How long there is room if a cluster grows as in the last weeks, and what it runs out of first.

The usual new instance has the size by which the cluster has grown for each instance that is more:
growth of instances that were there already is so shared among the new ones.  As many of that size
as fit are placed; at the pace of these weeks that takes so long.

Source: weeks are those of `ganeti.jobs.growth`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from msgspec import Struct

from ganeti.allocation.capacity.filling import fill
from ganeti.allocation.capacity.search import Filled, Search, new_names
from ganeti.allocation.capacity.tiers import Size
from ganeti.allocation.limits import Obstacle
from ganeti.allocation.state import ClusterState
from ganeti.protocol.luxi import Week

COUNT_MAX = 100_000


class Pace(Struct, frozen=True):
    """The growth of a cluster: instances more each week, and the size of each."""

    per_week: float
    size: Size


class Forecast(Struct, frozen=True):
    """The room for more instances of the usual size.

    Attributes:
        count: how many fit.
        weeks: how long that is enough; infinity is not told but as None: the cluster does not grow.
        lacking: what most nodes lack for one more.
    """

    pace: Pace | None
    count: int = 0
    weeks: float | None = None
    lacking: Obstacle | None = None


def pace_of(weeks: Sequence[Week], usual: Size) -> Pace | None:
    """Return the growth in some weeks; None if there are no more instances than before.

    Args:
        usual: the size of an instance as far as the weeks do not tell: its CPUs and spindle use,
            and its memory and disk where these have not grown.
    """
    more = sum(week.created - week.removed for week in weeks)
    if more <= 0:
        return None
    memory, disk = sum(week.memory for week in weeks), sum(week.disk for week in weeks)
    size = Size(
        ceil(memory / more) if memory > 0 else usual.memory,
        ceil(disk / more) if disk > 0 else usual.disk,
        usual.vcpus,
        usual.spindles,
        usual.spindle_use,
        usual.is_exclusive,
    )
    return Pace(more / len(weeks), size)


def lacking(filled: Filled) -> Obstacle | None:
    """Return what most nodes, or pairs, lack for one more; None if there is none to lack it."""
    reasons = sorted(filled.refused.items(), key=lambda row: -row[1])
    return next((why for why, count in reasons if count), None)


def forecast(
    cluster: ClusterState,
    search: Search,
    weeks: Sequence[Week],
    usual: Size,
    template: str,
    count_max: int = COUNT_MAX,
) -> Forecast:
    """Return for how long there is room."""
    pace = pace_of(weeks, usual)
    if pace is None:
        return Forecast(None)
    filled = fill(cluster, search, pace.size.instance(template), new_names(), count_max)
    count = len(filled.placed)
    return Forecast(pace, count, count / pace.per_week, lacking(filled))
