"""Tests of ganeti/transport/http_server.py over live sockets, with bytes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator

import pytest
from fakes.http_conversation import ADDRESS, CALM, Client, connect, echo, post
from fakes.loop import run
from fakes.waiting import until

from ganeti.base.complaints import QUIET_S
from ganeti.base.errors import TransportError
from ganeti.system import clock
from ganeti.transport.http_message import HttpRequest, HttpResponse, HttpStream
from ganeti.transport.http_server import HttpLimits, HttpServer, serve_http


def test_requests_on_one_connection_are_answered_in_turn() -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server, connect(server) as client:
            for number in range(3):
                client.send(post(f"/call{number}?x=1", b"[1]"))
                status, headers, body = await client.answer()
                assert (status, body) == (200, b"POST /call%d [1]" % number)
                assert headers["connection"] == "keep-alive"
                assert headers["server"] == "ganeti 3.0.2"

    run(test())


def test_a_request_in_pieces_is_put_together() -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server, connect(server) as client:
            for byte in post("/x", b"[1, 2]"):
                client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.answer())[2] == b"POST /x [1, 2]"

    run(test())


def test_a_chunked_body_is_put_together() -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server, connect(server) as client:
            client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            client.send(b"2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n")
            assert (await client.answer())[2] == b"POST /x [1]"

    run(test())


@pytest.mark.parametrize("ending", ["Connection: close", "HTTP/1.0"])
def test_who_wants_the_connection_closed_gets_that(ending: str) -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server, connect(server) as client:
            request = post("/x", b"", *([ending] if ":" in ending else []))
            client.send(request if ":" in ending else request.replace(b"HTTP/1.1", b"HTTP/1.0"))
            _, headers, _ = await client.answer()
            assert headers["connection"] == "close"
            assert await client.is_closed_by_server()

    run(test())


def test_a_client_that_asks_before_sending_a_body_is_told_to_go_on() -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server, connect(server) as client:
            head, _, body = post("/x", b"[1]", "Expect: 100-continue").partition(b"\r\n\r\n")
            client.send(head + b"\r\n\r\n")
            assert await client.status() == 100
            client.send(body)
            assert (await client.answer())[2] == b"POST /x [1]"

    run(test())


def test_requests_sent_ahead_are_not_lost_silently() -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server, connect(server) as client:
            client.send(post("/a", b"") + post("/b", b""))
            assert (await client.answer())[2] == b"POST /a "
            assert await client.status() == 400
            assert await client.is_closed_by_server()

    run(test())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00rubbish\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /x HTTP/9.9\r\n\r\n",
        b"\0" * 99,
    ],
)
def test_garbage_is_answered_once_and_the_server_lives(garbage: bytes) -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server:
            async with connect(server) as client:
                client.send(garbage)
                assert await client.status() == 400
                assert await client.is_closed_by_server()
            async with connect(server) as client:
                client.send(post("/x", b""))
                assert await client.status() == 200

    run(test())


def test_any_bytes_are_survived(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(7)
    good = post("/x", b"[1, 2]", "Expect: 100-continue") + post("/y", b"")

    def damaged() -> bytes:
        data = bytearray(good)
        for _ in range(chance.randint(1, 5)):
            data[chance.randrange(len(data))] = chance.choice(b"\x00\xff \r\n:/19P")
        return bytes(data[: chance.randint(1, len(data))])

    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None, limits=CALM) as server:
            for _ in range(300):
                async with connect(server) as client:
                    client.send(damaged())
                    client.writer.write_eof()
                    await client.is_closed_by_server()
            async with connect(server) as client:
                client.send(post("/x", b""))
                assert await client.status() == 200

    run(test())
    assert "rror" not in caplog.text


def test_the_log_tells_of_a_client_that_is_refused_again_and_again_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse_once(server: HttpServer) -> None:
        async with connect(server) as client:
            client.send(b"rubbish\r\n\r\n")
            assert await client.status() == 400

    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None, limits=CALM) as server:
            for _ in range(20):
                await refuse_once(server)
            later_s = clock.monotonic() + QUIET_S
            monkeypatch.setattr(clock, "monotonic", lambda: later_s)
            await refuse_once(server)

    run(test())
    told = [text for text in caplog.messages if text.startswith("Refusing client 127.0.0.1")]
    assert len(told) == 2
    assert "more about" not in told[0]
    assert told[1].endswith("; 19 more about 127.0.0.1 were not written since the one before")


def test_another_protocol_is_refused() -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server, connect(server) as client:
            client.send(b"GET /x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            assert await client.status() in (200, 501)

    run(test())


def test_another_protocol_is_spoken_where_the_handler_agrees() -> None:
    async def shout(stream: HttpStream) -> None:
        while (line := await stream.reader.readline()) and line != b"bye\n":
            stream.write(line.upper())
            await stream.drain()

    async def agree(_request: HttpRequest) -> HttpResponse:
        return HttpResponse.switch("shouting", shout, {})

    async def test() -> None:
        async with serve_http(ADDRESS, 0, agree, tls=None) as server, connect(server) as client:
            head = b"POST /x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: shouting\r\n\r\n"
            client.send(head + b"sent at once\n")
            found = await client.reader.readuntil(b"\r\n\r\n")
            assert found.startswith(b"HTTP/1.1 101 ")
            assert b"Upgrade: shouting" in found
            assert await client.reader.readline() == b"SENT AT ONCE\n"
            client.send(b"and later\nbye\n")
            assert await client.reader.readline() == b"AND LATER\n"
            assert await client.is_closed_by_server()

    run(test())


def test_a_refused_client_that_goes_on_sending_reads_why() -> None:
    limits = HttpLimits(body_bytes_max=1000, linger_s=60.0)

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, echo, tls=None, limits=limits) as server,
            connect(server) as client,
        ):
            client.send(post("/x", b"x" * 20_000_000))
            assert await client.status() == 413
            assert await client.is_closed_by_server()

    run(test())


def test_a_body_too_large_is_refused_before_it_is_sent() -> None:
    limits = HttpLimits(body_bytes_max=1000)

    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None, limits=limits) as server:
            async with connect(server) as client:
                client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n")
                status, _, body = await client.answer()
                assert (status, body) == (413, b"the body is larger than 1000 bytes\n")
                assert await client.is_closed_by_server()
            async with connect(server) as client:
                client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                client.send(b"400\r\n" + b"x" * 0x400 + b"\r\n")
                assert await client.status() == 413

    run(test())


@pytest.mark.parametrize("head", [b"POST /" + b"x" * 400_000, b"POST / HTTP/1.1\r\nA: "])
def test_a_head_without_end_is_refused(head: bytes) -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server, connect(server) as client:
            client.send(head)
            for _ in range(40):
                client.send(b"x" * 10_000)
                await asyncio.sleep(0)
            with contextlib.suppress(ConnectionResetError):
                assert await client.status() == 431
            assert await client.is_closed_by_server()

    run(test())


@pytest.mark.parametrize(
    ("limits", "sent", "status"),
    [
        (HttpLimits(head_s_max=0.1, linger_s=0.1), b"POST /x HTTP/1.1\r\nHost: ", 408),
        (
            HttpLimits(body_s_max=0.1, linger_s=0.1),
            b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n[1",
            408,
        ),
        (HttpLimits(idle_s_max=0.1), b"", None),
    ],
)
def test_who_sends_too_slowly_is_dropped(
    limits: HttpLimits, sent: bytes, status: int | None
) -> None:
    async def drip(client: Client) -> None:
        while True:
            client.send(b"x")
            await asyncio.sleep(0.05)

    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None, limits=limits) as server:
            async with connect(server) as client, asyncio.TaskGroup() as tasks:
                client.send(sent)
                dripping = tasks.create_task(drip(client)) if sent[-1:] == b" " else None
                if status is not None:
                    assert await client.status() == status
                assert await client.is_closed_by_server()
                if dripping is not None:
                    dripping.cancel()
            await until(lambda: not server.connections)

    run(test())


def test_who_never_reads_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def large(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"x" * 30_000_000)

    limits = HttpLimits(unread_s_max=0.2)

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, large, tls=None, limits=limits) as server,
            connect(server) as client,
        ):
            client.writer.transport.pause_reading()  # type: ignore[attr-defined] # asyncio reads ahead
            client.send(post("/x", b""))
            await until(lambda: bool(server.connections))
            await until(lambda: not server.connections)

    run(test())
    assert "has not read its answer for 0.2 s" in caplog.text


async def heaps(request: HttpRequest) -> HttpResponse:
    """Answer more than the system takes for a client that does not read, each path another text."""
    return HttpResponse(200, request.path[-1:].encode() * 20_000_000)


@contextlib.asynccontextmanager
async def not_reading(
    server: HttpServer, path: str, own_address: str = ADDRESS
) -> AsyncIterator[Client]:
    """A client that asks, and does not read the answer."""
    async with connect(server, own_address=own_address) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined] # asyncio reads ahead
        before = len(server.unread)
        client.send(post(path, b""))
        await until(lambda: len(server.unread) > before)
        yield client


def test_answers_that_are_not_read_have_room_for_so_many_of_one_origin() -> None:
    limits = HttpLimits(origin_answers_bytes_max=50_000_000)

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, heaps, tls=None, limits=limits) as server,
            not_reading(server, "/1", "127.0.0.2"),
            not_reading(server, "/2"),
            not_reading(server, "/3"),
        ):
            slowest = min(server.connections, key=lambda each: each.since)
            assert slowest.origin == "127.0.0.2", "whose origin has not too many"
            assert len(server.unread) == 3
            async with connect(server) as reading:
                for path in (b"4", b"5"):
                    reading.send(post(f"/{path.decode()}", b""))
                    assert (await reading.answer())[2] == path * 20_000_000
            await until(lambda: len(server.connections) == 2)
            assert {each.origin for each in server.connections} == {ADDRESS, "127.0.0.2"}
        assert not server.unread

    run(test())


def test_equal_answers_that_are_not_read_are_kept_once() -> None:
    limits = HttpLimits(origin_answers_bytes_max=30_000_000)

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, heaps, tls=None, limits=limits) as server,
            contextlib.AsyncExitStack() as many,
        ):
            for _ in range(5):
                await many.enter_async_context(not_reading(server, "/1"))
            assert len(server.unread) == 5

    run(test())


def test_who_does_not_read_gives_way_to_new_connections() -> None:
    limits = HttpLimits(connections_max=2)

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, heaps, tls=None, limits=limits) as server,
            not_reading(server, "/1"),
            not_reading(server, "/2"),
            connect(server) as third,
        ):
            third.send(post("/3", b""))
            assert await third.status() == 200

    run(test())


def test_connections_from_one_address_may_have_a_limit_of_their_own() -> None:
    limits = HttpLimits(origin_connections_max=3)

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, echo, tls=None, limits=limits) as server,
            connect(server, own_address="127.0.0.2") as other,
            contextlib.AsyncExitStack() as many,
        ):
            clients = [await many.enter_async_context(connect(server)) for _ in range(8)]
            for client in clients[:5]:
                assert await client.is_closed_by_server()
            for client in (other, *clients[5:]):
                client.send(post("/x", b""))
                assert await client.status() == 200

    run(test())


def test_a_bug_in_a_handler_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: HttpRequest) -> HttpResponse:
        raise KeyError("oops")

    async def test() -> None:
        async with serve_http(ADDRESS, 0, broken, tls=None) as server, connect(server) as client:
            for _ in range(2):
                client.send(post("/x", b""))
                status, _, body = await client.answer()
                assert (status, body) == (500, b"internal error: KeyError: 'oops'\n")

    run(test())
    assert "Internal error in POST /x" in caplog.text


def test_too_many_connections_take_the_place_of_idle_ones() -> None:
    limits = HttpLimits(connections_max=2)

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, echo, tls=None, limits=limits) as server,
            connect(server) as first,
            connect(server) as second,
        ):
            await until(lambda: len(server.connections) == 2)
            for client in (first, second, first):  # the second is idle for longest
                client.send(post("/x", b""))
                assert await client.status() == 200
            async with connect(server) as third:
                assert await second.is_closed_by_server()
                for client in (first, third):
                    client.send(post("/x", b""))
                    assert await client.status() == 200

    run(test())


def test_too_many_busy_connections_are_dropped() -> None:
    limits = HttpLimits(connections_max=2)

    async def test() -> None:
        go_on = asyncio.Event()

        async def slow(request: HttpRequest) -> HttpResponse:
            await go_on.wait()
            return await echo(request)

        async with (
            serve_http(ADDRESS, 0, slow, tls=None, limits=limits) as server,
            connect(server) as first,
            connect(server) as second,
        ):
            for client in (first, second):
                client.send(post("/x", b""))
            await until(lambda: server.requests_running == 2)
            async with connect(server) as third:
                assert await third.is_closed_by_server()
            go_on.set()
            for client in (first, second):
                assert await client.status() == 200

    run(test())


def test_bodies_of_all_clients_together_are_bounded() -> None:
    limits = HttpLimits(bodies_bytes_max=1500)
    head = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, echo, tls=None, limits=limits) as server,
            connect(server) as first,
        ):
            first.send(head + b"x" * 999)
            await until(lambda: server.held_bytes == 999)
            async with connect(server) as second:
                second.send(head + b"x" * 999)
                assert await second.status() == 503
            async with connect(server) as third:
                third.send(post("/x", b"x" * 500))
                assert await third.status() == 200
                third.send(head + b"x" * 400)
                await until(lambda: server.held_bytes == 1399)
            await until(lambda: server.held_bytes == 999)  # that of who went away is free
            first.send(b"x")
            assert await first.status() == 200
            assert server.held_bytes == 0

    run(test())


def test_bodies_from_one_address_leave_room_for_others() -> None:
    limits = HttpLimits(bodies_bytes_max=3000, origin_bytes_max=1500)
    head = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, echo, tls=None, limits=limits) as server,
            connect(server) as first,
            connect(server) as second,
            connect(server, own_address="127.0.0.2") as other,
        ):
            first.send(head + b"x" * 999)
            await until(lambda: server.held_bytes == 999)
            second.send(head + b"x" * 999)
            assert await second.status() == 503
            other.send(head + b"x" * 1000)
            assert await other.status() == 200
            first.send(b"x")
            assert await first.status() == 200
            assert not server.held_by

    run(test())


def test_too_many_connections_from_one_address_take_each_others_place() -> None:
    limits = HttpLimits(connections_max=4)

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, echo, tls=None, limits=limits) as server,
            connect(server, own_address="127.0.0.2") as before,
        ):
            before.send(b"POST /x HTTP/1.1\r\n")
            await until(lambda: len(server.connections) == 1)
            async with contextlib.AsyncExitStack() as many:
                clients = [await many.enter_async_context(connect(server)) for _ in range(10)]
                for client in clients[:7]:
                    assert await client.is_closed_by_server()
                before.send(b"Content-Length: 0\r\n\r\n")
                assert await before.status() == 200
                clients[9].send(post("/x", b""))
                assert await clients[9].status() == 200

    run(test())


def test_a_body_is_followed_by_little() -> None:
    head = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"

    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server:
            async with connect(server) as client:
                client.send(head + b"0\r\nX-Sum: 1\r\n\r\n")
                assert (await client.answer())[2] == b"POST /x x"
            for endless in (b"1;a=" + b"b" * 20_000, b"0\r\n" + b"X: y\r\n" * 4000):
                async with connect(server) as client:
                    client.send(head)
                    await until(lambda: server.held_bytes == 1)
                    for start in range(0, len(endless), 1000):
                        client.send(endless[start : start + 1000])
                    assert await client.status() == 431
                await until(lambda: not server.held_bytes)

    run(test())


def test_a_port_in_use_is_named() -> None:
    async def test() -> None:
        async with serve_http(ADDRESS, 0, echo, tls=None) as server:
            with pytest.raises(TransportError, match=f"port {server.port}: Address already in use"):
                async with serve_http(ADDRESS, server.port, echo, tls=None):
                    pass

    run(test())


def test_no_answer_waits_for_what_was_sent_before_it_to_be_acknowledged() -> None:
    """Behind the tickets of TLS 1.3 that took the first one 40 ms more."""

    async def test() -> None:
        opened = socket.create_server((ADDRESS, 0))
        async with serve_http(ADDRESS, 0, echo, tls=None, opened=opened) as server:
            # Linux hands it down to the sockets of clients.
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            async with connect(server) as client:
                client.send(post("/x", b""))
                assert await client.status() == 200

    run(test())


def test_stopping_lets_requests_end() -> None:
    async def test() -> None:
        released = asyncio.Event()

        async def slow(request: HttpRequest) -> HttpResponse:
            await (released.wait() if request.path == "/quick" else asyncio.sleep(100))
            return HttpResponse(200, b"done")

        async with contextlib.AsyncExitStack() as stack:
            async with serve_http(ADDRESS, 0, slow, tls=None, limits=CALM) as server:
                quick, never = [await stack.enter_async_context(connect(server)) for _ in "ab"]
                quick.send(post("/quick", b""))
                never.send(post("/never", b""))
                await until(lambda: server.requests_running == 2)
                released.set()
            status, headers, _ = await quick.answer()
            assert (status, headers["connection"]) == (200, "close")
            assert await never.is_closed_by_server()

    run(test())


def test_the_answer_to_head_has_no_body_and_all_answers_are_told_of() -> None:
    told: list[tuple[str, int]] = []

    def note(request: HttpRequest | None, address: str, response: HttpResponse) -> None:
        told.append((request.method if request else "-", response.status))

    async def test() -> None:
        async with (
            serve_http(ADDRESS, 0, echo, tls=None, on_answered=note) as server,
            connect(server) as client,
        ):
            client.send(b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert b"Content-Length: 8\r\n" in head
            client.send(post("/x", b"[1]"))
            assert (await client.answer())[2] == b"POST /x [1]"
            client.send(b"rubbish\r\n\r\n")
            assert await client.status() == 400

    run(test())
    assert told == [("HEAD", 200), ("POST", 200), ("-", 400)]
