"""Tests of ganeti/daemon/main.py with a daemon of its own, as separate processes."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.waiting import wait_until

from ganeti.base.paths import Paths
from ganeti.system import filelock, process
from ganeti.transport.unix_client import UnixClient

DEADLINE_S = 60.0

DAEMON = """
import asyncio, logging, os, sys, threading, time
from ganeti.base.errors import ConfigurationError, GenericError, NotMasterError
from ganeti.daemon.log import job_context
from ganeti.daemon.main import DaemonSpec, run_daemon
from ganeti.daemon.options import NetworkOptions, Port
from ganeti.transport.unix_server import serve_unix

mode = os.environ.get("MODE", "")

def pre_loop(context):
    assert threading.active_count() == 1
    if mode == "pre_loop fails":
        raise GenericError("no helper today")
    if mode == "helper" and os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    return "prepared"

async def background(context):
    if mode == "background fails":
        await asyncio.sleep(0.01)
        raise GenericError("the background failed")
    await asyncio.sleep(1000)

async def handle(context, request, connection):
    if request.method == "job":
        with job_context(7):
            logging.getLogger("x").info("working")
    if request.method == "fds":
        return [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)]
    if request.method == "memory":
        return [line for line in open("/proc/self/status") if line.startswith("VmRSS")][0]
    if request.method == "slow":
        logging.getLogger("x").info("slow work begins")
        await asyncio.sleep(0.2)
    if request.method == "fill":
        for _ in range(3):
            logging.getLogger("x").info("y" * 100000)
    return [request.method, context.prepared, os.getpid(), os.getcwd()]

async def serve(context):
    if mode == "not master":
        raise NotMasterError("node2 is the master", "node2")
    if mode == "configuration":
        raise ConfigurationError("config.data is damaged at byte 5")
    if mode == "bug":
        raise ValueError("oops")
    if mode == "crash":
        os.kill(os.getpid(), 9)
    context.spawn(background(context), "background")
    async with serve_unix(
        context.paths.query_socket, 0o660, lambda r, c: handle(context, r, c)
    ):
        context.ready()
        if mode == "hangs":
            await asyncio.sleep(1000)
        if mode == "blocks":
            await context.stopping.wait()
            time.sleep(1000)
        if mode == "stops itself":
            context.stop(11)
        await context.stopping.wait()

class Options(NetworkOptions, frozen=True, kw_only=True):
    port: Port = 1811

sys.exit(run_daemon(DaemonSpec(
    name="ganeti-test", description="tests", serve=serve, pre_loop=pre_loop, options=Options,
    stop_timeout_s=0.3 if mode in ("hangs", "blocks") else 100, kill_after_s=0.5 if mode == "blocks" else 100,
)))
"""


class Node:
    """A virtual node on which the test daemon runs."""

    def __init__(self, base: Path) -> None:
        self.paths = Paths(str(base / "node1"))
        self.program = base / "ganeti-test"
        self.program.write_text(DAEMON)
        os.makedirs(self.paths.root)

    def environment(self, mode: str = "") -> dict[str, str]:
        return {
            **os.environ,
            "GANETI_ROOTDIR": self.paths.root,
            "GANETI_HOSTNAME": "node1.example.com",
            "PYTHONPATH": os.getcwd(),
            "MODE": mode,
        }

    def run(self, *options: str, mode: str = "") -> tuple[int, str]:
        """Start the daemon and wait for the program that was called."""
        result = process.run(
            [sys.executable, str(self.program), *options],
            timeout_s=DEADLINE_S,
            env=self.environment(mode),
        )
        assert not result.timed_out
        return result.status, result.output

    def start_in_foreground(self, mode: str = "", **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.program), "-f"],
            env={**self.environment(mode), **options},
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int | None:
        return filelock.running_pid(self.paths.pid_file("ganeti-test"))

    @property
    def log(self) -> str:
        return Path(self.paths.log_file("ganeti-test")).read_text()

    def call(self, method: str) -> object:
        with UnixClient(self.paths.query_socket) as client:
            return client.call(method, [])

    def signal(self, number: int) -> int:
        pid = self.pid
        assert pid is not None
        os.kill(pid, number)
        return pid


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="gnt") as base:
        found = Node(Path(base))
        yield found
        # Read once: a daemon that is just ending gives up its file between two looks.
        pid = found.pid
        if pid is not None:
            process.terminate(pid, 0.0)


def test_the_caller_returns_when_the_daemon_answers(node: Node) -> None:
    assert node.run() == (0, "")
    pid = node.pid
    assert node.call("x") == ["x", "prepared", pid, "/"]
    assert node.call("fds") == ["/dev/null"] * 3
    assert Path(node.paths.pid_file("ganeti-test")).read_text() == f"{pid}\n"
    assert os.getsid(pid or 0) != os.getsid(0)


def test_it_stops_on_sigterm_and_leaves_nothing(node: Node) -> None:
    assert node.run() == (0, "")
    pid = node.signal(signal.SIGTERM)
    assert process.wait_gone(pid, DEADLINE_S)
    assert not os.path.exists(node.paths.pid_file("ganeti-test"))
    assert not os.path.exists(node.paths.query_socket)
    assert "Starting on node1.example.com" in node.log
    assert node.log.rstrip().endswith("INFO Stopped")


def test_a_second_one_is_refused(node: Node) -> None:
    assert node.run() == (0, "")
    status, text = node.run()
    assert status == 1
    assert text == (
        f"ganeti-test: already running with process id {node.pid}"
        f" (pid file {node.paths.pid_file('ganeti-test')})\n"
    )
    assert node.call("x")


def test_after_sigkill_it_starts_again(node: Node) -> None:
    assert node.run() == (0, "")
    assert process.wait_gone(node.signal(signal.SIGKILL), DEADLINE_S)
    assert node.pid is None
    assert node.run() == (0, "")
    assert node.call("x")


@pytest.mark.parametrize(
    ("mode", "status", "text"),
    [
        ("not master", 11, "node2 is the master"),
        ("configuration", 2, "config.data is damaged at byte 5"),
        ("bug", 1, "internal error: ValueError: oops"),
        ("pre_loop fails", 1, "no helper today"),
        ("crash", 1, "it ended before it was ready; its log may say why"),
    ],
)
def test_why_it_did_not_start_is_said_where_it_was_started(
    node: Node, mode: str, status: int, text: str
) -> None:
    assert node.run(mode=mode) == (status, f"ganeti-test: {text}\n")
    wait_until(lambda: node.pid is None, "the daemon to end")
    if mode != "crash":
        assert text in node.log


def test_a_helper_forked_before_the_loop_delays_nobody(node: Node) -> None:
    begun = time.monotonic()
    assert node.run(mode="helper") == (0, "")
    assert time.monotonic() - begun < DEADLINE_S
    pid = node.pid or 0
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)


def test_an_error_in_the_background_ends_it(node: Node) -> None:
    node.run(mode="background fails")
    wait_until(lambda: "ERROR Cannot go on: the background failed" in node.log, "its error")
    wait_until(lambda: node.pid is None, "the daemon to end")


def test_a_daemon_may_stop_itself_with_a_status(node: Node) -> None:
    daemon = node.start_in_foreground("stops itself")
    assert daemon.wait(DEADLINE_S) == 11
    assert daemon.stderr is not None
    daemon.stderr.close()


def test_what_does_not_stop_is_cancelled(node: Node) -> None:
    assert node.run(mode="hangs") == (0, "")
    assert process.wait_gone(node.signal(signal.SIGTERM), DEADLINE_S)
    assert "Not stopped within 0.3 s, cancelling the rest" in node.log
    assert node.log.rstrip().endswith("INFO Stopped")


def test_what_blocks_the_loop_is_killed(node: Node) -> None:
    assert node.run(mode="blocks") == (0, "")
    assert process.wait_gone(node.signal(signal.SIGTERM), DEADLINE_S)


def test_requests_under_way_end_before_it_stops(node: Node) -> None:
    assert node.run() == (0, "")
    with UnixClient(node.paths.query_socket) as client:
        client.call("x", [])
        assert client._socket is not None
        client._socket.setblocking(True)
        client._socket.sendall(b'{"method":"slow","args":[]}\x03')
        wait_until(lambda: "slow work begins" in node.log, "the work")
        node.signal(signal.SIGTERM)
        assert b'"success":true' in client._socket.recv(1000)


def test_the_log_follows_rotation(node: Node) -> None:
    assert node.run() == (0, "")
    path = node.paths.log_file("ganeti-test")
    os.rename(path, path + ".1")
    node.signal(signal.SIGHUP)
    wait_until(lambda: os.path.exists(path) and "Reopened the log" in node.log, "a new log")
    assert "Starting" not in node.log
    assert node.call("job")
    assert "job=7 INFO working" in node.log


def test_a_full_disk_under_the_log_does_not_stop_it(node: Node) -> None:
    """A file size limit makes writes to the log fail as a full disk does."""
    assert node.run() == (0, "")
    pid = node.pid or 0
    size = os.path.getsize(node.paths.log_file("ganeti-test"))
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
    assert node.call("fill")
    assert node.call("x")
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    node.call("job")
    assert "lines before this one are lost" in node.log
    assert "INFO working" in node.log


def test_in_the_foreground_systemd_is_told(node: Node) -> None:
    address = f"{node.paths.root}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(DEADLINE_S)
        daemon = node.start_in_foreground(NOTIFY_SOCKET=address)
        assert listener.recv(100) == b"READY=1"
        assert node.pid == daemon.pid
        daemon.send_signal(signal.SIGINT)
        assert listener.recv(100) == b"STOPPING=1"
        assert daemon.wait(DEADLINE_S) == 0
        assert daemon.stderr is not None
        assert "INFO Ready" in daemon.stderr.read()
        daemon.stderr.close()
    assert "INFO Ready" in node.log


def test_in_the_foreground_systemd_hears_that_the_loop_runs(node: Node) -> None:
    address = f"{node.paths.root}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(DEADLINE_S)
        daemon = node.start_in_foreground(NOTIFY_SOCKET=address, WATCHDOG_USEC="30000")
        heard = [listener.recv(100) for _ in range(4)]
        assert heard.count(b"WATCHDOG=1") >= 3
        daemon.send_signal(signal.SIGINT)
        daemon.communicate(timeout=DEADLINE_S)
        assert daemon.returncode == 0


@pytest.mark.shows("maintd/daemon/exit-status")
def test_not_to_be_the_master_is_no_failure_to_systemd(node: Node) -> None:
    """Who ends before having been ready has failed, whatever its exit status is."""
    address = f"{node.paths.root}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(DEADLINE_S)
        daemon = node.start_in_foreground("not master", NOTIFY_SOCKET=address)
        assert listener.recv(1000) == b"READY=1\nSTATUS=node2 is the master"
        daemon.communicate(timeout=DEADLINE_S)
        assert daemon.returncode == 11


def test_in_the_foreground_errors_go_to_the_terminal(node: Node) -> None:
    daemon = node.start_in_foreground("not master")
    _, text = daemon.communicate(timeout=DEADLINE_S)
    assert daemon.returncode == 11
    assert "node2 is the master" in text


def test_a_root_that_is_too_long_is_refused(node: Node) -> None:
    node.paths = Paths(node.paths.root + "/" + "x" * 90)
    status, text = node.run()
    assert status == 1
    assert "107 are possible; use a shorter base directory" in text


def test_it_is_small(node: Node) -> None:
    assert node.run() == (0, "")
    resident_kib = int(str(node.call("memory")).split()[1])
    assert resident_kib < 25_000


def test_help_and_mistakes(node: Node) -> None:
    status, text = node.run("--help")
    assert (status, "usage: ganeti-test" in text) == (0, True)
    assert node.run("--bogus") == (2, "ganeti-test: unrecognized arguments: --bogus; try --help\n")
    assert not os.path.exists(node.paths.run_dir)
