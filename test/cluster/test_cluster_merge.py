"""One cluster is taken into another: cut at every step it goes on, or is taken back."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.failing_cluster import FailingCluster
from fakes.two_clusters import OTHER, two_clusters
from fakes.virtual_cluster import Outcome

from ganeti.bootstrap.virtual import lifecycle
from ganeti.store.notes import watcher_pause
from ganeti.system import daemon_control, process, ssh

MEANWHILE = "meanwhile.example.com"
ADD = (
    "instance add --no-name-check --no-ip-check -t file --disk 0:size=1 --no-install"
    " -o debootstrap+default --no-start -B memory=4"
)
FORMER_KEY = "ssh-rsa GONE root@gone"
GUESTS = ("guest1.example.com", "guest2.example.com")
STEPS = (
    *("keys", "watchers", "instances", "queue", "daemons", "fetch", "own-queue", "stop"),
    *("config", "start"),
)
"""Those that can be taken back."""
OPEN = "open"
LATER = ("redist", "restart", "go-on", "up")
ALL = bool(os.environ.get("GANETI_TEST_CUTS"))  # a cut costs seconds of processor
GOES_ON = (*STEPS, OPEN, *LATER) if ALL else ("daemons", "config", OPEN, "restart")
TAKEN_BACK = STEPS if ALL else ("start",)
TIMEOUT_S = 300.0
# Runs the tool, and dies once a step is done, before that is noted.
CUT = """
import os, sys
from ganeti.cli.merging import journal
from ganeti.cli.programs import main
save, step = journal.save, os.environ["CUT"]
def cut(paths, note):
    if step in note.done:
        os._exit(77)
    save(paths, note)
journal.save = cut
sys.argv = ["cluster-merge", *sys.argv[1:]]
sys.exit(main())
"""
Pair = tuple[FailingCluster, FailingCluster]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two clusters of two nodes; the other one has an instance that runs, and one that does not."""
    with two_clusters(2, 2) as (own, other):
        for guest, node in zip(GUESTS, other.nodes, strict=True):
            other.gnt(f"{ADD} -n {node} {guest}")
        other.gnt(f"instance startup {GUESTS[0]}")
        yield own, other


def merge(own: FailingCluster, *words: str, cut: str = "") -> Outcome:
    """Run the tool on the master; with ``cut`` it dies at the end of that step."""
    if not cut:
        return own.run(["cluster-merge", *words], timeout_s=TIMEOUT_S)
    environment = {**lifecycle.command_environment(own.layout, own.master), "CUT": cut}
    argv = [sys.executable, "-c", CUT, *words]
    result = process.run(argv, timeout_s=TIMEOUT_S, env=environment)
    found = Outcome(cut, result.status, result.stdout.decode(), result.stderr.decode())
    assert found.status == 77, found
    return found


def refused(outcome: Outcome, *texts: str) -> None:
    assert outcome.status == 1, outcome
    assert all(text in outcome.err for text in texts), outcome
    assert "Traceback" not in outcome.err, outcome


def config_of(cluster: FailingCluster) -> dict[str, object]:
    """The configuration without what counts its changes."""
    found = json.loads(Path(cluster.paths.config_data).read_bytes())
    for key in ("serial_no", "mtime"):
        found.pop(key)
    for table in ("instances", "disks"):  # started and stopped
        for each in found[table].values():
            for key in ("serial_no", "mtime", "disks_active"):
                each.pop(key, None)
    return dict(found)


def keys_of(cluster: FailingCluster, node: str) -> str:
    path = Path(ssh.directory_of(cluster.paths_of(node))) / "authorized_keys"
    return path.read_text() if path.exists() else ""


def left_of_merges(own: FailingCluster) -> list[str]:
    """Return the files of merges that are left on the master, but for the lock that nobody holds."""
    names = os.listdir(own.paths.data_dir)
    return [name for name in names if "cluster-merge" in name and not name.endswith(".lock")]


def check_as_before(pair: Pair, before: list[dict[str, object]]) -> None:
    """Both clusters work, and have nothing of the attempt."""
    for cluster, config in zip(pair, before, strict=True):
        assert config_of(cluster) == config
        assert cluster.run("gnt-debug delay 0").status == 0, "the queue is open"
        assert watcher_pause.read(cluster.paths) is None
        for node in cluster.nodes:
            assert keys_of(cluster, node) == ""
    own, other = pair
    assert other.instance_field(GUESTS[0], "status") == "running"
    assert other.instance_field(GUESTS[1], "status") == "ADMIN_down"
    assert left_of_merges(own) == []


def test_what_is_in_the_way_is_told_before_anything_is_touched(pair: Pair) -> None:
    own, other = pair
    before = [config_of(cluster) for cluster in pair]
    refused(merge(own, OTHER), "both clusters have a node group default", "--groups=merge")
    refused(merge(own, "nobody"), "is called 'nobody'")
    refused(merge(own), "name the clusters")
    refused(merge(own, "--rollback"), "nothing to take back")
    refused(merge(own, "cluster.example.com"), "both are the same cluster")
    other.gnt("cluster modify -B vcpus=3")
    refused(merge(own, "--groups=rename", OTHER), "beparams: vcpus is 1 here, 3 there")
    other.gnt("cluster modify -B vcpus=1")
    outcome = merge(own, "--dry-run", "--groups=rename", OTHER)
    assert outcome.status == 0, outcome
    assert "group default there becomes group default-other.example.com" in outcome.out
    outcome = own.run(["cluster-merge", OTHER], node=own.nodes[1])
    assert outcome.status != 0
    assert "not the master" in outcome.err
    assert [config_of(cluster)["instances"] for cluster in pair] == [c["instances"] for c in before]


@pytest.mark.shows("2.1/merge-rollback/undo", "2.1/merge-rollback/keys-back")
def test_cut_before_a_node_is_taken_in_it_is_taken_back(pair: Pair) -> None:
    before = [config_of(cluster) for cluster in pair]
    for step in TAKEN_BACK:
        merge(pair[0], "--groups=rename", OTHER, cut=step)
        refused(merge(pair[0], "elsewhere"), "was cut off")
        for words in ([OTHER], ["--rollback"], []):
            refused(merge(pair[0], "--dry-run", *words), "was cut off", "; --dry-run is for")
        outcome = merge(pair[0], "--rollback")
        assert outcome.status == 0, (step, outcome)
        check_as_before(pair, before)


def test_nobody_loses_by_a_rollback_what_was_done_since_the_configurations_were_merged(
    pair: Pair,
) -> None:
    own, _other = pair
    before = [config_of(cluster) for cluster in pair]
    merge(own, "--groups=rename", OTHER, cut="start")
    add = f"{ADD} -n {own.nodes[1]} {MEANWHILE}"
    refused(own.run(f"gnt-{add}"), "queue", "drained")
    own.gnt("cluster queue undrain")
    own.gnt(add)
    outcome = merge(own, "--rollback")
    refused(outcome, f"instance {MEANWHILE} is new", f"cluster-merge {OTHER}, which goes on")
    assert own.instance_field(MEANWHILE, "status") == "ADMIN_down"
    own.gnt(f"instance remove --force {MEANWHILE}")
    assert merge(own, "--rollback").status == 0
    check_as_before(pair, before)


def test_daemons_that_a_watcher_has_started_after_a_cut_are_stopped_again(pair: Pair) -> None:
    own, _other = pair
    before = [config_of(cluster) for cluster in pair]

    def start() -> int | None:
        words = ["--no-voting", "--yes-do-it"]  # the new nodes have no votes yet
        daemon_control.start_daemon(own.paths, "ganeti-wconfd", words, hostname=own.master)
        return running()

    def running() -> int | None:
        return daemon_control.running_pid(own.paths, "ganeti-wconfd")

    merge(own, "--groups=rename", OTHER, cut="config")
    assert start() is not None
    merge(own, OTHER, cut="config")
    assert running() is None, "nobody else writes the configuration"
    started = start()
    assert merge(own, "--rollback").status == 0
    assert running() != started
    check_as_before(pair, before)


def test_a_failure_before_that_takes_it_back_at_once(pair: Pair) -> None:
    own, other = pair
    before = [config_of(cluster) for cluster in pair]
    refusal = json.dumps([["opcode", ["=", "OP_ID", "OP_INSTANCE_SHUTDOWN"]]])
    other.gnt(["filter", "add", f"--predicates={refusal}", "--action=REJECT"])
    try:
        outcome = merge(own, "--groups=rename", OTHER)
    finally:
        [uuid] = other.gnt("filter list --no-headers -o uuid").lines
        other.gnt(f"filter delete {uuid}")
    refused(outcome, "stop-instances on node3.example.com", "both clusters are as before")
    check_as_before(pair, before)


def test_a_node_that_cannot_be_asked_is_told_before_anything_is_touched(pair: Pair) -> None:
    own, other = pair
    before = [config_of(cluster) for cluster in pair]
    blocked = Path(other.paths_of(other.nodes[1]).watcher_pause)
    blocked.mkdir()  # its state cannot be told
    try:
        outcome = merge(own, "--dry-run", "--groups=rename", OTHER)
    finally:
        blocked.rmdir()
    refused(outcome, "Nothing was touched", "node node4.example.com is not reached")
    check_as_before(pair, before)


def test_the_other_master_starts_again_when_half_of_its_nodes_are_lost(pair: Pair) -> None:
    own, other = pair
    lost, before = other.nodes[1], [config_of(cluster) for cluster in pair]
    merge(own, "--groups=rename", OTHER, cut="daemons")
    outcome = merge(own, "--rollback", f"--lost-nodes={lost}")
    assert outcome.status == 0, outcome
    assert f"daemons on {other.master} run without votes" in outcome.err
    assert [each.command for each in other.processes_of(lost)] == [], "nobody has started them"
    # It comes back all the same, as it was left.
    other.switch_on(lost)
    (Path(ssh.directory_of(other.paths_of(lost))) / "authorized_keys").unlink()
    watcher_pause.write(other.paths_of(lost), None)
    for command in ("stop-master", "start-master"):
        assert other.run(["daemon-util", command]).status == 0
    check_as_before(pair, before)


@pytest.mark.shows(
    "2.1/merge/easy",
    "2.1/merge-steps/keys",
    "2.1/merge-steps/stopped",
    "2.1/merge-steps/readd",
    "2.1/merge-steps/started",
    "2.1/merge-verify/verify",
)
def test_cut_at_every_step_it_goes_on_to_its_end(pair: Pair) -> None:
    own, other = pair
    joins = [f"join:{node}" for node in other.nodes]
    Path(other.paths.ssh_pub_keys).write_text(f"gone {FORMER_KEY}\n")
    ssh.change_authorized_keys(ssh.directory_of(other.paths), add=[FORMER_KEY])
    at = next(i for i, step in enumerate(GOES_ON) if step in LATER)
    for step in (*GOES_ON[:at], *(joins if ALL else joins[:1]), *GOES_ON[at:]):
        merge(own, "--groups=rename", OTHER, cut=step)
        if step == GOES_ON[0]:
            assert all(keys_of(other, node) for node in other.nodes)
        if step == "daemons":
            running = [p.command for node in other.nodes for p in other.processes_of(node)]
            assert running == [], "no daemon, and no instance"
        if step == OPEN:  # as if the machines had been started again
            for node in other.nodes:
                other.switch_on(node)
            other.start_master_daemons()
        if step in (OPEN, joins[0]):
            refused(merge(own, "--rollback"), "cannot be taken back any more")
    outcome = merge(own, OTHER)
    assert outcome.status == 0, outcome
    assert f"Cluster {OTHER} is part of this one now." in outcome.out

    own.nodes = (*own.nodes, *other.nodes)
    assert own.gnt("node list --no-headers -o name").lines == list(own.nodes)
    assert own.instance_field(GUESTS[0], "status") == "running"
    assert own.instance_field(GUESTS[1], "status") == "ADMIN_down"
    own.wait_all_follow()
    assert own.gnt("cluster verify").status == 0
    assert "not paused" in own.gnt("cluster watcher info").out
    for node in other.nodes:
        backups = Path(own.paths_of(node).backup_dir).glob("ganeti-*/var/lib/ganeti/config.data")
        kept = [json.loads(path.read_bytes())["cluster"]["cluster_name"] for path in backups]
        assert FORMER_KEY not in keys_of(own, node)
        assert kept == [OTHER], "the other cluster's configuration is still there, once"
    assert left_of_merges(own) == []
    own.fail_over(other.nodes[0])
