"""One run for a group: what is asked, what is submitted, what is remembered when."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.availability.restarts import Limits
from ganeti.base.errors import GenericError, JobQueueDrainError, TransportError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.opcodes.instance import OpInstanceShutdown
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import op_id_of
from ganeti.protocol.luxi import JobChange, QueryField, QueryResponse
from ganeti.store.availability import Settings
from ganeti.system import clock
from ganeti.system.filelock import FileLock
from ganeti.watcher import group, memory
from ganeti.watcher.planning import InstanceRecord, State

UUID = "5fb2046a-4528-4dad-bceb-7d7cb1c27773"
NODES = [["n1", "boot1", False], ["n2", "boot2", False]]
COLUMNS = {
    "node": ["name", "bootid", "offline"],
    "instance": ["name", "status", "admin_state", "disks_active", "snodes"],
}


class Luxi:
    """Answers queries from tables, and takes jobs, which end as told."""

    def __init__(self) -> None:
        self.rows: dict[str, list[list[Any]]] = {
            "group": [[UUID]],
            "node": NODES,
            "instance": [["web", "ERROR_down", "up", True, ["n2"]]],
            "lock": [],
            "job": [],
        }
        self.asked: list[str] = []
        self.submitted: list[OpCode] = []
        self.canceled: list[int] = []
        self.trouble: Exception | None = None
        self.refuses = False
        self.on_submit: Any = lambda: None
        self.on_query: Any = lambda _what: None
        self.status: list[Any] = ["success", [[{}, [], {}]]]

    def __enter__(self) -> Luxi:
        return self

    def __exit__(self, *_exc: object) -> None:
        pass

    def query(self, what: str, fields: Sequence[str], _filter: object) -> QueryResponse:
        self.asked.append(what)
        if self.trouble is not None and what == "lock":
            raise self.trouble
        described = [QueryField(name, name, "other") for name in fields]
        columns = COLUMNS.get(what, fields)
        chosen = [columns.index(name) for name in fields]
        rows = [[(0, row[number]) for number in chosen] for row in self.rows[what]]
        self.on_query(what)
        return QueryResponse(described, rows)

    def submit_many_jobs(self, jobs: Sequence[Sequence[OpCode]]) -> list[tuple[bool, Any]]:
        self.on_submit()
        if self.refuses:
            return [(False, "too much") for _ in jobs]
        return [(True, self.submit_job(job)) for job in jobs]

    def submit_job(self, job: Sequence[OpCode]) -> JobId:
        self.submitted += job
        return JobId(len(self.submitted))

    def wait_for_job_change(self, _job_id: int, *_args: object) -> JobChange | None:
        return JobChange(self.status, [])

    def cancel_job(self, job_id: int) -> tuple[bool, str]:
        self.canceled.append(job_id)
        return True, ""

    def names(self) -> list[str]:
        return [
            f"{op_id_of(type(op))} {getattr(op, 'instance_name', '')}".strip()
            for op in self.submitted
        ]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(str(tmp_path))
    for directory in (paths.data_dir, paths.run_dir, paths.lock_dir):
        os.makedirs(directory)
    Path(paths.ssconf_file("nodegroups")).write_text(f"{UUID} default\n")
    return paths


@pytest.fixture
def luxi(monkeypatch: pytest.MonkeyPatch) -> Luxi:
    client = Luxi()
    monkeypatch.setattr(group, "connect", lambda _paths: client)
    return client


def remembered(paths: Paths) -> Mapping[str, InstanceRecord]:
    return memory.read(paths.watcher_data(UUID), State).instance


@pytest.mark.shows("2.0/logging/watcher-log")
def test_an_instance_is_started_by_a_job_and_the_log_names_it(
    paths: Paths, luxi: Luxi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert group.watch_group(paths, UUID)
    assert luxi.names() == ["OP_INSTANCE_STARTUP web", "OP_GROUP_VERIFY_DISKS"]
    assert "Submitted job 1 for web, to start it again" in caplog.text
    [[source, text, _]] = luxi.submitted[0].reason or []  # type: ignore[misc]
    assert (source, text) == ("gnt:watcher", "start it again: web")
    assert luxi.submitted[0].priority < 0
    assert remembered(paths)["web"].restart_count == 1
    assert Path(paths.instance_status).read_text() == "web ERROR_down\n"


def test_each_kind_of_thing_is_asked_for_once(paths: Paths, luxi: Luxi) -> None:
    luxi.rows["instance"] = [[f"web{number}", "running", "up", False, []] for number in range(1000)]
    assert group.watch_group(paths, UUID)
    assert luxi.asked == ["group", "node", "instance", "lock", "job"]
    assert luxi.submitted == []  # no active disks: nothing to verify


def test_a_try_is_on_the_disk_before_it_is_made(paths: Paths, luxi: Luxi) -> None:
    seen = []
    luxi.on_submit = lambda: seen.append(remembered(paths)["web"].restart_count)
    group.watch_group(paths, UUID)
    assert seen == [1]


def test_an_instance_shut_down_by_its_user_is_recorded_as_that(paths: Paths, luxi: Luxi) -> None:
    luxi.rows["instance"] = [["web", "USER_down", "up", False, []]]
    assert group.watch_group(paths, UUID)
    [opcode] = luxi.submitted
    assert isinstance(opcode, OpInstanceShutdown)
    assert (opcode.instance_name, opcode.admin_state_source) == ("web", "user")


def test_a_try_that_is_refused_is_not_counted(paths: Paths, luxi: Luxi) -> None:
    luxi.refuses = True
    assert not group.watch_group(paths, UUID, verifies_disks=False)
    assert remembered(paths) == {}


def test_a_drained_queue_is_told_in_a_line(
    paths: Paths, luxi: Luxi, caplog: pytest.LogCaptureFixture
) -> None:
    def drained() -> None:
        raise JobQueueDrainError("the job queue is drained")

    luxi.on_submit = drained
    assert not group.watch_group(paths, UUID, verifies_disks=False)
    assert "Cannot maintain the cluster: the job queue is drained" in caplog.text
    assert remembered(paths) == {}


def test_a_submission_without_an_answer_counts(paths: Paths, luxi: Luxi) -> None:
    def lost() -> None:
        raise TransportError("no answer; SubmitManyJobs may have been carried out")

    luxi.on_submit = lost
    with pytest.raises(TransportError):
        group.watch_group(paths, UUID)
    assert remembered(paths)["web"].restart_count == 1


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("job", [[7, [{"OP_ID": "OP_INSTANCE_REPLACE_DISKS", "instance_name": "web"}]]]),
        ("job", [[7, [{"OP_ID": "OP_X"}, {"OP_ID": "OP_Y", "instances": ["db", "web"]}]]]),
        ("lock", [["instance/web", ["job 7/1"]]]),
    ],
)
def test_never_twice(paths: Paths, luxi: Luxi, kind: str, rows: list[list[Any]]) -> None:
    luxi.rows[kind] = rows
    assert group.watch_group(paths, UUID)
    assert "OP_INSTANCE_STARTUP web" not in luxi.names()
    assert remembered(paths) == {}


@pytest.mark.parametrize("now", [[["web", "ADMIN_down", "down", False, []]], []])
def test_what_was_shut_down_while_nodes_were_asked_is_not_started_again(
    paths: Paths, luxi: Luxi, now: list[list[Any]]
) -> None:
    """The job has begun and ended before the watcher asks for jobs."""

    def shut_down(what: str) -> None:
        if what == "instance":
            luxi.rows["instance"] = now

    luxi.on_query = shut_down
    assert group.watch_group(paths, UUID, verifies_disks=False)
    assert luxi.submitted == []
    assert remembered(paths) == {}
    assert luxi.asked == ["group", "node", "instance", "lock", "job", "instance"]


def test_disks_of_what_was_shut_down_meanwhile_are_not_activated(paths: Paths, luxi: Luxi) -> None:
    luxi.rows["instance"] = [["web", "running", "up", True, []]]
    luxi.status = ["success", [[{}, ["web"], {}]]]
    count = 0

    def shut_down(what: str) -> None:
        nonlocal count
        count += what == "instance"
        if count == 2:
            luxi.rows["instance"] = [["web", "ADMIN_down", "down", False, []]]

    luxi.on_query = shut_down
    assert group.watch_group(paths, UUID)
    assert luxi.names() == ["OP_GROUP_VERIFY_DISKS"]
    assert count == 3


def test_a_job_about_another_instance_keeps_nobody_down(paths: Paths, luxi: Luxi) -> None:
    """Ganeti's issue 1704: a long replacement of disks kept crashed instances down."""
    luxi.rows["job"] = [[7, [{"OP_ID": "OP_INSTANCE_REPLACE_DISKS", "instance_name": "db"}]]]
    luxi.rows["lock"] = [["instance/db", ["job 7/1"]], ["node/xyz", ["job 7/1"]]]
    group.watch_group(paths, UUID)
    assert luxi.names()[0] == "OP_INSTANCE_STARTUP web"


def test_without_the_locks_nothing_is_done(paths: Paths, luxi: Luxi) -> None:
    luxi.trouble = GenericError("WConfD does not answer")
    with pytest.raises(GenericError, match="WConfD does not answer"):
        group.watch_group(paths, UUID)
    assert luxi.submitted == []
    assert not os.path.exists(paths.watcher_data(UUID))


def test_two_runs_for_one_group_do_not_meet(
    paths: Paths, luxi: Luxi, caplog: pytest.LogCaptureFixture
) -> None:
    with FileLock(paths.watcher_group_lock(UUID)):
        assert not group.watch_group(paths, UUID, verifies_disks=False)
    assert "Another run looks after group" in caplog.text
    assert luxi.submitted == []


def test_no_tries_without_a_place_to_count_them(
    paths: Paths, luxi: Luxi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memory, "write", full)
    with pytest.raises(OSError, match="No space left"):
        group.watch_group(paths, UUID)
    assert luxi.submitted == []


# Disks


def test_disks_that_are_not_in_use_are_activated(
    paths: Paths, luxi: Luxi, caplog: pytest.LogCaptureFixture
) -> None:
    luxi.rows["instance"] = [
        ["web", "running", "up", True, []],
        ["db", "ADMIN_down", "down", True, []],
    ]
    luxi.status = [
        "success",
        [[{"n2": "does not answer"}, ["web", "db"], {"old": [["n2", "xenvg/x"]]}]],
    ]
    assert group.watch_group(paths, UUID)
    assert luxi.names() == ["OP_GROUP_VERIFY_DISKS", "OP_INSTANCE_ACTIVATE_DISKS web"]
    assert "The disks of node n2 cannot be verified: does not answer" in caplog.text
    assert "Instance old misses disks: n2 xenvg/x" in caplog.text


def test_a_verification_that_waits_for_others_is_canceled(
    paths: Paths, luxi: Luxi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ganeti's issue 1704, again: its request for all instances must not stand in the way."""
    ticks = iter(range(0, 10_000, 20))
    monkeypatch.setattr(clock, "monotonic", lambda: float(next(ticks)))
    luxi.status = ["waiting", [None]]
    assert group.watch_group(paths, UUID)
    assert luxi.canceled == [2]
    assert "Canceled job 2: it waited 60 s for others" in caplog.text


def test_a_verification_that_still_runs_is_waited_for_again(
    paths: Paths, luxi: Luxi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(0, 10_000, 20))
    monkeypatch.setattr(clock, "monotonic", lambda: float(next(ticks)))
    luxi.status = ["running", [None]]
    assert group.watch_group(paths, UUID)
    assert luxi.canceled == []
    assert "Job 2 verifies disks since 240 s; the next run looks" in caplog.text
    reason = [["gnt:watcher", "", 0]]
    verification = {"OP_ID": "OP_GROUP_VERIFY_DISKS", "group_name": UUID, "reason": reason}
    luxi.rows["job"] = [[2, [verification]]]
    luxi.rows["instance"] = [["web", "running", "up", True, []]]
    luxi.status = ["success", [[{}, ["web"], {}]]]
    assert group.watch_group(paths, UUID)
    assert luxi.names()[2:] == ["OP_INSTANCE_ACTIVATE_DISKS web"]


@pytest.mark.parametrize("reason", [[], [[]], [5], ["x"], None])
def test_a_verification_of_somebody_else_may_have_any_reason(
    paths: Paths, luxi: Luxi, reason: object
) -> None:
    other = {"OP_ID": "OP_GROUP_VERIFY_DISKS", "group_name": UUID, "reason": reason}
    luxi.rows["job"] = [[2, [other]]]
    assert group.watch_group(paths, UUID)
    assert luxi.names() == ["OP_INSTANCE_STARTUP web", "OP_GROUP_VERIFY_DISKS"]


def test_a_verification_that_fails_is_a_failure(
    paths: Paths, luxi: Luxi, caplog: pytest.LogCaptureFixture
) -> None:
    luxi.status = ["error", [["OpExecError", ["node n1 does not answer"]]]]
    assert not group.watch_group(paths, UUID)
    assert "Job 2 has not verified the disks: " in caplog.text


def test_a_group_that_there_is_not(paths: Paths, luxi: Luxi) -> None:
    luxi.rows["group"] = []
    assert not group.watch_group(paths, "nowhere")


def test_under_high_availability_starts_are_ordered_and_wait_for_most_nodes(
    paths: Paths, luxi: Luxi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = Settings(endpoints=[], prefix="", limits=Limits(per_node_max=1))
    Path(paths.high_availability).write_bytes(dumps(settings))
    names = [f"web{number}" for number in range(3)]
    luxi.rows["instance"] = [[name, "ERROR_down", "up", False, []] for name in names]
    places = [[name, "n1", ["ha:priority:1"] if name == "web2" else []] for name in names]
    ask = luxi.query

    def query(what: str, fields: Sequence[str], qfilter: object) -> QueryResponse:
        if "pnode" not in fields:
            return ask(what, fields, qfilter)
        described = [QueryField(name, name, "other") for name in fields]
        return QueryResponse(described, [[(0, cell) for cell in row] for row in places])

    monkeypatch.setattr(luxi, "query", query)
    luxi.rows["node"] = [["n1", "boot1", False], ["n2", "", False], ["n3", "", False]]
    assert group.watch_group(paths, UUID)
    assert luxi.submitted == []
    assert remembered(paths) == {}, "what was not tried is not counted"
    assert "Leaving web0 alone: only 1 of 3 nodes are back" in caplog.text
    luxi.rows["node"] = [*NODES, ["n3", "", False]]
    assert group.watch_group(paths, UUID)
    assert luxi.names() == [f"OP_INSTANCE_STARTUP {name}" for name in ("web2", "web0", "web1")]
    waits = [[number for number, _ in op.depends or ()] for op in luxi.submitted]
    assert waits == [[], [-1], [-1]], "one at a time on a node"
