"""How often the log tells of one client: a line in a minute, with the number of those left out.

Whoever can send a request can have it refused, thousands of times in a second, and a line for each
would fill the disk.  So many origins are told apart; all further ones of that minute count as one.

Times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

QUIET_S: Final = 60.0
ORIGINS_MAX: Final = 100  # 20 MB of lines in a day
_OTHERS: Final = "other addresses"


@dataclass(slots=True)
class _Origin:
    told_s: float
    left_out: int = 0


class Complaints:
    """The lines about clients."""

    def __init__(self) -> None:
        self._origins: dict[str, _Origin] = {}  # the one told of longest ago first

    def ending(self, origin: str, now_s: float) -> str | None:
        """Count a line about an origin; returns how it is to end, None if it is to be left out."""
        if origin not in self._origins and not self._has_room(now_s):
            origin = _OTHERS
        known = self._origins.get(origin)
        if known is not None and now_s < known.told_s + QUIET_S:
            known.left_out += 1
            return None
        self._origins.pop(origin, None)
        self._origins[origin] = _Origin(now_s)
        if known is None or not known.left_out:
            return ""
        return f"; {known.left_out} more about {origin} were not written since the one before"

    def _has_room(self, now_s: float) -> bool:
        """Make room for another origin at the expense of one told of more than a minute ago."""
        if len(self._origins) < ORIGINS_MAX:
            return True
        oldest = next(iter(self._origins))
        if now_s < self._origins[oldest].told_s + QUIET_S:
            return False
        del self._origins[oldest]
        return True
