"""``gnt-job`` info, wait and watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, JobLost, OpPrereqError, decode_error
from ganeti.cli.commands.job_queue import parse_job_id
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS, explain
from ganeti.cli.run.jobs import FINAL_STATUSES, changes, follow
from ganeti.cli.run.report import Facts, format_report
from ganeti.cli.run.table import format_time

FIELDS: Final = (
    "id",
    "status",
    "ops",
    "opresult",
    "opstatus",
    "oplog",
    "opstart",
    "opexec",
    "opend",
    "received_ts",
    "start_ts",
    "end_ts",
    "archived",
)


def info(context: Context, _options: Options, args: list[str]) -> int:
    """Show jobs."""
    rows = context.client.query_jobs([parse_job_id(arg) for arg in args], FIELDS)
    status = EXIT_SUCCESS
    found = []
    for job_id, row in zip(args, rows, strict=True):
        job = dict(zip(FIELDS, row, strict=True))
        if job["status"] is None:
            context.terminal.error(f"Job ID {job_id} not found")
            status = EXIT_FAILURE
        else:
            found.append(describe(job))
    context.terminal.write_lines(format_report(found))
    return status


def describe(job: Mapping[str, object]) -> Facts:
    """Return what is shown of a job."""
    facts = Facts(
        [
            ("Job ID", job["id"]),
            ("Status", job["status"]),
            ("Received", format_time(job["received_ts"])),
            ("Processing start", format_time(job["start_ts"])),
            ("Processing end", format_time(job["end_ts"])),
            ("Archived", bool(job["archived"])),
        ]
    )
    columns = [_list(job[name]) for name in ("ops", "opstatus", "opresult", "oplog")]
    times = [_list(job[name]) for name in ("opstart", "opexec", "opend")]
    opcodes = []
    for position, opcode in enumerate(columns[0]):
        status, result, log = (_at(column, position) for column in columns[1:])
        start, execution, end = (_at(column, position) for column in times)
        opcodes.append(_opcode(opcode, status, result, log, start, execution, end))
    facts.append(("Opcodes", opcodes))
    return facts


def _opcode(
    opcode: object,
    status: object,
    result: object,
    log: object,
    start: object,
    execution: object,
    end: object,
) -> Facts:
    parameters = dict(opcode) if isinstance(opcode, Mapping) else {}
    name = parameters.pop("OP_ID", "?")
    facts = Facts(
        [
            ("Opcode", name),
            ("Status", status),
            ("Processing start", format_time(start)),
            ("Execution start", format_time(execution)),
            ("Processing end", format_time(end)),
            ("Input fields", parameters),
        ]
    )
    if status == "error" and isinstance(result, list):
        facts.append(("Result", explain(decode_error(result))[0].replace("\n", " ")))
    else:
        facts.append(("Result", result))
    lines = []
    for entry in _list(log):
        match entry:
            case [_, [int(seconds), int()], _, payload]:
                lines.append(f"{format_time([seconds, 0])} {payload}")
            case _:
                lines.append(str(entry))
    facts.append(("Execution log", lines))
    return facts


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _at(column: Sequence[object], position: int) -> object:
    return column[position] if position < len(column) else None


def wait(context: Context, _options: Options, args: list[str]) -> int:
    """Wait until a job has ended; the exit status tells how."""
    job_id = parse_job_id(args[0])
    status = ""
    for change in changes(context, job_id):
        status = str(change.fields[0]) if change.fields else ""
        if status in FINAL_STATUSES:
            break
    return EXIT_SUCCESS if status == "success" else EXIT_FAILURE


def watch(context: Context, _options: Options, args: list[str]) -> int:
    """Follow a job's messages until it has ended; the exit status tells how."""
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
