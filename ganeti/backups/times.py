"""When the next backup or rehearsal may begin.  Pure."""

from __future__ import annotations

from collections.abc import Callable

from ganeti.backups.policy import DAY_S, HOUR_S


def due_at(
    every_s: int,
    hours: tuple[int, int] | None,
    newest: float | None,
    now: float,
    local: Callable[[float], float],
) -> float:
    """Return from when on the next one may begin: not after now if it is due.

    Args:
        hours: of the day, between which it may begin; None for any.
        newest: the time of the last one, if there is any.
        local: turns a time into one whose days begin at midnight of the master's clock.
    """
    if hours is None:
        return 0.0 if newest is None else newest + every_s
    begin, end = hours
    length_s, shift_s = (end - begin) % 24 * HOUR_S, begin * HOUR_S
    is_daily = newest is not None and every_s >= DAY_S
    after = 0.0 if newest is None or is_daily else newest + every_s
    earliest = local(max(now, after)) - shift_s  # in days that begin with the time of backups
    day = earliest // DAY_S
    if earliest >= day * DAY_S + length_s:
        day += 1  # the time of that day is over
    if newest is not None and is_daily:
        day = max(day, (local(newest) - shift_s) // DAY_S + every_s // DAY_S)
    return max(day * DAY_S + shift_s - local(now) + now, after)
