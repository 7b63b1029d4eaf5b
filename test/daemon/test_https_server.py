"""Tests of ganeti/transport/http_server.py over live sockets, with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.http_conversation import ADDRESS, CALM, Client, connect, echo, post
from fakes.loop import run
from fakes.tls_node import TlsNode
from fakes.waiting import until

from ganeti.transport.http_message import HttpRequest, HttpResponse
from ganeti.transport.http_server import HttpLimits, HttpServer, serve_http
from ganeti.transport.tls import CandidatePolicy, digest_of, node_server_context, server_context


def client_context(node: TlsNode, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(node.paths.server_pem)
    if certificate != "none":
        context.load_cert_chain(certificate or node.paths.client_pem)
    return context


@contextlib.asynccontextmanager
async def serve_node(
    node: TlsNode, policy: CandidatePolicy | None = None, limits: HttpLimits = CALM
) -> AsyncIterator[HttpServer]:
    policy = policy or CandidatePolicy(node.paths)

    def authorize(request: HttpRequest) -> HttpResponse | None:
        refusal = policy.refusal(request.peer)
        return None if refusal is None else HttpResponse.text(403, refusal, close=True)

    context = node_server_context(node.paths)
    async with serve_http(
        ADDRESS, 0, echo, tls=context, authorize=authorize, limits=limits
    ) as server:
        yield server


@pytest.fixture
def node(tmp_path: Path) -> TlsNode:
    found = TlsNode(tmp_path)
    found.trust(found)
    return found


@pytest.mark.shows("backend/masterd/rpc-both-sides")
def test_a_candidate_is_served_and_known_by_name(node: TlsNode) -> None:
    async def name(request: HttpRequest) -> HttpResponse:
        assert request.peer is not None
        assert request.peer.digest == node.digest
        return HttpResponse(200, request.peer.common_name.encode())

    async def test() -> None:
        context = node_server_context(node.paths)
        async with (
            serve_http(ADDRESS, 0, name, tls=context) as server,
            connect(server, client_context(node)) as client,
        ):
            client.send(post("/x", b""))
            assert (await client.answer())[2] == b"node1"

    run(test())


def test_a_candidate_removed_while_connected_is_refused_at_its_next_request(
    node: TlsNode, tmp_path: Path
) -> None:
    other = TlsNode(tmp_path, "node2", node.server_pem)

    async def test() -> None:
        async with serve_node(node) as server, connect(server, client_context(node)) as client:
            client.send(post("/a", b""))
            assert await client.status() == 200
            node.trust(other)
            client.send(post("/b", b"[1]"))
            status, _, body = await client.answer()
            assert (status, body) == (
                403,
                b"the certificate of 'node1' is not that of a master candidate\n",
            )
            assert await client.is_closed_by_server()

    run(test())


def test_a_certificate_that_expires_while_connected_is_refused(node: TlsNode) -> None:
    clock = [time.time()]

    async def test() -> None:
        policy = CandidatePolicy(node.paths, now=lambda: clock[0])
        async with (
            serve_node(node, policy) as server,
            connect(server, client_context(node)) as client,
        ):
            client.send(post("/a", b""))
            assert await client.status() == 200
            clock[0] += 3650 * 86400.0
            client.send(post("/b", b""))
            status, _, body = await client.answer()
            assert (status, body) == (403, b"the certificate of 'node1' has expired\n")

    run(test())


@pytest.mark.shows("backend/certificates/tls")
def test_strangers_fail_in_the_handshake(
    node: TlsNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = TlsNode(tmp_path, "stranger")
    node.trust(node, stranger)

    async def attempt(server: HttpServer, context: ssl.SSLContext) -> None:
        context.load_verify_locations(node.paths.server_pem)
        with contextlib.suppress(ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            async with connect(server, context) as client:
                client.send(post("/x", b""))
                await client.answer()
            pytest.fail("a stranger was answered")

    async def test() -> None:
        async with serve_node(node) as server:
            for certificate in (stranger.paths.client_pem, "none"):
                await attempt(server, client_context(node, certificate))
            assert not server.connections
            async with connect(server, client_context(node)) as client:
                client.send(post("/x", b""))
                assert await client.status() == 200

    run(test())
    [line] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert line.startswith(f"Refusing client {ADDRESS}: its certificate is not one of ours: ")


@pytest.mark.parametrize(
    ("age_days", "words"), [(100, b"has expired\n"), (-100, b"is not valid yet: it begins on 2")]
)
def test_a_certificate_out_of_its_time_is_told_so(
    node: TlsNode, tmp_path: Path, age_days: float, words: bytes
) -> None:
    other = TlsNode(tmp_path, "other", node.server_pem)
    other.renew(age_days=age_days, days=30)
    node.trust(node, other)

    async def test() -> None:
        async with serve_node(node) as server, connect(server, client_context(other)) as client:
            client.send(post("/x", b""))
            status, _, body = await client.answer()
            assert status == 403
            assert body.startswith(b"the certificate of 'other' " + words)
            assert await client.is_closed_by_server()

    run(test())


def test_a_handshake_that_never_ends_is_dropped(node: TlsNode) -> None:
    async def test() -> None:
        async with serve_node(node, limits=HttpLimits(handshake_s_max=0.2)) as server:
            async with connect(server) as silent:
                assert await silent.is_closed_by_server()
            async with connect(server) as rubbish:
                rubbish.send(post("/x", b""))
                assert b"200" not in await rubbish.reader.read()

    run(test())


def test_the_cluster_certificate_serves_until_there_are_candidates(node: TlsNode) -> None:
    cluster = client_context(node, node.paths.server_pem)

    async def test() -> None:
        async with serve_node(node) as server:
            async with connect(server, cluster) as client:
                client.send(post("/x", b""))
                assert await client.status() == 403
            node.trust_cluster_certificate()
            async with connect(server, cluster) as client:
                client.send(post("/x", b""))
                assert await client.status() == 200

    run(test())


def test_large_bodies_pass_both_ways_with_tls(node: TlsNode) -> None:
    body = os.urandom(3_000_000)

    async def test() -> None:
        limits = HttpLimits()
        async with (
            serve_node(node, limits=limits) as server,
            connect(server, client_context(node)) as client,
        ):
            for _ in range(3):
                client.send(post("/x", body))
                assert (await client.answer())[2] == b"POST /x " + body

    run(test())


def test_a_renewed_certificate_is_for_new_connections_and_old_ones_stay(node: TlsNode) -> None:
    def shown(client: Client) -> str:
        found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return digest_of(found)

    async def test() -> None:
        renewed = TlsNode(Path(node.paths.root), "renewed")
        async with (
            serve_node(node, limits=HttpLimits()) as server,
            connect(server, client_context(node)) as old,
        ):
            await server.renew_tls(server_context(renewed.paths.server_pem))
            async with connect(server, client_context(renewed, "none")) as new:
                assert shown(new) != shown(old)
                new.send(post("/a", b""))
                assert await new.status() == 403  # this context asks for no certificate
            old.send(post("/b", b""))
            assert await old.status() == 200

    run(test())


def test_a_handshake_may_be_slow_until_others_wait_for_their_turn(node: TlsNode) -> None:
    limits = HttpLimits(handshake_turn_s=0.1, handshakes_max=2)
    context = client_context(node)

    def hello() -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        return client, incoming, outgoing

    async def test() -> None:
        async with serve_node(node, limits=limits) as server, connect(server) as slow:
            client, incoming, outgoing = hello()
            slow.send(outgoing.read())
            await asyncio.sleep(5 * limits.handshake_turn_s)  # the time is what it is about
            while True:
                incoming.write(await slow.reader.read(1 << 16))
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.do_handshake()
                    break
            client.write(post("/x", b""))
            slow.send(outgoing.read())
            assert await slow.reader.read(1)

            async with connect(server) as stuck:
                stuck.send(hello()[2].read())
                assert await stuck.reader.read(1)
                async with connect(server, context) as other:
                    other.send(post("/x", b""))
                    assert await other.status() == 200
                await stuck.reader.read()  # it was dropped

    run(test())


def test_who_hangs_up_gives_the_connection_free_while_the_handler_still_works(
    tmp_path: Path,
) -> None:
    node = TlsNode(tmp_path)

    async def test() -> None:
        may_end = asyncio.Event()

        async def slow(request: HttpRequest) -> HttpResponse:
            assert request.watch_client is not None
            request.watch_client()
            await may_end.wait()
            return await echo(request)

        async with serve_http(
            ADDRESS,
            0,
            slow,
            tls=server_context(node.paths.server_pem),
            limits=HttpLimits(connections_max=1),
        ) as server:
            async with connect(server, client_context(node, "none")) as client:
                client.send(post("/x", b""))
                await until(lambda: server.requests_running == 1)
            await until(lambda: not server.connections)
            assert server.requests_running == 1
            async with connect(server, client_context(node, "none")) as client:
                client.send(post("/x", b""))
                await until(lambda: server.requests_running == 2)
                may_end.set()
                assert await client.status() == 200

    run(test())
