"""LuxiD and WConfD that hang, without systemd: they are replaced, and nothing is lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.base.daemons import MASTER_DAEMONS
from ganeti.system import daemon_control, process_facts


@pytest.fixture(scope="module")
def one() -> Iterator[FailingCluster]:
    with failing_cluster(1) as made:
        yield made


def pid_of(cluster: FailingCluster, daemon: str) -> int | None:
    return daemon_control.running_pid(cluster.paths, daemon)


def hang(cluster: FailingCluster, daemon: str) -> int:
    """Have a daemon hang; returns its process."""
    pid = pid_of(cluster, daemon)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return pid


def wait_replaced(cluster: FailingCluster, daemon: str, hung: int) -> int:
    """Wait until another process is the daemon; returns it."""
    return wait_until(
        lambda: (pid := pid_of(cluster, daemon)) not in (None, hung) and pid,
        f"{daemon} is replaced",
    )


def test_wconfd_is_replaced_and_jobs_do_not_notice(one: FailingCluster) -> None:
    one.gnt("cluster add-tags before")
    holder = one.submit("debug delay 3600")  # it holds a lock all the time
    one.wait_status(holder, "running")
    locks = one.locks_held()
    hung = hang(one, "ganeti-wconfd")
    job_id = one.submit("cluster add-tags meanwhile")
    wait_replaced(one, "ganeti-wconfd", hung)
    one.wait_status(job_id, "success")
    assert one.locks_held() == locks
    assert one.gnt("cluster list-tags").lines == ["before", "meanwhile"]
    one.gnt(f"job cancel --kill --yes-do-it {holder}")
    one.wait_status(holder, "error")
    wait_until(lambda: not one.locks_held(), "its lock is free")
    assert "ganeti-wconfd (process" in Path(one.paths.log_file("ganeti-luxid")).read_text()


def test_luxid_is_replaced_and_a_running_job_goes_on(one: FailingCluster) -> None:
    running = one.submit("debug delay 3600")
    one.wait_status(running, "running")
    hung = hang(one, "ganeti-luxid")
    wait_replaced(one, "ganeti-luxid", hung)
    assert one.statuses()[running] == "running"
    job_id = one.submit("debug delay 0")
    one.wait_status(job_id, "success")
    one.gnt(f"job cancel --kill --yes-do-it {running}")
    one.wait_status(running, "error")


def test_the_new_one_has_the_options_of_the_old_one(one: FailingCluster) -> None:
    daemon_control.stop_daemon(one.paths, "ganeti-wconfd")
    options = ["--no-voting", "--yes-do-it"]
    daemon_control.start_daemon(one.paths, "ganeti-wconfd", options, hostname=one.master)
    pid = wait_replaced(one, "ganeti-wconfd", hang(one, "ganeti-wconfd"))
    assert process_facts.arguments(pid)[-2:] == options


def test_one_that_asks_for_votes_is_left_alone() -> None:
    """It starts while most nodes are silent, and waits for them in pauses of five seconds."""
    with failing_cluster(3) as three:
        daemon_control.stop_daemon(three.paths, "ganeti-wconfd")
        three.stop_noded(*three.others)
        log = Path(three.paths.log_file("ganeti-wconfd"))
        starts = log.read_text().count("Starting on")
        starting = threading.Thread(target=three.run, args=["ganeti-wconfd"])
        starting.start()
        wait_until(
            lambda: "asking again in 5 s" in log.read_text(), "a pause longer than its looks"
        )
        three.start_noded(*three.others)
        starting.join()
        assert log.read_text().count("Starting on") == starts + 1
        assert "hangs" not in Path(three.paths.log_file("ganeti-luxid")).read_text()
        assert pid_of(three, "ganeti-wconfd") is not None


def test_both_are_replaced_by_the_node_daemon_when_both_hang(one: FailingCluster) -> None:
    running = one.submit("debug delay 3600")
    one.wait_status(running, "running")
    locks = one.locks_held()
    hung = {daemon: hang(one, daemon) for daemon in MASTER_DAEMONS}
    for daemon, pid in hung.items():
        wait_replaced(one, daemon, pid)
    one.wait_status(one.submit("cluster add-tags after-both"), "success")
    assert one.statuses()[running] == "running"
    assert one.locks_held() == locks
    one.gnt(f"job cancel --kill --yes-do-it {running}")
    one.wait_status(running, "error")
    log = Path(one.paths.log_file("ganeti-noded")).read_text()
    assert all(f"{daemon} (process {pid}) hangs" in log for daemon, pid in hung.items())


def test_one_that_hangs_while_the_other_does_not_run_is_replaced_by_the_node_daemon(
    one: FailingCluster,
) -> None:
    daemon_control.stop_daemon(one.paths, "ganeti-luxid")
    hung = hang(one, "ganeti-wconfd")
    wait_replaced(one, "ganeti-wconfd", hung)
    assert pid_of(one, "ganeti-luxid") is None, "its operator stopped it"
    one.start_master_daemons()
    one.wait_status(one.submit("debug delay 0"), "success")


def test_one_that_is_stopped_by_its_operator_stays_stopped(one: FailingCluster) -> None:
    daemon_control.stop_daemon(one.paths, "ganeti-wconfd")
    wait_replaced(one, "ganeti-luxid", hang(one, "ganeti-luxid"))
    assert pid_of(one, "ganeti-wconfd") is None
    one.start_master_daemons()
    job_id = one.submit("debug delay 0")
    one.wait_status(job_id, "success")
