"""The state of the maintenance daemon as it stands in the configuration, under ``maintenance``.

The key is there while maintenance is switched on, and only then: 3.0 refuses a configuration that
has it.  Names are those of the file; there is no room beside them.

Source: maintd.json, "config_data"; seed document "Ganeti Maintenance Daemon", "State" and
"/1/status".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, wrong_state
from ganeti.base.ids import JobId
from ganeti.base.json import JsonValue
from ganeti.objects.record import Record, plain

REASON_SOURCE: Final = "gnt:daemon:maintd"
READY_TAG: Final = "maintd:repairready:"
FAILED_TAG: Final = "maintd:repairfailed:"
CANCEL_TAG: Final = "maintd:repaircancel:"  # set by an operator
ROUND_DELAY_S: Final = 300
INCIDENTS_MAX: Final = 1000  # of 64 KiB each at most; only those that somebody acted on stay


class Action(StrEnum):
    """The action that a node needs, the most invasive last; the words go over the wire."""

    OK = "Ok"
    LIVE_REPAIR = "live-repair"
    EVACUATE = "evacuate"
    EVACUATE_FAILOVER = "evacuate-failover"

    @property
    def severity(self) -> int:
        """How invasive it is; 0 for nothing to do."""
        return list(Action).index(self)


class RepairStatus(StrEnum):
    """The progress on an event."""

    NOTED = "noted"
    PENDING = "pending"
    CANCELED = "canceled"
    FAILED = "failed"
    COMPLETED = "completed"


class _Stored(Record, frozen=True, kw_only=True):
    """A record whose fields have other names in the file."""

    def to_wire(self) -> dict[str, object]:
        """Return the JSON form."""
        fields = msgspec.structs.fields(self)
        return {field.encode_name: plain(getattr(self, field.name)) for field in fields}


class Incident(_Stored, frozen=True, kw_only=True, rename={"repair_status": "repair-status"}):
    """One event of a node.

    Attributes:
        original: the very object that the node reported.
        node: the name of the node.
        tag: on the node once the event has its end; the one for success until then.
    """

    original: Mapping[str, JsonValue]
    action: Action
    jobs: list[JobId] = []
    node: str
    repair_status: RepairStatus
    tag: str
    uuid: str
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int = 0


def switched_off() -> OpPrereqError:
    """Return the refusal of everything that needs maintenance to be on."""
    return wrong_state(
        "maintenance is switched off; 'gnt-cluster modify --maintenance-interval=300'"
        " switches it on"
    )


def canceled(incident: Incident) -> Incident:
    """Return an event on which nobody is to act any more.

    Raises:
        OpPrereqError: it has its end already; the text says what to do.
    """
    if incident.repair_status is RepairStatus.CANCELED:
        return incident
    if incident.repair_status not in (RepairStatus.NOTED, RepairStatus.PENDING):
        raise wrong_state(
            f"incident {incident.uuid} is {incident.repair_status} already; acknowledge it by"
            f" 'gnt-node remove-tags {incident.node} {incident.tag}'"
        )
    return replace(incident, repair_status=RepairStatus.CANCELED)


def incident_of(incidents: Iterable[Incident], uuid: str) -> Incident:
    """Return the incident of that UUID.

    Raises:
        OpPrereqError: there is none (unknown_entity).
    """
    for incident in incidents:
        if incident.uuid == uuid:
            return incident
    raise OpPrereqError(f"there is no incident {uuid!r}", ErrorCode.NOENT)


class Maintenance(
    _Stored,
    frozen=True,
    kw_only=True,
    rename={
        "round_delay": "roundDelay",
        "balance_threshold": "balanceThreshold",
        "auto_repair": "autoRepair",
        "use_load": "useLoad",
        "move_disks": "moveDisks",
    },
):
    """Everything that the maintenance daemon keeps.

    Attributes:
        round_delay: seconds.
        jobs: of the last round.
        evacuated: names of instances that were moved away from nodes with an event.
        auto_repair: whether instances are repaired as far as their tags allow.
        use_load: whether balancing takes the measured load into account.
        move_disks: whether balancing may copy disks to other nodes.
    """

    round_delay: int = ROUND_DELAY_S
    jobs: list[JobId] = []
    balance: bool = False
    balance_threshold: float = 0.1
    auto_repair: bool = False
    use_load: bool = False
    move_disks: bool = False
    evacuated: list[str] = []
    incidents: list[Incident] = []
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int = 0
