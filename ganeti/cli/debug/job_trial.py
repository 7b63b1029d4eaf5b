"""``gnt-debug`` test-jobqueue and test-osparams: the job queue tried out from outside.

Each check submits jobs that do nothing and compares their ends with the expected ones.

Source: constants.json, "JQT_*" and "ELOG_JQUEUE_TEST".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import GenericError, OpCodeUnknown, OpExecError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.cli.command import Context, Options, command, job
from ganeti.cli.run.jobs import FINAL_STATUSES, changes, with_common
from ganeti.opcodes.test import OpTestOsParams
from ganeti.transport.rendezvous import visit

NOTIFICATION: Final = "jqueue-test"
MESSAGE_PREFIX: Final = "TESTMSG="
VISIT_TIMEOUT_S: Final = 10.0
# The state of a job at each notification.
STATUS_AT: Final = {
    "expandnames": "waiting",
    "exec": "running",
    "startmsg": "running",
    "logmsg": "running",
}

Wire = dict[str, object]


def try_queue(context: Context, options: Options, _args: list[str]) -> None:
    """Run all checks; the first that fails ends the command."""
    trial = Trial(context, options)
    for text, check in (
        ("submission of good and bad jobs", trial.submission),
        ("dependencies", trial.dependencies),
        ("a job that succeeds, in each of its states", lambda: trial.states(fail=False)),
        ("a job that fails, in each of its states", lambda: trial.states(fail=True)),
        ("a job of several opcodes", trial.sequence),
        ("cancellation of a job that waits", trial.cancellation),
    ):
        context.write(f"Testing {text} ...")
        check()
    context.write("All is as it should be")


class Trial:
    """The checks; each raises OpExecError if something is not as it should be."""

    def __init__(self, context: Context, options: Options) -> None:
        self._context = context
        self._options = options
        self._client = context.client

    def _op(self, op_id: str, **params: object) -> Wire:
        return with_common(self._context, self._options, {"OP_ID": op_id, **params})

    def _delay(self, **params: object) -> Wire:
        return self._op("OP_TEST_DELAY", duration=0, **params)

    def _end(self, job_id: JobId) -> str:
        """Wait for the end of a job; returns its status."""
        for change in changes(self._context, job_id):
            if change.fields and change.fields[0] in FINAL_STATUSES:
                return str(change.fields[0])
        raise OpExecError(f"job {job_id} never ended")

    # The checks.

    def submission(self) -> None:
        """Jobs in one message get numbers in a row; if one is not valid, none is accepted.

        What is valid but cannot be, as to wait for a job that is not there, is refused by itself.
        """
        good = [self._delay()]
        for bad in ([self._delay(priority=1000)], [], [self._op("OP_NO_SUCH_THING")]):
            try:
                answers = self._client.submit_many_jobs([good, bad])
            except (OpPrereqError, OpCodeUnknown):
                continue
            raise OpExecError(f"the job queue took {bad!r} in: {answers!r}")
        answers = self._client.submit_many_jobs(
            [
                good,
                [self._delay(depends=[[-5, ["success"]]])],
                [self._delay(priority=-10), self._delay(priority=10)],
                good,
            ]
        )
        expect([accepted for accepted, _ in answers], [True, False, True, True])
        numbers = [int(said) for accepted, said in answers if accepted]
        expect(numbers, [numbers[0], numbers[0] + 1, numbers[0] + 2])
        for _, said in answers:
            expect(bool(said), True)
        expect([self._end(JobId(number)) for number in numbers], ["success"] * 3)

    def dependencies(self) -> None:
        """Jobs start after the jobs that they depend on, or end with them."""
        fails = self._op("OP_TEST_JQUEUE", fail=True)
        jobs = [
            [self._delay()],
            [self._delay(depends=[[-1, ["success"]]])],
            [fails],
            [self._delay(depends=[[-1, ["success"]]])],
            [self._delay(depends=[[-2, ["error"]]])],
        ]
        numbers = self._submitted(self._client.submit_many_jobs(jobs))
        statuses = [self._end(number) for number in numbers]
        expect(statuses, ["success", "success", "error", "error", "success"])
        rows = self._client.query_jobs(numbers[:2], ["start_ts", "end_ts"])
        if not stamp(rows[1][0]) >= stamp(rows[0][1]):
            raise OpExecError(f"job {numbers[1]} started before job {numbers[0]} had ended")

    def states(self, *, fail: bool) -> None:
        """A job stops at each notification, and is there in just the state that it should be in."""
        messages = ["one", "two", "and three"]
        job_id = self._client.submit_job(
            [
                self._op(
                    "OP_TEST_JQUEUE",
                    notify_waitlock=True,
                    notify_exec=True,
                    log_messages=messages,
                    fail=fail,
                )
            ]
        )
        seen, logged = self._follow(job_id)
        expect(seen, ["expandnames", "exec", "startmsg", *(["logmsg"] * len(messages))])
        expect(logged, messages)
        [[status]] = self._client.query_jobs([job_id], ["status"])
        expect(status, "error" if fail else "success")

    def sequence(self) -> None:
        """Opcodes run one after the other; one that fails ends the job."""
        job_id = self._client.submit_job(
            [
                self._op("OP_TEST_JQUEUE", notify_waitlock=True, log_messages=["first"]),
                self._op("OP_TEST_JQUEUE", notify_exec=True),
                self._op("OP_TEST_JQUEUE", fail=True),
                self._op("OP_TEST_JQUEUE", log_messages=["never"]),
            ]
        )
        seen, logged = self._follow(job_id)
        expect(seen, ["expandnames", "exec"])
        expect(logged, ["first"])
        [[statuses]] = self._client.query_jobs([job_id], ["opstatus"])
        expect(statuses, ["success", "success", "error", "error"])

    def cancellation(self) -> None:
        """A job that waits is canceled, and none of its opcodes runs."""
        [first, second] = self._submitted(
            self._client.submit_many_jobs(
                [
                    [self._op("OP_TEST_JQUEUE", notify_exec=True)],
                    [self._delay(depends=[[-1, ["success"]]])],
                ]
            )
        )
        done, text = self._client.cancel_job(second)
        expect((done, bool(text)), (True, True))
        expect(self._end(second), "canceled")
        self._follow(first)

    # Watching.

    def _submitted(self, answers: Sequence[tuple[bool, JobId | str]]) -> list[JobId]:
        refused = [str(said) for accepted, said in answers if not accepted]
        if refused:
            raise OpExecError(f"jobs were refused: {'; '.join(refused)}")
        return [JobId(int(said)) for _, said in answers]

    def _follow(self, job_id: JobId) -> tuple[list[str], list[str]]:
        """Visit a job wherever it waits; returns the notifications and messages that it gave."""
        seen: list[str] = []
        logged: list[str] = []
        for change in changes(self._context, job_id):
            for entry in change.log_entries:
                match entry.payload:
                    case [str(path), str(kind), _] if entry.kind == NOTIFICATION:
                        self._visit(job_id, path, kind)
                        seen.append(kind)
                    case str(text):
                        logged.append(text.removeprefix(MESSAGE_PREFIX))
        return seen, logged

    def _visit(self, job_id: JobId, path: str, kind: str) -> None:
        try:
            with visit(path, VISIT_TIMEOUT_S):
                [[status]] = self._client.query_jobs([job_id], ["status"])
                expect(status, STATUS_AT.get(kind))
        except OSError as err:
            raise GenericError(f"job {job_id} cannot be reached at {path}: {err.strerror}") from err


def stamp(value: object) -> tuple[int, ...]:
    """Return a time, [seconds, microseconds], as something that can be compared."""
    return tuple(value) if isinstance(value, list) else ()


def expect(found: object, expected: object) -> None:
    """Check a result.

    Raises:
        OpExecError: it is another one.
    """
    if found != expected:
        raise OpExecError(f"the job queue gave {found!r}, not {expected!r}")


COMMANDS: Final = (
    command(
        try_queue,
        "--priority",
        title="test-jobqueue: try the job queue out",
        description="""Submits good and bad jobs, jobs that depend on each other, and jobs that
stop in each of their states to be looked at.  It ends with the first thing that is not as it should
be.  Nothing of the cluster is changed.""",
    ),
    job(
        "test-osparams: show that secret parameters stay secret",
        OpTestOsParams,
        "--os-parameters-secret --print-jobid --submit",
    ),
)
