"""The commands around jobs, typed as operators type them."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.bootstrap.virtual import lifecycle

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPLETION = os.path.join(CHECKOUT, "doc/examples/bash_completion")
DELAYS = '[["opcode", "OP_ID = \'OP_TEST_DELAY\'"]]'


def numbers(cluster: TestCluster, *words: str) -> list[int]:
    """Return the jobs that ``gnt-job list`` shows."""
    return [int(n) for n in cluster.gnt(["job", "list", "--no-headers", "-o", "id", *words]).lines]


@pytest.fixture
def paused(cluster: TestCluster) -> Iterator[str]:
    """A filter that holds every delay."""
    uuid = cluster.gnt(
        ["filter", "add", "--priority=1", "--action=PAUSE", f"--predicates={DELAYS}"]
    ).out.strip()
    yield uuid
    cluster.gnt(f"filter delete {uuid}")


@pytest.fixture
def waiting(cluster: TestCluster) -> Iterator[list[int]]:
    """A job that runs, and two that wait for its lock."""
    jobs = [cluster.submit("debug delay -n node2 3600")]
    wait_until(lambda: cluster.job_status(jobs[0]) == "running", "the first job to run")
    jobs += [cluster.submit("debug delay -n node2 0") for _ in range(2)]
    for job_id in jobs[1:]:
        wait_until(lambda job_id=job_id: cluster.job_status(job_id) == "waiting", "it to wait")  # type: ignore[misc]
    yield jobs
    cluster.run(f"gnt-job cancel --kill --yes-do-it {jobs[0]}")
    for job_id in jobs:
        cluster.run(f"gnt-job wait {job_id}")


# Lists.


def test_lists_by_status(cluster: TestCluster, waiting: list[int]) -> None:
    first, *others = waiting
    assert numbers(cluster, "--running") == [first]
    assert numbers(cluster, "--pending") == others
    assert first not in numbers(cluster, "--finished")
    failed = cluster.submit("debug delay -n nowhere 0")
    cluster.run(f"gnt-job wait {failed}")
    assert failed in numbers(cluster, "--error")
    assert failed in numbers(cluster, "--finished")
    assert numbers(cluster, "-F", f'status == "error" and id >= {failed}') == [failed]
    assert numbers(cluster, str(first), str(failed)) == [first, failed]


@pytest.mark.shows("backend/life/archive-untouched", "2.0/queue-history/untouched")
def test_archived_jobs_are_listed_when_asked_for(cluster: TestCluster) -> None:
    job_id = cluster.submit("debug delay 0")
    cluster.gnt(f"job wait {job_id}")
    cluster.gnt(f"job archive {job_id}")
    assert job_id not in numbers(cluster)
    assert job_id in numbers(cluster, "--archived")
    assert numbers(cluster, "--archived", "-F", f"id == {job_id}") == [job_id]
    assert "Archived: True" in cluster.gnt(f"job info {job_id}").out


def test_columns_and_separators(cluster: TestCluster) -> None:
    job_id = cluster.submit("debug delay 0")
    cluster.gnt(f"job wait {job_id}")
    words = ["job", "list", "--separator=|", "-o", "+priority,opstatus"]
    header, line = cluster.gnt([*words, str(job_id)]).lines
    assert header == "ID|Status|Summary|Priority|OpCode_status"
    assert line == f"{job_id}|success|TEST_DELAY(0.0)|0|['success']"
    assert cluster.gnt([*words, "--no-headers", str(job_id)]).lines == [line]
    cluster.refused("job list 1x", "not a number")


def test_units(cluster: TestCluster) -> None:
    def total(*words: str) -> str:
        return cluster.gnt(
            ["node", "list", "--no-headers", "-o", "mtotal", *words, "node1"]
        ).out.strip()

    assert total()[-1] in "MGT"
    in_mebi = int(total("--units=m"))
    assert in_mebi == int(total("--separator=:"))
    assert float(total("--units=g")) == pytest.approx(in_mebi / 1024, abs=0.1)


def on_screen(cluster: TestCluster, width: int, *argv: str) -> list[str]:
    """Return what a command prints on a screen of that width."""
    environment = lifecycle.command_environment(cluster.layout, cluster.master)
    environment.pop("COLUMNS", None)
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        program = lifecycle.find_program(argv[0], environment)
        with subprocess.Popen([program, *argv[1:]], env=environment, stdout=theirs) as process:
            os.close(theirs)
            theirs = -1
            text = b""
            while True:
                try:
                    chunk = os.read(ours, 65536)
                except OSError:  # the terminal has no other end any more
                    break
                if not chunk:
                    break
                text += chunk
            assert process.wait(60) == 0
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return text.decode().replace("\r\n", "\n").splitlines()


def test_tables_fit_the_screen(cluster: TestCluster, paused: str) -> None:
    wide = cluster.gnt("filter list").lines
    assert max(map(len, wide)) > 100
    narrow = on_screen(cluster, 100, "gnt-filter", "list")
    assert max(map(len, narrow)) <= 100
    assert any("..." in line for line in narrow)
    assert narrow[1].startswith(paused[:20])
    assert on_screen(cluster, 100, "gnt-filter", "list", "--separator=|")[1].count("...") == 0


# Cancel and change of priority.


def test_priority_of_jobs_that_wait(cluster: TestCluster, waiting: list[int]) -> None:
    _, second, third = waiting

    def priorities() -> list[int]:
        lines = cluster.gnt(f"job list --no-headers -o priority {second} {third}").lines
        return [int(line) for line in lines]

    cluster.gnt(f"job change-priority --priority=high {third}")
    assert priorities() == [0, -10]
    unsure = cluster.run("gnt-job change-priority --priority=low --waiting")
    assert unsure.status == 1
    assert str(second) in unsure.out
    assert priorities() == [0, -10]
    cluster.gnt("job change-priority --priority=low --waiting -f")
    assert priorities() == [10, 10]
    cluster.refused(f"job change-priority {second}", "--priority")
    outcome = cluster.run(f"gnt-job change-priority --priority=low 999999 {second}")
    assert outcome.status == 1
    assert "999999 not found" in outcome.err
    assert str(second) in outcome.out  # one that fails does not stop the others


def test_cancel_by_status(cluster: TestCluster, waiting: list[int]) -> None:
    first, *others = waiting
    assert cluster.run("gnt-job cancel --pending").status == 1
    cluster.gnt("job cancel --waiting --force")
    for job_id in others:
        wait_until(lambda job_id=job_id: cluster.job_status(job_id) == "canceled", "its end")  # type: ignore[misc]
    assert cluster.job_status(first) == "running"
    assert cluster.gnt("job cancel --pending").out == ""
    cluster.refused("job cancel", "give job numbers")
    cluster.refused(f"job cancel --queued {first}", "not both")


@pytest.mark.shows("backend/life/cancel", "2.0/queue-life/cancel")
def test_cancel_of_jobs_in_the_queue(cluster: TestCluster, paused: str) -> None:
    jobs = [cluster.submit("debug delay 0") for _ in range(3)]
    assert {cluster.job_status(job_id) for job_id in jobs} == {"queued"}
    cluster.gnt(f"job cancel {jobs[0]}")
    cluster.gnt("job cancel --queued --force")
    assert {cluster.job_status(job_id) for job_id in jobs} == {"canceled"}


# Watching.


@pytest.mark.shows("2.0/queue-life/log-messages")
def test_messages_are_printed_as_they_come(cluster: TestCluster) -> None:
    environment = lifecycle.command_environment(cluster.layout, cluster.master)
    argv = [lifecycle.find_program("gnt-debug", environment), "delay", "--repeat=2", "3600"]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()  # the job goes on for an hour
        assert "Test delay iteration 0/1" in line
        [job_id] = numbers(cluster, "--running")
        cluster.gnt(f"job cancel --kill --yes-do-it {job_id}")
        assert process.wait(60) == 1


@pytest.mark.shows("2.0/core/old-results")
def test_wait_and_watch_tell_how_it_ended(cluster: TestCluster, paused: str) -> None:
    job_id = cluster.submit("debug delay 0")
    environment = lifecycle.command_environment(cluster.layout, cluster.master)
    program = lifecycle.find_program("gnt-job", environment)
    with subprocess.Popen(
        [program, "watch", str(job_id)], env=environment, stdout=subprocess.PIPE, text=True
    ) as watching:
        cluster.gnt(
            f"filter replace --action=ACCEPT --predicates={DELAYS.replace(' ', '')} {paused}".split()
        )
        out, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert out.splitlines()[-1] == "Job ended successfully"
    assert cluster.gnt(f"job wait {job_id}").out == ""


def test_who_waits_for_a_held_job_is_told_the_filter(cluster: TestCluster, paused: str) -> None:
    environment = lifecycle.command_environment(cluster.layout, cluster.master)
    argv = [lifecycle.find_program("gnt-debug", environment), "delay", "0"]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()  # while it waits
        assert f"is held by job filter {paused}; 'gnt-filter info {paused}' shows it" in line
        [job_id] = numbers(cluster, "--pending")
        assert query_jobs(cluster, job_id, "held_by", "status") == [[paused, "queued"]]
        shown = cluster.gnt(f"job info {job_id}").lines
        assert f"  Held by job filter: {paused}" in shown
        cluster.gnt(["filter", "replace", "--action=ACCEPT", f"--predicates={DELAYS}", paused])
        assert process.wait(60) == 0
    assert query_jobs(cluster, job_id, "held_by") == [[None]]


def test_jobs_whose_reason_is_a_limit_wait_for_each_other(cluster: TestCluster) -> None:
    limited = "debug delay --no-locks --reason=rate-limit:1:hello"
    first, second = cluster.submit(f"{limited} 600"), cluster.submit(f"{limited} 0")
    assert "Held by reason: rate-limit:hello" in cluster.gnt(f"job info {second}").out
    environment = lifecycle.command_environment(cluster.layout, cluster.master)
    argv = [lifecycle.find_program("gnt-job", environment), "wait", str(second)]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()  # while it waits
        assert line == f"Job {second} waits for others with the same reason: rate-limit:hello\n"
        wait_until(lambda: cluster.job_status(first) == "running", "the first job to run")
        cluster.gnt(f"job cancel {first}")
        assert process.wait(60) == 0
    assert cluster.job_status(second) == "success"


# Common options.


def test_what_a_submission_may_say(cluster: TestCluster, waiting: list[int]) -> None:
    job_id = cluster.submit(
        f"debug delay --priority=low --reason=ticket-5 --depend={waiting[1]}:error+canceled"
        f" --depend={waiting[2]}:canceled 0"
    )
    [[ops, status]] = query_jobs(cluster, job_id, "ops", "status")
    assert status == "waiting"
    assert ops[0]["priority"] == 10
    assert ops[0]["depends"] == [[waiting[1], ["error", "canceled"]], [waiting[2], ["canceled"]]]
    sources = [(source, text) for source, text, _ in ops[0]["reason"]]
    assert sources[:2] == [("gnt:user", "ticket-5"), ("gnt:client:gnt-debug", "delay")]
    cluster.gnt(f"job cancel {waiting[1]} {waiting[2]}")
    cluster.gnt(f"job wait {job_id}")
    assert cluster.job_status(job_id) == "success"


def query_jobs(cluster: TestCluster, job_id: int, *fields: str) -> list[list[object]]:
    with cluster.client() as client:
        return client.query_jobs([job_id], fields)  # type: ignore[list-item]  # a JobId


def test_number_of_a_job_stands_alone_on_a_line(cluster: TestCluster) -> None:
    lines = cluster.gnt("debug delay --print-jobid --repeat=1 0").lines
    assert lines[0].isdigit()
    assert len(lines) == 2
    outcome = cluster.gnt("debug delay --submit 0")
    assert (outcome.out, outcome.err.split(":")[0]) == ("", "JobID")
    outcome = cluster.gnt("debug delay --submit --print-jobid 0")
    assert outcome.err == f"JobID: {outcome.out}"


# Filters.


def test_life_of_a_filter(cluster: TestCluster, paused: str) -> None:
    job_id = cluster.submit("debug delay 0")
    assert cluster.job_status(job_id) == "queued"
    line = cluster.gnt(
        ["filter", "list", "--no-headers", "--separator=|", "-o", "uuid,priority,action,predicates"]
    ).out.strip()
    assert line == f"{paused}|1|PAUSE|[['opcode', ['==', 'OP_ID', 'OP_TEST_DELAY']]]"
    info = cluster.gnt(f"filter info {paused}").out
    assert f"UUID: {paused}" in info
    assert "Action: PAUSE" in info
    replaced = cluster.gnt(
        [
            "filter",
            "replace",
            "--priority=2",
            "--action=RATE_LIMIT 1",
            "--reason=slow down",
            f"--predicates={DELAYS}",
            paused,
        ]
    )
    assert replaced.out.strip() == paused
    assert "['RATE_LIMIT', 1]" in cluster.gnt("filter list").out
    assert "slow down" in cluster.gnt("filter info").out
    cluster.gnt(f"job wait {job_id}")
    assert len(cluster.gnt("filter list-fields --no-headers").lines) == 6


def test_rate_limit_lets_one_run_at_a_time(cluster: TestCluster, paused: str) -> None:
    jobs = [cluster.submit("debug delay 0.1") for _ in range(4)]
    cluster.gnt(["filter", "replace", "--action=RATE_LIMIT 1", f"--predicates={DELAYS}", paused])
    for job_id in jobs:
        cluster.gnt(f"job wait {job_id}")
    rows = [query_jobs(cluster, job_id, "start_ts", "end_ts")[0] for job_id in jobs]
    for earlier, later in itertools.pairwise(rows):
        assert later[0] >= earlier[1]  # type: ignore[operator]  # [seconds, microseconds]


@pytest.mark.parametrize(
    ("words", "text", "status"),
    [
        (["add", "--action=EXPLODE"], "EXPLODE", 1),
        (["add", "--action=RATE_LIMIT 0"], "above zero", 1),
        (["add", "--predicates={"], "not JSON", 1),
        (["add", "--predicates={}"], "JSON list", 1),
        (["add", '--predicates=[["mood", []]]'], "mood", 1),
        (["add", '--predicates=[["jobid", ["=", "colour", 1]]]'], "colour", 1),
        (["add", '--predicates=[["jobid", "id ="]]'], "cannot understand", 1),
        (["add", '--predicates=[["opcode", "OP_ID =~ m/(a+)+$/"]]'], "repetition", 1),
        (["add", f"--predicates={DELAYS}", "--priority=-1"], "priority", 1),
        (["add"], "give --predicates", 1),
        (["delete", "nonsense"], "nonsense", 1),
    ],
)
def test_wrong_filters(cluster: TestCluster, words: list[str], text: str, status: int) -> None:
    cluster.refused(["filter", *words], text, status)
    assert "no such filter: nonsense" in cluster.gnt("filter info nonsense").err
    assert cluster.gnt("filter list --no-headers").lines == []


# Trying the queue out.


def test_the_queue_passes_its_own_trial(cluster: TestCluster) -> None:
    outcome = cluster.gnt("debug test-jobqueue")
    assert outcome.lines[-1] == "All is as it should be"
    assert len(outcome.lines) == 7


def test_secret_parameters_leave_no_trace(cluster: TestCluster) -> None:
    secret = "tq8w-very-secret"
    outcome = cluster.gnt(
        ["debug", "test-osparams", f"--os-parameters-secret=password={secret},other=x"]
    )
    assert "'password': ***" in outcome.out
    found = subprocess.run(
        ["grep", "-rl", secret, cluster.layout.base], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


def test_submit_job_names_the_file_that_is_wrong(
    cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("jobs") / "ops.json"
    path.write_text(json.dumps({"OP_ID": "OP_TEST_DELAY", "duration": "long"}))
    outcome = cluster.refused(["debug", "submit-job", str(path)], "duration")
    assert str(path) in outcome.err


# Shell completion.


def completed(cluster: TestCluster, *words: str) -> list[str]:
    """Return what bash would offer for the last word."""
    script = f"""
source {COMPLETION}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
_ganeti_complete
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    environment = lifecycle.command_environment(cluster.layout, cluster.master)
    found = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stderr == ""
    return found.stdout.split()


def exports_of(cluster: TestCluster, node: str) -> list[str]:
    """Return what other tests have exported to a node."""
    place = cluster.paths_of(node).export_dir
    return os.listdir(place) if os.path.isdir(place) else []


def test_names_are_completed(cluster: TestCluster, paused: str) -> None:
    job_id = cluster.submit("debug delay 0")
    assert completed(cluster, "gnt-node", "info", "node2") == [cluster.nodes[1]]
    assert completed(cluster, "gnt-group", "info", "") == ["default"]
    assert str(job_id) in completed(cluster, "gnt-job", "watch", "")
    assert completed(cluster, "gnt-filter", "info", "") == [paused]
    assert str(job_id) in completed(cluster, "gnt-debug", "delay", "--depend", "")
    assert completed(cluster, "gnt-job", "cancel", "") == [str(job_id)]
    assert completed(cluster, "gnt-debug", "delay", "--prio") == ["--priority"]
    assert completed(cluster, "gnt-debug", "delay", "--priority", "h") == ["high"]
    assert "change-priority" in completed(cluster, "gnt-job", "c")
    assert completed(cluster, "gnt-cluster", "queue", "") == ["drain", "info", "undrain"]
    cluster.gnt(f"job cancel {job_id}")
    assert str(job_id) not in completed(cluster, "gnt-job", "watch", "")
    assert str(job_id) in completed(cluster, "gnt-job", "archive", "")
    exports = {name for node in cluster.nodes for name in exports_of(cluster, node)}
    assert completed(cluster, "gnt-backup", "remove", "") == sorted(exports)
    assert completed(cluster, "gnt-instance", "add", "-t", "sh") == ["sharedfile"]
    assert completed(cluster, "gnt-instance", "add", "-t", "dr") == []  # not enabled
