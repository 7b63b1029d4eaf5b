"""What one connection does to a server, where a real one would need luck."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from fakes.loop import run_in_virtual_time

from ganeti.transport.flow import ReadingWatch, ServedConnection


class GoneTransport(asyncio.Transport):
    """Its peer went away between the last write and now."""

    def __init__(self, *, is_tls: bool = False) -> None:
        super().__init__()
        self.is_tls = is_tls
        self.is_aborted = False

    def can_write_eof(self) -> bool:
        return not self.is_tls

    def write_eof(self) -> None:
        assert not self.is_tls
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_peer_that_is_gone_need_not_hear_that_nothing_more_comes(is_tls: bool) -> None:
    transport = GoneTransport(is_tls=is_tls)
    ReadingWatch(transport, 1.0, "the client").end_writing()
    assert transport.is_aborted is not is_tls


def test_an_error_drops_its_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    dropped = []

    class Client(ServedConnection):
        def __init__(self, name: str) -> None:
            self.name = name

        def __str__(self) -> str:
            return self.name

        def abort(self) -> None:
            dropped.append(self.name)

        def close_if_idle(self) -> None:
            pass

    async def fail() -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    async def go_on() -> None:
        await asyncio.sleep(0)

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Client("client one").contained(fail()))
            tasks.create_task(Client("client two").contained(go_on()))

    asyncio.run(serve())
    assert dropped == ["client one"]
    assert "dropping client one" in caplog.text


def rings(*timers: tuple[float, float | None]) -> list[float]:
    """Set timers at these times, for so many seconds (None stops); returns when one rang."""
    rung = []

    async def use() -> None:
        watch = ReadingWatch(GoneTransport(), 1.0, "the client")
        loop = asyncio.get_running_loop()
        for at, seconds in timers:
            await asyncio.sleep(at - loop.time())
            if seconds is None:
                watch.stop()
            else:
                watch.start_timer(seconds, lambda: rung.append(round(loop.time(), 3)))
        await asyncio.sleep(100.0)
        watch.lost()

    run_in_virtual_time(use())
    return rung


@pytest.mark.parametrize(
    ("timers", "expected"),
    [
        ([(0.0, 10.0)], [10.0]),
        ([(0.0, 10.0), (4.0, 10.0)], [14.0]),
        ([(0.0, 10.0), (4.0, 2.0)], [6.0]),
        ([(0.0, 10.0), (4.0, None)], []),
        ([(0.0, 10.0), (4.0, None), (5.0, 30.0)], [35.0]),
        ([(0.0, 10.0), (20.0, 5.0)], [10.0, 25.0]),
    ],
)
def test_a_timer_rings_once_when_it_was_set_for_last(
    timers: list[tuple[float, float | None]], expected: list[float]
) -> None:
    assert rings(*timers) == expected


def test_no_timer_outlives_its_connection() -> None:
    async def use() -> None:
        watch = ReadingWatch(GoneTransport(), 1.0, "the client")
        watch.start_timer(5.0, lambda: pytest.fail("it rang"))
        watch.lost()
        await asyncio.sleep(60.0)

    run_in_virtual_time(use())
