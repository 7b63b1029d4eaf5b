"""LuxiD over its real socket: jobs from submission to archive."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.held_jobs import HELD, let_go
from fakes.luxid_node import LuxidNode, delay, is_final, messages, wait_field, wait_status
from fakes.waiting import PROMPT_S, wait_until

from ganeti.base.errors import GenericError, JobLost, LuxiError, OpCodeUnknown, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.status import Status
from ganeti.transport.unix_client import UnixClient

NODE_LOCKED = {"on_nodes": ["node1.example.com"], "on_master": False, "no_locks": False}


@pytest.fixture(scope="module")
def node() -> Iterator[LuxidNode]:
    with LuxidNode() as started:
        started.start()
        yield started
        assert started.stop() == 0, started.log()


@pytest.fixture
def client(node: LuxidNode) -> Iterator[LuxiClient]:
    with node.client() as connected:
        yield connected


def node_lock(node: LuxidNode) -> str:
    return f"node/{node.config['cluster']['master_node']}"


@pytest.fixture
def held_lock(node: LuxidNode) -> Iterator[str]:
    """Let somebody else hold the lock that a job will want."""
    name = node_lock(node)
    node.wconfd.hold((name, "exclusive"))
    yield name
    if "test" in node.wconfd.holders().get(name, []):
        node.wconfd.let_go()


# Submission and execution.


@pytest.mark.shows("backend/opcodes/by-jobs", "2.12/luxid/submissions", "2.0/luxi/submit")
def test_a_job_runs_and_its_file_says_so(node: LuxidNode, client: LuxiClient) -> None:
    job_id = client.submit_job([messages("one", "two")])
    assert wait_status(client, job_id, is_final) == "success"
    job = node.job(job_id)
    assert job.status is Status.SUCCESS
    assert job.livelock is not None
    assert os.path.basename(job.livelock).startswith(f"job_{job_id:06d}_")
    assert [entry[2:] for entry in job.log_after(0)] == [
        ("message", "TESTMSG=one"),
        ("message", "TESTMSG=two"),
    ]
    trail = job.ops[0].input["reason"]
    assert trail[-1][:2] == ["gnt:opcode:test_jqueue", f"job={job_id};index=0"]
    stamps = [job.received_timestamp, job.start_timestamp, job.end_timestamp]
    assert stamps == sorted(stamps)
    assert all(None not in (op.start_timestamp, op.exec_timestamp) for op in job.ops)


def test_submissions_are_in_the_audit_log(node: LuxidNode, client: LuxiClient) -> None:
    job_id = client.submit_job([messages("hidden")])
    with pytest.raises(GenericError):
        client.submit_job([{"OP_ID": "OP_NO_SUCH"}])
    wait_status(client, job_id, is_final)
    assert not client.cancel_job(job_id)[0]
    text = Path(f"{node.paths.log_dir}/audit.log").read_text()
    assert "hidden" not in text
    *_, submitted, refused, canceled = map(json.loads, text.splitlines())
    assert (submitted["what"], submitted["job"]) == ("SubmitJob", job_id)
    assert submitted["opcodes"] == ["TEST_JQUEUE"]
    assert (submitted["pid"], submitted["outcome"]) == (os.getpid(), "accepted")
    assert refused["outcome"] == "refused"
    assert "OP_NO_SUCH" in refused["why"]
    assert (canceled["what"], canceled["outcome"]) == ("CancelJob", "refused")
    assert canceled["arguments"][0] == job_id


@pytest.mark.shows("backend/opcodes/serial", "backend/jobs/first-failure")
def test_opcodes_run_in_sequence_until_one_fails(client: LuxiClient) -> None:
    job_id = client.submit_job([messages("a"), messages(fail=True), messages("never")])
    assert wait_status(client, job_id, is_final) == "error"
    ((statuses, results),) = client.query_jobs([job_id], ["opstatus", "opresult"])
    assert statuses == ["success", "error", "error"]
    assert results == [
        True,
        ["OpExecError", ["Opcode failure was requested"]],
        ["OpExecError", ["Preceding opcode failed"]],
    ]


@pytest.mark.shows("2.12/death/own-removal")
def test_an_ended_job_leaves_no_lock_and_no_lock_file(node: LuxidNode, client: LuxiClient) -> None:
    job_id = client.submit_job([delay(**NODE_LOCKED, dry_run=True)])
    assert wait_status(client, job_id, is_final) == "success"
    wait_until(lambda: not node.livelocks() and not node.wconfd.holders(), "all to be given back")


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        ([{"OP_ID": "OP_NONSENSE", "reason": []}], OpCodeUnknown, "job 2 of 3: .*OP_NONSENSE"),
        ([], OpPrereqError, "job 2 of 3: .*at least one opcode"),
        ([delay(), delay(colour="red")], OpPrereqError, "job 2 of 3: .*colour"),
    ],
)
def test_a_job_that_is_not_valid_refuses_all_of_the_call(
    client: LuxiClient, bad: list[dict[str, object]], error: type[GenericError], text: str
) -> None:
    first = client.submit_job([delay()])
    with pytest.raises(error, match=text):
        client.submit_many_jobs([[delay()], bad, [delay()]])
    assert client.submit_job([delay()]) == first + 1


def test_valid_jobs_are_refused_or_accepted_one_by_one(client: LuxiClient) -> None:
    answers = client.submit_many_jobs([[delay()], [delay(depends=[[10**6, []]])], [delay()]])
    assert [accepted for accepted, _ in answers] == [True, False, True]
    assert "job 1000000" in str(answers[1][1])
    assert answers[2][1] == answers[0][1] + 1
    for index in (0, 2):
        assert wait_status(client, int(answers[index][1]), is_final) == "success"


@pytest.mark.parametrize(
    ("opcode", "error", "text"),
    [
        ({"OP_ID": "OP_NONSENSE", "reason": []}, OpCodeUnknown, "OP_NONSENSE"),
        ({"reason": []}, OpCodeUnknown, "OP_ID"),
        (delay(colour="red"), OpPrereqError, "colour"),
        (delay("long"), OpPrereqError, "duration"),  # type: ignore[arg-type]
        (delay(priority=1000), OpPrereqError, "priority"),
        (delay(depends=[[10**6, []]]), OpPrereqError, "job 1000000"),
        (delay(depends=[[-1, []]]), OpPrereqError, "relative dependency -1"),
    ],
)
def test_bad_opcodes_get_one_clear_error(
    client: LuxiClient, opcode: dict[str, object], error: type[GenericError], text: str
) -> None:
    with pytest.raises(error, match=text):
        client.submit_job([opcode])
    assert client.query_config_values(["drain_flag"]) == [False]


@pytest.mark.shows("backend/life/next-id", "2.0/queue-life/id", "2.0/queue-client/submit")
def test_ids_go_up_by_one_whatever_was_refused(client: LuxiClient) -> None:
    first = client.submit_job([delay()])
    with pytest.raises(OpPrereqError):
        client.submit_job([delay(colour="red")])
    assert client.submit_job([delay()]) == first + 1


# Waiting and asking.


@pytest.mark.shows(
    "backend/life/wait", "2.0/luxi/wait", "2.0/queue-life/waiting-call", "2.0/queue-client/wait"
)
def test_waiting_gets_logs_and_changes_as_they_come(client: LuxiClient) -> None:
    job_id = client.submit_job([messages("x", "y")])
    previous: list[object] | None = None
    serial, log = 0, []
    while previous != ["success"]:
        change = client.wait_for_job_change(job_id, ["status"], previous, serial)
        assert change is not None
        previous = change.fields
        log += [entry.payload for entry in change.log_entries]
        serial = change.log_entries[-1].serial if change.log_entries else serial
    assert log == ["TESTMSG=x", "TESTMSG=y"]


def test_a_line_of_a_job_that_goes_on_is_delivered_at_once(
    node: LuxidNode, client: LuxiClient
) -> None:
    job_id = client.submit_job([HELD])
    fields: list[object] | None = None
    log: list[object] = []
    while not log:
        change = client.wait_for_job_change(job_id, ["status"], fields, 0)
        assert change is not None
        fields = change.fields
        log = [entry.payload for entry in change.log_entries]
    assert fields == ["running"]
    assert node.job(job_id).ops[0].log == (), "it did not need the job's file"
    assert isinstance(log[0], list)
    let_go(str(log[0][0]))
    assert wait_status(client, job_id, is_final) == "success"
    assert len(node.job(job_id).ops[0].log) == len(log)


@pytest.mark.shows("2.0/luxi/nochange", "2.0/queue-client/wait")
def test_waiting_times_out_without_news(
    node: LuxidNode, client: LuxiClient, held_lock: str
) -> None:
    job_id = client.submit_job([delay(**NODE_LOCKED)])
    wait_status(client, job_id, "waiting")
    started = time.monotonic()
    assert client.wait_for_job_change(job_id, ["status"], ["waiting"], 0, 1) is None
    assert time.monotonic() - started > 0.9
    assert client.cancel_job(job_id)[0]


@pytest.mark.shows("2.0/luxi/query")
def test_unknown_jobs(client: LuxiClient) -> None:
    missing = JobId(123456)
    with pytest.raises(JobLost):
        client.wait_for_job_change(missing, ["status"], None, None, 5)
    assert client.query_jobs([missing], ["id", "status"]) == [[missing, None]]
    with pytest.raises(JobLost):
        client.cancel_job(missing)
    assert client.archive_job(missing) is False


@pytest.mark.shows("2.0/queue-client/query")
def test_unknown_fields_are_named(client: LuxiClient) -> None:
    with pytest.raises(OpPrereqError, match="colour"):
        client.query_jobs(None, ["id", "colour"])


# Cancel, kill, priority.


@pytest.mark.shows("backend/jobs/waiting", "2.12/luxid/locks-elsewhere", "2.0/queue-client/cancel")
def test_a_job_that_waits_for_locks_is_canceled(
    node: LuxidNode, client: LuxiClient, held_lock: str
) -> None:
    job_id = client.submit_job([delay(**NODE_LOCKED), delay()])
    wait_status(client, job_id, "waiting")
    done, text = client.cancel_job(job_id)
    assert done
    assert "canceled" in text
    assert wait_status(client, job_id, is_final) == "canceled"
    assert [op.status for op in node.job(job_id).ops] == ["canceled", "canceled"]


@pytest.mark.shows("backend/jobs/between-opcodes")
def test_a_job_that_waits_between_opcodes_is_canceled_and_keeps_what_it_did(
    node: LuxidNode, client: LuxiClient, held_lock: str
) -> None:
    job_id = client.submit_job([delay(), delay(**NODE_LOCKED), delay()])
    wait_field(client, job_id, "opstatus", ["success", "waiting", "queued"].__eq__)
    done, text = client.cancel_job(job_id)
    assert (done, text) == (True, f"Job {job_id} canceled")
    assert wait_status(client, job_id, is_final) == "canceled"
    assert [op.status for op in node.job(job_id).ops] == ["success", "canceled", "canceled"]


def test_a_running_job_ends_at_its_next_wait(node: LuxidNode, client: LuxiClient) -> None:
    job_id = client.submit_job([delay(60), delay(60)])
    wait_status(client, job_id, "running")
    assert client.cancel_job(job_id) == (True, f"Job {job_id} canceled")
    assert wait_status(client, job_id, is_final) == "canceled"
    assert [op.status for op in node.job(job_id).ops] == ["canceled", "canceled"]


@pytest.mark.shows("2.12/luxid/ended-alone")
def test_a_running_job_is_killed_on_demand(client: LuxiClient) -> None:
    job_id = client.submit_job([delay(60)])
    wait_status(client, job_id, "running")
    done, _ = client.cancel_job(job_id, kill=True)
    assert done
    assert wait_status(client, job_id, is_final) == "error"
    assert client.cancel_job(job_id) == (False, f"Job {job_id} has ended already, in error")


@pytest.mark.shows("2.12/further/died-silent")
def test_a_killed_job_is_found_at_once(node: LuxidNode, client: LuxiClient) -> None:
    job_id = client.submit_job([delay(60), delay()])
    wait_status(client, job_id, "running")
    pid = node.job(job_id).process_id
    assert pid is not None
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert wait_status(client, job_id, is_final) == "error"
    assert time.monotonic() - started < PROMPT_S
    assert node.job(job_id).ops[0].result == ["OpExecError", ["Job process died"]]


def test_a_change_of_priority_reaches_the_lock_queue(
    node: LuxidNode, client: LuxiClient, held_lock: str
) -> None:
    job_id = client.submit_job([delay(**NODE_LOCKED, priority=10)])
    wait_status(client, job_id, "waiting")
    wait_until(lambda: job_id in node.wconfd.priorities, "the job to wait for its lock")
    assert node.wconfd.priorities[job_id] == 10
    done, _ = client.change_job_priority(job_id, -20)
    assert done
    assert node.wconfd.priorities[job_id] == -20
    assert node.job(job_id).ops[0].priority == -20
    assert client.cancel_job(job_id)[0]


@pytest.mark.shows("backend/jobs/priority-range")
@pytest.mark.parametrize("priority", [-21, 20])
def test_priorities_have_limits(client: LuxiClient, priority: int) -> None:
    with pytest.raises(OpPrereqError, match=str(priority)):
        client.change_job_priority(JobId(1), priority)


# Dependencies.


@pytest.mark.shows("backend/jobs/depends", "2.12/further/watched")
def test_a_dependent_starts_when_the_other_ends(client: LuxiClient) -> None:
    answers = client.submit_many_jobs(
        [[delay(0.2)], [delay(depends=[[-1, []]])], [delay(depends=[[-2, ["error"]]])]]
    )
    first, second, third = (JobId(int(value)) for _, value in answers)
    assert wait_status(client, second, is_final) == "success"
    assert wait_status(client, third, is_final) == "error"
    ((start,),) = client.query_jobs([second], ["start_ts"])
    ((first_end,),) = client.query_jobs([first], ["end_ts"])
    assert start >= first_end
    assert start[0] - first_end[0] <= PROMPT_S
    ((result,),) = client.query_jobs([third], ["opresult"])
    assert f"job {first}" in result[0][1][0]


@pytest.mark.shows("backend/jobs/depends-waiting")
def test_a_job_that_depends_on_another_is_shown_as_waiting(
    node: LuxidNode, client: LuxiClient, held_lock: str
) -> None:
    first = client.submit_job([delay(**NODE_LOCKED)])
    second = client.submit_job([delay(depends=[[first, ["canceled"]]])])
    wait_status(client, first, "waiting")
    fields = ["id", "status", "opstatus", "start_ts"]
    assert client.query_jobs([second], fields) == [[second, "waiting", ["waiting"], None]]
    assert node.job(second).status == "queued"
    for status, ids in (("waiting", [first, second]), ("queued", [])):
        wanted = ["&", ["=", "status", status], [">=", "id", first]]
        found = client.query("job", ["id"], wanted).data
        assert [number for [(_, number)] in found] == ids
    assert client.wait_for_job_change(second, ["status"], ["waiting"], 0, 0.1) is None
    assert client.cancel_job(first)[0]
    assert wait_status(client, second, is_final) == "success"


@pytest.mark.shows("backend/jobs/depends")
def test_a_dependency_on_an_archived_job_counts(client: LuxiClient) -> None:
    first = client.submit_job([delay()])
    wait_status(client, first, "success")
    assert client.archive_job(first)
    second = client.submit_job([delay(depends=[[first, ["success"]]])])
    assert wait_status(client, second, is_final) == "success"


# Archive and drain.


@pytest.mark.shows(
    "backend/life/archive",
    "2.12/luxid/queue",
    "2.0/luxi/archive",
    "2.0/queue-life/archived",
    "2.0/queue-client/archive",
)
def test_archived_jobs_leave_the_queue_but_not_the_world(
    node: LuxidNode, client: LuxiClient
) -> None:
    job_id = client.submit_job([delay()])
    wait_status(client, job_id, "success")
    assert client.archive_job(job_id) is True
    assert client.archive_job(job_id) is False
    assert not os.path.exists(node.paths.job_file(job_id))
    assert os.path.exists(node.paths.archived_job_file(job_id))
    assert [job_id] not in client.query_jobs(None, ["id"])
    assert client.query_jobs([job_id], ["status", "archived"]) == [["success", True]]
    change = client.wait_for_job_change(job_id, ["status"], ["success"], 0, 5)
    assert change is None  # it answers at once, and says what is known


@pytest.mark.shows("2.0/queue-life/auto-archive")
def test_auto_archive_takes_old_jobs_only(client: LuxiClient) -> None:
    job_id = client.submit_job([delay()])
    wait_status(client, job_id, "success")
    client.auto_archive_jobs(3600, 10)
    assert client.query_jobs([job_id], ["archived"]) == [[False]]
    archived, left = client.auto_archive_jobs(-1, 10)
    assert archived >= 1
    assert left == 0
    assert client.query_jobs([job_id], ["archived"]) == [[True]]


@pytest.mark.shows("backend/jobs/drained-flag", "2.12/luxid/queue", "2.0/queue-updates/closed")
def test_a_drained_queue_takes_no_jobs(node: LuxidNode, client: LuxiClient) -> None:
    assert client.set_drain_flag(True) is True
    try:
        assert os.path.exists(node.paths.queue_drain)
        assert client.query_config_values(["drain_flag"]) == [True]
        with pytest.raises(GenericError, match="Queue drained"):
            client.submit_job([delay()])
        assert client.submit_many_jobs([[delay()]]) == [(False, "Queue drained")]
        job_id = client.submit_job_to_drained_queue([delay()])
        assert wait_status(client, job_id, is_final) == "success"
    finally:
        client.set_drain_flag(False)
    assert not os.path.exists(node.paths.queue_drain)


# The cluster.


def test_what_luxid_says_about_the_cluster(node: LuxidNode, client: LuxiClient) -> None:
    info = client.query_cluster_info()
    assert info["master"] == node.name
    assert info["config_version"] == 3000000
    assert info["name"] == node.config["cluster"]["cluster_name"]
    values = client.query_config_values(["cluster_name", "master_node", "nonsense"])
    assert values == [info["name"], node.name, None]


def test_a_change_of_the_configuration_is_seen(node: LuxidNode, client: LuxiClient) -> None:
    node.config["cluster"]["tags"] = ["a-tag"]
    node.write_config()
    deadline = time.monotonic() + 60
    while client.query_tags("cluster", "") != ["a-tag"]:
        assert time.monotonic() < deadline
    with pytest.raises(OpPrereqError, match="nowhere"):
        client.query_tags("node", "nowhere")


def test_watcher_pause(client: LuxiClient) -> None:
    until = float(int(time.time()) + 1000)
    assert client.set_watcher_pause(until) == until
    assert client.query_config_values(["watcher_pause"]) == [until]
    for wrong in (5.0, 1e308):
        with pytest.raises(OpPrereqError):
            client.set_watcher_pause(wrong)
    assert client.set_watcher_pause(None) is None
    assert client.query_config_values(["watcher_pause"]) == [None]


# Bad requests.


@pytest.mark.parametrize(
    ("method", "args", "text"),
    [
        ("Nonsense", [], "unknown method 'Nonsense'"),
        ("SubmitJob", [], "takes 1 arguments"),
        ("SubmitJob", [[]], "at least one opcode"),
        ("SubmitJob", ["x"], "wrong argument opcodes"),
        ("QueryJobs", [None, [1]], "argument fields"),
        ("ArchiveJob", [-1], "wrong argument job_id"),
        ("ArchiveJob", ["x"], "wrong argument job_id"),
        ("CancelJob", [10**30], "wrong argument job_id"),
        ("CancelJob", [1, [True, False]], "argument kill"),
        ("WaitForJobChange", [1, ["status"], None, None, None], "argument timeout_s"),
    ],
)
def test_a_request_that_breaks_the_rules_gets_a_plain_text(
    node: LuxidNode, client: LuxiClient, method: str, args: list[object], text: str
) -> None:
    with (
        UnixClient(node.paths.query_socket, timeout_s=60) as raw,
        pytest.raises((GenericError, LuxiError), match=text),
    ):
        raw.call(method, args)
    assert client.query_config_values(["drain_flag"]) == [False]
