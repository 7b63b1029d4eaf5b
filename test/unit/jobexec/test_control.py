"""Signals to this very process: a handler acts at once only where it may."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from ganeti.base.errors import JobCanceled
from ganeti.jobexec.control import Control
from ganeti.logical_units.locks import PriorityChangedError


@pytest.fixture
def control(tmp_path: object) -> Iterator[Control]:
    saved = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield Control(f"{tmp_path}/7.prio")
    for number, handler in saved.items():
        signal.signal(number, handler)
    signal.set_wakeup_fd(-1)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def write_priority(control: Control, text: str) -> None:
    with open(control.priority_path, "w", encoding="ascii") as file:
        file.write(text)


def test_a_request_to_cancel_is_noted_and_honoured_when_looked_for(control: Control) -> None:
    control.check_canceled()
    send(signal.SIGTERM)
    with pytest.raises(JobCanceled, match="canceled by request"):
        control.check_canceled()


def test_a_request_to_cancel_interrupts_where_it_may(control: Control) -> None:
    with pytest.raises(JobCanceled), control.interruptible():
        send(signal.SIGTERM)


def test_a_request_that_came_before_interrupts_on_entry(control: Control) -> None:
    send(signal.SIGTERM)
    with pytest.raises(JobCanceled), control.interruptible():
        pytest.fail("entered")


def test_a_wait_ends_with_the_request(control: Control) -> None:
    timer = threading.Timer(0.05, send, [signal.SIGTERM])
    timer.start()
    with pytest.raises(JobCanceled):
        control.wait(30)
    timer.join()


def test_a_wait_is_as_long_as_asked(control: Control) -> None:
    send(signal.SIGUSR1)  # wakes it, but is no reason to end
    control.wait(0.01)


def test_a_pause_heeds_no_request(control: Control) -> None:
    send(signal.SIGTERM)
    started = time.monotonic()
    control.pause(0.02)
    assert time.monotonic() - started >= 0.02


def test_a_priority_is_noted_until_somebody_can_act_on_it(control: Control) -> None:
    seen: list[int] = []
    write_priority(control, "-5\n")
    send(signal.SIGUSR1)
    control.on_priority = seen.append
    assert seen == []
    control.take_priority()
    control.take_priority()
    assert seen == [-5]


def test_a_priority_is_acted_upon_at_once_while_locks_are_awaited(control: Control) -> None:
    seen: list[int] = []

    def take(priority: int) -> bool:
        seen.append(priority)
        return True

    control.on_priority = take
    write_priority(control, "3\n")
    with control.interruptible():
        send(signal.SIGUSR1)
        assert seen == [3]


def test_a_priority_that_came_before_the_request_makes_it_anew(control: Control) -> None:
    control.on_priority = lambda _: False
    write_priority(control, "3\n")
    with pytest.raises(PriorityChangedError), control.interruptible():
        send(signal.SIGUSR1)
    send(signal.SIGUSR1)
    control.take_priority()  # nothing waits: nothing to make anew


@pytest.mark.parametrize("text", [None, "", "x", "1" * 50])
def test_nonsense_instead_of_a_priority_is_ignored(control: Control, text: str | None) -> None:

    def fail(_: int) -> bool:
        pytest.fail("nothing was said")

    control.on_priority = fail
    if text is not None:
        write_priority(control, text)
    with control.interruptible():
        send(signal.SIGUSR1)
