"""Tests of ganeti/store/availability.py: what the agent tells the daemons of its node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.availability.mastership import Report
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.store import lease
from ganeti.store.availability import State, read, read_reports, read_state, write_state
from ganeti.system import clock


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    os.makedirs(found.run_dir)
    os.makedirs(found.data_dir)
    return found


def test_the_daemons_read_what_the_agent_wrote(paths: Paths) -> None:
    assert read(paths) is None
    assert read_state(paths) is None
    state = State(time=clock.monotonic(), master_until=clock.monotonic() + 4, holder="n1")
    write_state(paths, state)
    assert read_state(paths) == state
    assert os.stat(paths.ha_state).st_mode & 0o777 == 0o644  # daemons of other users read it
    assert os.listdir(paths.run_dir) == ["ha-state"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"time": "now"}', b"\xff"])
def test_nonsense_is_no_state(paths: Paths, data: bytes) -> None:
    Path(paths.ha_state).write_bytes(data)
    assert read_state(paths) is None


def test_a_state_of_the_boot_before_is_none(paths: Paths) -> None:
    write_state(paths, State(time=clock.monotonic() + 1e6, master_until=clock.monotonic() + 2e6))
    assert read_state(paths) is None


@given(until=st.none() | st.floats(0, 1e9, allow_nan=False), now=st.floats(0, 1e9, allow_nan=False))
def test_the_lease_is_held_until_its_time_and_no_longer(until: float | None, now: float) -> None:
    state = loads_as(State, dumps(State(time=now, master_until=until)))
    assert state.is_master(now) == (until is not None and now < until)


# --- what it means for others


def switch_on(paths: Paths, **more: object) -> None:
    Path(paths.high_availability).write_text("{}")
    write_state(paths, State(time=clock.monotonic(), **more))  # type: ignore[arg-type]


def test_a_node_that_may_be_proved_dead_is_not_covered(paths: Paths) -> None:
    assert lease.covers(paths, "n3")
    switch_on(paths, absent=["n3"])
    assert not lease.covers(paths, "n3")
    assert lease.covers(paths, "n2")
    os.unlink(paths.ha_state)  # the agent does not run: nobody acts on losses
    assert lease.covers(paths, "n3")


def test_both_candidates_count_until_one_is_alone(paths: Paths) -> None:
    assert lease.tally(paths, "a", ["b"], []).is_enough, "high availability is off"
    switch_on(paths)
    assert not lease.tally(paths, "a", ["b"], []).is_enough
    assert lease.tally(paths, "a", ["b"], ["b"]).is_enough
    assert lease.tally(paths, "a", ["b", "c"], ["b"]).is_enough
    assert lease.tally(paths, "a", [], []).is_enough
    switch_on(paths, alone="a")
    assert lease.tally(paths, "a", ["b"], []).is_enough
    switch_on(paths, alone="b")
    assert not lease.tally(paths, "a", ["b"], []).is_enough
    os.unlink(paths.ha_state)  # its agent does not run
    assert not lease.tally(paths, "a", ["b"], []).is_enough


def test_who_takes_over_needs_the_other_unless_the_key_is_its_own(paths: Paths) -> None:
    assert lease.answers_needed(paths, "b", ["a", "b"]) == 2, "as without high availability"
    switch_on(paths)
    assert lease.answers_needed(paths, "b", ["a", "b"]) == 2
    until = clock.monotonic() + 60
    switch_on(paths, master_until=until)
    assert lease.answers_needed(paths, "b", ["a", "b"]) == 1
    switch_on(paths, master_until=until, alone="a")
    assert lease.answers_needed(paths, "b", ["a", "b"]) == 2
    switch_on(paths, master_until=until, etcd="no member answers")
    assert lease.answers_needed(paths, "b", ["a", "b"]) == 2
    switch_on(paths, alone="b")
    assert lease.answers_needed(paths, "b", ["a", "b"]) == 1


def test_daemons_tell_the_agent_about_what_was_wanted_before(paths: Paths) -> None:
    wanted = {"b": {"config": 7}}
    asked: list[object] = []

    def lacking(before: object) -> list[str]:
        asked.append(before)
        return ["b"]

    reporter = lease.CopiesReporter(paths, "ganeti-luxid", lambda: dict(wanted), lacking)
    reporter.report()
    assert not os.listdir(paths.run_dir), "high availability is off"
    switch_on(paths)
    reporter.report()
    assert read_reports(paths) == []
    first = read_state(paths)
    assert first is not None
    switch_on(paths)
    wanted.clear()
    reporter.report()
    assert asked == [{"b": {"config": 7}}]
    assert read_reports(paths) == [Report(first.time, ["b"])]
    Path(f"{paths.ha_copies}.ganeti-luxid").write_text("{")
    assert read_reports(paths) == []
