"""``gnt-job`` archive, autoarchive, cancel and change-priority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ganeti.base.errors import JobLost, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.cli.commands.cluster.queue import parse_duration
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS

ARCHIVE_TIMEOUT_S: Final = 30  # the rest is left for the next call, and told
ALL: Final = -1  # an age: all jobs that ended


def parse_job_id(text: str) -> JobId:
    """Parse a job number.

    Raises:
        OpPrereqError: not one.
    """
    if not text.isascii() or not text.isdigit():
        raise OpPrereqError(f"{text!r} is not a job number")
    return JobId(int(text))


def archive(context: Context, _options: Options, args: list[str]) -> int:
    """Take finished jobs out of the queue."""
    status = EXIT_SUCCESS
    for job_id in [parse_job_id(arg) for arg in args]:
        if not context.client.archive_job(job_id):
            context.terminal.error(f"Failed to archive job {job_id}: unknown, or not ended yet")
            status = EXIT_FAILURE
    return status


def autoarchive(context: Context, _options: Options, args: list[str]) -> int:
    """Take all jobs out of the queue that finished long enough ago."""
    [text] = args
    age_s = ALL if text == "all" else parse_duration(text)
    archived, left = context.client.auto_archive_jobs(age_s, ARCHIVE_TIMEOUT_S)
    context.write(f"Archived {archived} jobs, {left} unchecked left")
    return EXIT_SUCCESS


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
    """Change jobs one by one, whatever becomes of the others; returns the exit status."""
    status = EXIT_SUCCESS
    for job_id in jobs:
        try:
            done, message = change(job_id)
        except JobLost as err:
            done, message = False, err.message
        if done:
            context.write(message)
        else:
            context.terminal.error(message)
            status = EXIT_FAILURE
    return status


def cancel(context: Context, options: Options, args: list[str]) -> int:
    """Cancel jobs; the exit status tells whether all will end."""
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
