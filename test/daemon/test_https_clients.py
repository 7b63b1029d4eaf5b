"""Tests of the node RPC clients and their pools of connections against live servers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from fakes.in_thread import served
from fakes.loop import run
from fakes.tls_node import TlsNode
from fakes.waiting import PROMPT_S

from ganeti.base.errors import OpExecError, ProtocolError, X509CertError
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import URGENT_S, Place, changes
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.protocol.service import Service
from ganeti.system import certificates, clock
from ganeti.transport.http_message import HttpRequest, HttpResponse
from ganeti.transport.http_server import HttpLimits, HttpServer, serve_http
from ganeti.transport.tls import CandidatePolicy, node_server_context

OLD_CERTIFICATES = Path(__file__).parents[1] / "data/certificates_v1"
ADDRESS = "127.0.0.1"
LIMITS = HttpLimits(drain_s=0.1, linger_s=0.1)
Caller = Callable[..., dict[str, RpcResult[object]]]


class Echo(Service):
    @changes(URGENT_S, Place.DAEMON)
    def echo(self, value: object) -> object:
        """Return the arguments."""


ROWS = {**NodeCalls.calls, **Echo.calls}


class FakeNoded:
    """Serves any call; counts connections and notes requests."""

    def __init__(self, node: TlsNode) -> None:
        self.node = node
        self.requests: list[tuple[str, object]] = []
        self.headers: dict[str, str] = {}
        self.peers: set[int] = set()
        self.answers: dict[str, HttpResponse] = {}
        self.server: HttpServer | None = None
        self.closes = False
        self.meeting: asyncio.Barrier | None = None

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[FakeNoded]:
        context = node_server_context(self.node.paths)
        policy = CandidatePolicy(self.node.paths, node_name="remote")

        def authorize(request: HttpRequest) -> HttpResponse | None:
            refusal = policy.refusal(request.peer)
            return None if refusal is None else HttpResponse.text(403, refusal, close=True)

        async with serve_http(
            ADDRESS, 0, self.handle, tls=context, authorize=authorize, limits=LIMITS
        ) as self.server:
            yield self

    async def handle(self, request: HttpRequest) -> HttpResponse:
        assert self.server is not None
        self.peers |= {id(connection) for connection in self.server.connections}
        args = json.loads(request.body)
        self.requests.append((request.path, args))
        self.headers = dict(request.headers)
        if request.path == "/test_delay" and self.meeting is not None:
            await self.meeting.wait()
        elif request.path == "/test_delay":
            await asyncio.sleep(args[0])
        answer = self.answers.get(request.path)
        if answer is None:
            payload = PROTOCOL_VERSION if request.path == "/version" else args
            answer = HttpResponse(200, json.dumps([True, payload]).encode() + b"\n")
        return dataclasses.replace(answer, close=self.closes)

    def target(self, name: str = "node1") -> Target:
        assert self.server is not None
        return Target(name, ADDRESS, self.server.port)


@pytest.fixture
def node(tmp_path: Path) -> TlsNode:
    found = TlsNode(tmp_path)
    found.trust(found)
    return found


@pytest.fixture
def noded(node: TlsNode) -> Iterator[FakeNoded]:
    with served(FakeNoded(node).serve) as found:
        yield found


@pytest.fixture(params=["blocking", "in a loop"])
def call(request: pytest.FixtureRequest, node: TlsNode) -> Iterator[Caller]:
    """Makes node calls: with the blocking client, and with the one for event loops."""
    if request.param == "blocking":
        with NodeRpcClient(node.paths) as client:
            yield lambda name, targets: client.perform(ROWS[name], targets)
        return
    with asyncio.Runner() as runner:

        async def make() -> AsyncNodeRpcClient:
            return AsyncNodeRpcClient(node.paths)

        async_client = runner.run(make())
        yield lambda name, targets: runner.run(async_client.perform(ROWS[name], targets))
        runner.run(_close(async_client))


async def _close(client: AsyncNodeRpcClient) -> None:
    client.close()


@pytest.fixture
def quick_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    call = NodeCalls.calls["version"]
    monkeypatch.setattr(call, "rules", msgspec.structs.replace(call.rules, limit_s=2.0))


@contextlib.contextmanager
def raw_server(script: Callable[[socket.socket], None], count: int = 1) -> Iterator[int]:
    """A TCP server that runs a script for each of so many connections."""
    listener = socket.create_server((ADDRESS, 0))
    listener.settimeout(60)

    def serve() -> None:
        with contextlib.suppress(OSError):
            for _ in range(count):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError, ssl.SSLError):
                    connection.settimeout(60)
                    script(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
        listener.close()
        assert not thread.is_alive()


def greet(call: Caller, target: Target) -> None:
    """Make a connection that is kept: the short deadline is not for making one then."""
    assert call("echo", {target: [True]})[target.name].error is None


def answer_greeting(tls: ssl.SSLSocket) -> None:
    """Answer the call that `greet` makes."""
    received = b""
    while not received.endswith(b"]"):
        received += tls.recv(65536)
    tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n[true, null]")


def unused_port() -> int:
    with socket.create_server((ADDRESS, 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.mark.shows("backend/masterd/rpc")
def test_a_call_sends_its_arguments_and_returns_the_payload(noded: FakeNoded, call: Caller) -> None:
    found = call("echo", {noded.target(): [True]})
    assert found == {"node1": RpcResult("node1", payload=[True], call="echo")}
    assert noded.requests == [("/echo", [True])]
    assert noded.headers["content-type"] == "application/json"
    assert "expect" not in noded.headers
    assert "x-ganeti-job" not in noded.headers


def test_connections_are_kept(noded: FakeNoded, call: Caller) -> None:
    for _ in range(20):
        assert call("version", {noded.target(): []})["node1"].error is None
    assert len(noded.peers) == 1


def test_a_server_that_closes_after_each_request_is_fine(noded: FakeNoded, call: Caller) -> None:
    noded.closes = True
    for number in range(5):
        found = call("echo", {noded.target(): [number]})
        assert found["node1"].payload == [number]
    assert len(noded.requests) == 5


def test_a_server_that_hangs_up_without_saying_so_is_fine(node: TlsNode, call: Caller) -> None:
    """A kept connection may be closed by the node while nobody looks."""
    context = node_server_context(node.paths)
    gone = threading.Event()

    def answer_and_hang_up(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(65536)
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n[true, 3000]")
        gone.set()

    with raw_server(answer_and_hang_up, 3) as port:
        for _ in range(3):
            gone.clear()
            found = call("version", {Target("node1", ADDRESS, port): []})
            assert found["node1"].payload == 3000
            assert gone.wait(60)


def test_a_failure_of_the_node_is_told(noded: FakeNoded, call: Caller) -> None:
    noded.answers["/version"] = HttpResponse(200, b'[false, "disk on fire"]\n')
    found = call("version", {noded.target(): []})["node1"]
    assert (found.error, found.offline) == ("disk on fire", False)
    with pytest.raises(OpExecError, match="cannot look: node 'node1': disk on fire"):
        found.check("cannot look")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HttpResponse(200, b"rubbish"), "invalid JSON"),
        (HttpResponse(200, b""), "invalid JSON"),
        (HttpResponse(200, b"[1]"), r"not of the form \[bool, value\]"),
        (HttpResponse(200, b'[false, ""]'), "failed without saying why"),
        (HttpResponse(500, b"oops"), "HTTP status 500: oops"),
        (HttpResponse(404, b'[false, "no such call"]'), "HTTP status 404: no such call"),
        (HttpResponse(502, b""), "HTTP status 502: no reason given"),
    ],
)
def test_an_answer_that_breaks_the_rules_is_an_error_of_that_node(
    noded: FakeNoded, call: Caller, answer: HttpResponse, error: str
) -> None:
    noded.answers["/version"] = answer
    found = call("version", {noded.target(): []})["node1"]
    with pytest.raises(OpExecError, match=error):
        found.check("x")


def test_a_dead_node_does_not_stop_the_others(noded: FakeNoded, call: Caller) -> None:
    port = unused_port()
    targets: dict[Target, list[object]] = {
        noded.target(): [True],
        Target("node2", ADDRESS, port): [True],
        Target("node3", ADDRESS, port, offline=True): [True],
    }
    found = call("echo", targets)
    assert found["node1"].payload == [True]
    assert found["node2"].failure_text == (f"node 'node2' (127.0.0.1:{port}): connection refused")
    assert found["node3"] == RpcResult(
        "node3", error="node is marked offline", offline=True, call="echo"
    )


@pytest.mark.usefixtures("quick_calls")
def test_nodes_that_hang_end_with_the_one_deadline(noded: FakeNoded, call: Caller) -> None:
    def hang(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.recv(65536)

    greet(call, noded.target())
    with raw_server(hang, 2) as first, raw_server(hang, 2) as second:
        targets: dict[Target, list[object]] = {
            noded.target(): [],
            Target("node2", ADDRESS, first): [],
            Target("node3", ADDRESS, second): [],
        }
        begun = time.monotonic()
        found = call("version", targets)
        assert time.monotonic() - begun < PROMPT_S
    assert found["node1"].error is None
    assert found["node2"].error == found["node3"].error == "no connection within 2 s"


@pytest.mark.usefixtures("quick_calls")
@pytest.mark.parametrize("call", ["blocking"], indirect=True)
def test_a_node_that_takes_no_connection_is_told_apart(node: TlsNode, call: Caller) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((ADDRESS, 0), backlog=0))
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        target = Target("node1", ADDRESS, listener.getsockname()[1])
        assert call("version", {target: []})["node1"].error == "no connection within 2 s"


@pytest.mark.usefixtures("quick_calls")
def test_an_answer_that_does_not_come_is_told_apart(node: TlsNode, call: Caller) -> None:
    context = node_server_context(node.paths)

    def say_nothing_more(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            answer_greeting(tls)
            while tls.recv(65536):
                continue

    with raw_server(say_nothing_more) as port:
        greet(call, Target("node1", ADDRESS, port))
        found = call("version", {Target("node1", ADDRESS, port): []})
    assert found["node1"].error == "no answer within 2 s"


@pytest.mark.usefixtures("quick_calls")
def test_an_answer_that_drips_ends_with_the_deadline(node: TlsNode, call: Caller) -> None:
    context = node_server_context(node.paths)

    def drip(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            answer_greeting(tls)
            tls.recv(65536)
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                tls.sendall(b"x")
                time.sleep(0.001)

    with raw_server(drip) as port:
        greet(call, Target("node1", ADDRESS, port))
        begun = time.monotonic()
        found = call("version", {Target("node1", ADDRESS, port): []})
        assert time.monotonic() - begun < PROMPT_S
    assert found["node1"].error == "no answer within 2 s"


def test_a_node_that_hangs_up_at_once_is_an_error(node: TlsNode, call: Caller) -> None:
    context = node_server_context(node.paths)

    def hang_up(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(65536)
            tls.unwrap()

    with raw_server(hang_up) as port:
        found = call("version", {Target("node1", ADDRESS, port): []})
    assert found["node1"].error


@pytest.mark.shows("backend/masterd/rpc-both-sides")
def test_a_node_of_another_cluster_is_not_believed(
    tmp_path: Path, node: TlsNode, call: Caller
) -> None:
    stranger = TlsNode(tmp_path, "stranger")
    with served(FakeNoded(stranger).serve) as noded:
        found = call("version", {noded.target(): []})
    assert found["node1"].error is not None
    assert "its certificate is not one of this cluster" in found["node1"].error


def test_whose_clock_is_behind_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A certificate of a node whose clock is three days ahead, as other nodes see it."""
    pem = certificates.make_self_signed(now=clock.now() + 3 * 86400)
    ahead = TlsNode(tmp_path, "ahead", pem)
    ahead.renew(age_days=-3)
    ahead.trust(ahead)
    with served(FakeNoded(ahead).serve) as noded, NodeRpcClient(ahead.paths) as client:
        found = client.call_one(NodeCalls.version, noded.target())
    assert found.error is not None
    assert ": it begins on 2" in found.error
    assert "this node's clock is 1 d 23:59:" in found.error
    assert "not one of this cluster" not in found.error

    own = TlsNode(tmp_path, "own")
    own.renew(age_days=-3)
    own.trust(own)
    with served(FakeNoded(own).serve) as noded, NodeRpcClient(own.paths) as client:
        found = client.call_one(NodeCalls.version, noded.target())
    assert found.error is not None
    assert "the certificate of 'own' is not valid yet: it begins on 2" in found.error
    assert "the clock of remote is 1 d 23:59:" in found.error
    assert "its clock is" not in found.error, "the clocks do not differ"
    assert found.error.removeprefix("HTTP status 403: ") in caplog.text


def test_how_far_the_clock_of_a_node_that_refuses_is_behind(node: TlsNode, call: Caller) -> None:
    context = node_server_context(node.paths)
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(clock.now() - 2 * 86400))

    def refuse(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(65536)
            tls.sendall(f"HTTP/1.1 403 No\r\nDate: {date}\r\nContent-Length: 2\r\n\r\nno".encode())

    with raw_server(refuse) as port:
        found = call("version", {Target("node1", ADDRESS, port): []})
    expected = r"HTTP status 403: no; its clock is 2 d 00:00:\d\d behind this node's"
    assert re.fullmatch(expected, found["node1"].error or "")


def test_a_clock_that_is_some_hours_behind_is_no_trouble(tmp_path: Path) -> None:
    ahead = TlsNode(tmp_path, "ahead", certificates.make_self_signed(now=clock.now() + 20 * 3600))
    ahead.renew(age_days=-0.9)
    ahead.trust(ahead)
    with served(FakeNoded(ahead).serve) as noded, NodeRpcClient(ahead.paths) as client:
        assert client.call_one(NodeCalls.version, noded.target()).error is None


@pytest.mark.shows("backend/masterd/rpc-both-sides")
def test_a_caller_of_another_cluster_is_not_served(tmp_path: Path, noded: FakeNoded) -> None:
    stranger = TlsNode(tmp_path, "stranger")
    Path(stranger.paths.server_pem).write_bytes(noded.node.server_pem)
    with NodeRpcClient(stranger.paths) as client:
        found = client.call_one(NodeCalls.version, noded.target())
    assert found.error
    assert noded.requests == []


def test_a_demoted_candidate_is_refused_on_its_open_connection(
    noded: FakeNoded, tmp_path: Path, call: Caller
) -> None:
    other = TlsNode(tmp_path, "node2", noded.node.server_pem)
    assert call("version", {noded.target(): []})["node1"].error is None
    noded.node.trust(other)
    found = call("version", {noded.target(): []})["node1"]
    assert found.error == (
        "HTTP status 403: the certificate of 'node1' is not that of a master candidate"
    )
    assert len(noded.requests) == 1
    noded.node.trust(noded.node)
    assert call("version", {noded.target(): []})["node1"].error is None


def test_a_renewed_certificate_is_used_at_once(noded: FakeNoded, call: Caller) -> None:
    assert call("version", {noded.target(): []})["node1"].error is None
    noded.node.renew()
    noded.node.trust(noded.node)
    assert call("version", {noded.target(): []})["node1"].error is None
    assert len(noded.requests) == 2


def test_a_missing_certificate_is_named(node: TlsNode, call: Caller) -> None:
    os.unlink(node.paths.client_pem)
    os.unlink(node.paths.server_pem)
    with pytest.raises(X509CertError, match=r"server\.pem: this file does not exist"):
        call("version", {Target("node1", ADDRESS): []})


def test_certificates_of_old_clusters_work(tmp_path: Path) -> None:
    node = TlsNode(tmp_path)
    shutil.copy(OLD_CERTIFICATES / "server.crt", node.paths.server_pem)
    shutil.copy(OLD_CERTIFICATES / "client.crt", node.paths.client_pem)
    node.trust(node)
    with served(FakeNoded(node).serve) as noded, NodeRpcClient(node.paths) as client:
        assert client.call_one(NodeCalls.version, noded.target()).error is None
        os.unlink(node.paths.client_pem)
        assert "not that of a master candidate" in str(
            client.call_one(NodeCalls.version, noded.target()).error
        )
        node.trust_cluster_certificate()
        assert client.call_one(NodeCalls.version, noded.target()).error is None


@pytest.mark.shows("2.0/offline/not-called")
def test_without_targets_or_only_offline_ones_nothing_is_needed(
    node: TlsNode, call: Caller
) -> None:
    os.unlink(node.paths.client_pem)
    os.unlink(node.paths.server_pem)
    assert call("node_stop_master", {}) == {}
    offline = Target("node1", ADDRESS, offline=True)
    assert call("node_stop_master", {offline: []})["node1"].offline


def test_some_calls_go_to_offline_nodes_too(noded: FakeNoded, call: Caller) -> None:
    target = Target("node1", ADDRESS, noded.target().port, offline=True)
    assert call("version", {target: []})["node1"].error is None


def test_wrong_calls_are_our_own_mistakes(call: Caller) -> None:
    with pytest.raises(ProtocolError, match="takes 0 arguments"):
        call("version", {Target("node1", ADDRESS): [1]})


def test_large_contents_pass(noded: FakeNoded, call: Caller) -> None:
    content = os.urandom(1_500_000).hex()
    found = call("jobqueue_update", {noded.target(): ["/x", CompressedText(content)]})["node1"]
    assert found.error is None
    path, args = noded.requests[0]
    assert path == "/jobqueue_update"
    assert isinstance(args, list)
    assert args[1][0] == 1  # compressed


def test_each_node_gets_its_own_arguments(noded: FakeNoded, call: Caller) -> None:
    targets: dict[Target, list[object]] = {
        noded.target(f"node{number}"): [number] for number in range(30)
    }
    found = call("echo", targets)
    assert {name: result.payload for name, result in found.items()} == {
        f"node{number}": [number] for number in range(30)
    }


@pytest.mark.shows("2.12/overview/jobs-noded")
def test_the_job_is_named_to_the_node(noded: FakeNoded) -> None:
    with NodeRpcClient(noded.node.paths, job_id=17) as client:
        assert client.perform(ROWS["echo"], {noded.target(): [5]})["node1"].payload == [5]
    assert noded.headers["x-ganeti-job"] == "17"


def test_a_signal_handler_that_raises_leaves_a_client_that_works(noded: FakeNoded) -> None:
    class Canceled(Exception):
        pass

    def raise_canceled(_number: int, _frame: object) -> None:
        raise Canceled

    previous = signal.signal(signal.SIGALRM, raise_canceled)
    try:
        with NodeRpcClient(noded.node.paths) as client:

            def call() -> None:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                client.call_one(NodeCalls.test_delay, noded.target(), 100)

            with pytest.raises(Canceled):
                call()
            assert client.call_one(NodeCalls.version, noded.target()).error is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_the_blocking_client_is_lean() -> None:
    code = (
        "import sys; import ganeti.clients.node_rpc;"
        "print(sorted({'asyncio', 'ssl', 'logging', 'subprocess', 'cryptography'}"
        " & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=os.getcwd()
    )
    assert found.stdout.strip() == "[]"


def test_from_a_loop_calls_run_side_by_side(noded: FakeNoded) -> None:
    """None is answered before all are there."""
    noded.meeting = asyncio.Barrier(30)

    async def test() -> None:
        async with AsyncNodeRpcClient(noded.node.paths) as client:
            calls = [client.call_one(NodeCalls.test_delay, noded.target(), 0.0) for _ in range(30)]
            found = await asyncio.gather(*calls)
            assert all(result.error is None for result in found)

    run(test())


def test_from_a_loop_a_canceled_call_leaves_the_others(noded: FakeNoded) -> None:
    async def test() -> None:
        async with AsyncNodeRpcClient(noded.node.paths) as client:
            given_up = asyncio.ensure_future(
                client.call_one(NodeCalls.test_delay, noded.target(), 10)
            )
            goes_on = asyncio.ensure_future(
                client.call_one(NodeCalls.test_delay, noded.target(), 0.2)
            )
            await asyncio.sleep(0.05)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert (await goes_on).error is None
            for _ in range(3):
                assert (await client.call_one(NodeCalls.version, noded.target())).error is None

    run(test())


def test_from_a_loop_closing_lets_calls_under_way_end(noded: FakeNoded) -> None:
    async def test() -> None:
        client = AsyncNodeRpcClient(noded.node.paths)
        under_way = asyncio.ensure_future(
            client.call_one(NodeCalls.test_delay, noded.target(), 0.2)
        )
        await asyncio.sleep(0.05)
        client.close()
        assert (await under_way).error is None

    run(test())
