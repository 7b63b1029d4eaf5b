"""Bad input to a real WConfD: one clear error each, and the daemon goes on."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.wconfd_node import WconfdNode

from ganeti.base.errors import GenericError
from ganeti.protocol.wconfd import MESSAGE_BYTES_MAX, ObjectKind

ETX = b"\x03"
DESCRIPTORS = 1500
ME = [1, "/var/run/ganeti/livelocks/x", 1]


@pytest.fixture(scope="module")
def node() -> Iterator[WconfdNode]:
    with WconfdNode() as found:
        yield found.start()


@pytest.fixture(scope="module", autouse=True)
def _enough_descriptors() -> None:
    """The default limit of a new machine is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))


def connect(node: WconfdNode) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(60)
    sock.connect(node.paths.wconfd_socket)
    return sock


def receive(sock: socket.socket) -> Any:
    data = b""
    while not data.endswith(ETX):
        chunk = sock.recv(65536)
        assert chunk, f"closed after {data!r}"
        data += chunk
    return json.loads(data[:-1])


def ask(node: WconfdNode, data: bytes) -> Any:
    with connect(node) as sock:
        sock.sendall(data + ETX)
        return receive(sock)


def still_answers(node: WconfdNode) -> bool:
    answer = ask(node, b'{"method":"echo","args":["x"]}')
    return bool(answer == {"success": True, "result": "x"})


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"method":1}', b'{"args":[]}']
)
def test_what_is_no_request_gets_a_text_and_is_closed(node: WconfdNode, data: bytes) -> None:
    with connect(node) as sock:
        sock.sendall(data + ETX)
        answer = receive(sock)
        assert answer["success"] is False
        assert isinstance(answer["result"], str)
        assert sock.recv(1) == b""
    assert still_answers(node)


@pytest.mark.parametrize(
    ("method", "args", "text"),
    [
        ("nothing", [], "unknown method"),
        ("echo", [], "takes 1 arguments"),
        ("echo", ["a", "b"], "takes 1 arguments"),
        ("echo", [1], "echo: wrong argument text"),
        ("tryUpdateLocks", [ME, "x"], "tryUpdateLocks: wrong argument request"),
        ("tryUpdateLocks", [ME, [["cluster/BGL"]]], "tryUpdateLocks: wrong argument request"),
        ("tryUpdateLocks", [ME, [["cluster/BGL", "strongly"]]], "lock request"),
        ("tryUpdateLocks", [ME, [["cluster/BGL", "shared"]] * 2], "twice"),
        ("tryUpdateLocks", [["x"], []], "client must be"),
        ("tryUpdateLocks", [[True, "x", 1], []], "client must be"),
        ("freeLocksLevel", [ME, "attic"], "no lock level"),
        ("getInstances", [[1]], "getInstances: wrong argument keys"),
        ("getInstances", ["x"], "getInstances: wrong argument keys"),
        ("readConfig", [None], "takes 0 arguments"),
        ("updateNode", [{}], "use modifyObjects"),
        ("waitLocks", [ME, 0, [], None], "wrong argument timeout_s"),
        ("generateIp", [ME, "nowhere"], "nowhere"),
    ],
)
def test_wrong_arguments_are_named(
    node: WconfdNode, method: str, args: list[Any], text: str
) -> None:
    answer = ask(node, json.dumps({"method": method, "args": args}).encode())
    assert answer["success"] is False
    name, values = answer["result"]
    assert isinstance(name, str)
    assert "internal error" not in str(values)
    assert text in str(values) or "dead" in str(values)


def test_objects_that_are_nonsense_are_refused(node: WconfdNode) -> None:
    client = node.owner().hold_everything().client
    for wire in ({}, {"uuid": 5}, {"uuid": "x"}, {"uuid": "x", "name": ["deep"]}):
        with pytest.raises(GenericError):
            client.create(ObjectKind.NODE, wire)
        with pytest.raises(GenericError):
            client.create_instance(wire, [wire])
        with pytest.raises(GenericError):
            client.create(ObjectKind.NETWORK, wire)
    with pytest.raises(GenericError, match="cannot be changed by a client"):
        client.modify(ObjectKind.CLUSTER, "", {"uuid": "x"})
    with pytest.raises(GenericError):
        client.modify_objects([("node", "node1", {}), ("thing", "x", {})])
    client.verify_config()


def test_a_hundred_megabytes_are_refused(node: WconfdNode) -> None:
    assert MESSAGE_BYTES_MAX < 100 << 20
    chunk = b"x" * (1 << 20)
    with connect(node) as sock, contextlib.suppress(ConnectionError):  # it hangs up meanwhile
        for _ in range(100):
            sock.sendall(chunk)
    assert still_answers(node)


def test_a_thousand_idle_connections_do_not_matter(node: WconfdNode) -> None:
    socks = [connect(node) for _ in range(1000)]
    try:
        assert still_answers(node)
    finally:
        for sock in socks:
            sock.close()


def test_interleaved_and_unfinished_requests(node: WconfdNode) -> None:
    request = b'{"method":"echo","args":["%d"]}\x03'
    with connect(node) as one, connect(node) as two, connect(node) as three:
        three.sendall(b'{"method":"echo","ar')
        for byte in request % 1:
            one.sendall(bytes([byte]))
            two.sendall(b"")
        two.sendall(b"".join(request % number for number in range(50)))
        assert receive(one)["result"] == "1"
        data = b""
        while data.count(ETX) < 50:
            data += two.recv(65536)
        answers = [json.loads(part)["result"] for part in data.split(ETX)[:-1]]
        assert answers == [str(number) for number in range(50)]
    assert still_answers(node)


def test_a_client_that_never_reads_delays_nobody(node: WconfdNode) -> None:
    with connect(node) as sock:
        sock.setblocking(False)
        request = b'{"method":"readConfig","args":[]}\x03'
        for _ in range(2000):
            try:
                sock.send(request)
            except BlockingIOError:
                break
        assert still_answers(node)
