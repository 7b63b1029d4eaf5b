"""Which nodes run a member of the cluster's own etcd.  Pure.

Members are master candidates, as many as `SIZE`: with three, one may be lost.  A member stays where
it is as long as its node is an online candidate; another is chosen only in the place of one that
is not.  A change goes one member at a time, so that most of them agree at every moment.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

SIZE: Final = 3


@dataclass(frozen=True, slots=True)
class Change:
    """The next step: a member that goes, and then one that comes; "" for none."""

    remove: str = ""
    add: str = ""


def choose(candidates: Sequence[str]) -> list[str]:
    """Return the nodes for a new etcd, of candidates in the order of preference.

    Returns:
        As many as there are to be; none if there are too few.
    """
    return list(candidates[:SIZE]) if len(candidates) >= SIZE else []


def next_change(members: Sequence[str], usable: Collection[str]) -> Change | None:
    """Return the next step that lets members follow the candidates; None if there is none.

    Args:
        usable: master candidates that are online.
    """
    gone = [name for name in members if name not in usable]
    free = [name for name in usable if name not in members]
    if gone and free:
        return Change(gone[0], free[0])
    if not gone and free and len(members) < SIZE:
        return Change(add=free[0])
    return None  # a member that is away counts less than one that nobody follows
