"""Death is decided by a lock that the kernel drops, and by nothing else."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ganeti.base.errors import LockError, PidFileLockError
from ganeti.system import filelock
from ganeti.system.filelock import FileLock, LiveLock, PidFile, is_alive

HOLDER = """
import sys
from ganeti.system.filelock import LiveLock
lock = LiveLock.create(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""

RECORD_LOCK_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""

RECORD_LOCK_CHECKER = """
import fcntl, sys
file = open(sys.argv[1])
try:
    fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
except OSError:
    sys.exit(1)
"""


def holder(code: str, path: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


@pytest.mark.shows("2.12/death/reliable", "2.12/death/kernel")
@pytest.mark.parametrize("code", [HOLDER, RECORD_LOCK_HOLDER], ids=["ours", "record lock of 3.0"])
def test_a_holder_is_alive_until_it_is_killed(code: str, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with holder(code, path) as process:
        assert is_alive(path)
        process.kill()
        process.wait()
        assert os.path.exists(path)
        assert not is_alive(path)


@pytest.mark.shows("2.12/death/conflict")
def test_a_checker_of_3_0_sees_that_we_live(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    check = [sys.executable, "-c", RECORD_LOCK_CHECKER, path]
    with LiveLock.create(path):
        assert subprocess.run(check, check=False).returncode == 1


@pytest.mark.shows("2.12/death/conflict")
def test_opening_and_closing_the_file_elsewhere_keeps_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with LiveLock.create(path):
        with open(path, "rb"):
            assert is_alive(path)
        assert is_alive(path)


@pytest.mark.shows("2.12/death/shared-look")
def test_looks_at_the_same_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    Path(path).touch()
    with open(path, encoding="ascii") as one, open(path, encoding="ascii") as other:
        fcntl.flock(one, fcntl.LOCK_SH)
        fcntl.lockf(other, fcntl.LOCK_SH)
        assert not is_alive(path), "another checker is taken for a holder"
        with LiveLock.create(str(tmp_path / "living")) as lock:
            assert is_alive(lock.path)
            assert is_alive(lock.path)


@pytest.mark.shows("2.12/death/missing-file")
def test_a_missing_file_means_dead(tmp_path: Path) -> None:
    assert not is_alive(str(tmp_path / "none"))


def test_renaming_keeps_the_lock_and_never_replaces_another(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    with LiveLock.create(first) as lock, LiveLock.create(second):
        with pytest.raises(LockError, match="exists already"):
            lock.rename(second)
        assert is_alive(first)
        lock.rename(str(tmp_path / "third"))
        assert is_alive(lock.path)
        assert not os.path.exists(first)
    assert os.listdir(tmp_path) == []


def test_the_descriptor_is_not_inherited(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = LiveLock.create(path)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        os.close(lock._descriptor)
        lock._descriptor = -1
        assert not is_alive(path)
        child.kill()


def test_a_file_lock_excludes_and_lets_go(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with FileLock(path), pytest.raises(LockError, match="another process"):
        FileLock(path).acquire()
    with FileLock(path):
        pass


@pytest.mark.shows("2.12/death/pid-reuse")
def test_a_pid_file_names_the_one_that_runs(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pid")
    first = PidFile(path)
    first.acquire()
    assert filelock.running_pid(path) == os.getpid()
    with pytest.raises(PidFileLockError, match=str(os.getpid())):
        PidFile(path).acquire()
    first.release()
    assert filelock.running_pid(path) is None
    (tmp_path / "x.pid").write_text("1\n")
    assert filelock.running_pid(path) is None, "a stale number proves nothing"


def test_a_pid_file_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    (tmp_path / "x.pid").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic link"):
        PidFile(str(tmp_path / "x.pid")).acquire()
    assert (tmp_path / "precious").read_text() == "data"


def test_a_look_at_a_pid_file_stops_nobody_from_taking_it(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pid")
    Path(path).touch()
    with open(path, encoding="ascii") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        timer = threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN))
        timer.start()
        PidFile(path).acquire()
        timer.join()


def test_a_pid_file_removed_while_it_is_taken_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, the last owner may remove the file and end."""
    path = str(tmp_path / "x.pid")
    real_flock = fcntl.flock
    removed: list[str] = []

    def remove_first(descriptor: int, operation: int) -> None:
        if not removed:
            os.unlink(path)
            removed.append(path)
        real_flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    taken = PidFile(path)
    taken.acquire()
    assert filelock.running_pid(path) == os.getpid()
    taken.release()
