"""Keeping a process in memory."""

import resource
import subprocess
import sys

import pytest

from ganeti.daemon import memory

LIMIT = 1 << 20


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _which: (LIMIT, LIMIT))


@pytest.fixture
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory._state, "enabled", True)


class FakeLibrary:
    """A C library, with a kernel behind it that permits things or does not."""

    def __init__(self, status: int, status_beyond_limit: int = 0) -> None:
        self.status = status
        self.status_beyond_limit = status_beyond_limit
        self.flags: list[int] = []

    def mlock2(self, _start: object, size: object, flags: int) -> int:
        assert getattr(size, "value", 0) > LIMIT
        assert flags == 1  # on fault: nothing is filled
        return self.status_beyond_limit

    def mlockall(self, flags: int) -> int:
        self.flags.append(flags)
        return self.status


def test_nothing_is_locked_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary(0)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda *_args, **_options: library)
    assert not memory.is_enabled()
    assert not memory.lock_everything()
    assert not memory.lock_on_fault()
    assert library.flags == []


@pytest.mark.shows("2.1/noded/in-memory", "2.1/noded/children")
@pytest.mark.usefixtures("enabled")
def test_all_in_the_daemon_and_only_what_is_new_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary(0)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda *_args, **_options: library)
    assert memory.lock_everything()
    assert memory.lock_on_fault()
    assert library.flags == [3, 6]


@pytest.mark.usefixtures("enabled")
def test_what_is_not_permitted_is_logged_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda *_args, **_options: FakeLibrary(-1))
    assert not memory.lock_everything()
    assert "memory is not locked" in caplog.text
    assert caplog.text.rstrip().endswith("going on")


@pytest.mark.usefixtures("enabled")
def test_below_a_limit_nothing_is_locked_as_later_mappings_would_fail(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library = FakeLibrary(0, status_beyond_limit=-1)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda *_args, **_options: library)
    assert not memory.lock_everything()
    assert library.flags == []
    assert "the limit is 1024 KiB" in caplog.text


@pytest.mark.usefixtures("enabled")
def test_without_a_limit_nothing_needs_to_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _which: infinite)
    library = FakeLibrary(0, status_beyond_limit=-1)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda *_args, **_options: library)
    assert memory.lock_everything()


LARGE = """
from ganeti.daemon import memory
memory.return_large_buffers()
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
before = resident()
for _ in range(3):
    large = bytearray(20 << 20)
    large[::4096] = large[::4096]
    del large
small = [bytes(1000) for _ in range(10_000)]
del small
memory.give_back()
print(resident() - before)
"""


def test_memory_that_was_needed_for_a_moment_goes_back() -> None:
    told = subprocess.run(
        [sys.executable, "-c", LARGE], check=True, capture_output=True, text=True
    ).stdout
    assert int(told) < 4 << 20
