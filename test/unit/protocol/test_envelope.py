"""Tests of ganeti/protocol/envelope.py."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import GenericError, JobLost, OpPrereqError, ProtocolError
from ganeti.protocol.envelope import (
    ETX,
    MessageSplitter,
    MessageTooLargeError,
    RefusedError,
    Request,
    RequestError,
    decode_request,
    decode_response_as,
    encode_failure,
    encode_refusal,
    encode_request,
    encode_success,
    frame,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@pytest.mark.shows("2.0/luxi/etx", "2.0/luxi/request")
def test_a_luxi_request_looks_like_this() -> None:
    assert encode_request("ArchiveJob", [12], 3000000) == (
        b'{"method":"ArchiveJob","args":[12],"version":3000000}'
    )


@pytest.mark.shows("2.12/wconfd/protocol", "2.12/wconfd-details/request")
def test_a_wconfd_request_names_no_version() -> None:
    assert encode_request("readConfig", []) == b'{"method":"readConfig","args":[]}'


@pytest.mark.shows("2.12/wconfd-details/answer", "2.0/luxi/answer")
def test_answers_look_like_this() -> None:
    assert encode_success([1, None]) == b'{"success":true,"result":[1,null]}'
    assert encode_failure(OpPrereqError("no such node", "unknown_entity")) == (
        b'{"success":false,"result":["OpPrereqError",["no such node","unknown_entity"]]}'
    )
    assert encode_refusal("bad") == b'{"success":false,"result":"bad"}'
    assert encode_failure(RequestError("bad")) == encode_refusal("bad")


@pytest.mark.shows("2.12/wconfd-details/request")
@given(st.text(max_size=10), st.lists(json_values, max_size=3))
def test_a_request_comes_back_as_it_was(method: str, args: list[object]) -> None:
    assert decode_request(encode_request(method, args, 7)) == Request(method, args, 7)


@given(json_values)
def test_a_result_comes_back_as_it_was(result: object) -> None:
    assert decode_response_as(object, encode_success(result)) == result


@pytest.mark.shows("2.12/wconfd-details/answer", "2.0/luxi/errors")
def test_a_failure_comes_back_as_the_same_error() -> None:
    with pytest.raises(JobLost, match="job 7"):
        decode_response_as(object, encode_failure(JobLost("job 7")))


def test_a_refusal_is_told_apart() -> None:
    with pytest.raises(RefusedError, match="unknown method"):
        decode_response_as(object, encode_refusal("unknown method"))


def test_an_error_from_outside_the_tree_has_a_text() -> None:
    with pytest.raises(GenericError, match="KeyError"):
        decode_response_as(object, encode_failure(KeyError()))


@pytest.mark.shows("2.0/luxi/request")
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"args":[]}',
        b'{"method":1,"args":[]}',
        b'{"method":"x","args":{}}',
        b'{"method":"x","args":[]',
        b'{"method":"x","args":[]} trailing',
        b'{"method":"\xff","args":[]}',
        b'{"method":"\\ud800","args":[]}',
        b'{"method":"x","args":[1e999]}',
        b'{"method":"x","args":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\x00" * 50,
    ],
)
def test_what_is_no_request_is_refused(message: bytes) -> None:
    with pytest.raises(RequestError, match="cannot understand the request: inv"):
        decode_request(message)


@given(st.binary(max_size=200))
def test_garbage_is_never_more_than_a_request_error(message: bytes) -> None:
    with contextlib.suppress(RequestError):
        decode_request(message)


def test_missing_arguments_are_none() -> None:
    assert decode_request(b'{"method":"x"}') == Request("x", [])


@pytest.mark.parametrize("message", [b"", b"[]", b"{}", b'{"success":1,"result":2}', b"\xff"])
def test_what_is_no_response_is_a_protocol_error(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_response_as(object, message)


def test_another_version_is_refused() -> None:
    answer = b'{"success":true,"result":1,"version":2160000}'
    assert decode_response_as(object, answer, 2160000) == 1
    assert decode_response_as(object, answer) == 1
    with pytest.raises(ProtocolError, match="speaks version 2160000, this client version 3000000"):
        decode_response_as(object, answer, 3000000)


def test_a_result_of_the_wrong_type_is_a_protocol_error() -> None:
    assert decode_response_as(int, encode_success(5)) == 5
    with pytest.raises(ProtocolError, match="Expected `int`"):
        decode_response_as(int, encode_success("5"))


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


@pytest.mark.shows("2.0/luxi/etx")
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
