"""The fields of locks.

Source: query_fields.json, "lock".
"""

from __future__ import annotations

from typing import Final

from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.query.context import name_key
from ganeti.query.fields import FieldSpec, Resource, Source, field_table
from ganeti.query.view import LockState

_K = FieldKind

_FIELDS: Final[list[FieldSpec[LockState]]] = [
    FieldSpec("name", "Name", _K.OTHER, "Name of the lock", lambda lock, _context: lock.name),
    FieldSpec(
        "mode",
        "Mode",
        _K.OTHER,
        "How it is held: exclusive, shared, or null",
        lambda lock, _context: lock.mode,
    ),
    FieldSpec(
        "owner",
        "Owner",
        _K.OTHER,
        "Who holds it, or null",
        lambda lock, _context: list(lock.owners) or None,
    ),
    FieldSpec(
        "pending",
        "Pending",
        _K.OTHER,
        "Who waits for it, by mode",
        lambda lock, _context: [[mode, list(waiters)] for mode, waiters in lock.pending],
    ),
    # ours, beside those of 3.0
    FieldSpec(
        "priorities",
        "Priorities",
        _K.OTHER,
        "Priority of each who waits, most urgent first",
        lambda lock, _context: [[waiter, priority] for waiter, priority in lock.priorities],
    ),
]

RESOURCE: Final = Resource(
    name=QueryResource.LOCK,
    fields=field_table(_FIELDS),
    items=lambda context: {lock.name: lock for lock in context.view.locks},
    name_field="name",
    sort_key=lambda lock, _context: name_key(lock.name),
    source=Source.LOCKS,
)
