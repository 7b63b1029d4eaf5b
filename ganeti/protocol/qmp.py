"""The QEMU Machine Protocol without I/O: bytes to messages and back, and QEMU's own schema.

Theory of operation.  QEMU speaks first, one greeting.  The client then sends ``qmp_capabilities``
and, once that is answered, one command at a time: each carries a number of ours and is answered by
one reply or failure with that number.  Events may come between at any moment.  Every message is
one JSON object on one line.  The connection ends in CLOSED when either side leaves.

Features are found in QEMU's schema (`Schema`), never by its version.

Source: QEMU documentation, "QEMU Machine Protocol Specification" and "Schema introspection".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps, loads
from ganeti.protocol.node_rpc_values import KeptSnapshot

MESSAGE_BYTES_MAX: Final = 16 << 20  # the schema, the longest answer there is, has about 300 kB


class SessionState(StrEnum):
    """Where a connection stands."""

    GREETING = "greeting"  # QEMU has not said anything yet
    NEGOTIATION = "negotiation"  # only qmp_capabilities is allowed
    NEGOTIATING = "negotiating"  # qmp_capabilities is under way
    READY = "ready"
    BUSY = "busy"  # one command is under way
    CLOSED = "closed"


_NEXT: Final[Mapping[SessionState, frozenset[SessionState]]] = {
    SessionState.GREETING: frozenset({SessionState.NEGOTIATION, SessionState.CLOSED}),
    SessionState.NEGOTIATION: frozenset({SessionState.NEGOTIATING, SessionState.CLOSED}),
    SessionState.NEGOTIATING: frozenset({SessionState.READY, SessionState.CLOSED}),
    SessionState.READY: frozenset({SessionState.BUSY, SessionState.CLOSED}),
    SessionState.BUSY: frozenset({SessionState.READY, SessionState.CLOSED}),
    SessionState.CLOSED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of QEMU."""

    version: str
    capabilities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a command."""

    value: object


@dataclass(frozen=True, slots=True)
class Failure:
    """A command was refused; ``kind`` is QEMU's error class."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened in the machine."""

    name: str
    data: Mapping[str, object]


Message = Greeting | Reply | Failure | Event


class Session:
    """One connection, seen by the client; the caller moves the bytes."""

    def __init__(self) -> None:
        self._state = SessionState.GREETING
        self._buffer = bytearray()
        self._number = 0

    @property
    def state(self) -> SessionState:
        """Where the connection stands."""
        return self._state

    def _enter(self, state: SessionState) -> None:
        if state not in _NEXT[self._state]:
            raise ProtocolError(f"QMP connection cannot go from {self._state} to {state}")
        self._state = state

    def command(self, name: str, arguments: Mapping[str, object] | None = None) -> bytes:
        """Encode a command; its answer must have come before the next one.

        Raises:
            ProtocolError: the connection is not in a state to take that command.
        """
        negotiates = name == "qmp_capabilities"
        self._enter(SessionState.NEGOTIATING if negotiates else SessionState.BUSY)
        self._number += 1
        message: dict[str, object] = {"execute": name, "id": self._number}
        if arguments:
            message["arguments"] = dict(arguments)
        return dumps(message) + b"\n"

    def receive(self, data: bytes) -> list[Message]:
        """Take bytes from QEMU and return the messages that are complete, in order.

        Raises:
            ProtocolError: QEMU broke the rules; the connection is of no more use.
        """
        self._buffer += data
        if b"\n" not in data and len(self._buffer) > MESSAGE_BYTES_MAX:
            self.close()
            raise ProtocolError(f"QMP message longer than {MESSAGE_BYTES_MAX} bytes")
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        return [self._message(line) for line in lines if line.strip()]

    def _message(self, line: bytes) -> Message:
        match loads(line):
            case {"QMP": {"version": {"qemu": {**version}}, "capabilities": [*capabilities]}}:
                self._enter(SessionState.NEGOTIATION)
                numbers = (version.get(part, 0) for part in ("major", "minor", "micro"))
                return Greeting(".".join(map(str, numbers)), tuple(map(str, capabilities)))
            case {"event": str(name), **rest}:
                content = rest.get("data")
                return Event(name, content if isinstance(content, dict) else {})
            case {"return": value, "id": number} if number == self._number:
                self._enter(SessionState.READY)
                return Reply(value)
            case {"error": {"class": str(kind), "desc": str(text)}, **rest} if (
                rest.get("id", self._number) == self._number
            ):
                self._enter(SessionState.READY)
                return Failure(kind, text)
        raise ProtocolError(f"unexpected QMP message: {line[:200]!r}")

    def close(self) -> None:
        """Note that the connection is gone."""
        self._state = SessionState.CLOSED


class Schema:
    """The commands and options of this QEMU, from its answer to ``query-qmp-schema``."""

    def __init__(self, entities: object) -> None:
        if not isinstance(entities, list):
            raise ProtocolError("the QMP schema is not a list")
        self._entities: dict[str, Mapping[str, object]] = {
            str(entity["name"]): entity
            for entity in entities
            if isinstance(entity, dict) and "name" in entity
        }

    def has_command(self, name: str) -> bool:
        """Tell whether there is such a command."""
        return self._entities.get(name, {}).get("meta-type") == "command"

    def has_argument(self, command: str, *path: str) -> bool:
        """Tell whether a command takes an argument; ``path`` leads into nested objects."""
        if not self.has_command(command):
            return False
        kind = self._entities[command].get("arg-type")
        for name in path:
            found = self._member_types(str(kind)).get(name)
            if found is None:
                return False
            kind = found
        return True

    def _element(self, kind: str) -> str:
        entity = self._entities.get(kind, {})
        return str(entity["element-type"]) if entity.get("meta-type") == "array" else kind

    def _member_types(self, kind: str) -> dict[str, str]:
        """Return {member: type} of an object type, the members of its variants included."""
        entity = self._entities.get(self._element(kind), {})
        members = {str(m["name"]): str(m["type"]) for m in _records(entity.get("members"))}
        for variant in _records(entity.get("variants")):
            members.update(self._member_types(str(variant["type"])))
        return members


def _records(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def kept_snapshots(image: Mapping[str, object]) -> list[KeptSnapshot]:
    """Return the snapshots within an image (ImageInfo, also of ``qemu-img``), the oldest first."""
    rows = image.get("snapshots", [])
    found = [
        KeptSnapshot(str(row["name"]), row["date-sec"] + row["date-nsec"] / 1e9)
        for row in (rows if isinstance(rows, list) else [])
    ]
    return sorted(found, key=lambda each: each.ctime)
