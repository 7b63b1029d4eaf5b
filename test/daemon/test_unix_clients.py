"""Tests of ganeti/transport/unix_client.py and async_unix_client.py against live servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.in_thread import served
from fakes.loop import run

from ganeti.base.errors import GenericError, JobLost, ProtocolError
from ganeti.protocol.envelope import (
    RefusedError,
    Request,
    RequestError,
    decode_response_as,
    encode_request,
)
from ganeti.transport import unix_client
from ganeti.transport.async_unix_client import AsyncUnixClient
from ganeti.transport.unix_client import (
    AnswerTimeoutError,
    ConnectionLostError,
    NobodyListensError,
    UnixClient,
)
from ganeti.transport.unix_server import Connection, UnixLimits, serve_unix

Script = Callable[[socket.socket], None]


async def handler(request: Request, connection: Connection) -> object:
    match request.method:
        case "fail":
            raise JobLost("job 7")
        case "refuse":
            raise RequestError("unknown method 'refuse'")
        case "wait":
            await asyncio.sleep(float(str(request.args[0])))
        case "large":
            return "x" * int(str(request.args[0]))
    return [request.method, request.args, request.version]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "s")


@pytest.fixture
def server(path: str) -> Iterator[str]:
    with served(
        lambda: serve_unix(path, 0o660, handler, UnixLimits(message_bytes_max=10_000, drain_s=0.1))
    ):
        yield path


@contextlib.contextmanager
def scripted(path: str, *scripts: Script) -> Iterator[None]:
    """A server that does with one connection after the other what the scripts say."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(5)
    listener.settimeout(60)

    def serve() -> None:
        with contextlib.suppress(OSError):  # the test is over
            for script in scripts:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(60)
                    script(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
        listener.close()
        assert not thread.is_alive()


def say(answer: bytes) -> Script:
    def script(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)
        with contextlib.suppress(ConnectionError):
            connection.recv(65536)

    return script


def hang_up(connection: socket.socket) -> None:
    connection.recv(65536)


def test_blocking_calls_and_their_errors(server: str) -> None:
    with UnixClient(server, version=3000000) as client:
        assert client.call("x", [1]) == ["x", [1], 3000000]
        with pytest.raises(JobLost, match="job 7"):
            client.call("fail", [])
        with pytest.raises(RefusedError, match="unknown method 'refuse'"):
            client.call("refuse", [])
        assert client.call("x", []) == ["x", [], 3000000]
        assert client.call_as(str, "large", [3]) == "xxx"
        assert len(str(client.call("large", [5_000_000]))) == 5_000_000


def test_the_reason_is_read_even_if_the_server_stops_listening(server: str) -> None:
    with (
        UnixClient(server) as client,
        pytest.raises(RefusedError, match="message is larger than 10000 bytes"),
    ):
        client.call("x", ["y" * 20_000_000])


def test_a_missing_and_a_stale_socket_are_told_apart(path: str) -> None:
    with pytest.raises(NobodyListensError, match="no such socket"):
        UnixClient(path).call("x", [])
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.close()
    with pytest.raises(NobodyListensError, match="connection refused"):
        UnixClient(path).call("x", [])


@pytest.mark.shows("2.0/luxi/in-time")
def test_no_answer_in_time(server: str) -> None:
    with UnixClient(server, timeout_s=0.1) as impatient:
        with pytest.raises(AnswerTimeoutError, match="no answer"):
            impatient.call("wait", [100])
        assert impatient.call("wait", [0.2], timeout_s=60) == ["wait", [0.2], None]
    with UnixClient(server) as client:
        with pytest.raises(AnswerTimeoutError, match="no answer"):
            client.call("wait", [100], timeout_s=0.1)
        assert client.call("x", []) == ["x", [], None]


def test_a_full_backlog_is_waited_for(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    fillers = []
    for _ in range(2):
        filler = socket.socket(socket.AF_UNIX)
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            filler.connect(path)
        fillers.append(filler)
    with pytest.raises(NobodyListensError, match="overloaded"):
        UnixClient(path, connect_timeout_s=0.1).call("x", [])

    async def test() -> None:
        with pytest.raises(NobodyListensError, match="overloaded"):
            await ask(looping(path, connect_timeout_s=0.1), "x", [])

    run(test())
    for sock in (*fillers, listener):
        sock.close()


def test_a_connection_that_broke_between_calls_is_opened_again(path: str) -> None:
    def answer_once(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b'{"success":true,"result":1}\x03')

    with scripted(path, answer_once, answer_once), UnixClient(path) as client:
        assert client.call("x", []) == 1
        assert select.select([client._socket], [], [], 60)[0]  # it hangs up
        assert client.call("x", []) == 1


def test_a_connection_that_breaks_within_a_call_is_an_error(path: str) -> None:
    with (
        scripted(path, hang_up),
        UnixClient(path) as client,
        pytest.raises(ConnectionLostError, match="closed the connection before it answered"),
    ):
        client.call("x", [])


@pytest.mark.parametrize(
    "answer", [b"rubbish\x03", b"\x03", b'{"success":true}\x03', b"[1]\x03", b"\xff\x03"]
)
def test_an_answer_that_makes_no_sense_is_a_protocol_error(path: str, answer: bytes) -> None:
    with scripted(path, say(answer)), UnixClient(path) as client, pytest.raises(ProtocolError):
        client.call("x", [])


def test_an_answer_without_end_is_bounded(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_client, "MESSAGE_BYTES_MAX", 1000)
    with (
        scripted(path, say(b"x" * 1001)),
        UnixClient(path) as client,
        pytest.raises(ProtocolError, match="larger than 1000 bytes"),
    ):
        client.call("x", [])


def test_an_answer_in_pieces_is_put_together(path: str) -> None:
    def dribble(connection: socket.socket) -> None:
        connection.recv(65536)
        for byte in b'{"success":true,"result":"ab"}\x03':
            connection.sendall(bytes([byte]))

    with scripted(path, dribble), UnixClient(path) as client:
        assert client.call("x", []) == "ab"


def test_a_signal_handler_that_raises_leaves_no_stale_answer(server: str) -> None:
    class Canceled(Exception):
        pass

    def raise_canceled(_number: int, _frame: object) -> None:
        raise Canceled

    previous = signal.signal(signal.SIGALRM, raise_canceled)
    try:
        with UnixClient(server) as client:

            def call() -> None:
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                client.call("wait", [0.1])

            with pytest.raises(Canceled):
                call()
            assert client.call("x", [2]) == ["x", [2], None]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_the_blocking_client_is_lean() -> None:
    code = (
        "import sys; import ganeti.transport.unix_client;"
        "print(sorted({'asyncio', 'ssl', 'logging', 'subprocess', 'pycurl', 'dataclasses'}"
        " & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=os.getcwd()
    )
    assert found.stdout.strip() == "[]"


def looping(
    path: str, *, connect_timeout_s: float = 30.0, timeout_s: float = 60.0
) -> AsyncUnixClient:
    return AsyncUnixClient(path, connect_timeout_s=connect_timeout_s, timeout_s=timeout_s)


async def ask(client: AsyncUnixClient, method: str, args: list[object]) -> object:
    answer = await client.exchange(encode_request(method, args))
    try:
        return decode_response_as(object, answer)
    except RefusedError:
        client.close()  # as the server does
        raise


def test_calls_from_a_loop_and_their_errors(server: str) -> None:
    async def test() -> None:
        with contextlib.closing(looping(server)) as client:
            assert await ask(client, "x", [1]) == ["x", [1], None]
            with pytest.raises(JobLost):
                await ask(client, "fail", [])
            with pytest.raises(RefusedError):
                await ask(client, "refuse", [])
            assert await ask(client, "x", []) == ["x", [], None]
            assert len(str(await ask(client, "large", [5_000_000]))) == 5_000_000

    run(test())


def test_a_call_from_a_loop_that_times_out_closes_the_connection(server: str) -> None:
    async def test() -> None:
        with contextlib.closing(looping(server, timeout_s=0.3)) as client:
            assert await ask(client, "x", [0]) == ["x", [0], None]
            with pytest.raises(AnswerTimeoutError):
                await ask(client, "wait", [100])
            assert await ask(client, "x", [2]) == ["x", [2], None]

    run(test())


def test_tasks_that_ask_at_the_same_time_get_their_own_answers(server: str) -> None:
    async def test() -> None:
        with contextlib.closing(looping(server)) as client:
            answers = await asyncio.gather(*(ask(client, "x", [number]) for number in range(20)))
            assert answers == [["x", [number], None] for number in range(20)]

    run(test())


def test_who_is_cancelled_takes_no_answer_from_others(server: str) -> None:
    async def test() -> None:
        with contextlib.closing(looping(server)) as client:
            asking = asyncio.create_task(ask(client, "wait", [0.2]))
            impatient = asyncio.create_task(ask(client, "x", [1]))
            patient = asyncio.create_task(ask(client, "x", [2]))
            await asyncio.sleep(0)
            impatient.cancel()
            assert await asking == ["wait", [0.2], None]
            assert await patient == ["x", [2], None]
            asking = asyncio.create_task(ask(client, "wait", [100]))
            patient = asyncio.create_task(ask(client, "x", [3]))
            await asyncio.sleep(0)
            asking.cancel()
            assert await patient == ["x", [3], None]

    run(test())


def test_from_a_loop_nobody_listens(path: str) -> None:
    async def test() -> None:
        with pytest.raises(NobodyListensError, match="no such socket"):
            await ask(looping(path), "x", [])

    run(test())


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (hang_up, ConnectionLostError),
        (say(b"rubbish\x03"), ProtocolError),
        (say(b'{"success":true,"result":1}\x03{"success":true,"result":2}\x03'), None),
    ],
)
def test_from_a_loop_a_peer_that_breaks_the_rules(
    path: str, script: Script, error: type[GenericError] | None
) -> None:
    async def test() -> None:
        with contextlib.closing(looping(path)) as client:
            if error is None:
                assert await ask(client, "x", []) == 1
            else:
                with pytest.raises(error):
                    await ask(client, "x", [])

    with scripted(path, script):
        run(test())


def test_an_answer_that_was_not_asked_for_is_never_taken_for_another(path: str) -> None:
    """The connection is opened anew, so that answers do not shift."""
    twice = say(b'{"success":true,"result":1}\x03{"success":true,"result":2}\x03')

    async def test() -> None:
        with contextlib.closing(looping(path)) as client:
            assert await ask(client, "x", []) == 1
            assert await ask(client, "x", []) == 1

    with scripted(path, twice, twice):
        run(test())


def test_closing_fails_the_call_under_way(server: str) -> None:
    async def test() -> None:
        client = looping(server)
        await ask(client, "x", [0])  # so that there is a connection
        call = asyncio.ensure_future(ask(client, "wait", [100]))
        await asyncio.sleep(0)  # it asks
        client.close()
        with pytest.raises(ConnectionLostError):
            await call

    run(test())
