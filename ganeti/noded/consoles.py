"""Carries consoles of this node's instances over the daemon's own port.

A serial console is what the program says that ``gnt-instance console`` would run: it gets a
terminal of its own, and ends with the connection.  Graphics are the bytes of VNC's socket.  Which
program and which socket, the node's own driver says; the master names the instance only.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from ganeti.base.errors import GenericError, OpExecError
from ganeti.base.json import dumps
from ganeti.objects.hypervisors import ConsoleKind
from ganeti.objects.model import InstanceConsole
from ganeti.protocol import node_rpc
from ganeti.protocol.luxi import ConsoleWay
from ganeti.system import process
from ganeti.transport.flow import PIECE_BYTES, End, StreamEnd, pump
from ganeti.transport.http_message import HttpRequest, HttpResponse, HttpStream

logger = logging.getLogger(__name__)

_CONNECT_S: Final = 5.0
_END_S: Final = 5.0
_KINDS: Final[Mapping[ConsoleWay, ConsoleKind]] = {
    ConsoleWay.SERIAL: ConsoleKind.SSH,
    ConsoleWay.GRAPHICS: ConsoleKind.VNC,
}


Find = Callable[[HttpRequest, bytes], Awaitable[Sequence[InstanceConsole]]]


class Consoles:
    """The consoles that are open.

    Args:
        find: tells all ways to the consoles of the instance that a request is about.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._count = 0

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Agree to carry a console."""
        if request.headers.get("upgrade", "") != node_rpc.CONSOLE_UPGRADE:
            return HttpResponse.text(
                426, f"only {node_rpc.CONSOLE_UPGRADE} is spoken at {request.path}"
            )
        return HttpResponse.switch(
            node_rpc.CONSOLE_UPGRADE, functools.partial(self._speak, request), {}
        )

    async def _speak(self, request: HttpRequest, stream: HttpStream) -> None:
        """Open a console, tell about that, and carry it."""
        try:
            async with asyncio.timeout(node_rpc.CONSOLE_ANSWER_S_MAX):
                body = await stream.reader.readline()
                opened = await self._open(request, body)
        except (GenericError, OSError, ValueError) as err:  # a line that is too long, a wrong way
            stream.write(
                dumps(node_rpc.ConsoleOpened(str(err) or "it does not answer in time")) + b"\n"
            )
            await stream.drain()
            return
        stream.write(dumps(node_rpc.ConsoleOpened()) + b"\n")
        self._count += 1
        logger.info("%s is opened", opened)
        try:
            await pump(StreamEnd(stream.reader, stream.write, stream.drain), opened)
        finally:
            self._count -= 1
            await opened.close()
            logger.info("%s is closed", opened)

    async def _open(self, request: HttpRequest, body: bytes) -> _Opened:
        if self._count >= node_rpc.CONSOLES_MAX:
            raise OpExecError(f"{node_rpc.CONSOLES_MAX} consoles of this node are open already")
        way = ConsoleWay(request.headers.get(node_rpc.CONSOLE_HEADER.lower(), ""))
        found = await self._find(request, body)
        console = next((each for each in found if each.kind is _KINDS[way]), None)
        if console is None:
            raise OpExecError(_nothing(found, way))
        try:
            return await (_terminal(console) if way is ConsoleWay.SERIAL else _graphics(console))
        except (GenericError, OSError) as err:
            text = f"cannot open the {way} console of {console.instance}: {err}"
            raise OpExecError(text) from err


def _nothing(found: Sequence[InstanceConsole], way: ConsoleWay) -> str:
    said = [each.message for each in found if each.kind is ConsoleKind.MESSAGE and each.message]
    kinds = ", ".join(sorted(each.kind for each in found if each.kind is not ConsoleKind.MESSAGE))
    return said[0] if said else f"it has no {way} console, but: {kinds}"


class _Opened(End):
    """An end that is closed when the client is gone."""

    label = ""

    def __str__(self) -> str:
        return self.label

    async def close(self) -> None:
        """Let go of it."""


class _Connection(StreamEnd, _Opened):
    """A socket of VNC."""

    def __init__(
        self, label: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(reader, writer.write, writer.drain)
        self.label = label
        self._writer = writer

    async def close(self) -> None:
        """As declared."""
        self._writer.close()


async def _graphics(console: InstanceConsole) -> _Opened:
    host = console.host or ""
    async with asyncio.timeout(_CONNECT_S):
        if host.startswith("/"):
            # The name may be too long for a socket's address; what it leads to is not.
            reader, writer = await asyncio.open_unix_connection(os.path.realpath(host))
        else:
            reader, writer = await asyncio.open_connection(host, console.port)
    return _Connection(f"The screen of {console.instance}", reader, writer)


async def _terminal(console: InstanceConsole) -> _Opened:
    command = console.command
    if not command:
        raise OpExecError("the driver names no program for it")
    starting = asyncio.get_running_loop().run_in_executor(None, _start, command)
    try:
        ours, child = await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_let_go)  # the thread goes on
        raise
    return _Terminal(f"The serial console of {console.instance}", ours, child)


def _start(command: Sequence[str]) -> tuple[int, process.Started]:
    """Start a program on a terminal of its own, in a thread; returns our side, and the program."""
    ours, theirs = os.openpty()
    try:
        os.set_blocking(ours, False)
        environment = {**os.environ, "TERM": "xterm-256color"}
        return ours, process.spawn(
            command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)


def _let_go(starting: asyncio.Future[tuple[int, process.Started]]) -> None:
    """End a program that nobody waited for until it was started."""
    if starting.exception() is None:
        ours, child = starting.result()
        os.close(ours)
        starting.get_loop().run_in_executor(None, process.end, child, _END_S)


class _Terminal(_Opened):
    """Our side of the terminal of a program."""

    def __init__(self, label: str, descriptor: int, child: process.Started) -> None:
        self.label = label
        self._descriptor = descriptor
        self._child = child

    async def read(self) -> bytes:
        """As declared; a terminal that nobody else has open any more says so by an error."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._descriptor, PIECE_BYTES)
            except BlockingIOError:
                await _ready(loop.add_reader, loop.remove_reader, self._descriptor)
            except OSError as err:
                if err.errno == errno.EIO:
                    return b""
                raise

    async def write(self, data: bytes) -> None:
        """As declared."""
        loop = asyncio.get_running_loop()
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:
                await _ready(loop.add_writer, loop.remove_writer, self._descriptor)

    async def close(self) -> None:
        """As declared: the program ends."""
        os.close(self._descriptor)
        await asyncio.to_thread(process.end, self._child, _END_S)


async def _ready(
    watch: Callable[..., None], forget: Callable[[int], bool], descriptor: int
) -> None:
    """Wait until a descriptor can be read from, or written to."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watch(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        forget(descriptor)
