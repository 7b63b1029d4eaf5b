"""The files of the watcher."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.watcher import memory
from ganeti.watcher.planning import InstanceRecord, State


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(str(tmp_path))
    for directory in (paths.data_dir, paths.run_dir, paths.lock_dir):
        os.makedirs(directory)
    Path(paths.ssconf_file("nodegroups")).write_text("g1 default\ng2 other\n")
    return paths


def test_a_state_is_read_as_it_was_written(paths: Paths) -> None:
    path = paths.watcher_data("g1")
    assert memory.read(path, State) == State()
    state = State({"web": InstanceRecord(1, 5.0)})
    memory.write(path, state)
    assert memory.read(path, State) == state


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"instance": 3}', b"\xff\xfe", b"\0" * 99])
def test_a_broken_file_counts_as_missing(paths: Paths, content: bytes) -> None:
    Path(paths.watcher_data("g1")).write_bytes(content)
    assert memory.read(paths.watcher_data("g1"), State) == State()


def test_what_others_have_written_in_a_state_is_no_obstacle(paths: Paths) -> None:
    Path(paths.watcher_data("g1")).write_text('{"instance": {"a": {"x": 1}}, "more": []}')
    assert memory.read(paths.watcher_data("g1"), State).instance == {"a": InstanceRecord()}


def test_states_of_all_groups_are_in_one_file(paths: Paths) -> None:
    memory.write_status(paths, "g1", {"web10": "running", "web2": "ERROR_down"})
    memory.write_status(paths, "g2", {"db": "ADMIN_down"})
    assert Path(paths.watcher_status("g1")).read_text() == "web2 ERROR_down\nweb10 running\n"
    everything = "db ADMIN_down\nweb2 ERROR_down\nweb10 running\n"
    assert Path(paths.instance_status).read_text() == everything


def test_an_instance_that_changed_groups_has_its_newest_state(paths: Paths) -> None:
    memory.write_status(paths, "g2", {"web": "running"})
    memory.write_status(paths, "g1", {"web": "ERROR_down"})
    os.utime(paths.watcher_status("g2"), (1, 1))
    memory.write_status(paths, "g1", {"web": "ERROR_down"})
    assert Path(paths.instance_status).read_text() == "web ERROR_down\n"
    Path(paths.ssconf_file("nodegroups")).write_text("g2 other\n")  # g1 was removed
    memory.write_status(paths, "g2", {"web": "running"})
    assert Path(paths.instance_status).read_text() == "web running\n"
