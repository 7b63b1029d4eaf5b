"""The node daemon over its real TLS socket."""

import contextlib
import http.client
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes.metric_page import values_on
from fakes.noded_node import NodedNode, children_at_work, refused_by_handshake, short_directory
from fakes.shell_scripts import write_script
from fakes.waiting import wait_until

from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.collectors.metrics import served_names
from ganeti.node_ops import dispatch
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import compress
from ganeti.store import ssconf
from ganeti.system import certificates, clock, files, process
from ganeti.system.filelock import FileLock

MEMORY_BYTES_MAX = 50 << 20


@pytest.fixture(scope="module")
def node() -> Iterator[NodedNode]:
    with short_directory() as base, NodedNode(base) as started:
        yield started


@pytest.fixture
def base() -> Iterator[Path]:
    with short_directory() as path:
        yield path


@pytest.mark.shows("2.0/master/rpc")
def test_it_tells_its_version_on_a_kept_alive_connection(node: NodedNode) -> None:
    connection = node.connect()
    for _round in range(3):
        assert node.call("version", connection=connection) == [True, PROTOCOL_VERSION]
    connection.close()


def test_a_call_in_a_child_is_answered_on_a_kept_alive_connection(node: NodedNode) -> None:
    connection = node.connect()
    for _round in range(3):
        assert node.call("test_delay", 0, connection=connection) == [True, None]
    connection.close()


def test_an_allocator_ends_when_its_caller_hangs_up_and_no_other_call_does(
    node: NodedNode, tmp_path: Path
) -> None:
    directory = Path(node.paths.iallocator_search_path[0])
    directory.mkdir(parents=True, exist_ok=True)
    write_script(directory / "thinker", f"echo $$ > {tmp_path}/pid; exec sleep 3600")
    connection = node.connect()
    connection.request("POST", "/iallocator_runner", json.dumps(["thinker", "{}", None]))
    told = tmp_path / "pid"
    wait_until(lambda: told.exists() and told.read_text().strip(), "the allocator")
    pid = int(told.read_text())
    connection.close()
    wait_until(lambda: not psutil.pid_exists(pid), "the end of the allocator")
    # One that is waited for has its answer as ever, and the connection serves the next call.
    write_script(directory / "quick", "echo 42")
    connection = node.connect()
    asked = ("iallocator_runner", "quick", "{}", None)
    for _round in range(2):
        assert node.call(*asked, connection=connection) == [True, "42\n"]
    connection.close()
    assert "iallocator_runner was stopped, as its caller hung up" in node.log()
    # A call that changes things comes to its end.
    hung_up = node.connect()
    hung_up.request("POST", "/test_delay", "[1.5]")
    helper = next(p for p in psutil.Process(node.pid).children() if p.name() == "noded-helper")
    child = wait_until(lambda: children_at_work(helper), "the child")[0]
    hung_up.close()
    assert child.wait(60) in (0, None)
    assert "test_delay was stopped" not in node.log()


@pytest.mark.shows("backend/certificates/tls", "2.0/core/https")
def test_no_certificate_no_answer(node: NodedNode) -> None:
    assert refused_by_handshake(node, None)


def test_a_certificate_of_another_cluster_gets_no_answer(node: NodedNode, tmp_path: Path) -> None:
    pem = tmp_path / "foreign.pem"
    pem.write_bytes(certificates.make_self_signed(now=clock.now()))
    assert refused_by_handshake(node, str(pem))


@pytest.mark.parametrize(
    ("age_days", "trusted", "words"),
    [
        (0, False, "not that of a master candidate"),
        (400, True, "has expired"),
        (-400, True, "and the clock of node1.example.com is "),
    ],
)
def test_a_certificate_that_is_not_right_is_refused(
    node: NodedNode, tmp_path: Path, age_days: int, trusted: bool, words: str
) -> None:
    issued = clock.now() - age_days * 86400
    pem = node.issue(str(tmp_path / "other.pem"), "node9.example.com", 9, now=issued, days=365)
    node.trust(node.paths.client_pem, *([pem] if trusted else []))
    connection = node.connect(pem)
    connection.request("POST", "/version", "[]")
    response = connection.getresponse()
    assert response.status == 403
    assert words in response.read().decode()


def test_the_certificate_is_checked_for_every_request(node: NodedNode, tmp_path: Path) -> None:
    pem = node.issue(str(tmp_path / "demoted.pem"), "node8.example.com", 8)
    node.trust(node.paths.client_pem, pem)
    connection = node.connect(pem)
    assert node.call("version", connection=connection)[0]
    node.trust(node.paths.client_pem)
    connection.request("POST", "/version", "[]")
    assert connection.getresponse().status == 403


def test_metrics_count_calls_by_outcome(node: NodedNode) -> None:
    node.call("version")
    connection = node.connect()
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status == 200
    told = values_on(text)
    assert told["ganeti_noded_calls_total", "version", "done"] >= 1
    assert 0 < told["ganeti_noded_calls_seconds_total", "version", "done"] < 1
    assert told["ganeti_noded_call_seconds_count", "version"] >= 1
    assert told["ganeti_noded_calls_running",] == 0
    assert {name for (name, *_) in told} == {
        name for name in served_names() if name.startswith("ganeti_noded_")
    }


def test_an_unknown_call_is_404_and_another_method_400(node: NodedNode) -> None:
    for method, path, status in (("POST", "/nonsense", 404), ("GET", "/version", 400)):
        connection = node.connect()
        connection.request(method, path, "[]")
        response = connection.getresponse()
        assert response.status == status
        response.read()


@pytest.mark.parametrize(
    ("call", "body", "words"),
    [
        ("version", b"[", "invalid JSON"),
        ("version", b"[" * 1000, "nested too deeply"),
        ("version", b"{}", "must be a JSON list"),
        ("version", b"[1]", "takes 0 arguments (none), got 1"),
        ("test_delay", b"\xff\xfe", "invalid"),
        ("test_delay", b'["x"]', "test_delay: wrong argument duration"),
        ("instance_console_info", b"[]", "must be a JSON object"),
    ],
)
def test_bad_input_is_one_clear_error(node: NodedNode, call: str, body: bytes, words: str) -> None:
    connection = node.connect()
    connection.request("POST", f"/{call}", body)
    success, text = json.loads(connection.getresponse().read())
    assert not success
    assert words in text
    assert node.payload("version") == PROTOCOL_VERSION


def test_an_oversized_body_is_refused_by_its_announced_size(node: NodedNode) -> None:
    connection = node.connect()
    connection.putrequest("POST", "/version")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    assert node.payload("version") == PROTOCOL_VERSION


@pytest.mark.parametrize("call", [name for name in NodeCalls.calls if not dispatch.is_served(name)])
def test_what_is_not_built_says_so(node: NodedNode, call: str) -> None:
    count = len(NodeCalls.calls[call].names)
    assert node.failure(call, *[None] * count) == f"not supported yet: {call}"


def helper_at_rest(node: NodedNode) -> psutil.Process:
    """Return the helper, once the children of earlier calls, which are answered, have ended."""
    (helper,) = psutil.Process(node.pid).children()
    wait_until(lambda: not children_at_work(helper), "earlier children end")
    return helper


@pytest.mark.shows("2.0/noded/children")
def test_calls_at_the_same_time_do_not_wait_for_each_other(node: NodedNode) -> None:
    helper = helper_at_rest(node)
    with ThreadPoolExecutor(12) as pool:
        calls = [pool.submit(node.call, "test_delay", 600) for _ in range(12)]
        try:
            wait_until(lambda: len(children_at_work(helper)) == 12, "all are carried out at once")
        finally:
            for child in children_at_work(helper):
                child.kill()
        assert [call.result()[0] for call in calls] == [False] * 12


def test_a_crashed_child_is_a_clear_error(node: NodedNode) -> None:
    helper = helper_at_rest(node)

    def kill_the_child() -> None:
        wait_until(lambda: bool(children_at_work(helper)), "the child")
        children_at_work(helper)[0].send_signal(signal.SIGSEGV)

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_the_child)
        text = node.failure("test_delay", 600)
        killing.result()
    assert "ended without an answer on node node1.example.com, killed by SIGSEGV" in text


@pytest.mark.shows("2.12/noded/from-luxid", "2.0/queue-rpc/update")
def test_queue_files_and_ssconf_are_written(node: NodedNode) -> None:
    content = '{"id": 7}' + " " * 1000
    node.payload("jobqueue_update", "/var/lib/ganeti/queue/job-7", compress(content))
    assert Path(node.paths.job_file(7)).read_text() == content
    node.payload("write_ssconf_files", {"cluster_name": "c.example.com"})
    assert Path(node.paths.ssconf_file("cluster_name")).read_text() == "c.example.com\n"


def test_files_are_written_as_fast_the_second_time(node: NodedNode) -> None:
    """A locked process that reads the old value into a buffer of the limit's size takes a second."""
    started = clock.monotonic()
    for text in ("a", "b", "c"):
        values = dict.fromkeys(ssconf.KEYS - {"master_candidates_certs"}, text)
        node.payload("write_ssconf_files", values)
    assert clock.monotonic() - started < 40


@pytest.mark.shows("2.0/queue-rpc/only-queue")
def test_nothing_outside_the_queue_or_the_white_list_is_written(node: NodedNode) -> None:
    for path in (
        "/var/lib/ganeti/config.data",
        "/var/lib/ganeti/queue/../config.data",
        "/var/lib/ganeti/queue/lock",
        "/var/lib/ganeti/queue/job-1/../../x",
        "job-1",
    ):
        node.failure("jobqueue_update", path, compress("x"))
    details = ["/etc/passwd", compress("x"), 0o644, "root", "root", 0.0, 0.0]
    assert "not one that this node accepts" in node.failure("upload_file", details)
    assert "not one that this node accepts" in node.failure("upload_file_single", *details)
    assert not os.path.exists(node.paths.config_data)


def test_the_drain_flag_waits_for_a_busy_job_queue(node: NodedNode) -> None:
    with ThreadPoolExecutor(1) as pool:
        with FileLock(node.paths.queue_lock):
            call = pool.submit(node.payload, "jobqueue_set_drain_flag", True)
            assert not os.path.exists(node.paths.queue_drain)
        call.result()
    assert os.path.exists(node.paths.queue_drain)
    node.payload("jobqueue_set_drain_flag", False)
    assert not os.path.exists(node.paths.queue_drain)


def ask_for_job(node: NodedNode, call: str, body: str) -> Any:
    """Make a call on behalf of job 42; returns the whole answer."""
    with contextlib.closing(node.connect()) as connection:
        connection.request("POST", f"/{call}", body, {"X-Ganeti-Job": "42"})
        return json.loads(connection.getresponse().read())


def test_jobs_of_a_former_master_change_nothing(node: NodedNode) -> None:
    def follow(master: str) -> None:
        files.write_atomic(node.paths.ssconf_file("master_node"), f"{master}\n".encode())
        node.payload("version")

    try:
        for master in ("node1.example.com", "node2.example.com", "node3.example.com"):
            follow(master)
            is_done, text = ask_for_job(node, "set_watcher_pause", "[null]")
            assert is_done == (master == "node1.example.com"), text
        assert "node node1.example.com is not the master any more" in text
        assert "node node3.example.com is" in text
        assert "job 42" in node.log()
        assert ask_for_job(node, "get_watcher_pause", "[]") == [True, None]
        node.payload("set_watcher_pause", None)  # not on behalf of a job
        assert ask_for_job(node, "config_set_aside", "[]") == [True, None]
        # The role came back while this node was offline: the job that takes it in tells it so.
        values = json.dumps([1, {"master_node": "node1.example.com"}])
        assert ask_for_job(node, "ssconf_accept", values) == [True, None]
        assert ask_for_job(node, "set_watcher_pause", "[null]") == [True, None]
        follow("node2.example.com")
        follow("node1.example.com")
        assert ask_for_job(node, "set_watcher_pause", "[null]") == [True, None]
    finally:
        os.unlink(node.paths.ssconf_file("master_node"))


@pytest.mark.shows("2.12/noded/from-jobs")
def test_the_log_names_changes_with_job_and_peer(node: NodedNode) -> None:
    assert ask_for_job(node, "set_watcher_pause", "[9999999999]") == [True, None]
    wait_until(lambda: "set_watcher_pause" in node.log(), "it is logged")
    line = next(line for line in node.log().splitlines() if "set_watcher_pause" in line)
    assert "job=42" in line
    assert "(node1.example.com)" in line
    assert node.payload("get_watcher_pause") == 9999999999.0


def test_a_new_certificate_is_taken_up_without_a_restart(node: NodedNode) -> None:
    kept = node.connect()
    assert node.call("version", connection=kept) == [True, PROTOCOL_VERSION]
    path = node.paths.server_pem
    files.write_atomic(path, files.read_bytes(path))
    wait_until(lambda: "Using a new certificate" in node.log(), "it is used", timeout_s=60.0)
    assert node.call("version") == [True, PROTOCOL_VERSION]
    assert node.call("version", connection=kept) == [True, PROTOCOL_VERSION]
    kept.close()


def test_memory_at_rest(node: NodedNode) -> None:
    daemon = psutil.Process(node.pid)
    (helper,) = daemon.children()
    for used in (daemon, helper):
        assert used.memory_full_info().uss < MEMORY_BYTES_MAX, used
    assert daemon.memory_info().rss < MEMORY_BYTES_MAX
    locked = Path(f"/proc/{node.pid}/status").read_text().partition("VmLck:")[2].split()[0]
    assert int(locked) * 1024 < MEMORY_BYTES_MAX


def test_it_stops_with_its_helper_and_starts_again(base: Path) -> None:
    node = NodedNode(base)
    for _round in range(2):
        with node:
            (helper,) = psutil.Process(node.pid).children()
            assert node.payload("version") == PROTOCOL_VERSION
        assert process.wait_gone(helper.pid, 60)


def test_a_new_helper_takes_over_from_a_dead_one(base: Path) -> None:
    with NodedNode(base) as node:
        (helper,) = psutil.Process(node.pid).children()
        helper.kill()
        assert process.wait_gone(helper.pid, 60)
        while psutil.Process(node.pid).children() in ([], [helper]):
            os.sched_yield()
        assert node.payload("test_delay", 0) is None
        assert "the helper process" in node.log()
        assert "died; starting a new one" in node.log()


def test_a_running_child_does_not_keep_a_new_daemon_from_starting(base: Path) -> None:
    def call_in_vain() -> None:
        with pytest.raises((OSError, http.client.HTTPException)):
            node.call("test_delay", 600)

    with NodedNode(base) as node, ThreadPoolExecutor(1) as pool:
        call = pool.submit(call_in_vain)
        (helper,) = psutil.Process(node.pid).children()
        while not (children := children_at_work(helper)):
            os.sched_yield()
        psutil.Process(node.pid).kill()
        call.result()
        node.start()
        assert node.payload("version") == PROTOCOL_VERSION
        children[0].kill()


def test_it_ends_after_leaving_the_cluster(base: Path) -> None:
    with NodedNode(base) as node:
        Path(node.paths.config_data).write_text("{}")
        node.payload("node_leave_cluster", False)
        assert process.wait_gone(node.pid, 60)
        node.pid = 0
        assert os.listdir(node.paths.data_dir) == []
        assert os.path.exists(node.paths.etc_hosts)


def test_a_missing_certificate_is_named_at_start(base: Path) -> None:
    node = NodedNode(base)
    os.unlink(node.paths.server_pem)
    with pytest.raises(AssertionError, match=r"server\.pem: this file does not exist"):
        node.start()


def test_it_listens_where_the_options_say(base: Path) -> None:
    node = NodedNode(base, options=("-b", "127.0.0.1", "-p", "0"))
    with node:
        assert "Listening on 127.0.0.1 port " in node.log()


def _unlocked(pid: int) -> list[str]:
    """Return the mappings of a process with pages in memory that may be evicted."""
    found, name, is_resident = [], "", False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        key, _, value = line.partition(":")
        if "-" in key.split()[0]:
            name = line
        elif key == "Rss":
            is_resident = value.split()[0] != "0"
        elif key == "VmFlags" and is_resident and "lo" not in value.split():
            found.append(name)
    return [each for each in found if not each.endswith(("[vdso]", "[vvar]"))]


@pytest.mark.shows("2.1/noded/powercycle-memory")
def test_a_powercycle_needs_no_page_that_could_be_evicted(node: NodedNode) -> None:
    daemon = psutil.Process(node.pid)
    if "VmLck:\t       0 kB" in Path(f"/proc/{node.pid}/status").read_text():
        pytest.skip("this user may not lock memory")
    node.call("version")
    wait_until(lambda: len(daemon.children(recursive=True)) == 2, "the helper and its spare child")
    children = {child.pid for child in daemon.children(recursive=True)}
    faults = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()[9]
    ok, text = node.call("node_powercycle", "fake", {})
    assert not ok
    assert "has no power to switch" in text  # a virtual node; the way there is the same
    assert _unlocked(node.pid) == []
    assert Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()[9] == faults
    assert {child.pid for child in daemon.children(recursive=True)} == children


@pytest.mark.shows("2.1/noded/console", "2.1/noded/powercycle")
def test_a_powercycle_is_answered_when_the_disk_takes_no_log(base: Path) -> None:
    node = NodedNode(base)
    console = Path(node.paths.localize("/dev/console"))
    for directory in (console.parent, Path(node.paths.log_dir)):
        directory.mkdir(parents=True, exist_ok=True)
    console.touch()
    os.symlink("/dev/full", node.paths.log_file("ganeti-noded"))
    with node:
        ok, text = node.call("node_powercycle", "fake", {})
        assert not ok
        assert "has no power to switch" in text  # a virtual node; it was asked all the same
        assert "node_powercycle(hypervisor=fake" in console.read_text()
