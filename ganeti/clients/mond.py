"""Asks monitoring daemons for reports, many at once, with limits of time and size.

Others that answer to GET are asked in the same way.

Source: mond.json, "transport" and "urls".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from ganeti.base.errors import ProtocolError, TransportError

PORT: Final = 1815  # constants.json, DEFAULT_MOND_PORT
_HEAD_BYTES_MAX: Final = 16 << 10
_AT_ONCE_MAX: Final = 200  # connections, of 1,024 files that a process may have


class Service(NamedTuple):
    """Who is asked: a name for messages, and a port."""

    name: str
    port: int


MOND: Final = Service("the monitoring daemon", PORT)


async def fetch_all(
    addresses: Mapping[str, str],
    target: str,
    *,
    body_bytes_max: int,
    timeout_s: float,
    service: Service = MOND,
) -> dict[str, bytes | str]:
    """Ask many nodes for the same; {name: body of the answer, or as a text why there is none}.

    Args:
        addresses: {name: IP address}.
        timeout_s: after which no answer counts any more.
    """
    found: dict[str, bytes | str] = {}
    turns = asyncio.Semaphore(_AT_ONCE_MAX)

    async def fetch_one(name: str, address: str) -> None:
        async with turns:
            try:
                found[name] = await _fetch(service, address, target, body_bytes_max)
            except (TransportError, ProtocolError) as err:
                found[name] = err.message

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as tasks:
            for name, address in addresses.items():
                tasks.create_task(fetch_one(name, address), name=f"report of {name}")
    late = f"{service.name} gave no answer within {timeout_s:g} s"
    return {name: found.get(name, late) for name in addresses}


async def _fetch(service: Service, address: str, target: str, body_bytes_max: int) -> bytes:
    """Return the body of an answer.

    Raises:
        TransportError: the service is not reached.
        ProtocolError: it does not answer with that.
    """
    try:
        reader, writer = await asyncio.open_connection(address, service.port)
        try:
            writer.write(f"GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
            whole = await _read(service, reader, _HEAD_BYTES_MAX + body_bytes_max)
        finally:
            writer.transport.abort()
    except OSError as err:
        reason = err.strerror or str(err)
        raise TransportError(f"{service.name} cannot be reached: {reason}") from err
    head, separator, body = whole.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split()
    if not separator or len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ProtocolError(f"{service.name} does not speak HTTP")
    if words[1] != b"200":
        status = words[1][:3].decode("ascii", "replace")
        raise ProtocolError(f"{service.name} answers with status {status}")
    return body


async def _read(service: Service, reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read to the end."""
    data = bytearray()
    while chunk := await reader.read(1 << 16):
        data += chunk
        if len(data) > bytes_max:
            raise ProtocolError(f"{service.name} answers with more than {bytes_max} bytes")
    return bytes(data)
