"""Jobs: submitted, followed, and how their end is told."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.luxi_client import FakeLuxiClient

from ganeti.base.errors import JobCanceled, OpExecError, OpPrereqError, TransportError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.cli.cluster.modify import redist_conf
from ganeti.cli.declaration.parser import Options, parse
from ganeti.cli.declaration.program import Command
from ganeti.cli.programs import named
from ganeti.cli.run import jobs
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.failures import JobSubmitted, explain
from ganeti.opcodes.test import OpTestDelay
from ganeti.store.availability import State, write_state

EPOCH = time.ctime(0)
COMMAND = Command("delay", "wait")


class Run:
    """A command's surroundings with a fake LuxiD and a terminal to look at."""

    def __init__(self, *scripts: tuple[str, list[object], list[str]], **options: Any) -> None:
        self.client = FakeLuxiClient(*scripts)
        self.out, self.err = io.StringIO(), io.StringIO()
        self.options = Options({"reason": None, "debug": 0, **options})
        terminal = Terminal(self.out, self.err, io.StringIO())
        self.context = Context("gnt-debug", COMMAND, self.options, terminal)
        self.context._client = self.client  # type: ignore[assignment]  # the fake

    def execute(self, *opcodes: Any) -> list[object]:
        return jobs.execute(self.context, self.options, *(opcodes or (delay(),)))


def delay() -> Any:
    return jobs.make_opcode(OpTestDelay, duration=1)


@pytest.mark.shows("backend/life/messages", "2.0/queue-life/result")
def test_messages_are_printed_with_their_time_and_results_returned() -> None:
    run = Run(("success", [7], ["* one", "* two"]))
    assert run.execute() == [7]
    assert run.out.getvalue() == f"{EPOCH} * one\n{EPOCH} * two\n"


def test_messages_do_not_steer_the_terminal_and_each_line_has_its_time() -> None:
    run = Run(("success", [7], ["\x1b[2Jred\r\a", "two\nlines\tü"]))
    run.execute()
    lines = [r"\x1b[2Jred\r\x07", "two", "lines\tü"]
    assert run.out.getvalue() == "".join(f"{EPOCH} {line}\n" for line in lines)


def test_errors_do_not_steer_the_terminal() -> None:
    text, _status = explain(OpExecError("its last output:\n\x1b]0;title\x07"))
    assert text.endswith("its last output:\n\\x1b]0;title\\x07")


@pytest.mark.shows("backend/life/client-builds", "2.12/overview/cli-luxi")
def test_submission_carries_what_the_common_options_say() -> None:
    run = Run(priority=-10, dry_run=True, reason="ticket 5")
    run.execute()
    [[wire]] = run.client.submitted
    assert (wire["priority"], wire["dry_run"]) == (-10, True)
    sources = [(source, text) for source, text, _ in wire["reason"]]
    assert sources == [("gnt:user", "ticket 5"), ("gnt:client:gnt-debug", "delay")]


def test_dependencies_are_added_to_those_of_the_opcode() -> None:
    run = Run(depend=[[5, ["success"]]])
    run.execute(jobs.make_opcode(OpTestDelay, duration=1, depends=[[4, ["error"]]]), delay())
    [[first, second]] = run.client.submitted
    assert first["depends"] == [[4, ["error"]], [5, ["success"]]]
    assert second["depends"] == [[5, ["success"]]]


@pytest.fixture
def short_root() -> Iterator[str]:
    """A directory whose name leaves room for sockets below it."""
    with tempfile.TemporaryDirectory(prefix="gnt-") as directory:
        yield directory


def test_whoever_changes_something_is_told_that_high_availability_is_paused(
    short_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", short_root)
    paths = Paths(short_root)
    for path in (paths.high_availability, paths.ha_state):
        Path(path).parent.mkdir(parents=True)

    def told(pause: str) -> str:
        write_state(paths, State(time=0.0, pause=pause))
        run = Run(("success", [7], []))
        assert run.execute() == [7]
        return run.err.getvalue()

    why = "high availability is paused by joe: switch"
    assert told(why) == ""  # it is off
    Path(paths.high_availability).touch()
    assert told(why) == f"Warning: {why} ('gnt-cluster ha-pause --end' ends it)\n"
    assert told("") == ""


@pytest.mark.shows("backend/life/submit", "2.0/core/fire")
def test_submit_does_not_wait() -> None:
    run = Run(submit=True)
    with pytest.raises(JobSubmitted) as raised:
        run.execute()
    assert raised.value.job_id == 1


def test_submit_with_the_job_number_prints_nothing_else() -> None:
    run = Run(submit=True, print_jobid=True)
    with pytest.raises(JobSubmitted):
        run.execute()
    assert run.out.getvalue() == "1\n"


def test_job_number_is_printed_on_request() -> None:
    run = Run(print_jobid=True)
    run.execute()
    assert run.out.getvalue() == "1\n"


def test_the_number_of_a_job_for_a_drained_queue_is_printed_too() -> None:
    line = parse(named("gnt-cluster"), ["redist-conf", "--yes-do-it", "--print-jobid"], {})
    run = Run(("success", [None], ["* sent"]))
    run.client.submit_job_to_drained_queue = run.client.submit_job  # type: ignore[attr-defined]
    run.context.command = line.command
    redist_conf(run.context, line.options, [])
    assert run.out.getvalue() == f"1\n{EPOCH} * sent\n"


def test_error_of_a_job_is_raised_as_itself() -> None:
    run = Run(("error", [["OpPrereqError", ["no such node", "unknown_entity"]]], []))
    with pytest.raises(OpPrereqError, match="no such node") as raised:
        run.execute()
    assert raised.value.ecode == "unknown_entity"


def test_later_opcode_that_fails_is_a_partial_failure() -> None:
    run = Run(("error", [None, ["OpExecError", ["disk is gone"]]], []))
    run.client.query_jobs = lambda *_: [  # type: ignore[method-assign]
        ["error", ["success", "error"], [None, ["OpExecError", ["disk is gone"]]]]
    ]
    with pytest.raises(OpExecError, match=r"partial failure.*disk is gone"):
        run.execute()


def test_canceled_job() -> None:
    run = Run(("canceled", [None], []))
    with pytest.raises(JobCanceled, match="job 1"):
        run.execute()


def test_long_wait_is_explained_once() -> None:
    run = Run()
    run.client.idle_rounds = 3
    run.execute()
    assert run.err.getvalue() == "Job 1 is trying to acquire all necessary locks\n"


def test_a_job_that_waits_for_other_jobs_is_explained() -> None:
    run = Run()
    run.client.idle_rounds = 2
    run.client.blocked = {1}
    run.execute()
    assert run.err.getvalue() == "Job 1 is waiting for jobs that it depends on\n"


def test_a_job_filter_that_holds_the_job_is_named_at_once_and_once() -> None:
    run = Run()
    run.client.held_by[1] = "f-1"
    run.client.idle_rounds = 3
    run.execute()
    shown = "Job 1 is held by job filter f-1; 'gnt-filter info f-1' shows it\n"
    assert run.err.getvalue() == shown


@pytest.mark.shows("backend/life/client-builds")
def test_wrong_parameters_are_told_before_anything_is_sent() -> None:
    with pytest.raises(OpPrereqError, match="duration"):
        jobs.make_opcode(OpTestDelay, duration="long")


def test_jobs_that_run_are_named_when_interrupted() -> None:
    run = Run()
    run.context.waiting_for.append(JobId(7))
    assert "gnt-job watch 7" in run.context.interruption_text()


def test_whoever_only_waits_names_the_job_too() -> None:
    run = Run(("success", [None], []))
    for change in jobs.changes(run.context, JobId(1)):
        has_ended = change.fields is not None and change.fields[0] == "success"
        assert ("(jobs 1)" in run.context.text_of_rest()) == (not has_ended)
    assert run.context.text_of_rest() == ""


def test_all_jobs_of_a_group_are_named_when_luxid_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_args: object) -> None:
        raise TransportError("no answer")

    run = Run()
    monkeypatch.setattr(run.client, "wait_for_job_change", lose)
    group = jobs.JobGroup(run.context, run.options)
    group.add("web1", delay())
    group.add("web2", delay())
    with pytest.raises(TransportError):
        group.run()
    assert "goes on (jobs 1 2)" in run.context.text_of_rest()


def test_no_job_is_named_after_all_have_ended() -> None:
    run = Run(("success", [None], []), ("error", [["OpExecError", ["no memory"]]], []))
    assert jobs.follow_all(run.context, [("a", JobId(1)), ("b", JobId(2))]) == 1
    assert run.context.text_of_rest() == ""


def test_group_of_one_job_is_told_like_a_single_command() -> None:
    run = Run(("success", [None], ["* hello"]))
    group = jobs.JobGroup(run.context, run.options)
    group.add("web1", delay())
    assert group.run() == 0
    assert run.out.getvalue() == f"{EPOCH} * hello\n"


def test_group_of_jobs_reports_each_failure() -> None:
    failure: list[object] = [["OpExecError", ["no memory"]]]
    run = Run(("success", [None], []), ("error", failure, []), ("success", [None], []))
    run.client.refused = {2: "queue is full"}
    group = jobs.JobGroup(run.context, run.options)
    for name in ("web1", "web2", "web3"):
        group.add(name, delay())
    assert group.run() == 1
    assert "Submitted jobs 1, 2" in run.out.getvalue()
    assert "Failed to submit the job for web3: queue is full" in run.err.getvalue()
    assert "Job 2 for web2 has failed" in run.err.getvalue()
    assert "no memory" in run.err.getvalue()


@pytest.mark.parametrize(
    ("options", "lines"),
    [({"submit": True}, "1: web1\n2: web2\n"), ({"submit": True, "print_jobid": True}, "1\n2\n")],
)
def test_group_that_is_only_submitted_prints_a_line_for_each_job(
    options: dict[str, bool], lines: str
) -> None:
    run = Run(("success", [None], []), ("success", [None], []), **options)
    group = jobs.JobGroup(run.context, run.options)
    group.add("web1", delay())
    group.add("web2", delay())
    assert group.run() == 0
    assert run.out.getvalue() == lines


def test_submitted_jobs_of_a_job() -> None:
    assert jobs.submitted_jobs({"jobs": [[True, 3], [True, 4]]}) == [("part 1", 3), ("part 2", 4)]
    assert jobs.submitted_jobs(None) == []
    with pytest.raises(OpExecError, match="queue full"):
        jobs.submitted_jobs({"jobs": [[False, "queue full"]]})
