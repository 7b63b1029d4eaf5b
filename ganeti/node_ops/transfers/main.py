"""The process that carries one disk from a node to another, over TLS, in frames.

The receiver listens and takes one connection from a peer that has a certificate of the cluster (or
of the other cluster, when one is named) and knows the word that both were given.  It answers one
byte when everything is written, checked and on its disk; only then has the sender succeeded.

    sender:    word, newline
    receiver:  of a chain: frames with the checksums that it has
    sender:    frames (`ganeti.storage.stream`), perhaps compressed
    receiver:  "+" at the end

When it has ended, the process stays until its files are removed: by the job that began it, or by
itself when that job asks no more (`PATIENCE_S`).

A peer that is gone is noticed after `DEAD_PEER_S`.  One that lives may be busy for long, with a
script or with writing to its disk, so it is given up only after `STALL_S`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, NotSupportedError, TransportError
from ganeti.node_ops.disks import chains
from ganeti.node_ops.transfers.ends import SCRIPT_END_S, Sink, Source, open_sink, open_source
from ganeti.node_ops.transfers.increments import ChangesSource, IncrementSink
from ganeti.node_ops.transfers.status import Request, TransferFiles, TransferStatus
from ganeti.protocol.export_description import PARTIAL_SUFFIX
from ganeti.protocol.node_rpc_values import DISK_COMPRESSIONS, TransferOptions
from ganeti.storage.stream import FrameReader, framed
from ganeti.system import clock
from ganeti.transport.tls import server_context

STALL_S: Final = SCRIPT_END_S + 60  # no end of a transfer may be silent for longer
DEAD_PEER_S: Final = 60
GREETING_TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 60.0
PATIENCE_S: Final = 300.0  # a job asks many times a second, also after a node daemon's restart
_FORGOTTEN_POLL_S: Final = 1.0
_STATUS_EVERY_S: Final = 0.5
_DONE: Final = b"+"
_MAGIC_BYTES_MAX: Final = 101  # constants.json, IE_MAGIC_RE: up to 100 characters
_CHUNK_BYTES: Final = 1 << 18
_MIB: Final = 1 << 20
_ZLIB_LEVELS: Final = {"gzip": 6, "gzip-fast": 1, "gzip-slow": 9}
_GZIP_WINDOW: Final = 31


def check_options(options: TransferOptions) -> None:
    """Refuse ways to compress that are not built.

    Raises:
        NotSupportedError: the message names the ways that are built.
    """
    if options.compress not in DISK_COMPRESSIONS:
        raise NotSupportedError(
            f"compression {options.compress!r} is not supported for disks; use one of"
            f" {', '.join(DISK_COMPRESSIONS)}"
        )


@dataclass(slots=True)
class _Merged:
    """How far a merge is."""

    done_bytes: int = 0
    data_bytes: int = 0


class Reporter:
    """Writes the state of the transfer down, at most twice a second."""

    def __init__(self, files: TransferFiles) -> None:
        self._files = files
        found = files.load_status()
        self._status = found or TransferStatus(ctime=clock.now(), mtime=clock.now())
        self._started_s = clock.monotonic()
        self._next_s = 0.0

    def say(self, **changes: object) -> None:
        """Write down changes of the state."""
        self._status = replace(self._status, **changes, mtime=clock.now())
        self._files.save_status(self._status)

    def moved(self, moved: Source | Sink | _Merged, *, at_once: bool = False) -> None:
        """Write down the progress, if that is due."""
        now = clock.monotonic()
        if now < self._next_s and not at_once:
            return
        self._next_s = now + _STATUS_EVERY_S
        done, total = moved.done_bytes, moved.data_bytes
        elapsed_s = max(now - self._started_s, 1e-6)
        speed = done / elapsed_s
        self.say(
            progress_mbytes=done / _MIB,
            progress_throughput=speed / _MIB,
            progress_percent=100.0 * done / total if total else None,
            progress_eta=(total - done) / speed if total and speed else None,
        )


class _Incoming:
    """The bytes from the peer, unpacked if they are compressed."""

    def __init__(self, connection: ssl.SSLSocket, compress: str) -> None:
        self._connection = connection
        packed = compress != "none"
        self._unpacker = zlib.decompressobj(_GZIP_WINDOW) if packed else None

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        if self._unpacker is None:
            return self._connection.recv(min(count, _CHUNK_BYTES))
        while not self._unpacker.eof:
            data = self._unpacker.unconsumed_tail or self._connection.recv(_CHUNK_BYTES)
            if not data:
                return b""
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


def receive(request: Request, reporter: Reporter) -> None:
    """Take one disk from a peer."""
    with _accept(request) as connection:
        _be_patient(connection)
        reporter.say(connected=True)
        incoming = FrameReader(_Incoming(connection, request.options.compress))
        sink = open_sink(request.end, incoming)
        if isinstance(sink, IncrementSink):
            for piece in framed(sink.known()):
                connection.sendall(piece)
        for _ in sink.run():
            reporter.moved(sink)
        reporter.moved(sink, at_once=True)
        connection.sendall(_DONE)
        _wait_for_hang_up(connection)


def _accept(request: Request) -> ssl.SSLSocket:
    """Wait for the peer.

    Within the cluster the first peer that connects is the right one, or something is wrong.  Data
    from other clusters comes through networks where anybody may connect; a stranger is sent
    away, and the waiting goes on.
    """
    context = server_context(request.certificate, request.authority)
    timeout_s = request.options.connect_timeout or CONNECT_TIMEOUT_S
    deadline = clock.monotonic() + timeout_s
    refused = ""
    with socket.socket(fileno=request.listener) as listener:
        while True:
            listener.settimeout(max(deadline - clock.monotonic(), 0.001))
            try:
                plain, address = listener.accept()
            except TimeoutError as err:
                raise TransportError(f"nobody connected in time{refused}") from err
            try:
                return _greet(context, plain, request.options.magic or "")
            except (OSError, TransportError) as err:
                plain.close()
                if request.options.key_name is None:
                    raise
                refused = f"; {address[0]} tried, and was refused: {err}"


def _greet(context: ssl.SSLContext, plain: socket.socket, magic: str) -> ssl.SSLSocket:
    """Let a peer in that has the right certificate and says the right word."""
    plain.settimeout(GREETING_TIMEOUT_S)
    connection = context.wrap_socket(plain, server_side=True)
    try:
        _check_word(connection, magic)
    except BaseException:
        connection.close()
        raise
    return connection


def _be_patient(connection: ssl.SSLSocket) -> None:
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


def _wait_for_hang_up(connection: ssl.SSLSocket) -> None:
    """Read until the sender hangs up.

    A connection that is closed with something unread, the end of the packing for one, is reset, and
    the answer that was just sent is lost with it.
    """
    connection.settimeout(GREETING_TIMEOUT_S)
    with contextlib.suppress(OSError):
        while connection.recv(_CHUNK_BYTES):
            continue


def _check_word(connection: ssl.SSLSocket, magic: str) -> None:
    word = bytearray()
    while not word.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte or len(word) > _MAGIC_BYTES_MAX:
            raise TransportError("the peer did not say the word that was agreed")
        word += byte
    if word != magic.encode() + b"\n":
        raise TransportError("the peer said another word than was agreed")


def send(request: Request, reporter: Reporter) -> None:
    """Give one disk to a peer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # certificates name nodes or clusters; the authority decides
    context.load_cert_chain(request.certificate)
    context.load_verify_locations(request.authority)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    address = (request.host, request.port)
    timeout_s = request.options.connect_timeout or CONNECT_TIMEOUT_S
    source = open_source(request.end)
    with (
        contextlib.closing(source),
        socket.create_connection(address, timeout_s) as plain,
        context.wrap_socket(plain) as connection,
    ):
        _be_patient(connection)
        connection.sendall((request.options.magic or "").encode() + b"\n")
        reporter.say(connected=True)
        if isinstance(source, ChangesSource):
            source.learn(FrameReader(_Incoming(connection, "none")))
        for piece in _packed(framed(source.pieces()), request.options.compress):
            connection.sendall(piece)
            reporter.moved(source)
        reporter.moved(source, at_once=True)
        if connection.recv(1) != _DONE:
            raise TransportError("the receiving node could not write everything")


def merge(request: Request, reporter: Reporter) -> None:
    """Make a point the first of its chain, on this node alone."""
    end, moved = request.end, _Merged()
    for count in chains.merge(end.path, f"{end.path}{PARTIAL_SUFFIX}", end.number):
        moved.done_bytes += count
        reporter.moved(moved)
    reporter.moved(moved, at_once=True)


def run(directory: str) -> int:
    """Carry out the transfer of a directory; returns its exit status."""
    files = TransferFiles(directory)
    reporter = Reporter(files)
    request = files.load_request()
    try:
        with request.end.shown():
            if request.end.kind == "merge":
                merge(request, reporter)
            else:
                (receive if request.listener >= 0 else send)(request, reporter)
    except GenericError as err:
        text = err.message
    except (ssl.SSLError, zlib.error) as err:
        text = f"the connection broke: {err}"
    except TimeoutError:
        text = "the other side is gone, or nothing moved for too long"
    except OSError as err:
        text = err.strerror or str(err)
    else:
        reporter.say(exit_status=0)
        return 0
    reporter.say(exit_status=1, error_message=text, recent_output=[text])
    return 1


def wait_until_forgotten(files: TransferFiles, patience_s: float = PATIENCE_S) -> None:
    """Keep the files until the job has seen how it ended; remove them if the job is gone."""
    while (asked := files.last_interest()) is not None:
        if clock.now() - asked > patience_s:
            shutil.rmtree(files.directory, ignore_errors=True)
            return
        clock.pause(_FORGOTTEN_POLL_S)


def _stopped(number: int, _frame: object) -> None:
    """End as the signal would, but stop the script first that reads or writes the disk."""
    sys.exit(128 + number)


def main() -> int:
    """Run with the directory of the transfer as the only argument."""
    signal.signal(signal.SIGTERM, _stopped)
    os.umask(0o077)
    status = run(sys.argv[1])
    wait_until_forgotten(TransferFiles(sys.argv[1]))
    return status


if __name__ == "__main__":
    sys.exit(main())
