"""The locks as a query shows them, made of what WConfD tells.

Source: wconfd.json, "listLocksWaitingStatus"; query_fields.json, "lock".
"""

from __future__ import annotations

from typing import Any

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.query.view import LockState


def lock_states(answer: object) -> list[LockState]:
    """Turn the answer to ``listLocksWaitingStatus`` into one state per lock.

    Raises:
        ProtocolError: it has another shape.
    """
    try:
        owners, waiting = msgspec.convert(answer, tuple[list[Any], list[Any]])
        held = {name: [(_name(who), str(mode)) for who, mode in some] for name, some in owners}
        pending: dict[str, dict[str, list[str]]] = {}
        priorities: dict[str, list[tuple[str, int]]] = {}
        for priority, who, request in sorted(waiting, key=lambda each: each[0]):
            for name, mode in request:
                if mode != "release":
                    pending.setdefault(name, {}).setdefault(mode, []).append(_name(who))
                    priorities.setdefault(name, []).append((_name(who), int(priority)))
    except (TypeError, ValueError, msgspec.ValidationError) as err:
        raise ProtocolError(f"unexpected answer of WConfD about locks: {err}") from err
    return [
        LockState(
            name=name,
            mode=held[name][0][1] if held.get(name) else None,
            owners=tuple(sorted(who for who, _mode in held.get(name, []))),
            pending=tuple(
                (mode, tuple(waiters)) for mode, waiters in sorted(pending.get(name, {}).items())
            ),
            priorities=tuple(priorities.get(name, ())),
        )
        for name in sorted(held.keys() | pending.keys())
    ]


def _name(client: object) -> str:
    match client:
        case [int(job_id), *_]:
            return f"job{job_id}"
        case [str(identifier), *_]:
            return identifier
    raise ValueError(f"{client!r} is not a client")
