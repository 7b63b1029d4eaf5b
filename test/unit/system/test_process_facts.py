"""Tests of ganeti/system/process_facts.py."""

from __future__ import annotations

import os
import signal
import threading
import time

from fakes.waiting import wait_until

from ganeti.system import process, process_facts


def agree_on_threads() -> bool:
    facts = process_facts.read(os.getpid())
    return facts is not None and facts.threads == len(os.listdir("/proc/self/task"))


def test_facts_of_this_process() -> None:
    facts = process_facts.read(os.getpid())
    assert facts is not None
    assert facts.pid == os.getpid()
    assert facts.threads >= threading.active_count()
    wait_until(agree_on_threads, "a thread of another test has ended")
    assert facts.resident_bytes > 1 << 20
    assert 0 <= facts.cpu_s <= time.process_time() + 1
    assert facts.started_s < time.time()
    assert not facts.is_stopped
    assert process_facts.open_files(os.getpid()) > 2  # type: ignore[operator]


def test_a_stopped_process_is_seen_as_such_and_a_dead_one_is_none() -> None:
    child = process.spawn(["sleep", "60"])
    try:
        os.kill(child.pid, 19)
        os.waitpid(child.pid, os.WUNTRACED)
        facts = process_facts.read(child.pid)
        assert facts is not None
        assert facts.is_stopped
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_facts.read(child.pid) is None  # a zombie
    finally:
        child.kill()
        child.wait()
    assert process_facts.read(child.pid) is None
    assert process_facts.open_files(child.pid) is None


def test_a_signal_that_would_end_a_process_is_known() -> None:
    before = signal.signal(signal.SIGUSR2, lambda _number, _frame: None)
    try:
        assert process_facts.catches(os.getpid(), signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        assert not process_facts.catches(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not process_facts.catches(1 << 30, signal.SIGUSR2)
