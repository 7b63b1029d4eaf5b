"""``gnt-job``: the job queue."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import (
    ArgKind,
    Argument,
    Command,
    Option,
    Program,
    constant,
    flag,
)

_ONE_JOB = (Argument(ArgKind.JOB_ID),)
_JOBS = (Argument(ArgKind.JOB_ID, 1, None),)
_ANY_JOBS = (Argument(ArgKind.JOB_ID, 0, None),)


def _state(name: str, help: str, statuses: tuple[str, ...]) -> Option:
    return constant(name, help=help, dest="status_filter", const=statuses)


_PENDING = _state("--pending", "jobs that have not begun", ("canceling", "queued", "waiting"))
_QUEUED = _state("--queued", "jobs in the queue", ("queued",))
_WAITING = _state("--waiting", "jobs that wait for locks", ("waiting",))

PROGRAM = Program(
    "gnt-job",
    "look at and act on the job queue",
    """Every change of the cluster is a job.  Jobs wait in a queue, run in their own process, and
keep their log and result.  Runs on the master node.""",
    (
        Command(
            "archive",
            "take finished jobs out of the queue",
            "job_queue:archive",
            _JOBS,
            examples=(("gnt-job archive 12 13", "archive two jobs"),),
        ),
        Command(
            "autoarchive",
            "take all jobs out of the queue that finished long enough ago",
            "job_queue:autoarchive",
            (Argument(ArgKind.SUGGEST, choices=("1d", "1w", "4w", "all"), metavar="<age>|all"),),
            examples=(("gnt-job autoarchive 1d", "archive what finished a day ago or earlier"),),
        ),
        Command(
            "cancel",
            "cancel jobs",
            "job_queue:cancel",
            _ANY_JOBS,
            (
                opt.FORCE,
                flag("--kill", help="kill the process of a running job"),
                _PENDING,
                _QUEUED,
                _WAITING,
                opt.YES_DO_IT,
            ),
            description="""Give job numbers, or one of --pending, --queued and --waiting.  Queued
and waiting jobs end as canceled.  A running job ends when it waits next, and undoes what it has
begun.  With --kill, which also asks for --yes-do-it, its process ends at once: nothing is undone,
and what it left is mended by the next command on the same object.""",
            examples=(
                ("gnt-job cancel 12", "cancel job 12"),
                ("gnt-job cancel --kill --yes-do-it 12", "kill job 12 even when it runs"),
            ),
        ),
        Command(
            "change-priority",
            "change the priority of jobs that have not begun",
            "job_queue:change_priority",
            _ANY_JOBS,
            (opt.FORCE, _PENDING, opt.PRIORITY, _QUEUED, _WAITING),
            examples=(("gnt-job change-priority --priority=high 12", "let job 12 go first"),),
        ),
        Command("info", "show jobs", "job_info:info", _JOBS, aliases=("show",)),
        Command(
            "list",
            "list jobs",
            "lists:jobs",
            _ANY_JOBS,
            (
                flag("--archived", help="archived jobs too"),
                _state("--error", "only jobs that failed", ("error",)),
                opt.FORCE_FILTER,
                _state("--finished", "only jobs that ended", ("canceled", "error", "success")),
                _PENDING,
                _state("--running", "only jobs that run", ("running",)),
                *opt.LISTING,
            ),
            examples=(
                ("gnt-job list --running", "what is being done now"),
                ("gnt-job list -o +received_ts,opresult --error", "what failed, and why"),
            ),
        ),
        Command(
            "list-fields",
            "list the fields of jobs",
            "lists:job_fields",
            opt.ANY_FIELDS,
            opt.FIELD_LISTING,
        ),
        Command("wait", "wait until a job has ended", "job_info:wait", _ONE_JOB),
        Command("watch", "follow a job's messages until it has ended", "job_info:watch", _ONE_JOB),
    ),
)


def main() -> int:
    """Run ``gnt-job`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
