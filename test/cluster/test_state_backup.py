"""The state of a cluster is saved while it works, and makes a new master of an empty machine."""

from __future__ import annotations

import io
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.virtual_cluster import Outcome
from fakes.waiting import wait_until

from ganeti.base import json
from ganeti.bootstrap import cluster_files, state_archive
from ganeti.cli.cluster.restore import COMMANDS, _write
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context, Terminal
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import files


@pytest.fixture(scope="module")
def cluster() -> Iterator[FailingCluster]:
    with failing_cluster(3) as made:
        yield made


def serial_of(cluster: FailingCluster) -> int:
    serial = json.loads(files.read_bytes(cluster.paths.config_data))["serial_no"]
    assert isinstance(serial, int)
    return serial


def lose(cluster: FailingCluster, node: str) -> None:
    """The machine burns; another one gets its name and its addresses."""
    cluster.cut_power(node)
    paths = cluster.paths_of(node)
    shutil.rmtree(paths.data_dir)
    shutil.rmtree(paths.log_dir)
    shutil.rmtree(f"{paths.root}/root", ignore_errors=True)


def restore(cluster: FailingCluster, node: str, *words: object) -> Outcome:
    return cluster.run(["gnt-cluster", "restore", *map(str, words)], node=node)


def refused(outcome: Outcome, *texts: str, status: int = 1) -> None:
    assert outcome.status == status, outcome
    assert all(text in outcome.err for text in texts), outcome
    assert "Traceback" not in outcome.err


def test_a_new_master_is_made_of_a_backup(cluster: FailingCluster, tmp_path: Path) -> None:
    master, *others = cluster.nodes
    cluster.gnt("cluster modify --candidate-pool-size=1")
    for node in others:  # so that the only copy is the master's
        cluster.gnt(f"node modify --master-candidate=no {node}")
    cluster.gnt("cluster add-tags kept")
    ended = cluster.submit("debug delay 0")
    cluster.wait_status(ended, "success")
    running = cluster.submit("debug delay 3600")
    cluster.wait_status(running, "running")
    path = tmp_path / "state"
    refused(
        cluster.run(["gnt-cluster", "backup", str(path)], node=others[0]),
        "not the master",
        status=11,
    )
    outcome = cluster.gnt(f"cluster backup {path}")
    assert "keys of the cluster" in outcome.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    refused(cluster.run(f"gnt-cluster backup {path}"), "--force replaces it")
    path.chmod(0o644)
    cluster.gnt(f"cluster backup --force {path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "an old file does not keep its mode"

    cluster.gnt("cluster add-tags lost")
    last, serial = cluster.submit("debug delay 0"), serial_of(cluster)
    key = files.read_bytes(cluster.paths.server_pem)
    refused(restore(cluster, master, path), "stop the daemons first")
    lose(cluster, master)
    refused(restore(cluster, others[0], path), f"that of {master}")
    refused(restore(cluster, master, path), "Go on?", "--yes-do-it")
    assert cluster.files_below(master, "/var/lib/ganeti") == [], "nothing secret is left"

    outcome = restore(cluster, master, "--yes-do-it", path)
    assert outcome.status == 0, outcome
    assert f"not in it: {running}" in outcome.out
    assert cluster.gnt("cluster list-tags").lines == ["kept"]
    assert serial_of(cluster) > serial, "also beyond the serial numbers that were lost"
    assert files.read_bytes(cluster.paths.server_pem) == key
    cluster.wait_all_follow()
    statuses = cluster.statuses()
    assert statuses[ended] == "success"
    assert running not in statuses, "it is not carried out a second time"
    assert cluster.submit("debug delay 0") > last
    assert "paused until" in cluster.gnt("cluster watcher info").out
    assert cluster.gnt("cluster verify").status == 0


def test_what_another_node_knows_comes_first(cluster: FailingCluster, tmp_path: Path) -> None:
    master, second, third = cluster.nodes
    cluster.gnt("cluster modify --candidate-pool-size=10")
    candidates = cluster.gnt("node list --no-headers -o name --filter master_candidate").lines
    for node in set(cluster.nodes) - set(candidates):
        cluster.gnt(f"node modify --master-candidate=yes {node}")
    path = tmp_path / "state"
    cluster.gnt(f"cluster backup {path}")
    lose(cluster, master)
    cluster.stop_noded(third)
    refused(restore(cluster, master, "--yes-do-it", path), "and only", f"{third} (")
    cluster.start_noded(third)
    assert restore(cluster, master, "--yes-do-it", path).status == 0, "nobody knows more"
    cluster.wait_all_follow()

    path.unlink()
    cluster.gnt(f"cluster backup {path}")
    cluster.gnt("cluster add-tags newer")
    lose(cluster, master)
    for words in ([], ["--no-voting"]):
        refused(
            restore(cluster, master, "--yes-do-it", *words, path),
            "has a newer configuration",
            "gnt-cluster master-failover",
        )
    cluster.fail_over(second)
    refused(
        restore(cluster, master, "--yes-do-it", path),
        f"node {second} runs the master's daemons",
        f"gnt-node add --readd {master}",
    )
    assert not os.path.exists(cluster.paths_of(master).config_data)
    cluster.gnt(f"node add --readd {master}")
    assert "newer" in cluster.gnt("cluster list-tags").lines
    wait_until(lambda: ssconf.master_node(cluster.paths_of(master)) == second, "it follows")
    assert JobFiles(cluster.paths).last_id() > 0


def test_a_restoration_that_is_cut_off_still_needs_all_the_others(
    cluster: FailingCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that does not answer may have the only copy of what the lost master acknowledged."""
    master, [*others] = cluster.master, cluster.others
    silent = others[-1]
    cluster.gnt(f"cluster backup {tmp_path / 'state'}")
    state = state_archive.unpack(files.read_bytes(str(tmp_path / "state")))
    lose(cluster, master)
    paths = cluster.paths_of(master)
    cluster_files.ensure_directories(paths)
    monkeypatch.setattr(Context, "paths", paths)
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    context = Context("gnt-cluster", COMMANDS[0], Options({}), terminal)
    _write(context, state)  # and is killed
    cluster.stop_noded(silent)
    said = cluster.refused_failover(master, "3 must answer (one more than", silent).err
    assert "the configuration here is from a backup" in said
    cluster.start_noded(silent)
    cluster.fail_over(master)
    assert not os.path.exists(paths.restore_note)
    cluster.wait_all_follow()
