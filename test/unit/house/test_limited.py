"""The tests on real nodes at the end of `make test`: only where time is left, and no longer than that."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from rig import nodes, store

TESTS = str(Path(store.__file__).parents[1])
# Leaves its parents, as the daemon of ssh does, with a directory and a file as the rig makes them.
ORPHAN = """
import os, time
from pathlib import Path
from rig import store
(store.DIRECTORY / (store.own_name(store.RUN) + "a")).mkdir()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        Path({sign!r}).write_text(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""
LIMITED = """
import sys, time
from rig.limited import run_until
print(run_until([sys.executable, "-c", {program!r}], time.time() + {seconds}))
"""


@pytest.mark.parametrize(
    ("spent", "limit", "is_saved", "needed"),
    [
        (0, math.inf, False, None),
        (20, 28, True, None),  # a quiet machine
        (20, 27.9, True, 8),
        (20, 40, False, None),
        (26.5, 40, False, 19),  # the same is slower here
        (28, 40, True, None),
        (29, 40, True, 12),
        (5, 12, True, 8),  # part of the tests only: it says nothing about the machine
        (41, 40, True, 16),
    ],
)
def test_what_was_slow_until_now_stays_slow(
    spent: float, limit: float, is_saved: bool, needed: float | None
) -> None:
    why = nodes.why_not_now(spent, limit, is_saved=is_saved)
    if needed is None:
        assert why == ""
    else:
        assert why.startswith(f"{spent:.0f} of {limit:.0f} minutes are over (TEST_MINUTES)")
        assert why.endswith(f"would take {needed:.0f}")


def test_more_time_never_leaves_them_out() -> None:
    for spent in range(60):
        reasons = [nodes.why_not_now(spent, limit, is_saved=True) for limit in range(90)]
        allowed = [reason == "" for reason in reasons]
        assert allowed == sorted(allowed)


def limited(program: str, seconds: float, directory: Path) -> str:
    """Run a program in a process that ends it; returns what that printed."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED.format(program=program, seconds=seconds)],
        env={**os.environ, "PYTHONPATH": TESTS, "GANETI_TEST_RIG": str(directory)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.strip()


def test_at_the_end_of_its_time_nothing_of_a_run_is_left(tmp_path: Path) -> None:
    sign = tmp_path / "orphan"
    seconds, begun = 1.0, time.monotonic()
    while not sign.exists() and seconds < 60:  # the machine may be slow
        assert limited(ORPHAN.format(sign=str(sign)), seconds, tmp_path) == "None"
        seconds *= 2
    assert not psutil.pid_exists(int(sign.read_text()))
    assert list(tmp_path.iterdir()) == [sign]
    assert time.monotonic() - begun < 120


@pytest.mark.parametrize("status", [0, 1])
def test_a_run_that_ends_in_time_tells_its_status(tmp_path: Path, status: int) -> None:
    assert limited(f"raise SystemExit({status})", 60, tmp_path) == str(status)


@pytest.mark.parametrize(
    ("ended", "status", "said"), [(None, 0, "were stopped: 40 minutes"), (1, 1, ""), (0, 0, "")]
)
def test_only_tests_that_fail_are_a_failure(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: int | None,
    status: int,
    said: str,
) -> None:
    ends: list[float] = []

    def run_until(argv: list[str], end: float, **_: str) -> int | None:
        ends.append(end)
        return ended

    for name in ("why_not", "why_not_made"):
        monkeypatch.setattr(nodes, name, lambda: "")
    monkeypatch.setattr(nodes, "run_until", run_until)
    begun = time.time() - 60
    assert nodes.short(begun, 40) == status
    assert said in capsys.readouterr().out
    assert begun + 39 * 60 < ends[0] < begun + 40 * 60
