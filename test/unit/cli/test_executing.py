"""Jobs of moves, a set after the other, and what signals do to them."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fakes.luxi_client import FakeLuxiClient

from ganeti.base.ids import JobId
from ganeti.cli.declaration.parser import Options
from ganeti.cli.declaration.program import Command
from ganeti.cli.htools.executing import Job, carry_out
from ganeti.cli.run.context import Context, Terminal

SETS = [
    [Job("a", [{"OP_ID": "OP_INSTANCE_MIGRATE"}]), Job("b", [{"OP_ID": "OP_INSTANCE_MIGRATE"}])],
    [Job("c", [{"OP_ID": "OP_INSTANCE_REPLACE_DISKS"}, {"OP_ID": "OP_INSTANCE_MIGRATE"}])],
    [Job("d", [{"OP_ID": "OP_INSTANCE_MIGRATE"}])],
]
FAILED: tuple[str, list[object], list[str]] = ("error", [["OpExecError", ["no memory"]]], [])
FINE: tuple[str, list[object], list[str]] = ("success", [None], ["* moving"])


class Client(FakeLuxiClient):
    """Sends a signal to this process while somebody waits for a job."""

    signals: dict[int, signal.Signals]

    def submit_many_jobs(
        self, jobs: Sequence[Sequence[Mapping[str, Any]]]
    ) -> list[tuple[bool, JobId | str]]:
        self.sets.append(len(jobs))
        return super().submit_many_jobs(jobs)

    def __init__(self, *scripts: Any) -> None:
        super().__init__(*scripts)
        self.signals = {}
        self.sets: list[int] = []

    def wait_for_job_change(self, job_id: JobId, *rest: Any, **more: Any) -> Any:
        number = self.signals.pop(job_id, None)
        if number is not None:
            os.kill(os.getpid(), number)
        return super().wait_for_job_change(job_id, *rest, **more)


class Run:
    def __init__(self, *scripts: Any, **options: Any) -> None:
        self.client = Client(*scripts)
        self._out, self._err = io.StringIO(), io.StringIO()
        self.options = Options({"reason": None, "luxi": "", **options})
        terminal = Terminal(self._out, self._err, io.StringIO())
        self.context = Context("hbal", Command("hbal", "balance"), self.options, terminal)
        self.context._client = self.client  # type: ignore[assignment]  # the fake

    def __call__(self) -> int:
        return carry_out(self.context, self.options, SETS)

    @property
    def out(self) -> str:
        return self._out.getvalue()

    @property
    def err(self) -> str:
        return self._err.getvalue()


def test_sets_follow_each_other() -> None:
    run = Run(FINE)
    assert run() == 0
    assert run.client.sets == [2, 1, 1]
    lines = run.out.splitlines()
    assert lines[0] == "Executing jobset 1 of 3 for instances a, b"
    assert lines[1] == "Got job IDs 1,2"
    assert "Executing jobset 3 of 3 for instances d" in lines
    assert any(line.endswith("* moving") for line in lines)
    assert [op["OP_ID"] for op in run.client.submitted[2]] == [
        "OP_INSTANCE_REPLACE_DISKS",
        "OP_INSTANCE_MIGRATE",
    ]


def test_jobs_have_priority_and_reason() -> None:
    run = Run(FINE, priority=10, reason="quarter")
    run()
    for job in run.client.submitted:
        for each in job:
            assert each["priority"] == 10
            sources = [(source, text) for source, text, _ in each["reason"]]
            assert sources == [("gnt:user", "quarter"), ("gnt:client:hbal", "hbal")]


def test_only_the_first_set_if_so_wanted() -> None:
    run = Run(FINE, first_job_group=True)
    assert run() == 0
    assert run.client.sets == [2]


def test_a_failure_ends_it_after_its_set() -> None:
    run = Run(FAILED, FINE)
    assert run() == 1
    assert run.client.sets == [2]
    assert "Job 1 for a has failed: " in run.err
    assert "no memory" in run.err
    assert "1 of 2 jobs of jobset 1 failed; jobsets not submitted: 2" in run.err


def test_a_job_that_is_not_accepted_is_a_failure() -> None:
    run = Run(FINE)
    run.client.refused = {1: "the queue is full"}
    assert run() == 1
    assert "Failed to submit the job for b: the queue is full" in run.err
    assert "Waiting for job 1 for a" in run.out
    assert run.client.sets == [2]


def test_an_interrupt_lets_the_present_set_end() -> None:
    run = Run(FINE)
    run.client.signals = {1: signal.SIGINT}
    assert run() == 0
    assert run.client.sets == [2]
    assert "Waiting for job 2 for b" in run.out
    assert "jobsets not submitted: 2" in run.out
    assert "waiting for the jobs that were submitted" in run.err


def test_an_interrupted_set_with_a_failure_is_a_failure() -> None:
    run = Run(FINE, FAILED)
    run.client.signals = {1: signal.SIGINT}
    assert run() == 1


def test_sigterm_ends_it_at_once() -> None:
    run = Run(FINE)
    run.client.signals = {1: signal.SIGTERM}
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert run() == 2
    assert run.client.sets == [2]
    assert "Waiting for job 2" not in run.out
    assert run.err.splitlines()[-1] == "Terminated; jobs that were submitted go on: 1 2"
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_afterwards_an_interrupt_is_one_again() -> None:
    # A shell starts what runs in the background with SIGINT ignored; Python keeps it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        Run(FINE)()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
