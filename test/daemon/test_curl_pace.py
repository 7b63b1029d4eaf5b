"""Connections to many places are begun a few at a time, and a silent one keeps nobody waiting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from ganeti.base.pace import PLACES, Pace
from ganeti.transport.async_curl_pool import AsyncCurlPool
from ganeti.transport.curl_pool import CurlPool, CurlRequest

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def listeners() -> Iterator[list[socket.socket]]:
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(PLACES + 3)]
    yield made
    for each in made:
        each.close()


def request(listener: socket.socket, timeout_s: float = 60.0) -> CurlRequest:
    return CurlRequest(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"body", timeout_s)


def is_called(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


async def answer(listener: socket.socket) -> None:
    listener.setblocking(False)
    loop = asyncio.get_running_loop()
    connection, _address = await loop.sock_accept(listener)
    with connection:
        connection.setblocking(False)
        assert await loop.sock_recv(connection, 65536)
        await loop.sock_sendall(connection, ANSWER)


def test_one_that_has_no_place_begins_when_another_ends(listeners: list[socket.socket]) -> None:
    async def play() -> None:
        first, second, *_ = listeners
        pool = AsyncCurlPool(None)
        pool._pace = Pace(1, 3600.0)
        work = asyncio.create_task(pool.perform([request(first), request(second)]))
        await asyncio.sleep(0)
        answered = asyncio.create_task(answer(first))
        while not answered.done():
            assert not is_called(second)
            await asyncio.sleep(0.005)
        await answer(second)
        assert [each.body for each in await work] == [b"ok", b"ok"]
        # Where there is a connection no place is needed, or would be.
        assert pool._pace.try_begin("somebody", 0.0)
        work = asyncio.create_task(pool.perform([request(first)]))
        await answer(first)
        assert [each.body for each in await work] == [b"ok"]
        pool.close()

    asyncio.run(play())


def test_a_request_that_waits_for_its_place_can_be_given_up(listeners: list[socket.socket]) -> None:
    async def play() -> None:
        first, second, *_ = listeners
        pool = AsyncCurlPool(None)
        pool._pace = Pace(1, 3600.0)
        held = asyncio.create_task(pool.perform([request(first)]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pool.perform([request(second)]), 0.05)
        await answer(first)
        assert (await held)[0].body == b"ok"
        pool.close()
        assert not is_called(second)

    asyncio.run(play())


def test_silent_places_keep_nobody_waiting(listeners: list[socket.socket]) -> None:
    *silent, last = listeners
    pool = CurlPool(None)
    found = pool.perform([request(each, 1.5) for each in silent])
    assert {each.error for each in found} == {"no answer within 1.5 s"}
    assert all(is_called(each) for each in silent)

    async def play() -> list[bytes]:
        pool = AsyncCurlPool(None)
        work = asyncio.create_task(
            pool.perform([*(request(each, 1.5) for each in silent), request(last)])
        )
        await answer(last)  # comes although all others have their places longer
        assert not work.done()
        found = [each.body for each in await work]
        pool.close()
        return found

    assert asyncio.run(play()) == [b""] * len(silent) + [b"ok"]
