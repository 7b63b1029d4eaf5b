"""The audit log says who asked for what, and nothing that is secret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.daemon.audit import AuditLog, Entry, entries_of_call, program_of

DELAY = {
    "OP_ID": "OP_TEST_DELAY",
    "duration": 1.0,
    "reason": [["gnt:client:gnt-debug", "delay", 1], ["gnt:user", "why not", 2]],
}
CREATE = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "instance_name": "web1",
    "osparams_secret": {"password": "hunter2"},
}


def about(what: str) -> Entry:
    return Entry(daemon="ganeti-luxid", user="root", program="gnt-debug", pid=7, what=what)


def lines(tmp_path: Path, what: str, args: list[Any], answer: object) -> list[dict[str, Any]]:
    path = tmp_path / "audit.log"
    AuditLog(str(path)).write(*entries_of_call(about(what), args, answer))
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_of_a_job(tmp_path: Path) -> None:
    [line] = lines(tmp_path, "SubmitJob", [[DELAY]], 12)
    assert line.pop("time").endswith("Z")
    assert line == {
        "daemon": "ganeti-luxid",
        "user": "root",
        "program": "gnt-debug",
        "pid": 7,
        "what": "SubmitJob",
        "opcodes": ["TEST_DELAY(1.0)"],
        "reason": ["gnt:client:gnt-debug delay", "gnt:user why not"],
        "job": 12,
        "outcome": "accepted",
    }


def test_a_line_for_each_of_many_jobs(tmp_path: Path) -> None:
    found = lines(tmp_path, "SubmitManyJobs", [[[DELAY], [DELAY]]], [(True, 12), (False, "full")])
    assert [line["outcome"] for line in found] == ["accepted", "refused"]
    assert found[0]["job"] == 12
    assert "job" not in found[1]
    assert found[1]["why"] == "full"


def test_all_of_many_jobs_are_refused(tmp_path: Path) -> None:
    found = lines(tmp_path, "SubmitManyJobs", [[[DELAY], [CREATE]]], OpPrereqError("no"))
    assert [line["outcome"] for line in found] == ["refused", "refused"]
    assert [line.get("why") for line in found] == ["no", None]


@pytest.mark.parametrize("answer", [5, OpPrereqError("password 'hunter2' is too short")])
def test_no_secret_is_in_it(tmp_path: Path, answer: object) -> None:
    lines(tmp_path, "SubmitJob", [[CREATE]], answer)
    text = (tmp_path / "audit.log").read_text()
    assert "INSTANCE_CREATE(web1)" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("answer", "outcome", "why"),
    [
        ((True, "Job 3 canceled"), "accepted", "Job 3 canceled"),
        ((False, "Job 3 has ended"), "refused", "Job 3 has ended"),
        (OpPrereqError("no such job"), "refused", "no such job"),
        (RuntimeError("mistake"), "unknown", "RuntimeError"),
    ],
)
def test_a_line_of_another_change(tmp_path: Path, answer: object, outcome: str, why: str) -> None:
    [line] = lines(tmp_path, "CancelJob", [3, True], answer)
    assert (line["arguments"], line["outcome"], line["why"]) == ([3, True], outcome, why)


@pytest.mark.parametrize("what", ["SubmitJob", "SubmitManyJobs", "CancelJob"])
def test_arguments_that_cannot_be_read(what: str) -> None:
    [entry] = entries_of_call(about(what), (), OpPrereqError("no list"))
    assert (entry.outcome, entry.why) == ("refused", "no list")


def test_a_full_disk_costs_lines_but_no_work(tmp_path: Path) -> None:
    """The size of files is limited in a process of its own, as on a full disk."""
    script = """
import resource, signal, sys
from ganeti.daemon.audit import AuditLog, Entry
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = AuditLog(sys.argv[1])
entry = Entry(daemon="d", user="u", what="first")
log.write(entry)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
entry.what = "lost"
log.write(entry, entry)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
entry.what = "last"
log.write(entry)
"""
    path = tmp_path / "audit.log"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("what", line.get("lost")) for line in found] == ["first", 2, "last"]


def test_the_program_is_known_without_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "gnt-try"
    script.write_text("print('runs', flush=True)\ninput()")
    argv = [sys.executable, "-I", str(script), "--password=hunter2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        assert program_of(process.pid) == "gnt-try"
    assert program_of(1 << 30) == ""
