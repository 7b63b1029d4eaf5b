"""Instances live through everything on a cluster, side by side, and nothing of them is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import Outcome, TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.base.daemons import FACES
from ganeti.bootstrap.virtual import lifecycle
from ganeti.cli.run.failures import EXIT_INTERRUPTED
from ganeti.cli.run.jobs import FINAL_STATUSES
from ganeti.system import process

NAMES = ("life1.example.com", "life2.example.com")
NAMED = "life3.example.com"
LEFT_OUT = ("importexport", "reinstall", "reboot", "renamesame", "add-disks", "add-nics")
WITHOUT = tuple(face for face in FACES if face != "ganeti-confd")
TIMEOUT_S = 300.0
COMMON = ("--no-name-check", "--disk-size=1m,2m", "--disk-growth=1m", "--mem-size=4")


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with own_cluster(2, WITHOUT) as made:
        yield made


def burnin(cluster: TestCluster, *words: str) -> Outcome:
    return cluster.run(["burnin", "-o", "test", *COMMON, *words], timeout_s=TIMEOUT_S)


def stages(outcome: Outcome) -> list[str]:
    return [line.partition("] ")[2] for line in outcome.lines if line.startswith("[")]


def test_whole_lives_side_by_side(cluster: TestCluster) -> None:
    outcome = burnin(cluster, "-t", "sharedfile", "-p", "--reason=before use", *NAMES)
    assert outcome.status == 0, outcome
    assert stages(outcome) == [
        "Creating",
        "Failing over",
        "Migrating",
        "Growing disks",
        "Exporting and importing",
        "Reinstalling",
        "Rebooting",
        "Renaming to the same name",
        "Adding and removing disks",
        "Adding and removing interfaces",
        "Deactivating and activating disks",
        "Stopping and starting",
    ]
    assert "Asking RConfD" in outcome.out
    assert "All is well, after" in outcome.out
    assert cluster.instance_names() == []
    assert not any(name in cluster.gnt("backup list").out for name in NAMES)
    assert cluster.gnt("cluster verify").status == 0


def test_short_names_and_exports_of_others(cluster: TestCluster) -> None:
    hosts = Path(cluster.paths.etc_hosts)
    hosts.write_text(f"{hosts.read_text()}127.9.9.9 {NAMED} life3\n")
    words = ["-t", "file", *COMMON[1:], *(f"--no-{name}" for name in ("move", *LEFT_OUT))]
    outcome = cluster.run(["burnin", "-o", "test", *words, "life3"], timeout_s=TIMEOUT_S)
    assert outcome.status == 0, outcome
    assert "Removing 1 instances" in outcome.out
    assert cluster.instance_names() == []
    cluster.gnt(
        f"instance add --no-name-check --no-ip-check -t file -s 1m -o test --no-start"
        f" -n {cluster.master} {NAMED}"
    )
    cluster.gnt(f"backup export -n {cluster.master} {NAMED}")
    cluster.gnt(f"instance remove -f {NAMED}")
    refused = burnin(cluster, "-t", "file", NAMED)
    assert refused.status == 1
    assert f"there are exports of {NAMED} already" in refused.err
    assert NAMED in cluster.gnt("backup list").out
    cluster.gnt(f"backup remove {NAMED}")


def test_an_interruption_leaves_nothing(cluster: TestCluster, tmp_path: Path) -> None:
    environment = lifecycle.command_environment(cluster.layout, cluster.master)
    argv = [lifecycle.find_program("burnin", environment), "-o", "test", *COMMON]
    argv += ["-t", "file", "-p", "--no-confd", *NAMES]
    said = tmp_path / "said"
    with said.open("wb") as output:
        child = process.spawn(argv, env=environment, stdout=output.fileno(), stderr=output.fileno())
    with cluster.client() as client:
        wait_until(
            lambda: [1 for [s] in client.query_jobs(None, ["status"]) if s == "running"], "a job"
        )
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(TIMEOUT_S) == EXIT_INTERRUPTED, said.read_text()
    assert "Interrupted; what was begun is ended" in said.read_text()
    with cluster.client() as client:
        states = [status for [status] in client.query_jobs(None, ["status"])]
    assert set(states) <= FINAL_STATUSES
    assert cluster.instance_names() == []


def test_stages_are_left_out_and_a_name_is_changed(cluster: TestCluster) -> None:
    outcome = burnin(
        cluster,
        "--disk-template=file",
        "--no-confd",
        "--no-activate-disks",
        "--rename=other.example.com",
        "-K",
        *(f"--no-{name}" for name in LEFT_OUT),
        NAMES[0],
    )
    assert outcome.status == 0, outcome
    expected = ["Creating", "Moving", "Growing disks"]
    assert stages(outcome) == [*expected, "Renaming there and back", "Stopping and starting"]
    assert cluster.instance_names() == [NAMES[0]], "kept"
    refused = burnin(cluster, "-t", "file", NAMES[0])
    assert refused.status == 1
    assert f"there are instances {NAMES[0]} already" in refused.err
    cluster.tidy_up()


def test_a_failure_is_told_and_nothing_is_left(cluster: TestCluster) -> None:
    outcome = burnin(cluster, "-t", "file", "-O", "fail=create", *NAMES)
    assert outcome.status == 1
    assert f"{NAMES[0]}: job" in outcome.err
    assert "Traceback" not in outcome.err
    assert cluster.instance_names() == []
    for words, text in (
        (["-t", "drbd", "-n", cluster.master], "needs two nodes"),
        (["--reboot-types=warm"], "there is no reboot 'warm'"),
        (["--maxmem-size=8"], "give either --mem-size"),
        (["--disk-growth=1m,1m,1m"], "--disk-growth needs as many sizes"),
    ):
        refused = burnin(cluster, *words, NAMES[0])
        assert refused.status == 1
        assert text in refused.err
