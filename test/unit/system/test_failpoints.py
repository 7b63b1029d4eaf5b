"""What a process leaves that ends, or is refused its disk, at any point of a write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ganeti.system import failpoints
from ganeti.system.failpoints import POINTS

WRITE = """
import sys
from ganeti.system import clock, files
from ganeti.store.swap_file import SwapFile
how, path = sys.argv[1:]
write = SwapFile(path, 0o600).write if how == "swap" else lambda d: getattr(files, "write_" + how)(path, d)
write(b"new")
print("answered", int(clock.now()))
"""
PASSED = {
    "durable": POINTS,
    "atomic": ("before_write", "before_rename", "after_rename"),
    "swap": ("before_write", "before_rename", "after_rename"),
}
CASES = [(how, point) for how, points in PASSED.items() for point in points]


def write(root: Path, how: str) -> subprocess.CompletedProcess[str]:
    node = {"GANETI_ROOTDIR": str(root), failpoints.VARIABLE: "1"}
    argv = [sys.executable, "-c", WRITE, how, str(root / "job-12")]
    return subprocess.run(
        argv, env={**os.environ, **node}, check=False, capture_output=True, text=True
    )


def arm(root: Path, rule: str) -> Path:
    path = root / failpoints.DIRECTORY / rule
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(("how", "point"), CASES)
def test_one_that_is_killed_leaves_the_old_or_the_new_content(
    tmp_path: Path, how: str, point: str
) -> None:
    (tmp_path / "job-12").write_text("old")
    rule = arm(tmp_path, f"{point},job-,kill")
    done = write(tmp_path, how)
    assert (done.returncode, done.stdout) == (-9, ""), done
    assert not rule.exists()
    wanted = "new" if point.startswith("after_") else "old"
    assert (tmp_path / "job-12").read_text() == wanted
    assert write(tmp_path, how).returncode == 0, "a rule counts once"


@pytest.mark.parametrize("action", ["enospc", "eio"])
@pytest.mark.parametrize("point", ["before_write", "before_fsync", "before_rename"])
def test_one_that_is_refused_its_disk_leaves_nothing(
    tmp_path: Path, point: str, action: str
) -> None:
    (tmp_path / "job-12").write_text("old")
    arm(tmp_path, f"{point},job-,{action}")
    done = write(tmp_path, "durable")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("OSError: [Errno ")
    assert (tmp_path / "job-12").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == [failpoints.DIRECTORY, "job-12"]


def test_rules_for_other_files_and_points_are_left(tmp_path: Path) -> None:
    rule = arm(tmp_path, "before_write,config.data,kill")
    assert write(tmp_path, "durable").returncode == 0
    assert rule.exists()


def test_the_clock_is_as_wrong_as_it_is_to_be(tmp_path: Path) -> None:
    right = int(write(tmp_path, "durable").stdout.split()[1])
    arm(tmp_path, failpoints.CLOCK).write_text("-3600")
    wrong = int(write(tmp_path, "durable").stdout.split()[1])
    assert -3600 <= wrong - right <= -3000


@pytest.mark.parametrize("variables", [{"GANETI_ROOTDIR": "/n"}, {failpoints.VARIABLE: "1"}])
def test_nothing_happens_unless_a_test_wants_it(variables: dict[str, str]) -> None:
    script = "import time; from ganeti.system import failpoints as f; print(f._IS_ON, f.wall_clock_ns is time.time_ns)"
    names = {"GANETI_ROOTDIR", failpoints.VARIABLE}
    env = {name: value for name, value in os.environ.items() if name not in names}
    shown = subprocess.check_output([sys.executable, "-c", script], env={**env, **variables})
    assert shown == b"False True\n"
