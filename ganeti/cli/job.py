"""``gnt-job`` info, wait, watch, archive, autoarchive, cancel and change-priority."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    JobLost,
    JobQueueError,
    OpPrereqError,
    decode_error,
)
from ganeti.base.ids import JobId
from ganeti.base.text import fit_for_terminal, parse_duration
from ganeti.cli.command import (
    EXIT_FAILURE,
    EXIT_SUCCESS,
    ArgKind,
    Context,
    Options,
    command,
    confirm,
    opt,
)
from ganeti.cli.lists import PENDING, as_list, state
from ganeti.cli.run.failures import explain
from ganeti.cli.run.jobs import changes, follow, results_of
from ganeti.cli.run.listing import is_job_number
from ganeti.cli.run.report import Facts, format_report
from ganeti.cli.run.table import format_time
from ganeti.opcodes.registry import decode_opcode, encode_opcode
from ganeti.protocol.luxi import HELD_BY_FIELD, RATE_LIMIT_PREFIX


def _opcodes(ops: object, *columns: object) -> list[Facts]:
    """Return the facts about each opcode of a job, whose columns may be shorter."""
    opcodes = as_list(ops)
    rows = zip_longest(opcodes, *(as_list(each)[: len(opcodes)] for each in columns))
    return [_opcode(*row) for row in rows]


def _opcode(opcode: object, status: object, result: object, log: object, *times: object) -> Facts:
    parameters = dict(opcode) if isinstance(opcode, Mapping) else {}
    if status == "error" and isinstance(result, list):
        result = explain(decode_error(result))[0].replace("\n", " ")
    return Facts(
        [
            ("Opcode", parameters.get("OP_ID", "?")),
            ("Status", status),
            *(_at(title, moment) for title, moment in zip(_OPCODE_TIMES, times, strict=True)),
            ("Input fields", {**defaults_of(parameters), **parameters}),
            ("Result", result),
            ("Execution log", [_log_entry(entry) for entry in as_list(log)]),
        ]
    )


_OPCODE_TIMES: Final = ("Processing start", "Execution start", "Processing end")
_TIMES: Final = ("Received", "Processing start", "Processing end")


def defaults_of(opcode: Mapping[str, object]) -> dict[str, object]:
    """Return the values of the parameters that a stored opcode leaves out."""
    try:
        full = encode_opcode(decode_opcode(opcode))
    except GenericError:
        return {}  # of another version
    return {name: value for name, value in full.items() if value is not None}


def _at(title: str, moment: object, since: object = None) -> tuple[str, str]:
    """Return a time, to the microsecond, in a column of its own."""
    match moment, since:
        case [int(seconds), int(micros)], [int(first), int(first_micros)]:
            passed_s = seconds - first + (micros - first_micros) / 1_000_000
            text = f"{_exact(seconds, micros)} (delta {passed_s:.6f}s)"
        case [int(seconds), int(micros)], _:
            text = _exact(seconds, micros)
        case _:
            text = "N/A"
    return title, f"{'':{_TITLE_WIDTH - len(title)}}{text}"


_TITLE_WIDTH: Final = len("Processing start")


def _exact(seconds: int, micros: int) -> str:
    return f"{format_time([seconds, micros])}.{micros:06d}"


def _log_entry(entry: object) -> Facts:
    match entry:
        case [serial, [int(seconds), int(micros)], kind, payload]:
            content = fit_for_terminal(f"[{serial}, {kind}, {payload}]").replace("\n", " ")
            return Facts([("Time", _exact(seconds, micros)), ("Content", content)])
        case _:
            return Facts([("Content", str(entry))])


_FIELDS: Final = (
    *("id", "status", "received_ts", "start_ts", "end_ts", "archived", HELD_BY_FIELD),
    *("ops", "opstatus", "opresult", "oplog", "opstart", "opexec", "opend"),
)


def describe(row: Sequence[object]) -> Facts | str:
    """Return the facts about a job from the values of its fields."""
    job_id, status, received, start, end, is_archived, held_by, *opcodes = row
    if status is None:
        return f"Job ID {job_id} not found"
    total = "N/A"
    match received, end:
        case [int(first), int(first_micros)], [int(last), int(micros)]:
            total = f"{last - first + (micros - first_micros) / 1_000_000:.6f} seconds"
    facts = Facts([("Job ID", job_id), ("Status", status)])
    moments = ((received, None), (start, received), (end, start))
    facts += [_at(title, *times) for title, times in zip(_TIMES, moments, strict=True)]
    facts += [("Total processing time", total), ("Opcodes", _opcodes(*opcodes))]
    by = "reason" if str(held_by).startswith(RATE_LIMIT_PREFIX) else "job filter"
    more = (("Archived", is_archived), (f"Held by {by}", held_by))  # not in 3.0
    facts += [(title, value) for title, value in more if value]
    return facts


def info(context: Context, _options: Options, args: list[str]) -> None:
    """Show jobs."""
    rows = context.client.query_jobs([parse_job_id(arg) for arg in args], _FIELDS)
    names = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
    for name, row in zip(args, names, strict=True):
        row["id"] = name if row["id"] is None else row["id"]
    context.terminal.write_lines(format_report([describe(list(row.values())) for row in names]))


def wait(context: Context, _options: Options, args: list[str]) -> None:
    """Wait until a job has ended; archived ones have.  An error of the job is told as such."""
    job_id = parse_job_id(args[0])
    for _ in changes(context, job_id):
        pass
    results_of(context, job_id)


def watch(context: Context, _options: Options, args: list[str]) -> int:
    """Follow a job's messages until it has ended."""
    job_id = parse_job_id(args[0])
    context.write(f"Output from job {job_id} follows")
    context.write("-" * 40)
    try:
        follow(context, job_id)
    except JobLost as err:
        raise OpPrereqError(err.message, ErrorCode.NOENT) from err
    except GenericError as err:
        context.terminal.error(explain(err)[0])
        return EXIT_FAILURE
    context.write("Job ended successfully")
    return EXIT_SUCCESS


ARCHIVE_TIMEOUT_S: Final = 30  # the rest is left for the next call, and told
ALL: Final = -1  # an age: all jobs that ended


def parse_job_id(text: str) -> JobId:
    """Parse a job number.

    Raises:
        OpPrereqError: not one.
    """
    if not is_job_number(text):
        raise OpPrereqError(f"{text[:50]!r} is not a job number")
    return JobId(int(text))


def archive(context: Context, _options: Options, args: list[str]) -> int:
    """Take finished jobs out of the queue."""
    jobs = [parse_job_id(arg) for arg in args]
    kept = [job_id for job_id in jobs if not context.client.archive_job(job_id)]
    for job_id in kept:
        context.terminal.error(f"Failed to archive job {job_id}: unknown, or not ended yet")
    return EXIT_FAILURE if kept else EXIT_SUCCESS


def autoarchive(context: Context, _options: Options, args: list[str]) -> None:
    """Take all jobs out of the queue that finished long enough ago."""
    [text] = args
    age_s = ALL if text == "all" else parse_duration(text)
    archived, left = context.client.auto_archive_jobs(age_s, ARCHIVE_TIMEOUT_S)
    context.write(f"Archived {archived} jobs, {left} unchecked left")


def _selected(context: Context, options: Options, args: Sequence[str]) -> list[JobId]:
    """Return the jobs that the arguments name, or that have one of the statuses asked for."""
    if options.status_filter is None:
        if not args:
            raise OpPrereqError("give job numbers, or one of --pending, --queued and --waiting")
        return [parse_job_id(arg) for arg in args]
    if args:
        raise OpPrereqError("give either job numbers or a status, not both")
    qfilter = ["|", *(["==", "status", status] for status in options.status_filter)]
    rows = context.client.query("job", ["id", "status", "summary"], qfilter).rows()
    if rows and not options.force:
        for job_id, status, summary in rows:
            words = ", ".join(str(word) for word in summary) if isinstance(summary, list) else ""
            context.write(f"  {job_id} {status} {words}")
        confirm(context, f"These are {len(rows)} jobs.  Go on?")
    return [JobId(job_id) for job_id, *_ in rows if isinstance(job_id, int)]


def _each(
    context: Context, jobs: Sequence[JobId], change: Callable[[JobId], tuple[bool, str]]
) -> int:
    """Change jobs one by one, also after a failure; returns the exit status."""
    failures = 0
    for job_id in jobs:
        try:
            done, message = change(job_id)
        except (JobLost, JobQueueError) as err:
            done, message = False, err.message
        (context.write if done else context.terminal.error)(message)
        failures += not done
    return EXIT_FAILURE if failures else EXIT_SUCCESS


def cancel(context: Context, options: Options, args: list[str]) -> int:
    """Cancel jobs."""
    if options.kill and not options.yes_do_it:
        raise OpPrereqError("--kill may leave things half done; it also needs --yes-do-it")
    client = context.client
    jobs = _selected(context, options, args)
    return _each(context, jobs, lambda job_id: client.cancel_job(job_id, kill=options.kill))


def change_priority(context: Context, options: Options, args: list[str]) -> int:
    """Change the priority of jobs that have not begun."""
    if options.priority is None:
        raise OpPrereqError("give --priority=low, normal or high")
    client = context.client
    jobs = _selected(context, options, args)
    return _each(context, jobs, lambda job_id: client.change_job_priority(job_id, options.priority))


_STATUSES = (
    PENDING,
    state("--queued", "jobs in the queue", ("queued",)),
    state("--waiting", "jobs that wait for locks or other jobs", ("waiting",)),
)
COMMANDS: Final = (
    command(
        archive, "<job-id>...@finished-job", examples="gnt-job archive 12 13  # archive two jobs"
    ),
    command(
        autoarchive,
        opt.Argument(ArgKind.SUGGEST, choices=("1d", "1w", "4w", "all"), metavar="<age>|all"),
        examples="gnt-job autoarchive 1d  # archive jobs that ended a day ago or earlier",
    ),
    command(
        cancel,
        "[<job-id>...]@pending-job --force --yes-do-it",
        opt.flag("--kill", "kill the process of a running job"),
        _STATUSES,
        description="""Give job numbers, or one of --pending, --queued and --waiting.  Queued
and waiting jobs end as canceled.  A running job ends when it waits next, and undoes what it has
begun.  With --kill, which also asks for --yes-do-it, its process ends at once: nothing is undone,
and what it left is mended by the next command on the same object.""",
        examples="""
gnt-job cancel 12  # cancel job 12
gnt-job cancel --kill --yes-do-it 12  # kill job 12 even when it runs""",
    ),
    command(
        change_priority,
        "[<job-id>...]@pending-job --force --priority",
        _STATUSES,
        examples="gnt-job change-priority --priority=high 12  # let job 12 go first",
    ),
    command(
        info,
        "<job-id>...",
        aliases=("show",),
        examples="""
gnt-job info 12  # parameters, messages and result of a job""",
    ),
    command(
        wait,
        "<job-id>@unfinished-job",
        examples="""
gnt-job wait 12  # until it ends; exit status and error message say how, also of an archived one""",
    ),
    command(
        watch,
        "<job-id>@unfinished-job",
        examples="""
gnt-job watch 12  # show its messages as they come""",
    ),
)
