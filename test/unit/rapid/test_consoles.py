"""Tests of ganeti/rapid/consoles.py: tickets, whose pages may open consoles, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Raw

from ganeti.base.errors import OpExecError
from ganeti.protocol.luxi import ConsoleWay
from ganeti.protocol.node_rpc import CONSOLES_MAX
from ganeti.protocol.rapi.pages import CONSOLE_PROTOCOL, TICKET_PREFIX
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid.consoles import TICKET_S, Consoles, Tickets, check_origin
from ganeti.transport.flow import PIECE_BYTES
from ganeti.transport.http_message import HttpRequest, HttpResponse, HttpStream


def test_a_ticket_is_good_once_and_for_seconds() -> None:
    now = [100.0]
    tickets = Tickets(lambda: now[0])
    first, late = (tickets.give("jim", "web1", ConsoleWay.SERIAL) for _ in range(2))
    assert first != late
    found = tickets.take(first)
    assert found is not None
    assert (found.user, found.instance, found.way) == ("jim", "web1", "serial")
    assert tickets.take(first) is None
    now[0] += TICKET_S + 0.1
    assert tickets.take(late) is None
    assert tickets.take("") is None


def test_there_are_not_too_many() -> None:
    now = [100.0]
    tickets = Tickets(lambda: now[0])
    for _ in range(1000):
        tickets.give("jim", "web1", ConsoleWay.SERIAL)
    with pytest.raises(HttpProblem, match="Too many"):
        tickets.give("jim", "web1", ConsoleWay.SERIAL)
    now[0] += TICKET_S
    tickets.give("jim", "web1", ConsoleWay.SERIAL)


def test_pages_of_others_are_refused() -> None:
    check_origin({"host": "here:5080", "origin": "https://here:5080"})
    check_origin({"host": "here:5080"})
    for origin in ("https://here", "https://evil", "null"):
        with pytest.raises(HttpProblem):
            check_origin({"host": "here:5080", "origin": origin})


OPEN = b"\x82\x00"  # an empty message
PING, PONG = b"\x89\x88\0\0\0\0answer:)", b"\x8a\x08answer:)"


class Page:
    """A browser that opened a WebSocket."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.got = b""
        self.hears = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.got += data
        if len(self.got) > len(OPEN):
            self.hears.set()

    async def drain(self) -> None:
        await asyncio.sleep(0)

    async def hear(self, response: HttpResponse) -> None:
        """Speak with the server until that is over."""
        assert response.status == 101
        assert response.speak is not None
        await response.speak(HttpStream(self.reader, self.write, self.drain))


class Opener:
    """LuxiD, which opens consoles at a socket once it ``speaks``, and who waits there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.opened = 0
        self.left = asyncio.Semaphore(0)
        self.speaks = asyncio.Event()
        self.speaks.set()

    async def ask(self, method: str, args: list[object]) -> Raw:
        assert (method, args[1]) == ("OpenConsole", "serial")
        await self.speaks.wait()
        if args[0] == "broken":
            raise OpExecError("node n1: it is broken")
        return Raw(json.dumps(self.path).encode())

    async def on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        writer.write(b"hello")
        await reader.read()  # until the other end leaves
        writer.close()
        self.left.release()

    def asked_for(self, consoles: Consoles, instance: str = "web1") -> HttpResponse:
        """Return the answer to a browser that comes with a ticket."""
        word = consoles.tickets.give("jim", instance, ConsoleWay.SERIAL)
        headers = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
            "sec-websocket-protocol": f"{CONSOLE_PROTOCOL}, {TICKET_PREFIX}{word}",
        }
        request = HttpRequest("GET", "/ui/console-socket", headers, b"", None, "192.0.2.1")
        return consoles.open(request)


@contextlib.asynccontextmanager
async def opener(tmp_path: Path) -> AsyncIterator[Opener]:
    made = Opener(str(tmp_path / "console"))
    async with await asyncio.start_unix_server(made.on_client, made.path):
        yield made


async def see(consoles: Consoles, luxid: Opener, instance: str = "web1") -> bytes:
    """Return what a browser gets that leaves after a moment."""
    page = Page()
    talk = asyncio.ensure_future(page.hear(luxid.asked_for(consoles, instance)))
    await page.hears.wait()
    page.reader.feed_eof()
    await talk
    return page.got


def test_who_leaves_while_a_console_is_opened_keeps_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with asyncio.timeout(30), opener(tmp_path) as luxid:
            consoles = Consoles(luxid.ask)
            luxid.speaks.clear()
            pages = [Page() for _ in range(CONSOLES_MAX)]
            talks = [asyncio.ensure_future(page.hear(luxid.asked_for(consoles))) for page in pages]
            await asyncio.sleep(0)
            assert b"64 consoles are open already" in await see(consoles, luxid)
            for page in pages:
                page.reader.feed_eof()
            luxid.speaks.set()
            await asyncio.gather(*talks)
            assert (await see(consoles, luxid)).startswith(OPEN + b"\x82\x05hello")
            for _ in range(CONSOLES_MAX + 1):
                await luxid.left.acquire()  # each was let go, so that nobody else waits for it

    asyncio.run(test())


def test_who_is_gone_before_the_answer_keeps_no_console(tmp_path: Path) -> None:
    async def test() -> None:
        async with asyncio.timeout(30), opener(tmp_path) as luxid:
            consoles = Consoles(luxid.ask)
            for _ in range(CONSOLES_MAX + 1):
                luxid.asked_for(consoles)  # nobody speaks
            assert luxid.opened == 0
            assert (await see(consoles, luxid)).startswith(OPEN)

    asyncio.run(test())


def test_what_cannot_be_opened_is_said_in_the_closing_frame(tmp_path: Path) -> None:
    async def test() -> None:
        async with asyncio.timeout(30), opener(tmp_path) as luxid:
            consoles = Consoles(luxid.ask)
            for _ in range(CONSOLES_MAX + 1):
                answer = await see(consoles, luxid, "broken")
                assert answer == b"\x88\x17\x03\xf3node n1: it is broken"
            luxid.path = "/nowhere"
            assert (await see(consoles, luxid)).startswith(b"\x88")

    asyncio.run(test())


def test_nothing_follows_the_closing_frame(tmp_path: Path) -> None:
    async def test() -> None:
        async with asyncio.timeout(30), opener(tmp_path) as luxid:
            page = Page()
            # The browser closes before the console has said its first word, and pings after.
            page.reader.feed_data(b"\x88\x82\0\0\0\0\x03\xe8" + b"\x89\x80\0\0\0\0")
            await page.hear(luxid.asked_for(Consoles(luxid.ask)))
            assert page.got == OPEN + b"\x88\x02\x03\xe8"

    asyncio.run(test())


class Deaf(Page):
    """A browser that reads nothing until it ``listens``."""

    def __init__(self) -> None:
        super().__init__()
        self.listens = asyncio.Event()

    async def drain(self) -> None:
        await self.listens.wait()


def test_pings_are_answered_no_faster_than_the_answers_are_read(tmp_path: Path) -> None:
    async def test() -> None:
        async with asyncio.timeout(30), opener(tmp_path) as luxid:
            page, pings = Deaf(), 20 * PIECE_BYTES // len(PING)
            page.reader.feed_data(PING * pings)
            talk = asyncio.ensure_future(page.hear(luxid.asked_for(Consoles(luxid.ask))))
            await page.hears.wait()
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(page.got) <= 2 * PIECE_BYTES
            page.reader.feed_eof()
            page.listens.set()
            await talk
            assert page.got.count(PONG) == pings

    asyncio.run(test())
