"""The lock state as it stands in ``locks.data``.

Encoding joins the pieces cached per owner and per waiter, so it costs the encoding of the owners
and waiters that changed since the last time, plus the joining.

Source: wconfd.json, "files".
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ConfigurationError, GenericError
from ganeti.base.json import dumps, loads
from ganeti.locking.allocation import LockAllocation
from ganeti.locking.names import parse_request
from ganeti.locking.waiting import Waiter
from ganeti.protocol.wconfd import ClientId, LockMode

EMPTY: Final = b"[[],[]]"


def encode_locks(allocation: LockAllocation) -> bytes:
    """Return the content of ``locks.data``."""
    owners = b",".join([_encode_owner(allocation, owner) for owner in allocation.owners()])
    waiters = b",".join([_encode_waiter(waiter) for waiter in allocation.pending()])
    return b"[[%b],[%b]]" % (owners, waiters)


def _encode_owner(allocation: LockAllocation, owner: ClientId) -> bytes:
    data = allocation.encoded(owner)
    if data is None:
        held = allocation.held(owner)
        data = dumps([owner.to_wire(), list(held.items())])
        allocation.set_encoded(owner, data)
    return data


def _encode_waiter(waiter: Waiter) -> bytes:
    if waiter.encoded is None:
        waiter.encoded = dumps([waiter.priority, waiter.owner.to_wire(), waiter.request])
    return waiter.encoded


def waiter_to_wire(waiter: Waiter) -> list[object]:
    """Return a pending request as ``[priority, client, request]``."""
    return [waiter.priority, waiter.owner.to_wire(), [list(item) for item in waiter.request]]


def decode_locks(data: bytes) -> LockAllocation:
    """Return the lock state that ``locks.data`` describes.

    Raises:
        ProtocolError: not JSON; the text names the byte.
        ConfigurationError: not of the right shape, or two owners hold conflicting locks.
    """
    match loads(data):
        case [[*owners], [*waiters]]:
            pass
        case _:
            raise ConfigurationError("locks.data must be [[owners], [pending requests]]")
    allocation = LockAllocation()
    try:
        for entry in owners:
            _load_owner(allocation, entry)
        for entry in waiters:
            _load_waiter(allocation, entry)
    except ConfigurationError:
        raise
    except GenericError as err:
        raise ConfigurationError(f"locks.data: {err.message}") from err
    return allocation


def _load_owner(allocation: LockAllocation, entry: object) -> None:
    match entry:
        case [client, [*locks]]:
            owner = ClientId.from_wire(client)
        case _:
            raise ConfigurationError(f"locks.data: not an owner with locks: {entry!r:.200}")
    for item in locks:
        match item:
            case [str(lock), "shared" | "exclusive" as mode]:
                allocation.load_held(owner, lock, LockMode(mode))
            case _:
                raise ConfigurationError(f"locks.data: not a lock with mode: {item!r:.200}")


def _load_waiter(allocation: LockAllocation, entry: object) -> None:
    match entry:
        case [int(priority), client, [*_] as request]:
            owner = ClientId.from_wire(client)
            allocation.load_pending(owner, priority, parse_request(request))
        case _:
            raise ConfigurationError(f"locks.data: not a pending request: {entry!r:.200}")
