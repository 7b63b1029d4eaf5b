"""A request that a peer may have begun to carry out is never sent a second time unasked."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.transport.curl_pool import CurlPool, CurlRequest

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WAIT_S = 60


class DyingServer:
    """Answers the first request of its first connection, reads the second and hangs up.

    What comes over later connections it answers.

    Args:
        resets: it forgot the connection, as a machine does that lost its power.
    """

    def __init__(self, *, lives_on: bool = True, resets: bool = False) -> None:
        self.requests: list[bytes] = []
        self._lives_on = lives_on
        self._resets = resets
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAIT_S)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            with self._listener.accept()[0] as first:
                self._receive(first)
                first.sendall(ANSWER)
                self._receive(first)
                if self._resets:
                    first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if not self._lives_on:
                    self._listener.close()
            while True:
                with self._listener.accept()[0] as later:
                    self._receive(later)
                    later.sendall(ANSWER)
        except OSError:
            return

    def _receive(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"body"):
            chunk = connection.recv(65536)
            if not chunk:
                raise ConnectionError
            data += chunk
        self.requests.append(data)

    def close(self) -> None:
        if self._lives_on:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self._thread.join(WAIT_S)


@pytest.fixture
def server() -> Iterator[DyingServer]:
    dying = DyingServer()
    yield dying
    dying.close()


def test_a_call_that_changes_something_is_sent_once(server: DyingServer) -> None:
    pool = CurlPool(None)
    request = CurlRequest(server.url, b"body", WAIT_S, (), repeatable=False)
    assert pool.perform([request])[0].body == b"ok"
    lost = pool.perform([request])[0]
    pool.close()
    assert lost.error is not None
    assert "without an answer" in lost.error
    assert len(server.requests) == 2


@pytest.mark.parametrize("resets", [False, True])
def test_a_call_that_may_be_repeated_is_repeated(resets: bool) -> None:
    server = DyingServer(resets=resets)
    pool = CurlPool(None)
    request = CurlRequest(server.url, b"body", WAIT_S)
    assert pool.perform([request])[0].body == b"ok"
    assert pool.perform([request])[0].body == b"ok"
    pool.close()
    server.close()
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("repeatable", "said"),
    [
        (True, "closed the connection without an answer"),
        (False, "closed the connection without an answer; it may have carried out the call"),
    ],
)
def test_a_peer_that_died_with_the_call_is_not_just_refusing(repeatable: bool, said: str) -> None:
    server = DyingServer(lives_on=False)
    pool = CurlPool(None)
    request = CurlRequest(server.url, b"body", WAIT_S, (), repeatable)
    assert pool.perform([request])[0].body == b"ok"
    assert pool.perform([request])[0].error == said
    assert pool.perform([request])[0].error == "connection refused"
    pool.close()
    server.close()


def test_a_peer_that_says_nothing_is_asked_whether_it_lives() -> None:
    """A machine that lost its power never ends a connection: the kernel's timer asks it."""
    kernel_timer = {}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        pool = CurlPool(None)

        def look() -> None:
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(ANSWER[:5])  # which acknowledges the request
                kernel_timer["client"] = timer_of(connection.getpeername()[1], port)
                connection.sendall(ANSWER[5:])

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        [answer] = pool.perform([CurlRequest(f"http://127.0.0.1:{port}/", b"body", WAIT_S)])
        thread.join(WAIT_S)
        pool.close()
    assert answer.body == b"ok"
    assert kernel_timer["client"] == KEEPALIVE_TIMER


KEEPALIVE_TIMER = "02"


def timer_of(local: int, remote: int) -> str:
    """Return the kind of timer that the kernel runs for a connection between ports of this host."""
    ends = (f":{local:04X}", f":{remote:04X}")
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        _number, own, peer, _state, _queues, timer, *_rest = line.split()
        if (own[-5:], peer[-5:]) == ends:
            return timer.partition(":")[0]
    raise AssertionError("no such connection")
