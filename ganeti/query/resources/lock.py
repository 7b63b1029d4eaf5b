"""The fields of locks.

Source: query_fields.json, "lock".
"""

from __future__ import annotations

from typing import Final

from ganeti.objects.query_words import QueryResource
from ganeti.query.context import RunContext
from ganeti.query.fields import FieldSpec, Resource, Source, field_table, other
from ganeti.query.view import LockState


def _pending(lock: LockState, _context: RunContext) -> object:
    return [[mode, list(waiters)] for mode, waiters in lock.pending]


def _priorities(lock: LockState, _context: RunContext) -> object:
    return [[waiter, priority] for waiter, priority in lock.priorities]


_FIELDS: Final[list[FieldSpec[LockState]]] = [
    other("name", "Name", "Name of the lock", "name"),
    other("mode", "Mode", "How it is held: exclusive, shared, or null", lambda lock, _: lock.mode),
    other("owner", "Owner", "Who holds it, or null", lambda lock, _: list(lock.owners) or None),
    other("pending", "Pending", "Who waits for it, by mode", _pending),
    # ours, beside those of 3.0
    other("priorities", "Priorities", "Priority of each who waits, most urgent first", _priorities),
]

RESOURCE: Final = Resource(
    QueryResource.LOCK,
    field_table(_FIELDS),
    lambda context: {lock.name: lock for lock in context.view.locks},
    source=Source.LOCKS,
)
