"""The Unix users of daemons, as the system numbers them, and of clients, by name.

The system may have to ask a server for a name, which may not answer for a long time.  So no loop of
a daemon looks a name up by itself: a partner would take that for a hang (`daemon.partner`).
"""

from __future__ import annotations

import asyncio
import pwd
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ganeti.base.daemons import DAEMONS

NAME_S_MAX: Final = 1.0  # for the name of a client; then its number stands for it
_THREADS: Final = 4  # of their own: those of the loop write jobs, which must not wait for names
_USERS_MAX: Final = 1024


def strangers(friends: Collection[str]) -> frozenset[int]:
    """Return the users of all other daemons; an installation may have one user for several.

    To be called in a thread.
    """
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


def user_name(uid: int) -> str:
    """Return the name of a Unix user; its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class UserNames:
    """Names of users, each looked up once."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "user names")
        self._lookups: dict[int, tuple[asyncio.Future[str], float]] = {}

    async def name_of(self, uid: int) -> str:
        """Return the name of a user; its number while the name takes too long to find."""
        loop = asyncio.get_running_loop()
        if uid not in self._lookups:
            if len(self._lookups) >= _USERS_MAX:
                del self._lookups[next(iter(self._lookups))]
            found = loop.run_in_executor(self._threads, user_name, uid)
            self._lookups[uid] = found, loop.time() + NAME_S_MAX
        lookup, deadline = self._lookups[uid]
        if not lookup.done():
            await asyncio.wait([lookup], timeout=max(0.0, deadline - loop.time()))
        return lookup.result() if lookup.done() else str(uid)
