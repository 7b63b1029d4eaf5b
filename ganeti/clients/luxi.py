"""Talks to LuxiD: submits jobs, waits for them, asks questions.  Synchronous.

A read that loses its connection is asked again.  A change is not: it may have been carried out,
and the error says so.

Source: luxi.json, "transport" and "methods".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

import msgspec

from ganeti.base.errors import ConfigurationError, NotMasterError, TransportError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.base.versions import LUXI_VERSION
from ganeti.store import ssconf
from ganeti.system import clock
from ganeti.system.environment import own_hostname
from ganeti.transport.unix_client import ConnectionLostError, NobodyListensError, UnixClient

if TYPE_CHECKING:
    from ganeti.opcodes.opcode import OpCode
    from ganeti.protocol.luxi import DrainedBy

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 30.0  # luxi.json, "timeouts_seconds"
ANSWER_TIMEOUT_S: Final = 180.0
WAIT_TIMEOUT_S_MAX: Final = 89.0
TRIES_MAX: Final = 15  # luxi.json, "client_retry"; its waits of 5 s times the try are not needed:
_RETRY_DELAY_S_MAX: Final = 5.0  # the socket tells at once when LuxiD is back
_CONNECT_RETRY_S: Final = 0.1


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
    data: list[list[tuple[int, object]]]

    def rows(self) -> list[list[object]]:
        """Return plain values, None where the status is not 0 (normal)."""
        return [[value if status == 0 else None for status, value in row] for row in self.data]


class JobChange(msgspec.Struct, frozen=True, array_like=True):
    """What changed of a job: its fields, and new log entries."""

    fields: list[object] | None
    log_entries: list[LogEntry]


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """One line of a job's log; the time is (seconds, microseconds)."""

    serial: int
    time: tuple[int, int]
    kind: str
    payload: object


# Unions are no types to mypy, which has no TypeForm.
_JOB_CHANGE: Final = cast("type[object]", JobChange | str)
_TIME_OR_NONE: Final = cast("type[float | None]", float | None)


class LuxiClient:
    """A connection to LuxiD, opened when first used and again when it broke."""

    def __init__(
        self,
        paths: Paths,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        sleep: Callable[[float], None] = clock.pause,
    ) -> None:
        self._paths = paths
        self._connect_timeout_s = connect_timeout_s
        self._sleep = sleep
        self._connection = UnixClient(
            paths.query_socket,
            connect_timeout_s=connect_timeout_s,
            timeout_s=ANSWER_TIMEOUT_S,
            version=LUXI_VERSION,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.close()

    # Jobs.

    def submit_job(self, opcodes: Sequence[OpCode | Mapping[str, object]]) -> JobId:
        """Submit one job and return its id; it is durable then.

        Raises:
            JobQueueDrainError, JobQueueFull, OpPrereqError: refused; nothing was submitted.
            TransportError: whether it was submitted is unknown, if the text does not say so.
        """
        return JobId(self._change(int, "SubmitJob", _encode_job(opcodes)))

    def submit_job_to_drained_queue(
        self, opcodes: Sequence[OpCode | Mapping[str, object]]
    ) -> JobId:
        """As `submit_job`, even if the queue is drained."""
        return JobId(self._change(int, "SubmitJobToDrainedQueue", _encode_job(opcodes)))

    def submit_many_jobs(
        self, jobs: Sequence[Sequence[OpCode | Mapping[str, object]]]
    ) -> list[tuple[bool, JobId | str]]:
        """Submit several jobs; returns (True, id) or (False, reason) for each."""
        answers = self._change(
            list[tuple[bool, int | str]], "SubmitManyJobs", [_encode_job(job) for job in jobs]
        )
        return [
            (accepted, JobId(said) if isinstance(said, int) else said) for accepted, said in answers
        ]

    def wait_for_job_change(
        self,
        job_id: JobId,
        fields: Sequence[str],
        previous: Sequence[object] | None,
        previous_log_serial: int | None,
        timeout_s: float = WAIT_TIMEOUT_S_MAX,
    ) -> JobChange | None:
        """Wait until a job looks different from what was last seen; None if it did not in time.

        Args:
            fields: which fields of the job to answer, and to compare.
            previous: their values as last answered; None asks for an answer at once.
            previous_log_serial: the last log entry seen; None asks for all.

        Raises:
            JobLost: no such job.
        """
        args = [job_id, fields, previous, previous_log_serial, min(timeout_s, WAIT_TIMEOUT_S_MAX)]
        answer = self._read(_JOB_CHANGE, "WaitForJobChange", *args)
        change = answer if isinstance(answer, JobChange) else None  # else it is "nochange"
        if change is None or change.fields is None:
            return None
        if previous is not None and not change.log_entries and change.fields == list(previous):
            return None
        return change

    def query_jobs(
        self, job_ids: Sequence[JobId] | None, fields: Sequence[str]
    ) -> list[list[object]]:
        """Return one row per job, in the order asked; None asks for all."""
        return self._read_rows("QueryJobs", job_ids, fields)

    def cancel_job(self, job_id: JobId, *, kill: bool = False) -> tuple[bool, str]:
        """Cancel a job; returns (whether it will end, what to tell the user)."""
        return self._change(tuple[bool, str], "CancelJob", job_id, kill)

    def change_job_priority(self, job_id: JobId, priority: int) -> tuple[bool, str]:
        """Change the priority of what a job has not begun; returns as `cancel_job`."""
        return self._change(tuple[bool, str], "ChangeJobPriority", job_id, priority)

    def archive_job(self, job_id: JobId) -> bool:
        """Archive a finished job; returns whether that was done."""
        return self._change(bool, "ArchiveJob", job_id)

    def auto_archive_jobs(self, age_s: int, timeout_s: int) -> tuple[int, int]:
        """Archive all jobs that ended so long ago; returns (archived, not looked at)."""
        return self._change(tuple[int, int], "AutoArchiveJobs", age_s, timeout_s)

    def pickup_job(self, job_id: JobId) -> object:
        """Ask LuxiD to look at a job again (LuxiD refuses: it is for other daemons)."""
        return self._change(object, "PickupJob", job_id)

    # Queries.

    def query(self, what: str, fields: Sequence[str], qfilter: object = None) -> QueryResponse:
        """Ask for fields of the objects of one kind that match a filter in prefix form."""
        return self._read(QueryResponse, "Query", what, fields, qfilter)

    def query_fields(self, what: str, fields: Sequence[str] | None = None) -> QueryFieldsResponse:
        """Return the descriptions of these fields; None asks for all."""
        return self._read(QueryFieldsResponse, "QueryFields", what, fields)

    def query_instances(self, names: Sequence[str], fields: Sequence[str]) -> list[list[object]]:
        """Return one row of plain values per instance; no names asks for all."""
        return self._read_rows("QueryInstances", names, fields, False)

    def query_nodes(self, names: Sequence[str], fields: Sequence[str]) -> list[list[object]]:
        """Return one row of plain values per node; no names asks for all."""
        return self._read_rows("QueryNodes", names, fields, False)

    def query_groups(self, names: Sequence[str], fields: Sequence[str]) -> list[list[object]]:
        """Return one row of plain values per node group; no names asks for all."""
        return self._read_rows("QueryGroups", names, fields, False)

    def query_networks(self, names: Sequence[str], fields: Sequence[str]) -> list[list[object]]:
        """Return one row of plain values per network; no names asks for all."""
        return self._read_rows("QueryNetworks", names, fields, False)

    def query_filters(
        self, uuids: Sequence[str] | None, fields: Sequence[str]
    ) -> list[list[object]]:
        """Return one row of plain values per job filter rule; None asks for all."""
        return self._read_rows("QueryFilters", uuids, fields)

    def query_exports(self, nodes: Sequence[str]) -> list[list[object]]:
        """Return [node name, export name or None] rows; no nodes asks all."""
        return self._read_rows("QueryExports", nodes, False)

    def query_tags(self, kind: str, name: str) -> list[str]:
        """Return the tags of an object; the name is empty for the cluster."""
        return self._read(list[str], "QueryTags", kind, name)

    def query_cluster_info(self) -> dict[str, object]:
        """Return what LuxiD knows about the cluster as a whole."""
        return self._read(dict[str, object], "QueryClusterInfo")

    def query_config_values(self, names: Sequence[str]) -> list[object]:
        """Return these values in the order asked; None for an unknown name."""
        return self._read(list[object], "QueryConfigValues", names)

    # Switches.

    def set_drain_flag(self, drained: bool, by: DrainedBy | None = None) -> bool:
        """Let the queue take new jobs, or not; an operator's wish, unless it is said whose."""
        return self._change(bool, "SetDrainFlag", drained, *([] if by is None else [by]))

    def set_watcher_pause(self, until: float | None) -> float | None:
        """Pause the watcher until then (seconds since the epoch); None lets it go on."""
        return self._change(_TIME_OR_NONE, "SetWatcherPause", until)

    def replace_filter(
        self,
        uuid: str | None,
        *,
        priority: int,
        predicates: Sequence[object],
        action: object,
        reason: Sequence[object],
    ) -> str:
        """Add a job filter rule, or replace the one of that UUID; returns its UUID."""
        return self._change(str, "ReplaceFilter", uuid, priority, predicates, action, reason)

    def delete_filter(self, uuid: str) -> None:
        """Remove a job filter rule."""
        self._change(object, "DeleteFilter", uuid)

    # Asking.

    def _read_rows(self, method: str, *args: object) -> list[list[object]]:
        return self._read(list[list[object]], method, *args)

    def _read(self, kind: type[T], method: str, *args: object) -> T:
        delay_s = 0.0
        for _ in range(TRIES_MAX - 1):
            try:
                return self._ask(kind, method, args)
            except ConnectionLostError:
                self._sleep(delay_s)
                delay_s = min(2 * delay_s + _CONNECT_RETRY_S, _RETRY_DELAY_S_MAX)
        return self._ask(kind, method, args)

    def _change(self, kind: type[T], method: str, *args: object) -> T:
        try:
            return self._ask(kind, method, args)
        except ConnectionLostError as err:
            raise TransportError(
                f"{err.message}; {method} may have been carried out, look before you try again"
            ) from err

    def _ask(self, kind: type[T], method: str, args: Sequence[object]) -> T:
        deadline = clock.monotonic() + self._connect_timeout_s
        while True:
            try:
                return self._connection.call_as(kind, method, args)
            except NobodyListensError as err:
                check_is_master(self._paths, err)
                if clock.monotonic() >= deadline:
                    raise TransportError(f"{err.message}; is ganeti-luxid running here?") from err
            self._sleep(_CONNECT_RETRY_S)


def check_is_master(paths: Paths, reason: TransportError) -> None:
    """Tell "LuxiD is down" from "LuxiD runs on another node".

    Raises:
        NotMasterError: this node is not the master; names it, if this is a cluster at all.
    """
    try:
        master = ssconf.master_node(paths)
    except ConfigurationError as err:
        raise NotMasterError(
            f"{reason.message}, and this node is not part of a cluster: {err.message}"
        ) from reason
    own_name = own_hostname()
    if master != own_name:
        raise NotMasterError(
            f"this is not the master node (this is {own_name}), connect to {master} instead",
            master,
        ) from reason


def _encode_job(opcodes: Sequence[OpCode | Mapping[str, object]]) -> list[object]:
    # Commands that submit nothing load no opcode.
    from ganeti.opcodes.registry import encode_opcode

    return [opcode if isinstance(opcode, Mapping) else encode_opcode(opcode) for opcode in opcodes]
