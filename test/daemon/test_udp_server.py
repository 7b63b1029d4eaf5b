"""Serving datagrams: both kinds of addresses, what cannot be sent, many at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from ganeti.base.errors import TransportError
from ganeti.transport import udp_server
from ganeti.transport.udp_server import UdpServer, serve_udp

DEADLINE_S = 60.0
SIZE = 100


def talk(
    address: str | None,
    handle: udp_server.Handler,
    client: Callable[[int], None],
    during: Callable[[UdpServer], None] = lambda _server: None,
) -> None:
    """Run a client in a thread beside a server."""

    async def run() -> None:
        with serve_udp(address, 0, handle, size_bytes_max=SIZE) as server:
            during(server)
            await asyncio.wait_for(asyncio.to_thread(client, server.port), DEADLINE_S)

    asyncio.run(run())


def exchange(address: str, port: int, *datagrams: bytes) -> list[bytes]:
    """Send all, then take as many answers."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect((address, port))
        sock.settimeout(DEADLINE_S)
        for data in datagrams:
            sock.send(data)
        return [sock.recv(1 << 16) for _ in datagrams]


def has_ipv6_loopback() -> bool:
    """A machine may know IPv6 and have no such address."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_all_addresses_of_both_kinds() -> None:
    peers = []

    def handle(data: bytes, peer: str, now_s: int) -> bytes:
        assert now_s > 1_700_000_000
        peers.append(peer)
        return data.upper()

    def client(port: int) -> None:
        assert exchange("127.0.0.1", port, b"a") == [b"A"]
        if peers[0].startswith("::ffff:") and has_ipv6_loopback():
            assert exchange("::1", port, b"b") == [b"B"]

    talk(None, handle, client)
    assert peers[0].endswith("127.0.0.1")


def test_more_than_one_round_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_server, "ROUND_MAX", 3)
    sent = [b"%d" % number for number in range(20)]
    talk(
        "127.0.0.1",
        lambda data, _peer, _now: data,
        lambda port: assert_equal(exchange("127.0.0.1", port, *sent), sent),
    )


def assert_equal(found: object, expected: object) -> None:
    assert found == expected


def test_long_datagrams_are_seen_to_be_too_long() -> None:
    lengths: list[int] = []

    def handle(data: bytes, _peer: str, _now: int) -> bytes:
        lengths.append(len(data))
        return b"x"

    talk("127.0.0.1", handle, lambda port: void(exchange("127.0.0.1", port, b"y" * 5000, b"z")))
    assert lengths == [SIZE + 1, 1]


def void(_value: object) -> None:
    """Forget a value."""


def test_what_cannot_be_sent_and_what_fails_keeps_nobody_else() -> None:
    def handle(data: bytes, _peer: str, _now: int) -> bytes | None:
        match data:
            case b"huge":
                return b"x" * 70_000  # more than a datagram holds
            case b"bug":
                raise ZeroDivisionError
            case b"none":
                return None
        return data

    def client(port: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("127.0.0.1", port))
            sock.settimeout(DEADLINE_S)
            for data in (b"huge", b"bug", b"none", b"good"):
                sock.send(data)
            assert sock.recv(100) == b"good"

    talk("127.0.0.1", handle, client)


@pytest.mark.parametrize(
    ("address", "port", "text"),
    [
        ("192.0.2.77", 0, r"cannot listen on 192\.0\.2\.77:0: "),
        ("nonsense", 0, "cannot listen on nonsense:0: "),
        ("127.0.0.1", 70000, "cannot listen on 127.0.0.1:70000: "),
        ("2001:db8::77", 5, r"cannot listen on \[2001:db8::77\]:5: "),
    ],
)
def test_addresses_that_cannot_be_had_are_named(address: str, port: int, text: str) -> None:
    async def run() -> None:
        with serve_udp(address, port, lambda _d, _p, _n: None, size_bytes_max=SIZE):
            raise AssertionError

    with pytest.raises(TransportError, match=text):
        asyncio.run(run())


def test_a_taken_port_is_not_tried_with_one_kind_of_address_only() -> None:
    async def run() -> None:
        with (
            serve_udp(None, 0, lambda _d, _p, _n: None, size_bytes_max=SIZE) as server,
            pytest.raises(TransportError, match="already in use"),
            serve_udp(None, server.port, lambda _d, _p, _n: None, size_bytes_max=SIZE),
        ):
            raise AssertionError

    asyncio.run(run())
