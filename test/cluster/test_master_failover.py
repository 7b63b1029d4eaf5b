"""The master role goes from node to node, with the old master alive, dead, paused or cut off."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.base import json
from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.bootstrap import failover
from ganeti.bootstrap.failover import FailoverOptions, fail_over
from ganeti.bootstrap.virtual import lifecycle
from ganeti.jobs.record import QueuedJob, decode_job
from ganeti.luxid.daemon import DRAIN_LOOK_S
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CompressedText, DrainResult
from ganeti.store import master_facts, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import daemon_control, files, process

EXIT_NOTMASTER = 11


@pytest.fixture(scope="module")
def shared() -> Iterator[FailingCluster]:
    """Three nodes that are all alive before and after each test; any may be the master."""
    with failing_cluster(3) as made:
        yield made


@pytest.fixture
def three() -> Iterator[FailingCluster]:
    with failing_cluster(3) as made:
        yield made


@pytest.fixture
def two() -> Iterator[FailingCluster]:
    with failing_cluster(2) as made:
        yield made


@pytest.fixture
def five() -> Iterator[FailingCluster]:
    with failing_cluster(5) as made:
        yield made


def config_serial(cluster: FailingCluster, node: str) -> int:
    serial = json.loads(files.read_bytes(cluster.paths_of(node).config_data))["serial_no"]
    assert isinstance(serial, int)
    return serial


def assert_outvoted(cluster: FailingCluster, node: str) -> None:
    """The daemons of a former master refuse to start there, and say who is master."""
    for daemon in ("ganeti-wconfd", "ganeti-luxid"):
        outcome = cluster.start_daemon_by_hand(node, daemon)
        assert outcome.status == EXIT_NOTMASTER, outcome
        assert cluster.master in outcome.err, outcome
    assert cluster.running(node) == []


# The old master is alive.


@pytest.mark.shows(
    "2.0/core/old-results", "2.0/master/failover-calls", "2.0/locking-library/failover-idle"
)
def test_a_living_master_hands_over(shared: FailingCluster) -> None:
    old, new = shared.master, shared.others[0]
    shared.gnt("cluster add-tags moved")
    archived = shared.submit("debug delay 0")
    shared.run(f"gnt-job wait {archived}")
    shared.gnt(f"job archive {archived}")
    running = shared.submit("debug delay 1")
    serial = config_serial(shared, old)
    outcome = shared.fail_over(new)
    assert f"Waiting for {old} to finish its jobs" in outcome.out
    assert f"{new} is the master." in outcome.out
    assert shared.statuses()[running] == "success", "it was waited for"
    assert shared.gnt(f"job list --no-headers -o status {archived}").out.strip() == "success"
    assert shared.gnt("cluster list-tags").lines == ["moved"]
    shared.gnt("cluster remove-tags moved")
    assert config_serial(shared, new) > serial
    assert shared.running(old) == []
    assert_outvoted(shared, old)
    assert "unset" in shared.gnt("cluster queue info").out
    following = shared.submit("debug delay 0")
    assert following > running
    shared.run(f"gnt-job wait {following}")
    shared.wait_all_follow()
    roles = shared.gnt("node list --no-headers --separator=: -o name,role").lines
    assert sorted(roles) == sorted(f"{node}:{'M' if node == new else 'C'}" for node in shared.nodes)
    for command in ("gnt-node list", "gnt-job list"):
        refused = shared.run(command, node=old)
        assert refused.status == EXIT_NOTMASTER
        assert f"'{new}'" in refused.err


@pytest.mark.shows("2.0/queue-life/visible", "2.0/queue-client/submit")
def test_it_goes_round_and_no_job_id_is_given_twice(shared: FailingCluster) -> None:
    ids: list[int] = []
    for node in [*shared.others, shared.master]:
        ids.append(shared.submit("debug delay 0"))
        shared.fail_over(node)
        ids.append(shared.submit("debug delay 0"))
    assert ids == sorted(set(ids))
    for job_id in ids:
        shared.wait_status(job_id, "success")


@pytest.mark.shows("backend/jobs/consistent", "2.12/wconfd/next-master", "2.0/queue-life/visible")
def test_queues_and_configurations_are_equal_afterwards(shared: FailingCluster) -> None:
    shared.fail_over(shared.others[1])
    shared.gnt("job autoarchive all")
    left = shared.submit("debug delay 0")
    shared.run(f"gnt-job wait {left}")
    shared.gnt("cluster redist-conf")

    def contents(node: str) -> object:
        paths = shared.paths_of(node)
        queue = JobFiles(paths)
        return (
            {job_id: queue.read(job_id) for job_id in queue.ids()},
            queue.archived_ids(),
            files.read_bytes(paths.config_data),
        )

    wait_until(
        lambda: all(contents(node) == contents(shared.master) for node in shared.others),
        "the candidates have what the master has",
    )


def test_it_is_refused_on_the_master(shared: FailingCluster) -> None:
    shared.refused_failover(shared.master, "is the master already")
    assert shared.running(shared.master) == ["ganeti-wconfd", "ganeti-luxid"]


@pytest.mark.shows("2.0/locking-library/failover-idle")
def test_jobs_that_do_not_end_are_named_and_nothing_changes(
    shared: FailingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "DRAIN_TIMEOUT_S", 0.5)
    node = shared.others[0]
    job_id = shared.submit("debug delay 3600")
    shared.wait_status(job_id, "running")
    with pytest.raises(OpPrereqError, match=rf"still run on {shared.master}: {job_id};") as refused:
        fail_over(shared.paths_of(node), node, FailoverOptions(), print)
    assert f"gnt-job cancel {job_id}" in refused.value.message
    assert shared.running(shared.master) == ["ganeti-wconfd", "ganeti-luxid"]
    assert "unset" in shared.gnt("cluster queue info").out
    shared.gnt(f"job cancel --kill --yes-do-it {job_id}")


@pytest.mark.shows("2.12/luxid/survives-master")
def test_jobs_that_wait_are_run_by_the_next_master(
    shared: FailingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "DRAIN_TIMEOUT_S", 0.5)
    shared.gnt(["filter", "add", "--action=PAUSE", '--predicates=[["jobid", [">", "id", 0]]]'])
    waiting = shared.submit("debug delay 0")
    node = shared.others[0]
    fail_over(shared.paths_of(node), node, FailoverOptions(), print)
    shared.master = node
    assert shared.statuses()[waiting] == "queued"
    for rule in shared.gnt("filter list --no-headers -o uuid").out.split():
        shared.gnt(f"filter delete {rule}")
    shared.wait_status(waiting, "success")


@pytest.mark.parametrize("takes_back", [True, False], ids=["takes it back", "keeps it"])
def test_a_claim_of_another_node_stands_while_the_daemons_start(
    three: FailingCluster, monkeypatch: pytest.MonkeyPatch, takes_back: bool
) -> None:
    node, rival = three.others
    paths = three.paths_of(node)
    carried_out = failover.Failover._start_daemons
    starts: list[str] = []

    def start(self: failover.Failover) -> None:
        starts.append(node)
        if len(starts) > 1:
            return carried_out(self)
        own = master_facts.read_claim(paths)
        claim = master_facts.Claim(own.serial_no + 10_000, rival)
        master_facts.take_claim(paths, known_serial=own.serial_no, claim=claim)
        try:
            return carried_out(self)
        finally:
            if takes_back:
                master_facts.take_claim(paths, known_serial=claim.serial_no, claim=own)

    monkeypatch.setattr(failover.Failover, "_start_daemons", start)
    if not takes_back:
        with pytest.raises(OpExecError, match=f"its daemons do not run: .* names {rival}"):
            fail_over(paths, node, FailoverOptions(), print)
        assert len(starts) == 1
        return
    fail_over(paths, node, FailoverOptions(), print)
    three.master = node
    assert len(starts) == 2
    assert three.running(node) == ["ganeti-wconfd", "ganeti-luxid"]


def test_a_drained_queue_stays_drained(shared: FailingCluster) -> None:
    shared.gnt("cluster queue drain")
    shared.fail_over(shared.others[0])
    assert "is set" in shared.gnt("cluster queue info").out
    shared.gnt("cluster queue undrain")
    wait_until(
        lambda: not any(JobFiles(shared.paths_of(node)).is_drained() for node in shared.nodes),
        "no copy is drained any more",
    )


@pytest.mark.shows("2.0/locking-library/master-lost")
def test_jobs_of_a_master_whose_daemons_died_are_waited_for(shared: FailingCluster) -> None:
    with shared.luxi() as client:
        job_id = client.submit_job([{"OP_ID": "OP_TEST_DELAY", "duration": 6.0}])
    shared.wait_status(job_id, "running")
    shared.kill_master_daemons()
    shared.fail_over(shared.others[0])
    assert shared.statuses()[job_id] == "success"
    assert shared.locks_held() == []


@pytest.mark.shows("backend/roles/one-master")
@pytest.mark.parametrize("step", ["_stop_old_master", "_drain", "_claim"])
def test_of_two_at_once_exactly_one_becomes_master(
    shared: FailingCluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Both begin that step at the same moment; what one closed for it, the other one opens."""
    together = threading.Barrier(2)
    carried_out = getattr(failover.Failover, step)

    def wait_for_both(self: failover.Failover, *args: object) -> object:
        with contextlib.suppress(threading.BrokenBarrierError):  # one comes by once more, alone
            together.wait(60)
        together.abort()
        return carried_out(self, *args)

    outcomes: dict[str, GenericError | None] = {}

    def attempt(node: str) -> None:
        try:
            fail_over(shared.paths_of(node), node, FailoverOptions(), print)
        except GenericError as err:
            outcomes[node] = err
        else:
            outcomes[node] = None
        finally:
            together.abort()  # who has failed before that step is not waited for

    contenders = shared.others
    if step == "_claim":  # which only one would come to that lives to see the other stop LuxiD
        shared.kill_master_daemons()
    with monkeypatch.context() as patch:
        patch.setattr(failover.Failover, step, wait_for_both)
        threads = [threading.Thread(target=attempt, args=(node,)) for node in contenders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    [winner] = [node for node in contenders if outcomes[node] is None]
    shared.master = winner
    assert {node for node in shared.nodes if shared.running(node)} == {winner}, outcomes
    shared.wait_all_follow()
    assert "unset" in shared.gnt("cluster queue info").out
    job_id = shared.submit("debug delay 0")
    shared.wait_status(job_id, "success")


def test_a_queue_closed_for_a_failover_that_was_cut_off_is_opened(three: FailingCluster) -> None:
    """The old master dies while it finishes its jobs; candidates know why it took no more."""
    old, first, second = three.nodes
    with three.luxi() as client:
        client.set_drain_flag(True, DrainedBy.FAILOVER)
    for node in three.nodes:
        assert JobFiles(three.paths_of(node)).drained_by() is DrainedBy.FAILOVER
    three.kill_node(old)
    three.fail_over(first)
    assert "unset" in three.gnt("cluster queue info").out
    wait_until(
        lambda: not JobFiles(three.paths_of(second)).is_drained(), "the other candidate follows"
    )


# The old master is dead.


@pytest.mark.shows(
    "2.12/luxid/survives-master",
    "2.0/startup/running-failed",
    "2.0/startup/stale-stays-off",
    "2.0/locking-library/master-lost",
    "maintd/daemon/exit-status",
)
def test_a_dead_master_is_replaced_and_stays_quiet_when_it_returns(three: FailingCluster) -> None:
    """Reported to Ganeti as #116: failover with a dead master."""
    old, new, third = three.nodes
    three.gnt("cluster add-tags acknowledged")
    done = three.submit("debug delay 0")
    three.run(f"gnt-job wait {done}")
    running = three.submit("debug delay 3600")
    three.wait_status(running, "running")
    depends = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "depends": [[running, ["error"]]]}
    with three.luxi() as client:
        queued = client.submit_job([depends])
    three.kill_node(old)
    outcome = three.fail_over(new)
    assert f"Warning: {old}, which was the master, does not answer" in outcome.out
    three.wait_status(running, "error")
    assert "died" in three.gnt(f"job info {running}").out
    three.wait_status(queued, "success")
    assert three.statuses()[done] == "success"
    assert three.gnt("cluster list-tags").lines == ["acknowledged"]
    assert three.submit("debug delay 0") > queued
    # It comes back, first without having heard anything.
    outcome = three.start_daemon_by_hand(old, "ganeti-luxid")
    assert outcome.status == EXIT_NOTMASTER
    assert f"{new}, {third} name {new}" in outcome.err or "newer configuration" in outcome.err
    three.start_noded(old)
    three.wait_all_follow()
    assert_outvoted(three, old)
    wait_until(
        lambda: config_serial(three, old) == config_serial(three, new),
        "the former master has the new configuration",
    )


@pytest.mark.parametrize("with_luxid", [True, False], ids=["", "LuxiD was restarted"])
def test_opcodes_that_had_succeeded_are_told_so_by_the_next_master(
    three: FailingCluster, with_luxid: bool
) -> None:
    old, new, _ = three.nodes
    durations = [0.1, 600.0] if with_luxid else [3.0, 600.0]
    with three.luxi() as client:
        job_id = client.submit_job(
            [{"OP_ID": "OP_TEST_DELAY", "duration": each} for each in (0.1, *durations)]
        )
    if not with_luxid:  # then the process sends by itself
        three.wait_status(job_id, "running")
        three.kill_master_daemons()
        three.start_master_daemons()

    def statuses(node: str) -> list[str]:
        data = JobFiles(three.paths_of(node)).read(job_id)
        return [] if data is None else [op.status.value for op in decode_job(data).ops]

    wait_until(lambda: statuses(old)[2:] == ["running"], "the last opcode")
    wait_until(
        lambda: all(statuses(node)[:2] == ["success"] * 2 for node in three.others),
        "the candidates to hear of the others",
    )
    three.kill_node(old)
    three.fail_over(new)
    three.wait_status(job_id, "error")
    assert statuses(new) == ["success", "success", "error"]


@pytest.mark.shows("2.12/wconfd/next-master")
def test_the_newest_configuration_is_taken_from_another_candidate(three: FailingCluster) -> None:
    """Reported to Ganeti as #1242: a failover ignored serial numbers, a configuration was lost."""
    old, behind, third = three.nodes
    three.stop_noded(behind)
    three.gnt("cluster add-tags late")
    job_id = three.submit("debug delay 0")
    three.run(f"gnt-job wait {job_id}")
    wait_until(
        lambda: config_serial(three, third) == config_serial(three, old), "one candidate has it"
    )
    assert config_serial(three, behind) < config_serial(three, third)
    three.kill_node(old)
    three.start_noded(behind)
    assert JobFiles(three.paths_of(behind)).read(JobId(job_id)) is None
    outcome = three.fail_over(behind)
    assert f"Taking the configuration of {third}" in outcome.out
    taken = next(line for line in outcome.lines if line.startswith("Taken from other nodes: jobs"))
    assert str(job_id) in taken
    assert three.gnt("cluster list-tags").lines == ["late"]
    assert three.statuses()[job_id] == "success"


def test_what_only_journals_have_survives_a_dead_master(three: FailingCluster) -> None:
    old, new, _third = three.nodes
    daemon_control.stop_daemon(three.paths, "ganeti-wconfd")
    daemon_control.start_daemon(three.paths, "ganeti-wconfd", ["--config-journal"], hostname=old)
    tags = [f"tag{number}" for number in range(4)]
    for tag in tags:
        three.gnt(f"cluster add-tags {tag}")
    three.kill_node(old)  # sooner than the files follow
    three.fail_over(new)
    assert three.gnt("cluster list-tags").lines == tags
    assert not os.path.exists(three.paths.config_journal)
    three.gnt("cluster add-tags more")  # here WConfD runs without one
    assert three.gnt("cluster list-tags").lines == sorted([*tags, "more"])


@pytest.mark.shows("2.0/startup/refused")
def test_without_a_majority_it_is_refused_by_name(five: FailingCluster) -> None:
    old, new, *rest = five.nodes
    five.kill_node(old)
    five.stop_noded(*rest[1:])
    five.refused_failover(
        new,
        "2 of 5 nodes answer, 3 are needed",
        f"{new}, {rest[0]} answered",
        f"missing: {old} (connection refused), {rest[1]} (connection refused)",
        "Start the node daemons there; or, if you are sure",
        "--no-voting --yes-do-it",
    )
    assert five.running(new) == []
    five.start_noded(rest[1])
    five.fail_over(new)
    five.wait_all_follow([new, rest[0], rest[1]])
    assert "gnt-node modify" not in five.gnt("debug delay 0").err
    five.start_noded(rest[2])
    five.wait_all_follow([*rest, new])


@pytest.mark.shows("2.0/startup/override", "2.0/startup/override-copies", "2.0/offline/two-nodes")
def test_the_second_of_two_nodes_needs_the_override(two: FailingCluster) -> None:
    """Reported to Ganeti as #1212 and #1216: a cluster of two nodes ended half up."""
    old, new = two.nodes
    known = two.submit("debug delay 0")
    two.run(f"gnt-job wait {known}")
    two.kill_node(old)
    two.refused_failover(new, "1 of 2 nodes answer, 2 are needed", old, "--no-voting --yes-do-it")
    unconfirmed = two.run("gnt-cluster master-failover --no-voting", node=new)
    assert unconfirmed.status == 1
    assert "--yes-do-it" in unconfirmed.err
    two.fail_over(new, "--no-voting", "--yes-do-it")
    assert two.statuses()[known] == "success"
    job_id = two.submit("debug delay 0")
    assert job_id > known + 100, "ids that only the dead master knew are not given again"
    two.wait_status(job_id, "success")
    two.gnt("cluster add-tags alone")
    # The old one returns and hears who is master, by its own question and by the new one's files.
    outcome = two.start_daemon_by_hand(old, "ganeti-wconfd")
    assert outcome.status == EXIT_NOTMASTER, outcome
    two.start_noded(old)
    two.wait_all_follow()
    assert_outvoted(two, old)
    two.fail_over(old)
    assert two.gnt("cluster list-tags").lines == ["alone"]


@pytest.mark.shows("2.0/candidate/failover-target")
def test_where_it_cannot_work_it_says_where_it_can(five: FailingCluster) -> None:
    """Reported to Ganeti as #384: the operator had to find out which candidate to choose."""
    old, plain, best, *_ = five.nodes
    five.gnt(f"node modify --master-candidate=no --auto-promote {plain}")
    five.kill_node(old)
    five.refused_failover(plain, f"{plain}) ", f"run it on {best}")
    five.fail_over(best)


def test_a_takeover_that_was_cut_off_is_resumed(
    three: FailingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, first, second = three.nodes
    job_id = three.submit("debug delay 0")
    three.run(f"gnt-job wait {job_id}")
    three.kill_node(old)

    class Cut(Exception):
        pass

    def cut(*_args: object) -> None:
        raise Cut

    for step in ("_claim", "_announce", "_start"):
        with monkeypatch.context() as patch:
            patch.setattr(failover.Failover, step, cut)
            with pytest.raises(Cut):
                fail_over(three.paths_of(first), first, FailoverOptions(), print)
    # It is known by claim and files, and another node takes over from there.
    outcome = three.fail_over(second)
    assert f"Taking the configuration of {first}" in outcome.out
    assert three.running(first) == []
    assert three.statuses()[job_id] == "success"
    three.wait_all_follow([first, second])
    assert master_facts.read_claim(three.paths_of(first)).name == second


# The old master lives, but is out of sight.


@pytest.mark.shows("2.0/startup/no-election")
def test_a_paused_master_ends_when_it_wakes_up(three: FailingCluster) -> None:
    """Reported to Ganeti as #1018: two masters among three nodes."""
    old, new, _ = three.nodes
    three.signal_node(old, signal.SIGSTOP)
    three.fail_over(new)
    job_id = three.submit("debug delay 0")
    three.wait_status(job_id, "success")
    three.signal_node(old, signal.SIGCONT)
    wait_until(lambda: three.running(old) == [], "the former master ends")
    three.wait_all_follow()
    log = Path(three.paths_of(old).log_file("ganeti-luxid")).read_text()
    assert "This node is not the master any more" in log
    assert three.gnt("cluster verify").status == 0


def test_what_jobs_of_a_paused_master_still_write_does_not_last(three: FailingCluster) -> None:
    old, new, _ = three.nodes
    with three.luxi() as client:
        ops = [{"OP_ID": "OP_TEST_DELAY", "duration": seconds} for seconds in (0.1, 600.0)]
        job_id = client.submit_job(ops)

    def record(node: str) -> QueuedJob:
        data = JobFiles(three.paths_of(node)).read(job_id)
        assert data is not None
        return decode_job(data)

    def statuses(node: str) -> list[str]:
        return [op.status.value for op in record(node).ops]

    three.wait_status(job_id, "running")
    pid = record(old).process_id
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert statuses(old)[0] == "running"  # what it writes next is its success
    three.signal_node(old, signal.SIGSTOP)
    three.fail_over(new)
    for each in three.processes_of(old):
        if each.pid != pid:
            os.kill(each.pid, signal.SIGCONT)
    wait_until(lambda: three.running(old) == [], "the former master ends")
    three.wait_all_follow()
    log = Path(three.paths_of(new).log_file("ganeti-luxid"))
    wait_until(lambda: f"Node {old} still ends what" in log.read_text(), "the first comparison")
    wait_until(lambda: record(old) == record(new), "what the new master has")
    os.kill(pid, signal.SIGCONT)
    assert process.wait_gone(pid, 20.0)
    wait_until(lambda: record(old) == record(new), "what the new master has")


class CutOff:
    """The old master and the next one do not reach each other; both reach the third candidate.

    Just before the nodes are told to follow the next master, the old one changes something.
    """

    def __init__(self, cluster: FailingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.old, self.new, self.third = cluster.nodes
        self.job_id = 0
        self._made = {name: getattr(failover.Failover, name) for name in ("_look", "_announce")}
        monkeypatch.setattr(failover.Failover, "_look", lambda *args: self._look(*args))
        monkeypatch.setattr(failover.Failover, "_announce", lambda *args: self._announce(*args))

    def _look(self, attempt: failover.Failover, *args: object) -> object:
        attempt._gone.setdefault(self.old, "out of reach")
        return self._made["_look"](attempt, *args)

    def _announce(self, attempt: failover.Failover, *args: object) -> None:
        self.cluster.stop_noded(self.new)
        self.cluster.gnt("cluster add-tags late")
        self.job_id = self.cluster.submit("debug delay 0")
        self.cluster.wait_status(self.job_id, "success")
        self._made["_announce"](attempt, *args)
        self.told()
        self.cluster.start_noded(self.new)

    def told(self) -> None:
        """Look at the moment at which the third candidate follows the next master."""

    def fail_over(self) -> None:
        fail_over(self.cluster.paths_of(self.new), self.new, FailoverOptions(), print)
        self.cluster.master = self.new

    def assert_nothing_is_lost(self) -> None:
        assert self.cluster.gnt("cluster list-tags").lines == ["late"]
        assert self.cluster.statuses()[self.job_id] == "success"


@pytest.mark.parametrize("option", ["", "--config-journal"])
def test_what_a_master_out_of_sight_gets_acknowledged_is_taken(
    three: FailingCluster, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Until the others follow the next master they take its changes, and none after that."""
    cut = CutOff(three, monkeypatch)
    if option:
        daemon_control.stop_daemon(three.paths, "ganeti-wconfd")
        daemon_control.start_daemon(three.paths, "ganeti-wconfd", [option], hostname=cut.old)
    refused: list[str | None] = []

    def write() -> None:
        with three.rpc(cut.old) as rpc:
            target, nothing = three.target(cut.third), CompressedText("")
            refused.append(rpc.call_one(NodeCalls.config_append, target, nothing).error)

    monkeypatch.setattr(cut, "told", write)
    cut.fail_over()
    assert f"node {cut.old} is not the master" in str(refused)
    cut.assert_nothing_is_lost()
    wait_until(lambda: three.running(cut.old) == [], "the former master ends")
    three.wait_all_follow()
    cut.assert_nothing_is_lost()


def test_a_follower_that_cannot_tell_what_it_took_is_waited_for(
    three: FailingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = CutOff(three, monkeypatch)
    monkeypatch.setattr(cut, "told", lambda: three.stop_noded(cut.third))
    serial = config_serial(three, cut.new)
    with pytest.raises(OpExecError, match=f"other nodes follow .* missing: .*{cut.third}"):
        cut.fail_over()
    assert config_serial(three, cut.new) == serial
    assert three.running(cut.new) == []
    monkeypatch.undo()
    three.start_noded(cut.third)
    three.fail_over(cut.new)
    cut.assert_nothing_is_lost()
    three.wait_all_follow()


ENDED_S_MAX = 5.0
OPENED_S_MAX = 20.0


def noded_pids(cluster: FailingCluster, node: str) -> list[int]:
    """Return the node daemon of a node with its helper; the master's daemons are left out."""
    found = cluster.processes_of(node)
    return [each.pid for each in found if not each.command.endswith(("-luxid", "-wconfd"))]


def assert_ends_soon(cluster: FailingCluster, node: str) -> None:
    started = time.monotonic()
    wait_until(lambda: cluster.running(node) == [], "the former master ends")
    assert time.monotonic() - started < ENDED_S_MAX
    for daemon in ("ganeti-luxid", "ganeti-wconfd"):
        log = Path(cluster.paths_of(node).log_file(daemon)).read_text()
        assert log.count("This node is not the master any more") == 1


@pytest.mark.parametrize("found_by", ["its own node", "a refusal"])
def test_a_master_that_was_cut_off_ends_as_soon_as_it_can_know(
    three: FailingCluster, found_by: str
) -> None:
    """Nobody reaches its node daemon, while its other daemons go on."""
    old, new, _ = three.nodes
    daemons = noded_pids(three, old)
    for pid in daemons:
        os.kill(pid, signal.SIGSTOP)
    with three.luxi() as client:
        three.fail_over(new)
        assert three.running(old) == ["ganeti-wconfd", "ganeti-luxid"]
        if found_by == "a refusal":
            with pytest.raises(GenericError):
                client.submit_job([{"OP_ID": "OP_TEST_DELAY", "duration": 0.0}])
            assert_ends_soon(three, old)
    for pid in daemons:
        with contextlib.suppress(ProcessLookupError):  # a child that was at its end
            os.kill(pid, signal.SIGCONT)
    assert_ends_soon(three, old)
    three.wait_all_follow()


def test_a_queue_closed_by_a_failover_that_died_is_opened(three: FailingCluster) -> None:
    """The old master lives: it takes jobs again without anybody's help, and not before."""
    old, new, _ = three.nodes
    running = three.submit("debug delay 3600")
    three.wait_status(running, "running")
    environment = lifecycle.command_environment(three.layout, new)
    failing_over = subprocess.Popen(
        [lifecycle.find_program("gnt-cluster", environment), "master-failover"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        queue = JobFiles(three.paths_of(old))
        wait_until(lambda: queue.drained_by() is DrainedBy.FAILOVER, "the queue to be closed")
        looked_until = time.monotonic() + 3 * DRAIN_LOOK_S
        while time.monotonic() < looked_until:
            assert queue.drained_by() is DrainedBy.FAILOVER, "the fail-over goes on"
            time.sleep(0.1)
        assert failing_over.poll() is None
    finally:
        os.killpg(failing_over.pid, signal.SIGKILL)
        failing_over.wait()
    wait_until(lambda: not queue.is_drained(), "the queue to be open", timeout_s=OPENED_S_MAX)
    assert three.statuses()[running] == "running"
    wait_until(
        lambda: "unset" in three.gnt("cluster queue info").out,
        "LuxiD to take jobs",
        timeout_s=OPENED_S_MAX,
    )
    three.wait_status(three.submit("debug delay 0"), "success")
    wait_until(
        lambda: not any(JobFiles(three.paths_of(node)).is_drained() for node in three.nodes),
        "the candidates to hear of it",
    )


def test_a_node_that_missed_the_change_is_brought_in_line(three: FailingCluster) -> None:
    old, new, late = three.nodes
    three.stop_noded(late)
    three.fail_over(new)
    three.stop_noded(old)  # so that the new master has no majority of those that answer
    three.start_noded(late)
    three.wait_all_follow([new, late])
    three.start_noded(old)
    assert three.running(new) == ["ganeti-wconfd", "ganeti-luxid"]


def make_master_of_its_own(cluster: FailingCluster, node: str) -> None:
    """Let a node believe that it is the master, with a configuration that is newer than ours."""
    cluster.kill_node(node)
    cluster.gnt(f"cluster add-tags without-{node}")
    paths = cluster.paths_of(node)
    data = files.read_bytes(cluster.paths.config_data)
    config = json.loads_as(dict[str, object], data)
    config["serial_no"] = config_serial(cluster, cluster.master) + 50_000
    files.write_atomic(paths.config_data, json.dumps(config))
    ssconf.write_values(paths, {"master_node": node})
    cluster.start_noded(node)


@pytest.mark.parametrize("was_marked", [True, False], ids=["offline", "never marked offline"])
def test_a_node_back_from_repair_does_not_depose_the_master(
    three: FailingCluster, was_marked: bool
) -> None:
    master, _, back = three.nodes
    if was_marked:
        three.gnt(f"node modify --offline=yes {back}")
    make_master_of_its_own(three, back)
    if not was_marked:
        log = Path(three.paths.log_file("ganeti-wconfd"))
        wait_until(
            lambda: f"Node {back} follows {back} as the master" in log.read_text(), "it is noticed"
        )
        three.gnt(f"node modify --offline=yes {back}")
    outcome = three.gnt(f"node modify --offline=no {back}")
    assert "higher than that of the cluster" in outcome.out + outcome.err, outcome
    [kept] = Path(three.paths_of(back).data_dir).glob("config.data.aside-*")
    assert kept.name in outcome.out + outcome.err
    three.wait_all_follow()
    wait_until(
        lambda: (
            files.read_bytes_or_none(three.paths_of(back).config_data)
            == files.read_bytes(three.paths.config_data)
        ),
        "it has the configuration of the others",
    )
    assert three.running(master) == ["ganeti-wconfd", "ganeti-luxid"]
    three.kill_master_daemons()
    three.start_master_daemons()  # by a new vote
    three.wait_status(three.submit("debug delay 0"), "success")


def test_what_no_candidate_has_is_gone_with_the_master_and_its_job_says_so(
    three: FailingCluster,
) -> None:
    """Readers of the master see it before; nothing has acknowledged it (ARCHITECTURE, 4)."""
    old, new, third = three.nodes
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 2.0, "on_master": True, "on_nodes": []}
    tag = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "name": None, "tags": ["seen"]}
    with three.client() as client:
        job_id = client.submit_job([delay, tag])
    three.wait_status(job_id, "running")
    for node in (new, third):
        three.kill_node(node)
    wait_until(lambda: three.gnt("cluster list-tags").lines == ["seen"], "it can be read")
    assert three.statuses()[job_id] == "running", "too few candidates have it"
    three.kill_node(old)
    three.start_noded(new, third)
    three.fail_over(new)
    assert three.gnt("cluster list-tags").lines == []
    assert three.statuses()[job_id] == "error"


def test_a_node_that_was_offline_while_the_role_came_back_takes_part_again(
    three: FailingCluster,
) -> None:
    first, second, away = three.nodes
    three.fail_over(second)
    three.wait_all_follow()
    three.gnt(f"node modify --offline=yes {away}")
    three.fail_over(first)
    outcome = three.gnt(f"node modify --offline=no {away}")
    assert "auto-promotion" in outcome.out + outcome.err  # it has made a certificate for that
    three.wait_all_follow()


def test_a_drain_tells_what_is_left_and_takes_itself_back(shared: FailingCluster) -> None:
    job_id = shared.submit("debug delay 3600")
    shared.wait_status(job_id, "running")
    with shared.rpc(shared.others[0]) as rpc:
        target = shared.target(shared.master)
        answer = rpc.call_one(NodeCalls.master_drain, target, 0.2).check("drain")
    assert answer == DrainResult(left=(job_id,), was_drained=False)
    assert "unset" in shared.gnt("cluster queue info").out
    shared.gnt(f"job cancel --kill --yes-do-it {job_id}")
    shared.wait_status(job_id, "error")


def test_job_files_on_candidates_are_records(shared: FailingCluster) -> None:
    """What a candidate has can be read, whatever happened before."""
    for node in shared.nodes:
        queue = JobFiles(shared.paths_of(node))
        for job_id in queue.ids():
            data = queue.read(job_id)
            assert data is not None
            decode_job(data, job_id)
