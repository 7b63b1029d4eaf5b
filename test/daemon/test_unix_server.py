"""Tests of ganeti/transport/unix_server.py over live sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakes.loop import run
from fakes.waiting import until

from ganeti.base.errors import GenericError, JobLost, TransportError
from ganeti.protocol.envelope import Request, RequestError
from ganeti.transport.unix_server import Connection, UnixLimits, serve_unix


async def echo(request: Request, connection: Connection) -> object:
    return [request.method, *request.args]


class Client:
    """A client that may misbehave."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, method: str, *args: object) -> None:
        self.send(json.dumps({"method": method, "args": args}).encode() + b"\x03")

    async def answer(self) -> Any:
        return json.loads((await self.reader.readuntil(b"\x03"))[:-1])

    async def result(self) -> Any:
        answer = await self.answer()
        assert answer["success"], answer
        return answer["result"]

    async def failure(self) -> Any:
        answer = await self.answer()
        assert not answer["success"], answer
        return answer["result"]

    async def is_closed_by_server(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return await self.reader.read() == b""
        return True


@contextlib.asynccontextmanager
async def connect(path: Path | str) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=64 << 20)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


@pytest.fixture
def path(tmp_path: Path) -> str:
    short = os.path.relpath(tmp_path / "socket")
    return str(tmp_path / "socket") if len(str(tmp_path)) < 90 else short


@pytest.mark.shows("2.12/wconfd-details/many-calls")
def test_requests_sent_ahead_are_answered_in_order(path: str) -> None:
    delays = {"a": 0.05, "b": 0.0, "c": 0.02}

    async def handler(request: Request, connection: Connection) -> object:
        await asyncio.sleep(delays[request.method])
        return request.method

    async def test() -> None:
        async with serve_unix(path, 0o660, handler), connect(path) as client:
            for method in "abcba":
                client.ask(method)
            assert [await client.result() for _ in range(5)] == list("abcba")

    run(test())


@pytest.mark.shows("2.0/masterd/others-served")
def test_a_waiting_request_delays_no_other_connection(path: str) -> None:
    async def test() -> None:
        released = asyncio.Event()

        async def handler(request: Request, connection: Connection) -> object:
            if request.method == "wait":
                await released.wait()
            return request.method

        async with serve_unix(path, 0o660, handler), connect(path) as slow, connect(path) as quick:
            slow.ask("wait")
            quick.ask("quick")
            assert await quick.result() == "quick"
            released.set()
            assert await slow.result() == "wait"

    run(test())


@pytest.mark.shows("backend/masterd/luxi", "2.12/wconfd/unix-sockets", "2.0/master/luxi")
def test_the_socket_has_its_mode_and_replaces_a_stale_one(path: str) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()

    async def test() -> None:
        async with serve_unix(path, 0o600, echo), connect(path) as client:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            client.ask("x")
            assert await client.result() == ["x"]
        assert not os.path.exists(path)
        assert os.listdir(os.path.dirname(path)) == []

    run(test())


def test_a_directory_that_is_missing_is_named(path: str) -> None:
    async def test() -> None:
        with pytest.raises(TransportError, match="/nowhere/socket: No such file"):
            async with serve_unix("/nowhere/socket", 0o600, echo):
                pass
        with pytest.raises(TransportError, match="longer than 107 bytes"):
            async with serve_unix("/" + "x" * 107, 0o600, echo):
                pass

    run(test())


def test_an_error_inside_is_raised_as_it_is(path: str) -> None:
    async def test() -> None:
        async with serve_unix(path, 0o600, echo):
            raise JobLost("7")

    with pytest.raises(JobLost):
        run(test())


def test_the_handler_knows_who_asks(path: str) -> None:
    async def handler(request: Request, connection: Connection) -> object:
        return [connection.peer_pid, connection.peer_uid]

    async def test() -> None:
        async with serve_unix(path, 0o660, handler), connect(path) as client:
            client.ask("who")
            assert await client.result() == [os.getpid(), os.getuid()]

    run(test())


def test_errors_are_encoded_and_the_connection_lives(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: Request, connection: Connection) -> object:
        if request.method == "lost":
            raise JobLost("job 7 is lost")
        if request.method == "odd":
            raise GenericError(object())
        if request.method == "unencodable":
            return object()
        if request.method == "surrogate":
            return "\udcff"
        raise KeyError("oops")

    async def test() -> None:
        async with serve_unix(path, 0o660, handler), connect(path) as client:
            client.ask("lost")
            assert await client.failure() == ["JobLost", ["job 7 is lost"]]
            for method in ("odd", "unencodable", "surrogate", "bug"):
                client.ask(method)
                name, args = await client.failure()
                assert name == "GenericError"
                assert args[0]
            assert args[0] == "internal error in bug: KeyError: 'oops'"

    run(test())
    assert "Internal error in request bug" in caplog.text
    assert "KeyError: 'oops'" in caplog.text


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x03",
        b"hello\x03",
        b"[1,2]\x03",
        b'{"method":"\xff\xfe","args":[]}\x03',
        b'{"method":5,"args":[]}\x03',
        b'{"method":"x","args":' + b"[" * 200_000 + b"\x03",
        b'{"method":"x","args":' + b'{"a":' * 200_000 + b"\x03",
    ],
)
def test_garbage_gets_one_plain_text_and_the_connection_is_closed(
    path: str, garbage: bytes
) -> None:
    async def test() -> None:
        async with serve_unix(path, 0o660, echo):
            async with connect(path) as client:
                client.ask("before")
                client.send(garbage)
                client.ask("after")
                assert await client.result() == ["before"]
                assert "cannot understand the request" in await client.failure()
                assert await client.is_closed_by_server()
            async with connect(path) as client:
                client.ask("x")
                assert await client.result() == ["x"]

    run(test())


def test_any_bytes_are_survived(path: str, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(7)
    good = b'{"method":"x","args":[1,{"a":[null,"\\u00fc"]}],"version":3000000}\x03'

    def damaged() -> bytes:
        data = bytearray(good * chance.randint(1, 3))
        for _ in range(chance.randint(1, 5)):
            data[chance.randrange(len(data))] = chance.choice(b'\x00\x03\xff"{}[],:\\1e')
        return bytes(data[: chance.randint(1, len(data))])

    async def test() -> None:
        async with serve_unix(path, 0o660, echo) as server:
            for _ in range(300):
                async with connect(path) as client:
                    client.send(damaged())
                    client.writer.write_eof()
                    await client.is_closed_by_server()
            async with connect(path) as client:
                client.send(good)
                assert (await client.result())[0] == "x"
        assert server.held_bytes == 0

    run(test())
    assert "rror" not in caplog.text


def test_a_handler_can_refuse_like_garbage(path: str) -> None:
    async def handler(request: Request, connection: Connection) -> object:
        raise RequestError(f"unknown method {request.method!r}")

    async def test() -> None:
        async with serve_unix(path, 0o660, handler), connect(path) as client:
            client.ask("Nonsense")
            client.ask("Nonsense")
            assert await client.failure() == "unknown method 'Nonsense'"
            assert await client.is_closed_by_server()

    run(test())


def test_too_large_a_message_is_refused_though_the_client_goes_on_sending(path: str) -> None:
    limits = UnixLimits(message_bytes_max=1000, linger_s=60.0)

    async def test() -> None:
        async with serve_unix(path, 0o660, echo, limits), connect(path) as client:
            client.ask("before")
            client.send(b'{"method":"' + b"x" * 20_000_000 + b"\x03")
            assert await client.result() == ["before"]
            assert await client.failure() == "message is larger than 1000 bytes"
            assert await client.is_closed_by_server()

    run(test())


def test_a_refused_client_that_stays_is_dropped(path: str) -> None:
    limits = UnixLimits(linger_s=0.05)

    async def test() -> None:
        async with serve_unix(path, 0o660, echo, limits) as server, connect(path) as client:
            client.send(b"garbage\x03")
            await client.failure()
            await until(lambda: not server.connections)

    run(test())


def test_a_half_closed_client_still_gets_its_answers(path: str) -> None:
    async def handler(request: Request, connection: Connection) -> object:
        await asyncio.sleep(0.02)
        return [request.method, connection.is_closed]

    async def test() -> None:
        async with serve_unix(path, 0o660, handler), connect(path) as client:
            client.ask("a")
            client.ask("b")
            client.writer.write_eof()
            assert await client.result() == ["a", False]
            assert await client.result() == ["b", False]
            assert await client.is_closed_by_server()

    run(test())


def test_a_handler_learns_that_its_client_is_gone(path: str) -> None:
    async def test() -> None:
        seen = asyncio.Event()

        async def handler(request: Request, connection: Connection) -> object:
            assert not connection.is_closed
            await connection.wait_closed()
            assert connection.is_closed
            await connection.wait_closed()
            seen.set()
            return None

        async with serve_unix(path, 0o660, handler) as server:
            async with connect(path) as client:
                client.ask("wait")
                await until(lambda: server.requests_running)
            await seen.wait()

    run(test())


def test_work_goes_on_when_the_client_is_gone(path: str) -> None:
    async def test() -> None:
        begun, done = asyncio.Event(), asyncio.Event()

        async def handler(request: Request, connection: Connection) -> object:
            begun.set()
            await asyncio.sleep(0.05)
            done.set()
            return "x" * 1_000_000

        async with serve_unix(path, 0o660, handler):
            async with connect(path) as client:
                client.ask("submit")
                await begun.wait()
            await done.wait()

    run(test())


def test_a_client_that_never_reads_is_bounded_and_dropped(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    limits = UnixLimits(unread_s_max=0.2)
    answers = 0

    async def handler(request: Request, connection: Connection) -> object:
        nonlocal answers
        answers += 1
        return "x" * 100_000

    async def test() -> None:
        async with serve_unix(path, 0o660, handler, limits) as server, connect(path) as client:
            client.reader._transport.pause_reading()  # type: ignore[attr-defined] # asyncio reads ahead
            for _ in range(1000):
                client.ask("more")
            await until(lambda: answers > 0)
            await until(lambda: not server.connections)

    run(test())
    assert answers < 20
    assert "has not read its answer for 0.2 s" in caplog.text
    assert f"client with pid {os.getpid()}" in caplog.text


def test_a_slow_reader_is_served(path: str) -> None:
    limits = UnixLimits(unread_s_max=1.0)
    size = 4_000_000

    async def handler(request: Request, connection: Connection) -> object:
        return "x" * size

    async def test() -> None:
        async with serve_unix(path, 0o660, handler, limits):
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_UNIX) as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, path)
                await loop.sock_sendall(sock, b'{"method":"x"}\x03')
                received = b""
                while not received.endswith(b"\x03"):
                    received += await loop.sock_recv(sock, 300_000)
                    await asyncio.sleep(0.1)
        assert len(received) > size

    run(test())


def test_too_many_requests_ahead_are_left_in_the_kernel(path: str) -> None:
    limits = UnixLimits(requests_waiting_max=3)

    async def test() -> None:
        released = asyncio.Event()

        async def handler(request: Request, connection: Connection) -> object:
            await released.wait()
            return request.args[0]

        async with serve_unix(path, 0o660, handler, limits) as server, connect(path) as client:
            padding = "x" * 300_000  # more than is read at once
            for number in range(20):
                client.ask("x", number, padding)
            await until(lambda: server.requests_running)
            await asyncio.sleep(0.05)
            assert server.held_bytes < 5 * 400_000
            released.set()
            assert [await client.result() for _ in range(20)] == list(range(20))
        assert server.held_bytes == 0

    run(test())


def test_unfinished_requests_of_all_clients_share_one_bound(path: str) -> None:
    limits = UnixLimits(held_bytes_max=1_000_000)

    async def test() -> None:
        async with serve_unix(path, 0o660, echo, limits) as server:
            async with connect(path) as first, connect(path) as second:
                first.send(b'{"method":"' + b"x" * 800_000)
                await until(lambda: server.held_bytes > 700_000)
                second.send(b'{"method":"' + b"x" * 800_000)
                assert "too many requests" in await second.failure()
                first.send(b'"}\x03')
                assert len((await first.result())[0]) == 800_000
            await until(lambda: not server.connections)
            assert server.held_bytes == 0

    run(test())


def test_too_many_connections_are_refused(path: str) -> None:
    limits = UnixLimits(connections_max=2)

    async def test() -> None:
        async with serve_unix(path, 0o660, echo, limits) as server:
            async with connect(path), connect(path):
                await until(lambda: len(server.connections) == 2)
                async with connect(path) as third:
                    assert await third.failure() == "too many connections, try again later"
            await until(lambda: not server.connections)
            async with connect(path) as client:
                client.ask("x")
                assert await client.result() == ["x"]

    run(test())


def test_a_stranger_is_told_nothing(path: str) -> None:
    async def test() -> None:
        limits = UnixLimits(strangers=frozenset({os.getuid()}))
        async with serve_unix(path, 0o660, echo, limits), connect(path) as client:
            assert await client.failure() == "your user has no business here"

    run(test())


def test_a_thousand_idle_connections_cost_little(path: str) -> None:
    count = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * count:
        pytest.skip("too few open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * count), hard))

    async def test() -> None:
        async with serve_unix(path, 0o660, echo) as server:
            before = resident_kib()
            idle = []
            for number in range(count):
                sock = socket.socket(socket.AF_UNIX)
                sock.connect(path)
                if number % 2:
                    sock.sendall(b'{"method":"hang')
                idle.append(sock)
            await until(lambda: len(server.connections) == count)
            assert not server.requests_running
            assert resident_kib() - before < 10 * count  # KiB
            async with connect(path) as client:
                client.ask("x")
                assert await client.result() == ["x"]
            for sock in idle:
                sock.close()
            await until(lambda: not server.connections)

    try:
        run(test())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_stopping_lets_requests_end_then_cancels_them(path: str) -> None:
    limits = UnixLimits(drain_s=0.1)

    async def test() -> None:
        released = asyncio.Event()

        async def handler(request: Request, connection: Connection) -> object:
            await (released.wait() if request.method == "quick" else asyncio.sleep(100))
            return "done"

        async with contextlib.AsyncExitStack() as stack:
            quick, slow, idle = [
                await stack.enter_async_context(connect_later(path)) for _ in "abc"
            ]
            async with serve_unix(path, 0o660, handler, limits) as server:
                for client in (quick, slow, idle):
                    await client.open()
                quick.ask("quick")
                slow.ask("slow")
                await until(lambda: len(server.connections) == 3 and server.requests_running)
                released.set()
            assert await quick.result() == "done"
            assert await quick.is_closed_by_server()
            assert await slow.is_closed_by_server()
            assert await idle.is_closed_by_server()

    run(test())


@contextlib.asynccontextmanager
async def connect_later(path: str) -> AsyncIterator[LateClient]:
    client = LateClient(path)
    try:
        yield client
    finally:
        client.writer.transport.abort()


class LateClient(Client):
    """A client that connects when told to."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_unix_connection(self.path)


def test_invalid_chunks_of_many_clients_do_not_mix(path: str) -> None:
    async def talk(number: int) -> None:
        async with connect(path) as client:
            for turn in range(20):
                message = json.dumps({"method": f"{number}-{turn}", "args": []}).encode() + b"\x03"
                for cut in range(0, len(message), 7):
                    client.send(message[cut : cut + 7])
                    await asyncio.sleep(0)
                assert await client.result() == [f"{number}-{turn}"]

    async def test() -> None:
        async with serve_unix(path, 0o660, echo), asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(talk(number))

    run(test())


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")
