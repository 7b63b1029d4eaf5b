"""What one connection does to a server, where a real one would need luck."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import dataclass

import pytest
from fakes.loop import run_in_virtual_time

from ganeti.transport.flow import ReadingWatch, ServedConnection, Unread


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


class FullTransport(GoneTransport):
    """Holds what a peer has not read, which reads so many bytes in a second."""

    def __init__(self, read_rate: int) -> None:
        super().__init__()
        self.read_rate = read_rate

    def get_write_buffer_size(self) -> int:
        return 100_000 - int(asyncio.get_running_loop().time() * self.read_rate)

    def is_closing(self) -> bool:
        return self.is_aborted


@pytest.mark.parametrize(
    ("read_rate", "is_dropped"), [(0, True), (1, True), (99, True), (101, False)]
)
def test_a_peer_that_reads_a_byte_now_and_then_is_dropped(read_rate: int, is_dropped: bool) -> None:
    transport = FullTransport(read_rate)

    async def use() -> None:
        watch = ReadingWatch(transport, 60.0, "the client", read_bytes_min=6000)
        watch.pause()
        await asyncio.sleep(200.0)
        watch.lost()

    run_in_virtual_time(use())
    assert transport.is_aborted is is_dropped


@dataclass(frozen=True)
class Reader:
    """A client that took something at that time."""

    origin: str
    since: float


def dropped(unread: Unread[Reader], reader: Reader, answer: bytes) -> list[Reader]:
    """Keep an answer; returns who is dropped for it."""
    unread.add(reader, answer)
    found = []
    while (slowest := unread.one_too_many(reader.origin)) is not None:
        found.append(slowest)
        unread.discard(slowest)
    return found


def test_who_reads_slowest_gives_way_to_others_of_its_origin() -> None:
    unread: Unread[Reader] = Unread(1000, 100)
    slow, fast, other = Reader("a", 2.0), Reader("a", 9.0), Reader("b", 1.0)
    for reader, text in ((fast, b"1"), (slow, b"2"), (other, b"3")):
        assert dropped(unread, reader, text * 50) == []
    assert dropped(unread, Reader("a", 10.0), b"4" * 20) == [slow]
    assert dropped(unread, Reader("a", 11.0), b"5" * 90) == [fast, Reader("a", 10.0)]
    assert len(unread) == 2


def test_of_all_origins_the_one_with_most_gives_way() -> None:
    unread: Unread[Reader] = Unread(100, 80)
    many = [Reader("a", 5.0), Reader("a", 6.0)]
    for number, reader in enumerate(many):
        assert dropped(unread, reader, b"%d" % number * 30) == []
    assert dropped(unread, Reader("b", 1.0), b"3" * 35) == []
    assert dropped(unread, Reader("c", 2.0), b"4" * 10) == [many[0]]


def test_equal_answers_are_kept_once() -> None:
    unread: Unread[Reader] = Unread(150, 100)
    readers = [Reader(origin, at) for at in range(50) for origin in ("a", "b")]
    first, *others = (unread.add(reader, bytes(bytearray(b"x" * 90))) for reader in readers)
    assert all(each is first for each in others)
    assert unread.one_too_many("a") is None
    assert unread.one_too_many("b") is None


def test_a_single_answer_may_have_any_size() -> None:
    unread: Unread[Reader] = Unread(100, 10)
    assert dropped(unread, Reader("a", 1.0), b"x" * 500) == []
    assert dropped(unread, Reader("a", 2.0), b"y" * 400) == [Reader("a", 1.0)]
    assert dropped(unread, Reader("b", 3.0), b"z") == [Reader("a", 2.0)]
