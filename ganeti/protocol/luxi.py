"""LUXI's calls: one typed class, of which the client, the dispatch and its checks are made.

Source: luxi.json, "methods" and "transport".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec

from ganeti.base.ids import JobId
from ganeti.protocol.maintenance.stored import Maintenance
from ganeti.protocol.service import Method, Service, declare

WAIT_FOR_JOB_CHANGE_S_MAX: Final = 89
SOCKET_MODE: Final = 0o660


class DrainedBy(StrEnum):
    """The program that closed the queue to open it again itself: the content of the drain file.

    An operator's file is empty, as all are that Ganeti 3.0 writes; it only asks whether there is
    one.
    """

    FAILOVER = "master-failover"
    RENEWAL = "renew-crypto"
    MERGE = "cluster-merge"


class ConsoleWay(StrEnum):
    """The consoles that are carried to a browser."""

    SERIAL = "serial"
    GRAPHICS = "graphics"


# 10,000 jobs of a few opcodes each in one message; ten times the limit of the queue
MESSAGE_BYTES_MAX: Final = 64 << 20


class Week(msgspec.Struct):
    """The changes of instances in one week; ``memory`` and ``disk`` are MiB more, or fewer.

    ``unknown``: how many changes have an amount that is not known and so left out.
    """

    begins: int  # seconds since the epoch
    created: int = 0
    removed: int = 0
    memory: int = 0
    disk: int = 0
    unknown: int = 0


Rows = list[list[Any]]
Texts = Sequence[str]
WireOpCodes = Sequence[Mapping[str, Any]]
JobIdValue = (
    Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}$")]
)
_Count = Annotated[int, msgspec.Meta(ge=0)]


class QueryField(msgspec.Struct, frozen=True):
    """Description of one field of a query."""

    name: str
    title: str
    kind: str
    doc: str = ""


class QueryFieldsResponse(msgspec.Struct, frozen=True):
    """Answer to a question for fields."""

    fields: list[QueryField]


class QueryResponse(msgspec.Struct, frozen=True):
    """Answer to a query; each cell of a row is (status, value)."""

    fields: list[QueryField]
    data: list[list[tuple[int, Any]]]

    def rows(self) -> list[list[object]]:
        """Return plain values, None where the status is not 0 (normal)."""
        return [[value if status == 0 else None for status, value in row] for row in self.data]


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """One line of a job's log; the time is (seconds, microseconds)."""

    serial: int
    time: tuple[int, int]
    kind: str
    payload: Any


class JobChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of a job: its fields, and new log entries."""

    fields: list[Any] | None
    log_entries: list[LogEntry]


class Rules(msgspec.Struct, frozen=True):
    """The facts of a call that its signature does not tell.

    Attributes:
        changes: changes something, and so is never asked twice.
        waits: waits on behalf of the client and of nothing else.
        ours: how many arguments at the end 3.0 does not know; left out while they are None.
    """

    changes: bool = False
    waits: bool = False
    ours: int = 0


def _ask(name: str, *, waits: bool = False, ours: int = 0) -> Callable[[Method], Method]:
    return declare(name, Rules(waits=waits, ours=ours))


def _change(name: str, *, ours: int = 0) -> Callable[[Method], Method]:
    return declare(name, Rules(changes=True, ours=ours))


HELD_BY_FIELD: Final = "held_by"
"""A field of jobs that 3.0 has not: the job filter that holds the job back now, or None.

A limit that jobs bring themselves, by their reason, is told as that: ``rate-limit:LABEL``.
"""
RATE_LIMIT_PREFIX: Final = "rate-limit:"


class LuxiCalls(Service):
    """The job queue and the queries of a cluster."""

    @_change("SubmitJob")
    def submit_job(self, opcodes: WireOpCodes) -> JobId:
        """Submit one job and return its id; it is durable then.

        Raises:
            JobQueueDrainError, JobQueueFull, OpPrereqError: refused; nothing was submitted.
            TransportError: whether it was submitted is unknown, if the text does not say so.
        """

    @_change("SubmitJobToDrainedQueue")
    def submit_job_to_drained_queue(self, opcodes: WireOpCodes) -> JobId:
        """As `submit_job`, even if the queue is drained."""

    @_change("SubmitManyJobs")
    def submit_many_jobs(self, jobs: Sequence[WireOpCodes]) -> list[tuple[bool, JobId | str]]:
        """Submit several jobs; returns (True, id) or (False, reason) for each.

        Raises:
            OpCodeUnknown, OpPrereqError: one of them is not valid; nothing was submitted.
        """

    @_ask("WaitForJobChange", waits=True)
    def wait_for_job_change(
        self,
        job_id: JobIdValue,
        fields: Sequence[str],
        previous: Sequence[Any] | None,
        previous_log: int | None,
        timeout_s: float = WAIT_FOR_JOB_CHANGE_S_MAX,
    ) -> JobChange | Literal["nochange"] | None:
        """Wait until a job looks different from how it was last seen.

        Args:
            fields: which fields of the job to answer, and to compare.
            previous: their values as last answered; None asks for an answer at once.
            previous_log: the serial number of the last log entry seen; None asks for all.

        Raises:
            JobLost: no such job.
        """

    @_ask("QueryJobs", ours=2)
    def query_jobs(
        self,
        job_ids: Sequence[JobIdValue] | None,
        fields: Sequence[str],
        limit: _Count | None = None,
        before: JobIdValue | None = None,
    ) -> Rows:
        """Return one row per job, in the order asked; without ids all jobs of the queue.

        Args:
            limit: the newest so many jobs of the queue, of those before one.
        """

    @_ask("Query")
    def query(self, what: str, fields: Sequence[str], qfilter: Any = None) -> QueryResponse:
        """Ask for fields of the objects of one kind that match a filter in prefix form."""

    @_ask("QueryFields")
    def query_fields(self, what: str, fields: Sequence[str] | None = None) -> QueryFieldsResponse:
        """Return the descriptions of these fields; None asks for all."""

    @_ask("QueryNodes")
    def query_nodes(self, names: Texts, fields: Texts, lock: bool = False) -> Rows:
        """Return one row of plain values per node; no names asks for all."""

    @_ask("QueryInstances")
    def query_instances(self, names: Texts, fields: Texts, lock: bool = False) -> Rows:
        """Return one row of plain values per instance; no names asks for all."""

    @_ask("QueryGroups")
    def query_groups(self, names: Texts, fields: Texts, lock: bool = False) -> Rows:
        """Return one row of plain values per node group; no names asks for all."""

    @_ask("QueryNetworks")
    def query_networks(self, names: Texts, fields: Texts, lock: bool = False) -> Rows:
        """Return one row of plain values per network; no names asks for all."""

    @_ask("QueryFilters")
    def query_filters(self, uuids: Sequence[str] | None, fields: Sequence[str]) -> Rows:
        """Return one row of plain values per job filter rule; None asks for all."""

    @_ask("QueryExports")
    def query_exports(self, nodes: Sequence[str], lock: bool = False) -> Rows:
        """Return [node name, export name or None] rows; no nodes asks for all."""

    @_ask("QueryTags")
    def query_tags(self, kind: str, name: str | None) -> list[str]:
        """Return the tags of an object; the name is empty for the cluster."""

    @_ask("QueryClusterInfo")
    def query_cluster_info(self) -> dict[str, Any]:
        """Return the facts about the cluster as a whole."""

    @_ask("QueryConfigValues")
    def query_config_values(self, names: Sequence[str]) -> list[Any]:
        """Return these values in the order asked; None for an unknown name."""

    @_change("CancelJob")
    def cancel_job(
        self,
        job_id: JobIdValue,
        kill: bool | Annotated[list[bool], msgspec.Meta(max_length=1)] | None = False,
    ) -> tuple[bool, str]:
        """Cancel a job; returns (whether it will end, a text for the user)."""

    @_change("ChangeJobPriority")
    def change_job_priority(self, job_id: JobIdValue, priority: int) -> tuple[bool, str]:
        """Change the priority of the opcodes that a job has not begun; returns as `cancel_job`."""

    @_change("ArchiveJob")
    def archive_job(self, job_id: JobIdValue) -> bool:
        """Archive a finished job; returns whether that was done."""

    @_change("AutoArchiveJobs")
    def auto_archive_jobs(self, age_s: int, timeout_s: int) -> tuple[int, int]:
        """Archive all jobs that ended so long ago; returns (archived, not looked at)."""

    @_ask("PickupJob")
    def pickup_job(self, job_id: JobIdValue) -> Any:
        """Ask LuxiD to look at a job again; refused, only 3.0's daemons sent it to each other."""

    @_change("SetDrainFlag", ours=1)
    def set_drain_flag(self, flag: bool, by: DrainedBy | None = None) -> bool:
        """Close the queue for new jobs, or open it; an operator's wish, unless another is named."""

    @_change("SetWatcherPause")
    def set_watcher_pause(self, until: float | None) -> float | None:
        """Pause the watcher until then (seconds since the epoch); None lets it go on."""

    @_change("ReplaceFilter")
    def replace_filter(
        self,
        uuid: str | None,
        priority: _Count,
        predicates: Sequence[Sequence[Any]],
        action: str | list[Any],
        reason: Sequence[Any],
    ) -> str:
        """Add a job filter rule, or replace the one of that UUID; returns its UUID."""

    @_change("DeleteFilter")
    def delete_filter(self, uuid: str) -> None:
        """Remove a job filter rule."""

    @_ask("QueryGrowth")
    def query_growth(self, weeks: int) -> list[Week]:
        """Return by how much the cluster has grown in each of the last weeks, the oldest first.

        Raises:
            OpPrereqError: so many weeks are not kept.
        """

    @_change("OpenConsole")
    def open_console(self, instance: str, way: ConsoleWay) -> str:
        """Connect to a console of an instance; returns the path of a socket.

        It waits some seconds for one client, a process of Ganeti, and carries the console's bytes.

        Raises:
            OpPrereqError: there is no such instance, its node is offline, or no such console.
        """

    @_ask("QueryMaintenance")
    def query_maintenance(self) -> Maintenance | None:
        """Return the settings and the state of the maintenance daemon; None while it is off."""

    @_ask("QueryMaintenanceStatus", waits=True)
    def query_maintenance_status(self, known: int = -1) -> dict[str, Any]:
        """Return what the maintenance daemon knows, and why it does nothing.

        Waits a while for another state than the one with the known serial number, if one is given.
        """

    @_ask("QueryAvailability", waits=True)
    def query_availability(self) -> dict[str, Any] | None:
        """Return how high availability is, and what losses would lead to; None while it is off."""

    @_ask("QueryMetrics")
    def query_metrics(self) -> str:
        """Return what LuxiD has counted since it began, in the text format of Prometheus."""

    @_change("CancelRepair")
    def cancel_repair(self, uuid: str) -> None:
        """Have nobody act on an event of a node any more."""

    @_change("RemoveRepair")
    def remove_repair(self, uuid: str) -> None:
        """Forget an event of a node; while it is still reported it begins anew."""


def as_job_id(value: int | str) -> JobId:
    """Return a job id that came as a number or as decimal text."""
    return JobId(int(value))


def is_kill(value: bool | list[bool] | None) -> bool:
    """Read the optional last argument of CancelJob."""
    if isinstance(value, list):
        return bool(value and value[0])
    return bool(value)
