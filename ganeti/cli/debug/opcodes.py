"""``gnt-debug`` delay, locks and submit-job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import OpCodeUnknown, OpPrereqError, refusing
from ganeti.base.ids import JobId
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, command, opt
from ganeti.cli.declaration.values import PRIORITIES
from ganeti.cli.run.binding import submit
from ganeti.cli.run.jobs import follow_all, read_json, with_common
from ganeti.cli.run.listing import print_response, select_fields
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.test import OpTestDelay
from ganeti.system import clock

LOCK_FIELDS = ("name", "mode", "owner", "pending")


def delay(context: Context, options: Options, args: list[str]) -> None:
    """Run a job that only takes time."""
    try:
        duration = float(args[0])
    except ValueError as err:
        raise OpPrereqError(f"{args[0]!r} is not a number of seconds") from err
    if not math.isfinite(duration):
        raise OpPrereqError(f"{args[0]!r} is not a time that ends")
    submit(context, options, [], duration=duration)


def locks(context: Context, options: Options, _args: list[str]) -> int:
    """List locks."""
    fields = select_fields(options.output, LOCK_FIELDS)
    formats = {"owner": _owners, "pending": _pending, "priorities": _priorities}
    while True:
        response = context.client.query("lock", fields)
        status = print_response(context, options, response, formats, fields_of="lock")
        if options.interval is None:
            return status
        context.write()
        clock.pause(max(options.interval, 1))


def _owners(value: object) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, list) else "-"


def _pending(value: object) -> str:
    """Return the waiting owners of a lock: ``mode:owner,owner;...``."""
    if not isinstance(value, list) or not value:
        return "-"
    return ";".join(
        f"{item[0]}:{_owners(item[1])}" if isinstance(item, list) and len(item) == 2 else str(item)
        for item in value
    )


def _priorities(value: object) -> str:
    """Return the priority of each waiting owner, most urgent first: ``owner:high,...``."""
    if not isinstance(value, list) or not value:
        return "-"
    words = {number: word for word, number in PRIORITIES.items()}
    return ",".join(f"{owner}:{words.get(number, number)}" for owner, number in value)


def submit_job(context: Context, options: Options, args: list[str]) -> int:
    """Submit opcodes from JSON files."""
    for flag, times in (("--job-repeat", options.job_repeat), ("--op-repeat", options.op_repeat)):
        if times < 1:
            raise OpPrereqError(f"{flag} must be at least 1, not {times}")
    started = clock.monotonic()
    names = [path for path in args for _ in range(options.job_repeat)]
    jobs = [
        [with_common(context, options, opcode) for opcode in _repeated(path, options.op_repeat)]
        for path in names
    ]
    if options.each:
        answers: list[tuple[bool, JobId | str]] = [
            (True, context.client.submit_job(job)) for job in jobs
        ]
    else:
        answers = context.client.submit_many_jobs(jobs)
    submitted = []
    for name, (accepted, said) in zip(names, answers, strict=True):
        if accepted:
            submitted.append((name, JobId(int(said))))
        else:
            context.terminal.error(f"Failed to submit {name}: {said}")
    accepted_at = clock.monotonic()
    failures = len(answers) - len(submitted) + follow_all(context, submitted)
    if options.timing_stats:
        ended = clock.monotonic()
        _show_times(context, jobs, accepted_at - started, ended - accepted_at)
    return EXIT_FAILURE if failures else EXIT_SUCCESS


def _show_times(
    context: Context, jobs: Sequence[Sequence[object]], submit_s: float, run_s: float
) -> None:
    opcodes = sum(len(job) for job in jobs)
    context.write(f"C:op     {opcodes:4d}")
    context.write(f"C:job    {len(jobs):4d}")
    context.write(f"T:submit {submit_s:8.4f} s")
    context.write(f"T:exec   {run_s:8.4f} s")
    context.write(f"T:total  {submit_s + run_s:8.4f} s")


def _repeated(path: str, times: int) -> list[Mapping[str, object]]:
    """Return the opcodes of a file, so many times.

    Raises:
        OpPrereqError, GenericError: it cannot be read, or holds something else than opcodes.
    """
    found = read_json(path)
    opcodes: list[Mapping[str, object]] = []
    for opcode in found if isinstance(found, list) else [found]:
        if not isinstance(opcode, Mapping) or not isinstance(opcode.get("OP_ID"), str):
            raise OpPrereqError(f'{path}: an opcode is an object with the key "OP_ID"')
        with refusing(OpPrereqError, OpCodeUnknown, prefix=f"{path}: "):
            decode_opcode(opcode)
        opcodes.append(opcode)
    return opcodes * times


COMMANDS: Final = (
    command(
        delay,
        "<seconds> CHANGE",
        opt.flag("-i --interruptible", "let the job be ended through its socket"),
        opt.several("-n -> on_nodes", "also wait on this node", completes=ArgKind.NODE),
        opt.flag("-l --no-locks", "take no locks"),
        opt.unflag("--no-master -> on_master", "do not wait on the master"),
        opt.number("-r --repeat=N", "how often more to wait", default=0),
        examples="gnt-debug delay 2  # a job of two seconds",
        opcode=OpTestDelay,
    ),
    command(
        locks,
        "LISTING",
        opt.number("--interval", "show them again every so many seconds"),
        description="""For each lock that is held or waited for: how it is held and by
whom, who waits for it in which mode, and with which priority, the most urgent first.""",
        examples="""
gnt-debug locks  # the owners of each lock, and its waiters
gnt-debug locks --interval=2  # the same every two seconds, until Ctrl-C""",
    ),
    command(
        submit_job,
        "<file>... --dry-run --priority --verbose",
        opt.flag("--each", "one job for each file, one submission for each job"),
        opt.number("--job-repeat=N", "how many jobs of each file", default=1),
        opt.number("--op-repeat=N", "how often each opcode in a job", default=1),
        opt.flag("--timing-stats", "show how long it took"),
        description="""Each file holds one opcode or a list of them, as JSON objects with the
key OP_ID.""",
    ),
)
