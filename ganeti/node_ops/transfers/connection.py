"""The connection between the two processes that carry a disk: TLS, the agreed word, packing.

In frames (`StreamForm.FRAMES`) the word is followed by a newline, and is not packed:

    sender:    word, newline
    receiver:  of a chain: frames with the checksums that it has
    sender:    frames (`ganeti.storage.stream`), perhaps compressed
    receiver:  "+" at the end

Between nodes of 3.0 all is one stream, perhaps compressed, and no data comes back:

    sender:    M=, word, bytes, the end of its half of TLS
    receiver:  the end of the other half

Senders of 3.0 wait for the latter and fail when the connection is reset instead; so here it is
sent when everything is on the disk, and a receiver that fails resets the connection.  Receivers of
3.0 send it when they have read everything.

A peer that is gone is noticed after `DEAD_PEER_S`.  One that lives may be busy for long, with a
script or with writing to its disk, so it is given up only after `STALL_S`.

Source: the streams of 3.0, as two of its nodes show them.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
import zlib
from collections.abc import Iterator
from typing import Final

from ganeti.base.errors import TransportError
from ganeti.node_ops.transfers.ends import SCRIPT_END_S
from ganeti.node_ops.transfers.status import Request
from ganeti.protocol.node_rpc_values import STREAM_ENDED_EARLY, StreamForm
from ganeti.storage.stream import framed
from ganeti.transport.tls import client_context

STALL_S: Final = SCRIPT_END_S + 60  # no end of a transfer may be silent for longer
DEAD_PEER_S: Final = 60
GREETING_TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 60.0
_DONE: Final = b"+"
_CHUNK_BYTES: Final = 1 << 18
_ZLIB_LEVELS: Final = {"gzip": 6, "gzip-fast": 1, "gzip-slow": 9}
_GZIP_WINDOW: Final = 31
_LINGER: Final = struct.Struct("ii")  # whether close() waits, and for how many seconds
RESET_AT_CLOSE: Final = _LINGER.pack(1, 0)
_ORDERLY_CLOSE: Final = _LINGER.pack(0, 0)


class Unpacked:
    """The bytes from the peer, unpacked if they are compressed."""

    def __init__(self, connection: ssl.SSLSocket, compress: str) -> None:
        self._connection = connection
        packed = compress != "none"
        self._unpacker = zlib.decompressobj(_GZIP_WINDOW) if packed else None

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end.

        Raises:
            TransportError: the packed bytes broke off.
        """
        if self._unpacker is None:
            return self._connection.recv(min(count, _CHUNK_BYTES))
        while not self._unpacker.eof:
            data = self._unpacker.unconsumed_tail or self._connection.recv(_CHUNK_BYTES)
            if not data:
                raise TransportError(STREAM_ENDED_EARLY)
            found = self._unpacker.decompress(data, count)
            if found:
                return found
        return b""


def _packed(pieces: Iterator[bytes], compress: str) -> Iterator[bytes]:
    if compress == "none":
        yield from pieces
        return
    packer = zlib.compressobj(_ZLIB_LEVELS[compress], zlib.DEFLATED, _GZIP_WINDOW)
    for piece in pieces:
        if data := packer.compress(piece):
            yield data
    yield packer.flush()


def greeting(request: Request) -> bytes:
    """Return the bytes with which the sender begins."""
    word = (request.options.magic or "").encode()
    if request.options.form is StreamForm.FRAMES:
        return word + b"\n"
    return b"M=" + word if word else b""


def connect(request: Request) -> ssl.SSLSocket:
    """Connect to the receiver."""
    context = client_context(request.certificate, request.authority)
    timeout_s = request.options.connect_timeout or CONNECT_TIMEOUT_S
    plain = socket.create_connection((request.host, request.port), timeout_s)
    try:
        connection = context.wrap_socket(plain)
    except BaseException:
        plain.close()
        raise
    be_patient(connection)
    return connection


def be_patient(connection: ssl.SSLSocket) -> None:
    """Wait long for a peer that lives, and not for one that is gone."""
    connection.settimeout(STALL_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    probes = 4
    for option, value in (
        (socket.TCP_KEEPIDLE, DEAD_PEER_S // 2),
        (socket.TCP_KEEPINTVL, DEAD_PEER_S // 2 // probes),
        (socket.TCP_KEEPCNT, probes),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def outgoing(request: Request, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a disk as they are sent after what was agreed."""
    if request.options.form is StreamForm.FRAMES:
        return _packed(framed(pieces), request.options.compress)
    return _packed(itertools.chain([greeting(request)], pieces), request.options.compress)


def confirm(connection: ssl.SSLSocket, form: StreamForm) -> None:
    """Tell the sender that everything is written."""
    if form is StreamForm.FRAMES:
        connection.sendall(_DONE)
    # A connection that is closed with something unread, the end of the packing for one, is reset,
    # and the answer that was just sent is lost with it.
    connection.settimeout(GREETING_TIMEOUT_S)
    with contextlib.suppress(OSError):
        while connection.recv(_CHUNK_BYTES):
            continue
        if form is StreamForm.PLAIN:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ORDERLY_CLOSE)
            connection.unwrap()


def await_confirmation(connection: ssl.SSLSocket, form: StreamForm) -> None:
    """Wait until the receiver has written everything; one of 3.0 has only read it.

    Raises:
        TransportError: it has not.
    """
    if form is StreamForm.FRAMES:
        if connection.recv(1) != _DONE:
            raise TransportError("the receiving node could not write everything")
        return
    try:
        # Also reads what TLS itself still says: a connection closed before that is reset, and the
        # end of the disk may be lost with it.
        connection.unwrap()
    except TimeoutError:
        raise
    except OSError as err:
        raise TransportError("the receiving node hung up before the end") from err
