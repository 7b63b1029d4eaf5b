"""Tests of ganeti/transport/websocket.py: the examples of RFC 6455, and what breaks its rules."""

from __future__ import annotations

import pytest

from ganeti.base.errors import ProtocolError
from ganeti.transport import websocket
from ganeti.transport.websocket import Close, Frame, Frames, Op

HELLO = bytes.fromhex("818537fa213d7f9f4d5158")  # RFC 6455, 5.7: a masked "Hello"
HEADERS = {
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-protocol": "chat, superchat",
}


def masked(op: int, data: bytes, *, last: bool = True) -> bytes:
    """Return the frame of a client; a mask of zeros changes nothing."""
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([(0x80 if last else 0) | op]) + length + bytes(4) + data


def test_the_handshake_of_the_standard() -> None:
    found = websocket.accept_headers(HEADERS, "chat")
    assert found["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert found["Sec-WebSocket-Protocol"] == "chat"


@pytest.mark.parametrize(
    "wrong",
    [
        {"upgrade": "h2c"},
        {"sec-websocket-version": "8"},
        {"sec-websocket-key": "c2hvcnQ="},
        {"sec-websocket-key": "!"},
        {"sec-websocket-protocol": "other"},
    ],
)
def test_another_handshake_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        websocket.accept_headers({**HEADERS, **wrong}, "chat")


@pytest.mark.parametrize("step", [1, 3, 100])
def test_messages_are_put_together(step: int) -> None:
    long = bytes(range(256)) * 2
    sent = HELLO + masked(2, b"a", last=False) + masked(9, b"p") + masked(0, b"b") + masked(2, long)
    frames = Frames()
    found = [each for at in range(0, len(sent), step) for each in frames.feed(sent[at : at + step])]
    assert found == [
        Frame(Op.TEXT, b"Hello"),
        Frame(Op.PING, b"p"),
        Frame(Op.BINARY, b"ab"),
        Frame(Op.BINARY, long),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x81\x05Hello",  # not masked
        masked(3, b""),  # of no kind
        masked(0, b"x"),  # goes on with nothing
        masked(1, b"x", last=False) + masked(1, b"y"),  # begins within another
        masked(8, b"x" * 126),  # a control frame too large
        masked(9, b"x", last=False),  # one in pieces
        b"\xc1\x80" + bytes(4),  # of an extension
        masked(2, b"x" * 200),  # too large
        masked(2, b"x" * 60, last=False) + masked(0, b"x" * 60),  # too large together
    ],
)
def test_who_breaks_the_rules_is_told(wrong: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(Frames(100).feed(wrong))


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_lengths_are_written_as_short_as_possible(size: int) -> None:
    frame = websocket.encode(Op.BINARY, b"x" * size)
    assert len(frame) - size == (2 if size < 126 else 4 if size < 65536 else 10)


def test_a_long_reason_is_cut_at_a_letter() -> None:
    frame = websocket.encode_close(Close.FAILED, "ä" * 100)
    assert frame[1] == 2 + 122
    assert frame[4:].decode() == "ä" * 61
