"""What high availability means for the master's daemons, and for whoever wants to be the master.

Where it is off, as it is by default, nothing of it is imported, and only the name of the file with
its settings is looked for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import wrong_state
from ganeti.base.paths import Paths
from ganeti.copies.node import Wanted
from ganeti.copies.quorum import Tally
from ganeti.jobs import votes
from ganeti.system import clock

if TYPE_CHECKING:
    from ganeti.store.availability import State

logger = logging.getLogger(__name__)

DRBD_HELPER: Final = "drbd-fence-peer"  # runs at the events of DRBD, where it is on

LOOK_S: Final = 0.5  # between two looks whether the master goes on alone
_FRESH_S: Final = 5.0


def _read_state(paths: Paths) -> State | None:
    """Return what the agent of this node wrote last, where high availability is on."""
    from ganeti.store import availability  # most clusters do without it

    return availability.read_state(paths)


def is_on(paths: Paths) -> bool:
    """Tell whether high availability is on."""
    return os.path.exists(paths.high_availability)


def check_off(paths: Paths) -> None:
    """Refuse a step that agents would take for a loss, or that would leave them behind.

    Raises:
        OpPrereqError: high availability is on, or was not switched off to its end.
    """
    if is_on(paths) or os.path.exists(paths.ha_member):
        raise wrong_state("high availability is on; switch it off first: gnt-cluster ha-disable")


def is_held(paths: Paths) -> bool:
    """Tell whether this node holds the lease of the master; so it does where there is none."""
    if not is_on(paths):
        return True
    state = _read_state(paths)
    return state is not None and state.is_master(clock.monotonic())


def covers(paths: Paths, node: str) -> bool:
    """Tell whether high availability knows what starts on a node now; so it does where it is off.

    A node that has booted while its agent has not may still be proved dead by its boot before, and
    what was started there would start elsewhere, too.
    """
    if not is_on(paths):
        return True
    state = _read_state(paths)
    return state is None or node not in state.absent


def needs_both(paths: Paths, others: Collection[str]) -> bool:
    """Tell whether there are two candidates that both count, until the agent says otherwise."""
    return len(others) == 1 and is_on(paths)


def tally(paths: Paths, own_name: str, others: Collection[str], reached: Collection[str]) -> Tally:
    """Return how many candidates have something, and how many have to.

    Args:
        others: names of the candidates besides the master, which has it.
        reached: names of those of them that have it as well.
    """
    if not needs_both(paths, others):
        return Tally(others, reached)
    from ganeti.availability.mastership import copies_wanted  # most clusters do without it

    state = _read_state(paths)
    alone = "" if state is None else state.alone
    return Tally(others, reached, copies_wanted({own_name, *others}, alone, own_name))


def answers_needed(paths: Paths, own_name: str, candidates: Collection[str]) -> int:
    """Return how many candidates, this one included, have to answer one that takes over."""
    if not is_on(paths):
        return votes.answers_needed(candidates)
    from ganeti.availability.mastership import answers_wanted  # most clusters do without it

    state, now_s = _read_state(paths), clock.monotonic()
    if state is None or state.etcd or state.time < now_s - _FRESH_S:
        return votes.answers_needed(candidates)
    holds_key = state.is_master(now_s)
    return answers_wanted(candidates, state.alone, own_name, holds_key=holds_key)


class CopiesReporter:
    """Tells the agent of this node again and again which candidates lack something.

    Args:
        daemon: the one that copies.
        wanted: returns what the other candidates should have and have not.
        lacking: returns those that still lack some of that.
    """

    def __init__(
        self,
        paths: Paths,
        daemon: str,
        wanted: Callable[[], Wanted],
        lacking: Callable[[Wanted], Collection[str]],
    ) -> None:
        self._paths, self._daemon = paths, daemon
        self._wanted, self._lacking = wanted, lacking
        self._before: tuple[float, Wanted] | None = None

    def report(self) -> None:
        """Tell about what was wanted the last time; remember what is wanted now."""
        if not is_on(self._paths):
            return
        from ganeti.availability.mastership import Report  # most clusters do without it
        from ganeti.store import availability

        before, state = self._before, availability.read_state(self._paths)
        # What is acknowledged from now on, is so by the rule of this state or a later one.
        self._before = None if state is None else (state.time, self._wanted())
        if before is None:
            return
        seen_s, wanted = before
        try:
            found = Report(seen_s, sorted(self._lacking(wanted)))
            availability.write_report(self._paths, self._daemon, found)
        except OSError as err:
            logger.warning("The agent does not hear of the copies: %s; trying again", err)
