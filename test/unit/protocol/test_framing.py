"""Tests of ganeti/protocol/framing.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ProtocolError
from ganeti.protocol.framing import ETX, MessageSplitter, MessageTooLargeError, frame

STREAM = b"[1]\x03[22]\x03[3"  # the third message is unfinished

messages = st.lists(st.binary(max_size=30).map(lambda data: data.replace(ETX, b"")), max_size=20)


def split(stream: bytes, cuts: list[int], size_bytes_max: int) -> tuple[list[bytes], bool]:
    """Feed the stream in pieces; returns the messages, and whether one was too large."""
    splitter = MessageSplitter(size_bytes_max)
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
    found: list[bytes] = []
    start = 0
    for end in ends:
        try:
            found += splitter.feed(stream[start:end])
        except MessageTooLargeError as err:
            return found + err.complete, True
        start = end
    return found, False


@pytest.mark.parametrize("size", [1, 2, 5, 99])
def test_any_chunk_size_gives_the_same_messages(size: int) -> None:
    splitter = MessageSplitter(size_bytes_max=100)
    chunks = [STREAM[i : i + size] for i in range(0, len(STREAM), size)]
    assert [m for chunk in chunks for m in splitter.feed(chunk)] == [b"[1]", b"[22]"]
    assert splitter.pending_bytes == 2


@given(messages, st.lists(st.integers(0, 700), max_size=30), st.binary(max_size=10))
def test_any_chunking_gives_the_same_messages(
    sent: list[bytes], cuts: list[int], rest: bytes
) -> None:
    stream = b"".join(map(frame, sent)) + rest.replace(ETX, b"")
    assert split(stream, cuts, 1000) == (sent, False)


@given(messages, st.lists(st.integers(0, 700), max_size=30), st.integers(0, 30))
def test_a_message_is_too_large_however_it_was_cut(
    sent: list[bytes], cuts: list[int], limit: int
) -> None:
    fitting: list[bytes] = []
    for message in sent:
        if len(message) > limit:
            break
        fitting.append(message)
    expected = (fitting, len(fitting) < len(sent))
    assert split(b"".join(map(frame, sent)), cuts, limit) == expected


def test_a_message_as_large_as_the_limit_passes() -> None:
    assert MessageSplitter(4).feed(b"1234\x03") == [b"1234"]


def test_after_too_large_a_message_nothing_is_understood() -> None:
    splitter = MessageSplitter(4)
    with pytest.raises(MessageTooLargeError, match="larger than 4 bytes") as caught:
        splitter.feed(b"1\x0312345\x032\x03")
    assert caught.value.complete == [b"1"]
    assert splitter.pending_bytes == 0
    with pytest.raises(ProtocolError):
        splitter.feed(b"\x03")


def test_nothing_gives_nothing() -> None:
    assert MessageSplitter(4).feed(b"") == []
    assert MessageSplitter(4).feed(b"\x03") == [b""]
