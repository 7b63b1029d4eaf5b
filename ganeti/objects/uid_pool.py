"""The pool of user ids that guests may run under: a set of ids, kept as ranges.  Pure.

The text form is that of the command line, ``5000-5999,7000``; ssconf has the same with one range
per line.

Source: design-2.1, "User-id pool"; constants.json, UIDPOOL_UID_MIN and UIDPOOL_UID_MAX.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ganeti.base.errors import ParameterError

UID_MAX: Final = 4294967295
_DIGITS_MAX: Final = 30  # Python refuses to read thousands of them, with an error of its own

UidRange = tuple[int, int]  # both bounds are inside; a single id has them equal


def parse_uid_pool(text: str, separator: str = ",") -> list[UidRange]:
    """Parse the text form to ranges in normal form; an empty text is an empty pool.

    Raises:
        ParameterError: not numbers, out of range, or upside down.
    """
    parts = [part.strip() for part in text.split(separator)]
    return normal_form(_parse_range(part) for part in parts if part)


def _parse_range(text: str) -> UidRange:
    first, dash, last = (part.strip() for part in text.partition("-"))
    if not _is_number(first) or (dash and not _is_number(last)):
        raise ParameterError(f"{text!r} is not a user id or a range such as 5000-5999")
    found = (int(first), int(last or first))
    problem = problem_of(found)
    if problem is not None:
        raise ParameterError(problem)
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def problem_of(uids: UidRange) -> str | None:
    """Return the fault of a range, or None."""
    low, high = uids
    if low > high:
        return f"the range of user ids {low}-{high} is upside down"
    if low < 0 or high > UID_MAX:
        return f"the range of user ids {low}-{high} does not lie between 0 and {UID_MAX}"
    return None


def format_range(uids: UidRange) -> str:
    """Return the text form of one range."""
    low, high = uids
    return str(low) if low == high else f"{low}-{high}"


def format_uid_pool(pool: Iterable[UidRange], separator: str = ",") -> str:
    """Return the text form."""
    return separator.join(format_range(uids) for uids in pool)


def normal_form(ranges: Iterable[UidRange]) -> list[UidRange]:
    """Return the same ids as ranges in order that neither overlap nor touch."""
    merged: list[UidRange] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def without(pool: Iterable[UidRange], removed: Iterable[UidRange]) -> list[UidRange]:
    """Return the ids of a pool that are not among the removed ones."""
    left = normal_form(pool)
    for low, high in normal_form(removed):
        left = [
            part
            for first, last in left
            for part in ((first, min(last, low - 1)), (max(first, high + 1), last))
            if part[0] <= part[1]
        ]
    return left


def count(pool: Iterable[UidRange]) -> int:
    """Return how many ids a pool in normal form holds."""
    return sum(high - low + 1 for low, high in pool)


def uid_at(pool: Iterable[UidRange], index: int) -> int:
    """Return the id at a place, from 0 on, of a pool in normal form.

    Raises:
        IndexError: there is no such place.
    """
    left = index
    for low, high in pool:
        if left <= high - low:
            return low + left
        left -= high - low + 1
    raise IndexError(index)
