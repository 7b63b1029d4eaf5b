"""Reading an export of an NBD server: a small server that does as it is told, or answers nonsense."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.storage.nbd import NbdImage
from ganeti.storage.stream import DiskReader

GREETING = b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3)
SECTOR = 4096
IMAGE = b"a" * SECTOR + bytes(2 * SECTOR) + b"b" * SECTOR + bytes(SECTOR)
READ, BLOCK_STATUS = 0, 7
DONE = 1


def reply(option: int, kind: int, data: bytes = b"") -> bytes:
    return struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)) + data


def part(kind: int, cookie: int, data: bytes, flags: int = DONE) -> bytes:
    return struct.pack(">IHHQI", 0x668E33EF, flags, kind, cookie, len(data)) + data


def negotiation(size: int = len(IMAGE)) -> bytes:
    """Return what a server says until an export is chosen."""
    info = reply(7, 3, struct.pack(">HQH", 0, size, 1)) + reply(7, 1)
    context = reply(10, 4, struct.pack(">I", 1) + b"base:allocation") + reply(10, 1)
    return GREETING + reply(8, 1) + context + info


def read_answer(cookie: int, offset: int, length: int) -> bytes:
    """Answer a read in two parts, the second one a hole if it is one."""
    middle = offset + min(length, SECTOR)
    first = part(1, cookie, struct.pack(">Q", offset) + IMAGE[offset:middle], flags=0)
    rest = IMAGE[middle : offset + length]
    if not any(rest):
        return first + part(2, cookie, struct.pack(">QI", middle, len(rest)))
    return first + part(1, cookie, struct.pack(">Q", middle) + rest)


def status_answer(cookie: int, offset: int, length: int) -> bytes:
    """Tell of each sector whether it reads as zeroes; two sectors at most in one answer."""
    end = min(offset + length, offset + 2 * SECTOR)
    extents = b"".join(
        struct.pack(">II", SECTOR, 0 if any(IMAGE[begin : begin + SECTOR]) else 3)
        for begin in range(offset, end, SECTOR)
    )
    return part(5, cookie, struct.pack(">I", 1) + extents)


def serve(connection: socket.socket, said: bytes) -> None:
    """Say something, then answer requests until the client is gone."""
    connection.sendall(said)
    stream = connection.makefile("rb")
    stream.read(4)  # flags
    while len(head := stream.read(16)) == 16 and head.startswith(b"IHAVEOPT"):
        option, length = struct.unpack(">II", head[8:])
        stream.read(length)
        if option == 7:
            break
    while len(head := stream.read(28)) == 28:
        _magic, _flags, kind, cookie, offset, length = struct.unpack(">IHHQQI", head)
        answer = {READ: read_answer, BLOCK_STATUS: status_answer}[kind]
        connection.sendall(answer(cookie, offset, length))


@contextmanager
def server(directory: Path, said: bytes, *, answers: bool = True) -> Iterator[str]:
    """A server for one client; without ``answers`` it says its words and hangs up."""
    path = str(directory / "nbd")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1)

    def run() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                if answers:
                    serve(connection, said)
                else:
                    connection.sendall(said)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass
            except OSError:  # the client is gone
                return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        thread.join(60)
        listener.close()
        assert not thread.is_alive()


def test_contents_and_holes_are_those_of_the_export(tmp_path: Path) -> None:
    with server(tmp_path, negotiation()) as path, closing(NbdImage(path, "disk")) as image:
        assert image.size == len(IMAGE)
        assert list(image.areas()) == [(0, SECTOR), (3 * SECTOR, 4 * SECTOR)]
        assert image.read(0, len(IMAGE)) == IMAGE
        assert image.read(100, 2 * SECTOR) == IMAGE[100 : 100 + 2 * SECTOR]


def test_it_is_streamed_without_its_holes(tmp_path: Path) -> None:
    with server(tmp_path, negotiation()) as path:
        reader = DiskReader(NbdImage(path, "disk"))
        data = b"".join(reader.pieces())
        reader.close()
    assert reader.done_bytes == reader.data_bytes == 2 * SECTOR
    assert b"b" * SECTOR in data
    assert bytes(SECTOR) not in data


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"", "is gone"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian", "no NBD server of the new style"),
        (b"NBDMAGICIHAVEOPT\0\0", "no NBD server of the new style"),
        (GREETING, "is gone"),
        (GREETING + reply(7, 1), "reply .* to option STRUCTURED_REPLY is damaged"),
        (GREETING + reply(8, 1 << 31 | 1, b"go away"), "refused option STRUCTURED_REPLY: go away"),
        (GREETING + reply(8, 1 << 31 | 1), "refused option STRUCTURED_REPLY: error 1"),
        (GREETING + reply(8, 1, bytes(1 << 17)), "damaged"),
        (GREETING + reply(8, 3) * 20, "does not come to an end"),
        (GREETING + reply(8, 1) + reply(10, 1) + reply(7, 1), "does not tell its size"),
    ],
)
def test_who_is_no_such_server_is_refused(tmp_path: Path, said: bytes, text: str) -> None:
    with server(tmp_path, said, answers=False) as path, pytest.raises(StorageError, match=text):
        NbdImage(path, "disk")


DATA = struct.pack(">Q", 0) + b"a" * SECTOR
READ_NONSENSE = [
    (b"", "is gone"),
    (part(1, 1, DATA)[:-1], "is gone"),
    (part(1, 2, DATA), "damaged"),
    (b"\0" * 20, "damaged"),
    (part(1, 1, struct.pack(">Q", 1) + b"a" * SECTOR), "nobody asked for"),
    (part(1, 1, struct.pack(">Q", 0) + b"a"), "1 of 4096 bytes came"),
    (part(0, 1, b""), "0 of 4096 bytes came"),
    (part(5, 1, b"\0" * 12), "answered a read with 5"),
    (part(2, 1, struct.pack(">QI", 0, (1 << 32) - 1)), "damaged"),
    (part(1, 1, b"abc"), "damaged"),
    (part(2, 1, b"abc"), "damaged"),
    (part(0x8001, 1, struct.pack(">IH", 5, 4) + b"oops"), "cannot read: oops"),
    (part(0x8001, 1, struct.pack(">IH", 5, 0)), "cannot read: error 5"),
    (part(0x8001, 1, b""), "damaged"),
]


@pytest.mark.parametrize(("answer", "text"), READ_NONSENSE)
def test_answers_to_a_read_that_are_nonsense(tmp_path: Path, answer: bytes, text: str) -> None:
    with (
        server(tmp_path, negotiation() + answer, answers=False) as path,
        closing(NbdImage(path, "disk")) as image,
        pytest.raises(StorageError, match=text),
    ):
        image.read(0, SECTOR)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (part(5, 1, b"\0\0\0\1" + struct.pack(">II", 0, 0)), "part without length"),
        (part(5, 1, b"\0\0\0\1"), "does not tell where"),
        (part(5, 1, b"\0\0\0\1abc"), "answered a question for holes with 5"),
        (part(1, 1, DATA), "answered a question for holes with 1"),
        (part(0, 1, b""), "answered a question for holes with 0"),
    ],
)
def test_answers_about_holes_that_are_nonsense(tmp_path: Path, answer: bytes, text: str) -> None:
    with (
        server(tmp_path, negotiation() + answer, answers=False) as path,
        closing(NbdImage(path, "disk")) as image,
        pytest.raises(StorageError, match=text),
    ):
        list(image.areas())


def test_nobody_is_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be reached"):
        NbdImage(str(tmp_path / "nbd"), "disk")
