"""A serial console whose program starts too late leaves no terminal and no process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from ganeti.base.errors import CommandError
from ganeti.noded import consoles
from ganeti.objects.hypervisors import ConsoleKind
from ganeti.objects.model import InstanceConsole
from ganeti.system import process

DEADLINE_S = 60


def console(*command: str) -> InstanceConsole:
    return InstanceConsole(instance="web1", kind=ConsoleKind.SSH, command=list(command))


def terminals() -> int:
    """Return how many ends of terminals this process has."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the directory
            place = os.readlink(f"/proc/self/fd/{each}")
            count += int(each) > 2 and place.startswith(("/dev/pts/", "/dev/ptmx"))
    return count


class SlowStart:
    """Starts programs when it is allowed to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.allowed = threading.Event(), threading.Event()
        self.started: list[process.Started] = []
        self._spawn = process.spawn
        monkeypatch.setattr(process, "spawn", self.spawn)

    def spawn(self, argv: Sequence[str], **how: Any) -> process.Started:
        self.begun.set()
        assert self.allowed.wait(DEADLINE_S)
        self.started.append(self._spawn(argv, **how))
        return self.started[-1]


async def until_over(before: int) -> None:
    while terminals() != before:  # noqa: ASYNC110 - a thread closes them
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("program", ["sleep", "no-such-program"])
def test_a_program_that_starts_after_the_deadline_is_ended(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    slow = SlowStart(monkeypatch)
    before = terminals()

    async def act() -> None:
        async with asyncio.timeout(DEADLINE_S):
            opening = asyncio.ensure_future(consoles._terminal(console(program, "1000")))
            await asyncio.to_thread(slow.begun.wait, DEADLINE_S)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert terminals() == before + 2  # the thread still needs both ends
            slow.allowed.set()
            await until_over(before)
            for each in slow.started:
                while psutil.pid_exists(each.pid):  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)

    asyncio.run(act())
    assert len(slow.started) == (program == "sleep")


def test_a_program_that_cannot_be_started_leaves_no_terminal() -> None:
    before = terminals()
    with pytest.raises(CommandError):
        asyncio.run(consoles._terminal(console("no-such-program")))
    assert terminals() == before


def test_a_console_that_is_closed_leaves_nothing() -> None:
    before = terminals()

    async def act() -> bytes:
        opened = await consoles._terminal(console("sh", "-c", "echo hello; sleep 1000"))
        try:
            return await opened.read()
        finally:
            await opened.close()

    assert asyncio.run(act()) == b"hello\r\n"
    assert terminals() == before
