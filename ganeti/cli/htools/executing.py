"""Moves carried out by jobs: a set at a time, the next once all jobs of one have succeeded.

The jobs of a set run side by side.  Whoever is tired of it can end it two ways: an interrupt
(Ctrl-C) lets the jobs of the present set end and submits no more; SIGTERM ends the program at once.
Jobs that were submitted go on without it.

Source: manual page hbal(1), "Signal handling" and "Exit status".
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from msgspec import Struct

from ganeti.base.ids import JobId
from ganeti.base.json import JsonValue
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options
from ganeti.cli.run.jobs import follow_all, with_common

EXIT_TERMINATED: Final = 2


class Job(Struct, frozen=True):
    """A job for an instance: its opcodes in their JSON form."""

    instance: str
    opcodes: Sequence[dict[str, JsonValue]]


class _TerminatedError(Exception):
    """Somebody has sent SIGTERM."""


class _Wishes:
    """What the user has asked for by signals; ``submitted`` are the jobs of the present set."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.is_enough = False
        self.submitted: list[tuple[str, JobId]] = []

    def stop_after_set(self, _number: int, _frame: FrameType | None) -> None:
        """Submit no more jobs."""
        if not self.is_enough:
            self._context.terminal.error(
                "Interrupted: waiting for the jobs that were submitted; there will be no others."
            )
        self.is_enough = True

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Wait no longer."""
        raise _TerminatedError


@contextmanager
def _heeding_signals(context: Context) -> Iterator[_Wishes]:
    wishes = _Wishes(context)
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, wishes.stop_after_set),
        signal.SIGTERM: signal.signal(signal.SIGTERM, wishes.stop),
    }
    try:
        yield wishes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def carry_out(context: Context, options: Options, sets: Sequence[Sequence[Job]]) -> int:
    """Submit sets of jobs, each when the one before it has succeeded; returns the exit status.

    With ``--first-job-group`` only the first set is submitted.
    """
    chosen = sets[:1] if options.get("first_job_group") else sets
    with _heeding_signals(context) as wishes:
        try:
            for number, jobs in enumerate(chosen, 1):
                names = ", ".join(job.instance for job in jobs)
                context.write(f"Executing jobset {number} of {len(sets)} for instances {names}")
                failures = _run(context, options, jobs, wishes)
                left = len(sets) - number
                if failures:
                    context.terminal.error(
                        f"{failures} of {len(jobs)} jobs of jobset {number} failed;"
                        f" jobsets not submitted: {left}"
                    )
                    return EXIT_FAILURE
                if wishes.is_enough:
                    context.write(f"Stopped as asked; jobsets not submitted: {left}")
                    break
        except _TerminatedError:
            numbers = " ".join(str(number) for _, number in wishes.submitted)
            context.terminal.error(f"Terminated; jobs that were submitted go on: {numbers or '-'}")
            return EXIT_TERMINATED
    return EXIT_SUCCESS


def _run(context: Context, options: Options, jobs: Sequence[Job], wishes: _Wishes) -> int:
    """Submit a set of jobs and wait for all of them; returns how many failed."""
    wire = [[with_common(context, options, each) for each in job.opcodes] for job in jobs]
    wishes.submitted = []
    for job, (accepted, said) in zip(jobs, context.client.submit_many_jobs(wire), strict=True):
        if accepted and isinstance(said, int):
            wishes.submitted.append((job.instance, said))
        else:
            context.terminal.error(f"Failed to submit the job for {job.instance}: {said}")
    if wishes.submitted:
        context.write(f"Got job IDs {','.join(str(number) for _, number in wishes.submitted)}")
    return len(jobs) - len(wishes.submitted) + follow_all(context, wishes.submitted)
