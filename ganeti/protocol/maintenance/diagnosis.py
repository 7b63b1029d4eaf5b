"""The report of a node's diagnose command: its form, its signature, and who reads it.

The command prints one JSON object.  MonD signs it as packets of RConfD are signed; the salt is the
time and the name of the node, so that neither an old report nor that of another node passes for a
new one of this node.  A reader (`read_report`) gets either an object that this node signed within
the last minutes, or the reason why the health of the node is not known: nothing in between, and
never `Action.OK` for want of a report.

Source: seed document "Ganeti Maintenance Daemon", "Protocol" and "Result forging"; maintd.json,
"data_collectors"; confd.json, "packet".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import check_nesting, dumps, loads, loads_as
from ganeti.base.text import is_plugin_name
from ganeti.protocol.confd import Packet, check_time, sign
from ganeti.protocol.maintenance.stored import Action

COLLECTOR: Final = "diagnose"
CATEGORY: Final = "node"
OUTPUT_BYTES_MAX: Final = 64 << 10  # it is passed on whole, to the configuration in the end
OBJECT_NESTING_MAX: Final = 50  # half of a request's (REQUEST_NESTING_MAX), in which it is noted
# A message is JSON text inside JSON text, in which a byte may take six.
REPORT_BYTES_MAX: Final = 6 * OUTPUT_BYTES_MAX + 4096
_SHOWN_CHARS: Final = 200


ALL_WELL: Final[Mapping[str, object]] = {"status": Action.OK}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A report of a node that counts.

    Attributes:
        original: the very object that the command printed.
        command: the command for a live repair; None if none is named, or for other actions.
        time_s: when the node signed it, in seconds since the epoch by its clock.
    """

    original: Mapping[str, object]
    action: Action
    command: str | None
    time_s: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The health of a node is not known; ``why`` is for log and status."""

    why: str


def parse(output: bytes | str) -> dict[str, object]:
    """Return the object that a diagnose command printed.

    Raises:
        GenericError: it breaks the rules of the protocol; the text says which.
    """
    try:
        check_nesting(output, OBJECT_NESTING_MAX)
        found = loads(output)
        dumps(found)  # it must be possible to pass it on
    except (ProtocolError, OverflowError) as err:
        start = output[:_SHOWN_CHARS]
        shown = start.decode("utf-8", "replace") if isinstance(start, bytes) else start
        reason = err.message if isinstance(err, ProtocolError) else str(err)
        raise GenericError(f"prints no JSON: {reason}: {shown!r}") from err
    if not isinstance(found, dict):
        raise GenericError(f"prints {str(found)[:_SHOWN_CHARS]!r}, which is no JSON object")
    status, command = found.get("status"), found.get("command")
    if status not in tuple(Action):
        known = ", ".join(Action)
        raise GenericError(f"gives the status {status!r:.{_SHOWN_CHARS}}; known are: {known}")
    if status != Action.LIVE_REPAIR or command is None:
        return found  # a command beside another status means nothing
    if not isinstance(command, str) or not is_plugin_name(command):
        raise GenericError(f"asks for the command {command!r:.{_SHOWN_CHARS}}, which is no name")
    return found


def signed(found: Mapping[str, object], key: bytes, node_name: str, now_s: float) -> dict[str, str]:
    """Return the data of the report: an object signed by a node; good for 300 s."""
    message, salt = dumps(found).decode(), f"{int(now_s)}:{node_name}"
    return {"msg": message, "salt": salt, "hmac": sign(key, salt, message)}


class _Report(msgspec.Struct, frozen=True):
    """The envelope; nothing in it is signed but the data."""

    name: str
    data: msgspec.Raw


class _Failure(msgspec.Struct, frozen=True):
    message: str = ""


class _Failed(msgspec.Struct, frozen=True):
    status: _Failure


def read_report(body: bytes, key: bytes, node_name: str, now_s: float) -> Diagnosis | Unknown:
    """Read MonD's answer about the health of a node.

    Only an object is believed that this very node signed with the cluster's key within 300 s.
    """
    if len(body) > REPORT_BYTES_MAX:
        return Unknown(f"the report has more than {REPORT_BYTES_MAX} bytes")
    try:
        report = loads_as(_Report, body)
    except ProtocolError as err:
        return Unknown(f"the report cannot be read: {err.message}"[:_SHOWN_CHARS])
    if report.name != COLLECTOR:
        return Unknown(f"the report is of the collector {report.name!r:.40}")
    try:
        packet = loads_as(Packet, bytes(report.data))
    except ProtocolError:
        return Unknown(_why_unsigned(bytes(report.data)))
    try:
        return _opened(packet, key, node_name, now_s)
    except GenericError as err:
        return Unknown(f"the report is not believed: {err.message}")


def _opened(packet: Packet, key: bytes, node_name: str, now_s: float) -> Diagnosis:
    """Return what is in a signed report.

    Raises:
        GenericError: it was not signed by this node just now, or breaks the rules.
    """
    try:
        right = sign(key, packet.salt, packet.msg)
        is_right = compare_digest(right, packet.hmac)
    except (UnicodeError, TypeError) as err:
        raise GenericError("it is not signed with the key of this cluster") from err
    if not is_right:
        raise GenericError("it is not signed with the key of this cluster")
    time, _, signer = packet.salt.partition(":")
    if signer != node_name:
        raise GenericError(f"it is of node {signer!r:.{_SHOWN_CHARS}}, not of {node_name}")
    check_time(time, int(now_s))
    found = parse(packet.msg)
    action = Action(str(found["status"]))
    command = found.get("command") if action is Action.LIVE_REPAIR else None
    return Diagnosis(found, action, None if command is None else str(command), int(time))


def _why_unsigned(data: bytes) -> str:
    """Return the reason that a collector that failed gives, or say that there is none."""
    try:
        return f"the node says: {loads_as(_Failed, data).status.message}"[: 2 * _SHOWN_CHARS]
    except ProtocolError:
        return "the report is not signed"
