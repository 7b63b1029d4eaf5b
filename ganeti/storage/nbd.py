"""Reading an export of an NBD server over its Unix socket: the contents of a disk at one instant.

Raises `StorageError` with the server's message; a server that is gone raises it as well.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ganeti.base.errors import ProtocolError, StorageError, failing_as
from ganeti.protocol import nbd

TIMEOUT_S: Final = 300.0  # without a byte; a disk may be busy
_INFOS_MAX: Final = 16  # QEMU tells one thing for each option
_PIECE_BYTES: Final = 1 << 20
_Part = tuple[nbd.Chunk, bytes]  # of an answer


class NbdImage:
    """One export, connected; ``size`` in bytes."""

    def __init__(self, socket_path: str, export: str, dirty_bitmap: str = "") -> None:
        """Connect.

        Args:
            dirty_bitmap: of QEMU; then the areas are the ones that it marks.

        Raises:
            StorageError: nobody is there, or there is no such export or bitmap.
        """
        self._context = nbd.dirty_context(dirty_bitmap) if dirty_bitmap else nbd.ALLOCATION
        self._what = f"export {export!r} of the NBD server at {socket_path}"
        self._cookie = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        try:
            with failing_as(StorageError, f"{self._what} cannot be reached"):
                self._socket.connect(socket_path)
            self.size = self._negotiate(export, needs_context=bool(dirty_bitmap))
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """End the connection; the server sees that as a good-bye."""
        self._socket.close()

    def areas(self) -> Iterator[tuple[int, int]]:
        """Yield the parts that may hold anything but zeroes, or are marked, as (start, end)."""
        position = 0
        while position < self.size:
            for length, has_data in self._status(position):
                end = min(position + length, self.size)
                if has_data:
                    yield position, end
                position = end

    def read(self, position: int, count: int) -> bytes:
        """Return the bytes at a position."""
        buffer = bytearray(count)
        got = 0
        with self._explained():
            for part, data in self._ask(nbd.Command.READ, position, count):
                placed = nbd.place_of_data(part, data)
                if placed is None:
                    continue
                offset, piece = placed[0] - position, placed[1]
                if offset < 0 or offset + len(piece) > count:
                    raise StorageError(f"{self._what}: bytes came that nobody asked for")
                buffer[offset : offset + len(piece)] = piece
                got += len(piece)
        if got != count:
            raise StorageError(f"{self._what}: {got} of {count} bytes came")
        return bytes(buffer)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Put the name of the export before an error of the protocol."""
        try:
            yield
        except ProtocolError as err:
            raise StorageError(f"{self._what}: {err.message}") from err

    def _negotiate(self, export: str, *, needs_context: bool) -> int:
        """Choose the export; returns its size."""
        with self._explained():
            self._send(nbd.answer_greeting(self._exactly(nbd.GREETING.size)))
            self._option(nbd.Option.STRUCTURED_REPLY)
            chosen = nbd.choose_context(export, self._context)
            known = self._option(nbd.Option.SET_META_CONTEXT, chosen)
            if needs_context and not known:
                raise ProtocolError(f"the NBD server does not tell {self._context.name}")
            infos = self._option(nbd.Option.GO, nbd.choose_export(export))
        sizes = [size for info in infos if (size := nbd.export_size(info)) is not None]
        if len(sizes) != 1:
            raise StorageError(f"{self._what}: the server does not tell its size")
        return sizes[0]

    def _option(self, which: nbd.Option, data: bytes = b"") -> list[bytes]:
        """Negotiate one option; returns the replies before its acknowledgement."""
        self._send(nbd.option(which, data))
        found: list[bytes] = []
        while len(found) < _INFOS_MAX:
            kind, length = nbd.option_reply(self._exactly(nbd.OPTION_REPLY.size), which)
            text = self._exactly(length)
            nbd.check_reply(which, kind, text)
            if kind == nbd.OptionReply.ACK:
                return found
            found.append(text)
        raise ProtocolError(f"the NBD server does not come to an end with option {which.name}")

    def _status(self, position: int) -> list[tuple[int, bool]]:
        """Return the next parts of the export, as many as the server likes to tell."""
        count = min(nbd.STATUS_BYTES, self.size - position)
        with self._explained():
            found = [
                extent
                for part, data in self._ask(nbd.Command.BLOCK_STATUS, position, count)
                for extent in nbd.extents(part, data, self._context)
            ]
        if not found:
            raise StorageError(f"{self._what}: the server does not tell where it has holes")
        return found

    def _ask(self, command: nbd.Command, start: int, count: int) -> Iterator[_Part]:
        """Send a request and yield the parts of the answer."""
        self._cookie += 1
        self._send(nbd.request(command, self._cookie, start, count))
        is_last = False
        while not is_last:
            part = nbd.chunk(self._exactly(nbd.CHUNK.size), self._cookie)
            data = self._exactly(part.length)
            nbd.check_chunk(part, data)
            is_last = part.is_last
            yield part, data

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as err:
            raise self._gone() from err

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                data = self._socket.recv(min(_PIECE_BYTES, count - len(parts)))
            except OSError as err:
                raise self._gone() from err
            if not data:
                raise self._gone()
            parts += data
        return bytes(parts)

    def _gone(self) -> StorageError:
        return StorageError(f"{self._what} is gone; has its instance stopped?")
