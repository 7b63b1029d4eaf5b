"""Signals to this very process: a handler acts at once only where it may."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

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


# A signal at each instruction of a wait.


class AtInstructions:
    """Sends signals to this process just before the instructions of those numbers."""

    def __init__(self, signals: dict[int, signal.Signals]) -> None:
        self.count = 0
        self._signals = signals

    def __call__(self, frame: FrameType, event: str, _arg: object) -> AtInstructions:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
            if self.count in self._signals:
                signal.raise_signal(self._signals[self.count])
        return self

    def play(self, action: Callable[[], object]) -> None:
        before = sys.gettrace()
        gc.disable()  # what it would call counts, too
        sys.settrace(self)
        try:
            action()
        finally:
            sys.settrace(before)
            gc.enable()


class Waiter:
    """Waits for locks as jobs do; priorities that reach it between two requests are not enough."""

    def __init__(self, control: Control, body: Callable[[], object]) -> None:
        self.control = control
        self.body = body
        self.priorities: list[int] = []
        self.asked = 0
        self.is_known = True
        control.on_priority = self.take

    def take(self, priority: int) -> bool:
        self.priorities.append(priority)
        return self.is_known

    def wait(self) -> str:
        while True:
            with contextlib.suppress(PriorityChangedError), self.control.interruptible():
                self.asked += 1
                self.body()
                return "granted"


def nothing() -> None:
    """Be granted at once."""


def hurried() -> None:
    """Get another signal while waiting; its handler is interrupted as well."""
    signal.raise_signal(signal.SIGUSR1)


BODIES = pytest.mark.parametrize("body", [nothing, hurried])


def instructions(control: Control, body: Callable[[], object]) -> int:
    """Return how many instructions a wait takes."""
    for _ in range(2):  # what is done once, the first time, does not count
        counter = AtInstructions({})
        counter.play(Waiter(control, body).wait)
    return counter.count


def check_disarmed(control: Control) -> None:
    """Whatever happened, a request that comes now is only noted."""
    assert not control.is_armed
    control.is_canceled = False
    send(signal.SIGTERM)
    send(signal.SIGUSR1)
    assert control.is_canceled


@BODIES
@pytest.mark.parametrize("is_known", [True, False])
def test_a_new_priority_at_any_instruction_of_a_wait_is_neither_lost_nor_leaves_the_job_armed(
    control: Control, body: Callable[[], object], is_known: bool
) -> None:
    write_priority(control, "-5\n")
    for number in range(1, instructions(control, body) + 5):
        waiter = Waiter(control, body)
        waiter.is_known = is_known or body is hurried  # hurried by itself it would ask for ever
        injection = AtInstructions({number: signal.SIGUSR1})
        injection.play(waiter.wait)
        control.take_priority()
        was_hurried = body is hurried or injection.count >= number
        assert set(waiter.priorities) == ({-5} if was_hurried else set())
        check_disarmed(control)
        control.is_canceled = False
        control.take_priority()


@BODIES
def test_a_request_to_cancel_at_any_instruction_of_a_wait_is_heeded_once(
    control: Control, body: Callable[[], object]
) -> None:
    write_priority(control, "-5\n")
    for number in range(1, instructions(control, body) + 1):
        waiter = Waiter(control, body)
        with contextlib.suppress(JobCanceled):
            AtInstructions({number: signal.SIGTERM}).play(waiter.wait)
        with pytest.raises(JobCanceled):
            control.check_canceled()
        check_disarmed(control)
        control.is_canceled = False
        control.take_priority()


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGUSR1])
def test_two_signals_at_any_instructions_leave_nothing_armed(
    control: Control, first: signal.Signals, second: signal.Signals
) -> None:
    write_priority(control, "-5\n")
    length = instructions(control, nothing)
    for number in range(1, length):
        for distance in (1, 2, 3, 5, 8, 13, 21, 34, 55):
            waiter = Waiter(control, nothing)
            waiter.is_known = False
            injection = AtInstructions({number: first, number + distance: second})
            with contextlib.suppress(JobCanceled):
                injection.play(waiter.wait)
            check_disarmed(control)
            control.is_canceled = False
            control.take_priority()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_a_priority_is_taken_waits_for_that_and_is_heeded(
    control: Control, number: signal.Signals
) -> None:
    seen: list[int] = []

    def take(priority: int) -> bool:
        seen.append(priority)
        if len(seen) == 1:
            write_priority(control, "7\n")
            send(number)
        return True

    control.on_priority = take
    write_priority(control, "3\n")
    if number is signal.SIGTERM:
        with pytest.raises(JobCanceled), control.interruptible():
            send(signal.SIGUSR1)
        assert seen == [3]
    else:
        with control.interruptible():
            send(signal.SIGUSR1)
        assert seen == [3, 7]
    assert not control.is_armed


def test_a_priority_that_cannot_be_taken_leaves_the_job_disarmed(control: Control) -> None:

    def take(_priority: int) -> bool:
        raise OSError("disk full")

    control.on_priority = take
    write_priority(control, "3\n")
    with pytest.raises(OSError, match="disk full"), control.interruptible():
        send(signal.SIGUSR1)
    assert not control.is_armed
