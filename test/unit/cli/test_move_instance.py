"""`move-instance`: what the new instance is like, what is missing, and what is done when it fails."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any, cast

import pytest
from fakes.waiting import wait_until

from ganeti.base.errors import (
    GenericError,
    OpExecError,
    OpPrereqError,
    ProtocolError,
    TransportError,
)
from ganeti.cli.command import Context, Options
from ganeti.cli.moving import clusters, command, preflight
from ganeti.cli.moving.clusters import Cluster
from ganeti.cli.moving.move import Manner, Move
from ganeti.cli.moving.preflight import Destination, Preflight, Ready
from ganeti.cli.moving.wish import Overrides, Source, Wish, plan
from ganeti.cli.run.context import Terminal
from ganeti.clients.rapi import EndedJob, JobFailedError, LogEntry, RapiRefusedError
from ganeti.opcodes.instance import OpInstanceStartup
from ganeti.opcodes.opcode import OpCode

DEADLINE_S = 20.0
NAME = "web1.example.com"
FACTS: dict[str, Any] = {
    "pnode": "node1.example.com",
    "os": "debian+trixie",
    "nics": [
        ["", "u1", None, "aa:00:00:00:00:01", "bridged", "br0", "", None, None],
        [None, "u2", "10.0.0.5", "aa:00:00:00:00:02", "routed", "x", "", "u3", {"name": "lan"}],
    ],
    "disk_template": "file",
    "disks": [
        {"size": 1024, "mode": "rw", "name": None, "spindles": None, "uuid": "d1"},
        {"size": 512, "mode": "ro", "name": "data", "spindles": None, "uuid": "d2"},
    ],
    "hypervisor": "kvm",
    "hv_instance": {"acpi": False},
    "hv_actual": {"acpi": False, "kernel_path": "/boot/x"},
    "be_actual": {"minmem": 256, "maxmem": 512, "vcpus": 2},
    "be_instance": {},
    "os_instance": {"mirror": "here"},
    "os_actual": {"mirror": "here", "proxy": "there"},
    "tags": ["web"],
}
RUNNING = Source(NAME, is_running=True, facts=FACTS)


def test_the_new_instance_is_as_the_old_one_was() -> None:
    found = plan(RUNNING, NAME, Overrides()).creation
    assert found["disks"] == [
        {"size": 1024, "mode": "rw"},
        {"size": 512, "mode": "ro", "name": "data"},
    ]
    assert found["nics"] == [
        {"mac": "aa:00:00:00:00:01", "mode": "bridged", "link": "br0"},
        {"mac": "aa:00:00:00:00:02", "ip": "10.0.0.5", "network": "lan"},
    ]
    assert found["beparams"] == FACTS["be_actual"]
    assert found["hvparams"] == {"acpi": False}
    assert found["osparams"] == {"mirror": "here"}
    assert (found["os_type"], found["hypervisor"], found["tags"]) == (
        "debian+trixie",
        "kvm",
        ["web"],
    )
    assert (found["disk_template"], found["start"], found["ip_check"]) == ("file", True, False)
    assert "pnode" not in found


def test_options_say_what_is_to_be_another() -> None:
    wanted = Overrides(
        beparams={"memory": "2048"},
        hvparams={"acpi": True},
        osparams={"proxy": "none"},
        nics=[("1", {"link": "br7", "mode": "bridged"}), ("0", {"network": "lan", "mac": "auto"})],
        disk_template="sharedfile",
        primary_node="node7",
    )
    wish = plan(Source(NAME, is_running=False, facts=FACTS), "new.example.com", wanted)
    found = wish.creation
    assert found["beparams"] == {"vcpus": 2, "memory": "2048"}
    assert (wish.memory_mib, wish.disk_mib) == (2048, 1536)
    assert found["hvparams"] == {"acpi": True}
    assert found["osparams"] == {"mirror": "here", "proxy": "none"}
    assert found["nics"] == [
        {"mac": "auto", "network": "lan"},
        {"mac": "aa:00:00:00:00:02", "ip": "10.0.0.5", "link": "br7", "mode": "bridged"},
    ]
    assert (found["instance_name"], found["source_instance_name"]) == ("new.example.com", NAME)
    assert (found["disk_template"], found["pnode"]) == ("sharedfile", "node7")
    assert found["start"] is False


@pytest.mark.parametrize(
    ("nics", "text"),
    [
        ([("2", {"ip": "x"})], r"--net 2: the instance has 2 interface\(s\)"),
        ([("add", {})], "--net add"),
        ([("0", False)], "cannot be removed"),
        ([("0", {"speed": "1"})], "unknown setting 'speed'"),
    ],
)
def test_interfaces_that_there_are_not(nics: list[tuple[str, object]], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        plan(RUNNING, NAME, Overrides(nics=nics))


def test_facts_that_nobody_understands() -> None:
    with pytest.raises(ProtocolError, match="in an unknown way"):
        plan(Source(NAME, is_running=True, facts={"disks": []}), NAME, Overrides())


# What is missing.


def node(name: str = "node7.example.com", **changes: Any) -> dict[str, Any]:
    values = {"offline": False, "drained": False, "vm_capable": True, "dfree": 9000, "mfree": 900}
    return {"name": name, **values, **changes}


def there(**changes: Any) -> Destination:
    values: dict[str, Any] = {
        "info": {
            "enabled_hypervisors": ["kvm"],
            "enabled_disk_templates": ["file"],
            "compression_tools": ["gzip"],
        },
        "nodes": [node()],
        "instances": [],
        "systems": ["debian+trixie"],
        "networks": ["lan"],
    }
    return Destination(**{**values, **changes})


def wish(**changes: Any) -> Wish:
    return plan(RUNNING, NAME, Overrides(**{"primary_node": "node7", **changes}))


def test_nothing_is_missing() -> None:
    assert list(preflight.destination_problems(wish(), there())) == []
    assert list(preflight.source_problems(RUNNING, [node(FACTS["pnode"])])) == []
    info = {"software_version": "3.0.2", "uuid": "a"}
    assert list(preflight.version_problems(info, {**info, "uuid": "b"})) == []
    assert list(preflight.rights_problems("x", {"name": "joe", "rights": ["write"]})) == []
    assert list(preflight.rights_problems("x", {"name": "joe", "rights": [], "roles": ["a"]})) == []


@pytest.mark.parametrize(
    ("wanted", "destination", "text"),
    [
        ({}, {"instances": [NAME]}, "has an instance 'web1.example.com' already"),
        ({"disk_template": "plain"}, {}, "has no disk template 'plain' (it has file); enable it"),
        ({"compress": "lzop"}, {}, "has no compression 'lzop'"),
        ({}, {"systems": []}, "no operating system 'debian+trixie' (it has none); install"),
        ({}, {"networks": []}, "no network 'lan', which interface 1 is in"),
        ({"primary_node": "node8"}, {}, "has no node 'node8' (it has node7.example.com)"),
        ({"primary_node": None}, {}, "--dest-primary-node, or an allocator with --iallocator"),
        ({}, {"nodes": [node(offline=True)]}, "'node7.example.com' is marked offline"),
        ({}, {"nodes": [node(drained=True)]}, "'node7.example.com' is drained"),
        ({}, {"nodes": [node(vm_capable=False)]}, "is not vm_capable"),
        ({}, {"nodes": [node(dfree=1000)]}, "1000 MiB of disk space free, 1536 MiB are needed"),
        ({}, {"nodes": [node(mfree=100)]}, "100 MiB of memory free, 512 MiB are needed"),
    ],
)
def test_what_the_destination_does_not_have(
    wanted: dict[str, Any], destination: dict[str, Any], text: str
) -> None:
    [problem] = preflight.destination_problems(wish(**wanted), there(**destination))
    assert text in problem


def test_clusters_and_users_that_do_not_fit() -> None:
    [problem] = preflight.version_problems(
        {"software_version": "3.0.2"}, {"software_version": "3.1.0"}
    )
    assert "source cluster has version 3.0.2, the destination cluster 3.1.0" in problem
    [problem] = preflight.version_problems({"uuid": "a"}, {"uuid": "a"})
    assert "the same cluster" in problem
    [problem] = preflight.rights_problems("x", {"name": "joe", "rights": ["read"], "roles": []})
    assert "x: user 'joe' has no right to change things" in problem
    [problem] = preflight.rights_problems("x", {"name": None})
    assert "no user was given" in problem
    [problem] = preflight.source_problems(
        Source(NAME, is_running=False, facts={**FACTS, "disks": []}), [node()]
    )
    assert "has no disks" in problem
    [problem] = preflight.source_problems(RUNNING, [node(FACTS["pnode"], offline=True)])
    assert "is marked offline" in problem


class Asked:
    """A source that has snapshots, and says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[OpCode] = []

    def submit(self, opcode: OpCode) -> int:
        self.asked.append(opcode)
        return 7

    def job_changes(self, _job_id: int, **_options: Any) -> Iterator[tuple[str, list[LogEntry]]]:
        yield "success", []

    def ended_job(self, job_id: int) -> EndedJob:
        result = [["monday", 1.0, [0, 1]], ["tuesday", 2.0, [0, 1]]]
        return EndedJob(job_id, "success", [], [result])


@pytest.mark.parametrize(
    ("keeps_source", "is_3_0", "lost"),
    [(False, False, ["monday", "tuesday"]), (True, False, []), (False, True, [])],
    ids=["removed", "kept", "3.0"],
)
def test_snapshots_are_not_lost_with_the_source(
    lost: list[str], *, keeps_source: bool, is_3_0: bool
) -> None:
    looks, here = Preflight(cluster(), cluster(), keeps_source=keeps_source), Asked()
    looks._of_3_0 = {"source cluster"} if is_3_0 else set()
    assert looks._lost_snapshots(cast("Any", here), RUNNING) == lost
    assert bool(here.asked) is bool(lost)
    problems = list(preflight.snapshot_problems(RUNNING, lost))
    assert bool(problems) is bool(lost)
    assert all("(monday, tuesday) would be lost with it" in each for each in problems)


# The recipe, with servers that do what the test says.

READY = Ready(
    plan(RUNNING, NAME, Overrides()),
    {"handshake": ["h"], "x509_ca": "ca", "x509_key_name": ["key"]},
)
CREATE, SHUTDOWN, EXPORT, STARTUP, REMOVE = range(10, 15)
_JOBS = {
    "OpInstanceCreate": CREATE,
    "OpInstanceShutdown": SHUTDOWN,
    "OpBackupExport": EXPORT,
    "OpInstanceStartup": STARTUP,
    "OpInstanceRemove": REMOVE,
}
FAILED = ["OpExecError", ["no luck"]]


class Server:
    """Plays one cluster's remote API: jobs end as `ends` says, with success by default."""

    def __init__(self, ends: Mapping[int, object] | None = None) -> None:
        self.ends = dict(ends or {})
        self.asked: list[str] = []
        self.instances: dict[str, bool] = {}  # and whether they run
        self.submitted: dict[str, Any] = {}
        self.log: list[str] = []  # of the creation

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_exc: object) -> None:
        return

    def submit(self, opcode: OpCode, *, reason: str) -> int:
        assert reason == "move-instance"
        name = type(opcode).__name__
        self.asked.append(name)
        self.submitted[name] = opcode
        return _JOBS[name]

    def _result(self, job_id: int) -> object:
        return self.ends.get(job_id)

    def get_instance(self, name: str) -> dict[str, Any]:
        if name in self.instances:
            return {"name": name, "oper_state": self.instances[name]}
        raise RapiRefusedError("no such instance", 404)

    def get_job(self, job_id: int) -> dict[str, Any]:
        return {"status": "error" if self._result(job_id) else "success"}

    def delete_job(self, job_id: int) -> list[object]:
        self.asked.append(f"cancel {job_id}")
        return [True, ""]

    def job_changes(
        self, job_id: int, *, after_entry: int | None = None
    ) -> Iterator[tuple[str, list[LogEntry]]]:
        if job_id == CREATE and after_entry is None:
            awaited = {"disks": ["d"], "x509_ca": "theirs"}
            yield "running", [LogEntry(5, (0, 0), "remote-import", awaited)]
        if job_id == CREATE:
            yield "running", [LogEntry(6, (0, 0), "message", text) for text in self.log]
        yield self.get_job(job_id)["status"], []

    def ended_job(self, job_id: int) -> EndedJob:
        result = self._result(job_id)
        if isinstance(result, GenericError):
            raise result
        job = EndedJob(job_id, "error" if result else "success", [], [result])
        if result:
            raise JobFailedError(job)
        return job


def run_move(
    here: Server,
    destination: Server,
    *,
    ready: Ready = READY,
    manner: Manner | None = None,
    cancel: bool = False,
) -> tuple[str, list[str]]:
    """Run a move; returns why it failed, "" if it did not, and what it said."""
    said: list[str] = []
    here.instances.setdefault(NAME, False)

    class Played(Cluster):
        def client(self) -> Any:
            return here if self.options == "src" else destination

    ends = [
        Played(f"{what} cluster", option, f"{what}.example.com", 5080, "joe", None, None)
        for what, option in (("source", "src"), ("destination", "dest"))
    ]
    move = Move(ready, *ends, manner or Manner(), said.append)
    if cancel:
        move.cancel()
    try:
        move.run()
    except GenericError as err:
        return err.message, said
    return "", said


def test_the_source_is_removed_last() -> None:
    here, destination = Server(), Server()
    failure, said = run_move(here, destination)
    assert failure == ""
    assert said[-1] == "moved to destination.example.com"
    assert here.asked == ["OpInstanceShutdown", "OpBackupExport", "OpInstanceRemove"]
    sent = here.submitted["OpBackupExport"]
    assert (sent.target_node, sent.destination_x509_ca) == (["d"], "theirs")
    assert (sent.x509_key_name, sent.mode, sent.shutdown) == (["key"], "remote", False)
    made = destination.submitted["OpInstanceCreate"]
    assert (made.source_handshake, made.source_x509_ca) == (["h"], "ca")


# With a cluster of 3.0.

UNCONFIRMED = replace(READY, is_confirmed=False)


def test_it_is_started_only_after_both_jobs_have_ended_well() -> None:
    here, destination = Server(), Server()
    destination.instances = {NAME: False}
    failure, _ = run_move(here, destination, ready=UNCONFIRMED)
    assert failure == ""
    assert destination.submitted["OpInstanceCreate"].start is False
    assert destination.asked == ["OpInstanceCreate", "OpInstanceStartup"]
    assert here.asked[-1] == "OpInstanceRemove"


@pytest.mark.parametrize("lost", ["by the sender", "by the receiver", "at the start"])
def test_what_3_0_calls_a_success_may_be_none(lost: str) -> None:
    here = Server({EXPORT: FAILED} if lost == "by the sender" else {})
    destination = Server({STARTUP: FAILED} if lost == "at the start" else {})
    destination.instances = {NAME: False}
    if lost == "by the receiver":
        destination.log = [
            " - WARNING: Some disks for instance web1 were not imported successfully"
        ]
    failure, _ = run_move(here, destination, ready=UNCONFIRMED)
    assert ("not imported" if lost == "by the receiver" else "no luck") in failure
    assert "the instance runs again in the source cluster" in failure
    assert destination.asked[-1] == "OpInstanceRemove"
    assert (here.asked[-1], "OpInstanceRemove" in here.asked) == ("OpInstanceStartup", False)


def test_3_0_receives_no_disks_without_an_operating_system() -> None:
    assert list(preflight.problems_of_3_0(RUNNING)) == []
    source = Source(NAME, is_running=True, facts={**FACTS, "os": ""})
    [problem] = preflight.problems_of_3_0(source)
    assert "has no operating system definition" in problem


def test_the_source_can_be_kept() -> None:
    here = Server()
    failure, said = run_move(here, Server(), manner=Manner(keeps_source=True))
    assert failure == ""
    assert here.asked[-1] == "OpBackupExport"
    assert "shut down in the source cluster, and kept there" in said[-1]


def test_what_cannot_be_received_leaves_the_source_alone() -> None:
    here = Server()
    destination = Server({CREATE: FAILED})
    destination.job_changes = lambda *_args, **_opts: iter([("error", [])])  # type: ignore[method-assign]
    failure, _ = run_move(here, destination)
    assert "no luck" in failure
    assert here.asked == []


@pytest.mark.parametrize("broken", ["shutdown", "export"])
def test_a_source_that_fails_runs_again(broken: str) -> None:
    here = Server({SHUTDOWN if broken == "shutdown" else EXPORT: FAILED})
    failure, _ = run_move(here, Server({CREATE: FAILED}))
    assert "no luck" in failure
    assert "the instance runs again in the source cluster" in failure
    assert here.asked[-1] == "OpInstanceStartup"
    assert "OpInstanceRemove" not in here.asked


@pytest.mark.parametrize("asked", ["job_changes", "submit"])
def test_a_server_that_is_away_for_a_moment_leaves_no_source_down(
    monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    away = ["while it shuts down" if asked == "job_changes" else "before it is started again"]

    class Restarted(Server):
        def submit(self, opcode: OpCode, *, reason: str) -> int:
            if asked == "submit" and isinstance(opcode, OpInstanceStartup) and away:
                raise TransportError(away.pop())
            return super().submit(opcode, reason=reason)

        def job_changes(self, job_id: int, **options: Any) -> Iterator[tuple[str, list[LogEntry]]]:
            if asked == "job_changes" and job_id == SHUTDOWN and away:
                raise TransportError(away.pop())
            return super().job_changes(job_id, **options)

    monkeypatch.setattr(clusters, "_RETRY_S", 0.0)
    here, there = Restarted(), Server()
    if asked == "submit":
        here.ends, there.ends = {EXPORT: FAILED}, {CREATE: FAILED}
    failure, said = run_move(here, there)
    assert away == []
    if asked == "submit":
        assert "the instance runs again in the source cluster" in failure
    else:
        assert (failure, said[-1]) == ("", "moved to destination.example.com")


def test_a_destination_that_fails_last_costs_nothing() -> None:
    here, destination = Server(), Server({CREATE: FAILED})
    failure, _ = run_move(here, destination)
    assert "the instance runs again in the source cluster" in failure
    assert "incomplete" not in failure
    destination.instances = {NAME: False}
    failure, _ = run_move(here, destination)
    assert "incomplete" not in failure
    assert destination.asked[-1] == "OpInstanceRemove"
    destination.ends[REMOVE] = FAILED
    failure, _ = run_move(here, destination)
    assert "an incomplete instance is left in the destination cluster" in failure
    assert here.asked[-1] == "OpInstanceStartup"
    assert "OpInstanceRemove" not in here.asked


def test_a_destination_that_was_killed_too_late_counts_as_running() -> None:
    here, destination = Server(), Server({CREATE: FAILED})
    destination.instances = {NAME: True}
    failure, _ = run_move(here, destination)
    assert "may run in the destination cluster all the same, so it was not started" in failure
    assert {"OpInstanceStartup", "OpInstanceRemove"}.isdisjoint(here.asked)


def test_a_source_that_somebody_started_is_not_removed() -> None:
    here = Server()
    here.instances = {NAME: True}
    failure, _ = run_move(here, Server())
    assert "not removed from the source cluster: somebody has started it there again" in failure
    assert "OpInstanceRemove" not in here.asked


def test_two_copies_never_run() -> None:
    here = Server({EXPORT: FAILED})
    failure, _ = run_move(here, Server())
    assert "complete in the destination cluster all the same" in failure
    assert here.asked[-1] == f"cancel {EXPORT}"
    assert {"OpInstanceStartup", "OpInstanceRemove"}.isdisjoint(here.asked)


def test_nothing_is_started_while_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "PATIENCE_S", 0.0)
    here, destination = Server({EXPORT: FAILED}), Server()
    destination.get_job = _is_away  # type: ignore[method-assign]
    failure, _ = run_move(here, destination)
    assert "cannot be followed any more, so the instance was not started again" in failure
    assert {"OpInstanceStartup", "OpInstanceRemove"}.isdisjoint(here.asked)


def _is_away(_job_id: int) -> dict[str, Any]:
    raise TransportError("connection refused")


def test_a_source_that_cannot_be_removed_is_told() -> None:
    failure, _ = run_move(Server({REMOVE: FAILED}), Server())
    assert f"remove it with 'gnt-instance remove {NAME}'" in failure


def test_a_source_that_does_not_start_again_is_told() -> None:
    failure, _ = run_move(Server({EXPORT: FAILED, STARTUP: FAILED}), Server({CREATE: FAILED}))
    assert "the instance is down in the source cluster, as it could not be started" in failure


def test_what_is_canceled_early_touches_nothing() -> None:
    here, destination = Server(), Server()
    failure, _ = run_move(here, destination, cancel=True)
    assert failure == "canceled"
    assert here.asked == destination.asked == []


def test_resources_that_are_short_for_the_moment_are_tried_again() -> None:
    destination = Server({CREATE: ["OpPrereqError", ["no room", "temp_insufficient_resources"]]})
    destination.job_changes = lambda *_args, **_opts: iter([("error", [])])  # type: ignore[method-assign]
    manner = Manner(opportunistic_tries=3)
    failure, said = run_move(Server(), destination, manner=manner)
    assert "no room" in failure
    assert destination.asked.count("OpInstanceCreate") == 3
    assert sum("more attempt(s)" in text for text in said) == 2
    destination.ends[CREATE] = FAILED
    run_move(Server(), destination, manner=manner)
    assert destination.asked.count("OpInstanceCreate") == 4, "nothing else is tried again"


# Interruptions.


class PlayedMove:
    """A move that goes on until it is canceled, and whose cluster is slow to cancel its job."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error
        self.has_begun, self.is_canceled = Event(), Event()
        self.answers = Event()  # the cluster
        self.asked: list[str] = []

    def run(self) -> None:
        self.asked.append("run")
        self.has_begun.set()
        assert self.is_canceled.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.asked.append("stop")

    def cancel(self) -> None:
        self.asked.append("cancel")
        assert self.answers.wait(DEADLINE_S)
        self.is_canceled.set()


def played_context() -> tuple[Context, io.StringIO]:
    """Return a context, and its terminal's output."""
    said = io.StringIO()
    terminal = Terminal(said, said, io.StringIO())
    return Context("move-instance", command.PROGRAM.own[0], Options({}), terminal), said


def interrupted(
    moves: list[PlayedMove], parallel: int, interrupt: Callable[[], None]
) -> tuple[int, list[str]]:
    """Run moves that somebody interrupts; returns the exit status, and what was said."""
    context, said = played_context()
    with ThreadPoolExecutor(1) as somebody:
        done = somebody.submit(interrupt)
        status = command.run_all(context, cast("list[Move]", moves), parallel)
        done.result()
    return status, said.getvalue().splitlines()


def test_a_second_interruption_lets_nothing_begin() -> None:
    moves = [PlayedMove(f"web{number}") for number in (1, 2, 3)]

    def interrupt() -> None:
        assert moves[0].has_begun.wait(DEADLINE_S)
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: "cancel" in moves[0].asked, "the request")
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        moves[0].answers.set()

    before = signal.getsignal(signal.SIGINT)
    status, said = interrupted(moves, 1, interrupt)
    assert status == 1
    assert signal.getsignal(signal.SIGINT) is before
    assert [each.asked[:1] for each in moves] == [["run"], [], []]
    canceled = [f"{name}: canceled before it began" for name in ("web2", "web3")]
    assert said[-2:] == canceled
    assert "nothing was touched" not in "".join(said)


def test_no_cluster_that_is_silent_keeps_others_from_the_end() -> None:
    moves = [PlayedMove(f"web{number}", OpExecError(f"no {number}")) for number in (1, 2)]

    def interrupt() -> None:
        assert all(each.has_begun.wait(DEADLINE_S) for each in moves)
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: "stop" in moves[1].asked, "the request")
        assert not moves[0].is_canceled.is_set()
        for each in moves:
            each.answers.set()

    status, said = interrupted(moves, 2, interrupt)
    assert (status, said[-2:]) == (1, ["web1: not moved: no 1", "web2: not moved: no 2"])


def test_a_mistake_of_ours_hides_no_failure() -> None:
    mistaken, failed = PlayedMove("web1", KeyError("x")), PlayedMove("web2", OpExecError("no"))
    for each in (mistaken, failed):
        each.is_canceled.set()
    context, said = played_context()
    with pytest.raises(KeyError):
        command.run_all(context, cast("list[Move]", [mistaken, failed]), 2)
    assert said.getvalue() == "web2: not moved: no\n"


# How clusters are reached.


def cluster(**changes: Any) -> Cluster:
    values: dict[str, Any] = {"user": None, "password_file": None, "ca_file": None}
    return Cluster("source cluster", "src", "old.example.com", 5080, **{**values, **changes})


def test_why_a_cluster_cannot_be_asked() -> None:
    for error, text in (
        (TransportError("connection refused"), "is ganeti-rapi running there, on port 5080?"),
        (TransportError("its certificate is bad"), "--src-ca-file"),
        (RapiRefusedError("Unauthorized", 401), "refuses the user: Unauthorized; check --src-user"),
        (RapiRefusedError("x", 500), "source cluster old.example.com: x"),
    ):
        assert text in cluster().explain(error)


def test_files_that_are_missing(tmp_path: Any) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for changes, text in (
        ({"user": "joe"}, "user 'joe' needs --src-password-file"),
        ({"user": "joe", "password_file": str(tmp_path / "no")}, "No such file"),
        ({"user": "joe", "password_file": str(empty)}, "there is no password in"),
        ({"ca_file": str(tmp_path / "no")}, "No such file"),
        ({"ca_file": str(empty)}, "there is no certificate in"),
    ):
        with pytest.raises(OpPrereqError, match=text):
            cluster(**changes).client()


def test_a_password_is_the_first_line_of_its_file_as_the_server_reads_it(tmp_path: Any) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"p\xe4\x0b \x85\r\nmore\n")
    login = cluster(user="joe", password_file=str(path))._login()
    assert login is not None
    assert login.password == "p\xe4\x0b \x85"
