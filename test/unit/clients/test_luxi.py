"""Tests of ganeti/clients/luxi.py against a server that answers what it is told to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.in_thread import served

from ganeti.base.errors import JobLost, JobQueueFull, NotMasterError, ProtocolError, TransportError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.base.versions import LUXI_VERSION
from ganeti.clients.luxi import LuxiClient
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol.envelope import RefusedError, Request, RequestError
from ganeti.protocol.luxi import JobChange, LogEntry
from ganeti.store import ssconf
from ganeti.transport.unix_client import NoAccessError
from ganeti.transport.unix_server import Connection, UnixLimits, serve_unix

_NOBODY = 65534


class FakeLuxid:
    """Answers each method with a value or an error, and notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.versions: set[int | None] = set()
        self.answers: dict[str, object] = {}
        self.hang_ups = 0
        self.is_slow = False

    async def handle(self, request: Request, connection: Connection) -> object:
        self.asked.append((request.method, *request.args))
        self.versions.add(request.version)
        if self.hang_ups:
            self.hang_ups -= 1
            connection.abort()
            return None
        if self.is_slow:
            await asyncio.Event().wait()
        answer = self.answers.get(request.method, RequestError("unknown method"))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    found = Paths(str(tmp_path))
    for directory in (found.data_dir, found.lock_dir, found.socket_dir):
        os.makedirs(directory)
    monkeypatch.setenv("GANETI_ROOTDIR", found.root)
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    return found


@pytest.fixture
def luxid(paths: Paths) -> Iterator[FakeLuxid]:
    fake = FakeLuxid()
    limits = UnixLimits(drain_s=0.1)
    with served(lambda: serve_unix(paths.query_socket, 0o660, fake.handle, limits)):
        yield fake


@pytest.fixture
def client(paths: Paths) -> Iterator[LuxiClient]:
    with LuxiClient(paths, connect_timeout_s=0.3, sleep=lambda _seconds: None) as found:
        yield found


@pytest.mark.shows("2.12/overview/cli-luxi", "2.0/core/clients")
def test_a_job_is_submitted_as_objects(luxid: FakeLuxid, client: LuxiClient) -> None:
    luxid.answers["SubmitJob"] = 17
    opcode = decode_opcode({"OP_ID": "OP_TEST_DUMMY", "result": 1, "messages": 2, "fail": 3})
    assert client.submit_job([opcode, {"OP_ID": "OP_CLUSTER_VERIFY"}]) == 17
    method, opcodes = luxid.asked[0]
    assert method == "SubmitJob"
    assert isinstance(opcodes, list)
    assert opcodes[0]["OP_ID"] == "OP_TEST_DUMMY"
    assert opcodes[1] == {"OP_ID": "OP_CLUSTER_VERIFY"}
    assert luxid.versions == {LUXI_VERSION}


def test_each_of_many_jobs_has_its_own_answer(luxid: FakeLuxid, client: LuxiClient) -> None:
    luxid.answers["SubmitManyJobs"] = [[True, 5], [False, "queue full"]]
    assert client.submit_many_jobs([[], []]) == [(True, 5), (False, "queue full")]


@pytest.mark.shows("2.0/master/library")
def test_errors_come_back_as_their_class(luxid: FakeLuxid, client: LuxiClient) -> None:
    luxid.answers["SubmitJob"] = JobQueueFull()
    with pytest.raises(JobQueueFull):
        client.submit_job([])
    luxid.answers["WaitForJobChange"] = JobLost("job 7")
    with pytest.raises(JobLost, match="job 7"):
        client.wait_for_job_change(JobId(7), ["status"], None, None)
    with pytest.raises(RefusedError, match="unknown method"):
        client.query_cluster_info()


def test_waiting_for_a_job(luxid: FakeLuxid, client: LuxiClient) -> None:
    luxid.answers["WaitForJobChange"] = [["running"], [[1, [10, 20], "message", "hello"]]]
    change = client.wait_for_job_change(JobId(7), ["status"], ["queued"], None, 1000)
    assert change == JobChange(["running"], [LogEntry(1, (10, 20), "message", "hello")])
    assert luxid.asked[0] == ("WaitForJobChange", 7, ["status"], ["queued"], None, 89)


@pytest.mark.shows("2.0/luxi/nochange")
@pytest.mark.parametrize("answer", ["nochange", [["queued"], []], [None, []]])
def test_no_change_is_none(luxid: FakeLuxid, client: LuxiClient, answer: object) -> None:
    luxid.answers["WaitForJobChange"] = answer
    assert client.wait_for_job_change(JobId(7), ["status"], ["queued"], 3) is None


def test_a_query_has_typed_fields_and_cells(luxid: FakeLuxid, client: LuxiClient) -> None:
    luxid.answers["Query"] = {
        "fields": [{"name": "name", "title": "Node", "kind": "text", "doc": "The name"}],
        "data": [[[0, "n1"]], [[4, None]]],
    }
    found = client.query("node", ["name"], ["=", "name", "n1"])
    assert found.fields[0].title == "Node"
    assert found.data == [[(0, "n1")], [(4, None)]]
    assert found.rows() == [["n1"], [None]]
    assert luxid.asked[0] == ("Query", "node", ["name"], ["=", "name", "n1"])


@pytest.mark.shows("2.0/master/library")
def test_every_other_method_sends_its_arguments_in_order(
    luxid: FakeLuxid, client: LuxiClient
) -> None:
    rows = [["x"]]
    expectations = [
        ("SubmitJobToDrainedQueue", 3, lambda: client.submit_job_to_drained_queue([]), [[]]),
        ("QueryJobs", rows, lambda: client.query_jobs(None, ["id"]), [None, ["id"]]),
        ("CancelJob", [True, "ok"], lambda: client.cancel_job(JobId(1), kill=True), [1, True]),
        (
            "ChangeJobPriority",
            [True, ""],
            lambda: client.change_job_priority(JobId(1), -5),
            [1, -5],
        ),
        ("ArchiveJob", True, lambda: client.archive_job(JobId(1)), [1]),
        ("AutoArchiveJobs", [3, 0], lambda: client.auto_archive_jobs(-1, 10), [-1, 10]),
        ("PickupJob", None, lambda: client.pickup_job(JobId(1)), [1]),
        (
            "QueryInstances",
            rows,
            lambda: client.query_instances([], ["name"]),
            [[], ["name"], False],
        ),
        ("QueryNodes", rows, lambda: client.query_nodes([], ["name"]), [[], ["name"], False]),
        ("QueryGroups", rows, lambda: client.query_groups([], ["name"]), [[], ["name"], False]),
        ("QueryNetworks", rows, lambda: client.query_networks([], ["name"]), [[], ["name"], False]),
        ("QueryFilters", rows, lambda: client.query_filters(None, ["uuid"]), [None, ["uuid"]]),
        ("QueryExports", rows, lambda: client.query_exports(["n1"]), [["n1"], False]),
        ("QueryTags", ["t"], lambda: client.query_tags("node", "n1"), ["node", "n1"]),
        ("QueryClusterInfo", {"name": "c"}, lambda: client.query_cluster_info(), []),
        ("QueryConfigValues", ["c"], lambda: client.query_config_values(["name"]), [["name"]]),
        ("SetDrainFlag", True, lambda: client.set_drain_flag(True), [True]),
        ("SetWatcherPause", None, lambda: client.set_watcher_pause(None), [None]),
        ("DeleteFilter", None, lambda: client.delete_filter("u"), ["u"]),
    ]
    for method, answer, ask, args in expectations:
        luxid.answers[method] = answer
        found = ask()
        assert luxid.asked[-1] == (method, *args)
        assert found == (tuple(answer) if isinstance(found, tuple) else answer)
    luxid.answers["QueryFields"] = {"fields": []}
    assert client.query_fields("node").fields == []
    luxid.answers["ReplaceFilter"] = "uuid-1"
    said = client.replace_filter(None, priority=1, predicates=[], action="ACCEPT", reason=[])
    assert said == "uuid-1"
    assert luxid.asked[-1] == ("ReplaceFilter", None, 1, [], "ACCEPT", [])


def test_an_answer_of_another_shape_is_a_protocol_error(
    luxid: FakeLuxid, client: LuxiClient
) -> None:
    luxid.answers["SubmitJob"] = "seventeen"
    with pytest.raises(ProtocolError, match="Expected `int`"):
        client.submit_job([])


def test_a_read_is_asked_again_when_the_connection_broke(
    luxid: FakeLuxid, client: LuxiClient
) -> None:
    luxid.answers["QueryTags"] = ["t"]
    luxid.hang_ups = 14
    assert client.query_tags("cluster", "") == ["t"]
    assert len(luxid.asked) == 15
    luxid.hang_ups = 15
    with pytest.raises(TransportError):
        client.query_tags("cluster", "")


def test_a_change_is_never_asked_twice(luxid: FakeLuxid, client: LuxiClient) -> None:
    luxid.answers["SubmitJob"] = 17
    luxid.hang_ups = 1
    with pytest.raises(TransportError, match="SubmitJob may have been carried out"):
        client.submit_job([])
    assert len(luxid.asked) == 1


def test_a_change_without_an_answer_in_time_may_be_made_still(
    luxid: FakeLuxid, paths: Paths
) -> None:
    luxid.is_slow = True
    with LuxiClient(paths, answer_timeout_s=0.05) as client:
        with pytest.raises(TransportError, match="in time; SubmitJob may have been carried out"):
            client.submit_job([])
        with pytest.raises(TransportError, match=r"in time$"):
            client.query_tags("cluster", "")
    assert [method for method, *_args in luxid.asked] == ["SubmitJob", "QueryTags"]


def test_outside_a_cluster_it_is_said(client: LuxiClient) -> None:
    with pytest.raises(NotMasterError, match="not part of a cluster") as caught:
        client.query_cluster_info()
    assert caught.value.master_name is None


@pytest.mark.shows("backend/roles/clients")
def test_on_another_node_the_master_is_named(paths: Paths, client: LuxiClient) -> None:
    ssconf.write_values(paths, {"master_node": "node2.example.com"})
    with pytest.raises(NotMasterError, match=r"connect to node2\.example\.com instead") as caught:
        client.query_cluster_info()
    assert caught.value.master_name == "node2.example.com"


@pytest.mark.shows("backend/roles/clients")
def test_on_the_master_a_missing_luxid_is_waited_for(paths: Paths, client: LuxiClient) -> None:
    ssconf.write_values(paths, {"master_node": "node1.example.com"})
    with pytest.raises(TransportError, match="is ganeti-luxid running here") as caught:
        client.query_cluster_info()
    assert not isinstance(caught.value, NotMasterError)


def test_who_may_not_ask_is_told_so_at_once(paths: Paths) -> None:
    ssconf.write_values(paths, {"master_node": "node1.example.com"})

    def wait(_seconds: float) -> None:
        raise AssertionError("waiting does not help")

    os.chmod(os.path.dirname(paths.query_socket), 0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        with LuxiClient(paths, sleep=wait) as client, pytest.raises(NoAccessError) as caught:
            client.query_cluster_info()
    finally:
        os.seteuid(user)
        os.chmod(os.path.dirname(paths.query_socket), 0o755)
    assert "Permission denied; run it as root, or as a member of" in caught.value.message


def test_luxid_that_comes_back_in_time_is_found(paths: Paths) -> None:
    ssconf.write_values(paths, {"master_node": "node1.example.com"})
    fake = FakeLuxid()
    fake.answers["SubmitJob"] = 3
    servers = []

    def start_luxid(_seconds: float) -> None:
        if not servers:
            server = served(lambda: serve_unix(paths.query_socket, 0o660, fake.handle))
            server.__enter__()
            servers.append(server)

    try:
        with LuxiClient(paths, sleep=start_luxid) as client:
            assert client.submit_job([]) == 3
    finally:
        for server in servers:
            server.__exit__(None, None, None)
