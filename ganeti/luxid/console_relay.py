"""A process that carries one console: from a node's daemon to a socket, for one client.

It is started by LuxiD with its task on standard input, and tells by a line on standard output where
the client may connect.  It does so when the node has agreed and the socket is there; from then on
it is on its own.  Only users of Ganeti reach the socket; it is taken away once the client is there,
or did not come in time.

Run as ``python -m ganeti.luxid.console_relay ROOT``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, OpExecError, TransportError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.protocol import node_rpc
from ganeti.protocol.luxi import ConsoleWay
from ganeti.system.files import give_to, remove_if_exists
from ganeti.transport import tls
from ganeti.transport.flow import StreamEnd, pump

CLIENT_WAIT_S: Final = 10.0  # for the one client to come
SOCKET_PREFIX: Final = "console-"
_CONNECT_S: Final = 10.0
_TEXT_BYTES_MAX: Final = 1 << 14
_SOCKET_MODE: Final = 0o660
_SWITCHED: Final = b"101"


class RelayRequest(msgspec.Struct, frozen=True):
    """The task: which node to ask for which console, and the argument for it."""

    node: str
    address: str
    port: int
    way: ConsoleWay
    body: str


class RelayAnswer(msgspec.Struct, frozen=True):
    """The socket where the console waits for its client, or the error."""

    socket: str = ""
    error: str = ""


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def reach(paths: Paths, request: RelayRequest) -> Pair:
    """Connect to a node's daemon, and have it open the console.

    Raises:
        GenericError: says why that cannot be done.
    """
    context = tls.node_client_context(paths)
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(
                request.address, request.port, ssl=context
            )
    except (OSError, TimeoutError) as err:
        raise TransportError(f"node {request.node} is not reached: {err or 'no answer'}") from err
    lines = (
        f"POST {node_rpc.CONSOLE_PATH} HTTP/1.1",
        f"Host: {request.node}",
        "Connection: Upgrade",
        f"Upgrade: {node_rpc.CONSOLE_UPGRADE}",
        f"{node_rpc.CONSOLE_HEADER}: {request.way}",
        "Content-Length: 0",
    )
    writer.write("\r\n".join([*lines, "", ""]).encode() + request.body.encode() + b"\n")
    try:
        async with asyncio.timeout(2 * node_rpc.CONSOLE_ANSWER_S_MAX):
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            if head.split(b" ", 2)[1] != _SWITCHED:
                text = (await reader.read(_TEXT_BYTES_MAX)).decode("utf-8", "replace").strip()
                raise OpExecError(f"node {request.node}: {text}")
            opened = loads_as(node_rpc.ConsoleOpened, await reader.readline())
    except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as err:
        raise TransportError(f"node {request.node} does not answer as it should") from err
    if opened.error:
        raise OpExecError(f"node {request.node}: {opened.error}")
    return reader, writer


def listen(directory: str) -> tuple[str, socket.socket]:
    """Make the socket, which only users of Ganeti's reach."""
    path = os.path.join(directory, SOCKET_PREFIX + secrets.token_hex(8))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(path)
    finally:
        os.umask(before)
    give_to(path, os.geteuid(), os.stat(directory).st_gid)
    os.chmod(path, _SOCKET_MODE)
    sock.listen(1)
    sock.setblocking(False)
    return path, sock


async def relay(paths: Paths, request: RelayRequest, told: int) -> None:
    """Connect, tell where, and carry bytes for the one client that comes."""
    try:
        reader, writer = await reach(paths, request)
        path, sock = listen(paths.socket_dir)
    except (GenericError, OSError) as err:
        _tell(told, RelayAnswer(error=str(err)))
        return
    try:
        _tell(told, RelayAnswer(socket=path))
        async with asyncio.timeout(CLIENT_WAIT_S):
            client, _ = await asyncio.get_running_loop().sock_accept(sock)
    except TimeoutError:
        return
    finally:
        remove_if_exists(path)
        sock.close()
    here_reader, here_writer = await asyncio.open_unix_connection(sock=client)
    await pump(
        StreamEnd(here_reader, here_writer.write, here_writer.drain),
        StreamEnd(reader, writer.write, writer.drain),
    )
    for each in (here_writer, writer):
        each.close()
        with contextlib.suppress(OSError):
            await each.wait_closed()


def _tell(descriptor: int, answer: RelayAnswer) -> None:
    os.write(descriptor, dumps(answer))
    os.close(descriptor)


def main() -> int:
    """Read the task, and leave the work to a process that nobody waits for."""
    request = loads_as(RelayRequest, sys.stdin.buffer.read())
    told, telling = os.pipe()
    if os.fork() == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.close(told)
        asyncio.run(relay(Paths(sys.argv[1]), request, telling))
        return 0
    os.close(telling)
    with open(told, "rb") as answer:
        sys.stdout.buffer.write(answer.read())
    return 0


if __name__ == "__main__":
    sys.exit(main())
