"""A client that speaks HTTP by the byte, and something to talk to."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from ganeti.transport.http_message import HttpRequest, HttpResponse
from ganeti.transport.http_server import HttpLimits, HttpServer

ADDRESS = "127.0.0.1"
# Only what a test is about has little time: a busy machine may need long for the rest.
CALM = HttpLimits(linger_s=0.1, drain_s=0.1)


async def echo(request: HttpRequest) -> HttpResponse:
    text = f"{request.method} {request.path} ".encode()
    return HttpResponse(200, text + request.body)


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Client:
    """Speaks HTTP by the byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:-2])
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(head[0].split()[1]), headers, body

    async def status(self) -> int:
        return (await self.answer())[0]

    async def is_closed_by_server(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return await self.reader.read() == b""
        return True


@contextlib.asynccontextmanager
async def connect(
    server: HttpServer, tls: ssl.SSLContext | None = None, own_address: str = ADDRESS
) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(
        ADDRESS, server.port, ssl=tls, local_addr=(own_address, 0)
    )
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
