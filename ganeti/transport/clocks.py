"""What is said of clocks that differ: of ours and a certificate, of ours and a peer's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ganeti.base.text import utc

_GAP_S_MAX: Final = 60.0  # clocks that differ by less are not worth a word
_DATE_FORMAT: Final = "%a, %d %b %Y %H:%M:%S GMT"


def clock_words(valid_from: float, now: float, clock_name: str = "this node's clock") -> str:
    """Return by how much a clock, our own, is behind the beginning of a certificate."""
    own, begin = utc(now), utc(valid_from)
    return (
        f"it begins on {begin}, and {clock_name} is {_span(valid_from - now)} behind that, at"
        f" {own}: compare the clocks of the nodes"
    )


def gap_words(date: str, now: float) -> str:
    """Return by how much the clock of a peer differs from ours; "" if that is little.

    Args:
        date: what it says in the header Date of an answer that just came.
    """
    try:
        told = datetime.strptime(date, _DATE_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return ""
    gap_s = told.timestamp() - now
    if abs(gap_s) < _GAP_S_MAX:
        return ""
    return f"its clock is {_span(abs(gap_s))} {'behind' if gap_s < 0 else 'ahead of'} this node's"


def _span(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    return f"{days} d {hours:02}:{rest // 60:02}:{rest % 60:02}"
