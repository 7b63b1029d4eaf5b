"""Puts a whole configuration in the place of the current one, as clients of Ganeti 3.0 do.

What arrives is compared object by object, so that only what differs is changed and encoded again.

Source: wconfd.json, "writeConfig".
"""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import ConfigurationError
from ganeti.base.json import dumps
from ganeti.config.index import CLUSTER_ID, GROUPS, ObjectId
from ganeti.config.transaction import Transaction
from ganeti.config.views import Base
from ganeti.objects.config_data import TABLES
from ganeti.objects.overlay import Stored, split_fields


def replace_config(
    change: Transaction, durable: Base, serial_no: int, wire: Mapping[str, object]
) -> None:
    """Make the configuration equal to the one given.

    Args:
        durable: the configuration below the change; nothing may be on its way to it.
        serial_no: the serial number of the current configuration.

    Raises:
        ConfigurationError: it is older than the current one, or not a configuration.
    """
    given = wire.get("serial_no")
    if not isinstance(given, int) or given < serial_no:
        raise ConfigurationError(
            f"the configuration was updated since it was read: its serial number is {serial_no},"
            f" not {given}"
        )
    _put(change, CLUSTER_ID, wire.get("cluster"))
    for table in TABLES:
        objects = wire.get(table)
        if not isinstance(objects, Mapping):
            raise ConfigurationError(f"the configuration has no {table!r}")
        for uuid in durable.tables[table]:
            if uuid not in objects:
                change.put((table, uuid), None)
        for uuid, fields in objects.items():
            if table == GROUPS and isinstance(fields, Mapping):
                fields = {**fields, "members": []}
            _put(change, (table, str(uuid)), fields)


def _put(change: Transaction, identity: ObjectId, fields: object) -> None:
    if not isinstance(fields, Mapping):
        raise ConfigurationError(f"{identity[0]} {identity[1]}: not an object")
    stored = change.stored(identity)
    if stored is None:
        change.put(identity, Stored(dumps(fields)))
        return
    gone = {name: None for name in split_fields(stored.raw) if name not in fields}
    laid_over = stored.with_changes({**fields, **gone})
    if laid_over.raw != stored.raw:
        change.put(identity, laid_over)
