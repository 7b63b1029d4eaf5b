"""Tests of ganeti/maintd/acting.py: whole lives of events, with the daemon killed anywhere."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Mapping

import pytest
from fakes.maintained import Cut, FakeMaintained, report
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.jobs.status import Status
from ganeti.maintd.acting import ARCHIVED_S, SETTLE_S, Worker
from ganeti.maintd.balance import REST_S, Answer
from ganeti.maintd.health import SWITCHED_OFF
from ganeti.maintd.rounds import Waits
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate, OpInstanceReplaceDisks
from ganeti.opcodes.node import OpNodeSetParams, OpRepairCommand
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.summary import summary
from ganeti.opcodes.tags import OpTagsSet
from ganeti.protocol.maintenance.diagnosis import Diagnosis, Unknown
from ganeti.protocol.maintenance.stored import (
    CANCEL_TAG,
    FAILED_TAG,
    READY_TAG,
    Incident,
    RepairStatus,
    canceled,
)

DAY_S = 86_400.0
Reports = Mapping[str, str]  # status by node; "?" for unknown


class Play:
    """Turns of the daemon, which begins anew when it was killed."""

    def __init__(self, cluster: FakeMaintained) -> None:
        self.cluster = cluster
        self._uuids = (f"u{number}" for number in itertools.count(1))
        self.worker = self._new()

    def _new(self) -> Worker:
        return Worker(self.cluster, lambda: self.cluster.now_s, lambda: next(self._uuids))

    def turn(self, reports: Mapping[str, Diagnosis | Unknown | str]) -> None:
        """One look at all nodes, and a round if it is time for one."""
        self.cluster.now_s += 5
        heard = {
            name: report(each, self.cluster.now_s) if isinstance(each, str) else each
            for name, each in reports.items()
        }
        heard = {
            name: replace_time(each, self.cluster.now_s) if isinstance(each, Diagnosis) else each
            for name, each in heard.items()
        }
        try:
            asyncio.run(self._turn(heard))
        except Cut:
            self.worker = self._new()

    async def _turn(self, reports: Mapping[str, Diagnosis | Unknown]) -> None:
        await self.worker.hear(reports)
        await self.worker.act()

    def turns(self, count: int, reports: Mapping[str, Diagnosis | Unknown | str]) -> None:
        for _ in range(count):
            self.turn(reports)
            self.cluster.run_jobs()

    def opcodes(self) -> list[str]:
        """Return what was submitted."""
        return [summary(op) for job in self.cluster.queue.values() for op in job.step.opcodes]


def replace_time(found: Diagnosis, now_s: float) -> Diagnosis:
    return Diagnosis(found.original, found.action, found.command, int(now_s))


@pytest.fixture
def play() -> Play:
    cluster = FakeMaintained()
    cluster.add("i1", "n2", "n3")
    cluster.add("i2", "n2")
    cluster.add("i3", "n3", "n2")
    cluster.add("i4", "n4")
    return Play(cluster)


FINE = {"n1": "Ok", "n2": "Ok", "n3": "Ok", "n4": "Ok"}


@pytest.mark.shows(
    "maintd/proposal/maintd",
    "maintd/proposal/source",
    "maintd/status/evacuate",
    "maintd/events/jobs",
    "maintd/events/tags",
    "maintd/operation/rounds",
)
def test_a_node_is_emptied_set_offline_and_tagged(play: Play) -> None:
    play.turn(FINE | {"n2": "evacuate"})
    noted = play.cluster.incident()
    assert (noted.node, noted.repair_status, noted.jobs) == ("n2", RepairStatus.NOTED, [])
    play.turns(1, FINE | {"n2": "evacuate"})
    assert play.opcodes() == ["NODE_MODIFY(n2)"] or play.opcodes() == ["NODE_SET_PARAMS(n2)"]
    assert play.cluster.incident().repair_status is RepairStatus.PENDING
    play.turns(6, FINE | {"n2": "evacuate"})
    found = play.cluster.incident()
    node = play.cluster.known["n2"]
    assert found.repair_status is RepairStatus.COMPLETED
    assert (node.is_offline, node.tags) == (True, {READY_TAG + found.uuid})
    assert all("n2" not in (g.primary, g.secondary) for g in play.cluster.guests.values())
    assert any(word.startswith("INSTANCE_MIGRATE(i1") for word in play.opcodes())
    assert not any("i4" in word for word in play.opcodes())
    assert found.jobs == sorted(play.cluster.queue)
    assert play.cluster.stored is not None
    assert set(play.cluster.stored.evacuated) == {"i1", "i2", "i3"}
    count = len(play.cluster.queue)
    play.turns(5, FINE | {"n2": Unknown("it is offline")})
    assert len(play.cluster.queue) == count


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_tag_on_the_node_cancels_its_event(play: Play, turns: int) -> None:
    play.turns(turns, FINE | {"n2": "evacuate"})
    tags = frozenset({CANCEL_TAG + play.cluster.incident().uuid})
    play.cluster.known["n2"] = dataclasses.replace(play.cluster.known["n2"], tags=tags)
    play.turn(FINE | {"n2": "evacuate"})
    assert play.cluster.incident().repair_status is RepairStatus.CANCELED
    count = len(play.cluster.queue)
    play.turns(4, FINE | {"n2": "evacuate"})
    assert len(play.cluster.queue) == count
    play.turns(2, FINE)
    assert play.cluster.stored is not None
    assert play.cluster.stored.incidents == []


@pytest.mark.shows("maintd/status/evacuate-failover")
def test_nobody_tries_to_migrate_from_a_node_that_is_too_broken(play: Play) -> None:
    play.turns(10, FINE | {"n2": "evacuate-failover"})
    assert play.cluster.incident().repair_status is RepairStatus.COMPLETED
    kinds = {type(op) for job in play.cluster.queue.values() for op in job.step.opcodes}
    assert OpInstanceFailover in kinds
    assert OpInstanceMigrate not in kinds


@pytest.mark.shows("maintd/status/live-repair", "maintd/command/executed")
def test_a_live_repair_runs_its_command_and_tags(play: Play) -> None:
    broken = report("live-repair", command="fix", details={"disk": "sda"})
    play.turns(2, FINE | {"n2": broken})
    [job] = play.cluster.queue.values()
    [repair] = job.step.opcodes
    assert isinstance(repair, OpRepairCommand)
    assert (repair.node_name, repair.command) == ("n2", "fix")
    assert repair.input == '{"status":"live-repair","command":"fix","details":{"disk":"sda"}}'
    play.turns(3, FINE | {"n2": broken})
    assert play.cluster.incident().repair_status is RepairStatus.COMPLETED
    assert len(play.cluster.queue) == 2
    assert not play.cluster.known["n2"].is_offline


@pytest.mark.shows("maintd/status/live-repair")
def test_a_live_repair_without_a_command_is_only_tagged(play: Play) -> None:
    play.turns(4, FINE | {"n2": "live-repair"})
    assert play.cluster.incident().repair_status is RepairStatus.COMPLETED
    assert [type(op) for job in play.cluster.queue.values() for op in job.step.opcodes] == [
        OpTagsSet
    ]


@pytest.mark.shows("maintd/status/ok")
def test_nothing_is_done_where_all_is_well(play: Play) -> None:
    play.turns(10, FINE)
    assert play.cluster.stored is not None
    assert play.cluster.stored.incidents == []
    assert play.cluster.queue == {}


@pytest.mark.shows("maintd/events/failed", "maintd/events/tags", "maintd/events/acknowledged")
def test_after_a_failure_there_is_a_tag_and_nothing_else(play: Play) -> None:
    play.cluster.broken = {OpInstanceMigrate}
    play.turns(4, FINE | {"n2": "evacuate"})
    found = play.cluster.incident()
    assert found.repair_status is RepairStatus.FAILED
    play.turns(4, FINE | {"n2": "evacuate"})
    found = play.cluster.incident()
    assert found.tag == FAILED_TAG + found.uuid
    assert play.cluster.known["n2"].tags == {found.tag}
    count = len(play.cluster.queue)
    play.cluster.broken = set()
    play.turns(10, FINE | {"n2": "evacuate"})
    assert len(play.cluster.queue) == count
    # Without the tag it begins anew, though the report is the same.
    play.cluster.untag("n2", found.tag)
    play.turns(10, FINE | {"n2": "evacuate"})
    again = play.cluster.incident()
    assert again.uuid != found.uuid
    assert again.repair_status is RepairStatus.COMPLETED


@pytest.mark.shows("maintd/events/failed")
def test_a_tag_that_cannot_be_set_is_tried_once(play: Play) -> None:
    play.cluster.broken = {OpNodeSetParams, OpTagsSet}
    play.turns(10, FINE | {"n2": "evacuate"})
    assert len(play.cluster.queue) == 2
    assert play.cluster.incident().repair_status is RepairStatus.FAILED


@pytest.mark.shows("maintd/events/acknowledged")
def test_a_completed_event_is_forgotten_once_it_is_acknowledged_and_gone(play: Play) -> None:
    play.turns(4, FINE | {"n2": "live-repair"})
    found = play.cluster.incident()
    play.turns(3, FINE)
    assert play.cluster.incident() == found  # the tag is still there
    play.turns(1, FINE | {"n2": "live-repair"})
    play.cluster.untag("n2", found.tag)
    play.turns(3, FINE | {"n2": "live-repair"})
    assert play.cluster.incident() == found  # it is still reported
    play.turns(3, FINE | {"n2": Unknown("no answer")})
    assert play.cluster.incident() == found  # nobody knows
    play.turns(1, FINE)
    assert play.cluster.stored is not None
    assert play.cluster.stored.incidents == []


def test_nobody_acts_on_a_canceled_event_until_it_is_gone(play: Play) -> None:
    play.turn(FINE | {"n2": "evacuate"})
    asyncio.run(play.cluster.put(canceled(play.cluster.incident())))
    play.turns(5, FINE | {"n2": "evacuate"})
    assert play.cluster.queue == {}
    assert play.cluster.incident().repair_status is RepairStatus.CANCELED
    play.turns(1, FINE)
    assert play.cluster.stored is not None
    assert play.cluster.stored.incidents == []
    play.turns(10, FINE | {"n2": "evacuate"})
    assert play.cluster.incident().repair_status is RepairStatus.COMPLETED


def test_an_event_canceled_half_way_stays_as_it_is(play: Play) -> None:
    play.turns(2, FINE | {"n2": "evacuate"})
    asyncio.run(play.cluster.put(canceled(play.cluster.incident())))
    play.turns(5, FINE | {"n2": "evacuate"})
    assert len(play.cluster.queue) == 1
    assert play.cluster.guests["i1"].primary == "n2"


def test_events_that_are_over_make_room_for_new_ones(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new ones were refused first, at each look, and none was ever forgotten."""
    cluster, store = play.cluster, play.cluster.put

    async def put(incident: Incident) -> None:
        assert cluster.stored is not None
        known = [each.uuid for each in cluster.stored.incidents]
        if incident.uuid not in known and len(known) >= 2:
            raise OpPrereqError("there are 2 incidents already")
        await store(incident)

    monkeypatch.setattr(cluster, "put", put)
    play.turn(FINE)
    for details in (1, 2):
        found = report("evacuate", details=details)
        play.turn(FINE | {"n2": found, "n3": found})
    assert cluster.stored is not None
    assert [each.original["details"] for each in cluster.stored.incidents] == [2, 2]


@pytest.mark.shows("maintd/details/same-event", "maintd/events/same", "maintd/events/id")
def test_the_same_object_is_the_same_event_and_another_one_is_not(play: Play) -> None:
    one = report("evacuate", details={"a": 1, "b": 2})
    same = Diagnosis(
        {"details": {"b": 2, "a": 1}, "status": "evacuate"}, one.action, None, one.time_s
    )
    other = report("evacuate", details={"a": 1, "b": 3})
    play.turn(FINE | {"n3": one})
    first = play.cluster.incident()
    play.turn(FINE | {"n3": same})
    assert play.cluster.incident().uuid == first.uuid
    play.turn(FINE | {"n3": other, "n4": one})
    assert play.cluster.stored is not None
    found = play.cluster.stored.incidents
    assert {(each.node, each.uuid) for each in found} == {("n3", "u1"), ("n3", "u2"), ("n4", "u3")}


@pytest.mark.shows("maintd/operation/most-invasive")
def test_the_most_invasive_event_of_a_node_comes_first(play: Play) -> None:
    mild = report("live-repair", command="fix")
    play.turn(FINE | {"n2": mild})
    play.turn(FINE | {"n2": mild})
    play.turn(FINE | {"n2": "evacuate"})
    assert play.cluster.stored is not None
    assert len(play.cluster.stored.incidents) == 2
    play.turns(8, FINE | {"n2": "evacuate"})
    ends = {each.action: each for each in play.cluster.stored.incidents}
    assert ends["evacuate"].repair_status is RepairStatus.COMPLETED
    assert ends["live-repair"].repair_status is RepairStatus.PENDING
    assert not set(ends["evacuate"].jobs) & set(ends["live-repair"].jobs)
    assert "the node is offline" in play.worker.waits[ends["live-repair"].uuid].why


def test_instances_that_cannot_leave_are_named_and_stop_nobody(play: Play) -> None:
    play.cluster.add("local", "n2", can_leave=False)
    play.turns(10, FINE | {"n2": "evacuate"})
    found = play.cluster.incident()
    assert found.repair_status is RepairStatus.PENDING
    assert play.worker.waits[found.uuid].stuck == ("local",)
    left = [name for name, g in play.cluster.guests.items() if "n2" in (g.primary, g.secondary)]
    assert left == ["local"]
    play.cluster.add("local", "n4")
    play.turns(3, FINE | {"n2": "evacuate"})
    assert play.cluster.incident().repair_status is RepairStatus.COMPLETED


@pytest.mark.shows("maintd/forging/verified")
def test_in_doubt_nothing_is_done(play: Play) -> None:
    play.turn(FINE | {"n2": "evacuate"})
    play.turns(5, FINE | {"n2": Unknown("the report is not signed")})
    found = play.cluster.incident()
    assert (found.repair_status, play.cluster.queue) == (RepairStatus.NOTED, {})
    assert "not signed" in play.worker.waits[found.uuid].why


def test_the_master_is_not_emptied(play: Play) -> None:
    play.turns(5, FINE | {"n1": "evacuate"})
    found = play.cluster.incident()
    assert play.cluster.queue == {}
    assert "master-failover" in play.worker.waits[found.uuid].why


def test_a_node_that_changes_its_mind_again_and_again_is_left_alone(play: Play) -> None:
    for number in range(30):
        play.turns(1, FINE | {"n2": report("evacuate", details=number // 2)})
    # The first event has begun; of those that came when the node was flapping none has.
    assert play.cluster.stored is not None
    assert len(play.cluster.stored.incidents) <= 21
    before = len(play.cluster.queue)
    for number in range(30):
        play.turns(1, FINE | {"n2": ("Ok", "evacuate")[number % 2]})
    assert len(play.cluster.queue) == before


def test_without_maintenance_nothing_is_kept(play: Play) -> None:
    play.turns(2, FINE | {"n2": "evacuate"})
    play.cluster.stored = None
    count = len(play.cluster.queue)
    play.turns(3, FINE | {"n2": "evacuate"})
    assert (len(play.cluster.queue), play.worker.healths) == (count, {})


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("is_seen", [False, True])
def test_switched_off_and_on_it_waits_for_jobs_that_still_run(is_seen: bool, balance: bool) -> None:
    cluster = FakeMaintained()
    for number in range(4):
        cluster.add(f"i{number}", "n2")
    play = balanced(cluster, balance=balance)
    reports = FINE if balance else FINE | {"n2": "evacuate"}
    play.turns(1 if balance else 2, reports)
    play.turn(reports)
    before, switched_on = play.opcodes(), cluster.stored
    assert any(word.startswith("INSTANCE_MIGRATE") for word in before)
    if is_seen:
        cluster.stored = None
        play.turn(reports)
    assert switched_on is not None
    cluster.stored = replace(switched_on, jobs=[], incidents=[], evacuated=[], ctime=cluster.now_s)
    for _ in range(8):
        play.turn(reports)
    assert play.opcodes() == before
    play.turns(20, reports)
    assert counts(cluster) == [1, 1, 1, 1] if balance else cluster.known["n2"].is_offline


def test_what_nobody_knows_any_more_has_failed(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    play.turn(FINE | {"n2": "evacuate"})
    pending = replace(play.cluster.incident(), repair_status=RepairStatus.PENDING)
    asyncio.run(play.cluster.put(pending))
    play.cluster.now_s += ARCHIVED_S
    play.worker = play._new()
    with caplog.at_level(logging.ERROR):
        play.turns(2, FINE | {"n2": "evacuate"})
    assert play.cluster.incident().repair_status is RepairStatus.FAILED
    assert "cannot be found" in caplog.text


@pytest.mark.shows("maintd/events/reason", "maintd/store/in-config")
def test_killed_at_any_call_it_submits_nothing_twice() -> None:
    calls = _life(None, set())[1]
    assert calls > 40
    for cut_at in range(1, calls + 1):
        opcodes, _ = _life(cut_at, set())
        assert opcodes == _life(None, set())[0], cut_at


def test_killed_at_any_call_a_failure_stays_one() -> None:
    calls = _life(None, {OpInstanceMigrate})[1]
    for cut_at in range(1, calls + 1):
        opcodes, _ = _life(cut_at, {OpInstanceMigrate})
        assert opcodes == _life(None, {OpInstanceMigrate})[0], cut_at


def _life(cut_at: int | None, broken: set[type]) -> tuple[list[str], int]:
    """Play an evacuation in which the daemon is killed once; returns all that was submitted."""
    cluster = FakeMaintained()
    cluster.add("i1", "n2", "n3")
    cluster.add("i2", "n2")
    cluster.broken, cluster.cut_at = broken, cut_at
    play = Play(cluster)
    play.turns(15, FINE | {"n2": "evacuate"})
    expected = RepairStatus.FAILED if broken else RepairStatus.COMPLETED
    assert cluster.incident().repair_status is expected, cut_at
    assert cluster.incident().jobs == sorted(cluster.queue)
    # Ids of events differ when one was noted by a daemon that did not live to say so.
    return [word.split(":")[0] for word in play.opcodes()], cluster.calls


def test_an_event_that_waits_for_hours_outlives_a_balancing_round_that_is_cut_off() -> None:
    calls = _waiting_life(None)
    assert calls > 20
    for cut_at in range(1, calls + 1):
        _waiting_life(cut_at)


def _waiting_life(cut_at: int | None) -> int:
    """Play rounds beside an instance that cannot leave, in which the daemon is killed once."""
    cluster = FakeMaintained()
    cluster.add("local", "n2", can_leave=False)
    for number in range(6):
        cluster.add(f"i{number}", "n3")
    play = Play(cluster)
    play.turns(8, FINE | {"n2": "evacuate"})
    cluster.now_s += 2 * ARCHIVED_S
    play = balanced(cluster)
    before = cluster.calls
    cluster.cut_at = None if cut_at is None else before + cut_at
    play.turns(12, FINE | {"n2": "evacuate"})
    assert cluster.incident().repair_status is RepairStatus.PENDING, cut_at
    assert counts(cluster)[2] < 6, cut_at
    return cluster.calls - before


def test_what_was_refused_is_forgotten_once_the_node_is_well(play: Play) -> None:
    play.cluster.refused = {OpCode}
    play.turns(3, FINE | {"n2": "evacuate"})
    found = play.cluster.incident()
    assert (found.repair_status, found.jobs) == (RepairStatus.NOTED, [])
    play.turns(2, FINE)
    assert play.cluster.stored is not None
    assert play.cluster.stored.incidents == []
    play.cluster.refused = set()
    play.turns(100, FINE)
    assert (play.cluster.queue, play.cluster.known["n2"].is_drained) == ({}, False)


def test_what_was_refused_is_done_once_the_queue_is_open_if_the_node_still_asks(play: Play) -> None:
    play.cluster.refused = {OpCode}
    play.turns(20, FINE | {"n2": "evacuate"})
    assert play.worker.rounds == 0
    play.cluster.refused = set()
    play.turns(30, FINE | {"n2": "evacuate"})
    found = play.cluster.incident()
    assert found.repair_status is RepairStatus.COMPLETED
    assert found.jobs == sorted(play.cluster.queue)
    assert play.cluster.stored is not None
    assert set(play.cluster.stored.evacuated) == {"i1", "i2", "i3"}
    assert found.uuid not in play.worker.waits


def test_a_refusal_is_told_once_and_tried_again_ever_less_often(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    assert play.cluster.stored is not None
    play.cluster.stored = replace(play.cluster.stored, round_delay=120)
    play.cluster.refused = {OpCode}
    with caplog.at_level(logging.WARNING):
        play.turns(2, FINE | {"n2": "evacuate"})
        assert play.cluster.asked["submit"] == 1
        before = play.cluster.stored
        play.cluster.asked.clear()
        for _ in range(300):  # ten minutes of looks at jobs
            play.cluster.now_s += 2
            asyncio.run(play.worker.act())
    # After 4, 8, ..., 64 and then each 120 seconds.
    assert play.cluster.asked == {"submit": 8}
    assert play.cluster.stored == before
    why = "NODE_SET_PARAMS(n2) is refused: the queue is closed"
    assert play.worker.waits[play.cluster.incident().uuid].why == why
    assert [record.getMessage() for record in caplog.records] == [f"Incident u1 waits: {why}"]


def test_what_is_refused_of_one_event_holds_up_no_other(play: Play) -> None:
    play.cluster.refused = {OpNodeSetParams}
    sick = FINE | {"n2": "evacuate", "n3": "live-repair"}
    play.turns(12, sick)
    assert play.cluster.stored is not None
    found = {each.node: each.repair_status for each in play.cluster.stored.incidents}
    assert found == {"n2": RepairStatus.NOTED, "n3": RepairStatus.COMPLETED}
    play.cluster.refused = {OpInstanceReplaceDisks}
    play.turns(30, sick)
    [evacuation] = [each for each in play.cluster.stored.incidents if each.node == "n2"]
    assert evacuation.repair_status is RepairStatus.PENDING
    assert play.cluster.guests["i2"].primary != "n2"
    assert play.worker.waits[evacuation.uuid].why.startswith("INSTANCE_REPLACE_DISKS(i1")


def test_the_tag_of_a_failure_is_not_submitted_again_and_again(play: Play) -> None:
    play.cluster.broken, play.cluster.refused = {OpNodeSetParams}, {OpTagsSet}
    play.turns(30, FINE | {"n2": "evacuate"})
    failed = play.cluster.incident()
    assert failed.repair_status is RepairStatus.FAILED
    assert play.cluster.asked["submit"] < 10
    before = dict(play.cluster.asked)
    play.turns(5, FINE | {"n2": "evacuate"})
    assert play.cluster.asked["put"] == before["put"]
    play.cluster.refused = set()
    play.turns(15, FINE | {"n2": "evacuate"})
    assert play.cluster.known["n2"].tags == {FAILED_TAG + failed.uuid}


def test_an_intent_whose_daemon_died_is_taken_back(play: Play) -> None:
    play.turns(1, FINE | {"n2": "evacuate"})
    intended = replace(play.cluster.incident(), repair_status=RepairStatus.PENDING)
    asyncio.run(play.cluster.put(intended))
    play.worker = play._new()
    play.turns(6, FINE)
    assert play.cluster.stored is not None
    assert (play.cluster.stored.incidents, play.cluster.queue) == ([], {})


def test_a_refusal_of_hours_is_no_failure_for_a_daemon_that_begins_anew(play: Play) -> None:
    play.turns(2, FINE | {"n2": "evacuate"})
    assert play.cluster.incident().jobs
    assert play.cluster.stored is not None
    listed = play.cluster.stored.jobs
    play.cluster.refused = {OpCode}
    play.turns(3, FINE | {"n2": "evacuate"})
    assert play.cluster.stored.jobs == listed
    play.cluster.now_s += 2 * ARCHIVED_S
    play.worker = play._new()
    play.turns(3, FINE | {"n2": "evacuate"})
    play.cluster.refused = set()
    play.turns(30, FINE | {"n2": "evacuate"})
    assert play.cluster.incident().repair_status is RepairStatus.COMPLETED


@pytest.mark.parametrize("afterwards", ["evacuate", "Ok"])
def test_killed_at_any_call_while_it_is_refused_it_submits_nothing_twice(afterwards: str) -> None:
    calls, expected = _refused_life(None, afterwards)
    assert calls > 20
    for cut_at in range(1, calls + 1):
        assert _refused_life(cut_at, afterwards)[1] == expected, cut_at


def _refused_life(cut_at: int | None, afterwards: str) -> tuple[int, list[str]]:
    """Play an evacuation that is refused first; the report may change as soon as it is not."""
    cluster = FakeMaintained()
    cluster.add("i1", "n2", "n3")
    cluster.add("i2", "n2")
    cluster.refused, cluster.cut_at = {OpCode}, cut_at
    play = Play(cluster)
    play.turns(6, FINE | {"n2": "evacuate"})
    cluster.refused = set()
    for _ in range(20):
        if not cluster.queue:
            play.turns(1, FINE | {"n2": "evacuate"})
    play.turns(20, FINE | {"n2": afterwards})
    # A job belongs to an event, whatever the node says meanwhile.
    assert cluster.stored is not None
    noted = {job_id for each in cluster.stored.incidents for job_id in each.jobs}
    assert noted == set(cluster.queue), cut_at
    return cluster.calls, [word.split(":")[0] for word in play.opcodes()]


@pytest.mark.parametrize("is_refused_first", [False, True])
def test_a_request_that_outlives_its_sender_is_waited_for(
    play: Play, is_refused_first: bool
) -> None:
    cluster = play.cluster
    cluster.refused = {OpCode} if is_refused_first else set()
    play.turn(FINE | {"n2": "evacuate"})
    if is_refused_first:
        play.turns(5, FINE | {"n2": "evacuate"})
        cluster.refused = set()
    cluster.is_slow = True
    for _ in range(10):
        if cluster.is_slow:
            play.turn(FINE | {"n2": "evacuate"})
    play.turn(FINE)  # it begins anew
    cluster.arrive()
    play.turns(1, FINE)
    assert cluster.incident().jobs == list(cluster.queue) == [1]


def balanced(cluster: FakeMaintained, **fields: object) -> Play:
    """Have a cluster balanced at every turn."""
    assert cluster.stored is not None
    fields = {"balance": True, "round_delay": 1, **fields}
    cluster.stored = replace(cluster.stored, **fields)
    return Play(cluster)


def counts(cluster: FakeMaintained) -> list[int]:
    return [sum(g.primary == name for g in cluster.guests.values()) for name in cluster.known]


@pytest.mark.shows("maintd/harep/balance", "maintd/harep/configured")
def test_a_cluster_is_balanced_only_if_that_is_wanted() -> None:
    cluster = FakeMaintained()
    for number in range(8):
        cluster.add(f"i{number}", "n2")
    play = Play(cluster)
    play.turns(20, FINE)
    assert (cluster.queue, cluster.questions, counts(cluster)) == ({}, [], [0, 8, 0, 0])
    play = balanced(cluster)
    play.turns(20, FINE)
    assert counts(cluster) == [2, 2, 2, 2]
    assert len(cluster.queue) == 6
    [question, *_] = cluster.questions
    assert (question.uses_load, question.moves_disks, question.busy) == (False, False, [])
    assert cluster.stored is not None
    assert cluster.stored.evacuated == []
    assert "no move gains enough" in play.worker.waits["balancing"].why
    before = len(cluster.questions)
    balanced(cluster, round_delay=50, use_load=True, move_disks=True).turns(30, FINE)
    assert len(cluster.questions) - before == 3  # 150 s, of which 10 are to be sure
    assert (cluster.questions[-1].uses_load, cluster.questions[-1].moves_disks) == (True, True)


def test_a_clock_that_was_wrong_at_boot_keeps_nobody_from_working() -> None:
    cluster = FakeMaintained()
    for number in range(4):
        cluster.add(f"i{number}", "n2")
    play = balanced(cluster, round_delay=50)
    reports = dict.fromkeys(FINE, SWITCHED_OFF)
    cluster.now_s -= DAY_S
    play.turns(5, reports)
    assert counts(cluster) != [0, 4, 0, 0]
    play.turns(30, reports)
    before = len(cluster.questions)
    cluster.now_s -= DAY_S
    play.turns(1, reports)
    assert len(cluster.questions) == before + 1


def test_reports_count_again_once_a_wrong_clock_is_right(play: Play) -> None:
    play.turns(3, FINE)
    play.cluster.now_s -= DAY_S
    play.turns(2, FINE)
    assert not [each for each in play.worker.healths.values() if isinstance(each.report, Unknown)]
    play.cluster.now_s -= 20  # one that is shown again does not
    play.turn(FINE)
    assert all(isinstance(each.report, Unknown) for each in play.worker.healths.values())


def test_moves_that_are_refused_are_told_and_tried_after_a_round() -> None:
    cluster = FakeMaintained()
    for number in range(4):
        cluster.add(f"i{number}", "n2")
    cluster.refused = {OpInstanceMigrate}
    play = balanced(cluster, round_delay=50)
    play.turns(30, FINE)
    assert cluster.asked["submit"] == 3
    assert play.worker.waits["balancing"].why.endswith("(i0) is refused: the queue is closed")
    cluster.refused = set()
    play.turns(30, FINE)
    assert cluster.queue
    assert "refused" not in play.worker.waits.get("balancing", Waits("", "")).why


@pytest.mark.shows("maintd/operation/evacuations-first")
def test_nodes_with_an_event_take_no_part_in_balancing() -> None:
    cluster = FakeMaintained(nodes=5)
    for number in range(6):
        cluster.add(f"i{number}", "n2")
    cluster.add("local", "n3", can_leave=False)
    play = balanced(cluster)
    fine = dict.fromkeys(cluster.known, "Ok")
    play.turns(5, fine | {"n3": "evacuate", "n4": Unknown("no answer")})
    assert {tuple(each.busy) for each in cluster.questions} == {("n3", "n4")}
    kinds = [step.event for step in (job.step for job in cluster.queue.values())]
    assert "balancing" in kinds[1:]
    assert kinds[0] != "balancing"  # the event comes first
    play.turns(10, fine | {"n3": "evacuate", "n4": Unknown("no answer")})
    assert counts(cluster) == [2, 2, 1, 0, 2]


def test_where_nobody_diagnoses_every_node_takes_part() -> None:
    cluster = FakeMaintained()
    for number in range(4):
        cluster.add(f"i{number}", "n2")
    balanced(cluster).turns(12, dict.fromkeys(cluster.known, SWITCHED_OFF))
    assert counts(cluster) == [1, 1, 1, 1]


def test_an_instance_whose_move_failed_rests(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeMaintained()
    cluster.add("i1", "n2")
    cluster.add("i2", "n2")
    cluster.broken = {OpInstanceMigrate}
    play = balanced(cluster)
    play.turns(40, FINE)
    assert [list(each.fixed) for each in cluster.questions[:3]] == [[], ["i1"], ["i1", "i2"]]
    assert len(cluster.queue) == 2
    assert "did not move instance i1, which rests now" in caplog.text
    cluster.now_s += REST_S
    cluster.broken = set()
    play.turns(3, FINE)
    assert len(cluster.queue) == 3
    assert sorted(counts(cluster)) == [0, 0, 1, 1]


def test_killed_at_any_call_while_balancing_it_submits_nothing_twice() -> None:
    calls, expected = _balancing_life(None)
    assert calls > 20
    for cut_at in range(1, calls + 1):
        _, found = _balancing_life(cut_at)
        assert found == expected, cut_at


def _balancing_life(cut_at: int | None) -> tuple[int, list[str]]:
    cluster = FakeMaintained()
    for number in range(4):
        cluster.add(f"i{number}", "n2")
    cluster.cut_at = cut_at
    play = balanced(cluster)
    for number in range(30):
        play.turn(FINE)
        if number % 6 == 5:  # jobs take longer than it takes to be sure
            cluster.run_jobs()
    return cluster.calls, play.opcodes()


PREFIX = "ganeti:watcher:autorepair:"


def repaired(cluster: FakeMaintained, *, allowed: str = "failover") -> Play:
    """Have instances repaired as far as the cluster's tag allows."""
    assert cluster.stored is not None
    cluster.stored = replace(cluster.stored, auto_repair=True, round_delay=1)
    cluster.cluster_tags = (PREFIX + allowed,)
    return Play(cluster)


def sick_cluster() -> FakeMaintained:
    """Return a cluster with a node that an operator set offline: i1 ran there, i2 has a copy."""
    cluster = FakeMaintained()
    cluster.add("i1", "n2", "n3")
    cluster.add("i2", "n3", "n2")
    cluster.add("i3", "n4")
    cluster.known["n2"] = dataclasses.replace(cluster.known["n2"], is_offline=True)
    return cluster


SICK = FINE | {"n2": Unknown("the node is offline")}


@pytest.mark.shows("maintd/harep/harep", "maintd/harep/configured")
def test_instances_are_repaired_with_the_tags_of_harep_if_that_is_wanted() -> None:
    cluster = sick_cluster()
    cluster.cluster_tags = (PREFIX + "failover",)
    Play(cluster).turns(10, SICK)
    assert (cluster.queue, cluster.questions) == ({}, [])
    play = repaired(cluster)
    play.turns(4, SICK)
    first = [job for job in cluster.queue.values() if job.step.repair]
    assert [type(job.step.opcodes[0]) for job in first[:2]] == [
        OpInstanceFailover,
        OpInstanceReplaceDisks,
    ]
    kind, uuid, time_s = first[0].step.repair.split(":")
    assert kind == "failover"
    told = [op.tags for job in first[2:] for op in job.step.opcodes if isinstance(op, OpTagsSet)]
    assert told[0] == [f"{PREFIX}pending:failover:{uuid}:{time_s}:1"]
    play.turns(20, SICK)
    guests = cluster.guests
    assert (guests["i1"].primary, guests["i2"].primary) == ("n3", "n3")
    assert "n2" not in (guests["i1"].secondary, guests["i2"].secondary)
    [tag] = cluster.guest_tags["i2"]
    assert tag.startswith(f"{PREFIX}result:fix-storage:")
    assert ":success:" in tag
    # First away from the node, then to a new copy: the last tag tells of that.
    [tag] = cluster.guest_tags["i1"]
    assert tag.startswith(f"{PREFIX}result:fix-storage:")
    assert "i3" not in cluster.guest_tags
    assert cluster.stored is not None
    assert cluster.stored.evacuated == []


@pytest.mark.parametrize("kind", ["failover", "fix-storage"])
@pytest.mark.parametrize("broken", [set(), {OpInstanceReplaceDisks}])
def test_a_repair_whose_tag_was_set_by_an_archived_job_is_told_already(
    kind: str, broken: set[type]
) -> None:
    cluster = sick_cluster()
    cluster.broken = broken
    play = repaired(cluster)
    play.turns(30, SICK)
    before, tags = play.opcodes(), {name: {*each} for name, each in cluster.guest_tags.items()}
    for job in cluster.queue.values():
        if job.step.repair.startswith(kind) and isinstance(job.step.opcodes[0], OpTagsSet):
            job.step = dataclasses.replace(job.step, event="out of sight")
    play.worker = play._new()
    play.turns(10, SICK)
    assert (play.opcodes(), cluster.guest_tags) == (before, tags)


def test_a_repair_that_is_not_allowed_is_told_and_not_made() -> None:
    cluster = sick_cluster()
    play = repaired(cluster, allowed="fix-storage")
    play.turns(10, SICK)
    [tag] = cluster.guest_tags["i1"]
    assert ":enoperm:" in tag
    assert cluster.guests["i1"].primary == "n2"
    assert "needs failover" in play.worker.waits["autorepair"].why


def test_repairs_that_are_refused_are_told_and_tried_after_a_round() -> None:
    cluster = sick_cluster()
    cluster.refused = {OpCode}
    play = repaired(cluster)
    assert cluster.stored is not None
    cluster.stored = replace(cluster.stored, round_delay=60)
    play.turns(30, SICK)
    assert cluster.asked["submit"] == 3
    assert "i1: INSTANCE_FAILOVER(i1) is refused" in play.worker.waits["autorepair"].why
    cluster.refused = set()
    play.turns(60, SICK)
    assert cluster.guests["i1"].primary == "n3"


@pytest.mark.shows("maintd/operation/evacuations-first")
def test_instances_on_nodes_with_an_event_are_left_to_it() -> None:
    cluster = FakeMaintained()
    cluster.add("i1", "n2", "n3")
    cluster.add("i2", "n4", "n3")
    play = repaired(cluster)
    for name in ("n2", "n3"):
        cluster.known[name] = dataclasses.replace(cluster.known[name], is_drained=True)
    play.turns(2, FINE | {"n2": "evacuate"})
    play.worker.waits = {}
    for _ in range(3):
        play.turn(FINE | {"n2": "evacuate"})
    of_repairs = [job.step for job in cluster.queue.values() if not job.step.is_of_incident]
    assert {step.instance for step in of_repairs} == {"i2"}
    assert "i1: of its nodes n2 has an event" in play.worker.waits["autorepair"].why


def test_instances_of_a_lost_node_are_left_to_high_availability() -> None:
    """It fails them over itself; a second job would fail, and forbid repairs by its tag."""
    cluster = sick_cluster()
    play = repaired(cluster)
    play.turns(1, FINE | {"n2": "evacuate-failover"})
    cluster.queue.clear()
    play.worker.lost = lambda: ["n2"]
    play.turns(10, SICK)
    assert cluster.queue == {}
    told = [each.why for each in play.worker.waits.values()]
    assert any("i1: of its nodes n2 has an event" in why for why in told)
    play.worker.lost = tuple
    play.turns(20, SICK)
    assert cluster.guests["i1"].primary == "n3"


@pytest.mark.parametrize("broken", [set(), {OpInstanceFailover}])
def test_killed_at_any_call_no_repair_is_made_twice(broken: set[type]) -> None:
    calls, expected = _repairing_life(None, broken)
    assert calls > 20
    for cut_at in range(1, calls + 1):
        _, found = _repairing_life(cut_at, broken)
        assert found == expected, cut_at


def _repairing_life(cut_at: int | None, broken: set[type]) -> tuple[int, list[str]]:
    cluster = sick_cluster()
    cluster.cut_at, cluster.broken = cut_at, broken
    play = repaired(cluster)
    for number in range(80):
        play.turn(SICK)
        if number % 4 == 3:
            cluster.run_jobs()
    ends = {name: sorted(tags) for name, tags in cluster.guest_tags.items()}
    assert [len(tags) for tags in ends.values()] == [1, 1], ends
    result = "failure" if broken else "success"
    assert f":{result}:" in ends["i1"][0], ends
    return cluster.calls, sorted(w for w in play.opcodes() if not w.startswith("TAGS"))


def test_a_search_that_fails_is_told_and_tried_again() -> None:
    cluster = FakeMaintained()

    async def fails(*_args: object) -> Answer:
        raise GenericError("LuxiD does not answer")

    cluster.search = fails  # type: ignore[method-assign]
    play = balanced(cluster)
    play.turns(5, FINE)
    assert play.worker.waits["balancing"].why == "the search failed: LuxiD does not answer"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_happens_the_rules_hold_and_it_ends(data: st.DataObject) -> None:
    cluster = FakeMaintained(nodes=5)
    assert cluster.stored is not None
    balance = data.draw(st.booleans())
    cluster.stored = replace(cluster.stored, balance=balance, round_delay=10)
    names = list(cluster.known)
    for number in range(data.draw(st.integers(0, 6))):
        primary = data.draw(st.sampled_from(names))
        others = [name for name in names if name != primary]
        secondary = data.draw(st.none() | st.sampled_from(others))
        cluster.add(f"i{number}", primary, secondary, is_up=data.draw(st.booleans()))
    play = Play(cluster)
    words = st.sampled_from(["Ok", "live-repair", "evacuate", "evacuate-failover"])
    kinds = [OpInstanceMigrate, OpInstanceFailover, OpNodeSetParams, OpTagsSet, OpRepairCommand]
    for _ in range(data.draw(st.integers(1, 15))):
        sick = data.draw(st.dictionaries(st.sampled_from(names[1:4]), words, max_size=2))
        if data.draw(st.integers(0, 3)) == 0:
            cluster.cut_at = cluster.calls + data.draw(st.integers(1, 12))
        cluster.broken = set(data.draw(st.lists(st.sampled_from(kinds), max_size=1)))
        cluster.refused = set(data.draw(st.lists(st.sampled_from([OpCode, *kinds]), max_size=1)))
        if cluster.stored is not None and data.draw(st.integers(0, 5)) == 0:
            for incident in cluster.stored.incidents:
                if incident.repair_status in (RepairStatus.NOTED, RepairStatus.PENDING):
                    cluster.cut_at = None
                    asyncio.run(cluster.put(canceled(incident)))
        fine = dict.fromkeys(names, "Ok")
        known = fine | sick
        online = {
            name: each if not cluster.known[name].is_offline else Unknown("it is offline")
            for name, each in known.items()
        }
        try:
            play.turn(online)
        except GenericError:
            play.worker = play._new()
        if data.draw(st.booleans()):
            cluster.run_jobs()
    # Left alone, everything comes to an end.
    cluster.cut_at, cluster.broken, cluster.refused = None, set(), set()
    for _ in range(25):
        online = {
            name: "Ok" if not node.is_offline else Unknown("it is offline")
            for name, node in cluster.known.items()
        }
        play.turn(online)
        cluster.run_jobs()
    assert cluster.stored is not None
    for incident in cluster.stored.incidents:
        if incident.repair_status is RepairStatus.PENDING:
            assert incident.uuid in play.worker.waits or incident.jobs
    assert all(job.status is not Status.RUNNING for job in cluster.queue.values())
    assert SETTLE_S < 25 * 5
    assert {JobId(each) for each in cluster.queue} >= {
        job_id for incident in cluster.stored.incidents for job_id in incident.jobs
    }
