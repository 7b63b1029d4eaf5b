"""The watcher and the cleaner on a cluster: what has stopped is put right, once."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import Outcome, TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.bootstrap.virtual import lifecycle
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.store import ssconf
from ganeti.system import daemon_control

HAS_QEMU = lifecycle.find_qemu() is not None
NEEDS_QEMU = pytest.mark.skipif(not HAS_QEMU, reason="QEMU is not installed")
NO_CHECKS = "--no-name-check --no-ip-check"


@pytest.fixture(scope="module")
def watched() -> Iterator[TestCluster]:
    with own_cluster(without=("ganeti-mond",)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "watched" in request.fixturenames:
        request.getfixturevalue("watched").tidy_up()


def watch(
    cluster: TestCluster, words: str = "", *, node: str | None = None, status: int = 0
) -> Outcome:
    """Run the watcher once."""
    outcome = cluster.run(f"ganeti-watcher {words}", node=node)
    assert outcome.status == status, f"{outcome}\n{log(cluster, node)}"
    return outcome


def log(cluster: TestCluster, node: str | None = None) -> str:
    return Path(cluster.paths_of(node or cluster.master).log_watcher).read_text()


def add(cluster: TestCluster, name: str, node: str = "node2", words: str = "-H fake") -> None:
    cluster.gnt(
        f"instance add {NO_CHECKS} -t diskless {words} -o test --no-install --no-start -n {node} {name}"
    )
    cluster.gnt(f"instance startup {name}")


def crash(cluster: TestCluster, name: str, node: str = "node2.example.com") -> None:
    os.unlink(f"{cluster.paths_of(node).fake_dir}/{name}")
    assert cluster.instance_field(name, "status") == "ERROR_down"


def test_the_remote_api_of_a_former_master_is_stopped(watched: TestCluster) -> None:
    other = watched.nodes[1]
    paths = watched.paths_of(other)
    ssconf.write_values(paths, {"master_node": other})
    daemon_control.start_daemon(paths, "ganeti-rapi", hostname=other)
    ssconf.write_values(paths, {"master_node": watched.master})
    watch(watched, node=other)
    assert daemon_control.running_pid(paths, "ganeti-rapi") is None
    assert "Stopped ganeti-rapi: this node is not the master" in log(watched, other)


def starts_of(cluster: TestCluster, name: str) -> int:
    jobs = cluster.gnt("job list --no-headers -o summary").lines
    return sum(line.strip() == f"INSTANCE_STARTUP({name})" for line in jobs)


@contextlib.contextmanager
def stopped(cluster: TestCluster, node: str, daemon: str) -> Iterator[int]:
    """Have a daemon hang."""
    pid = daemon_control.running_pid(cluster.paths_of(node), daemon)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def kill(cluster: TestCluster, node: str, daemon: str) -> int:
    pid = daemon_control.running_pid(cluster.paths_of(node), daemon)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: daemon_control.running_pid(cluster.paths_of(node), daemon) is None, "its end"
    )
    return pid


@pytest.mark.shows("2.0/logging/watcher-log")
def test_an_instance_that_crashed_is_started_once(watched: TestCluster) -> None:
    add(watched, "web.example.com")
    add(watched, "down.example.com")
    watched.gnt("instance shutdown down.example.com")
    watch(watched)
    assert starts_of(watched, "web.example.com") == 1  # that of the test
    crash(watched, "web.example.com")
    watch(watched)
    wait_until(lambda: watched.instance_field("web.example.com", "status") == "running", "it runs")
    watch(watched)
    assert starts_of(watched, "web.example.com") == 2
    assert watched.instance_field("down.example.com", "status") == "ADMIN_down"
    said = log(watched)
    assert "web.example.com is ERROR_down: trying to start it again (try 1 of 5)" in said
    assert "web.example.com is running again" in said
    states = Path(watched.paths.instance_status).read_text()
    assert states == "down.example.com ADMIN_down\nweb.example.com running\n"


def test_two_watchers_at_once_start_an_instance_once(watched: TestCluster) -> None:
    add(watched, "twice.example.com")
    crash(watched, "twice.example.com")
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(watched.run("ganeti-watcher")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # All may fail: one whose part for instances is taken can take the other's part for disks.
    assert {outcome.status for outcome in outcomes} <= {0, 1}
    name = "twice.example.com"
    wait_until(lambda: watched.instance_field(name, "status") == "running", "it runs")
    assert starts_of(watched, name) == 2


def test_an_instance_that_always_crashes_is_started_five_times(watched: TestCluster) -> None:
    name = "flaky.example.com"
    add(watched, name)
    for _ in range(7):
        with contextlib.suppress(FileNotFoundError):  # it crashes before anybody sees it run
            os.unlink(f"{watched.paths_of('node2.example.com').fake_dir}/{name}")
        watch(watched, "--no-verify-disks")
        wait_until(
            lambda: not watched.gnt("job list --no-headers --pending --running").out, "no jobs"
        )
    assert starts_of(watched, name) == 1 + 5
    said = log(watched)
    assert f"{name} is ERROR_down after 5 tries to start it again: giving up for 8 hours" in said
    assert f"{name} is ERROR_down, its tries are used up" in said


def test_a_paused_watcher_does_nothing(watched: TestCluster) -> None:
    add(watched, "paused.example.com")
    crash(watched, "paused.example.com")
    watched.gnt("cluster watcher pause 1h")
    watch(watched)
    assert starts_of(watched, "paused.example.com") == 1
    assert "Paused until" in log(watched)
    watch(watched, "--ignore-pause --no-wait-children")
    wait_until(lambda: starts_of(watched, "paused.example.com") == 2, "it is started")
    watched.gnt("cluster watcher continue")


def test_a_long_job_about_others_keeps_no_crashed_instance_down(watched: TestCluster) -> None:
    """Ganeti's issue 1704: a long replacement of disks kept crashed instances down."""
    add(watched, "crashed.example.com")
    crash(watched, "crashed.example.com")
    with watched.client() as client:
        held = {"duration": 600.0, "on_nodes": ["node3.example.com"], "no_locks": False}
        job_id = client.submit_job([{"OP_ID": "OP_TEST_DELAY", "reason": [], **held}])
        try:
            wait_until(lambda: watched.job_status(job_id) == "running", "the long job works")
            watch(watched, "--no-verify-disks")
            name = "crashed.example.com"
            wait_until(lambda: watched.instance_field(name, "status") == "running", "it runs")
            assert watched.job_status(job_id) == "running"
        finally:
            client.cancel_job(job_id, True)


@pytest.mark.parametrize("daemon", ["ganeti-noded", "ganeti-confd"])
def test_a_dead_daemon_of_a_node_is_started_there(watched: TestCluster, daemon: str) -> None:
    node = "node2.example.com"
    before = kill(watched, node, daemon)
    watch(watched, node=node)
    after = daemon_control.running_pid(watched.paths_of(node), daemon)
    assert after not in (None, before)
    assert f"Started {daemon}, which did not run" in log(watched, node)
    assert not os.path.exists(watched.paths_of(node).instance_status)  # the master's work


@pytest.mark.parametrize("daemon", ["ganeti-luxid", "ganeti-wconfd", "ganeti-rapi"])
def test_a_dead_daemon_of_the_master_is_started(watched: TestCluster, daemon: str) -> None:
    before = kill(watched, watched.master, daemon)
    watch(watched)
    assert daemon_control.running_pid(watched.paths, daemon) not in (None, before)
    watched.gnt("cluster verify-config")


def test_a_remote_api_that_hangs_is_started_anew(watched: TestCluster) -> None:
    with stopped(watched, watched.master, "ganeti-rapi") as before:
        watch(watched)
    assert daemon_control.running_pid(watched.paths, "ganeti-rapi") not in (None, before)
    assert "The remote API does not answer" in log(watched)
    said = log(watched)
    watch(watched)
    assert log(watched).count("starting it anew") == said.count("starting it anew")


def test_while_the_disk_is_full_nothing_is_started(watched: TestCluster) -> None:
    """A try that cannot be noted would be made again and again."""
    name = "full.example.com"
    add(watched, name)
    watch(watched)
    crash(watched, name)
    console = Path(watched.paths.localize("/dev/console"))
    console.parent.mkdir(exist_ok=True)
    os.mkfifo(console)
    reader = os.open(console, os.O_RDONLY | os.O_NONBLOCK)
    try:
        # No process below may write a byte to a file, as on a full disk.
        outcome = watched.run(["sh", "-c", "ulimit -f 0; trap '' XFSZ; exec ganeti-watcher"])
        assert outcome.status == 1, outcome
        assert b"File too large" in os.read(reader, 1 << 16), "what the log cannot take"
    finally:
        os.close(reader)
        console.unlink()
    assert starts_of(watched, name) == 1  # that of the test
    watch(watched)
    wait_until(lambda: watched.instance_field(name, "status") == "running", "it runs")
    assert starts_of(watched, name) == 2


def test_while_luxid_hangs_the_watcher_gives_up_and_is_right_afterwards(
    watched: TestCluster,
) -> None:
    name = "patient.example.com"
    add(watched, name)
    watch(watched)
    crash(watched, name)
    with (
        # These would replace it.
        stopped(watched, watched.master, "ganeti-noded"),
        stopped(watched, watched.master, "ganeti-wconfd"),
        stopped(watched, watched.master, "ganeti-luxid") as before,
    ):
        outcome = watched.run("ganeti-watcher", timeout_s=400)
        assert outcome.status == 1, outcome
        said = log(watched)
    assert daemon_control.running_pid(watched.paths, "ganeti-luxid") == before
    assert "no answer" in said or "did not answer" in said, said
    watch(watched)
    wait_until(lambda: watched.instance_field(name, "status") == "running", "it runs")
    assert starts_of(watched, name) == 2


def test_scripts_of_the_administrator_run_on_each_node(watched: TestCluster) -> None:
    node = "node3.example.com"
    directory = Path(watched.paths_of(node).hooks_dir) / "watcher"
    directory.mkdir(parents=True)
    try:
        for name, text in (
            ("10-mark", 'echo "$GANETI_HOSTNAME" > "$0.ran"'),
            ("20-bad", "echo no; exit 3"),
        ):
            (directory / name).write_text(f"#!/bin/sh\n{text}\n")
            (directory / name).chmod(0o755)
        watch(watched, node=node, status=1)
        assert (directory / "10-mark.ran").read_text() == f"{node}\n"
        assert "Script 20-bad failed with exit status 3: no" in log(watched, node)
    finally:
        for path in directory.iterdir():
            path.unlink()


def test_a_silent_node_is_tried_set_offline_and_offered_back(watched: TestCluster) -> None:
    node = "node3.example.com"

    def field(name: str) -> str:
        return watched.gnt(f"node list --no-headers -o {name} {node}").out.strip()

    with stopped(watched, node, "ganeti-noded"):
        watch(watched)
        assert "over SSH" not in log(watched)  # off by default
        watched.gnt("cluster modify --silent-node-tries=1")
        watch(watched)
        assert f"Node {node} over SSH: its watcher ran" in log(watched)
        assert field("offline") == "N"
        watch(watched)
        wait_until(lambda: field("offline") == "Y", "the node is offline")
        said = log(watched)
        watch(watched)
        assert "gnt-node modify --offline=no" not in said
    watch(watched)
    assert f"gnt-node modify --offline=no {node}" in log(watched)
    wait_until(lambda: field("tags") == "ganeti:watcher:answers-again", "it is offered back")
    assert field("offline") == "Y"
    watched.gnt(f"node modify --offline=no {node}")
    watch(watched)
    wait_until(lambda: field("tags") != "ganeti:watcher:answers-again", "the offer is withdrawn")
    watched.gnt("cluster modify --silent-node-tries=0")


def test_a_node_whose_daemon_died_is_mended_over_ssh(watched: TestCluster) -> None:
    node = "node2.example.com"
    watched.gnt("cluster modify --silent-node-tries=2")
    kill(watched, node, "ganeti-noded")
    watch(watched)
    assert daemon_control.running_pid(watched.paths_of(node), "ganeti-noded") is not None
    assert "Started ganeti-noded, which did not run" in log(watched, node)
    watch(watched)
    assert f"Node {node} answers again" in log(watched)
    watched.gnt("cluster modify --silent-node-tries=0")


def test_a_node_that_is_offline_stops_its_instances_where_that_is_wanted(
    watched: TestCluster,
) -> None:
    node, name = "node3.example.com", "stray.example.com"
    add(watched, name, "node3")
    book = f"{watched.paths_of(node).fake_dir}/{name}"
    watched.gnt(f"node modify --offline=yes {node}")
    try:
        watch(watched, node=node)
        assert os.path.exists(book)
        watched.gnt("cluster modify --maintain-node-health=yes")
        # The node is offline, so nobody tells it; its administrator has to.
        Path(watched.paths_of(node).ssconf_file("maintain_node_health")).unlink()
        Path(watched.paths_of(node).ssconf_file("maintain_node_health")).write_text("True\n")
        watch(watched, node="node2.example.com")
        watch(watched, node=node)
        assert not os.path.exists(book)
        assert f"Stopped instance {name}" in log(watched, node)
    finally:
        watched.gnt("cluster modify --maintain-node-health=no")
        watched.gnt(f"node modify --offline=no {node}")


def test_a_deposed_master_does_only_the_work_of_a_node(watched: TestCluster) -> None:
    node = "node2.example.com"
    path = Path(watched.paths_of(node).ssconf_file("master_node"))
    before = path.read_bytes()
    path.chmod(0o644)
    path.write_text(f"{node}\n")
    try:
        watch(watched, node=node, status=11)
        assert "Leaving the work of the master alone" in log(watched, node)
        assert daemon_control.running_pid(watched.paths_of(node), "ganeti-luxid") is None
    finally:
        path.write_bytes(before)


def test_a_machine_that_is_no_node_has_nothing_to_do(watched: TestCluster) -> None:
    with tempfile.TemporaryDirectory(prefix="gnt-") as base:  # sockets need a short path
        for words in ("ganeti-watcher", "ganeti-cleaner node"):
            outcome = watched.run(["env", f"GANETI_ROOTDIR={base}/node9", *words.split()])
            assert (outcome.status, outcome.err) == (0, "")
        assert os.listdir(base) == []


def test_the_cleaner_keeps_fifty_logs(watched: TestCluster) -> None:
    directory = Path(watched.paths.log_cleaner_dir)
    directory.mkdir(exist_ok=True)
    for number in range(60):
        (directory / f"cleaner-2020-01-01T00:00:{number:02}.log").write_text("")
    assert watched.run("ganeti-cleaner node").status == 0
    assert watched.run("ganeti-cleaner master").status == 0
    assert len(list(directory.iterdir())) == 50
    assert watched.run("ganeti-cleaner everything").status == 2


# Real guests


@NEEDS_QEMU
@pytest.mark.qemu
def test_a_guest_that_was_killed_is_started_once(cluster: TestCluster) -> None:
    name = "killed.example.com"
    cluster.gnt(
        f"instance add {NO_CHECKS} -t file --disk 0:size=8 -H kvm -o bootsector+default -n node2 {name}"
    )

    def guests() -> list[int]:
        return [each.pid for each in cluster.processes() if f"-name {name} " in each.command]

    [pid] = guests()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.instance_field(name, "status") == "ERROR_down", "it is seen as down")
    watch(cluster)
    wait_until(guests, "it runs again")
    watch(cluster)
    [again] = guests()
    assert again != pid
    assert starts_of(cluster, name) == 1


@NEEDS_QEMU
@pytest.mark.qemu
def test_a_guest_that_was_shut_down_from_inside_stays_down(cluster: TestCluster) -> None:
    name = "inside.example.com"
    cluster.gnt("cluster modify --user-shutdown=yes")
    try:
        cluster.gnt(
            f"instance add {NO_CHECKS} -t file --disk 0:size=8 -H kvm:user_shutdown=true"
            f" -o bootsector+default -n node2 {name}"
        )
        there = MachineFiles(cluster.paths_of("node2.example.com"), name)
        serial = Path(there.serial_log)
        wait_until(
            lambda: serial.exists() and "start 1" in serial.read_text("latin1"), "the guest is up"
        )
        with Monitor.connect(name, there.socket_path("control")) as monitor:
            monitor.execute("system_powerdown")  # the guest obeys, as if it had been its own idea
        wait_until(lambda: cluster.instance_field(name, "status") == "USER_down", "it is seen so")
        watch(cluster)
        watch(cluster)
        assert cluster.instance_field(name, "status") == "USER_down"
        assert starts_of(cluster, name) == 0
        cluster.gnt(f"instance startup {name}")
        wait_until(lambda: "start 2" in serial.read_text("latin1"), "it starts when asked to")
    finally:
        cluster.gnt("cluster modify --user-shutdown=no")
