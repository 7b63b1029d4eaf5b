"""The Unix users of daemons, as the system numbers them."""

from __future__ import annotations

import pwd
from collections.abc import Collection

from ganeti.base.daemons import DAEMONS


def strangers(friends: Collection[str]) -> frozenset[int]:
    """Return the users of all other daemons; an installation may have one user for several."""
    others = {daemon.user for daemon in DAEMONS}.difference(friends)
    return _numbers(others) - _numbers(friends)


def _numbers(names: Collection[str]) -> frozenset[int]:
    found = set()
    for name in names:
        try:
            found.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue  # virtual clusters have none of them
    return frozenset(found)
