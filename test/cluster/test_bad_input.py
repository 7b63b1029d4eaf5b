"""Whatever comes in is answered with one clear error, and the daemons live on."""

from __future__ import annotations

import json
import os
import shutil
import socket
from typing import Any

import pytest
from fakes.virtual_cluster import TestCluster

from ganeti.base.errors import CommandError
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files
from ganeti.bootstrap.virtual import lifecycle
from ganeti.system import daemon_control

ETX = b"\x03"
TIMEOUT_S = 60.0


def ask(path: str, data: bytes) -> list[Any]:
    """Send bytes to a socket and return the answers until the server closes or is silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(path)
        received = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has seen enough, and its answer is still to be read
        while True:
            try:
                chunk = connection.recv(65536)
            except ConnectionResetError:
                break
            if not chunk:
                break
            received += chunk
    return [json.loads(message) for message in received.split(ETX) if message]


def request(method: str, *args: object) -> bytes:
    return json.dumps({"method": method, "args": list(args), "version": 3000000}).encode() + ETX


def alive(cluster: TestCluster) -> None:
    """Check that both daemons answer, and are the same processes as before."""
    cluster.gnt("cluster master-ping")
    cluster.gnt(["debug", "wconfd", "echo", '"hello"'])


@pytest.fixture(params=["query_socket", "wconfd_socket"])
def socket_path(request: pytest.FixtureRequest, cluster: TestCluster) -> str:
    return str(getattr(cluster.paths, request.param))


@pytest.mark.parametrize(
    "data",
    [
        b"{" + ETX,
        b"" + ETX,
        b"null" + ETX,
        b"[]" + ETX,
        b'{"method": 5, "args": []}' + ETX,
        b'{"args": []}' + ETX,
        b'{"method": "QueryClusterInfo", "args": {}}' + ETX,
        b'{"method": "NoSuchMethod", "args": []}' + ETX,
        b'{"method": "\xff\xfe", "args": []}' + ETX,
        b"\x00\x01\x02" + ETX,
        b"[" * 10000 + ETX,
        b'{"method": "QueryClusterInfo", "args": [1, 2, 3]}' + ETX,
    ],
    ids=lambda data: repr(data[:30]),
)
def test_malformed_requests_get_one_error(
    cluster: TestCluster, socket_path: str, data: bytes
) -> None:
    [answer] = ask(socket_path, data)
    assert answer["success"] is False
    text = json.dumps(answer["result"])
    assert len(text) > 10
    assert "Traceback" not in text
    alive(cluster)


def test_oversized_request_is_refused_without_being_read(
    cluster: TestCluster, socket_path: str
) -> None:
    answers = ask(socket_path, b'{"method": "' + b"x" * (70 << 20))
    assert [answer["success"] for answer in answers] == [False]
    assert "large" in json.dumps(answers) or "bytes" in json.dumps(answers)
    alive(cluster)


def test_half_a_request_is_forgotten(cluster: TestCluster, socket_path: str) -> None:
    assert ask(socket_path, b'{"method": "Query') == []
    alive(cluster)


def test_unknown_opcode_over_luxi(cluster: TestCluster) -> None:
    [answer] = ask(
        cluster.paths.query_socket,
        request("SubmitJob", [{"OP_ID": "OP_MAKE_COFFEE", "reason": []}]),
    )
    assert answer["success"] is False
    assert "OP_MAKE_COFFEE" in json.dumps(answer["result"])


@pytest.mark.parametrize(
    ("opcode", "words"),
    [
        ({"OP_ID": "OP_TEST_DELAY", "duration": "long"}, ["OP_TEST_DELAY", "duration"]),
        ({"OP_ID": "OP_TEST_DELAY"}, ["OP_TEST_DELAY", "duration"]),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "colour": "red"}, ["colour"]),
        ({"OP_ID": "OP_NODE_ADD", "node_name": ["x"]}, ["OP_NODE_ADD", "node_name"]),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "priority": 7}, ["priority"]),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "depends": [[-1, ["gone"]]]}, ["depends"]),
        ({}, ["OP_ID"]),
    ],
)
def test_wrong_parameters_are_named(
    cluster: TestCluster, opcode: dict[str, object], words: list[str]
) -> None:
    before = cluster.gnt("job list --no-headers -o id").lines
    submitted = {"reason": [], **opcode}
    [answer] = ask(cluster.paths.query_socket, request("SubmitJob", [submitted]))
    assert answer["success"] is False
    for word in words:
        assert word in json.dumps(answer["result"])
    assert cluster.gnt("job list --no-headers -o id").lines == before


@pytest.mark.parametrize("job_id", [-1, "x", None, 10**9, [1]])
def test_wrong_job_ids(cluster: TestCluster, job_id: object) -> None:
    for method in (
        request("CancelJob", job_id),
        request("ArchiveJob", job_id),
        request("WaitForJobChange", job_id, ["status"], None, None, 1),
    ):
        [answer] = ask(cluster.paths.query_socket, method)
        assert answer["success"] in (True, False)
        if answer["success"]:
            assert job_id == 10**9
    alive(cluster)


def test_node_name_that_does_not_resolve(cluster: TestCluster) -> None:
    cluster.refused("node add nowhere.example.com", "nowhere.example.com")
    cluster.refused("node add node2.example.com", "in the cluster already")
    assert len(cluster.gnt("node list --no-headers").lines) == 3


def test_node_whose_set_up_fails_is_not_added(cluster: TestCluster) -> None:
    """A name without a machine behind it: a directory that cannot be made is all there is."""
    name = "node9.example.com"
    hosts = cluster.paths.etc_hosts
    with open(hosts, encoding="utf-8") as file:
        text = file.read()
    blocker = os.path.join(cluster.layout.base, name)
    with open(blocker, "w", encoding="utf-8"):
        pass  # a file where the node's directory would be
    try:
        with open(hosts, "a", encoding="utf-8") as file:
            file.write(f"{cluster.layout.network}.9 {name}\n")
        outcome = cluster.run(f"gnt-node add {name}")
        assert outcome.status == 12, outcome
        assert name in outcome.err
    finally:
        os.unlink(blocker)
        with open(hosts, "w", encoding="utf-8") as file:
            file.write(text)
    assert len(cluster.gnt("node list --no-headers").lines) == 3


def test_node_whose_job_fails_is_cleaned_up_again(cluster: TestCluster) -> None:
    name = "node9.example.com"
    paths = Paths(os.path.join(cluster.layout.base, name))
    hosts = cluster.paths.etc_hosts
    with open(hosts, encoding="utf-8") as file:
        text = file.read()
    try:
        with open(hosts, "a", encoding="utf-8") as file:
            file.write(f"{cluster.layout.network}.9 {name}\n")
        cluster_files.ensure_directories(paths)
        os.makedirs(os.path.dirname(paths.etc_hosts), exist_ok=True)
        shutil.copy(hosts, paths.etc_hosts)
        outcome = cluster.run(f"gnt-node add --node-group=nosuchgroup {name}")
        assert outcome.status == 1, outcome
        assert "nosuchgroup" in outcome.err
        assert cluster_files.cluster_files(paths) == []
        assert daemon_control.running_pid(paths, "ganeti-noded") is None
    finally:
        with open(hosts, "w", encoding="utf-8") as file:
            file.write(text)
        shutil.rmtree(paths.root, ignore_errors=True)
    assert len(cluster.gnt("node list --no-headers").lines) == 3


@pytest.mark.shows("backend/noded/stopped-told", "2.0/background/node-failures")
def test_node_that_is_down_is_named_and_delays_nothing_else(cluster: TestCluster) -> None:
    name = cluster.nodes[2]
    daemon_control.stop_daemon(cluster.paths_of(name), "ganeti-noded")
    try:
        lines = cluster.gnt("node list --no-headers --separator=| -o name,mtotal").lines
        assert lines[2].startswith(f"{name}|?")
        assert "?" not in lines[0]
        outcome = cluster.run(
            "gnt-instance add --no-name-check --no-ip-check -t diskless -H fake --no-install"
            f" -o test -n {name} down.example.com"
        )
        assert outcome.status == 1
        assert name in outcome.err
        assert cluster.instance_names() == []
        cluster.gnt(f"node modify --offline=yes --force {name}")
        lines = cluster.gnt("node list --no-headers --separator=| -o name,mtotal").lines
        assert lines[2] == f"{name}|*"
        cluster.refused(
            "instance add --no-name-check --no-ip-check -t diskless -H fake --no-install"
            f" -o test -n {name} down.example.com",
            "offline",
        )
    finally:
        lifecycle.start(cluster.layout, lambda _text: None)
        cluster.gnt(f"node modify --offline=no -C yes {name}")
    assert cluster.gnt(f"node list --no-headers -o role {name}").out.strip() == "C"


def test_missing_certificate_is_named(cluster: TestCluster) -> None:
    name = cluster.nodes[1]
    paths = cluster.paths_of(name)
    daemon_control.stop_daemon(paths, "ganeti-noded")
    os.rename(paths.server_pem, paths.server_pem + ".away")
    try:
        with pytest.raises(CommandError, match=r"server\.pem"):
            daemon_control.start_daemon(paths, "ganeti-noded", hostname=name)
    finally:
        os.rename(paths.server_pem + ".away", paths.server_pem)
        lifecycle.start(cluster.layout, lambda _text: None)
    assert cluster.gnt("cluster verify").status == 0


def test_masters_without_configuration_refuse_to_start(cluster: TestCluster) -> None:
    paths = cluster.paths_of(cluster.nodes[1])
    for daemon in ("ganeti-wconfd", "ganeti-luxid"):
        with pytest.raises(CommandError) as raised:
            daemon_control.start_daemon(paths, daemon, hostname=cluster.nodes[1])
        assert raised.value.status == 11, raised.value
        assert cluster.master in raised.value.message
    alive(cluster)


def test_node_tools_refuse_nonsense(cluster: TestCluster) -> None:
    outcome = cluster.run("node-daemon-setup", node=cluster.nodes[1], stdin=b"{}")
    assert outcome.status == 1
    assert outcome.err.startswith("node-daemon-setup: ")
    outcome = cluster.run("node-cleanup", node=cluster.nodes[1])
    assert outcome.status == 13
    outcome = cluster.run("node-cleanup --yes-do-it", node=cluster.master)
    assert outcome.status == 1
    assert "gnt-cluster destroy" in outcome.err
    alive(cluster)
