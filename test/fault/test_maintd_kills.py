"""The maintenance daemon is killed at random moments of its rounds, and the master role moves.

Two nodes report something each round: one wants a repair, the other to be emptied.  However
often the daemon dies meanwhile, every repair runs once and no job is submitted a second time.

``GANETI_TEST_KILLS=100 pytest test/fault/test_maintd_kills.py`` plays longer;
``GANETI_TEST_SEED`` plays the same damage again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes.chance import seed
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.shell_scripts import write_script
from fakes.waiting import wait_until

from ganeti.protocol.maintenance.stored import FAILED_TAG, READY_TAG, Incident, RepairStatus
from ganeti.system import daemon_control, process

MAINTD = "ganeti-maintd"
KILLS = int(os.environ.get("GANETI_TEST_KILLS", "10"))
KILLS_OF_A_ROUND = 2
SEED = seed()
DEADLINE_S = 120.0
KILL_S_MAX = 5.0  # an event is over after that
NEW = "--no-name-check --no-ip-check -o test -B memory=16 --disk 0:size=8m -t sharedfile"
ENDED = (RepairStatus.COMPLETED, RepairStatus.FAILED)


@pytest.fixture
def four() -> Iterator[FailingCluster]:
    """Four nodes, of which the last two report what a file says; with three guests."""
    with failing_cluster(4, without=("ganeti-rapi",)) as made:
        for node in made.nodes:
            paths = made.paths_of(node)
            os.makedirs(paths.diagnose_commands_dir, exist_ok=True)
            os.makedirs(paths.repair_commands_dir, exist_ok=True)
            say(made, node, {"status": "Ok"})
            write_script(Path(paths.diagnose_commands_dir) / "check", f"cat {paths.root}/diagnosis")
            write_script(Path(paths.repair_commands_dir) / "fix", f"cat >> {paths.root}/repaired")
        made.gnt("cluster modify --data-collector-interval diagnose=1")
        made.gnt("cluster modify --diagnose-data-collector-filename check")
        made.gnt("cluster modify --maintenance-interval=3 --auto-balance-cluster=yes")
        for number in range(3):
            made.gnt(f"instance add {NEW} -n {made.nodes[2]} i{number}.example.com")
        yield made


def say(cluster: FailingCluster, node: str, found: object) -> None:
    """Have the diagnose command of a node print that."""
    path = Path(cluster.paths_of(node).root) / "diagnosis"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.rename(path)


def incidents(cluster: FailingCluster) -> list[Incident]:
    with cluster.luxi() as luxi:
        found = luxi.query_maintenance()
    assert found is not None
    return found.incidents


def kill(cluster: FailingCluster) -> None:
    """Kill the daemon, and start it anew as the watcher does."""
    pid = daemon_control.running_pid(cluster.paths, MAINTD)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert process.wait_gone(pid, DEADLINE_S)
    daemon_control.start_daemon(cluster.paths, MAINTD, hostname=cluster.master)


def ended(cluster: FailingCluster, number: int) -> bool:
    """Tell whether both events of a round have their end, with their tags."""
    found = [each for each in incidents(cluster) if each.original.get("details") == number]
    return len(found) == 2 and all(each.repair_status in ENDED for each in found)


def guests_of(cluster: FailingCluster, node: str) -> int:
    return int(cluster.gnt(f"node list --no-headers -o pinst_cnt {node}").out)


@pytest.mark.shows("maintd/store/in-config", "maintd/events/jobs")
def test_killed_anywhere_it_does_everything_once(
    four: FailingCluster, limit_again: Callable[[], None]
) -> None:
    chance = random.Random(SEED)
    rounds = max(1, KILLS // KILLS_OF_A_ROUND)
    sick, full = four.nodes[3], four.nodes[2]
    for number in range(rounds):
        limit_again()
        if guests_of(four, sick) > guests_of(four, full):
            sick, full = full, sick
        say(four, sick, {"status": "live-repair", "command": "fix", "details": number})
        say(four, full, {"status": "evacuate", "details": number})
        for _ in range(KILLS_OF_A_ROUND):
            time.sleep(chance.uniform(0, KILL_S_MAX))  # that is the damage, not a wait
            kill(four)
        if number % 4 == 1:
            four.fail_over(four.nodes[1] if four.master == four.nodes[0] else four.nodes[0])
            kill(four)
        wait_until(
            partial(ended, four, number),
            f"round {number} of seed {SEED}: {incidents(four)}",
            timeout_s=DEADLINE_S,
            step_s=0.2,
        )
        check_round(four, number, full, sick)
        recover(four, full, sick)
    check_jobs(four)


def check_round(cluster: FailingCluster, number: int, full: str, sick: str) -> None:
    of_round = {each.node: each for each in incidents(cluster)}
    for node in (full, sick):
        assert of_round[node].repair_status is RepairStatus.COMPLETED, (SEED, of_round)
        tags = {tag.strip() for tag in cluster.gnt(f"node list-tags {node}").lines}
        assert tags == {READY_TAG + of_round[node].uuid}
    assert guests_of(cluster, full) == 0
    text = Path(cluster.paths_of(sick).root, "repaired").read_text()
    ran = Counter(text.replace("}{", "}\n{").splitlines())
    mine = {line: count for line, count in ran.items() if f'"details":{number}' in line}
    assert list(mine.values()) == [1], (SEED, ran)


def recover(cluster: FailingCluster, full: str, sick: str) -> None:
    """Have nodes be well again, and acknowledge their events, in the order of doc/repair.md.

    Without its tag the event of an offline node is over at once, and a node that comes back while
    its last report is still the old one is emptied anew.
    """
    for node in (full, sick):
        say(cluster, node, {"status": "Ok"})
    cluster.gnt(f"node modify --offline=no {full}")
    for node in (full, sick):
        for tag in cluster.gnt(f"node list-tags {node}").lines:
            cluster.gnt(f"node remove-tags {node} {tag.strip()}")
    wait_until(lambda: not incidents(cluster), "the end", timeout_s=DEADLINE_S, step_s=0.2)


def check_jobs(cluster: FailingCluster) -> None:
    """Check that nothing was submitted twice for an event, and that nothing failed."""
    done: Counter[tuple[Any, ...]] = Counter()
    with cluster.luxi() as luxi:
        rows = luxi.query_jobs(None, ["id", "ops", "status"])
    for _, ops, status in rows:
        for op in ops:
            [(source, event, _), *_] = op["reason"]
            if source == "gnt:daemon:maintd" and event != "balancing":
                what = op.get("instance_name"), op.get("node_name"), str(op.get("tags"))
                done[(event, op["OP_ID"], *what, op.get("offline"))] += 1
                assert status == "success", (SEED, op)
                assert FAILED_TAG not in what[2]
    assert done, "no job has its reason"
    assert set(done.values()) == {1}, (SEED, done)
