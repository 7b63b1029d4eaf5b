"""The fields of locks.

Source: query_fields.json, "lock".
"""

from __future__ import annotations

from typing import Final

from ganeti.config.tables import name_key
from ganeti.objects.query_words import QueryResource
from ganeti.query.context import RunContext
from ganeti.query.fields import FieldSpec, Resource, Source, field_table
from ganeti.query.resources.common import other
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
    name=QueryResource.LOCK,
    fields=field_table(_FIELDS),
    items=lambda context: {lock.name: lock for lock in context.view.locks},
    name_field="name",
    sort_key=lambda lock, _context: name_key(lock.name),
    source=Source.LOCKS,
)
