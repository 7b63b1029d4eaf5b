"""What a node tells about itself, and whom it follows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.protocol.node_rpc_values import NodeFacts
from ganeti.store import config_file, master_facts, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.store.master_facts import Claim
from ganeti.system import clock, files
from ganeti.system.filelock import LiveLock, PidFile


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    for directory in (found.data_dir, found.lock_dir, found.livelock_dir):
        os.makedirs(directory)
    return found


def test_a_node_of_no_cluster_knows_nothing(paths: Paths) -> None:
    assert master_facts.own_facts(paths) == NodeFacts(
        master_name="",
        takes_many_files=True,
        patches_config=True,
        keeps_ssconf=True,
        patches_ssconf=True,
        patches_both=True,
        confirms_config=True,
    )


def test_a_candidate_tells_what_it_has(paths: Paths) -> None:
    values = {
        "master_node": "n1",
        "master_candidates": "n1\nn2",
        "master_candidates_ips": "192.0.2.1\n192.0.2.2",
    }
    ssconf.write_values(paths, values)
    Path(paths.config_data).write_text(json.dumps({"serial_no": 5, "cluster": {"uuid": "c"}}))
    queue = JobFiles(paths)
    queue.prepare()
    queue.write_durable(JobId(4), b"{}")
    master_facts.take_claim(paths, known_serial=0, claim=Claim(3, "n2"))
    pid_file = PidFile(paths.pid_file("ganeti-luxid"))
    pid_file.acquire()
    with LiveLock.create(paths.job_livelock(4, 17)):
        Path(paths.job_livelock(2, 17)).touch()  # dead
        Path(f"{paths.livelock_dir}/luxi-daemon_17").touch()
        assert master_facts.own_facts(paths) == NodeFacts(
            master_name="n1",
            cluster_uuid="c",
            config_serial=5,
            last_job_id=4,
            candidates=("n1", "n2"),
            claim_serial=3,
            takes_many_files=True,
            patches_config=True,
            keeps_ssconf=True,
            patches_ssconf=True,
            patches_both=True,
            confirms_config=True,
            claim_name="n2",
            daemons=("ganeti-luxid",),
            running_jobs=(4,),
        )
    pid_file.release()


def test_a_configuration_is_read_again_only_if_it_changed(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def counted(given: Paths) -> bytes:
        nonlocal reads
        reads += 1
        return config_file.readable_config(given)

    def write(serial_no: int, age_s: float) -> None:
        text = json.dumps({"serial_no": serial_no, "cluster": {"uuid": "c"}}).encode()
        files.write_durable(paths.config_data, text)
        os.utime(paths.config_data, (now - age_s, now - age_s))

    def serial_no() -> int:
        return master_facts.own_facts(paths).config_serial

    now = clock.now()
    monkeypatch.setattr(master_facts, "readable_config", counted)
    write(5, age_s=10)
    assert (serial_no(), serial_no(), reads) == (5, 5, 1)
    write(6, age_s=5)
    assert (serial_no(), serial_no(), reads) == (6, 6, 2)
    write(7, age_s=0)  # the next one may look the same: inode, size, a tick of the clock
    assert (serial_no(), serial_no(), reads) == (7, 7, 4)


def test_what_cannot_be_read_counts_as_not_there(paths: Paths) -> None:
    Path(paths.config_data).write_text("{")
    Path(master_facts.claim_path(paths)).write_text("nonsense")
    Path(paths.ssconf_file("master_node")).write_bytes(b"\xff")
    assert master_facts.own_facts(paths) == NodeFacts(
        master_name="",
        takes_many_files=True,
        patches_config=True,
        keeps_ssconf=True,
        patches_ssconf=True,
        patches_both=True,
        confirms_config=True,
    )


def test_of_two_who_announce_themselves_the_first_counts(paths: Paths) -> None:
    first, second = Claim(10, "n2"), Claim(10, "n3")
    master_facts.take_claim(paths, known_serial=0, claim=first)
    master_facts.take_claim(paths, known_serial=0, claim=first)  # an answer was lost
    with pytest.raises(OpPrereqError, match="node n2 has announced itself"):
        master_facts.take_claim(paths, known_serial=0, claim=second)
    assert master_facts.read_claim(paths) == first
    master_facts.take_claim(paths, known_serial=10, claim=Claim(20, "n3"))  # it has heard of it
    assert master_facts.read_claim(paths) == Claim(20, "n3")


def test_a_claim_can_be_taken_back(paths: Paths) -> None:
    master_facts.take_claim(paths, known_serial=0, claim=Claim(10, "n2"))
    master_facts.take_claim(paths, known_serial=10, claim=Claim())
    master_facts.take_claim(paths, known_serial=0, claim=Claim(10, "n3"))


def test_a_node_follows_only_whom_it_promised_to(paths: Paths) -> None:
    ssconf.write_values(paths, {"master_node": "n1"})
    master_facts.take_claim(paths, known_serial=0, claim=Claim(10, "n2"))
    with pytest.raises(OpPrereqError, match="10, of n2"):
        master_facts.accept_master(paths, serial_no=9, values={"master_node": "n3"})
    assert ssconf.master_node(paths) == "n1"
    assert master_facts.accept_master(paths, serial_no=10, values={"master_node": "n2"}) == [
        "master_node"
    ]
    assert ssconf.master_node(paths) == "n2"


def test_a_master_that_was_replaced_while_it_stood_still_is_told_so(paths: Paths) -> None:
    ssconf.write_values(paths, {"master_node": "n1"})
    old = {"master_node": "n1", "cluster_tags": "late"}
    assert master_facts.keep_ssconf(paths, serial_no=5, values=old) == ["cluster_tags"]
    master_facts.take_claim(paths, known_serial=0, claim=Claim(10, "n2"))
    assert master_facts.keep_ssconf(paths, serial_no=6, values=old) == []  # nobody follows n2 yet
    master_facts.accept_master(paths, serial_no=10, values={"master_node": "n2"})
    with pytest.raises(OpPrereqError, match="node n1 is not the master any more: n2 is"):
        master_facts.keep_ssconf(paths, serial_no=7, values={**old, "cluster_tags": "later"})
    assert ssconf.read_key_or_none(paths, "cluster_tags") == "late"
    third = {"master_node": "n3"}  # this node was away when that one took over
    assert master_facts.keep_ssconf(paths, serial_no=20, values=third) == ["master_node"]


def test_only_lock_files_that_nobody_holds_are_removed(paths: Paths) -> None:
    for name in ("job_000002_17", "luxi-daemon_17", ".job.1.tmp"):
        Path(f"{paths.livelock_dir}/{name}").touch()
    with LiveLock.create(paths.job_livelock(4, 17)):
        assert master_facts.remove_dead_locks(paths) == ["job_000002_17", "luxi-daemon_17"]
        assert sorted(os.listdir(paths.livelock_dir)) == [".job.1.tmp", "job_000004_17"]
    assert master_facts.remove_dead_locks(Paths("/nonexistent")) == []


def test_a_failover_to_this_node_can_be_seen(paths: Paths) -> None:
    assert not master_facts.own_facts(paths).fails_over
    with master_facts.failover_lock(paths):
        assert master_facts.own_facts(paths).fails_over
    assert not master_facts.own_facts(paths).fails_over


def test_who_may_not_look_at_the_lock_answers_all_the_same(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str) -> bool:
        raise PermissionError

    monkeypatch.setattr(master_facts.filelock, "is_alive", refuse)
    monkeypatch.setattr(master_facts, "running_daemons", lambda _paths: ())
    assert not master_facts.own_facts(paths).fails_over
