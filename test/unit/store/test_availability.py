"""Tests of ganeti/store/availability.py: what the agent tells the daemons of its node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.store.availability import State, read, read_state, write_state
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
