"""How many things may be beginning at once, where each beginning costs this process its time.

A cluster of a thousand nodes is not called all at once: the handshakes would take seconds of the
processor, all deadlines would pass while they are made, and everything would be tried again.  So
whoever begins takes a place, and gives it back when it has ended.  After a moment the place is
free anyway: then it is the other side that is slow, or dead, and keeps nobody waiting.

Times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

from collections.abc import Hashable

PLACES: int = 64
HOLD_S: float = 0.25


class Pace:
    """The places.

    Args:
        hold_s: how long a place is held at most.
    """

    def __init__(self, places: int = PLACES, hold_s: float = HOLD_S) -> None:
        self._places = places
        self._hold_s = hold_s
        self._begun: dict[Hashable, float] = {}  # in the order of their beginnings

    def try_begin(self, who: Hashable, now_s: float) -> bool:
        """Take a place; returns False if all are taken."""
        while self._begun:
            first = next(iter(self._begun))
            if self._begun[first] + self._hold_s > now_s:
                break
            del self._begun[first]
        if len(self._begun) >= self._places:
            return False
        self._begun.pop(who, None)
        self._begun[who] = now_s
        return True

    def end(self, who: Hashable) -> None:
        """Give a place back."""
        self._begun.pop(who, None)

    def free_at_s(self) -> float:
        """Return when there is a place at the latest; to be asked only where there is none."""
        return next(iter(self._begun.values())) + self._hold_s
