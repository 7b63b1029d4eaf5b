"""The instances that a run of ``burnin`` has made: it removes these and no others.

Names do not tell: somebody else may make an instance of a name that was free at the start.  So each
one is known by its UUID, asked for when the job that makes it has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto

from ganeti.base.errors import OpPrereqError, decode_error
from ganeti.base.ids import JobId
from ganeti.cli.command import Context
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.opcodes.opcode import OpCode


class Outcome(Enum):
    """Whether an opcode has made its instance."""

    MADE = auto()
    UNSURE = auto()  # a part of it, perhaps
    REFUSED = auto()


class Made:
    """The instances that jobs have made, by their UUIDs.

    Attributes:
        names: of all instances that jobs were to make, made or not.
    """

    def __init__(self, context: Context) -> None:
        self.names: set[str] = set()
        self._context = context
        self._uuids: set[str] = set()
        self._unsettled: dict[JobId, tuple[Sequence[OpCode], Collection[str]]] = {}

    def begin(self, job_id: JobId, opcodes: Sequence[OpCode], there: Collection[str]) -> None:
        """Note a job that makes instances.

        Args:
            there: the UUIDs of all instances just before it was submitted.
        """
        self._unsettled[job_id] = opcodes, there

    def settle(self, *job_ids: JobId) -> None:
        """Note the instances that jobs have made, which have ended; all jobs if none are given."""
        for job_id in job_ids or [*self._unsettled]:
            if job_id not in self._unsettled:
                continue
            opcodes, there = self._unsettled[job_id]
            [row] = self._context.client.query_jobs([job_id], ["opstatus", "opresult"])
            found = uuids_by_name(self._context)
            for name, outcome in _outcomes(opcodes, *row):
                uuid = found.get(name)
                is_new = uuid not in there
                if uuid and (outcome is Outcome.MADE or (outcome is Outcome.UNSURE and is_new)):
                    self._uuids.add(uuid)
            del self._unsettled[job_id]

    def present(self) -> list[str]:
        """Return the present names of the instances made; they may have been renamed."""
        found = uuids_by_name(self._context)
        return sorted(name for name, uuid in found.items() if uuid in self._uuids)


def uuids_by_name(context: Context) -> dict[str, str]:
    """Return the UUIDs of all instances of the cluster."""
    rows = context.client.query_instances([], ["name", "uuid"])
    return {str(name): str(uuid) for name, uuid in rows}


def _outcomes(
    opcodes: Sequence[OpCode], statuses: object, results: object
) -> Iterator[tuple[str, Outcome]]:
    """Yield the instances that a job was to make, and whether it has."""
    for position, opcode in enumerate(opcodes):
        if isinstance(opcode, OpInstanceCreate):
            yield opcode.instance_name, _outcome(position, statuses, results)


def _outcome(position: int, statuses: object, results: object) -> Outcome:
    if not isinstance(statuses, list) or not isinstance(results, list):
        return Outcome.UNSURE  # the job is archived
    match statuses[position]:
        case "success":
            return Outcome.MADE
        case "error" if not isinstance(decode_error(results[position]), OpPrereqError):
            return Outcome.UNSURE
        case _:  # never begun, or refused before anything was changed
            return Outcome.REFUSED
