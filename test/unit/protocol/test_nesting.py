"""However deeply a message is nested, its reader refuses it, on the smallest stack of a daemon.

LuxiD and WConfD, NodeD, RConfD and RapiD; MonD reads no messages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import NESTING_MAX, check_nesting, dumps, loads
from ganeti.daemon.memory import THREAD_STACK_BYTES
from ganeti.protocol import confd, node_rpc
from ganeti.protocol.confd import Signer, seal, sealable
from ganeti.protocol.envelope import RequestError, decode_request
from ganeti.protocol.node_calls import NodeCalls
from ganeti.rapid import planning
from ganeti.transport.http_message import HttpRequest

NOW = 1_700_000_000
SIGNER = Signer(b"key")
Reader = Callable[[bytes], object]


def read_confd(data: bytes) -> object:
    text = data.decode("utf-8", "replace").encode()
    return confd.open_request(SIGNER, seal(SIGNER, str(NOW), sealable(text)), NOW)


def read_rapi(data: bytes) -> object:
    headers = {"content-type": "application/json", "content-length": str(len(data))}
    request = HttpRequest("POST", "/2/instances", headers, data, None, "127.0.0.1")
    return planning.read_inputs(planning.find_target(request), request)


def read_luxi(data: bytes) -> object:
    return decode_request(data)


def read_wconfd(data: bytes) -> object:
    return decode_request(b'{"method":"echo","args":[%b]}' % data)


def read_node_rpc(data: bytes) -> object:
    return node_rpc.decode_arguments(NodeCalls.calls["version"], data)


READERS = (read_luxi, read_wconfd, read_node_rpc, read_confd, read_rapi)


def on_a_small_stack(read: Reader, data: bytes) -> Exception | None:
    """Return what reading raised; a stack that is too small ends the process."""
    found: list[Exception] = []

    def work() -> None:
        try:
            read(data)
        except Exception as err:
            found.append(err)

    before = threading.stack_size(THREAD_STACK_BYTES)
    try:
        thread = threading.Thread(target=work)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    return found[0] if found else None


pieces = st.sampled_from(
    [b"[", b'{"a":', b"[[1],", b'{"]":"\\"]","b":', b'["[{\\\\",', b'[{"args":[],"x":']
)
deep = st.builds(
    lambda piece, times, others: piece * times + b"".join(others),
    pieces,
    st.sampled_from([1000, 5000, 50_000]),
    st.lists(pieces, max_size=5),
)


@pytest.mark.parametrize("read", READERS)
@settings(max_examples=40, deadline=None)
@given(deep)
def test_what_is_nested_too_deeply_is_one_clear_error(read: Reader, data: bytes) -> None:
    if read is read_confd:
        data = data[: confd.DATAGRAM_BYTES_MAX // 2]  # a longer one is refused for that
    error = on_a_small_stack(read, data)
    assert isinstance(error, GenericError | RequestError)
    assert "nested too deeply" in str(error)


json_values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}"\\a', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('[]{}"\\', max_size=3), inner)
    ),
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(json_values, st.integers(0, 12))
def test_the_depth_is_that_of_the_brackets_outside_of_texts(value: object, limit: int) -> None:
    data = dumps(value)
    if depth(value) <= limit:
        check_nesting(data, limit)
    else:
        with pytest.raises(ProtocolError):
            check_nesting(data, limit)


def test_as_deep_as_is_allowed() -> None:
    assert on_a_small_stack(loads, b"[" * NESTING_MAX + b"]" * NESTING_MAX) is None
    with pytest.raises(ProtocolError, match="deeply"):
        loads(b"[" * (NESTING_MAX + 1) + b"]" * (NESTING_MAX + 1))


def test_the_work_of_looking_is_bounded() -> None:
    data = (b"[" * 90 + b"]" * 90) * 20_000  # each level would cost a pass over all of it
    with pytest.raises(ProtocolError, match="deeply"):
        check_nesting(data)
