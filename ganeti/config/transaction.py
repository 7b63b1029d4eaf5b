"""One change of the configuration: computed on its own layer, checked, then accepted or dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ConfigurationError, ErrorCode, OpPrereqError
from ganeti.base.json import dumps
from ganeti.config.checks import problems_of
from ganeti.config.index import FILTERS, KINDS, WHAT, By, ObjectId
from ganeti.config.overlay import Stored, split_fields
from ganeti.config.views import Layer, View
from ganeti.objects.record import plain

SerialAndTime = tuple[int, float]

OWN_FIELDS: Final = frozenset({"uuid", "ctime", "mtime", "serial_no"})  # set by WConfD alone


def uuid_of_new(table: str, wire: Mapping[str, object]) -> str:
    """Return the UUID of an object to be created.

    Raises:
        OpPrereqError: it has none.
    """
    uuid = wire.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        raise OpPrereqError(f"the new {WHAT[table]} has no UUID")
    return uuid


class Transaction(Layer):
    """A change in the making; `now` is the time it gets."""

    def __init__(self, below: View, now: float) -> None:
        super().__init__(below)
        self.now = now

    def serial_of(self, identity: ObjectId) -> SerialAndTime:
        """Return serial number and modification time; zeros for objects that have neither."""
        record = self.record(identity, KINDS[identity[0]])
        return (getattr(record, "serial_no", 0), getattr(record, "mtime", 0.0))

    def create(self, identity: ObjectId, wire: Mapping[str, object]) -> SerialAndTime:
        """Add an object.

        One that is there already with the same content is left alone: the request is a repetition.

        Raises:
            OpPrereqError: the UUID is taken by something else (already_exists).
        """
        table, uuid = identity
        existing = self.stored(identity)
        if existing is not None:
            if _same_content(existing, wire):
                return self.serial_of(identity)
            raise OpPrereqError(f"{WHAT[table]} {uuid} exists already", ErrorCode.EXISTS)
        fields = {key: value for key, value in wire.items() if value is not None}
        fields["uuid"] = uuid
        if table != FILTERS:
            fields["serial_no"] = 1
            fields["ctime"] = fields["mtime"] = self.now
        self.put(identity, Stored(dumps(plain(fields))))
        return self.serial_of(identity)

    def modify(self, identity: ObjectId, changes: Mapping[str, object]) -> SerialAndTime:
        """Replace fields of an object; its serial number and time rise if anything changes.

        Raises:
            OpPrereqError: no such object, or a field that only WConfD sets.
        """
        table, uuid = identity
        stored = self.stored(identity)
        if stored is None:
            raise OpPrereqError(f"{WHAT[table]} {uuid!r} not found", ErrorCode.NOENT)
        wrong = OWN_FIELDS.intersection(changes)
        if wrong:
            raise OpPrereqError(
                f"{', '.join(sorted(wrong))} of {WHAT[table]} {self.name_of(identity)} cannot be"
                " changed by a client"
            )
        changed = stored.with_changes(changes, KINDS[table])
        if changed.raw != stored.raw and split_fields(changed.raw) != split_fields(stored.raw):
            self.put(identity, self._risen(identity, changed))
        return self.serial_of(identity)

    def touch(self, identity: ObjectId) -> None:
        """Raise serial number and time of an object that did not change itself."""
        stored = self.stored(identity)
        assert stored is not None
        self.put(identity, self._risen(identity, stored))

    def _risen(self, identity: ObjectId, stored: Stored) -> Stored:
        if identity[0] == FILTERS:
            return stored
        serial = self.serial_of(identity)[0] + 1
        return stored.with_changes({"serial_no": serial, "mtime": self.now})

    def delete(self, identity: ObjectId) -> SerialAndTime:
        """Remove an object; returns what its serial number and time would have become.

        Raises:
            OpPrereqError: no such object (unknown_entity).
        """
        if self.stored(identity) is None:
            raise OpPrereqError(f"{WHAT[identity[0]]} {identity[1]!r} not found", ErrorCode.NOENT)
        serial = self.serial_of(identity)[0]
        self.put(identity, None)
        return (serial + 1, self.now)

    def check(self) -> None:
        """Refuse the change if it brings in a problem that was not there before.

        Raises:
            ConfigurationError: names the objects and what is wrong with them.
        """
        concerned = set(self.objects)
        for identity, stored in self.objects.items():
            if stored is None:
                concerned.update(self.find(By.REFERENCE, identity[1]))
        found: list[str] = []
        for identity in sorted(concerned):
            problems = problems_of(self, identity)
            if problems:
                before = problems_of(self.below, identity)
                found += [problem for problem in problems if problem not in before]
        if found:
            raise ConfigurationError("; ".join(found))


def _same_content(stored: Stored, wire: Mapping[str, object]) -> bool:
    """Tell whether an object is what a client wants to create, whatever WConfD added to it."""
    given = {
        key: value for key, value in wire.items() if key not in OWN_FIELDS and value is not None
    }
    untouched = stored.with_changes(given)
    have = set(split_fields(stored.raw)) - OWN_FIELDS
    return untouched.raw == stored.with_changes({}).raw and have <= set(given)
