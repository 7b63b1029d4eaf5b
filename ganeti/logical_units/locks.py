"""Take the locks of a job, waiting as long as it must, and name the holders in the way.

A wait is one call to WConfD, answered when the locks are granted.  It is cut into slices only to
raise the priority and to tell the operator which locks the job waits for; once the priority is the
highest it blocks until the locks are there.  Between and during slices the job can be canceled, and
can be asked to step back into the queue.

Source: constants.json, "timeouts" (LOCK_ATTEMPTS_*); design-2.1, "Retry acquiring locks";
daemons-2.12, "Optimistic strategy".
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from ganeti.locking.names import BGL, LOCKSET, group_of, in_order
from ganeti.logical_units.context import JobContext
from ganeti.protocol.wconfd import GONE, GRANTED, ClientId, LockMode, LockRequest, WConfCalls

SLICE_S_MIN: Final = 5.0  # LOCK_ATTEMPTS_MINWAIT
SLICE_S_MAX: Final = 75.0  # LOCK_ATTEMPTS_MAXWAIT
SLICE_GROWTH: Final = 1.5
BLOCKING_S: Final = 86400.0  # WConfD's limit for one call; the request is made again after it
PRIORITY_HIGHEST: Final = -20


def slice_s(attempts: int) -> float:
    """Return how long the next attempt may wait: longer and longer, up to a limit."""
    return float(min(SLICE_S_MAX, SLICE_S_MIN * SLICE_GROWTH ** min(attempts, 10)))


def raised_priority(priority: int, attempts: int) -> int:
    """Return the priority for the next attempt: one step more urgent for each that failed."""
    return min(priority, max(PRIORITY_HIGHEST, priority - attempts))


class PriorityChangedError(Exception):
    """The priority changed after it was read for a request and before WConfD had that request.

    Raised by a signal handler inside `JobContext.interruptible`: the request has to be made again.
    """


LockOwners = Sequence[tuple[str, Sequence[tuple[object, str]]]]
"""What ``listAllLocksOwners`` answers."""


class StepBackError(Exception):
    """The job is to go back into the queue instead of waiting for locks.

    Raised by a signal handler inside `JobContext.interruptible`, before the work has begun.
    """


def take_locks(context: JobContext, need: LockNeed) -> None:
    """Take all these locks, or none, however long that takes.

    Raises:
        JobCanceled: the job was canceled meanwhile.
    """
    request = to_request(need)
    started = context.monotonic()
    for attempts in itertools.count(context.attempts_before):
        context.check_canceled()
        outcome, blockers = _attempt(context, request, attempts)
        if outcome == GRANTED:
            return
        if outcome == GONE:
            # Ask again: this may be about to make an object of that name.  Otherwise the needed
            # locks, computed again once held, name the object that is gone.
            continue
        waited_s = context.monotonic() - started
        context.info(f"{_in_the_way(context, need, blockers)}; waiting for {waited_s:.0f} s")
    raise AssertionError("the attempts never end")


def _attempt(
    context: JobContext, request: LockRequest, attempts: int
) -> tuple[str, Sequence[ClientId]]:
    """Wait for the locks once, at the priority that the job has when WConfD hears of it.

    Once that cannot be raised any more, the request keeps its place in the queue.
    """
    while True:
        with contextlib.suppress(PriorityChangedError), context.interruptible():
            priority = raised_priority(context.priority(), attempts)
            is_last = attempts > context.attempts_before and priority <= PRIORITY_HIGHEST
            length_s = BLOCKING_S if is_last else slice_s(attempts)
            return context.config.wait_locks(priority, request, length_s)


def _in_the_way(context: JobContext, need: LockNeed, blockers: Sequence[ClientId]) -> str:
    owners = context.config.list_all_locks_owners()
    found = conflicts(need, owners)
    full = _shared_by_all_who_may(need, owners, blockers) if not found else None
    if full:
        return full
    if blockers and not found and set(blockers) <= _bgl_holders(owners):
        return (
            f"{len(blockers)} jobs run, as many as may at once"
            " (gnt-cluster modify --max-running-jobs)"
        )
    return describe_conflicts(found, blockers)


def _shared_by_all_who_may(
    need: LockNeed, owners: LockOwners, blockers: Sequence[ClientId]
) -> str | None:
    """Say which lock of what a node has is shared by as many as may; None if none is."""
    for name, held in owners:
        holders = {ClientId.from_wire(holder) for holder, _ in held}
        is_resource = name.startswith(f"{LockLevel.NODE_RES}/") and name in need
        if is_resource and blockers and holders >= set(blockers):
            return (
                f"lock {name} is shared by {', '.join(sorted(map(str, holders)))}, as many as may"
                " at once (gnt-cluster modify --max-disk-transfers)"
            )
    return None


def _bgl_holders(owners: LockOwners) -> set[ClientId]:
    return {
        ClientId.from_wire(holder) for name, held in owners if name == BGL for holder, _ in held
    }


def conflicts(need: LockNeed, owners: LockOwners) -> list[tuple[str, str, ClientId]]:
    """Return (lock, mode, holder) of each held lock that conflicts with a needed one."""
    found = []
    for name, holders in owners:
        for holder, mode in holders:
            if any(_conflict(name, mode, wanted, how) for wanted, how in need.items()):
                found.append((name, mode, ClientId.from_wire(holder)))
    return found


def _conflict(held: str, mode: str, wanted: str, how: LockMode) -> bool:
    related = held == wanted or held == group_of(wanted) or wanted == group_of(held)
    return related and (mode == LockMode.EXCLUSIVE or how is LockMode.EXCLUSIVE)


def describe_conflicts(
    found: Sequence[tuple[str, str, ClientId]], blockers: Sequence[ClientId]
) -> str:
    """Name the locks and their holders; only holders that are in the way are named."""
    in_the_way = set(blockers)
    parts = [
        f"lock {name} is held by {holder} ({mode})"
        for name, mode, holder in found
        if holder in in_the_way
    ]
    if parts:
        return ", ".join(parts)
    others = ", ".join(sorted(map(str, in_the_way))) or "an earlier request"
    return f"the locks are wanted by {others} as well"


# Which locks an opcode needs, as plain values.


class LockLevel(StrEnum):
    """The levels that logical units lock at, in the order in which locks are taken."""

    CLUSTER = "cluster"
    INSTANCE = "instance"
    NODEGROUP = "nodegroup"
    NODE = "node"
    NODE_RES = "node-res"
    NETWORK = "network"


LockNeed = dict[str, LockMode]


def lock_name(level: LockLevel, key: str) -> str:
    """Return the name of one lock."""
    return f"{level.value}/{key}"


def shared(level: LockLevel, keys: Iterable[str]) -> dict[str, LockMode]:
    """Need these locks of a level, shared."""
    return {lock_name(level, key): LockMode.SHARED for key in keys}


def exclusive(level: LockLevel, keys: Iterable[str]) -> dict[str, LockMode]:
    """Need these locks of a level, exclusively."""
    return {lock_name(level, key): LockMode.EXCLUSIVE for key in keys}


def all_shared(level: LockLevel) -> dict[str, LockMode]:
    """Need every lock of a level, shared."""
    return shared(level, [LOCKSET])


def all_exclusive(level: LockLevel) -> dict[str, LockMode]:
    """Need every lock of a level, exclusively."""
    return exclusive(level, [LOCKSET])


def release_resources(config: WConfCalls) -> None:
    """Give the resource locks of nodes back, once the disks are there and in step."""
    config.free_locks_level(LockLevel.NODE_RES.value)


def share_resources(config: WConfCalls) -> None:
    """Hold the resource locks of nodes shared from now on, while disks get into step."""
    config.down_grade_locks_level(LockLevel.NODE_RES.value)


def union(*needs: LockNeed) -> dict[str, LockMode]:
    """Join needs; where two name the same lock, the stronger mode wins."""
    joined: dict[str, LockMode] = {}
    for need in needs:
        for name, mode in need.items():
            if joined.get(name) is not LockMode.EXCLUSIVE:
                joined[name] = mode
    return joined


def covers(held: LockNeed, needed: LockNeed) -> bool:
    """Tell whether holding one set of locks is enough for a need."""
    return all(_is_held(held, name, mode) for name, mode in needed.items())


def _is_held(held: LockNeed, name: str, mode: LockMode) -> bool:
    modes = {held.get(name), held.get(group_of(name) or name)}
    return LockMode.EXCLUSIVE in modes or (mode is LockMode.SHARED and LockMode.SHARED in modes)


def to_request(need: LockNeed) -> list[tuple[str, str]]:
    """Write a need as the request that WConfD takes, in the order of the locks."""
    return [(name, need[name].value) for name in in_order(need)]
