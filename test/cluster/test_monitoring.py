"""MonD on a cluster: settings come by RConfD, and a node goes on telling when its master is gone."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator

import pytest
from fakes.metric_page import values_on
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.collectors.metrics import served_names
from ganeti.system import daemon_control, process

DEADLINE_S = 60.0
OTHER = "node2.example.com"
MASTER_DAEMONS = ("ganeti-wconfd", "ganeti-luxid", "ganeti-confd", "ganeti-noded")


@pytest.fixture(scope="module")
def two() -> Iterator[TestCluster]:
    """A cluster of our own: its master dies."""
    with own_cluster(2, without=("ganeti-rapi",)) as made:
        yield made


def get(cluster: TestCluster, path: str, node: str = OTHER) -> str:
    address = cluster.layout.address_of(node)
    with urllib.request.urlopen(f"http://{address}:1815{path}", timeout=DEADLINE_S) as answer:
        return str(answer.read().decode())


def collectors(cluster: TestCluster) -> list[str]:
    return [row[0] for row in json.loads(get(cluster, "/1/list/collectors"))]


def metrics(cluster: TestCluster, node: str = OTHER) -> dict[tuple[str, ...], float]:
    return values_on(get(cluster, "/metrics", node))


def restart(cluster: TestCluster) -> None:
    """Let the daemon ask again now instead of within 15 seconds."""
    paths = cluster.paths_of(OTHER)
    daemon_control.stop_daemon(paths, "ganeti-mond", timeout_s=DEADLINE_S)
    daemon_control.start_daemon(paths, "ganeti-mond", hostname=OTHER)


@pytest.mark.shows("maintd/operation/rate")
def test_collectors_are_switched_by_the_cluster(two: TestCluster) -> None:
    assert "lv" in collectors(two)
    two.gnt("cluster modify --enabled-data-collectors lv=no,drbd=no")
    two.gnt("cluster modify --data-collector-interval diagnose=2,cpu-avg-load=1.5")
    shown = two.gnt("cluster info").out
    assert "  cpu-avg-load:\n    active: True\n    interval: 1.500s" in shown
    assert "  lv:\n    active: False" in shown
    assert "  diagnose:\n    active: True\n    interval: 2.000s" in shown
    two.refused("cluster modify --enabled-data-collectors nix=yes", "unknown data collector 'nix'")
    restart(two)
    wait_until(lambda: "lv" not in collectors(two), "lv is off", timeout_s=DEADLINE_S)
    assert "drbd" not in collectors(two)


@pytest.mark.shows(
    "maintd/collector/collector", "maintd/collector/configurable", "maintd/collector/white-listed"
)
def test_the_diagnose_command_of_the_cluster_is_run_where_a_node_allows_it(
    two: TestCluster,
) -> None:
    two.gnt("cluster modify --diagnose-data-collector-filename check")
    path = os.path.join(two.paths_of(OTHER).diagnose_commands_dir, "check")
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="ascii") as file:
        file.write('#!/bin/sh\necho \'{"status": "evacuate", "details": "smoke"}\'\n')
    os.chmod(path, 0o755)

    def message() -> str:
        data = json.loads(get(two, "/1/report/node/diagnose"))["data"]
        return str(data.get("msg", ""))

    wait_until(lambda: "smoke" in message(), "the diagnosis", timeout_s=DEADLINE_S)
    two.gnt(["cluster", "modify", "--diagnose-data-collector-filename="])
    two.gnt("cluster verify-config")


def test_mon_collector_prints_the_same_reports(two: TestCluster) -> None:
    outcome = two.run("mon-collector diskstats", node=OTHER)
    assert outcome.status == 0, outcome
    printed = json.loads(outcome.out)
    served = json.loads(get(two, "/1/report/storage/diskstats"))
    assert printed.keys() == served.keys()
    assert [each["name"] for each in printed["data"]] == [each["name"] for each in served["data"]]
    outcome = two.run("mon-collector inst-status-kvm", node=OTHER)
    assert json.loads(outcome.out)["data"] == {
        "status": {"code": 0, "message": ""},
        "instances": [],
    }


def test_the_page_of_the_master_node_has_what_its_daemons_count(two: TestCluster) -> None:
    ended = ("ganeti_luxid_jobs_ended_total", "success", "OP_TEST_DELAY")
    before = metrics(two, two.master)
    two.gnt("debug delay 0.01")
    two.gnt("cluster add-tags counted")
    after = metrics(two, two.master)
    assert after[ended] == before.get(ended, 0) + 1
    for name in ("submit", "job_wait", "job_run"):
        key = (f"ganeti_luxid_{name}_seconds_count",)
        assert after[key] > before[key]
    assert after["ganeti_luxid_jobs", "success"] > before["ganeti_luxid_jobs", "success"]
    assert after["ganeti_luxid_queue_drained",] == 0
    for name in ("changes_total", "replication_seconds_count"):
        assert after[f"ganeti_wconfd_{name}",] == before[f"ganeti_wconfd_{name}",] + 1
    writes = ("ganeti_wconfd_write_seconds_count", "config.data")
    assert after[writes] == before[writes] + 1
    size = after["ganeti_wconfd_config_bytes",]
    assert size == os.path.getsize(two.paths.config_data)
    written = ("ganeti_wconfd_written_bytes_total", "config.data")
    assert after[written] == before[written] + size
    waits = ("ganeti_wconfd_lock_wait_seconds_count", "granted")
    assert after[waits] > before[waits]
    assert after["ganeti_wconfd_candidates_behind",] == 0
    for name in ("ganeti-luxid", "ganeti-wconfd"):
        assert after["ganeti_daemon_answers", name] == 1
    told = {name for (name, *_) in after}
    assert told <= served_names().keys()
    counted = {name for name in served_names() if re.match("ganeti_(luxid|wconfd)_", name)}
    assert counted <= told
    assert not counted & {name for (name, *_) in metrics(two, OTHER)}


@pytest.mark.shows("2.12/mond/degraded")
def test_a_node_tells_what_it_is_when_the_master_is_dead(two: TestCluster) -> None:
    paths = two.paths
    for name in MASTER_DAEMONS:
        pid = daemon_control.running_pid(paths, name)
        assert pid is not None, name
        os.kill(pid, signal.SIGKILL)
        assert process.wait_gone(pid, DEADLINE_S)
    restart(two)  # it knows nothing but what the other candidate's RConfD tells
    wait_until(
        lambda: ("ganeti_config_serial",) in metrics(two),
        "an answer of RConfD",
        timeout_s=DEADLINE_S,
    )
    wait_until(lambda: "lv" not in collectors(two), "the settings", timeout_s=DEADLINE_S)
    assert json.loads(get(two, "/1/report/all"))
    wait_until(
        lambda: metrics(two, two.master)["ganeti_daemon_up", "ganeti-luxid"] == 0,
        "LuxiD's end is seen",
        timeout_s=DEADLINE_S,
    )
    found = metrics(two, two.master)
    assert found["ganeti_daemon_up", "ganeti-mond"] == 1
