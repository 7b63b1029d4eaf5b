"""The handlers of the maintenance daemon's calls, declared in `ganeti.protocol.wconfd`.

The settings switch maintenance on, a round delay of 0 switches it off and takes the key out of
the configuration.  While it is off there is no state to read or to change.

Source: maintd.json, "wconfd_methods".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, wrong_state
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.config.index import MAINTENANCE_ID
from ganeti.config.overlay import Stored, split_fields
from ganeti.config.transaction import Transaction
from ganeti.config.views import View
from ganeti.objects.record import plain
from ganeti.protocol.maintenance.stored import (
    INCIDENTS_MAX,
    Incident,
    Maintenance,
    incident_of,
    switched_off,
)
from ganeti.protocol.wconfd import ClientId
from ganeti.wconfd.keeper import Keeper

_STAMPS: Final = ("ctime", "mtime", "serial_no")


class MaintenanceMethods:
    """Handlers of the maintenance daemon's calls."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def get_maintenance(self) -> Maintenance | None:
        return _found(self._keeper.durable)

    def _of_readers(self) -> Maintenance:
        return _found(self._keeper.durable) or Maintenance()

    def maintenance_round_delay(self) -> int:
        return self._of_readers().round_delay

    def maintenance_jobs(self) -> list[JobId]:
        return self._of_readers().jobs

    def maintenance_balancing(self) -> tuple[bool, float]:
        found = self._of_readers()
        return found.balance, found.balance_threshold

    def maintenance_evacuated(self) -> list[str]:
        return self._of_readers().evacuated

    def maintenance_incidents(self) -> list[Incident]:
        return self._of_readers().incidents

    async def _change(self, client: ClientId, change: Callable[[Transaction], object]) -> bool:
        await self._keeper.change(change, client)
        return True

    async def set_maintd_round_delay(self, client: ClientId, seconds: int) -> bool:
        if seconds:
            return await self._change(client, lambda change: _set(change, round_delay=seconds))
        return await self._change(client, _remove)

    async def set_maintd_balance(self, client: ClientId, balance: bool) -> bool:
        return await self._change(client, lambda change: _set(change, balance=balance))

    async def set_maintd_balance_threshold(self, client: ClientId, score: float) -> bool:
        return await self._change(client, lambda change: _set(change, balance_threshold=score))

    async def set_maintd_duties(
        self,
        client: ClientId,
        auto_repair: bool | None,
        use_load: bool | None,
        move_disks: bool | None,
    ) -> bool:
        given = {"auto_repair": auto_repair, "use_load": use_load, "move_disks": move_disks}
        fields = {name: value for name, value in given.items() if value is not None}
        return await self._change(client, lambda change: _set(change, **fields))

    async def clear_maintd_jobs(self, client: ClientId) -> bool:
        return await self._change(client, lambda change: _set_state(change, jobs=[]))

    async def append_maintd_jobs(self, client: ClientId, jobs: Sequence[JobId]) -> bool:
        def change(transaction: Transaction) -> None:
            _set_state(transaction, jobs=_merged(_state(transaction).jobs, jobs))

        return await self._change(client, change)

    async def add_maintd_evacuated(self, client: ClientId, names: Sequence[str]) -> bool:
        def change(transaction: Transaction) -> None:
            _set_state(transaction, evacuated=_merged(_state(transaction).evacuated, names))

        return await self._change(client, change)

    async def rm_maintd_evacuated(self, client: ClientId, name: str) -> bool:
        def change(transaction: Transaction) -> None:
            kept = [each for each in _state(transaction).evacuated if each != name]
            _set_state(transaction, evacuated=kept)

        return await self._change(client, change)

    async def update_maintd_incident(self, client: ClientId, incident: Incident) -> bool:
        return await self._change(client, lambda change: _put_incident(change, incident))

    async def rm_maintd_incident(self, client: ClientId, uuid: str) -> bool:
        def change(transaction: Transaction) -> None:
            incidents = _state(transaction).incidents
            gone = incident_of(incidents, uuid)
            _set_state(transaction, incidents=[each for each in incidents if each is not gone])

        return await self._change(client, change)


def _found(view: View) -> Maintenance | None:
    return view.record(MAINTENANCE_ID, Maintenance)


def _state(change: Transaction) -> Maintenance:
    """Return the state.

    Raises:
        OpPrereqError: maintenance is switched off.
    """
    found = _found(change)
    if found is None:
        raise switched_off()
    return found


def _merged(known: Sequence[Any], added: Sequence[Any]) -> list[Any]:
    """Return both without repetition, so that a call can be repeated."""
    return list(dict.fromkeys([*known, *added]))


def _remove(change: Transaction) -> None:
    if _found(change) is not None:
        change.put(MAINTENANCE_ID, None)


def _set_state(change: Transaction, **fields: object) -> None:
    """Change fields while maintenance is on."""
    _state(change)
    _set(change, **fields)


def _set(change: Transaction, **fields: object) -> None:
    """Change fields, and switch maintenance on if it is off; keys that we do not know stay."""
    before = _found(change)
    old = before or Maintenance(ctime=change.now)
    new = replace(old, **fields)
    if new == before:
        return
    new = replace(new, mtime=change.now, serial_no=old.serial_no + 1)
    stored = change.stored(MAINTENANCE_ID)
    raw = {} if stored is None else split_fields(stored.raw)
    raw |= {name: Raw(dumps(plain(value))) for name, value in new.to_wire().items()}
    change.put(MAINTENANCE_ID, Stored(dumps(raw)))


def _put_incident(change: Transaction, incident: Incident) -> None:
    """Add an incident, or replace the one of that UUID.

    Raises:
        OpPrereqError: it was changed since it was read, or there are too many.
    """
    incidents = _state(change).incidents
    old = next((each for each in incidents if each.uuid == incident.uuid), None)
    is_next = old is not None and old.serial_no == incident.serial_no + 1
    if old is not None and is_next and _content(old) == _content(incident):
        return  # a repetition
    if incident.serial_no != (old.serial_no if old else 0):
        raise wrong_state(f"incident {incident.uuid} was changed or removed since it was read")
    if old is None and len(incidents) >= INCIDENTS_MAX:
        raise OpPrereqError(f"there are {INCIDENTS_MAX} incidents already", ErrorCode.NORES)
    ctime = old.ctime if old else change.now
    new = replace(incident, ctime=ctime, mtime=change.now, serial_no=incident.serial_no + 1)
    others = [new if each is old else each for each in incidents]
    _set_state(change, incidents=others if old else [*incidents, new])


def _content(incident: Incident) -> bytes:
    """Return all that a client sets, as text: in JSON 1 and 1.0 are two objects."""
    return dumps({key: value for key, value in incident.to_wire().items() if key not in _STAMPS})
