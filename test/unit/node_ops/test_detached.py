"""Processes that outlive the call that started them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.waiting import wait_until

from ganeti.node_ops.transfers.detached import Detached

SLEEPER = """
import os, signal, sys
os.write(int(open(sys.argv[1] + "/request").read()), b"up")
signal.pause()
"""


def test_one_that_breaks_leaves_its_last_words(tmp_path: Path) -> None:
    made = Detached.make(str(tmp_path / "parent"), "job")
    made.start("json.tool")  # a directory is no JSON
    wait_until(lambda: made.live_pid() is None, "the end of the process")
    assert "Is a directory" in made.last_words()
    made.stop(1.0)
    made.forget(1.0)
    assert not Path(made.directory).exists()
    assert made.last_interest() is None
    made.note_interest()


def test_one_that_runs_is_found_by_its_lock_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Detached.make(str(tmp_path / "parent"), "job")
    reader, writer = os.pipe()
    made.save_request(str(writer).encode())
    os.set_inheritable(writer, True)
    made.start("sleeper", [writer])
    os.close(writer)
    assert os.read(reader, 2) == b"up"
    os.close(reader)
    again = Detached(made.directory)  # nothing is remembered in the object
    assert again.live_pid() is not None
    before = again.last_interest()
    os.utime(again.request, (1, 1))
    again.note_interest()
    assert before is not None
    assert (again.last_interest() or 0) >= before
    again.forget(5.0)
    assert again.live_pid() is None
