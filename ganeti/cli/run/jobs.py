"""Jobs as seen from a command: submitted, followed, and their end told.

Messages of a job are printed as they come, one `WaitForJobChange` after another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti.base import json
from ganeti.base.errors import (
    GenericError,
    JobCanceled,
    JobLost,
    OpExecError,
    OpPrereqError,
    ProtocolError,
    TransportError,
    decode_error,
)
from ganeti.base.ids import JobId
from ganeti.base.text import fit_for_terminal
from ganeti.cli.command import Context, Options
from ganeti.cli.run.failures import JobSubmitted, explain
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import OP_ID_KEY, decode_opcode, encode_opcode, op_id_of
from ganeti.protocol.luxi import HELD_BY_FIELD, RATE_LIMIT_PREFIX, JobChange, LogEntry
from ganeti.system.files import read_bytes

FINAL_STATUSES: Final = frozenset({"success", "error", "canceled"})
NOTICE_AFTER_S: Final = 20.0  # constants.json, CLI_WFJC_FREQUENCY: then say why nothing happens
_NOTICES: Final = {
    "queued": "Job {} is waiting in queue",
    "waiting": "Job {} is trying to acquire all necessary locks",
}


def make_opcode(kind: type[OpCode], /, **params: object) -> OpCode:
    """Return an opcode, checked here so that mistakes are told before anything is sent.

    Raises:
        OpPrereqError: a parameter is wrong; the text names it.
    """
    return decode_opcode({OP_ID_KEY: op_id_of(kind), **params})


def encode(context: Context, options: Options, opcode: OpCode) -> dict[str, object]:
    """Return an opcode as it is submitted, with the settings of the common options."""
    return with_common(context, options, encode_opcode(opcode))


def with_common(
    context: Context, options: Options, wire: Mapping[str, object]
) -> dict[str, object]:
    """Add the settings of the common options to an encoded opcode."""
    submitted = dict(wire)
    submitted["reason"] = context.reason_trail()
    if options.get("dry_run"):
        submitted["dry_run"] = True
    if options.get("debug") is not None:
        submitted["debug_level"] = options.debug
    if options.get("priority") is not None:
        submitted["priority"] = options.priority
    if options.get("depend"):
        own = submitted.get("depends")
        submitted["depends"] = [*(own if isinstance(own, list) else []), *options.depend]
    return submitted


def execute(context: Context, options: Options, *opcodes: OpCode) -> list[object]:
    """Submit one job, follow it and return its results, one for each opcode.

    Raises:
        JobSubmitted: ``--submit`` was given.
        OpPrereqError, OpExecError, ...: the error that the job ended with.
    """
    return _execute(context, options, [encode(context, options, opcode) for opcode in opcodes])


def _execute(context: Context, options: Options, wire: list[dict[str, object]]) -> list[object]:
    _warn_of_pause(context)
    job_id = context.client.submit_job(wire)
    context.waiting_for.append(job_id)
    if options.get("print_jobid"):
        context.write(str(job_id))
    if options.get("submit"):
        raise JobSubmitted(job_id)
    return follow(context, job_id)


def _warn_of_pause(context: Context) -> None:
    """Say, whenever something is changed, that nobody acts on losses meanwhile."""
    if not os.path.exists(context.paths.high_availability):
        return
    from ganeti.store import availability  # most clusters do without it

    state = availability.read_state(context.paths)
    if state is not None and state.pause:
        context.terminal.error(f"Warning: {state.pause} ('gnt-cluster ha-pause --end' ends it)")


def follow(context: Context, job_id: JobId) -> list[object]:
    """Print a job's messages until it has ended; returns its results.

    Raises:
        OpPrereqError, OpExecError, JobCanceled, JobLost, ...: the error that the job ended with.
    """
    for change in changes(context, job_id):
        for entry in change.log_entries:
            context.terminal.write_lines(format_entry(entry))
    return results_of(context, job_id)


def changes(context: Context, job_id: JobId) -> Iterator[JobChange]:
    """Yield the changes of a job until it has ended, saying now and then why there are none.

    Until then the context has it among those that are waited for.
    """
    if job_id not in context.waiting_for:
        context.waiting_for.append(job_id)
    for change in _changes(context, job_id):
        has_ended = change.fields is not None and change.fields[0] in FINAL_STATUSES
        if has_ended and job_id in context.waiting_for:
            context.waiting_for.remove(job_id)
        yield change


def _changes(context: Context, job_id: JobId) -> Iterator[JobChange]:
    previous: list[object] | None = None
    serial: int | None = None
    noticed: set[str] = set()

    def notice(text: str) -> None:
        if text not in noticed:
            noticed.add(text)
            context.terminal.error(text)

    while True:
        change = context.client.wait_for_job_change(
            job_id, ["status", HELD_BY_FIELD, "start_ts"], previous, serial, NOTICE_AFTER_S
        )
        if change is None:
            status, held_by, start = previous or ("", None, None)
            if status == "waiting" and start is None:
                notice(f"Job {job_id} is waiting for jobs that it depends on")
            elif status in _NOTICES and not held_by:
                notice(_NOTICES[str(status)].format(job_id))
            continue
        previous = change.fields
        rule = previous[1] if previous else None
        if str(rule).startswith(RATE_LIMIT_PREFIX):
            notice(f"Job {job_id} waits for others with the same reason: {rule}")
        elif rule:
            notice(f"Job {job_id} is held by job filter {rule}; 'gnt-filter info {rule}' shows it")
        if change.log_entries:
            serial = max(entry.serial for entry in change.log_entries)
        yield change
        if previous and previous[0] in FINAL_STATUSES:
            return


def format_entry(entry: LogEntry) -> list[str]:
    """Return the lines of a log entry, each with its time."""
    moment = time.ctime(entry.time[0])
    payload = entry.payload
    texts = payload if isinstance(payload, list) else [payload]
    return [
        f"{moment} {line}" for text in texts for line in fit_for_terminal(str(text)).split("\n")
    ]


def results_of(context: Context, job_id: JobId) -> list[object]:
    """Return the results of a job that has ended; errors as of `follow`."""
    [row] = context.client.query_jobs([job_id], ["status", "opstatus", "opresult"])
    status, op_statuses, op_results = row
    if not isinstance(op_results, list) or not isinstance(op_statuses, list):
        raise JobLost(f"job {job_id} is no longer in the queue")
    if status == "success":
        return op_results
    if status == "canceled":
        raise JobCanceled(f"job {job_id} was canceled")
    raise _failure(job_id, op_statuses, op_results)


def _failure(
    job_id: JobId, op_statuses: Sequence[object], op_results: Sequence[object]
) -> GenericError:
    for position, (status, result) in enumerate(zip(op_statuses, op_results, strict=False)):
        if status == "error":
            error = decode_error(result)
            if position and isinstance(error, OpExecError):
                return OpExecError(
                    f"partial failure (opcode {position} of {len(op_statuses)}): {error.message}"
                )
            return error
    return OpExecError(f"job {job_id} failed: {list(op_results)}")


class JobGroup:
    """Several jobs of one command, submitted together and told about one by one."""

    def __init__(self, context: Context, options: Options) -> None:
        self._context = context
        self._options = options
        self._jobs: list[tuple[str, list[dict[str, object]]]] = []

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, name: str, *opcodes: OpCode) -> None:
        """Add a job for the object of that name."""
        wire = [encode(self._context, self._options, opcode) for opcode in opcodes]
        self._jobs.append((name, wire))

    def run(self) -> int:
        """Submit all jobs and follow each; returns the exit status.

        A single job is followed like that of any other command, without more words.
        """
        context, options = self._context, self._options
        if len(self._jobs) == 1 and not options.get("submit"):
            [(_, wire)] = self._jobs
            _execute(context, options, wire)
            return 0
        _warn_of_pause(context)
        answers = context.client.submit_many_jobs([wire for _, wire in self._jobs])
        submitted: list[tuple[str, JobId]] = []
        for (name, _), (accepted, said) in zip(self._jobs, answers, strict=True):
            if accepted and isinstance(said, int):
                submitted.append((name, said))
            else:
                context.terminal.error(f"Failed to submit the job for {name}: {said}")
        failures = len(self._jobs) - len(submitted)
        if options.get("print_jobid"):
            context.terminal.write_lines([str(job_id) for _, job_id in submitted])
        elif options.get("submit"):
            context.terminal.write_lines([f"{job_id}: {name}" for name, job_id in submitted])
        if options.get("submit"):
            return int(failures > 0)
        if submitted:
            numbers = ", ".join(str(job_id) for _, job_id in submitted)
            context.write(f"Submitted jobs {numbers}")
        failures += follow_all(context, submitted)
        return int(failures > 0)


def follow_all(context: Context, jobs: Sequence[tuple[str, JobId]]) -> int:
    """Follow jobs one after the other; returns how many failed."""
    return results_of_all(context, jobs, announces=True)[0]


def submitted_jobs(result: object) -> list[tuple[str, JobId]]:
    """Return the jobs that a job says it submitted, each with words for messages.

    Raises:
        OpExecError: one was not accepted.
    """
    jobs, refused = split_submitted(result)
    if refused:
        raise OpExecError(f"a job was not accepted: {refused[0]}")
    return jobs


def split_submitted(result: object) -> tuple[list[tuple[str, JobId]], list[str]]:
    """Return the jobs that a job has submitted, and its messages about the ones it has not."""
    answers = result.get("jobs") if isinstance(result, Mapping) else None
    jobs: list[tuple[str, JobId]] = []
    refused: list[str] = []
    for answer in answers if isinstance(answers, list) else []:
        match answer:
            case [True, int(job_id)]:
                jobs.append((f"part {len(jobs) + 1}", JobId(job_id)))
            case [_, said]:
                refused.append(str(said))
    return jobs, refused


def follow_moves(context: Context, _opcode: OpCode, result: object) -> int:
    """Follow the jobs that move instances; returns the exit status: whether all of them went."""
    jobs, refused = split_submitted(result)
    for said in refused:
        context.terminal.error(f"Not submitted: {said}")
    failures = follow_all(context, named_by_summary(context, jobs)) + len(refused)
    if failures:
        context.terminal.error(f"{failures} instance(s) could not be moved; see above.")
    return int(failures > 0)


def named_by_summary(
    context: Context, jobs: Sequence[tuple[str, JobId]]
) -> list[tuple[str, JobId]]:
    """Return jobs with their opcodes as words for messages, such as ``INSTANCE_MIGRATE(web1)``."""
    if not jobs:
        return []
    rows = context.client.query_jobs([job_id for _, job_id in jobs], ["summary"])
    found = [summary if isinstance(summary, list) else [] for [summary] in rows]
    return [
        (", ".join(map(str, summary)) or name, job_id)
        for (name, job_id), summary in zip(jobs, found, strict=True)
    ]


def results_of_all(
    context: Context, jobs: Sequence[tuple[str, JobId]], *, announces: bool = False
) -> tuple[int, list[list[object]]]:
    """Follow jobs one after the other; returns how many failed, and the results of the others.

    Raises:
        TransportError: LuxiD cannot be asked.
    """
    results = []
    known = context.waiting_for
    known += [job_id for _, job_id in jobs if job_id not in known]
    for name, job_id in jobs:
        if announces:
            context.write(f"Waiting for job {job_id} for {name} ...")
        try:
            results.append(follow(context, job_id))
        except TransportError:
            raise  # LuxiD is lost, and says nothing of the others either
        except GenericError as err:
            job = f"Job {job_id} for {name}" if announces else f"Job {job_id} ({name})"
            context.terminal.error(f"{job} has failed: {explain(err)[0]}")
    return len(jobs) - len(results), results


_FILE_BYTES_MAX: Final = 64 << 20  # a hundred thousand opcodes or more


def read_json(path: str) -> object:
    """Return the contents of a file.

    Raises:
        GenericError: it cannot be read.
        OpPrereqError: it is not JSON.
    """
    try:
        return json.loads(read_bytes(path, _FILE_BYTES_MAX))
    except OSError as err:
        raise GenericError(f"cannot read {path}: {err.strerror}") from err
    except ProtocolError as err:
        raise OpPrereqError(f"{path}: {err.message}") from err
